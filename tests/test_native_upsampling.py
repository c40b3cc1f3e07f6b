# SPDX-License-Identifier: Apache-2.0
"""Kernels of the backend native: convolutions of upsampled tensors, convolutions with few output channels, dense
layers of one row. All against TVM's answer."""

import json
from collections import Counter

import numpy as np
import placed
import pytest
import tvm
from dnnl_grid import Grid, WholeGrid, channel_bias, offloaded
from native_placement import prefer
from test_dnnl_operators import ACTIVATIONS, install
from tvm import relay

nn = relay.nn
UPSAMPLED = "native.upsampled_conv2d"
NARROW = "native.narrow_conv2d"
ROW = "native.product_dense"


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("upsampled", "narrow", "product")


@pytest.fixture
def grid():
    return Grid()


def enlarge(value, scale, layout="NCHW"):
    return nn.upsampling(value, scale[0], scale[1], layout=layout, method="nearest_neighbor")


def convolve(grid, value, inputs, channels, kernel, weight=None, **attributes):
    """A convolution with weights small enough that sums stay near one."""
    bound = 2 / (inputs * kernel[0] * kernel[1]) ** 0.5
    if weight is None:
        weight = grid.constant(channels, inputs, *kernel, low=-bound, high=bound)
    return nn.conv2d(value, weight, channels=channels, kernel_size=kernel, **attributes)


SCALES = [(2, 2), *(pytest.param(each, marks=pytest.mark.long) for each in ((4, 2), (3, 3), (2, 1), (1, 3)))]


