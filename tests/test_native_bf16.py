# SPDX-License-Identifier: Apache-2.0
"""Products in bfloat16 by the kernel of our own."""

import math

import numpy as np
import placed
import pytest
import tvm
from test_dnnl_int8 import layer
from test_precision import compiled, drawn, expected, kept, l2, operators_on, outputs
from tvm import relay

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    placed.needs("native_bf16"),
]


def narrow(values):
    """The nearest numbers of bfloat16, the even one of two."""
    bits = np.ascontiguousarray(values, "float32").view("uint32").astype("uint64")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("uint32").view("float32")


def narrowed(module):
    """The same with constants of products rounded, as the artefact has them."""

    class Weights(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            if getattr(call.op, "name", "") not in ("nn.dense", "nn.batch_matmul"):
                return call
            weight = relay.const(narrow(call.args[1].data.numpy()))
            return relay.Call(call.op, [call.args[0], weight], call.attrs)

    return relay.transform.InferType()(tvm.IRModule.from_expr(Weights().visit(module["main"])))


def batches():
    """A product of batches with a constant, as front ends write products by tensors of three dimensions."""
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(3, 7, 33))
    y = relay.nn.batch_matmul(x, relay.const(rng.standard_normal((3, 20, 33)).astype("float32")))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(y))))


def layers(features):
    """Dense layers behind one another."""
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(4, features))
    y = x
    for _ in range(3):
        weight = rng.standard_normal((features, features)).astype("float32") / math.sqrt(features)
        y = relay.nn.relu(relay.nn.dense(y, relay.const(weight)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


LAYERS = ["a dense layer", "a dense layer of one row", "a dense layer with GELU", "a product of batches"]


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_sums_of_what_was_rounded(name, tmp_path):
    """Data and weights are rounded, and nothing else: beside float32's product of both only sums' order is off."""
    module = batches() if name == "a product of batches" else layer(name)
    (value,) = placed.values(module, 1)
    there = placed.place(module, "native_bf16")
    multiplies = placed.offloaded(there)
    assert multiplies["nn.dense"] + multiplies["nn.batch_matmul"] == 1
    got = placed.run(placed.load(placed.export_to(tmp_path / "model.so", there)), value)[0]
    right = placed.expected(narrowed(module), narrow(value))[0]
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())
    assert 1e-4 < l2(got, placed.expected(module, value)[0]) < 1e-2


def test_a_network(tmp_path, command):
    """Layers behind one another, with weights of half the size in the artefact, and what a processor makes of it that
    has no instructions for bfloat16: the same in float32, by the weights that it has.
    """
    module = layers(512)
    values = drawn(module, 1)
    right = expected(module, values)
    for name in ("dnnl", "native_bf16"):
        placed.export_to(str(tmp_path / f"{name}.so"), placed.place(module, name))
    path = str(tmp_path / "native_bf16.so")
    found = outputs(path, values)
    assert 1e-4 < l2(found, right) < 1e-2
    weights = 4 * 3 * 512 * 512
    saved = (tmp_path / "dnnl.so").stat().st_size - (tmp_path / "native_bf16.so").stat().st_size
    assert 0.4 * weights < saved < 0.6 * weights
    np.savez(tmp_path / "x.npz", **values)
    run = command(
        "run", path, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz",
        environment={"COLLAGE_MAX_CPU_ISA": "avx512_vnni"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    with np.load(tmp_path / "y.npz") as archive:
        wide = archive[archive.files[0]]
    assert 1e-4 < l2(wide, right) < 1e-2
    assert l2(wide, found) < 1e-2


def test_within_an_error_and_not_beyond(tmp_path):
    """What is off by more than is allowed is never kept, and what is kept says how far it is off."""
    module = layers(256)
    for most, pins in ((0.03, ["nn.dense=native_bf16"]), (1e-5, [])):
        folder = tmp_path / str(most)
        folder.mkdir()
        options = {"backends": ["tvm", "native"], "precision": "bf16", "pin": pins}
        path, plan = compiled(module, folder, max_error=most, **options)
        assert [backend["name"] for backend in plan["backends"]] == ["tvm", "native", "native_bf16"]
        assert kept(plan).get("error", 0) <= most
        on = operators_on(plan, "native_bf16")
        assert on.count("nn.dense") == (3 if pins else 0) and bool(on) == bool(pins)
        if pins:
            assert kept(plan)["error"] > 1e-4
            values = drawn(module, 7)
            assert l2(outputs(path, values), expected(module, values)) <= most


def test_what_is_no_number_goes_on(tmp_path):
    """As it does in float32: to the results that read it."""
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(4, 70))
    y = relay.nn.dense(x, relay.const(rng.standard_normal((32, 70)).astype("float32") / math.sqrt(70)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    (value,) = placed.values(module, 1)
    value[1, 3], value[2, 69] = np.nan, np.inf
    got = placed.run(placed.load(placed.export_to(tmp_path / "m.so", placed.place(module, "native_bf16"))), value)[0]
    wanted = placed.expected(module, value)[0]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(got[2], wanted[2])


def test_what_it_leaves_to_others():
    """Convolutions, and weights that are no constants."""
    x, w = relay.var("x", shape=(2, 32, 15, 14)), relay.var("w", shape=(32, 32))
    y = relay.nn.conv2d(x, relay.const(np.ones((32, 32, 1, 1), "float32")), channels=32, kernel_size=(1, 1))
    y = relay.nn.dense(relay.reshape(y, (-1, 32)), w)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], y)))
    assert not placed.regions(placed.place(module, "native_bf16"))


@pytest.mark.parametrize(
    "variable", ["COLLAGE_MAX_CPU_ISA=avx512", "COLLAGE_MAX_CPU_ISA=avx512_vnni", "ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI"]
)
def test_no_candidate_where_the_instruction_is_missing(variable, command):
    probe = placed.probe_where(command, "native_bf16", variable)
    assert not probe["usable"] and "avx512_bf16" in probe["reason"] and probe["remedy"] == "use native"
