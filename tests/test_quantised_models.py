# SPDX-License-Identifier: Apache-2.0
"""Models that come quantised, in each of the forms that ONNX Runtime writes: TVM reads and builds them, and answers as
ONNX Runtime does, up to one step of the last scale.
"""

import json

import numpy as np
import onnx
import onnxruntime
import placed
import pytest
from collage import export, frontends, transform
from native_placement import prefer
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

pytestmark = pytest.mark.usefixtures("collage_library")

SHAPE = (2, 16, 12, 12)


def network(path):
    """Convolutions of many and of few channels, in groups and of 1x1, a residual sum, a pool, a dense layer."""
    rng = np.random.default_rng(3)
    weights = {}

    def weight(name, *shape):
        weights[name] = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32")
        return name

    def conv(x, y, *shape, bias=True, **attributes):
        inputs = [x, weight(f"{y}.w", *shape), *([weight(f"{y}.b", shape[0])] if bias else [])]
        return helper.make_node("Conv", inputs, [y], **attributes)

    around = {"pads": [1, 1, 1, 1]}
    nodes = [
        conv("x", "a", 32, 16, 3, 3, **around), helper.make_node("Relu", ["a"], ["ar"]),
        conv("ar", "b", 32, 1, 3, 3, group=32, **around),
        conv("b", "c", 32, 32, 1, 1, bias=False), helper.make_node("Add", ["c", "ar"], ["sum"]),
        conv("sum", "d", 20, 32, 3, 3, strides=[2, 2], **around), helper.make_node("Relu", ["d"], ["dr"]),
        helper.make_node("MaxPool", ["dr"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", weight("dense.w", 180, 48)], ["y"]),
    ]  # fmt: skip
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", SHAPE), ("y", (2, 48)))]
    graph = helper.make_graph(nodes, "quantised", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Samples(quantization.CalibrationDataReader):
    """What the ranges are of."""

    def __init__(self):
        self.left = [np.random.default_rng(n).standard_normal(SHAPE).astype("float32") for n in range(4)]

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


def static(form, **options):
    def write(plain, to):
        quantization.quantize_static(plain, to, Samples(), quant_format=form, **options)

    return write


SIGNED = {"activation_type": quantization.QuantType.QInt8}
FORMS = {
    "QDQ": static(quantization.QuantFormat.QDQ),
    "QDQ per channel": static(quantization.QuantFormat.QDQ, per_channel=True),
    "QDQ signed": static(quantization.QuantFormat.QDQ, **SIGNED),
    "QLinear": static(quantization.QuantFormat.QOperator),
    "QLinear per channel": static(quantization.QuantFormat.QOperator, per_channel=True),
    "QLinear signed": static(quantization.QuantFormat.QOperator, **SIGNED),
    "dynamic": lambda plain, to: quantization.quantize_dynamic(plain, to, weight_type=quantization.QuantType.QInt8),
    "dynamic of one type": quantization.quantize_dynamic,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_quantised_model_is_right(form, tmp_path):
    plain, narrow = str(tmp_path / "plain.onnx"), str(tmp_path / "narrow.onnx")
    network(plain)
    FORMS[form](plain, narrow)
    value = np.random.default_rng(9).standard_normal(SHAPE).astype("float32")

    def answer(path):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.run(None, {"x": value})[0]

    wide, wanted = answer(plain), answer(narrow)
    model = export.runnable(frontends.load(narrow).module)
    model.set_input("x", value)
    model.run()
    got = model.get_output(0).numpy()
    # The last scale is a 255th, or 127th, of what numbers reach; ranges that are found at run time are rounded to.
    step = 2 * np.abs(wide).max() / 127
    assert np.abs(got - wanted).max() <= step
    assert np.abs(got - wanted).mean() <= step / 10
    assert not np.array_equal(wide, wanted), "it is quantised"


def on_native(module):
    """As much as can be in bytes, the steps between by native, the rest by oneDNN."""
    return prefer("grid", backends=("tvm", "dnnl", "native", "native_int8"), precision="int8")(module)


PLACED = {
    "native_int8": on_native,
    "openvino_int8": lambda module: placed.place(module, "openvino_int8"),
    "openvino": lambda module: placed.place(module, "openvino"),
    "native": prefer("grid"),
}


@pytest.mark.parametrize("form", ["QDQ", "QDQ per channel", "QDQ signed"])
@pytest.mark.parametrize("backend", PLACED)
def test_backends_compute_by_the_models_own_steps(backend, form, tmp_path):
    """What the model rounds to is what its layers are computed in: ONNX Runtime's answer, up to steps of what is
    rounded the other way on the way; the weights stand as bytes in the executable.
    """
    if not next(b["probe"]["usable"] for b in placed.listed() if b["name"] == backend):
        pytest.skip(f"{backend} cannot be used here")
    plain, narrow = str(tmp_path / "plain.onnx"), str(tmp_path / "narrow.onnx")
    network(plain)
    FORMS[form](plain, narrow)
    value = np.random.default_rng(9).standard_normal(SHAPE).astype("float32")
    session = onnxruntime.InferenceSession(narrow, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": value})[0]
    there = PLACED[backend](transform.Normalise()(frontends.load(narrow).module))
    on_it = placed.regions(there)
    assert len(on_it) == 1
    (operators,) = on_it.values()
    assert operators["qnn.quantize"] >= 6 and operators["nn.conv2d"] == 4
    model = placed.load(placed.export_to(tmp_path / "model.so", there))
    model.set_input("x", value)
    model.run()
    got = model.get_output(0).numpy()
    assert np.linalg.norm(got - wanted) <= 0.03 * np.linalg.norm(wanted)


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("right", ["uint8", "int8"])
@pytest.mark.parametrize("zeros", ["none", "numbers", "rows and columns"])
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_whole_numbers(left, right, zeros, constant, tmp_path):
    rng = np.random.default_rng(1)
    kinds = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}

    def drawn(kind, *shape):
        return rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, endpoint=True).astype(kind)

    a, b = drawn(left, 3, 20, 12), drawn(right, 12, 32)
    shape_a, shape_b = {"none": (None, None), "numbers": ((), ()), "rows and columns": ((20,), (32,))}[zeros]
    weights, inputs = ({"b": b} if constant else {}), {"a": a, **({} if constant else {"b": b})}
    names = ["a", "b"]
    exact = [a.astype("int64"), b.astype("int64")]
    for place, (kind, shape) in enumerate(((left, shape_a), (right, shape_b))):
        if shape is not None:
            zero = drawn(kind, *shape)
            weights[f"zero{place}"] = zero
            names.append(f"zero{place}")
            exact[place] = exact[place] - (zero[:, None] if place == 0 and shape else zero)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", names, ["y"])], "product",
        [helper.make_tensor_value_info(n, kinds[v.dtype.name], v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (3, 20, 32))],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    path = tmp_path / "product.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    model = export.runnable(frontends.load(path).module)
    for name, value in inputs.items():
        model.set_input(name, value)
    model.run()
    np.testing.assert_array_equal(model.get_output(0).numpy(), exact[0] @ exact[1])


@pytest.mark.parametrize(("scale", "told"), [
    (np.float32(0), r"the operator QuantizeLinear that makes q: its scale s is 0, by which nothing can be divided"),
    (np.float32([1, np.nan]), r"QuantizeLinear that makes q: its scale s, element 1 of 2, is nan, by which nothing"),
])  # fmt: skip
def test_scales_that_nothing_can_be_divided_by(scale, told, command, tmp_path):
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0)]  # fmt: skip
    tensors = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(np.zeros(scale.shape, "int8"), "z")]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 3)) for n in "xy"]
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "scales", values[:1], values[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ValueError, match=told):
        frontends.load(path)
    run = command("compile", path, "-o", tmp_path / "model.tar")
    assert run.returncode == 2 and "quantise the model anew" in run.stderr and not (tmp_path / "model.tar").exists()


