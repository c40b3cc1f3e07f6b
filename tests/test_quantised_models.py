# SPDX-License-Identifier: Apache-2.0
"""Models that come quantised, in each of the forms that ONNX Runtime writes: TVM reads and builds them, and answers as
ONNX Runtime does, up to one step of the last scale.
"""

import collections
import json

import numpy as np
import onnx
import placed
import pytest
import tvm
from collage import export, frontends, transform
from native_placement import prefer
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

onnxruntime = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

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
    # Weights of seven bits where what is compared with would be wrong with eight.
    def write(plain, to):
        seven = not placed.multiplies_bytes()
        quantization.quantize_static(plain, to, Samples(), quant_format=form, reduce_range=seven, **options)

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
    read = frontends.load(narrow).module
    # The last scale is a 255th, or 127th, of what numbers reach; ranges that are found at run time are rounded to.
    step = 2 * np.abs(wide).max() / 127
    normal = transform.Normalise()(read)
    for module in (read, normal):
        model = export.runnable(module)
        model.set_input("x", value)
        model.run()
        got = model.get_output(0).numpy()
        assert np.abs(got - wanted).max() <= step
        assert np.abs(got - wanted).mean() <= step / 10
    # Whatever form it came in, it is float32 between steps now, which is what backends read.
    operators = placed.counted(normal["main"])
    assert operators["nn.conv2d"] == 4 and operators["nn.dense"] == 1
    assert {name for name in operators if name.startswith("qnn.")} == {"qnn.quantize", "qnn.dequantize"}
    assert not np.array_equal(wide, wanted), "it is quantised"


def in_bytes_by(backend):
    """As much as can be in bytes, the steps between by native, the rest by oneDNN."""
    return prefer("grid", backends=("tvm", "dnnl", "native", backend), precision="int8")


PLACED = {
    "native_int8": in_bytes_by("native_int8"),
    "dnnl_int8": in_bytes_by("dnnl_int8"),
    "dnnl_int8 without native": prefer(backends=("tvm", "dnnl", "dnnl_int8"), precision="int8"),
    "openvino_int8": lambda module: placed.place(module, "openvino_int8"),
    "openvino": lambda module: placed.place(module, "openvino"),
    "native": prefer("grid"),
}


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith("dynamic")])
@pytest.mark.parametrize("backend", PLACED)
def test_backends_compute_by_the_models_own_steps(backend, form, tmp_path):
    """What the model rounds to is what its layers are computed in: ONNX Runtime's answer, up to steps of what is
    rounded the other way on the way; the weights stand as bytes in the executable.
    """
    if lacking := placed.missing(backend.split()[0]):
        pytest.skip(lacking)
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


