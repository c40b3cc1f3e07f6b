# SPDX-License-Identifier: Apache-2.0
"""Strips in NHWC, as networks read from TensorFlow Lite and Keras have it: against TVM's answer, in as many groups as
the same network in NCHW, and with nothing laid out anew.
"""

import numpy as np
import pytest
from dnnl_grid import WholeGrid
from dnnl_steps import Steps
from native_placement import prefer
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("strips")


def number(value):
    return relay.const(value, "float32")


def hard_swish(x):
    """As TVM's front end for TensorFlow Lite has it."""
    return x * relay.clip(x + number(3.0), 0.0, 6.0) / number(6.0)


def hard_sigmoid(x):
    """As Keras's own MobileNetV3 has it."""
    return relay.clip(x + number(3.0), 0.0, 6.0) * number(1 / 6)


FUNCTIONS = {
    "relu": nn.relu,
    "relu6": lambda x: relay.clip(x, 0.0, 6.0),
    "leaky": lambda x: nn.leaky_relu(x, 0.2),
    "sigmoid": relay.sigmoid,
    "silu": lambda x: x * relay.sigmoid(x),
    "hard_swish": hard_swish,
    "hard_sigmoid": hard_sigmoid,
}


class Images:
    """Makes the operators of one network in one layout or the other, of the same numbers."""

    def __init__(self, grid, last):
        self.grid, self.last = grid, last
        self.layout = "NHWC" if last else "NCHW"

    def shape(self, batch, channels, height, width):
        return (batch, height, width, channels) if self.last else (batch, channels, height, width)

    def input(self, *shape, **options):
        return self.grid.input(*self.shape(*shape), **options)

    def biased(self, x, channels):
        return nn.bias_add(x, self.grid.constant(channels), axis=3 if self.last else 1)

    def pointwise(self, x, inputs, channels):
        shape, kernel = ((1, 1, inputs, channels), "HWIO") if self.last else ((channels, inputs, 1, 1), "OIHW")
        weight = self.grid.constant(*shape, low=-0.4, high=0.4)
        one = nn.conv2d(x, weight, channels=channels, kernel_size=(1, 1), data_layout=self.layout, kernel_layout=kernel)
        return self.biased(one, channels)

    def depthwise(self, x, channels, window=(3, 3), stride=1, padding=None, dilation=1):
        shape, kernel = ((*window, channels, 1), "HWOI") if self.last else ((channels, 1, *window), "OIHW")
        weight = self.grid.constant(*shape, low=-0.5, high=0.5)
        padding = padding or tuple(dilation * (k - 1) // 2 for k in window)
        one = nn.conv2d(
            x, weight, channels=channels, kernel_size=window, groups=channels, strides=(stride, stride),
            padding=padding, dilation=(dilation, dilation), data_layout=self.layout, kernel_layout=kernel,
        )  # fmt: skip
        return self.biased(one, channels)

    def pool(self, x, kind, window=(3, 3), stride=1, padding=(1, 1), **options):
        return getattr(nn, f"{kind}_pool2d")(x, window, (stride, stride), (1, 1), padding, self.layout, **options)

    def joined(self, parts):
        return relay.concatenate(parts, 3 if self.last else 1)

    def excited(self, x, channels, few, gate):
        """Squeeze-and-excitation by a mean over space, as TensorFlow Lite writes it."""
        mean = relay.mean(x, axis=(1, 2) if self.last else (2, 3), keepdims=True)
        inner = nn.relu(self.pointwise(mean, channels, few))
        return x * gate(self.pointwise(inner, few, channels))


def steps_of(partition, build, last, seed=0, **tolerances):
    """How many steps of each kind the network took that build makes of Images."""
    grid = WholeGrid(seed)
    for name, value in build(Images(grid, last)):
        grid.add(name, value, rtol=1e-4, atol=1e-4, **tolerances)
    return Steps(grid, partition)


def check(partition, build, groups, seed=0):
    last = steps_of(partition, build, True, seed)
    assert last["strips"] == groups, last
    assert last["strips"] == steps_of(partition, build, False, seed)["strips"]
    assert last["reorder"] == 0, last
    return last


@pytest.mark.parametrize("channels", [1, 16, 21, 40])
def test_separable_convolutions(partition, channels):
    def build(images):
        for batch, height, width in ((1, 6, 6), (3, 9, 7)):
            x = images.input(batch, channels, height, width)
            y = images.depthwise(x, channels) if channels > 1 else x
            y = images.pointwise(y, channels, channels)
            yield f"{batch}", nn.relu(y)
            yield f"{batch}, residual", y + x

    check(partition, build, 2)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_the_way_out(partition, name):
    def build(images):
        x = images.input(2, 20, 11, 9, low=-4, high=4)
        y = FUNCTIONS[name](images.depthwise(x, 20))
        yield name, FUNCTIONS[name](images.pointwise(y, 20, 17))

    assert set(check(partition, build, 1)) <= {"strips", "reorder"}


@pytest.mark.parametrize("stride", [2, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 3))])
def test_depthwise_of_any_window(partition, stride):
    """Windows that are written out and others, padding that TensorFlow calls SAME (behind more than in front)."""

    def build(images):
        for window in ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 3), (7, 7), (9, 9), (1, 5), (11, 1)):
            x = images.input(1, 18, 23, 25)
            total = [max(0, k - (stride if size % stride == 0 else size % stride)) for k, size in
                     zip(window, (23, 25), strict=True)]  # fmt: skip
            before = [one // 2 for one in total]
            padding = (*before, *(a - b for a, b in zip(total, before, strict=True)))
            y = images.depthwise(x, 18, window, stride, padding)
            yield f"{window}", relay.clip(images.pointwise(y, 18, 8), 0.0, 6.0)
        yield "dilated", nn.relu(images.depthwise(images.input(1, 18, 15, 14), 18, (3, 3), stride, dilation=2))

    check(partition, build, 11, stride)


def test_squeeze_and_excitation_with_strides_between(partition):
    """Inverted bottlenecks of MobileNetV3: 5x5 windows, hard-swish, factors for channels, a stride, a residual sum."""

    def bottleneck(images, x, inputs, hidden, channels, window, stride, excited):
        y = hard_swish(images.pointwise(x, inputs, hidden))
        y = hard_swish(images.depthwise(y, hidden, window, stride))
        if excited:
            y = images.excited(y, hidden, 8, hard_sigmoid)
        y = images.pointwise(y, hidden, channels)
        return y + x if stride == 1 and inputs == channels else y

    def build(images):
        x = images.input(2, 16, 14, 12)
        x = bottleneck(images, x, 16, 40, 24, (5, 5), 2, True)
        x = bottleneck(images, x, 24, 56, 24, (3, 3), 1, True)
        yield "whole", bottleneck(images, x, 24, 60, 24, (5, 5), 1, False)

    steps = check(partition, build, 8)
    assert set(steps) <= {"strips", "reduce"}, steps


def test_pools_sums_and_concatenations(partition):
    def build(images):
        x = images.input(2, 20, 10, 11)
        y = images.pointwise(nn.relu(images.depthwise(x, 20)), 20, 20)
        parts = [
            y,
            images.pool(x, "max"),
            images.pool(x, "avg", count_include_pad=True) + x,
            images.pool(x, "avg", count_include_pad=False) + y,
            x,
        ]
        joined = images.joined(parts)
        yield "joined", joined
        yield "read", images.pool(images.pointwise(joined, 100, 12), "max", (2, 2), 2, (0, 0))

    check(partition, build, 2)


def test_oneDNNs_neighbours(partition):  # noqa: N802
    """A convolution of oneDNN's in front, with what follows it on its way out, and one behind; one result is read
    inside, too."""

    def full(images, x, inputs, channels, stride):
        shape, kernel = ((3, 3, inputs, channels), "HWIO") if images.last else ((channels, inputs, 3, 3), "OIHW")
        weight = images.grid.constant(*shape, low=-0.2, high=0.2)
        one = nn.conv2d(
            x, weight, channels=channels, kernel_size=(3, 3), strides=(stride, stride), padding=(1, 1),
            data_layout=images.layout, kernel_layout=kernel,
        )  # fmt: skip
        return images.biased(one, channels)

    def build(images):
        x = hard_swish(full(images, images.input(1, 3, 17, 18), 3, 16, 2))
        y = images.pointwise(relay.clip(images.depthwise(x, 16), 0.0, 6.0), 16, 24)
        yield "inside, too", y
        y = nn.relu(full(images, y, 24, 32, 1))
        mean = relay.mean(y, axis=(1, 2) if images.last else (2, 3))
        yield "classified", nn.dense(mean, images.grid.constant(10, 32))

    for last in (False, True):
        steps = steps_of(partition, build, last)
        assert steps["strips"] == 1 and steps["conv"] == 2 and not steps["eltwise"], steps


def test_both_layouts_in_one_region(partition):
    """A transpose between a part in NHWC and one in NCHW, as exporters leave them."""
    grid = WholeGrid()
    one, other = Images(grid, True), Images(grid, False)
    x = nn.relu(one.pointwise(one.depthwise(one.input(1, 16, 9, 8), 16), 16, 16))
    turned = relay.transpose(x, (0, 3, 1, 2))
    y = nn.relu(other.pointwise(other.depthwise(turned, 16), 16, 12))
    grid.add("there", y)
    grid.add("and back", relay.transpose(y, (0, 2, 3, 1)) + number(1.0))
    steps = Steps(grid, partition)
    assert steps["strips"] == 2, steps


def test_factors_along_either_axis(partition):
    """What could be a factor for each channel in one layout or in the other, and what is none."""
    grid = WholeGrid()
    for shape in ((2, 6, 5, 7), (2, 5, 5, 5), (1, 7, 1, 7)):
        x = grid.input(*shape)
        for factor in {(1, 1, 1, shape[3]), (shape[0], 1, 1, shape[3]), (1, shape[1], 1, 1)}:
            grid.add(f"{shape} {factor}", nn.relu((x + x) * grid.input(*factor)) + x)
        grid.add(f"{shape} rows", nn.relu(x + x) * grid.input(1, 1, shape[2], 1))
    steps = Steps(grid, partition)
    assert steps["strips"] > 0


def test_what_is_not_a_number(partition):
    """As TVM has it, in pixels and channels of their own."""

    def build(images):
        x = images.input(1, 16, 6, 5, low=-4, high=4)
        values = images.grid.inputs[x]
        values.reshape(-1)[[3, 77, 200]] = (np.nan, np.inf, -np.inf)
        y = hard_swish(images.depthwise(x, 16))
        yield "hard-swish", relay.clip(y, -1.0, 2.0)
        yield "maximum", nn.relu(images.pool(x, "max") + x)

    for last in (False, True):
        assert steps_of(partition, build, last)["strips"] > 0