@pytest.mark.parametrize("scale", SCALES)
def test_scales_kernels_and_paddings(grid, partition, scale):
    kernels = ((1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (3, 7))
    for i, kernel in enumerate(kernels):
        (kh, kw), odd = kernel, i % 2
        paddings = (
            (kh // 2, kw // 2, kh // 2, kw // 2),
            (0, 0, 0, 0),
            (kh - 1, 0, odd, kw - 1),
            (odd, kw, kh, 1),
        )
        for k, padding in enumerate(paddings):
            batch, inputs, channels = ((1, 3, 5), (2, 19, 35), (1, 32, 16))[(i + k) % 3]
            height, width = ((7, 9), (5, 17))[(i + k) % 2]
            x = grid.input(batch, inputs, height, width)
            one = convolve(grid, enlarge(x, scale), inputs, channels, kernel, padding=padding)
            grid.add(f"{scale} {kernel} {padding} {inputs} to {channels}", one, UPSAMPLED)
    grid.check(partition)


def test_sizes(grid, partition):
    """One pixel, rows of all lengths of tiles, many channels, several images."""
    for width in (1, 2, 3, 5, 8, 13, 14, 15, 27, 29, 40, 100):
        x = grid.input(1, 16, 3, width)
        one = convolve(grid, enlarge(x, (2, 2)), 16, 24, (3, 3), padding=(1, 1))
        grid.add(f"width {width}", one, UPSAMPLED)
    for batch, inputs, channels, size in ((1, 512, 256, 4), (3, 64, 80, 6), (2, 1, 1, 5), (1, 300, 7, 33)):
        x = grid.input(batch, inputs, size, size)
        one = convolve(grid, enlarge(x, (2, 2)), inputs, channels, (3, 3), padding=(1, 1))
        grid.add(f"{batch} {inputs} {channels} {size}", one, UPSAMPLED)
    grid.check(partition)


def test_epilogues(grid, partition):
    def make(channels=20):
        x = grid.input(1, 12, 5, 6)
        one = convolve(grid, enlarge(x, (2, 2)), 12, channels, (3, 3), padding=(1, 1))
        return one, channel_bias(grid, 2, channels)

    for name, activate in ACTIVATIONS.items():
        one, bias = make()
        grid.add(f"bias {name}", activate(one + bias), f"{UPSAMPLED}_bias_{name}")
        one, _ = make()
        grid.add(name, activate(one), f"{UPSAMPLED}_{name}")
    one, _ = make()
    grid.add("clip without zero", relay.clip(one, 0.25, 0.75), f"{UPSAMPLED}_clip")
    for name in ("relu", "clip"):
        one, bias = make()
        summed = one + bias + grid.input(1, 20, 10, 12)
        grid.add(f"bias sum {name}", ACTIVATIONS[name](summed), f"{UPSAMPLED}_bias_sum_{name}")
    one, bias = make()
    grid.add("bias", bias + one, f"{UPSAMPLED}_bias")
    one, _ = make()
    grid.add("sum", one + grid.input(1, 20, 10, 12), f"{UPSAMPLED}_sum")
    one, _ = make()
    grid.add("bias_add", nn.relu(nn.bias_add(one, grid.constant(20))), f"{UPSAMPLED}_bias_relu")
    # What fusion hangs on behind the candidate.
    one, bias = make()
    more = relay.tanh(nn.relu(one + bias) * grid.input(1, 20, 10, 12))
    grid.add("and more", more, f"{UPSAMPLED}_bias_relu", "multiply", "tanh")
    grid.check(partition)


def test_weights_that_are_not_constants(grid, partition):
    x = grid.input(2, 6, 5, 5)
    one = convolve(grid, enlarge(x, (2, 2)), 6, 8, (3, 3), grid.input(8, 6, 3, 3), padding=(1, 1))
    grid.add("an input", nn.relu(one + grid.input(8, 1, 1)), f"{UPSAMPLED}_bias_relu")
    one = convolve(grid, enlarge(x, (3, 2)), 6, 8, (3, 3), relay.tanh(grid.input(8, 6, 3, 3)), padding=(1, 1))
    grid.add("computed", one, UPSAMPLED, "tanh")
    one = convolve(grid, enlarge(x, (2, 2)), 6, 32, (3, 3), padding=(1, 1))
    later = relay.tanh(one + grid.input(1, 32, 10, 10))
    few = convolve(grid, one, 32, 3, (3, 3), relay.reshape(nn.relu(grid.input(3, 288)), (3, 32, 3, 3)))
    grid.add("read by one whose weights come later", few, UPSAMPLED, "nn.conv2d", "nn.relu", "reshape")
    grid.add("and by another reader", later, "add", "tanh")
    weight = grid.constant(6, 6, 3, 3)
    one = convolve(grid, enlarge(x, (2, 2)), 6, 6, (3, 3), weight, padding=(1, 1))
    two = convolve(grid, one, 6, 6, (3, 3), weight, padding=(1, 1))
    grid.add("shared with another convolution", two, UPSAMPLED, NARROW)
    grid.check(partition)


def test_channels_last(grid, partition):
    for inputs, channels in ((16, 32), (12, 8), (32, 5)):
        x = grid.input(2, 5, 6, inputs)
        weight = grid.constant(3, 3, inputs, channels, low=-0.2, high=0.2)
        one = nn.conv2d(
            enlarge(x, (2, 2), "NHWC"), weight, channels=channels, kernel_size=(3, 3), padding=(1, 0, 1, 2),
            data_layout="NHWC", kernel_layout="HWIO",
        )  # fmt: skip
        grid.add(f"{inputs} to {channels}", nn.relu(one + grid.constant(channels)), f"{UPSAMPLED}_bias_relu")
    grid.check(partition)


def test_as_importers_write_it(grid, partition):
    """ONNX's Resize: nearest pixels, counted from corners and rounded down, or from centres and rounded."""
    corners, centres = ("asymmetric", "floor"), ("half_pixel", "round_prefer_ceil")
    for mode, rounding in (corners, centres, ("half_pixel", "round")):
        x = grid.input(1, 8, 6, 5)
        up = relay.image.resize2d(
            x, (12, 15), layout="NCHW", method="nearest_neighbor", coordinate_transformation_mode=mode,
            rounding_method=rounding,
        )  # fmt: skip
        grid.add(f"{mode} {rounding}", convolve(grid, up, 8, 16, (3, 3), padding=(1, 1)), UPSAMPLED)
    grid.check(partition)


def test_refused(grid, partition):
    """What the kernel does not do stays two operators; what oneDNN does otherwise than TVM stays with TVM."""

    def case(name, scale=(2, 2), takes=("nn.upsampling", "nn.conv2d"), up=None, **attributes):
        x = grid.input(1, 8, 6, 6)
        weight = grid.constant(8, 8 // attributes.get("groups", 1), 3, 3, low=-0.2, high=0.2)
        up = enlarge(x, scale) if up is None else up(x)
        one = nn.conv2d(up, weight, channels=8, kernel_size=(3, 3), **attributes)
        grid.add(name, one, *takes)

    case("strides", strides=(2, 2))
    case("dilation", dilation=(2, 1))
    case("groups", groups=2)
    case("not enlarged", scale=(1, 1))
    case("too large a factor", scale=(17, 1))
    resize = relay.image.resize2d
    half = {"method": "linear", "coordinate_transformation_mode": "half_pixel"}
    case("linear", takes=("image.resize2d", "nn.conv2d"), up=lambda x: resize(x, (12, 12), **half))
    broken = {"method": "nearest_neighbor"}
    case("broken factor", takes=("nn.conv2d",), up=lambda x: resize(x, (9, 12), **broken))
    case("bilinear", takes=("nn.conv2d",), up=lambda x: nn.upsampling(x, 2, 2, method="bilinear"))
    shared = enlarge(grid.input(1, 8, 6, 6), (2, 2))
    one = convolve(grid, shared, 8, 8, (3, 3), padding=(1, 1))
    grid.add("needed elsewhere", one + shared, "dnnl.conv2d_sum", "nn.upsampling")
    grid.check(partition)


def few_channels(grid, x, inputs, channels, kernel=(3, 3), **attributes):
    one = convolve(grid, x, inputs, channels, kernel, **attributes)
    return one + channel_bias(grid, 2, channels)


def test_few_output_channels(grid, partition):
    for i, channels in enumerate((1, 2, 3, 4, 5, 6)):
        inputs = (16, 40, 64, 17, 160)[i % 5]
        for kernel, strides, dilation, padding in (
            ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
            ((5, 2), (2, 1), (1, 1), (0, 1, 2, 1)),
            ((3, 3), (1, 2), (2, 3), (2, 3, 2, 3)),
            ((1, 1), (1, 1), (1, 1), (0, 0, 0, 0)),
            ((7, 7), (1, 1), (1, 1), (6, 6, 6, 6)),
        ):
            x = grid.input(1 + i % 2, inputs, 9, 30)
            one = few_channels(grid, x, inputs, channels, kernel, strides=strides, dilation=dilation, padding=padding)
            grid.add(f"{inputs} to {channels} {kernel} {strides}", relay.tanh(one), f"{NARROW}_bias_tanh")
    weight = grid.constant(64, 8, 3, low=-0.2, high=0.2)
    one = nn.conv1d(grid.input(2, 16, 19), weight, channels=64, kernel_size=(3,), groups=2, padding=(1,))
    grid.add("groups of one dimension", one, "nn.conv1d")
    weight = grid.constant(3, 3, 32, 3, low=-0.2, high=0.2)
    one = nn.conv2d(
        grid.input(2, 9, 11, 32), weight, channels=3, kernel_size=(3, 3), padding=(1, 1), data_layout="NHWC",
        kernel_layout="HWIO",
    )  # fmt: skip
    grid.add("channels last", one, NARROW)
    residual = grid.input(1, 3, 8, 8)
    one = few_channels(grid, grid.input(1, 32, 8, 8), 32, 3, padding=(1, 1)) + residual
    grid.add("a residual value", nn.relu(one), f"{NARROW}_bias_sum_relu")
    x = grid.input(1, 32, 8, 8)
    one = convolve(grid, x, 32, 3, (3, 3), grid.input(3, 32, 3, 3), padding=(1, 1))
    grid.add("weights that are not constant", one, "nn.conv2d")
    grid.check(partition)


def test_dense_layers_of_one_row(grid, partition):
    for n, k in ((2, 1), (17, 100), (16, 16), (1000, 65), (33, 1023), (4096, 31)):
        x, bound = grid.input(1, k), k**-0.5
        weight = grid.constant(n, k, low=-bound, high=bound)
        grid.add(f"{n} {k}", nn.dense(x, weight, units=n), ROW)
        one = nn.dense(x, weight, units=n) + grid.constant(n)
        grid.add(f"bias {n} {k}", relay.sigmoid(one), f"{ROW}_bias_sigmoid")
    grid.check(partition)


def generator(grid, channels):
    """What makes a picture of a vector, small, and what judges the picture."""
    x = grid.input(1, 10)
    x = nn.dense(x, grid.constant(channels * 16, 10), units=channels * 16) + grid.constant(channels * 16)
    x = relay.reshape(x, (1, channels, 4, 4))
    for _ in range(2):
        one = convolve(grid, enlarge(x, (2, 2)), channels, channels, (3, 3), padding=(1, 1))
        x = nn.relu(one + channel_bias(grid, 2, channels))
    picture = relay.tanh(few_channels(grid, x, channels, 3, padding=(1, 1)))
    y = nn.relu(few_channels(grid, picture, 3, 16, strides=(2, 2), padding=(1, 1)))
    y = nn.relu(few_channels(grid, y, 16, 32, strides=(2, 2), padding=(1, 1)))
    score = nn.dense(nn.batch_flatten(y), grid.constant(1, 512, low=-0.1, high=0.1), units=1)
    return [x, picture, relay.sigmoid(score)]


@pytest.mark.parametrize("channels", [16, 24])
def test_a_generator_is_one_region(partition, channels):
    grid = WholeGrid()
    for i, result in enumerate(generator(grid, channels)):
        grid.add(f"result {i}", result)

    def place(module):
        placed = partition(module)
        assert len([f for f in placed.functions.values() if f.attrs and "Compiler" in f.attrs]) == 1
        assert offloaded(placed).count(f"{UPSAMPLED}_bias_relu") == 2
        return placed

    grid.check(place)


def test_another_number_of_threads(grid, partition):
    """Scratch memory is there for each thread that may come."""
    from collage import export
    from tvm.contrib import graph_executor

    for i, result in enumerate(generator(grid, 32)):
        grid.add(f"result {i}", result)
    module = grid.module()
    built = export.build(partition(module), opt_level=2)
    want = grid.expected(module)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    try:
        for threads in (1, 5, 2):
            set_threads(threads)
            for variable, value in grid.inputs.items():
                executor.set_input(variable.name_hint, value)
            for _ in range(5):
                executor.run()
                for i, other in enumerate(want):
                    np.testing.assert_allclose(executor.get_output(i).numpy(), other, rtol=1e-4, atol=1e-5)
    finally:
        set_threads(0)


def test_what_becomes_of_it(collage_library):
    """The upsampled tensor is never made, and lies as its reader wants it: no reorder between the two."""
    install()
    tensor = ["f32", [1, 64, 32, 32]]
    conv = {
        "algorithm": "direct",
        "strides": [1, 1],
        "dilation": [1, 1],
        "padding": [1, 1, 1, 1],
        "post": [{"op": "relu"}],
    }
    weight = {"dims": [64, 64, 3, 3], "strides": [576, 9, 3, 1]}
    few = {"dims": [3, 64, 3, 3], "strides": [576, 9, 3, 1]}
    program = {
        "format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1, 2], "outputs": [5],
        "values": [["f32", [1, 64, 16, 16]], ["f32", [64, 64, 3, 3]], ["f32", [3, 64, 3, 3]], tensor, tensor,
                   ["f32", [1, 3, 32, 32]]],
        "ops": [
            {"op": "upsampled_conv", "scale": [2, 2], "in": [0, 1], "out": 3, "weight": weight, **conv,
             "kernel": "upsampled"},
            {"op": "conv", "in": [3, 1], "out": 4, "weight": weight, **conv},
            {"op": "conv", "kernel": "narrow", "in": [4, 2], "out": 5, "weight": few, **conv},
        ],
    }  # fmt: skip
    arrays = [tvm.nd.array(np.ones(shape, "float32")) for shape in ((64, 64, 3, 3), (3, 64, 3, 3))]
    text = str(tvm.get_global_func("collage.runtime.DNNLDescribe")(json.dumps(program), arrays))
    steps = [line.split()[0] for line in text.splitlines()]
    # The last of the convolutions may find what it reads in a layout that it cannot read, on some processors; and
    # where oneDNN keeps eight channels together, not sixteen, its convolution wants what it reads in that layout.
    assert steps[:2] == ["reorder", "upsampled_conv"]
    assert not placed.has("avx512f") or steps[2] == "conv"
    made = ["conv", "narrow_conv", "eltwise", "workspace"]
    assert [step for step in steps[2:] if step != "reorder"] == made


@pytest.mark.long
def test_dcgan(collage_library, partition):
    from collage import export
    from collage.workloads.dcgan import LATENT, dcgan
    from tvm.contrib import graph_executor

    module, params = dcgan()
    values = np.random.RandomState(0).normal(size=(1, LATENT)).astype("float32")

    def run(built):
        executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
        executor.set_input(0, values)
        executor.run()
        return executor.get_output(0).numpy()

    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    placed = partition(relay.transform.InferType()(module))
    assert Counter(offloaded(placed))[f"{UPSAMPLED}_bias_relu"] == 2
    with tvm.transform.PassContext(opt_level=2):
        want = run(relay.build(module, "llvm", params=params))
    np.testing.assert_allclose(run(export.build(placed)), want, rtol=1e-4, atol=1e-5)
