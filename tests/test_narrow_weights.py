# SPDX-License-Identifier: Apache-2.0
"""Weights of int4 and uint4 in ONNX models, read where that is exact and refused with the reason elsewhere; and models
that compute in bfloat16, which are read as if they did in float32.
"""

import json

import numpy as np
import onnx
import pytest
from collage import frontends
from onnx import TensorProto, helper
from test_onnx_reader import outputs

FLOAT, INT4, UINT4, BF16 = (getattr(TensorProto, name) for name in ("FLOAT", "INT4", "UINT4", "BFLOAT16"))


def save(path, nodes, weights, shape=(3, 4), kind=FLOAT, inside=()):
    """A model of x; weights are {name: (type, array)}."""
    initialisers = [helper.make_tensor(name, of, array.shape, array.ravel()) for name, (of, array) in weights.items()]
    graph = helper.make_graph(
        nodes, "narrow",
        [helper.make_tensor_value_info("x", FLOAT, shape)], [helper.make_tensor_value_info("y", kind, None)],
        initialisers,
        value_info=[helper.make_tensor_value_info(name, of, dims) for name, of, dims in inside],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def drawn(low, high, *shape):
    return np.random.default_rng(5).integers(low, high + 1, shape)


def rounded(values):
    """The nearest numbers of bfloat16, in float32, of those that need no rounding to even."""
    bits = np.asarray(values, "float32").view("uint32")
    return ((bits + 0x8000) & 0xFFFF0000).view("float32")


X = np.random.default_rng(6).standard_normal((3, 4)).astype("float32")


@pytest.mark.parametrize(("kind", "low", "high"), [(INT4, -8, 7), (UINT4, 0, 15)])
def test_four_bits_that_are_dequantised(tmp_path, kind, low, high):
    """As weights are kept: in blocks, with zero points, moved before."""
    weight, zero = drawn(low, high, 5, 4), drawn(low, high, 5, 2)
    scale = np.linspace(0.1, 1.0, 10).astype("float32").reshape(5, 2)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1, block_size=2),
        helper.make_node("Transpose", ["d"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    weights = {"w": (kind, weight), "z": (kind, zero), "s": (FLOAT, scale)}
    path = save(tmp_path / "four.onnx", nodes, weights, inside=[("w", kind, (5, 4))])
    wide = (weight - np.repeat(zero, 2, 1)) * np.repeat(scale, 2, 1)
    np.testing.assert_allclose(outputs(path, {"x": X})[0], X @ wide.T, rtol=1e-4, atol=1e-5)


def test_upper_halves_of_floats(tmp_path):
    """Moved, and cast to float32, as a weight and as a constant in the graph."""
    weight, added = rounded(np.linspace(-3, 3, 20)).reshape(5, 4), rounded([0.1, -7.3, 1e30, 0.0])
    value = helper.make_tensor("", BF16, [4], added)
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Cast", ["t"], ["c"], to=FLOAT),
        helper.make_node("Constant", [], ["a"], value=value),
        helper.make_node("Cast", ["a"], ["b"], to=FLOAT),
        helper.make_node("Add", ["x", "b"], ["s"]),
        helper.make_node("MatMul", ["s", "c"], ["y"]),
    ]
    path = save(tmp_path / "half.onnx", nodes, {"w": (BF16, weight)}, inside=[("t", BF16, (4, 5))])
    np.testing.assert_allclose(outputs(path, {"x": X})[0], (X + added) @ weight.T, rtol=1e-4)


def test_what_older_onnx_gives(monkeypatch):
    """Numbers of bfloat16 as float32, and no types of four bits."""
    import importlib

    from collage import onnx_narrow

    weight = rounded([0.5, -7.3, 1e30, 0.0])
    tensor = helper.make_tensor("w", BF16, [4], weight)
    real = onnx_narrow.numpy_helper.to_array
    monkeypatch.setattr(onnx_narrow.numpy_helper, "to_array", lambda one: weight if one is tensor else real(one))
    onnx_narrow._widen_tensor(tensor, {BF16: FLOAT})
    monkeypatch.undo()
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), weight)

    class Types:
        INT8, UINT8, FLOAT, BFLOAT16 = TensorProto.INT8, TensorProto.UINT8, FLOAT, BF16

    try:
        monkeypatch.setattr(onnx, "TensorProto", Types)
        assert importlib.reload(onnx_narrow)._WIDE == {}
    finally:
        monkeypatch.undo()
        importlib.reload(onnx_narrow)


WARNING = "computes in bfloat16, of which TVM has no tensors"


