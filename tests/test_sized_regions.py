# SPDX-License-Identifier: Apache-2.0
"""Regions of dnnl and native with open dimensions: written once for all sizes, compiled for each that comes."""

import collage
import numpy as np
import pytest
import test_open_images
import tvm
from collage import Dim, export, frontends, open_dimensions, transform
from onnx_networks import answers, hold, normal, ran
from placed import THREADS, place, regions, usable
from test_open_dimensions import NETWORKS
from test_open_images import grouped, pools, unet
from test_open_regions import OPERATORS, REFUSED, const, runs_alike, var
from tvm import relay

nn = relay.nn

pytestmark = pytest.mark.usefixtures("collage_library")

# Of these dnnl leaves parts to TVM, or all.
NOT_WHOLE = {
    "exp",
    "where",
    "cast",
    "gelu",
    "log_softmax",
    "take",
    "slice",
    "variance",
    "unary",
    "mean_over_the_open_one",
}
# Of these our own kernels take something.
NATIVE = (
    "softmax_and_product",
    "layer_norm",
    "dense",
    "batch_matmul",
    "attention",
    "convolution",
    "depthwise",
    "pools",
)


def placed_on(function, backends):
    module = transform.Normalise()(tvm.IRModule.from_expr(function))
    return place(module, backends), module


@pytest.mark.parametrize("operator", [*OPERATORS, *REFUSED])
def test_operators(operator):
    function, asked = {**OPERATORS, **REFUSED}[operator]
    placed, plain = placed_on(function, "dnnl")
    if operator in OPERATORS and operator not in NOT_WHOLE:
        assert len(regions(placed)) == 1, placed
        main = placed["main"].astext(show_meta_data=False)
        assert "nn." not in main and "reshape(" not in main, main
    runs_alike(placed, plain, [*asked, *reversed(asked)])


@pytest.mark.parametrize("operator", NATIVE)
def test_our_own_kernels(operator):
    function, asked = OPERATORS[operator]
    placed, plain = placed_on(function, "native")
    assert any("native." in function.astext(show_meta_data=False) for _, function in placed.functions.items()), placed
    runs_alike(placed, plain, [*asked, *reversed(asked)])


IMAGES = {network: test_open_images.NETWORKS[network] for network in (unet, grouped, pools)}


@pytest.mark.parametrize("network", [*NETWORKS, *IMAGES], ids=lambda one: one.__name__)
def test_networks(network, tmp_path):
    path, (dynamic, inputs) = network(tmp_path / "network.onnx"), {**NETWORKS, **IMAGES}[network]
    module = transform.Normalise()(frontends.load(path, dynamic=dynamic).module)
    placed = place(module, "dnnl,native")
    assert regions(placed)
    model = export.runnable(placed)
    for given in [*inputs, *reversed(inputs)]:
        hold(ran(model, given), answers(path, given))


@pytest.mark.parametrize("backends", ["dnnl", "dnnl,native"])
def test_windows_that_are_apart(backends):
    """How many there are is a quotient of a side, at which they are what TVM's are, and where there is one, too."""
    x = var(None, 4, None, None)

    def window(data, inside, size, **how):
        return nn.relu(nn.conv2d(data, const(8, inside, size, size), channels=8, kernel_size=size, **how))

    halved = window(x, 4, 3, strides=2, padding=(1, 1))
    third = window(halved, 1, 3, strides=(2, 3), padding=(1, 1), groups=8)
    summed = third + window(halved, 8, 1, strides=(2, 3))
    pooled = nn.max_pool2d(summed, (3, 3), (2, 2), padding=(1, 1))
    function = relay.Function([x], relay.Tuple([nn.relu(pooled), nn.batch_flatten(nn.global_avg_pool2d(pooled))]))
    placed, plain = placed_on(function, backends)
    assert len(regions(placed)) == 1, placed
    assert "nn." not in placed["main"].astext(show_meta_data=False)
    rng = np.random.default_rng(0)
    sides = [(1, 1), (2, 3), (12, 13), (13, 12), *rng.integers(1, 90, (40, 2))]
    runs_alike(placed, plain, [{"x": normal(n, 1 + n % 3, 4, *map(int, side))} for n, side in enumerate(sides)])


