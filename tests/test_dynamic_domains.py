# SPDX-License-Identifier: Apache-2.0
"""Open dimensions whose sizes are known: networks are measured over them, and what is outside is refused."""

import json

import collage
import numpy as np
import pytest
import tvm
from collage import Dim, errors, frontends, open_dimensions, region
from onnx_networks import answers, hold, node, normal, ran, values, weights, write
from placed import usable
from tvm import relay

ENGINES = [one for one in ("onnxruntime", "openvino") if one in usable()]


def two_inputs(path):
    """A product of words with themselves and a mask of them: two inputs of one length."""
    return write(
        path,
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Relu", ["a"], ["r"]),
            node("Mul", ["r", "mask"], ["m"]),
            node("MatMul", ["m", "v"], ["out"]),
        ],
        values(x=[1, "len", 16], mask=[1, "len", 1]), values(out=[1, "len", 8]), weights(w=(16, 32), v=(32, 8)),
    )  # fmt: skip


def asked(length):
    return {"x": normal(length, 1, length, 16), "mask": (np.arange(length) % 3 > 0).astype("float32")[None, :, None]}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory, command, store):
    """A model of two_inputs for lengths from 2 to 40, its network and its plan."""
    folder = tmp_path_factory.mktemp("domain")
    path, made = two_inputs(folder / "network.onnx"), folder / "network.so"
    told = command("compile", path, "-o", made, "--dynamic", "x:1=2..40", "--dynamic", "mask:1", "--db", store,
                   "--backends", ",".join(["tvm", *ENGINES]), "--rounds", "3", "--repeat", "3", "--json", "--plan-out",
                   folder / "plan.json")  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "bound.cc" not in told.stderr
    return made, path, json.loads(told.stdout), json.loads((folder / "plan.json").read_text())


def test_it_is_measured_over_the_domain(compiled):
    _, _, report, plan = compiled
    inputs = report["model_info"]["inputs"]
    for name in ("x", "mask"):  # what one is told of a name holds for the other
        assert inputs[name]["domain"] == [None, [2, 40], None]
        assert inputs[name]["names"] == ["", "len", ""]
        assert inputs[name]["shape"][1] == 21
    (note,) = [note for note in plan["notes"] if "mean over all sizes" in note]
    for size in (6, 21, 36):
        assert f"At mask [1, {size}, 1], x [1, {size}, 16] " in note
    for name in ["tvm", *ENGINES]:
        assert f" {name} " in note
    assert all(len(finalist["samples_ms"]) >= 3 for finalist in plan["finalists"])


def test_one_executable_serves_all_of_it(compiled, command, tmp_path):
    made, path, _, _ = compiled
    model = region.load_executor(made)
    for length in (2, 3, 40, 17, 2, 39):
        hold(ran(model, asked(length)), answers(path, asked(length)))
    np.savez(tmp_path / "in.npz", **asked(40))
    told = command("run", made, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--repeat", "1")
    assert told.returncode == 0, told.stderr
    with np.load(tmp_path / "out.npz") as archive:
        hold([archive["output_0"]], answers(path, asked(40)))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (asked(1), "size 1 in dimension 1; the model was compiled for from 2 to 40"),
        (asked(41), "size 41 in dimension 1; the model was compiled for from 2 to 40"),
        ({**asked(5), "mask": asked(6)["mask"]}, "it is one size for the model"),
    ],
)
def test_what_is_outside_is_refused_before_anything_runs(compiled, command, tmp_path, given, why):
    """By the command, and in Python."""
    made = compiled[0]
    np.savez(tmp_path / "in.npz", **given)
    told = command("run", made, "--inputs", tmp_path / "in.npz")
    assert told.returncode != 0
    assert why in told.stderr
    with pytest.raises(errors.InputError, match=why):
        region.load_executor(made).run(**given)


