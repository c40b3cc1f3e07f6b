# SPDX-License-Identifier: Apache-2.0
"""Networks whose dimensions stay open (--dynamic): one executable for every size, with what is static in it placed."""

import gc
import itertools
import json

import ml_dtypes
import numpy as np
import pytest
import tvm
from collage import export, frontends, library, open_dimensions, region, transform, virtual_machine
from onnx_networks import INT, answers, hold, node, normal, ran, values, weights, write
from placed import place, usable
from tvm import relay


def perceptron(path):
    return write(
        path,
        [
            node("Gemm", ["x", "w1", "b1"], ["a"], transB=1),
            node("Relu", ["a"], ["r"]),
            node("Gemm", ["r", "w2", "b2"], ["out"], transB=1),
        ],
        values(x=["N", 32]), values(out=["N", 10]), weights(w1=(64, 32), b1=(64,), w2=(10, 64), b2=(10,)),
    )  # fmt: skip


def convolutions(path):
    """Open in its batch and in the sides of its images."""
    return write(
        path,
        [
            node("Conv", ["x", "w1"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
            node("PRelu", ["a", "slope"], ["r"]),
            node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
            node("Conv", ["p", "w2"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
            node("AveragePool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
            node("GlobalAveragePool", ["d"], ["g"]),
            node("Flatten", ["g"], ["f"]),
            node("Gemm", ["f", "w3"], ["out"], transB=1),
        ],
        values(x=["N", 3, "H", "W"]), values(out=["N", 10]),
        weights(w1=(16, 3, 3, 3), slope=(16, 1, 1), w2=(32, 16, 3, 3), w3=(10, 32)),
    )  # fmt: skip


def transformer(path, width=32, heads=4):
    """A block of a transformer, open in the length of the sequence; positions by a Range over it."""
    inside = {
        "heads": np.array([0, -1, heads, width // heads]),
        "whole": np.array([0, -1, width]),
        "root": np.float32((width // heads) ** -0.5),
        "g": np.ones(width, "float32"), "b": np.zeros(width, "float32"),
        "zero": np.array(0), "one": np.array(1), "positions": (64, width),
        **{name: (width, width) for name in ("wq", "wk", "wv", "wo")}, "w1": (width, 64), "w2": (64, width),
    }  # fmt: skip
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Range", ["zero", "length", "one"], ["places"]),
        node("Gather", ["positions", "places"], ["where"]),
        node("Add", ["x", "where"], ["e"]),
    ]
    for one in "qkv":
        nodes += [
            node("MatMul", ["e", f"w{one}"], [f"{one}0"]),
            node("Reshape", [f"{one}0", "heads"], [f"{one}1"]),
            node("Transpose", [f"{one}1"], [f"{one}2"], perm=[0, 2, 3, 1] if one == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q2", "k2"], ["s0"]),
        node("Mul", ["s0", "root"], ["s1"]),
        node("Softmax", ["s1"], ["p"], axis=-1),
        node("MatMul", ["p", "v2"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "whole"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["o3"]),
        node("Add", ["e", "o3"], ["r"]),
        node("LayerNormalization", ["r", "g", "b"], ["n"], axis=-1),
        node("MatMul", ["n", "w1"], ["h0"]),
        node("Relu", ["h0"], ["h1"]),
        node("MatMul", ["h1", "w2"], ["h2"]),
        node("Add", ["n", "h2"], ["out"]),
    ]
    return write(path, nodes, values(x=["B", "S", width]), values(out=["B", "S", width]), weights(**inside))


def partly(path):
    """An image of one size, and words of any number: the convolutions are static."""
    return write(
        path,
        [
            node("Conv", ["image", "w1"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
            node("Relu", ["a"], ["r"]),
            node("Conv", ["r", "w2"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
            node("GlobalAveragePool", ["c"], ["g"]),
            node("Flatten", ["g"], ["f"]),
            node("Gather", ["words", "ids"], ["e"]),
            node("Mul", ["e", "f"], ["out"]),
        ],
        values(image=[1, 3, 32, 32], ids=(INT, ["L"])), values(out=["L", 32]),
        weights(w1=(16, 3, 3, 3), w2=(32, 16, 3, 3), words=(20, 32)),
    )  # fmt: skip


def sound(path):
    """A wave of any length: convolutions along it, with strides and dilation."""
    return write(
        path,
        [
            node("Conv", ["x", "w1", "b1"], ["a"], kernel_shape=[5], strides=[2], pads=[2, 1]),
            node("Relu", ["a"], ["r"]),
            node("Conv", ["r", "w2"], ["c"], kernel_shape=[3], dilations=[2], pads=[2, 2]),
            node("Mul", ["c", "c"], ["out"]),
        ],
        values(x=["N", 2, "T"]), values(out=["N", 8, "U"]), weights(w1=(8, 2, 5), b1=(8,), w2=(8, 8, 3)),
    )  # fmt: skip


NETWORKS = {
    sound: ({"x": [0, 2]}, [{"x": normal(n, b, 2, n)} for b, n in ((1, 5), (2, 16), (1, 37))]),
    perceptron: ({"x": [0]}, [{"x": normal(n, n, 32)} for n in (1, 2, 7)]),
    convolutions: (
        {"x": [0, 2, 3]},
        [{"x": normal(n, n, 3, *sides)} for n, sides in ((1, (16, 16)), (2, (24, 18)), (3, (33, 47)))],
    ),
    transformer: ({"x": [0, 1]}, [{"x": normal(n, b, n, 32)} for b, n in ((1, 1), (2, 9), (3, 33))]),
    partly: (
        {"ids": [0]},
        [{"image": normal(n, 1, 3, 32, 32), "ids": np.arange(n) % 20} for n in (1, 5, 40)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.__name__)
def test_it_computes_what_another_engine_does_at_every_size(network, tmp_path):
    path, (dynamic, inputs) = network(tmp_path / "network.onnx"), NETWORKS[network]
    read = frontends.load(path, dynamic=dynamic)
    assert read.open == dynamic
    model = export.runnable(transform.Normalise()(read.module))
    for given in inputs:
        hold(ran(model, given), answers(path, given))


def test_what_is_static_is_placed(command, store, tmp_path):
    """By the command, to the end: the convolutions are dnnl's in one executable that takes any number of words."""
    path, made = partly(tmp_path / "network.onnx"), tmp_path / "network.so"
    told = command("compile", path, "-o", made, "--dynamic", "ids:0", "--input-shape", "ids:6", "--db", store, "-q",
                   "--plan-out", tmp_path / "plan.json", "--rounds", "3", "--repeat", "3", "--backends", "tvm,dnnl",
                   "--pin", "nn.conv2d=dnnl", "--json")  # fmt: skip
    assert told.returncode == 0, told.stderr
    report = json.loads(told.stdout)
    assert report["model_info"]["inputs"]["ids"] == {"shape": [6], "dtype": "int64", "open": [0], "names": ["L"]}
    assert "unchecked" not in report["import_check"]
    plan = json.loads((tmp_path / "plan.json").read_text())
    placed = {one["name"]: one for one in plan["backends"]}
    assert placed["dnnl"]["regions"] >= 1 and placed["tvm"]["operators"] >= 1
    model = region.load_executor(made)
    for given in NETWORKS[partly][1]:
        hold(ran(model, given), answers(path, given))
        np.savez(tmp_path / "in.npz", **given)
        told = command("run", made, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--repeat", "1",
                       "--json")  # fmt: skip
        assert told.returncode == 0, told.stderr
        shown = json.loads(told.stdout)
        assert shown["inputs"][1] == {
            "name": "ids",
            "shape": [-1],
            "dtype": "int64",
            "tried_shape": [6],
            "names": ["L"],
        }
        assert shown["outputs"] == [{"name": "output_0", "shape": [len(given["ids"]), 32], "dtype": "float32"}]
        assert "libcollage_dnnl.so" in shown["plugins"]
        with np.load(tmp_path / "out.npz") as archive:
            hold([archive["output_0"]], answers(path, given))
    # Without inputs: random ones, of the sizes at which it was tried. What does not fit is refused.
    told = command("run", made, "--repeat", "1")
    assert told.returncode == 0, told.stderr
    assert "ids int64 [?]" in told.stdout and "output_0 float32 [6, 32]" in told.stdout
    np.savez(tmp_path / "in.npz", image=normal(0, 1, 3, 16, 32), ids=np.arange(3))
    told = command("run", made, "--inputs", tmp_path / "in.npz")
    assert told.returncode != 0
    assert 'the input "image" has the shape [1, 3, 16, 32], the model takes [1, 3, 32, 32]' in told.stderr


def test_an_archive_runs_too(command, store, tmp_path):
    path, made = perceptron(tmp_path / "network.onnx"), tmp_path / "network.tar"
    told = command("compile", path, "-o", made, "--dynamic", "x:0", "--db", store, "--rounds", "2", "--backends", "tvm",
                   "-v")  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "answers the same" in told.stdout
    model = region.load_executor(made)
    for given in NETWORKS[perceptron][1]:
        hold(ran(model, given), answers(path, given))


def test_an_open_dimension_wants_a_size_or_to_stay_open(command, tmp_path):
    path = transformer(tmp_path / "network.onnx")
    with pytest.raises(ValueError, match=r"--input-shape x:1,\.\.\.\), or leave .* \(--dynamic x:0,1\)"):
        frontends.load(path)
    with pytest.raises(ValueError, match=r"leaves shapes open \(x is \[B, S, 32\]\)"):
        frontends.load(path, dynamic={"x": [1]})
    told = command("compile", path, "-o", tmp_path / "x.tar")
    assert told.returncode != 0 and "--dynamic x:0,1" in told.stderr
    for axes, why in (
        ([3], "it has no dimension 3 to leave open"),
        ([2], "its dimension 2 is 32 in the model, and can stay open only where the model leaves it open"),
    ):
        with pytest.raises(ValueError, match=why):
            frontends.load(path, dynamic={"x": axes})
    with pytest.raises(ValueError, match="has no input 'z'; its inputs are: x"):
        frontends.load(path, dynamic={"z": [0]})
    # What is given of an input of which some stays open says how large that is when it is tried.
    read = frontends.load(path, input_shapes={"x": (2, 5, 32)}, dynamic={"x": [1]})
    assert (read.inputs["x"], read.open) == (((2, 5, 32), "float32"), {"x": [1]})
    assert open_dimensions.dims_of(read.module["main"].params[0].checked_type) == [2, None, 32]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("x", "--dynamic x: give it as NAME:0, NAME:0,1 or NAME:1=1..512"),
        ("x:", "--dynamic x: names no dimension"),
        ("x:-1", '"-1" is not a dimension (a whole number from 0 up, with'),
    ],
)
def test_what_the_command_line_refuses(command, tmp_path, given, why):
    path = perceptron(tmp_path / "network.onnx")
    told = command("compile", path, "-o", tmp_path / "x.tar", "--dynamic", given)
    assert told.returncode != 0
    assert why in told.stderr


def test_names_have_one_size():
    """The same name is the same size, wherever it stands."""
    sizes = open_dimensions.settle({"a": ["B", "S"], "b": ["S", 3]}, {}, {"a": [0, 1], "b": [0]}, "it")
    assert sizes.tried["a"][1] == sizes.tried["b"][0]
    assert sizes.shapes == {"a": [None, None], "b": [None, 3]}


def test_a_relay_program_with_open_dimensions(tmp_path):
    path = tmp_path / "program.relay"
    path.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(?, 8), float32]) { nn.relu(%x) }\n')
    read = frontends.load(path, dynamic={"x": [0]})
    model = export.runnable(read.module, tried={"x": {"shape": [3, 8]}})
    for count in (1, 6):
        x = normal(count, count, 8)
        hold(ran(model, {"x": x}), [np.maximum(x, 0)])


def test_inputs_of_shapes_that_come_again():
    """What was set before, in more memory, in less, or in the same, is not what is computed."""
    x, y = (relay.var(name, shape=(relay.Any(), 3)) for name in "xy")
    module = tvm.IRModule.from_expr(relay.Function([x, y], x + y * relay.const(2.0)))
    called = {name: {"names": ["n", ""], "domain": [[1, 1000], None]} for name in "xy"}
    model = export.runnable(relay.transform.InferType()(module), tried=called)
    many = range(1, 2 * virtual_machine._SHAPES + 20, 2)
    for turn, count in enumerate((2, 5, 3, 5, 5, 1, *many, *reversed(many), 1000, 2)):
        x, y = normal(turn, count, 3), normal(turn + 1, 2 * count, 3)[::2]
        hold(ran(model, {"x": x, "y": y}), [x + 2 * y])
        with pytest.raises(ValueError, match="is float32"):
            model.set_input("x", x.astype("float64"))
        hold(ran(model, {"y": x}), [3 * x])
    with pytest.raises(ValueError, match="n is 2 in dimension 0 of x, and 5 in dimension 0 of y"):
        ran(model, {"y": normal(5, 5, 3)})
    with pytest.raises(ValueError, match="from 1 to 1000"):
        model.set_input("y", normal(5, 1001, 3))
    hold(ran(model, {"y": x}), [3 * x])


@pytest.mark.parametrize("backend", ["tvm", "dnnl", "native", "onnxruntime", "openvino"])
def test_large_inputs_are_read_where_they_are(backend):
    """Wherever they lie, where only regions read them, and else where TVM's kernels may; small ones are copied."""
    if backend not in ("tvm", *usable()):
        pytest.skip(f"the {backend} backend is not usable here")
    x, weight = relay.var("x", shape=(relay.Any(), 32)), normal(1, 16, 32)
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(weight)))))
    module = transform.Normalise()(module)
    library.load_plugin(library.plugin_path("runtime"))  # which TVM's kernels alone do not need
    model = export.runnable(module if backend == "tvm" else place(module, backend))

    def lying(beside, rows):
        """Elements so many bytes behind a place that is aligned."""
        room = np.empty(rows * 32 * 4 + 128, "uint8")
        begin = -room.ctypes.data % 64 + beside
        elements = room[begin : begin + rows * 32 * 4].view("float32").reshape(rows, 32)
        elements[...] = normal(rows + beside, rows, 32)
        return elements

    for beside, rows in ((0, 1000), (4, 1000), (0, 1001), (16, 1001), (0, 1000), (0, 10), (16, 10)):
        data = lying(beside, rows)
        before = data.copy()
        for given in (data, data[::2]):
            model.lend_input("x", given)
            model.run()
            hold(model.outputs(), [np.maximum(given @ weight.T, 0)])
        model.lend_input("x", data)
        data *= 2
        model.run()
        is_read_there = rows > 10 and (backend != "tvm" or beside == 0)
        hold(model.outputs(), [np.maximum((data if is_read_there else before) @ weight.T, 0)])
        model.set_input("x", data)
        data *= 0
        model.run()
        hold(model.outputs(), [np.maximum(2 * before @ weight.T, 0)])
    with pytest.raises(ValueError, match="is float32"):
        model.lend_input("x", np.zeros((1000, 32)))


def test_inputs_of_a_type_that_numpy_has_of_others():
    """Bfloat16's is another package's, and raw bytes to numpy's own interface."""
    x, turn = relay.var("x", shape=(2, 3), dtype="bfloat16"), relay.var("turn", shape=(), dtype="bool")
    function = relay.Function([turn, x], relay.If(turn, relay.reshape(x, [3, 2]), relay.reshape(x, [3, 2])))
    model = export.runnable(relay.transform.InferType()(tvm.IRModule.from_expr(function)))
    assert isinstance(model, virtual_machine.Model)
    for factor in (1, 2, 3):
        data = (factor * np.arange(6).reshape(2, 3)).astype(ml_dtypes.bfloat16)
        model.run(turn=np.array(True), x=data)
        (got,) = model.outputs()
        assert got.tolist() == data.view("uint16").reshape(3, 2).tolist()


def test_outputs_are_the_callers():
    """Large ones are not copied, but for those that are somebody else's memory."""
    x = relay.var("x", shape=(relay.Any(), 20_000))
    once = relay.nn.relu(x)
    results = [once, relay.reshape(x, [0, 10_000, 2]), relay.zeros_like(x), once, relay.sum(x, 1)]
    weights = relay.const(np.ones((30_000,), "float32"))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([*results, weights])))
    model = export.runnable(relay.transform.InferType()(module))
    told = [one["computed"] for one in model.signature["outputs"]]
    assert told == [True, True, False, True, True, False]

    def answered(model, count):
        data = np.random.default_rng(count).standard_normal((count, 20_000), "float32")
        model.run(x=data)
        wanted = np.maximum(data, 0)
        wanted = [wanted, data.reshape(count, 10_000, 2), 0 * data, wanted, data.sum(1), np.ones(30_000, "float32")]
        return model.outputs(), wanted

    first, wanted = answered(model, 2)
    assert isinstance(first[0].base, virtual_machine._Shared)
    assert all(type(one.base) is not virtual_machine._Shared for one in first[1:])
    for one, other in itertools.combinations(first, 2):
        assert not np.shares_memory(one, other)
    for one in first[1:]:
        one[...] = -1  # nothing of the model's
    second, others = answered(model, 3)
    for got, expected in ((first[:1], wanted[:1]), (second, others)):
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    kept = second[0]
    del model, second
    gc.collect()
    kept += 1
    np.testing.assert_array_equal(kept, others[0] + 1)
