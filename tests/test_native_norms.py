# SPDX-License-Identifier: Apache-2.0
"""The kernel of normalisations: as operators and as front ends write them, over rows and over groups of channels, with
what is added before and done behind in one step.
"""

from pathlib import Path

import placed
import pytest
import tvm
from conftest import run_python
from dnnl_grid import Grid, WholeGrid, channel_bias
from dnnl_steps import Steps, load_runtime
from native_placement import prefer
from test_native import group_norm, group_norm_nhwc, instance_norm, instance_norm_nhwc, layer_norm, rms_norm, swish
from tvm import relay

nn = relay.nn
pytestmark = pytest.mark.skipif("native" not in placed.usable(), reason="native cannot be used here")

place = prefer("norm")


def test_standardising(collage_library):
    """The normalisation of the paper's BERT: epsilon is added to the deviation."""
    grid = Grid()
    for shape in ((4, 8), (2, 3, 17), (1, 64, 256), (2, 2, 2, 2, 4)):
        for unbiased in (False, True):
            x = grid.input(*shape)
            deviation = relay.sqrt(relay.variance(x, axis=-1, keepdims=True, unbiased=unbiased))
            centred = grid.constant(shape[-1]) * (x - relay.mean(x, axis=-1, keepdims=True))
            one = centred / (deviation + relay.const(1e-6)) + grid.constant(shape[-1])
            grid.add(f"standardise {shape} {unbiased}", one, "native.standardise")
    grid.check(place)


def test_operators(collage_library):
    """nn.layer_norm, group_norm and instance_norm, as SimplifyInference takes them apart."""
    grid = Grid()

    def scales(channels):
        return grid.constant(channels), grid.constant(channels)

    for shape in ((4, 8), (1, 1), (2, 3, 17), (7, 768), (2, 2, 2, 2, 4)):
        layer = nn.layer_norm(grid.input(*shape), *scales(shape[-1]))
        grid.add(f"layer {shape}", layer, "native.layer_norm")
    x = grid.input(5, 40)
    grid.add("without shift", nn.layer_norm(x, *scales(40), center=False), "native.layer_norm")
    grid.add("without scale", nn.layer_norm(x, *scales(40), scale=False), "native.layer_norm")
    grid.add("bare", nn.layer_norm(x, *scales(40), center=False, scale=False), "native.layer_norm")
    for shape, groups in (
        ((1, 8, 7, 7), 2),
        ((2, 6, 5, 4), 6),
        ((2, 4, 3, 4, 5), 1),
        ((3, 32, 10), 8),
        ((1, 32, 64, 64), 1),
    ):
        group = nn.group_norm(grid.input(*shape), *scales(shape[1]), num_groups=groups)
        grid.add(f"group {shape} {groups}", group, "native.group_norm")
        instance = nn.instance_norm(grid.input(*shape), *scales(shape[1]))
        grid.add(f"instance {shape}", instance, "native.instance_norm")
    grid.add("group bare", nn.group_norm(grid.input(1, 8, 3, 3), *scales(8), num_groups=2, center=False, scale=False),
             "native.group_norm")  # fmt: skip
    batch = nn.batch_norm(nn.relu(grid.input(2, 6, 5, 4)), *scales(6), grid.constant(6), grid.constant(6, low=0.5))[0]
    grid.add("batch", nn.relu(batch), "nn.relu", "native.channel_scale_relu")
    grid.check(place)


def test_images_with_channels_last(collage_library):
    """Channels innermost: pixels of an image, groups of any size, in any number of dimensions."""
    grid = Grid()
    for shape, groups in (
        ((1, 7, 7, 8), 2),
        ((2, 5, 4, 6), 6),
        ((2, 3, 4, 5, 4), 1),
        ((3, 10, 32), 8),
        ((1, 64, 64, 36), 3),
        ((2, 1, 1, 24), 4),
    ):
        channels = shape[-1]
        scales = grid.constant(channels), grid.constant(channels)
        group = group_norm_nhwc(grid.input(*shape), *scales, groups=groups)
        grid.add(f"group {shape} {groups}", group, "native.group_norm")
        instance = nn.instance_norm(grid.input(*shape), *scales, axis=len(shape) - 1)
        grid.add(f"instance {shape}", instance, "native.instance_norm")
    x, gain, shift = grid.input(2, 6, 5, 8), grid.constant(8), grid.constant(8)
    without = nn.instance_norm(x, gain, shift, axis=3, center=False, scale=False)
    grid.add("bare instance", without, "native.instance_norm")
    grid.add("without shift", nn.instance_norm(x, gain, shift, axis=3, center=False), "native.instance_norm")
    flat = relay.reshape(group_norm_nhwc(relay.reshape(x, (2, 30, 8)), gain, shift, groups=2), (2, 6, 5, 8))
    grid.add("flattened", flat, "reshape", "native.group_norm", "reshape")
    silu = swish(group_norm_nhwc(grid.input(2, 6, 5, 8), gain, shift))
    grid.add("silu", silu, "native.group_norm_swish")
    grid.check(place)