def test_nothing_is_of_size_0(command, store, tmp_path):
    """Also where nobody said between which sizes."""
    path, made = two_inputs(tmp_path / "network.onnx"), tmp_path / "network.so"
    told = command("compile", path, "-o", made, "--dynamic", "x:1", "--dynamic", "mask:1", "--db", store, "--backends",
                   "tvm", "--rounds", "2")  # fmt: skip
    assert told.returncode == 0, told.stderr
    with pytest.raises(errors.InputError, match="size 0 in dimension 1; the model was compiled for at least 1"):
        region.load_executor(made).run(**asked(0))
    np.savez(tmp_path / "in.npz", **asked(0))
    told = command("run", made, "--inputs", tmp_path / "in.npz")
    assert told.returncode != 0 and "the model was compiled for at least 1" in told.stderr


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["x:1=0..4"], '"1=0..4" is not a dimension'),
        (["x:1=5..4"], '"1=5..4" is not a dimension'),
        (["x:1=5"], '"1=5" is not a dimension'),
        (["x:1=a..4"], '"1=a..4" is not a dimension'),
        (["x:1=..4"], '"1=..4" is not a dimension'),
        (["x:1,1=1..4"], "names the dimension 1 twice"),
        (["x:1=1..8", "mask:1=1..9"], "of which the sizes 1 to 9 were given elsewhere, and 1 to 8 here"),
        (["x:2=1..8", "mask:1"], "its dimension 2 is 16 in the model"),
        (["x:1=1..8", "mask:1", "--input-shape", "x:1,9,16"], "has the size 9 for dimension 1, which is to be 1 to 8"),
    ],
)
def test_what_the_command_line_refuses(command, tmp_path, given, why):
    path = two_inputs(tmp_path / "network.onnx")
    words = [word for one in given for word in (["--dynamic", one] if one[0] in "xm" and "," not in one[4:] else [one])]
    told = command("compile", path, "-o", tmp_path / "x.tar", *words)
    assert told.returncode != 0
    assert why in told.stderr


def test_python_takes_domains(tmp_path):
    read = frontends.load(two_inputs(tmp_path / "network.onnx"), dynamic={"x": {1: (2, 40)}, "mask": [1]})
    assert read.domains == {"x": [None, (2, 40), None], "mask": [None, (2, 40), None]}
    assert read.inputs["x"] == ((1, 21, 16), "float32")
    with pytest.raises(ValueError, match="cannot be 0 to 3: give whole numbers from 1 up"):
        frontends.load(two_inputs(tmp_path / "network.onnx"), dynamic={"x": {1: (0, 3)}, "mask": [1]})


def test_points_have_the_mean_of_what_is_no_steeper_than_a_cube():
    """Of each polynomial up to the fifth degree, but for sizes being whole numbers."""
    points = open_dimensions.points({"x": [1, 256]}, {"x": [None, (1, 4096)]})
    sizes = np.array([point["sizes"]["x"][1] for point in points], "float64")
    weights = np.array([point["weight"] for point in points])
    assert weights.sum() == pytest.approx(1)
    everywhere = np.arange(1, 4097, dtype="float64")
    for degree in range(6):
        assert (weights * sizes**degree).sum() == pytest.approx((everywhere**degree).mean(), rel=2e-3)


@pytest.mark.fast
def test_points_have_the_mean_of_what_is_weighed():
    """Of squares to the last digit, and of all that costs are made of closely; as sizes come."""
    rng = np.random.default_rng(3)
    for case in range(200):
        many = int(rng.integers(1, 40))
        sizes = np.unique(rng.integers(1, 2 ** int(rng.integers(2, 12)), many))
        often = rng.exponential(size=len(sizes)) ** int(rng.integers(1, 4)) + 1e-6
        shares = dict(zip(sizes.tolist(), (often / often.sum()).tolist(), strict=True))
        points = open_dimensions.points({"x": [1, 4]}, {"x": [None, (1, 4096)]}, {("x", 1): shares})
        assert 1 <= len(points) <= 3, case
        at = np.array([point["sizes"]["x"][1] for point in points], float)
        weights = np.array([point["weight"] for point in points])
        assert weights.min() > 0 and np.isclose(weights.sum(), 1), (case, weights)
        assert set(at) <= set(sizes) if len(sizes) <= 3 else sizes.min() <= at.min() <= at.max() <= sizes.max()
        degree = len(points) - 1
        for power in range(degree + 1):
            assert np.isclose(weights @ at**power, sum(share * size**power for size, share in shares.items())), case