@pytest.mark.parametrize("backend", [*PLACED, "onnxruntime"])
def test_backends_compute_what_is_quantised_when_the_data_come(backend, tmp_path):
    """Dynamic quantisation: convolutions and products are the backend's, their weights are constants."""
    if lacking := placed.missing(backend.split()[0]):
        pytest.skip(lacking)
    plain, narrow = str(tmp_path / "plain.onnx"), str(tmp_path / "narrow.onnx")
    network(plain)
    FORMS["dynamic"](plain, narrow)
    value = np.random.default_rng(9).standard_normal(SHAPE).astype("float32")
    session = onnxruntime.InferenceSession(narrow, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": value})[0]
    on = PLACED.get(backend, lambda module: placed.place(module, backend))
    there = on(transform.Normalise()(frontends.load(narrow).module))
    operators = sum(placed.regions(there).values(), collections.Counter())
    assert operators["nn.conv2d"] == 4 and operators["nn.dense"] == 1
    model = placed.load(placed.export_to(tmp_path / "model.so", there))
    model.set_input("x", value)
    model.run()
    assert np.linalg.norm(model.get_output(0).numpy() - wanted) <= 0.03 * np.linalg.norm(wanted)


def in_the_dialect(layout):
    """A network in TVM's quantisation dialect, as front ends for TensorFlow Lite (NHWC) and PyTorch write it, and its
    last scale. It has scales for each channel, zeros beside 0, a depthwise convolution, a residual sum, bytes that are
    cut off, padded and pooled, and a dense layer.
    """
    rng = np.random.default_rng(5)
    qnn, one, zero = relay.qnn.op, relay.const, relay.const(0, "int32")
    last = layout == "NHWC"
    whole, apart = ("HWIO", "HWOI") if last else ("OIHW", "OIHW")
    axis = 3 if last else 1

    # Of seven bits where TVM's own products would be wrong with eight.
    most = 100 if placed.multiplies_bytes() else 63

    def byte(*shape):
        return one(rng.integers(-most, most, shape).astype("int8"))

    def conv(x, scale, shift, channels, shape, kernel, out, **options):
        scales = rng.uniform(0.002, 0.004, channels).astype("float32")
        total = qnn.conv2d(
            x, byte(*shape), one(shift), zero, one(scale), one(scales), kernel_size=(3, 3), channels=channels,
            padding=(1, 1, 1, 1), data_layout=layout, kernel_layout=kernel, **options,
        )  # fmt: skip
        total = relay.nn.bias_add(total, one(rng.integers(-900, 900, channels).astype("int32")), axis)
        return qnn.requantize(
            total, one(scales * np.float32(scale)), zero, one(out), one(3), axis=axis, out_dtype="int8"
        )

    x = relay.var("x", shape=(1, 8, 8, 16) if last else (1, 16, 8, 8), dtype="int8")
    first = conv(x, 0.05, -7, 24, (3, 3, 16, 24) if last else (24, 16, 3, 3), whole, 0.04)
    shape = (3, 3, 24, 1) if last else (24, 1, 3, 3)
    second = conv(first, 0.04, 3, 24, shape, apart, 0.06, groups=24)
    total = qnn.add(first, second, one(0.04), one(3), one(0.06), one(3), one(0.07), one(-5))
    total = relay.nn.max_pool2d(relay.clip(total, -50, 90), (2, 2), (2, 2), layout=layout)
    total = relay.nn.pad(total, ((0, 0), (0, 0), (1, 0), (0, 0)), pad_value=-5)
    flat = relay.reshape(total, (1, -1))
    units = qnn.dense(flat, byte(10, 4 * 5 * 24), one(-5), zero, one(0.07), one(0.003), units=10)
    units = relay.add(units, one(rng.integers(-900, 900, 10).astype("int32")))
    y = qnn.requantize(units, one(0.07 * 0.003), zero, one(0.2), one(1), axis=1, out_dtype="int8")
    return tvm.IRModule.from_expr(relay.Function([x], qnn.dequantize(y, one(0.2), one(1)))), 0.2


@pytest.mark.parametrize(("layout", "backend"), [
    *(("NCHW", backend) for backend in ("tvm", *PLACED, "onnxruntime")),
    # The others' depthwise convolutions want the channels first.
    *(("NHWC", backend) for backend in ("tvm", "native_int8", "dnnl_int8", "native")),
])  # fmt: skip
def test_the_quantisation_dialect(layout, backend, tmp_path):
    """What TVM computes in whole numbers is what backends compute between steps, up to one step in each layer."""
    if lacking := placed.missing(backend.split()[0]):
        pytest.skip(lacking)
    module, step = in_the_dialect(layout)
    value = np.random.default_rng(9).integers(-128, 128, (1, 8, 8, 16) if layout == "NHWC" else (1, 16, 8, 8))
    normal = transform.Normalise()(module)
    if backend == "tvm":
        there = normal
    else:
        there = PLACED.get(backend, lambda module: placed.place(module, backend))(normal)
        operators = sum(placed.regions(there).values(), collections.Counter())
        assert operators["nn.conv2d"] == 2 and operators["nn.dense"] == 1
    assert not {name for name in placed.counted(normal["main"]) if name.startswith("qnn.")} - {
        "qnn.quantize", "qnn.dequantize",
    }  # fmt: skip
    answers = []
    for model in (export.runnable(module), placed.load(placed.export_to(tmp_path / "model.so", there))):
        model.set_input("x", value.astype("int8"))
        model.run()
        answers.append(model.get_output(0).numpy())
    assert len(np.unique(answers[0])) > 3, "it says something"
    # What the first layer rounds the other way is a step there, and up to a step more of what comes of it.
    off = np.abs(answers[0] - answers[1]) / step
    assert off.max() <= 2.001 and off.mean() <= 0.75


def test_a_plan_of_the_other_form_is_refused(tmp_path):
    """A plan that was made where whole numbers stayed whole numbers is for another network, and is not misread."""
    module, _ = in_the_dialect("NCHW")
    stayed, normal = transform.Normalise(["QuantisedForm"])(module), transform.Normalise()(module)
    assert placed.counted(stayed["main"])["qnn.conv2d"] == 2
    told = transform.configuration(["tvm", "dnnl"], threads=2, store=str(tmp_path / "costs.jsonl"))
    place = tvm.get_global_func("collage.partition")
    plans = [str(place(form, told, lambda _: 1.0)[1]) for form in (stayed, normal)]
    replay = [transform.Replay(json.loads(plan)) for plan in plans]
    assert tvm.ir.structural_equal(replay[0](stayed), place(stayed, told, lambda _: 1.0)[0])
    replay[1](normal)
    with pytest.raises(Exception, match=r"cannot be replayed: it is for another network.*versions of TVM and Collage"):
        replay[0](normal)


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
