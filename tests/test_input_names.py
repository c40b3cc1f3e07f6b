# SPDX-License-Identifier: Apache-2.0
"""Inputs whose names have dots and whose numbers are of half precision, from the file to the outputs."""

import json

import numpy as np
import onnx
from conftest import SAMPLES
from onnx import TensorProto, helper, numpy_helper


def test_dots_and_half_precision(command, store, tmp_path):
    """onnx::Mul.1 and x.1, x.3 are names that exporters write."""
    weight = np.linspace(-1, 1, 12).astype("float16").reshape(4, 3)
    nodes = [
        helper.make_node("MatMul", ["x.1", "w.0"], ["p.1"]),
        helper.make_node("Cast", ["x.3"], ["c.1"], to=TensorProto.FLOAT16),
        helper.make_node("Add", ["p.1", "c.1"], ["y.1"]),
    ]
    graph = helper.make_graph(
        nodes, "names",
        [
            helper.make_tensor_value_info("x.1", TensorProto.FLOAT16, ["batch", 4]),
            helper.make_tensor_value_info("x.3", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y.1", TensorProto.FLOAT16, ["batch", 3])],
        [numpy_helper.from_array(weight, "w.0")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "n.onnx")
    compiled = command(
        "compile", "n.onnx", "--input-shape", "x.1:2,4", "--backends", "tvm,dnnl", "-o", "n.tar", "--db", store, "-q",
        "--level", "operator", "--repeat", SAMPLES, "--rounds", 1, "--json", cwd=tmp_path,
    )  # fmt: skip
    assert compiled.returncode == 0, compiled.stderr
    told = json.loads(compiled.stdout)["import_check"]
    assert "unchecked" not in told and told["max_error_share"] < 1e-2
    rng = np.random.default_rng(8)
    one, three = rng.standard_normal((2, 4)).astype("float16"), rng.standard_normal(3).astype("float32")
    np.savez(tmp_path / "x.npz", **{"x.1": one, "x.3": three})
    ran = command("run", "n.tar", "--inputs", "x.npz", "--outputs", "y.npz", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "y.npz") as outputs:
        got = outputs["output_0"]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, one @ weight + three.astype("float16"), rtol=1e-2, atol=1e-2)

    np.savez(tmp_path / "x.npz", **{"x": one, "x.3": three})
    refused = command("run", "n.tar", "--inputs", "x.npz", cwd=tmp_path)
    assert refused.returncode == 2 and "x.1" in refused.stderr
