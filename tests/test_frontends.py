# SPDX-License-Identifier: Apache-2.0
"""Reading models: every form that is offered, and what is said where one cannot be read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from collage import frontends
from conftest import environment
from onnx import TensorProto, helper
from tvm import relay

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def save_onnx(path, nodes, inputs, outputs, initializers=(), domain=None):
    """Write a small ONNX model; shapes may hold names for what is open."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        list(initializers),
    )
    opsets = [helper.make_opsetid("", 13)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.fixture
def dense_onnx(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 4], np.arange(32, dtype="float32"))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    return save_onnx(tmp_path / "dense.onnx", nodes, {"x": ["batch", 8]}, {"y": ["batch", 4]}, [weight])


@pytest.fixture
def relay_module():
    x = relay.var("x", shape=(1, 8), dtype="float32")
    w = relay.var("w", shape=(4, 8), dtype="float32")
    return tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))


def run(model, **inputs):
    return relay.create_executor("graph", model.module).evaluate()(**inputs).numpy()


def test_workload():
    model = frontends.load("workload:resnext50_32x4d")
    assert model.inputs == {"input0": ((1, 64, 56, 56), "float32")}
    assert model.info()["operators"] == 116
    assert frontends.parameter_bytes(model.module) > 80e6


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_onnx_from_the_wild(name):
    model = frontends.load(LIGHT / f"light_{name}.onnx")
    counts = model.info()["operator_counts"]
    assert counts["nn.conv2d"] > 20
    assert model.format == "onnx"


def test_onnx_with_open_batch_asks_for_it(dense_onnx):
    with pytest.raises(ValueError, match=r"leaves shapes open \(x is \[batch, 8\]\).*--input-shape x:"):
        frontends.load(dense_onnx)


def test_onnx_with_batch_given(dense_onnx):
    model = frontends.load(dense_onnx, input_shapes={"x": (2, 8)})
    x = np.ones((2, 8), "float32")
    weight = np.arange(32, dtype="float32").reshape(8, 4)
    np.testing.assert_allclose(run(model, x=x), x @ weight, rtol=1e-5)


def test_onnx_with_a_shape_that_does_not_fit(dense_onnx):
    with pytest.raises(ValueError, match=r"x of .* is \[batch, 8\]; \[2, 9\] does not fit"):
        frontends.load(dense_onnx, input_shapes={"x": (2, 9)})
    with pytest.raises(ValueError, match=r"has no input 'z'; its inputs are: x"):
        frontends.load(dense_onnx, input_shapes={"z": (2, 8)})


def test_a_size_of_0_is_none_unless_the_model_says_it(dense_onnx, tmp_path):
    refused = r"input x of .* cannot be \[0, 8\]: a size is a whole number from 1 up"
    with pytest.raises(ValueError, match=refused):
        frontends.load(dense_onnx, input_shapes={"x": (0, 8)})
    with pytest.raises(ValueError, match=refused.replace("x of", "data of")):
        frontends.load("workload:mobilenet_v2", input_shapes={"data": (0, 8)})
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)]
    path = save_onnx(tmp_path / "empty.onnx", nodes, {"x": [0, 8]}, {"y": []})
    assert run(frontends.load(path, input_shapes={"x": (0, 8)}), x=np.ones((0, 8), "float32")) == 0


def test_onnx_operator_that_the_importer_lacks(tmp_path):
    nodes = [helper.make_node("FlyToTheMoon", ["x"], ["y"], domain="com.example")]
    path = save_onnx(tmp_path / "odd.onnx", nodes, {"x": [1, 8]}, {"y": [1, 8]}, domain="com.example")
    with pytest.raises(ValueError, match=r"operators that TVM's ONNX importer lacks: FlyToTheMoon"):
        frontends.load(path)


@pytest.mark.parametrize("suffix", [".onnx", "", ".bin"])
def test_not_a_model(tmp_path, suffix):
    path = tmp_path / f"noise{suffix}"
    path.write_bytes(np.random.default_rng(0).bytes(4096))
    with pytest.raises(ValueError, match="is not an ONNX model"):
        frontends.load(path)


@pytest.mark.parametrize("suffix", [".onnx", ".json", ".relay", ".pt"])
def test_empty_file(tmp_path, suffix):
    path = tmp_path / f"empty{suffix}"
    path.write_bytes(b"")
    with pytest.raises((ValueError, ImportError), match=r"is not a|needs torch"):
        frontends.load(path)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model file"):
        frontends.load(tmp_path / "nothing.onnx")
    with pytest.raises(FileNotFoundError, match=r"did you mean workload:dcgan\?"):
        frontends.load("dcgan")


def test_folder_is_not_a_model(tmp_path):
    with pytest.raises(ValueError, match="is a directory"):
        frontends.load(tmp_path)


def test_onnx_without_its_weights(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 4], np.zeros(32, "float32").tobytes(), raw=True)
    path = save_onnx(
        tmp_path / "model.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": [1, 8]},
        {"y": [1, 4]},
        [weight],
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ValueError, match="weights"):
        frontends.load(path)


def test_onnx_with_inputs_of_float16(collage_library, tmp_path):
    weight = np.random.default_rng(3).standard_normal((8, 4)).astype("float16")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["product"], ["narrow"]),
    ]
    graph = helper.make_graph(
        nodes,
        "halves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [3, 8])],
        [
            helper.make_tensor_value_info("narrow", TensorProto.FLOAT16, [3, 4]),
            helper.make_tensor_value_info("wide", TensorProto.FLOAT, [3, 4]),
        ],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), tmp_path / "h.onnx")
    model = frontends.load(tmp_path / "h.onnx")
    assert model.inputs == {"x": ((3, 8), "float16")}
    executor = tvm.contrib.graph_executor.GraphModule(tvm.relay.build(model.module, "llvm")["default"](tvm.cpu()))
    x = np.random.default_rng(4).standard_normal((3, 8)).astype("float16")
    executor.set_input("x", x)
    executor.run()
    narrow, wide = (executor.get_output(number).numpy() for number in range(2))
    assert (narrow.dtype, wide.dtype) == ("float16", "float32")
    right = x.astype("float64") @ weight.astype("float64")
    np.testing.assert_allclose(wide, right, atol=0.02)
    np.testing.assert_allclose(narrow, np.maximum(right, 0), atol=0.02)


