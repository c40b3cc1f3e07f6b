# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files: read by TVM's importer with converters of ours, compiled, and with LiteRT's outputs."""

import json
import os
import subprocess
import sys

import flatbuffers
import numpy as np
import pytest
import tvm
from ai_edge_litert import schema_py_generated as schema
from collage import check, difference, export, frontends, seeded, tflite_reader, witness
from conftest import SAMPLES, environment
from tvm import relay

TYPES = {"float32": schema.TensorType.FLOAT32, "int32": schema.TensorType.INT32, "bool": schema.TensorType.BOOL}
RELU = schema.ActivationFunctionType.RELU
KINDS = schema.BuiltinOperator


class Writer:
    """A TensorFlow Lite file, operator by operator."""

    def __init__(self):
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs = 3, [self.graph]
        self.model.buffers, self.model.operatorCodes = [schema.BufferT()], []
        self.model.buffers[0].data = []
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []

    def tensor(self, name, shape, dtype="float32", value=None, signature=None):
        """The number of a new tensor; a constant where a value is given."""
        one = schema.TensorT()
        one.name, one.shape, one.type, one.buffer = name, list(shape), TYPES.get(dtype, dtype), 0
        one.shapeSignature = signature
        if value is not None:
            one.buffer = len(self.model.buffers)
            self.model.buffers.append(schema.BufferT())
            self.model.buffers[-1].data = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
        self.graph.tensors.append(one)
        return len(self.graph.tensors) - 1

    def constant(self, name, value):
        return self.tensor(name, value.shape, str(value.dtype), value)

    def operator(self, kind, inputs, outputs, options=None, custom=None, version=1):
        code, one = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode, code.deprecatedBuiltinCode, code.version = kind, min(kind, 127), version
        code.customCode = custom
        one.opcodeIndex = len(self.model.operatorCodes)
        one.inputs, one.outputs = list(inputs), list(outputs)
        if options is not None:
            one.builtinOptions = options
            one.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        self.model.operatorCodes.append(code)
        self.graph.operators.append(one)

    def write(self, path, inputs, outputs):
        self.graph.inputs, self.graph.outputs = list(inputs), list(outputs)
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), tflite_reader.IDENTIFIER)
        path.write_bytes(bytes(builder.Output()))
        return path


def network(path):
    """A small image network, NHWC as all such files have it."""
    rng, file = np.random.default_rng(5), Writer()

    def weights(name, *shape):
        return file.constant(name, (0.3 * rng.standard_normal(shape)).astype("float32"))

    x = file.tensor("image", (1, 8, 8, 3))
    conv, depthwise = schema.Conv2DOptionsT(), schema.DepthwiseConv2DOptionsT()
    for options in (conv, depthwise):
        options.padding, options.strideH, options.strideW = schema.Padding.SAME, 1, 1
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = RELU
    depthwise.depthMultiplier, depthwise.strideH, depthwise.strideW = 1, 2, 2
    first, second = file.tensor("first", (1, 8, 8, 8)), file.tensor("second", (1, 4, 4, 8))
    file.operator(KINDS.CONV_2D, [x, weights("w1", 8, 3, 3, 3), weights("b1", 8)], [first], conv)
    file.operator(KINDS.DEPTHWISE_CONV_2D, [first, weights("w2", 1, 3, 3, 8), weights("b2", 8)], [second], depthwise)
    mean, axes = file.tensor("mean", (1, 8)), file.constant("axes", np.array([1, 2], "int32"))
    file.operator(KINDS.MEAN, [second, axes], [mean], schema.ReducerOptionsT())
    scores, chances = file.tensor("scores", (1, 5)), file.tensor("chances", (1, 5))
    file.operator(
        KINDS.FULLY_CONNECTED, [mean, weights("w3", 5, 8), weights("b3", 5)], [scores], schema.FullyConnectedOptionsT()
    )
    softmax = schema.SoftmaxOptionsT()
    softmax.beta = 1.0
    file.operator(KINDS.SOFTMAX, [scores], [chances], softmax)
    return file.write(path, [x], [chances])