def encoder():
    """Attention of two sentences under a mask, as PyTorch writes it (weights that are no numbers become 0), a residual
    sum, a normalisation and a dense layer.
    """
    x, mask = var(2, None, 32), var(2, 1, 1, None, name="mask", dtype="bool")
    rows = relay.reshape(x, [-1, 32])

    def heads(seed):
        made = relay.reshape(nn.dense(rows, const(32, 32, seed=seed)), [2, -1, 32]) + const(32, seed=seed + 1)
        return relay.reshape(relay.transpose(relay.reshape(made, [2, -1, 4, 8]), [0, 2, 1, 3]), [8, -1, 8])

    scores = relay.reshape(nn.batch_matmul(heads(1), heads(3)), [2, 4, 0, -1]) * relay.const(0.35)
    masked = scores + relay.where(mask, relay.const(0.0), relay.const(-np.inf, "float32"))
    weights = nn.softmax(masked, axis=-1)
    cleared = relay.where(relay.isnan(weights), relay.const(0.0), weights)
    mixed = nn.batch_matmul(relay.reshape(cleared, [-3, 0, 0]), relay.transpose(heads(5), [0, 2, 1]))
    joined = relay.reshape(relay.transpose(relay.reshape(mixed, [2, 4, -1, 8]), [0, 2, 1, 3]), [2, -1, 32])
    normed = nn.layer_norm(joined + x, const(32, seed=7), const(32, seed=8))
    return relay.Function(
        [x, mask], nn.relu(relay.reshape(nn.dense(relay.reshape(normed, [-1, 32]), const(48, 32)), [2, -1, 48]))
    )


def sentences(length, seen=None):
    """Two sentences; of the second so many words are seen (None: all)."""
    mask = np.ones((2, 1, 1, length), bool)
    if seen is not None:
        mask[1, ..., seen:] = False
    return {"x": normal(length, 2, length, 32), "mask": mask}


@pytest.fixture(scope="module")
def encoders():
    """(the network on dnnl and native, plain TVM's)"""
    module = relay.transform.InferType()(tvm.IRModule.from_expr(encoder()))
    length = Dim("len")
    sizes = open_dimensions.of_module(module, {"x": {1: length}, "mask": {3: length}})
    plain = transform.Normalise()(open_dimensions.settled(module, sizes))
    placed = place(plain, "dnnl,native")
    assert '"native.attention"' in placed.astext(show_meta_data=False)
    assert "batch_matmul" not in placed["main"].astext(show_meta_data=False)
    return export.runnable(placed), export.runnable(plain)


@pytest.mark.parametrize("seen", [None, 1, 0])
def test_attention_under_a_mask(encoders, seen):
    """A sentence of which nothing is seen has weights that are no numbers, and becomes 0."""
    one, other = encoders
    for length in (1, 2, 17, 64, 3):
        given = sentences(length, seen)
        hold(ran(one, given), ran(other, given))
        assert np.isfinite(ran(one, given)[0]).all()


def test_more_sizes_than_plans_are_kept(encoders):
    """Of 300 sizes; those that were first are compiled anew."""
    one, other = encoders
    for length in [*range(1, 301), 1, 2, 300]:
        given = sentences(length, length // 2 + 1)
        hold(ran(one, given), ran(other, given))


def test_threads_change_between_sizes(encoders):
    one, other = encoders
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    try:
        for threads in (1, THREADS):
            set_threads(threads)
            for length in (9, 40):
                hold(ran(one, sentences(length)), ran(other, sentences(length)))
    finally:
        set_threads(0)


def test_sizes_that_contradict_one_another():
    """Whoever drives TVM's virtual machine by himself learns it from the region."""
    x, y = var(None, 8), var(None, 8, name="y")
    flat = [relay.reshape(nn.relu(one), [-1]) for one in (x, y)]
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, y], relay.concatenate(flat, 0))))
    sizes = open_dimensions.of_module(module, {name: {0: Dim("len", 1, 20)} for name in ("x", "y")})
    plain = transform.Normalise()(open_dimensions.settled(module, sizes))
    placed = place(plain, "dnnl")
    assert len(regions(placed)) == 1
    model = export.runnable(placed)
    with pytest.raises(tvm.TVMError, match="the sizes of its inputs and outputs do not go together"):
        ran(model, {"x": normal(1, 5, 8), "y": normal(2, 6, 8)})
    given = {"x": normal(1, 6, 8), "y": normal(2, 6, 8)}
    hold(ran(model, given), [np.maximum(np.concatenate([given["x"], given["y"]]).reshape(-1), 0)])