@pytest.mark.parametrize("form", ["text", "json"])
def test_relay_with_parameters(tmp_path, relay_module, form):
    path = tmp_path / ("model.relay" if form == "text" else "model.json")
    path.write_text(relay_module.astext() if form == "text" else tvm.ir.save_json(relay_module))
    weight = np.random.default_rng(1).standard_normal((4, 8), dtype=np.float32)
    np.savez(tmp_path / "params.npz", w=weight)
    (tmp_path / "weights.params").write_bytes(relay.save_param_dict({"w": tvm.nd.array(weight)}))
    x = np.random.default_rng(2).standard_normal((1, 8), dtype=np.float32)
    for params in ("params.npz", "weights.params"):
        model = frontends.load(path, tmp_path / params)
        assert list(model.inputs) == ["x"]
        np.testing.assert_allclose(run(model, x=x), np.maximum(x @ weight.T, 0), rtol=1e-5)


def test_relay_with_an_open_dimension(tmp_path):
    x = relay.var("x", shape=(relay.Any(), 8), dtype="float32")
    path = tmp_path / "open.relay"
    path.write_text(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))).astext())
    with pytest.raises(ValueError, match=r"leaves shapes open \(x is \[\?, 8\]\)"):
        frontends.load(path)
    model = frontends.load(path, input_shapes={"x": (3, 8)})
    assert model.inputs["x"] == ((3, 8), "float32")
    assert [int(dim) for dim in model.module["main"].ret_type.shape] == [3, 8]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"w": np.zeros((4, 9), "float32")}, r"w as float32\[4, 9\], but .* takes float32\[4, 8\]"),
        ({"w": np.zeros((4, 8), "float64")}, r"w as float64"),
        ({"v": np.zeros((4, 8), "float32")}, r"holds 'v', which .* does not take; it takes: x, w"),
    ],
)
def test_parameters_that_do_not_fit(tmp_path, relay_module, values, message):
    path = tmp_path / "model.relay"
    path.write_text(relay_module.astext())
    np.savez(tmp_path / "params.npz", **values)
    with pytest.raises(ValueError, match=message):
        frontends.load(path, tmp_path / "params.npz")


def test_parameter_file_that_is_none(tmp_path, relay_module):
    path = tmp_path / "model.relay"
    path.write_text(relay_module.astext())
    (tmp_path / "bad.params").write_bytes(b"what is this")
    with pytest.raises(ValueError, match="is not a parameter file"):
        frontends.load(path, tmp_path / "bad.params")
    with pytest.raises(FileNotFoundError, match="there is no parameter file"):
        frontends.load(path, tmp_path / "absent.npz")


@pytest.mark.parametrize("text", ["this is prose", '{"nodes": []}', "def @main(%x: Tensor[(2, 2), float32]) {"])
def test_relay_that_is_none(tmp_path, text):
    path = tmp_path / "bad.relay"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not a Relay program"):
        frontends.load(path)


def test_relay_that_does_not_type_check(tmp_path):
    path = tmp_path / "bad.relay"
    path.write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32], %y: Tensor[(5, 7), float32]) { add(%x, %y) }\n'
    )
    with pytest.raises(ValueError, match=r"does not type-check|is not a Relay program"):
        frontends.load(path)


def test_torchscript_without_torch(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK\x03\x04")
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from collage import frontends\n"
        f"try: frontends.load({str(path)!r})\n"
        "except ImportError as error: print(error); sys.exit(7)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert result.returncode == 7, result.stderr
    assert "needs torch" in result.stdout


def test_names_of_torchscripts_inputs():
    """What PyTorch puts behind a dot is left out, but where two inputs would have one name."""
    assert frontends._input_names(["input.1", "mask"]) == ["input", "mask"]
    assert frontends._input_names(["x.1", "x.3", "y.5"]) == ["x.1", "x.3", "y"]


def test_onnx_newer_than_what_is_installed(tmp_path):
    """The version is said in a line, whatever operators there are."""
    path = save_onnx(tmp_path / "new.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]})
    newest = onnx.defs.onnx_opset_version()
    proto = onnx.load(path)
    for opset in (newest, newest + 1):
        proto.opset_import[0].version = opset
        onnx.save(proto, path)
        if opset == newest:
            frontends.load(path)
    wanted = rf"new.onnx cannot be read: it uses opset {newest + 1} .* onnx {onnx.__version__} knows those to {newest}:"
    with pytest.raises(ValueError, match=wanted) as error:
        frontends.load(path)
    assert "\n" not in str(error.value)


def test_torchscript(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed (Debian: python3-torch)")

    path = tmp_path / "model.pt"
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
    torch.jit.trace(network, torch.zeros(1, 3, 8, 8)).save(str(path))
    with pytest.raises(ValueError, match="leaves shapes open"):
        frontends.load(path)
    model = frontends.load(path, input_shapes={"input": (1, 3, 8, 8)})
    x = np.random.default_rng(3).standard_normal((1, 3, 8, 8), dtype=np.float32)
    np.testing.assert_allclose(run(model, input=x), network(torch.from_numpy(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
