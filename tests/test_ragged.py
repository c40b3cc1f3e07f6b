# SPDX-License-Identifier: Apache-2.0
"""Padded batches of sequences: what is computed for tokens alone is what it is with its padding."""

import json

import collage
import numpy as np
import placed
import pytest
import tvm
from collage import Dim, errors, export, frontends, seeded, transform
from collage.workloads import bert, decoder
from collage.workloads.network import Network
from dnnl_steps import profiled_regions
from native_placement import prefer
from onnx_networks import INT, answers, hold, node, normal, ran, values, weights, write
from tvm import relay

BATCH, LENGTH, UNITS, HEADS = 3, 9, 32, 4
needs_native = pytest.mark.skipif("native" not in placed.usable(), reason="native cannot be used here")


def norm(net, x, name):
    gain = net.parameter(f"{name}.weight", (UNITS,), mean=1.0, std=0.1)
    return relay.nn.layer_norm(x, gain, net.parameter(f"{name}.bias", (UNITS,), std=0.05))


def encoder(hide, turned=False, causal=False):
    """One layer, whose scores ``hide`` changes by the mask, [batch, length]; rows place by place where ``turned``."""
    net = Network("encoder")
    x, mask = net.input("x", (BATCH, LENGTH, UNITS)), net.input("mask", (BATCH, LENGTH), "bool")
    shape = (LENGTH, BATCH) if turned else (BATCH, LENGTH)
    inside = relay.transpose(x, (1, 0, 2)) if turned else x

    def project(part, times=1):
        return bert.linear(net, inside, part, shape, UNITS, times * UNITS)

    def heads(part):
        parts = relay.reshape(project(part), (*shape, HEADS, UNITS // HEADS))
        parts = relay.transpose(parts, (1, 2, 0, 3) if turned else (0, 2, 1, 3))
        return relay.reshape(parts, (BATCH * HEADS, LENGTH, UNITS // HEADS))

    def masked(scores):
        if causal:
            scores = relay.where(decoder.causal_truths(LENGTH), scores, relay.const(decoder.LOWEST, "float32"))
        return hide(scores, mask)

    scores = relay.nn.batch_matmul(heads("query"), heads("key"))
    scores = masked(relay.reshape(scores, (BATCH, HEADS, LENGTH, LENGTH)))
    ways = relay.reshape(relay.nn.softmax(scores), (BATCH * HEADS, LENGTH, LENGTH))
    mixed = relay.nn.batch_matmul(ways, heads("value"), transpose_b=False)
    mixed = relay.reshape(mixed, (BATCH, HEADS, LENGTH, UNITS // HEADS))
    mixed = relay.reshape(relay.transpose(mixed, (2, 0, 1, 3) if turned else (0, 2, 1, 3)), (*shape, UNITS))
    x = norm(net, relay.add(inside, bert.linear(net, mixed, "out", shape, UNITS, UNITS)), "first")
    hidden = bert.gelu(bert.linear(net, x, "up", shape, UNITS, 2 * UNITS))
    x = norm(net, relay.add(x, bert.linear(net, hidden, "down", shape, 2 * UNITS, UNITS)), "second")
    return net, relay.transpose(x, (1, 0, 2)) if turned else x


def truths(mask):
    return relay.reshape(mask, (BATCH, 1, 1, LENGTH))


def adds(scores, mask):
    hidden = relay.subtract(relay.const(1.0), relay.cast(truths(mask), "float32"))
    return relay.add(scores, relay.multiply(hidden, relay.const(-10000.0)))


def chooses(scores, mask):
    return relay.where(truths(mask), scores, relay.const(float("-inf")))


def adds_infinity(scores, mask):
    return relay.add(scores, relay.where(truths(mask), relay.const(0.0), relay.const(float("-inf"))))


def of_each_query(scores, mask):
    """As transformers writes it, with a row for each query, of which those of padding see nothing."""
    both = relay.logical_and(truths(mask), relay.reshape(mask, (BATCH, 1, LENGTH, 1)))
    return relay.where(both, scores, relay.const(decoder.LOWEST, "float32"))


def hides_nothing(scores, mask):
    return relay.add(scores, relay.multiply(relay.cast(truths(mask), "float32"), relay.const(0.5)))


def by_distance():
    """What ALiBi adds, for each head, as T5 adds what it has learnt."""
    apart = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))
    return relay.const((-0.3 * np.arange(1, HEADS + 1)[:, None, None] * apart)[None].astype("float32"))


def hidden_of(mask):
    return relay.multiply(relay.subtract(relay.const(1.0), relay.cast(truths(mask), "float32")), relay.const(-10000.0))


def adds_both(scores, mask):
    """T5's way: one mask of all, by head, query and key."""
    return relay.add(scores, relay.add(by_distance(), hidden_of(mask)))


def adds_apart(scores, mask):
    return relay.add(relay.add(scores, by_distance()), hidden_of(mask))


def window(scores, mask):
    """Tokens see those beside them."""
    near = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))[None, None] <= 2
    both = relay.logical_and(truths(mask), relay.const(near))
    return relay.where(both, scores, relay.const(decoder.LOWEST, "float32"))


def not_itself(scores, mask):
    """Of a token that sees no other, the padded network makes a mean over padding, too."""
    others = ~np.eye(LENGTH, dtype=bool)[None, None]
    both = relay.logical_and(truths(mask), relay.const(others))
    return relay.where(both, scores, relay.const(decoder.LOWEST, "float32"))


def undone(scores, mask):
    """What hides padding is replaced."""
    near = np.abs(np.arange(LENGTH)[:, None] - np.arange(LENGTH))[None, None] <= 4
    return relay.where(relay.const(near), relay.add(scores, hidden_of(mask)), relay.const(0.0))


FORMS = {
    "added": {"hide": adds}, "chosen": {"hide": chooses}, "infinity": {"hide": adds_infinity},
    "turned": {"hide": adds, "turned": True}, "causal": {"hide": adds, "causal": True},
    "queries": {"hide": of_each_query}, "both": {"hide": adds_both}, "apart": {"hide": adds_apart},
    "apart_turned": {"hide": adds_apart, "turned": True}, "window": {"hide": window},
    "seen": {"hide": hides_nothing}, "not_itself": {"hide": not_itself}, "undone": {"hide": undone},
}  # fmt: skip
# Of these all is computed; of those only where no padding is between tokens, as they see which place a token has.
NEVER, TOGETHER = {"seen", "not_itself", "undone"}, {"both", "apart", "apart_turned", "window"}


def bound(net, out):
    module, given = net.finish(out)
    module["main"] = relay.build_module.bind_params_by_name(module["main"], given)
    return relay.transform.InferType()(module)


def cleared(module):
    return tvm.transform.Sequential([transform.ClearPadding("mask"), relay.transform.InferType()])(module)


def on_kernels(module, path):
    """An executable whose regions have our own kernels."""
    return placed.load(placed.export_to(path, prefer("product", "attention", "norm", "ragged")(module)))


def masks(count):
    """Batches of all kinds: one token each, nothing padded, one long, no token at all, and padding between tokens."""
    rng = np.random.default_rng(1)
    for lengths in ([1] * BATCH, [LENGTH] * BATCH, [1, LENGTH, 1], [0, 4, 0], [0] * BATCH, [5] * BATCH):
        yield np.arange(LENGTH) < np.array(lengths)[:, None]
    for number in range(count):
        if number % 2:
            yield rng.integers(0, 2, (BATCH, LENGTH)).astype(bool)
        else:
            yield np.arange(LENGTH) < rng.integers(0, LENGTH + 1, BATCH)[:, None]


@needs_native
@pytest.mark.parametrize("form", FORMS)
def test_tokens_alone_are_what_they_are_with_their_padding(form, tmp_path):
    """Plain TVM computes all padding, and so does the network as it was; some masks hide nothing from attention."""
    net, out = encoder(**FORMS[form])
    as_it_was = transform.Normalise()(bound(net, out))
    module = cleared(as_it_was)
    executor = on_kernels(module, tmp_path / "x.tar")
    plain = [tvm.contrib.graph_executor.GraphModule(tvm.relay.build(one, "llvm")["default"](tvm.cpu()))
             for one in (module, as_it_was)]  # fmt: skip
    rng, packed = np.random.default_rng(2), 0
    for mask in masks(60):
        if form in NEVER and not mask.any():
            continue  # there is no token that sees what it should not
        given = (rng.standard_normal((BATCH, LENGTH, UNITS), dtype="float32"), mask)
        (got,), told = profiled_regions(lambda given=given: placed.run(executor, *given))
        (wanted,), (with_padding,) = (placed.run(one, *given) for one in plain)
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(mask.sum(1)))
        np.testing.assert_allclose(got[mask], with_padding[mask], rtol=1e-4, atol=1e-5)
        assert not got[~mask].any()
        steps = [step["what"] for region in told.values() for step in region]
        alone = any(step.startswith("gather tokens") for step in steps)
        # A few rows more or less make no plan of their own.
        together = not (np.diff(mask.astype(int)) == 1).sum(1, where=mask[:, :-1].cumsum(1) > 0).any()
        may = form not in NEVER and (form not in TOGETHER or together)
        assert alone == (may and mask.sum() <= 24), (mask.sum(1), steps)
        packed += alone
    assert form in NEVER or packed > 20


def pooled():
    """What classifiers make of the first place, beside all of them, and a mean over the tokens."""
    net, out = encoder(adds)
    mask = net._inputs[1]
    counted = relay.expand_dims(relay.cast(mask, "float32"), 2)
    mean = relay.sum(relay.multiply(out, counted), axis=[1]) / relay.sum(counted, axis=[1])
    first = relay.tanh(net.dense(relay.take(out, relay.const(0), axis=1), "pooler", UNITS, UNITS))
    return bound(net, relay.Tuple([out, first, mean]))


@needs_native
def test_what_reads_the_first_place_or_the_mask_is_right(tmp_path):
    as_it_was = transform.Normalise()(pooled())
    module = cleared(as_it_was)
    counts = placed.counted(module["main"])
    assert counts["where"] == placed.counted(as_it_was["main"])["where"] + 1  # it is the same value that all three read
    executor = on_kernels(module, tmp_path / "x.tar")
    rng = np.random.default_rng(3)
    for lengths in ([1, 2, 3], [9, 9, 9], [4, 1, 9]):
        mask = np.arange(LENGTH) < np.array(lengths)[:, None]
        given = (rng.standard_normal((BATCH, LENGTH, UNITS), dtype="float32"), mask)
        got, wanted = placed.run(executor, *given), placed.expected(as_it_was, *given)
        wanted[0] = wanted[0] * mask[..., None]
        placed.same(got, wanted)


def sentences(path, out="out"):
    """Rows of words and their mask; what leaves has a row for each, or their mean."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "v"], ["rows"])]
    if out == "out":
        nodes += [node("Cast", ["mask"], ["m"], to=1), node("Unsqueeze", ["m", "axes"], ["c"]),
                  node("ReduceMean", ["c"], ["n"], keepdims=1), node("Add", ["rows", "n"], ["out"])]  # fmt: skip
        shape = [4, 10, 8]
    else:
        nodes += [node("Cast", ["mask"], ["m"], to=1), node("ReduceMean", ["m"], ["n"], keepdims=1, axes=[1]),
                  node("ReduceMean", ["rows"], ["mean"], keepdims=0, axes=[1]),
                  node("Add", ["mean", "n"], [out])]  # fmt: skip
        shape = [4, 8]
    given = weights(w=(16, 32), v=(32, 8), axes=np.array([2], "int64"))
    return write(path, nodes, values(x=[4, 10, 16], mask=(INT, [4, 10])), values(**{out: shape}), given)


def test_from_the_command_line(command, store, tmp_path):
    path, made, plan = sentences(tmp_path / "network.onnx"), tmp_path / "network.so", tmp_path / "plan.json"
    options = ["--ragged", "mask", "--db", store, "--backends", "tvm,dnnl,native", "--search-time", "20s", "-v"]
    told = command("compile", path, "-o", made, *options, "--plan-out", plan)
    assert told.returncode == 0, told.stderr
    if "onnxruntime" in placed.usable():
        assert "TVM read the model right: ONNX Runtime" in told.stderr + told.stdout
    mask = np.arange(10) < np.array([[3], [10], [1], [6]])
    given = {"x": normal(1, 4, 10, 16), "mask": mask.astype("int64")}
    (wanted,) = answers(path, given)
    model = collage.load(made)
    hold(ran(model.executor, given), [wanted * mask[..., None]])

    # The plan is one of the network with its padding cleared.
    again = tmp_path / "again.so"
    told = command("compile", path, "-o", again, "--plan", plan, "--ragged", "mask")
    assert told.returncode == 0, told.stderr
    hold(ran(collage.load(again).executor, given), [wanted * mask[..., None]])
    told = command("compile", path, "-o", again, "--plan", plan)
    assert told.returncode != 0 and "plan" in told.stderr


def layer(path):
    """A layer as ONNX has it, open in batch and length: attention under a mask, and a product for each row."""
    inside = {
        "heads": np.array([0, 0, HEADS, UNITS // HEADS]), "whole": np.array([0, 0, UNITS]),
        "axes": np.array([1, 2]), "one": np.float32(1), "low": np.float32(-10000),
        "g": np.ones(UNITS, "float32"), "b": np.zeros(UNITS, "float32"),
        **{name: (UNITS, UNITS) for name in ("wq", "wk", "wv", "wo")},
    }  # fmt: skip
    nodes = []
    for one in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{one}"], [f"{one}0"]),
            node("Reshape", [f"{one}0", "heads"], [f"{one}1"]),
            node("Transpose", [f"{one}1"], [f"{one}2"], perm=[0, 2, 3, 1] if one == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("Cast", ["mask"], ["m0"], to=1),
        node("Unsqueeze", ["m0", "axes"], ["m1"]),
        node("Sub", ["one", "m1"], ["m2"]),
        node("Mul", ["m2", "low"], ["m3"]),
        node("MatMul", ["q2", "k2"], ["s0"]),
        node("Add", ["s0", "m3"], ["s1"]),
        node("Softmax", ["s1"], ["p"], axis=-1),
        node("MatMul", ["p", "v2"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "whole"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["o3"]),
        node("Add", ["x", "o3"], ["r"]),
        node("LayerNormalization", ["r", "g", "b"], ["out"], axis=-1),
    ]
    given = values(x=["B", "S", UNITS], mask=(INT, ["B", "S"]))
    return write(path, nodes, given, values(out=["B", "S", UNITS]), weights(**inside))


@needs_native
@pytest.mark.parametrize("axes", [[0, 1], [1], [0]], ids=["both", "length", "batch"])
def test_batch_and_length_may_be_open(axes, tmp_path):
    """At each size that comes its tokens alone are computed; of sizes there are more than plans are kept for."""
    path = layer(tmp_path / "layer.onnx")
    open_axes = {"x": axes, "mask": axes}
    given = {} if len(axes) == 2 else {"x": [BATCH, LENGTH, UNITS], "mask": [BATCH, LENGTH]}
    module = cleared(transform.Normalise()(frontends.load(path, input_shapes=given, dynamic=open_axes).module))
    out = placed.place(module, "dnnl,native")
    assert "native.ragged" in out.astext(show_meta_data=False), out
    assert "nn." not in out["main"].astext(show_meta_data=False), out
    model = export.runnable(out)
    rng, packed = np.random.default_rng(4), 0
    for number in range(160):
        batch = int(rng.integers(1, 6)) if 0 in axes else BATCH
        length = int(rng.integers(1, 40)) if 1 in axes else LENGTH
        mask = np.arange(length) < rng.integers(0, length + 1, batch)[:, None]
        if number % 5 == 0:
            mask = rng.integers(0, 2, (batch, length)).astype(bool)
        inputs = {"x": normal(number, batch, length, UNITS), "mask": mask.astype("int64")}
        got, told = profiled_regions(lambda inputs=inputs: ran(model, inputs))
        hold([one * mask[..., None] for one in got], [one * mask[..., None] for one in answers(path, inputs)])
        assert not got[0][~mask].any()
        alone = any(step["what"].startswith("gather tokens") for steps in told.values() for step in steps)
        rows = max(1, -(-int(mask.sum()) // 8)) * 8
        assert alone == (rows < mask.size), (mask.shape, mask.sum())
        packed += alone
    assert packed > 30


@pytest.mark.parametrize(
    ("name", "out", "why"),
    [
        ("masks", "out", 'ragged names "masks", and the network has no such input; it has x, mask'),
        ("x", "out", "ragged names x, which has not two dimensions, batch and length"),
        ("mask", "mean_of_all", "whoever reads the network's values sees padding"),
    ],
)
def test_what_is_no_mask_is_refused(command, tmp_path, name, out, why):
    path = sentences(tmp_path / "network.onnx", out)
    told = command("compile", path, "-o", tmp_path / "x.so", "--ragged", name, "--backends", "tvm")
    assert told.returncode != 0
    assert why in told.stderr
    assert not (tmp_path / "x.so").exists()


def test_a_module_in_python(tmp_path):
    net, out = encoder(adds)
    module, given = net.finish(out)
    options = {"backends": ["tvm"], "level": "operator", "search_time": 10}
    made = collage.compile(module, given, out=tmp_path / "x.so", ragged="mask", **options)
    mask = np.arange(LENGTH) < np.array([[2], [9], [0]])
    (got,) = made.run({"x": normal(1, BATCH, LENGTH, UNITS), "mask": mask})
    assert not np.asarray(got)[~mask].any() and np.asarray(got)[mask].all()
    with pytest.raises(errors.OptionError, match='names "nobody"') as told:
        collage.compile(module, given, out=tmp_path / "y.so", ragged="nobody", **options)
    assert told.value.option == "ragged"
    assert not (tmp_path / "y.so").exists()


def test_masks_are_drawn_as_padding_is():
    """Ones for a sentence's tokens, at least one, and zeros behind: what is measured is what comes."""
    types = {"attention_mask": ((64, 9), "int64"), "mask": ((64, 9), "bool"), "ids": ((64, 9), "int64"),
             "float_mask": ((64, 9), "float32"), "mask_of_images": ((2, 3, 9), "int64")}  # fmt: skip
    drawn = seeded.inputs(0, types)
    assert {name: (array.shape, str(array.dtype)) for name, array in drawn.items()} == types
    for name in ("attention_mask", "mask"):
        lengths = drawn[name].astype(int).sum(1)
        np.testing.assert_array_equal(drawn[name], np.arange(9) < lengths[:, None])
        assert set(lengths) == set(range(1, 10))
    assert (np.diff(drawn["ids"]) == 1).any()


def test_the_witness_is_asked_without_padding():
    """Which it does not clear: its answer and TVM's are compared where all places are tokens."""
    from collage import witness

    question = {"inputs": [{"name": "x", "shape": [2, 3], "dtype": "float32"},
                           {"name": "mask", "shape": [2, 3], "dtype": "int64"}], "ones": ["mask"]}  # fmt: skip
    given = witness._ones(question)
    assert list(given) == ["mask"] and given["mask"].dtype == "int64" and given["mask"].all()
    assert json.dumps({**question, "ones": []}) and not witness._ones({**question, "ones": []})


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    """A layer, and what of it a row for each sequence is."""
    net, out = encoder(adds)
    module, given = net.finish(relay.Tuple([out, relay.sum(relay.multiply(out, out), axis=[1, 2])]))
    path = tmp_path_factory.mktemp("packed") / "x.so"
    return collage.compile(module, given, out=path, ragged="mask", backends=["tvm"], level="operator", search_time=10)


def test_packed_tokens_in_and_out(executable):
    lengths = np.array([4, 0, 9])
    mask, splits = np.arange(LENGTH) < lengths[:, None], np.array([0, 4, 4, 13])
    x = normal(1, BATCH, LENGTH, UNITS)
    wanted, sums = executable.run({"x": x, "mask": mask})
    got, of_each = executable.run_packed({"x": x[mask]}, splits, mask="mask")
    assert got.shape == (13, UNITS)
    np.testing.assert_array_equal(got, wanted[mask])
    assert of_each.shape == sums.shape
    # Fewer sequences than there may be.
    got, of_each = executable.run_packed({"x": x[mask][:4]}, [0, 4], mask="mask")
    np.testing.assert_allclose(got, wanted[0, :4], rtol=1e-5, atol=1e-6)
    assert of_each.shape == (1,)


@pytest.mark.parametrize(
    ("splits", "mask", "rows", "why"),
    [
        ([0, 4, 3, 9], "mask", 9, "splits do not ascend: behind 4 stands 3"),
        ([1, 4], "mask", 4, "splits begin with 1"),
        ([0, 10], "mask", 10, "sequence 0 has 10 tokens; the model takes 9 at most"),
        ([0, 1, 2, 3, 4], "mask", 4, "splits are of 4 sequences; the model takes 3 at most"),
        ([0, 4], "mask", 5, r"the input x has the shape \[5, 32\]; as rows of tokens it is \[4, 32\], for 4 tokens"),
        ([0.0, 4.0], "mask", 4, r"splits are float64 \[2\]"),
        ([], "mask", 0, "splits are"),
        ([0, 4], "x", 4, "mask names 'x', which is no input of batch and length"),
        ([0, 4], "nobody", 4, "mask names 'nobody'"),
    ],
)
def test_splits_that_cannot_be_are_refused(executable, splits, mask, rows, why):
    with pytest.raises(errors.InputError, match=why):
        executable.run_packed({"x": np.zeros((rows, UNITS), "float32")}, splits, mask=mask)
    with pytest.raises(errors.InputError, match="is made of splits, and was given, too"):
        executable.run_packed({"mask": np.ones((BATCH, LENGTH), bool)}, [0, 4], mask="mask")


@needs_native
def test_packed_tokens_of_any_lengths(tmp_path):
    """Padded as far as the longest sequence, and no further."""
    path = layer(tmp_path / "layer.onnx")
    sizes = {0: Dim("sentences", 2, 6), 1: Dim("words", 3, 40)}
    read = frontends.load(path, dynamic={"x": [0, 1], "mask": [0, 1]})
    model = collage.compile(
        read.module, out=tmp_path / "x.so", dynamic={"x": sizes, "mask": sizes}, ragged="mask",
        backends=["tvm", "dnnl", "native"], level="operator", search_time=30,
    )  # fmt: skip
    for lengths in ([4, 0, 9], [1], [40, 40], []):
        x = normal(len(lengths), sum(lengths), UNITS)
        splits = np.cumsum([0, *lengths])
        mask = np.arange(max([3, *lengths])) < np.array([*lengths, 0, 0][: max(2, len(lengths))])[:, None]
        padded = np.zeros((*mask.shape, UNITS), "float32")
        padded[mask] = x
        (got,) = model.run_packed({"x": x}, splits, mask="mask")
        (wanted,) = answers(path, {"x": padded, "mask": mask.astype("int64")})
        np.testing.assert_allclose(got, wanted[mask], rtol=1e-4, atol=1e-5)
        (whole,) = model.run({"x": padded, "mask": mask.astype("int64")})
        np.testing.assert_array_equal(whole[mask], got)
    no_rows = r"the input x has the shape \[0, 32\]; as rows of tokens it is \[2, 32\]"
    for splits, why in (
        ([0, 41], "sequence 0 has 41 tokens; the model takes 40 at most"),
        (range(8), "splits are of 7 sequences; the model takes 6 at most"),
        ([0, 2], no_rows),
    ):
        with pytest.raises(errors.InputError, match=why):
            model.run_packed({"x": np.zeros((0, UNITS), "float32")}, splits, mask="mask")