@pytest.mark.fast
def test_what_is_not_weighed_goes_with_what_is():
    """The other dimensions have the size than which as many are smaller; one by the same name has the same size."""
    settled = open_dimensions.settle(
        {"x": ["batch", "len"], "mask": [1, "len"]}, {},
        {"x": {0: Dim("batch", 1, 101), 1: Dim("len", 1, 512, [10] * 50 + [500] * 50)}, "mask": {1: None}}, "it",
    )  # fmt: skip
    assert settled.tried == {"x": [51, 255], "mask": [1, 255]}
    assert [point["sizes"] for point in settled.points] == [
        {"x": [26, 10], "mask": [1, 10]}, {"x": [76, 500], "mask": [1, 500]}
    ]  # fmt: skip
    assert [point["weight"] for point in settled.points] == [0.5, 0.5]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ([3, 9], "are to be 1 to 8; 9 is weighed"),
        ([3, 2.5], "are to be 1 to 8; 2.5 is weighed"),
        ({2.5: 1}, "are to be 1 to 8; 2.5 is weighed"),
        ([], "none ever comes"),
        ({3: 0}, "none ever comes"),
        ({3: -1}, "3 cannot come -1 times"),
        ({3: float("nan")}, "3 cannot come nan times"),
    ],
)
def test_weights_that_cannot_be(weights, why):
    with pytest.raises(errors.ModelError, match=why):
        open_dimensions.settle({"x": ["len"]}, {}, {"x": {0: Dim("len", 1, 8, weights)}}, "it")


@pytest.mark.fast
def test_a_dim_stands_for_dimensions_of_several_inputs():
    """Also where its sizes are given one after the other, once; numpy's numbers are sizes."""
    length = Dim("len", 1, 8, (size for size in np.array([2, 2, 2, 6])))
    settled = open_dimensions.settle({"x": [None], "y": [None]}, {}, {"x": {0: length}, "y": {0: length}}, "it")
    assert settled.points == [{"sizes": {"x": [2], "y": [2]}, "weight": 0.75},
                              {"sizes": {"x": [6], "y": [6]}, "weight": 0.25}]  # fmt: skip


@pytest.mark.fast
def test_one_dimension_is_weighed():
    both = {"x": {0: Dim("n", 1, 8, [1]), 1: Dim("m", 1, 8, [2])}}
    with pytest.raises(errors.ModelError, match="one dimension's sizes can be"):
        open_dimensions.settle({"x": [None, None]}, {}, both, "it")
    with pytest.raises(errors.ModelError, match="say which there may be"):
        open_dimensions.settle({"x": [None]}, {}, {"x": {0: Dim("n", 1, None, [1])}}, "it")


