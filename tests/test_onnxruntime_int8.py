# SPDX-License-Identifier: Apache-2.0
"""Networks of float32 that ONNX Runtime computes in bytes, by scales that were found on inputs of theirs."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import placed
import pytest
import tvm
from conftest import environment
from test_precision import compiled, expected, kept, l2, network, operators_on, outputs
from test_static_int8 import rounded, values
from tvm import relay

onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    placed.needs("onnxruntime_int8"),
]

BYTES = {"backends": ["tvm", "onnxruntime"], "precision": "int8", "max_error": 0.1}
# All of it in bytes: whether that pays is not asked here.
PINNED = {
    **BYTES,
    "backends": ["tvm", "onnxruntime", "onnxruntime_int8"],
    "pin": ["nn.conv2d=onnxruntime_int8", "nn.dense=onnxruntime_int8"],
}
CHANNELS = 32
SHAPE = (1, CHANNELS, 20, 20)


def mixed():
    """Convolutions with and without bias and activation, a depthwise one, a residual sum, one between whose layers
    stands what bytes have no form of, and a dense layer.
    """
    rng = np.random.default_rng(5)

    def layer(x, groups=1, bias=True):
        weight = rng.standard_normal((CHANNELS, CHANNELS // groups, 3, 3)) / math.sqrt(9 * CHANNELS // groups)
        y = relay.nn.conv2d(
            x, relay.const(weight.astype("float32")), channels=CHANNELS, kernel_size=(3, 3), padding=(1, 1),
            groups=groups,
        )  # fmt: skip
        return relay.nn.bias_add(y, relay.const(rng.standard_normal(CHANNELS).astype("float32"))) if bias else y

    x = relay.var("x", shape=SHAPE)
    y = relay.nn.relu(layer(x))
    y = relay.nn.relu(layer(relay.clip(layer(y, groups=CHANNELS), 0.0, 6.0)) + y)
    y = layer(y, bias=False)
    y = layer(y * relay.sigmoid(y))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = relay.nn.dense(y, relay.const(rng.standard_normal((10, CHANNELS)).astype("float32")))
    y = relay.nn.bias_add(y, relay.const(rng.standard_normal(10).astype("float32")))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


DUMPING = """
import sys
import collage
from test_onnxruntime_int8 import mixed
folder = sys.argv[1]
collage.compile(mixed(), out=folder + "/again.so", plan=folder + "/plan.json", store=folder + "/costs.jsonl")
"""


def test_a_network_is_computed_in_bytes(tmp_path):
    """What is kept is off by what the plan says, on inputs that nobody has seen; its weights are bytes."""
    module = network(False, channels=64)
    # The same placement of the rest in both files, whose sizes are compared.
    rest = ["nn.global_avg_pool2d=tvm", "nn.batch_flatten=tvm"]
    path, plan = compiled(module, tmp_path, **{**PINNED, "pin": [*PINNED["pin"], *rest]})
    assert operators_on(plan, "onnxruntime_int8").count("nn.conv2d") == 2
    assert len(rounded(plan)) >= 4, "what is read, and what the last convolution gives"
    assert 0 < kept(plan)["error"] < 0.05
    for seed in range(30, 33):
        given = values(seed, (1, 64, 28, 28))
        assert l2(outputs(path, given), expected(module, given)) == pytest.approx(kept(plan)["error"], rel=0.5)
    (tmp_path / "f32").mkdir()
    wide = ["nn.conv2d=onnxruntime", "nn.dense=onnxruntime", *rest]
    plain, _ = compiled(module, tmp_path / "f32", backends=["tvm", "onnxruntime"], pin=wide)
    weights = 2 * 64 * 64 * 9 + 64 * 64
    smaller = Path(plain).stat().st_size - Path(path).stat().st_size
    assert 2.5 * weights < smaller < 3.5 * weights


def test_what_onnx_runtime_is_given(tmp_path):
    """A whole model that its checker takes, in which ONNX Runtime finds layers of bytes all over; a plan has the
    scales, and is replayed to the last bit.
    """
    module = mixed()
    path, plan = compiled(module, tmp_path, **PINNED)
    assert operators_on(plan, "onnxruntime_int8").count("nn.conv2d") == 5
    given = values(40, SHAPE)
    right = expected(module, given)
    assert 1e-3 < l2(outputs(path, given), right) < 0.05
    folder = tmp_path / "dumped"
    folder.mkdir()
    again = subprocess.run(
        [sys.executable, "-c", DUMPING, str(tmp_path)],
        env=environment(
            COLLAGE_ONNXRUNTIME_DUMP=str(folder),
            PYTHONPATH=os.pathsep.join((str(Path(__file__).parent), environment()["PYTHONPATH"])),
        ),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert again.returncode == 0, again.stderr
    np.testing.assert_array_equal(outputs(path, given), outputs(str(tmp_path / "again.so"), given))
    models = [onnx.load(one) for one in sorted(folder.glob("*.onnx"))]
    assert models
    count = dict.fromkeys(("QLinearConv", "Conv", "FusedConv", "QGemm", "Gemm"), 0)
    for i, model in enumerate(models):
        onnx.checker.check_model(model, full_check=True)
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / f"{i}.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for node in onnx.load(tmp_path / f"{i}.onnx").graph.node:
            if node.op_type in count:
                count[node.op_type] += 1
    assert count == {"QLinearConv": 5, "Conv": 0, "FusedConv": 0, "QGemm": 1, "Gemm": 0}


def test_float32_stays_so_between_bytes(tmp_path):
    """A layer that is to be computed in float32 between two in bytes: ONNX Runtime would round its weights, of which
    the greatest, which multiply what is 0 always, leave little to the others.
    """
    rng = np.random.default_rng(5)
    x = y = relay.var("x", shape=SHAPE)
    for i in range(3):
        weight = rng.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype("float32") / math.sqrt(9 * CHANNELS)
        if i == 0:
            weight[0] = 0.0
        elif i == 1:
            weight[:, 0] *= 20
        y = relay.nn.conv2d(y, relay.const(weight), channels=CHANNELS, kernel_size=(3, 3), padding=(1, 1))
        y = relay.tanh(y)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    _, plan = compiled(module, tmp_path, backends=["tvm", "onnxruntime"], trials=2)
    nodes = [node for region in plan["regions"] for c in region["candidates"] for node in c["nodes"]]
    convs = sorted(node["index"] for node in nodes if node["operator"] == "nn.conv2d")
    given = values(50, SHAPE)
    off = []
    for second in ("onnxruntime", "onnxruntime_int8"):
        pins = [f"%{convs[0]}=onnxruntime_int8", f"%{convs[1]}={second}", f"%{convs[2]}=onnxruntime_int8"]
        folder = tmp_path / second  # a file in the place of a loaded one may be taken for it by the dynamic loader
        folder.mkdir()
        path, plan = compiled(module, folder, **{**PINNED, "max_error": 0.9, "pin": [*pins, "tanh=onnxruntime"]})
        (region,) = [r for r in plan["regions"] if r["backend"] != "tvm"]
        assert region["backend"] == "onnxruntime+onnxruntime_int8"
        off.append(l2(outputs(path, given), expected(module, given)))
    assert 1e-3 < off[0] < 0.05 and off[1] > 3 * off[0], off


def test_layers_in_bytes_are_seen_in_place(tmp_path):
    """ONNX Runtime's profile tells of each convolution, though transpositions of its own stand around them."""
    module = network(False, channels=64)
    _, plan = compiled(module, tmp_path, **PINNED)
    assert not [note for note in plan["notes"] if "inside a region is not known" in note], plan["notes"]
    seen = [c for region in plan["regions"] for c in region["candidates"] if c.get("context_ms") is not None]
    assert seen, plan["regions"]


def test_networks_that_come_quantised_are_left_to_others():
    x = relay.var("x", shape=SHAPE)
    by = (relay.const(0.1), relay.const(3))
    y = relay.qnn.op.dequantize(relay.qnn.op.quantize(x, *by, out_dtype="uint8"), *by)
    weight = np.random.default_rng(1).standard_normal((8, CHANNELS, 3, 3)).astype("float32")
    y = relay.nn.relu(relay.nn.conv2d(y, relay.const(weight), channels=8, kernel_size=(3, 3)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    assert not placed.regions(placed.place(module, "onnxruntime_int8"))