def test_channels_last_in_steps(collage_library):
    """One step, with what follows; nothing is laid out anew, whether channels are last or were put there by us."""
    grid = WholeGrid()
    gain, shift = grid.constant(16), grid.constant(16)
    normal = group_norm_nhwc(grid.input(3, 9, 7, 16), gain, shift)
    grid.add("sum", nn.relu(normal + grid.input(3, 9, 7, 16)))
    grid.add("leaky", nn.leaky_relu(instance_norm_nhwc(grid.input(3, 9, 7, 16), gain, shift), 0.1))
    assert Steps(grid, place) == {"norm": 2}
    # Winograd makes pixels and reads them: the normalisation between has no need of planes.
    grid = WholeGrid()

    def convolve(y):
        weight = grid.constant(16, 16, 3, 3, low=-0.3, high=0.3)
        return nn.conv2d(y, weight, kernel_size=(3, 3), padding=(1, 1), channels=16)

    scales = channel_bias(grid, 2, 16), channel_bias(grid, 2, 16)
    y = convolve(swish(group_norm(convolve(grid.input(1, 16, 16, 16)), *scales)))
    grid.add("between convolutions", y, rtol=1e-3, atol=1e-4)
    steps = Steps(grid, prefer("winograd", "norm"))
    assert steps == {"conv": 2, "norm": 1, "reorder": 2}, steps


def test_channels_last_among_strips(collage_library):
    """What goes strip by strip around it is turned to NCHW, with pixels where they lay: nothing is moved."""
    grid = WholeGrid()
    gain, shift = grid.constant(16), grid.constant(16)

    def depthwise(y):
        weight = grid.constant(3, 3, 16, 1, low=-0.3, high=0.3)
        return nn.conv2d(
            y,
            weight,
            kernel_size=(3, 3),
            padding=(1, 1),
            groups=16,
            channels=16,
            data_layout="NHWC",
            kernel_layout="HWOI",
        )

    y = depthwise(nn.relu(group_norm_nhwc(depthwise(grid.input(1, 12, 10, 16)), gain, shift)))
    grid.add("between", y, rtol=1e-3, atol=1e-4)
    steps = Steps(grid, prefer("norm", "strips"))
    assert steps["norm"] == 1 and "reorder" not in steps, steps


def test_as_front_ends_write_them(collage_library):
    grid = Grid()
    gain, shift = grid.constant(40), grid.constant(40)

    def mean(x, axis=-1):
        return relay.mean(x, axis=[axis], keepdims=True)

    def row():
        return grid.input(2, 3, 40)

    def square(x):
        return mean(relay.power(x, relay.const(2.0))) + relay.const(1e-5)

    x = row()
    centred = x - mean(x, 2)
    grid.add("torch", shift + gain * (centred / relay.sqrt(square(centred))), "native.layer_norm")
    x = row()
    centre = mean(x)
    inverse = relay.const(1.0) / relay.sqrt(relay.variance(x, [-1], True, with_mean=centre) + relay.const(1e-5))
    grid.add("onnx", (x - centre) * inverse * gain + shift, "native.layer_norm")
    for axes, shape in (((1, 2), (3, 40)), ((0, 1, 2), (2, 3, 40))):
        normal = layer_norm(row(), grid.constant(*shape), grid.constant(*shape), axes=axes)
        grid.add(f"over {axes}", normal, "native.layer_norm")
    grid.add("rms", rms_norm(row(), gain), "native.rms_norm")
    x = row()
    grid.add("rms divided", x / relay.sqrt(square(x)) * gain, "native.rms_norm")
    x = row()
    grid.add("rms bare", x * relay.rsqrt(square(x)), "native.rms_norm")
    grid.check(place)