def test_sizes_are_weighed_as_they_come(command, store, tmp_path):
    """What is measured is where the sizes are; the plan has what was taken there."""
    path = two_inputs(tmp_path / "network.onnx")
    (tmp_path / "lengths.txt").write_text("# of my sentences\n3 60\n5 30\n\n39\n39 9\n")
    told = command("compile", path, "-o", tmp_path / "network.so", "--dynamic", "x:1=2..40", "--dynamic", "mask:1",
                   "--dynamic-weights", tmp_path / "lengths.txt", "--db", store, "--backends", "tvm,dnnl", "--rounds",
                   "3", "--json", "--plan-out", tmp_path / "plan.json")  # fmt: skip
    assert told.returncode == 0, told.stderr
    inputs = json.loads(told.stdout)["model_info"]["inputs"]
    assert inputs["mask"]["shape"] == [1, 7, 1]
    assert [(point["sizes"][1], round(point["weight"], 9)) for point in inputs["x"]["points"]] == [
        (3, 0.6), (5, 0.3), (39, 0.1)
    ]  # fmt: skip
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [point["sizes"]["x"] for point in plan["points"]] == [[1, 3, 16], [1, 5, 16], [1, 39, 16]]
    for point in plan["points"]:
        assert {"tvm", "dnnl"} <= set(point["ms"]) and all(taken > 0 for taken in point["ms"].values())
    model = region.load_executor(tmp_path / "network.so")
    for length in (2, 40):  # what does not come is within the domain still
        hold(ran(model, asked(length)), answers(path, asked(length)))


def test_points_have_what_each_size_takes(command, store, tmp_path):
    """Over all sizes that is what the samples are means of; also where there are fewer rounds than sizes."""
    path = write(
        tmp_path / "product.onnx", [node("MatMul", ["x", "w"], ["out"])],
        values(x=["rows", 64]), values(out=["rows", 64]), weights(w=(64, 64)),
    )  # fmt: skip
    told = command("compile", path, "-o", tmp_path / "product.so", "--dynamic", "x:0=1..1024", "--backends",
                   "tvm,dnnl", "--db", store, "--rounds", "2", "--plan-out", tmp_path / "plan.json")  # fmt: skip
    assert told.returncode == 0, told.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [point["sizes"]["x"][0] for point in plan["points"]] == [116, 512, 909]
    samples = {one["name"]: one["samples_ms"] for one in plan["finalists"]}
    for name in ("tvm", "dnnl"):
        assert len(samples[name]) == 2  # of which the median is the mean
        mean = sum(point["weight"] * point["ms"][name] for point in plan["points"])
        assert mean == pytest.approx(np.mean(samples[name]))


@pytest.mark.parametrize(
    ("lines", "dynamic", "why"),
    [
        ("3\nsix\n", ["x:1=2..40"], 'lengths.txt:2: "six" is no size'),
        ("3\n41 2\n", ["x:1=2..40"], "lengths.txt:2: the size 41 is not one of 2 to 40"),
        ("3 often\n", ["x:1=2..40"], 'lengths.txt:1: "often" is not how often a size comes'),
        ("3 -2\n", ["x:1=2..40"], "lengths.txt:1"),
        ("3 1 4\n", ["x:1=2..40"], "lengths.txt:1: a line is SIZE or SIZE HOW-OFTEN"),
        ("3 0\n# none\n", ["x:1=2..40"], "has no size that ever comes"),
        (None, ["x:1=2..40"], "no such file"),
        ("3\n", ["x:1"], "no dimension has sizes between which it may be"),
        ("3\n", ["x:1=2..40", "mask:1=2..41"], "say which one is meant, as x:1="),
    ],
)
def test_weights_that_the_command_line_refuses(command, tmp_path, lines, dynamic, why):
    path, told = two_inputs(tmp_path / "network.onnx"), tmp_path / "lengths.txt"
    if lines is not None:
        told.write_text(lines)
    given = [word for one in dynamic for word in ("--dynamic", one)]
    answer = command("compile", path, "-o", tmp_path / "out.so", *given, "--dynamic-weights", told)
    assert answer.returncode != 0 and why in answer.stderr, answer.stderr
    named = command("compile", path, "-o", tmp_path / "out.so", *given, "--dynamic-weights", f"mask:0={told}")
    assert "the dimension 0 of mask" in named.stderr, named.stderr


