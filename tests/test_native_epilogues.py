# SPDX-License-Identifier: Apache-2.0
"""Functions on the way out of the backend native's kernels: each that a kernel does, on all levels of vector
instructions, also of what is not a number; and each form in which front ends write them.
"""

import math
from pathlib import Path

import placed
import pytest
import tvm
from conftest import run_python
from dnnl_grid import Grid, WholeGrid, channel_bias, offloaded, region
from dnnl_steps import Steps
from native_placement import prefer
from tvm import relay

nn = relay.nn
pytestmark = pytest.mark.skipif("native" not in placed.usable(), reason="native cannot be used here")
# The kernels' unit tests in C++ go through all levels, too, in every run.
LEVELS = (pytest.param("plain", marks=pytest.mark.long), pytest.param("avx2", marks=pytest.mark.long), "avx512")


def number(value):
    return relay.const(value, "float32")


def relu_six(x):
    return relay.clip(x + number(3.0), 0.0, 6.0)


def gelu_tanh(x):
    inner = (x + x * x * x * number(0.044715)) * number(math.sqrt(2 / math.pi))
    return x * number(0.5) * (relay.tanh(inner) + number(1.0))


# By their part of a composite's name.
ACTIVATIONS = {
    "relu": nn.relu,
    "leaky": lambda x: nn.leaky_relu(x, 0.1),
    "clip": lambda x: relay.clip(x, -0.3, 0.4),
    "sigmoid": relay.sigmoid,
    "swish": lambda x: x * relay.sigmoid(x),
    "gelu": lambda x: x * (number(0.5) + relay.erf(x * number(0.5**0.5)) * number(0.5)),
    "gelu_tanh": gelu_tanh,
    "hardswish": lambda x: x * (relu_six(x) / number(6.0)),
    "hardsigmoid": lambda x: relu_six(x) / number(6.0),
}

# How front ends write what has more forms than one.
FORMS = {
    "hardswish": {
        "torch": ACTIVATIONS["hardswish"],
        "onnx": lambda x: x * relay.clip(x * number(1 / 6) + number(0.5), 0.0, 1.0),
        "tflite": lambda x: x * relu_six(x) / number(6.0),
        "exported": lambda x: x * relu_six(x) * number(1 / 6),
        "keras": lambda x: x * (relu_six(x) * number(0.16666667)),
        "sixth first": lambda x: x / number(6.0) * relu_six(x),
        "divided": lambda x: relay.clip(x / number(6.0) + number(0.5), 0.0, 1.0) * x,
    },
    "hardsigmoid": {
        "torch": ACTIVATIONS["hardsigmoid"],
        "exported": lambda x: relu_six(x) * number(1 / 6),
        "onnx": lambda x: relay.clip(x * number(1 / 6) + number(0.5), 0.0, 1.0),
        "onnx, its own slope": lambda x: relay.clip(x * number(0.2) + number(0.5), 0.0, 1.0),
        "keras": lambda x: relay.clip(number(0.2) * x + number(0.5), 0.0, 1.0),
        "divided": lambda x: relay.clip(number(0.5) + x / number(6.0), 0.0, 1.0),
        "falling": lambda x: relay.clip(x * number(-0.7) + number(0.1), 0.0, 1.0),
    },
    "gelu_tanh": {
        "gpt2": lambda x: x * number(0.5) * (relay.tanh((x + relay.power(x, number(3.0)) * number(0.044715)) * number(
            math.sqrt(2 / math.pi))) + number(1.0)),
        "onnx": lambda x: number(0.5) * x * (number(1.0) + relay.tanh(
            number(math.sqrt(2 / math.pi)) * x
            + number(0.044715 * math.sqrt(2 / math.pi)) * relay.power(x, number(3.0)))),
        "products": gelu_tanh,
    },
}  # fmt: skip

STEPS = {
    "winograd": "conv winograd", "product": "product", "strip": "strips",
    "channel": "norm",
}  # fmt: skip
SPECIAL = (math.nan, math.inf, -math.inf, 1e30, -1e30, 3.0, -3.0, -0.0)


def special(grid, *shape):
    """A constant in which each number of SPECIAL stands somewhere."""
    array = grid.array(shape)
    array.reshape(-1)[: len(SPECIAL)] = SPECIAL
    return relay.const(array)


def layers(grid):
    """(composite without the activation, body, arguments): the bias holds what is special."""
    image = grid.input(1, 16, 7, 9, low=-2, high=2)

    def weight(*shape):
        return grid.constant(*shape, low=-0.3, high=0.3)

    def convolution(channels, inputs, size, **attributes):
        def body(x, w, b):
            return nn.conv2d(x, w, channels=channels, kernel_size=(size, size), **attributes) + b

        return body, (image, weight(channels, inputs, size, size), special(grid, channels, 1, 1))

    return [
        ("winograd_conv2d_bias", *convolution(16, 16, 3, padding=(1, 1))),
        ("product_dense_bias", lambda x, w, b: nn.dense(x, w) + b,
         (grid.input(5, 12), weight(20, 12), special(grid, 20))),
        ("strip_conv2d_bias", *convolution(20, 16, 1)),
        ("strip_depthwise_conv2d_bias", *convolution(16, 1, 3, groups=16, padding=(1, 1))),
        ("strip_depthwise_conv2d_bias", *convolution(16, 1, 4, groups=16, padding=(1, 2), strides=(3, 1))),
        ("channel_scale", lambda x, g, b: x * g + b, (image, channel_bias(grid, 2, 16), special(grid, 16, 1, 1))),
    ]  # fmt: skip


