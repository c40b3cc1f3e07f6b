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