@pytest.mark.parametrize(("domain", "sizes"), [((3, 3), [3]), ((3, 4), [3, 4]), ((3, 5), [3, 4, 5])])
def test_few_sizes_are_all_measured(domain, sizes):
    points = open_dimensions.points({"x": [1, 4]}, {"x": [None, domain]})
    assert [point["sizes"]["x"][1] for point in points] == sizes
    assert sum(point["weight"] for point in points) == pytest.approx(1)
    assert open_dimensions.corners({"x": [1, 4]}, {"x": [None, domain]}) == [
        {"x": [1, d]} for d in (sizes[0], sizes[-1])
    ]
    assert open_dimensions.points({"x": [1, 4]}, {"x": [None, None]}) == []


class TorchDim:
    """What torch.export.Dim is, without PyTorch."""

    __name__, min, max = "len", 2, 40


def product_of_words():
    """Words and a mask of them, of one length."""
    x, mask = (relay.var(name, shape=(1, relay.Any(), size)) for name, size in (("x", 16), ("mask", 1)))
    weights = relay.const(normal(3, 24, 16))
    rows = relay.nn.relu(relay.nn.dense(relay.reshape(x * mask, [-1, 16]), weights))
    return tvm.IRModule.from_expr(relay.Function([x, mask], rows)), weights.data.numpy()


@pytest.mark.parametrize("length", [Dim("len", 2, 40), TorchDim()], ids=["ours", "torch's"])
def test_a_module_in_python(tmp_path, store, length):
    """It is searched at a fixed length, and every length of the domain is one of the executable's."""
    module, weights = product_of_words()
    dynamic = {"x": {1: length}, "mask": {1: length}}
    made = collage.compile(module, out=tmp_path / "network.so", backends=["tvm", "dnnl", "native"], dynamic=dynamic,
                           store=store, rounds=3, samples=3, search_time=30)  # fmt: skip
    notes = " ".join(json.loads(made.plan.text)["notes"])
    assert "the fastest where its sizes are fixed, at mask [1, 21, 1], x [1, 21, 16]" in notes
    assert "the mean over all sizes" in notes
    model = region.load_executor(tmp_path / "network.so")
    for words in (2, 40, 17, 3):
        given = asked(words)
        hold(ran(model, given), [np.maximum((given["x"] * given["mask"])[0] @ weights.T, 0)])
    for given, why in ((asked(41), "from 2 to 40"), ({**asked(5), "mask": asked(6)["mask"]}, "one size for the model")):
        with pytest.raises(errors.InputError, match=why):
            model.run(**given)


@pytest.mark.parametrize("level", ["graph", "operator"])
def test_a_pin_goes_with_open_dimensions(tmp_path, store, level):
    """Several placements are put against one another then, too, each by its name."""
    length = Dim("len", 2, 40)
    made = collage.compile(product_of_words()[0], out=tmp_path / "network.so", backends=["tvm", "dnnl", "native"],
                           dynamic={"x": {1: length}, "mask": {1: length}}, store=store, rounds=3, samples=3,
                           search_time=15, pin=["nn.dense=native"], level=level)  # fmt: skip
    plan = json.loads(made.plan.text)
    assert [one["name"] for one in plan["finalists"] if one.get("chosen")] == ["collage"]
    assert "native.product_dense" in json.dumps(plan["regions"])


@pytest.mark.parametrize(
    ("dynamic", "out", "why"),
    [
        ({"x": {2: Dim("len")}}, True, "its dimension 2 is 16 in the model"),
        ({"y": {1: Dim("len")}}, True, "has no input 'y'"),
        ({"x": {1: Dim("len", 5, 4)}}, True, "cannot be 5 to 4"),
        ({"x": {1: Dim("len", 2, 9)}, "mask": {1: Dim("len", 2, 8)}}, True, "of which the sizes 2 to 9 were given"),
        ({"x": {1: Dim("len")}}, False, "dynamic needs out"),
    ],
)
def test_what_python_refuses(tmp_path, dynamic, out, why):
    with pytest.raises(ValueError, match=why):
        collage.compile(product_of_words()[0], dynamic=dynamic, **({"out": tmp_path / "x.so"} if out else {}))
    assert not (tmp_path / "x.so").exists()