def run_each():
    """{region: (composite, steps that it took)}; each gives TVM's answer."""
    from dnnl_steps import profiled_regions
    from test_dnnl_operators import install

    install()
    grid, regions, composites = Grid(), [], {}
    for i, (layer, body, arguments) in enumerate(layers(grid)):
        for name, function in ACTIVATIONS.items():
            if layer == "channel_scale" and name not in ("relu", "leaky", "clip", "swish", "hardswish"):
                continue

            def whole(*given, body=body, function=function):
                return function(body(*given))

            symbol = f"r{i}_{name}"
            composites[symbol] = f"{layer}_{name}"
            grid.add(f"{layer} {name}", whole(*arguments), rtol=1e-4, atol=1e-4)
            regions.append(region(symbol, f"native.{layer}_{name}", whole, *arguments))
    function = relay.Function(list(grid.inputs), relay.Tuple(regions))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    taken = {}
    run = grid.run

    def profiled(module):
        given, told = profiled_regions(lambda: run(module))
        for symbol, steps in told.items():
            name = next(name for name in composites if symbol.endswith(name))
            taken[name] = composites[name], [step["what"] for step in steps if not step.get("reorder")]
        return given

    grid.run = profiled
    grid.check(lambda _: module)
    return taken


EACH = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native_epilogues
print(json.dumps(test_native_epilogues.run_each()))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_each_on_the_way_out(collage_library, level):
    """Nothing is left behind the kernel, and what is not a number becomes what TVM makes of it."""
    taken = run_python(EACH, Path(__file__).parent, COLLAGE_MAX_CPU_ISA=level, timeout=600)
    assert len(taken) == 5 * len(ACTIVATIONS) + 5
    for composite, steps in taken.values():
        assert len(steps) == 1 and steps[0].startswith(STEPS[composite.split("_")[0]]), f"{composite}: {steps}"


def add_layers(grid, function, name):
    """A dense layer, a convolution and a depthwise one under a function."""
    x, rows = grid.input(1, 16, 8, 8, low=-6, high=6), grid.input(3, 24, low=-4, high=4)
    weight = grid.constant(20, 24, low=-0.7, high=0.7)
    grid.add(f"{name}, dense", function(nn.dense(rows, weight) + grid.constant(20)))
    deep = grid.constant(16, 1, 3, 3, low=-0.7, high=0.7)
    deep = nn.conv2d(x, deep, channels=16, kernel_size=(3, 3), groups=16, padding=(1, 1))
    point = grid.constant(12, 16, 1, 1, low=-0.5, high=0.5)
    y = function(deep + channel_bias(grid, 2, 16))
    grid.add(f"{name}, images", function(nn.conv2d(y, point, channels=12, kernel_size=(1, 1))))


@pytest.mark.parametrize("function", FORMS)
def test_each_form_is_known(collage_library, function):
    """Each is taken with its layer: a product and a group of strips a form are all that is run."""
    grid = WholeGrid()
    for name, form in FORMS[function].items():
        add_layers(grid, form, name)
    partition = prefer("product", "strips")
    steps = Steps(grid, partition)
    forms = len(FORMS[function])
    assert steps["product"] == forms and steps["strips"] == forms, steps
    assert set(steps) <= {"product", "strips", "reorder"}, steps


@pytest.mark.parametrize("function", FORMS)
def test_each_form_by_itself(collage_library, function):
    """Behind a reshape, and behind nothing: one composite each, of dnnl; with strips of native's where it has them."""
    grid = Grid()
    for name, form in FORMS[function].items():
        grid.add(name, form(grid.input(2, 8, 3, 5, low=-8, high=8)), f"dnnl.{function}", atol=1e-6)
    grid.check(prefer())
    if function != "gelu_tanh":
        grid.taken = [f"native.strip_{function}"] * len(FORMS[function])
        module = grid.check(prefer("strips"))
        assert all(name.startswith("native.strip") for name in offloaded(module))


def test_what_is_almost_one(collage_library):
    """Other bounds and divisors, and numbers that are no single ones: TVM's answer, and no such composite."""
    grid = WholeGrid()
    x = grid.input(1, 16, 6, 6, low=-8, high=8)
    weight = grid.constant(16, 16, 1, 1)
    y = nn.conv2d(x, weight, channels=16, kernel_size=(1, 1))
    for name, value in {
        "a fifth": y * (relu_six(y) / number(5.0)),
        "five": y * (relay.clip(y + number(3.0), 0.0, 5.0) / number(6.0)),
        "from -1": relay.clip(y * number(0.2) + number(0.5), -1.0, 1.0),
        "by channel": relay.clip(y * channel_bias(grid, 2, 16) + number(0.5), 0.0, 1.0),
        "of another": x * (relu_six(y) / number(6.0)),
        "another slope": y * relay.clip(y * number(0.2) + number(0.5), 0.0, 1.0),
    }.items():
        grid.add(name, value)
    names = []
    run = grid.run

    def seen(module):
        names.extend(offloaded(module))
        return run(module)

    grid.run = seen
    grid.check(prefer("strips", "product"))
    # The last two are products of something else and a hard sigmoid.
    hard = [name for name in names if "hard" in name]
    assert len(hard) == 2 and all(name.endswith("_hardsigmoid") for name in hard), hard
