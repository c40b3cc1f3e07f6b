# SPDX-License-Identifier: Apache-2.0
"""Convolutions and dense layers in bytes by oneDNN's own kernels: what native_int8 gives, by another library."""

import math

import numpy as np
import placed
import pytest
import tvm
from test_precision import l2
from tvm import relay

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    placed.needs("dnnl_int8"),
]

SHAPE = (2, 32, 15, 14)


def layer(name):
    """A layer by itself, with what stands behind it."""
    rng = np.random.default_rng(5)

    def weight(*shape):
        return relay.const((rng.standard_normal(shape) / math.sqrt(shape[1])).astype("float32"))

    x = relay.var("x", shape=SHAPE)
    options = {"channels": 32, "kernel_size": (3, 3), "padding": (1, 1)}
    bias = relay.const(rng.standard_normal(32).astype("float32"))
    if name == "a convolution":
        y = relay.nn.conv2d(x, weight(32, 32, 3, 3), **options)
    elif name == "with a bias and a clip":
        y = relay.clip(relay.nn.bias_add(relay.nn.conv2d(x, weight(32, 32, 3, 3), **options), bias), 0.0, 6.0)
    elif name == "with a residual value":
        y = relay.nn.bias_add(relay.nn.conv2d(x, weight(32, 32, 3, 3), **options), bias)
        y = relay.nn.relu(y + x)
    elif name == "with strides, padded on one side":
        y = relay.nn.conv2d(
            x, weight(48, 32, 5, 3), channels=48, kernel_size=(5, 3), strides=(2, 1), padding=(0, 0, 3, 2)
        )
    elif name == "dilated":
        y = relay.nn.conv2d(x, weight(32, 32, 3, 3), dilation=(2, 3), **options)
    elif name == "of one pixel":
        y = relay.sigmoid(relay.nn.conv2d(x, weight(24, 32, 1, 1), channels=24, kernel_size=(1, 1)))
    elif name == "of few channels":
        x = relay.var("x", shape=(3, 3, 17, 19))
        y = relay.nn.conv2d(x, weight(8, 3, 7, 7), channels=8, kernel_size=(7, 7), padding=(3, 3))
    elif name == "channels last":
        x = relay.var("x", shape=(2, 15, 14, 32))
        y = relay.nn.conv2d(x, weight(3, 3, 32, 32), data_layout="NHWC", kernel_layout="HWIO", **options)
        y = relay.nn.relu(relay.nn.bias_add(y, bias, axis=3))
    elif name == "in groups":
        y = relay.nn.relu(relay.nn.conv2d(x, weight(32, 16, 3, 3), groups=2, **options))
    elif name == "a dense layer":
        x = relay.var("x", shape=(7, 70))
        y = relay.nn.dense(x, weight(32, 70))
    elif name == "a dense layer of one row":
        x = relay.var("x", shape=(1, 64))
        y = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weight(32, 64)), bias))
    elif name == "a dense layer with GELU":
        x = relay.var("x", shape=(5, 64))
        y = relay.nn.bias_add(relay.nn.dense(x, weight(32, 64)), bias)
        y = y * (relay.erf(y * relay.const(math.sqrt(0.5))) * relay.const(0.5) + relay.const(0.5))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


LAYERS = [
    "a convolution", "with a bias and a clip", "with a residual value", "with strides, padded on one side", "dilated",
    "of one pixel", "of few channels", "channels last", "in groups", "a dense layer", "a dense layer of one row",
    "a dense layer with GELU",
]  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_what_native_makes_of_them(name, tmp_path):
    """Both round the same numbers to the same bytes, whose sums are exact: what differs is float32's rounding. Images,
    and rows of dense layers, are of different sizes here, so that each must have a scale of its own.
    """
    module = layer(name)
    (value,) = placed.values(module, 1)
    value += 0.5
    value *= (10.0 ** np.arange(len(value), dtype="float32")).reshape(-1, *[1] * (value.ndim - 1))
    wanted = placed.expected(module, value)[0]
    there = placed.place(module, "dnnl_int8")
    multiplies = placed.offloaded(there)
    assert multiplies["nn.conv2d"] + multiplies["nn.dense"] == 1
    got = placed.run(placed.load(placed.export_to(tmp_path / "dnnl.so", there)), value)[0]
    for one, other in zip(got, wanted, strict=True):
        assert 1e-4 < l2(one, other) < 0.03
    if name == "in groups":
        return  # which native's kernel does not know
    there = placed.place(module, "native_int8")
    same = placed.run(placed.load(placed.export_to(tmp_path / "native.so", there)), value)[0]
    for one, other in zip(got, same, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_what_it_leaves_to_others():
    """Depthwise convolutions, and weights that are no constants."""
    x = relay.var("x", shape=SHAPE)
    w = relay.var("w", shape=(32, 32, 3, 3))
    weight = relay.const(np.ones((32, 1, 3, 3), "float32"))
    y = relay.nn.conv2d(x, weight, channels=32, kernel_size=(3, 3), padding=(1, 1), groups=32)
    y = relay.nn.conv2d(y, w, channels=32, kernel_size=(3, 3), padding=(1, 1))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], y)))
    assert not placed.regions(placed.place(module, "dnnl_int8"))


@pytest.mark.parametrize(
    "variable", ["COLLAGE_MAX_CPU_ISA=avx2", "COLLAGE_MAX_CPU_ISA=avx512", "ONEDNN_MAX_CPU_ISA=AVX512_CORE"]
)
def test_no_candidate_where_the_instruction_is_missing(variable, command):
    probe = placed.probe_where(command, "dnnl_int8", variable)
    assert not probe["usable"] and "avx512_vnni" in probe["reason"] and probe["remedy"] == "use dnnl"