def test_behind(collage_library):
    """Activations and sums behind a normalisation are done on the way out, whichever candidates they are of."""
    grid = WholeGrid()
    x = grid.input(1, 8, 6, 5)
    scales = channel_bias(grid, 2, 8), channel_bias(grid, 2, 8)
    grid.add("silu", swish(group_norm(x, *scales)))
    grid.add("leaky", nn.leaky_relu(instance_norm(x, *scales), 0.1))
    grid.add("relu6", relay.clip(x * scales[0] + scales[1], 0.0, 6.0))
    row = grid.input(7, 40)
    normal = layer_norm(row, grid.constant(40), grid.constant(40))
    grid.add("sum", nn.relu(normal + grid.input(7, 40)))
    assert Steps(grid, place) == {"norm": 4}


def test_before(collage_library):
    """What is added to rows is added by the normalisation, and the sum is stored where it is read later."""
    grid = WholeGrid()
    gain, shift, bias = (grid.constant(40) for _ in range(3))

    def rows():
        return grid.input(2, 9, 40)

    grid.add("residual", layer_norm(rows() + rows(), gain, shift))
    grid.add("bias and residual", layer_norm(rows() + bias + rows(), gain, shift))
    grid.add("four", rms_norm(bias + (rows() + (rows() + rows())), gain))
    kept = rows() + rows()
    grid.add("kept", rms_norm(kept, gain) * kept)
    steps = Steps(grid, place)
    assert steps == {"norm": 4, "binary": 1}, steps


def test_before_images(collage_library):
    """The same of images in both orders: tensors, and a number for each channel of each image, or of all."""
    grid = WholeGrid()
    scales = channel_bias(grid, 2, 8), channel_bias(grid, 2, 8)
    last = grid.constant(8), grid.constant(8)

    def planes():
        return grid.input(2, 8, 6, 5)

    def pixels():
        return grid.input(2, 6, 5, 8)

    grid.add("residual", group_norm(planes() + planes(), *scales))
    grid.add("time", swish(group_norm(planes() + grid.input(2, 8, 1, 1), *scales)))
    grid.add("all images", instance_norm(grid.input(8, 1, 1) + planes(), *scales))
    grid.add("both", nn.relu((planes() + grid.input(2, 8, 1, 1) + planes()) * scales[0] + scales[1]))
    kept = planes() + planes()
    grid.add("kept", instance_norm(kept, *scales) * relay.tanh(kept))
    grid.add("scale kept", relay.tanh(kept) * nn.relu(kept * scales[0] + scales[1]))
    grid.add("residual, last", group_norm_nhwc(pixels() + pixels(), *last))
    grid.add("time, last", swish(group_norm_nhwc(pixels() + grid.input(2, 1, 1, 8), *last)))
    grid.add("all images, last", instance_norm_nhwc(pixels() + grid.input(8), *last))
    kept = pixels() + grid.input(2, 1, 1, 8)
    grid.add("kept, last", instance_norm_nhwc(kept, *last) * relay.tanh(kept))
    steps = Steps(grid, place)
    assert steps == {"norm": 10, "eltwise": 2, "binary": 3}, steps


def test_before_images_between_convolutions(collage_library):
    """Time behind a convolution of ours is added by the normalisation, to pixels; what oneDNN has in blocks of channels
    is added there.
    """
    grid = WholeGrid()

    def convolve(y, **how):
        weight = grid.constant(16, 16, 3, 3, low=-0.3, high=0.3)
        y = nn.conv2d(y, weight, kernel_size=(3, 3), padding=(1, 1), channels=16, **how)
        return y + channel_bias(grid, 2, 16)

    for images in (1, 2):
        scales = channel_bias(grid, 2, 16), channel_bias(grid, 2, 16)
        time = grid.input(images, 16, 1, 1)
        y = convolve(swish(group_norm(convolve(grid.input(images, 16, 16, 16)) + time, *scales)))
        grid.add(f"{images} images", y, rtol=1e-3, atol=1e-4)
    steps = Steps(grid, prefer("winograd", "norm"))
    assert steps == {"conv": 4, "norm": 2, "reorder": 4}, steps