def test_a_cast_that_loses_nothing(tmp_path, caplog):
    nodes = [
        helper.make_node("Cast", ["w"], ["n"], to=BF16),
        helper.make_node("Cast", ["n"], ["c"], to=FLOAT),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    held = np.array([0.5, 1.0, -96.0, 3.0], "float32")
    path = save(tmp_path / "held.onnx", nodes, {"w": (FLOAT, held)})
    np.testing.assert_array_equal(outputs(path, {"x": X})[0], X + held)
    assert WARNING not in caplog.text
    lost = held + np.float32(1e-3)
    path = save(tmp_path / "lost.onnx", nodes, {"w": (FLOAT, lost)})
    np.testing.assert_array_equal(outputs(path, {"x": X})[0], X + lost)
    assert f"lost.onnx {WARNING}" in caplog.text


def test_what_computes_in_such_a_type_is_refused(tmp_path):
    """It rounds to it, which TVM would not."""
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    with pytest.raises(ValueError, match="its output y is of the type int4"):
        frontends.load(save(tmp_path / "out.onnx", nodes, {"w": (INT4, drawn(-8, 7, 3))}, kind=INT4))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    weights = {"s": (FLOAT, np.array(0.5)), "z": (INT4, np.array(1))}
    with pytest.raises(ValueError, match="weight z is of the type int4, and the operator QuantizeLinear that makes q"):
        frontends.load(save(tmp_path / "quantises.onnx", nodes, weights))


def in_bfloat16(path):
    """A layer of x [batch, 4] in bfloat16, in a branch and in a function, too; its weight, and what is added."""
    weight, added = rounded(np.linspace(-3, 3, 12)).reshape(4, 3), rounded([0.1, -7.3, 2.0])
    branch = {
        name: helper.make_graph(
            [helper.make_node(op, ["s", "a"], [name])], name, [], [helper.make_tensor_value_info(name, BF16, None)]
        )
        for name, op in (("then", "Add"), ("otherwise", "Sub"))
    }
    twice = helper.make_function(
        "own", "Twice", ["v"], ["w"],
        [
            helper.make_node("Constant", [], ["two"], value=helper.make_tensor("", BF16, [], [2.0])),
            helper.make_node("Mul", ["v", "two"], ["w"]),
        ],
        [helper.make_opsetid("", 21)],
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("ConstantOfShape", ["one"], ["c"], value=helper.make_tensor("", BF16, [1], [0.5])),
        helper.make_node("Add", ["p", "c"], ["s"]),
        helper.make_node("If", ["up"], ["b"], then_branch=branch["then"], else_branch=branch["otherwise"]),
        helper.make_node("Twice", ["b"], ["t"], domain="own"),
        helper.make_node("Cast", ["t"], ["f"], to=FLOAT),
        helper.make_node("Softmax", ["f"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=BF16),
    ]
    graph = helper.make_graph(
        nodes, "bf16",
        [helper.make_tensor_value_info("x", BF16, [3, 4])],
        [helper.make_tensor_value_info("y", BF16, [3, 3]), helper.make_tensor_value_info("t", BF16, None)],
        [
            helper.make_tensor("w", BF16, weight.shape, weight.ravel()), helper.make_tensor("a", BF16, [3], added),
            helper.make_tensor("one", TensorProto.INT64, [1], [1]), helper.make_tensor("up", TensorProto.BOOL, [], [1]),
        ],
        value_info=[helper.make_tensor_value_info("p", BF16, [3, 3])],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=10, functions=[twice]), path)
    return weight, added


def test_a_model_in_bfloat16_is_one_in_float32(tmp_path, caplog):
    weight, added = in_bfloat16(tmp_path / "layer.onnx")
    assert frontends.load(tmp_path / "layer.onnx").inputs == {"x": ((3, 4), "float32")}
    y, t = outputs(tmp_path / "layer.onnx", {"x": X})
    wide = 2 * (X @ weight + np.float32(0.5) + added)
    np.testing.assert_allclose(t, wide, rtol=1e-5)
    power = np.exp(wide - wide.max(-1, keepdims=True))
    np.testing.assert_allclose(y, power / power.sum(-1, keepdims=True), rtol=1e-5)
    assert (y.dtype, t.dtype) == (np.float32, np.float32)
    assert f"layer.onnx {WARNING}" in caplog.text


def test_a_model_in_bfloat16_is_held_against_another_engine(tmp_path, command):
    """Which has few operators of bfloat16 itself."""
    in_bfloat16(tmp_path / "layer.onnx")
    made = command(
        "compile", tmp_path / "layer.onnx", "-o", tmp_path / "layer.tar", "--backends", "tvm", "--rounds", 1,
        "--db", tmp_path / "costs.jsonl", "-q", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    checked = json.loads(made.stdout)["import_check"]
    assert "ONNX Runtime" in checked["engine"] and checked["max_error_share"] < 1e-5, checked
    assert made.stderr.count(WARNING) == 1