def found_rows(compute):
    """A function of [48, 4], of whose rows those are looked up whose sum, and whose first item, is above a number."""
    x = relay.var("x", shape=(48, 4))

    def rows(of, least):
        places = relay.squeeze(relay.argwhere(relay.greater(of, relay.const(least))), axis=[1])
        return relay.take(x, places, axis=0)

    first = relay.take(x, relay.const(0), axis=1)
    return relay.Function([x], compute(rows(relay.sum(x, axis=1), 1.0), rows(first, 0.0)))


def rows_of(seed):
    """As many rows with a sum above 1 as with a first item above 0."""
    x = np.abs(normal(seed, 48, 4))
    x[seed * 7 :] *= -1
    return {"x": x * 8}


def test_sizes_that_only_a_run_tells():
    """Two columns of the same rows are as long as each other, though nobody has named how many these are."""

    def distances(some, _):
        columns = [relay.take(some, relay.const(column), axis=1) for column in range(4)]
        return relay.sqrt(nn.relu((columns[2] - columns[0]) * (columns[3] - columns[1])))

    placed, plain = placed_on(found_rows(distances), "dnnl")
    assert regions(placed)
    runs_alike(placed, plain, [rows_of(seed) for seed in (1, 2, 6, 2)])


def test_sizes_that_are_not_known_to_agree():
    """They do when it runs; to be asked about sizes of our own choice, a backend would be told what never is."""

    def joined(some, others):
        return relay.concatenate([nn.relu(some), nn.relu(others)], axis=1)

    placed, plain = placed_on(found_rows(joined), "dnnl")
    assert regions(placed) and "concatenate" in placed["main"].astext(show_meta_data=False)
    runs_alike(placed, plain, [rows_of(seed) for seed in (1, 2, 6)])


@pytest.mark.parametrize("seed", range(4))
def test_open_is_what_fixed_is(seed):
    """At random batches and lengths the network's regions answer what those of the network with fixed sizes do."""
    rng = np.random.default_rng(seed)
    x = var(None, None, 16)
    hidden = nn.relu(nn.dense(relay.reshape(x, [-1, 16]), const(24, 16, seed=seed)) + const(24, seed=seed + 1))
    tail = relay.reshape(nn.softmax(x + relay.mean(x, -1, keepdims=True)), [-1, 16])
    function = relay.Function([x], nn.dense(hidden, const(16, 24, seed=seed + 2)) * tail)
    placed, _ = placed_on(function, "dnnl,native")
    assert len(regions(placed)) == 1
    model = export.runnable(placed)
    for _ in range(250):
        batch, length = (int(size) for size in rng.integers(1, 40, 2))
        given = normal(batch * length, batch, length, 16)
        rows = given.reshape(-1, 16)
        wanted = np.maximum(rows @ const(24, 16, seed=seed).data.numpy().T + const(24, seed=seed + 1).data.numpy(), 0)
        powers = np.exp(
            rows + rows.mean(-1, keepdims=True) - (rows + rows.mean(-1, keepdims=True)).max(-1, keepdims=True)
        )
        wanted = (wanted @ const(16, 24, seed=seed + 2).data.numpy().T) * (powers / powers.sum(-1, keepdims=True))
        hold(ran(model, {"x": given}), [wanted])


@pytest.mark.parametrize("backends", ["dnnl", "dnnl,native", "openvino"])
def test_a_plan_is_replayed(backends, tmp_path):
    """What is placed needs no costs, which parts with open dimensions do not have."""
    if not set(backends.split(",")) <= set(usable()):
        pytest.skip(f"{backends} cannot be used here")
    module = transform.Normalise()(tvm.IRModule.from_expr(OPERATORS["dense"][0]))
    placed = place(module, backends, plan_out=tmp_path / "plan.json")
    assert regions(placed)
    assert tvm.ir.structural_equal(placed, collage.replay(module, tmp_path / "plan.json"))