def sums_in_blocks():
    """Of what several read, so that no convolution makes them."""
    grid = WholeGrid()
    scales = channel_bias(grid, 2, 16), channel_bias(grid, 2, 16)

    def convolve(y):
        weight = grid.constant(16, 16, 3, 3, low=-0.3, high=0.3)
        return nn.conv2d(y, weight, kernel_size=(3, 3), padding=(1, 1), channels=16)

    first, second = (convolve(grid.input(2, 16, 12, 12)) for _ in range(2))
    kept = first + second
    grid.add("kept", group_norm(kept, *scales), rtol=1e-3, atol=1e-4)
    grid.add("behind", convolve(kept), rtol=1e-3, atol=1e-4)
    grid.add("time", group_norm(first + grid.input(2, 16, 1, 1), *scales), rtol=1e-3, atol=1e-4)
    grid.add("scale", (second + first) * scales[0] + scales[1], rtol=1e-3, atol=1e-4)
    grid.add("read", relay.tanh(first) * relay.tanh(second), rtol=1e-3, atol=1e-4)
    return Steps(grid, place)


IN_BLOCKS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native_norms
print(json.dumps(test_native_norms.sums_in_blocks()))
"""


def test_before_images_in_blocks(collage_library):
    """What oneDNN's kernels for older processors have in blocks of channels is added there, and laid out anew after."""
    steps = run_python(IN_BLOCKS, Path(__file__).parent, COLLAGE_MAX_CPU_ISA="avx2", ONEDNN_MAX_CPU_ISA="AVX2")
    assert steps == {"reorder": 7, "conv": 3, "binary": 3, "broadcast": 1, "norm": 3, "eltwise": 2}, steps


def test_the_sum_is_a_result_and_read_before(collage_library):
    grid = WholeGrid()
    gain, shift = grid.constant(40), grid.constant(40)
    a, b = grid.input(2, 9, 40), grid.input(2, 9, 40)
    total = a + b
    first = relay.tanh(total)
    grid.add("total", total)
    grid.add("first", first)
    grid.add("normal", layer_norm(total, gain, shift) * relay.sigmoid(first))
    steps = Steps(grid, place)
    assert steps["norm"] == 1 and sum(steps.values()) == 4, steps


def test_products_take_sums_first(collage_library):
    """Bias and residual value are added by the dense layer, which does it on its way out."""
    grid = WholeGrid()
    x = grid.input(9, 40)
    dense = nn.dense(x, grid.constant(40, 40, low=-0.3, high=0.3)) + grid.constant(40)
    grid.add("bert", layer_norm(dense + x, grid.constant(40), grid.constant(40)))
    assert Steps(grid, prefer("product", "norm")) == {"product": 1, "norm": 1}


def test_channels_last(collage_library):
    """A scale by channel stays in the layout of the convolutions around it."""
    grid = WholeGrid()
    x = grid.input(1, 16, 9, 11)

    def convolve(y):
        return nn.conv2d(
            y, grid.constant(16, 16, 3, 3, low=-0.3, high=0.3), kernel_size=(3, 3), padding=(1, 1), channels=16
        )

    y = nn.relu(nn.relu(convolve(x)) * channel_bias(grid, 2, 16) + channel_bias(grid, 2, 16))
    grid.add("pre-activation", convolve(y), rtol=1e-3, atol=1e-4)
    steps = Steps(grid, prefer("winograd", "norm"))
    assert steps == {"conv": 2, "norm": 1, "reorder": 2}, steps


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_few_long_rows(collage_library, threads):
    """One row is divided among threads, in two steps."""
    grid = WholeGrid()
    shape = (1, 50000)
    grid.add("row", layer_norm(grid.input(*shape), grid.constant(50000), grid.constant(50000)), rtol=1e-3, atol=1e-4)
    image = grid.input(1, 3, 150, 151)
    scales = channel_bias(grid, 2, 3), channel_bias(grid, 2, 3)
    grid.add("image", group_norm(image, *scales, groups=1), rtol=1e-3, atol=1e-4)
    load_runtime(place)
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    set_threads(threads)
    try:
        assert Steps(grid, place) == {"norm": 2 if threads == 1 else 4}
    finally:
        set_threads(0)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_one_large_image_of_pixels(collage_library, threads):
    """The pixels of one image are divided among threads, in two steps."""
    grid = WholeGrid()
    scales = grid.constant(9), grid.constant(9)
    grid.add("image", group_norm_nhwc(grid.input(1, 83, 79, 9), *scales, groups=3), rtol=1e-3, atol=1e-4)
    load_runtime(place)
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    set_threads(threads)
    try:
        assert Steps(grid, place) == {"norm": 1 if threads == 1 else 2}
    finally:
        set_threads(0)