def test_a_quantised_model_is_held_to_steps(tmp_path):
    """What is rounded the other way is a whole step off, and no wrong result; a budget says how far outputs may be."""
    import collage

    plain, narrow = str(tmp_path / "plain.onnx"), str(tmp_path / "narrow.onnx")
    network(plain)
    FORMS["QDQ per channel"](plain, narrow)
    options = {"backends": ["tvm", "dnnl"], "store": str(tmp_path / "costs.jsonl"), "pin": ["nn.conv2d=dnnl"]}
    plan = tmp_path / "plan.json"
    module = frontends.load(narrow).module
    path = collage.compile(
        module, out=str(tmp_path / "model.so"), plan_out=str(plan), search_time=60, trials=4, samples=3, rounds=3,
        **options,
    )  # fmt: skip
    made = json.loads(plan.read_text())
    assert made["precision"]["allowed"] == "auto" and made["precision"]["max_error"] == 0.1
    dense = [f for f in made["finalists"] if f["name"] != "tvm"]
    assert dense and not any((f.get("failure") or {}).get("kind") == "wrong-result" for f in dense)
    value = np.random.default_rng(9).standard_normal(SHAPE).astype("float32")
    session = onnxruntime.InferenceSession(narrow, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": value})[0]
    model = collage.load(path)
    model.set_input("x", value)
    model.run()
    assert np.linalg.norm(model.get_output(0).numpy() - wanted) <= 0.02 * np.linalg.norm(wanted)
    # A plan says what it allows.
    collage.compile(module, plan=made, out=str(tmp_path / "again.so"))