def compared(path, **options):
    """(how far TVM's outputs are from LiteRT's, as a share; where they differ) on seeded inputs."""
    model = frontends.load(path, **options)
    engine, loose, answers = witness.ask({**model.question(), "seconds": 60})
    assert engine.startswith("LiteRT ") and not loose
    executor = tvm.contrib.graph_executor.GraphModule(export.build(model.module)["default"](tvm.cpu()))
    for name, value in seeded.inputs(0, model.inputs).items():
        executor.set_input(name, value)
    executor.run()
    outputs = [executor.get_output(number).numpy() for number in range(executor.get_num_outputs())]
    return check.witnessed(outputs, answers, loose)


def test_it_is_compiled_and_answers_as_litert_does(command, tmp_path):
    network(tmp_path / "net.tflite")
    compiled = command(
        "compile", "net.tflite", "-o", "net.tar", "--backends", "tvm,dnnl", "--db", tmp_path / "costs.jsonl", "-q",
        "--level", "operator", "--repeat", SAMPLES, "--rounds", 1, "--json", cwd=tmp_path,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    report = json.loads(compiled.stdout)
    assert report["model_info"]["format"] == "tflite"
    assert report["model_info"]["inputs"] == {"image": {"shape": [1, 8, 8, 3], "dtype": "float32"}}
    assert report["import_check"]["engine"].startswith("LiteRT ")
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(2).standard_normal((1, 8, 8, 3)).astype("float32"))
    ran = command("run", "net.tar", "--inputs", "x.npz", "--outputs", "y.npz", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    program = (
        "import numpy as np; from ai_edge_litert.interpreter import Interpreter\n"
        "net = Interpreter('net.tflite'); net.allocate_tensors()\n"
        "net.set_tensor(net.get_input_details()[0]['index'], np.load('x.npz')['image']); net.invoke()\n"
        "np.save('z.npy', net.get_tensor(net.get_output_details()[0]['index']))\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, capture_output=True, env=environment())
    with np.load(tmp_path / "y.npz") as got:
        np.testing.assert_allclose(got["output_0"], np.load(tmp_path / "z.npy"), rtol=1e-4, atol=1e-6)


def of_one(kind, made, *others, dtype="float32", options=None, version=1):
    """A file of one operator on an input of (2, 3), the constants ``others``, and an output as ``made``."""

    def write(path):
        file = Writer()
        x = file.tensor("x", (2, 3))
        given = [x, *(file.constant(f"c{at}", value) for at, value in enumerate(others))]
        result = file.tensor("made", made, dtype)
        file.operator(kind, given, [result], options, version=version)
        return file.write(path, [x], [result])

    return write


def chosen(path):
    """SELECT_V2, whose condition is smaller than what it chooses from."""
    file = Writer()
    x, zero = file.tensor("x", (2, 3)), file.constant("zero", np.zeros(1, "float32"))
    where, other = file.tensor("where", (2, 3), "bool"), file.constant("other", np.float32([[7], [9]]))
    made = file.tensor("made", (2, 3))
    file.operator(KINDS.GREATER, [x, zero], [where], schema.GreaterOptionsT())
    file.operator(KINDS.SELECT_V2, [where, x, other], [made], schema.SelectV2OptionsT())
    return file.write(path, [x], [made])


def ranked(path):
    """RANK, added to what it is of."""
    file = Writer()
    x, rank, number = file.tensor("x", (2, 3)), file.tensor("rank", (), "int32"), file.tensor("number", ())
    made = file.tensor("made", (2, 3))
    file.operator(KINDS.RANK, [x], [rank])
    cast = schema.CastOptionsT()
    cast.inDataType, cast.outDataType = TYPES["int32"], TYPES["float32"]
    file.operator(KINDS.CAST, [rank], [number], cast)
    file.operator(KINDS.ADD, [x, number], [made], schema.AddOptionsT())
    return file.write(path, [x], [made])


LACKED = {
    "BROADCAST_TO": of_one(
        KINDS.BROADCAST_TO, (4, 2, 3), np.array([4, 2, 3], "int32"), options=schema.BroadcastToOptionsT(), version=2
    ),
    "RANK": ranked,
    "RELU_0_TO_1": of_one(KINDS.RELU_0_TO_1, (2, 3)),
    "SELECT_V2": chosen,
    "SIGN": of_one(KINDS.SIGN, (2, 3)),
}


@pytest.mark.parametrize("name", LACKED)
def test_operators_that_tvm_lacks(tmp_path, name):
    share, mismatch = compared(LACKED[name](tmp_path / "net.tflite"))
    assert mismatch is None and share < 1e-5


def test_each_operator_of_ours_is_tried():
    assert set(tflite_reader._OURS) == set(LACKED)


def test_what_is_read_wrong_is_seen(tmp_path, monkeypatch):
    """A converter that is wrong gives another answer than LiteRT."""
    monkeypatch.setitem(
        tflite_reader._OURS, "SIGN", lambda converter, one: relay.tanh(*tflite_reader._given(converter, one))
    )
    share, mismatch = compared(LACKED["SIGN"](tmp_path / "net.tflite"))
    assert share == float("inf") and "output 0 differs" in mismatch


def test_the_first_operator_that_differs_is_named(tmp_path, monkeypatch):
    network(tmp_path / "net.tflite")
    assert difference.first(tmp_path / "net.tflite", None, None, form="tflite") is None
    monkeypatch.setitem(
        tflite_reader._OURS, "MEAN",
        lambda converter, one: relay.max(tflite_reader._given(converter, one)[0], axis=[1, 2]),
    )  # fmt: skip
    found = difference.first(tmp_path / "net.tflite", None, None, form="tflite")
    assert (found["operator"], found["makes"]) == ("MEAN", "mean")
    assert "differs" in found["mismatch"] and "output" not in found["mismatch"]


def test_what_is_called_as_something_else_is_names_no_operator(tmp_path):
    net = Writer()
    x = net.tensor("x", (1, 4))
    first, second, last = (net.tensor(name, (1, 4)) for name in ("twice", "twice", "once"))
    for from_, to in ((x, first), (first, second), (second, last)):
        net.operator(KINDS.ABS, [from_], [to])
    net.write(tmp_path / "net.tflite", [x], [last])
    model = schema.Model.GetRootAsModel((tmp_path / "net.tflite").read_bytes(), 0)
    assert tflite_reader.made(model, model.Subgraphs(0)) == [("ABS", "once")]


# A module that has TVM read a mean as the greatest.
WRONG = """
from collage import tflite_reader
from tvm import relay

tflite_reader._OURS["MEAN"] = lambda converter, one: relay.max(tflite_reader._given(converter, one)[0], axis=[1, 2])
"""


def test_compiling_ends_with_that_operator(command, tmp_path):
    network(tmp_path / "net.tflite")
    (tmp_path / "wrong_mean.py").write_text(WRONG)
    result = command(
        "compile", "net.tflite", "-o", "net.tar", "--backends", "tvm,dnnl", "--db", tmp_path / "costs.jsonl", "-q",
        "--level", "operator", "--repeat", SAMPLES, "--rounds", 1, "--json", cwd=tmp_path,
        environment={"COLLAGE_REGISTER": "wrong_mean",
                     "PYTHONPATH": os.pathsep.join((environment()["PYTHONPATH"], str(tmp_path)))},
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.count("\n") == 1
    assert "TVM computes something else than LiteRT " in result.stderr
    assert ". The first operator that differs is the MEAN that makes mean: it differs" in result.stderr


def test_shapes_that_are_open(tmp_path):
    """What a file leaves open is as the file itself stands in for it, or as it is given."""
    file = Writer()
    x, made = file.tensor("x", (1, 3), signature=[-1, 3]), file.tensor("made", (1, 3), signature=[-1, 3])
    file.operator(KINDS.EXP, [x], [made], schema.ExpOptionsT())
    path = file.write(tmp_path / "net.tflite", [x], [made])
    assert frontends.load(path).inputs == {"x": ((1, 3), "float32")}
    assert frontends.load(path, input_shapes={"x": (4, 3)}).inputs == {"x": ((4, 3), "float32")}
    assert compared(path, input_shapes={"x": (4, 3)})[1] is None
    with pytest.raises(ValueError, match=r"input x of .* is \[\?, 3\]; \[4, 4\] does not fit"):
        frontends.load(path, input_shapes={"x": (4, 4)})
    with pytest.raises(ValueError, match="has no input 'y'"):
        frontends.load(path, input_shapes={"y": (4, 4)})


def test_it_is_known_by_its_content(tmp_path):
    assert frontends.load(network(tmp_path / "net.lite")).format == "tflite"


def told(path, *said):
    with pytest.raises(ValueError) as error:
        frontends.load(path)
    assert "\n" not in str(error.value)
    for text in (path.name, *said):
        assert text in str(error.value)


def test_what_cannot_be_read(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(b"noise" * 10)
    told(path, "is not a TensorFlow Lite model", "TFL3")
    content = network(path).read_bytes()
    path.write_bytes(content[:8] + b"\xff" * 64)
    told(path, "is not a TensorFlow Lite model")

    file = Writer()
    x, made = file.tensor("x", (2, 3)), file.tensor("made", (2, 3))
    file.operator(KINDS.CUSTOM, [x], [made], custom="Fancy")
    file.operator(KINDS.COMPLEX_ABS, [x], [made])
    told(file.write(path, [x], [made]), "TVM's TensorFlow Lite importer lacks: COMPLEX_ABS, Fancy (not of")
    file.model.subgraphs.append(file.graph)
    told(file.write(path, [x], [made]), "it has 2 subgraphs")

    file = Writer()
    x, made = file.tensor("words", (2,), schema.TensorType.STRING), file.tensor("made", (2,))
    file.operator(KINDS.EXP, [x], [made])
    told(file.write(path, [x], [made]), "its input words holds no numbers")

    file = Writer()
    x, shape, made = file.tensor("x", (2, 3)), file.tensor("shape", (3,), "int32"), file.tensor("made", (4, 2, 3))
    file.operator(KINDS.BROADCAST_TO, [x, shape], [made])
    told(file.write(path, [x, shape], [made]), "the operator BROADCAST_TO that makes made", "known only when it runs")


@pytest.mark.parametrize("lacking", ["tflite", "ai_edge_litert"])
def test_without_the_packages_it_is_said(command, tmp_path, lacking):
    """Without the schema nothing is read; without a runtime nothing is checked."""
    network(tmp_path / "net.tflite")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(f"import sys\nsys.modules[{lacking!r}] = None\n")
    ran = command(
        "compile", "net.tflite", "-o", "net.tar", "--backends", "tvm", "--db", tmp_path / "costs.jsonl", "-q", "--json",
        "--level", "operator", "--repeat", SAMPLES, "--rounds", 1,
        cwd=tmp_path, environment={"PYTHONPATH": os.pathsep.join((str(site), environment()["PYTHONPATH"]))},
    )  # fmt: skip
    if lacking == "tflite":
        assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1
        assert f"needs the tflite package: pip install {tflite_reader.PACKAGE}" in ran.stderr
    else:
        assert ran.returncode == 0, ran.stderr
        assert "pip install ai-edge-litert" in json.loads(ran.stdout)["import_check"]["unchecked"]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("net.keras", "a model of Keras's, which is not read as it is: write it as TensorFlow Lite"),
        ("net.h5", "a model of Keras's"),
        ("net.pb", "a model of TensorFlow's"),
        ("net.pdmodel", "a model of PaddlePaddle's, which is not read as it is: write it as ONNX (paddle2onnx)"),
        ("net.mlmodel", "a model of Core ML's"),
        ("net.caffemodel", "a model of Caffe's"),
    ],
)
def test_forms_that_are_not_read_say_what_to_do(tmp_path, file, said):
    (tmp_path / file).write_bytes(b"PK\x03\x04")
    told(tmp_path / file, said)
