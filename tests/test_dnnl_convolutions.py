# SPDX-License-Identifier: Apache-2.0
"""Convolutions for which the backends dnnl and native do more than to call oneDNN give TVM's answer.

Depths of 1 to 5, in which part of a kernel meets nothing but padding; native's kernel winograd
with their epilogues; and the whole of ResNet-50 in 3D.
"""

import numpy as np
import pytest
import tvm
from dnnl_grid import Grid, channel_bias, region, sums_in_the_padding
from grid import walk
from tvm import relay
from tvm.contrib import graph_executor

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    import collage

    def place(module):
        return collage.partition(module, backends=["tvm", "dnnl"], only="dnnl")

    return place


@pytest.fixture(scope="module")
def generator(collage_library):
    """Make the code generator known, as the first partitioning does."""
    from collage import library

    library.load()
    library.install("collage_dnnl")


def conv3d(x, weight, channels, kernel, last=False, **attributes):
    layouts = {"data_layout": "NDHWC", "kernel_layout": "DHWIO"} if last else {}
    return nn.conv3d(x, weight, channels=channels, kernel_size=kernel, **layouts, **attributes)


@pytest.mark.long
def test_small_depths(partition):
    """Direct convolutions, trimmed where part of the kernel meets padding only."""
    grid = Grid()
    cases = []
    for depth in (1, 2, 3, 4, 5):
        cases += [
            (1, depth, (3, 3, 3), (1, 1, 1), (1,) * 6, (1, 1, 1)),
            (1, depth, (3, 3, 3), (2, 2, 2), (1,) * 6, (1, 1, 1)),
            (1, depth, (1, 1, 1), (2, 1, 2), (0,) * 6, (1, 1, 1)),
            (2, depth, (5, 1, 3), (1, 1, 1), (2, 0, 1, 2, 0, 1), (1, 1, 1)),
            (1, depth, (3, 3, 1), (1, 1, 1), (2, 0, 0, 0, 2, 0), (1, 1, 1)),
            (1, depth, (3, 3, 3), (1, 1, 1), (2,) * 6, (2, 2, 2)),
            (3, depth, (3, 3, 3), (3, 1, 1), (0 if depth > 2 else 1, 1, 1, 3, 1, 1), (1, 1, 1)),
        ]
    # Rows and columns, too.
    cases += [
        (1, 2, (1, 5, 7), (1, 1, 1), (0, 2, 3, 0, 2, 3), (1, 1, 1), (1, 2)),
        (1, 1, (3, 3, 3), (1, 1, 1), (1,) * 6, (1, 1, 1), (1, 1)),
    ]
    for batch, depth, kernel, strides, padding, dilation, *size in cases:
        size = size[0] if size else (7, 6)
        x = grid.input(batch, 8, depth, *size)
        weight = grid.constant(12, 8, *kernel)
        attributes = {"strides": strides, "padding": padding, "dilation": dilation}
        one = conv3d(x, weight, 12, kernel, **attributes)
        grid.add(f"{batch} x {depth}, {kernel} {attributes}", one, "nn.conv3d")
        if batch == 1:
            biased = nn.relu(conv3d(x, weight, 12, kernel, **attributes) + channel_bias(grid, 3, 12))
            grid.add(f"biased {depth}, {kernel} {attributes}", biased, "dnnl.conv3d_bias_relu")
    for depth in (1, 2):
        one = conv3d(
            grid.input(1, depth, 5, 6, 8),
            grid.constant(3, 3, 3, 8, 12),
            12,
            (3,) * 3,
            last=True,
            padding=(1,) * 3,
        )
        grid.add(f"NDHWC {depth}", one, "nn.conv3d")
    for size in (1, 2):
        one = nn.conv2d(grid.input(2, 8, size, 1), grid.constant(12, 8, 5, 3), padding=(2, 1))
        grid.add(f"conv2d {size} x 1", one, "nn.conv2d")
    grid.check(partition)


def test_sums_in_the_padding(partition):
    grid = Grid()
    sums_in_the_padding(grid)
    grid.check(partition)


ACTIVATIONS = {
    "relu": nn.relu,
    "clip": lambda x: relay.clip(x, -0.1, 0.3),
    "leaky": lambda x: nn.leaky_relu(x, alpha=0.1),
    "tanh": relay.tanh,
    "gelu": lambda x: x * (relay.const(0.5) + relay.erf(x * relay.const(0.5**0.5)) * relay.const(0.5)),
    "swish": lambda x: x * relay.sigmoid(x),
}
EPILOGUES = (
    "",
    "_relu",
    "_bias",
    "_bias_relu",
    "_bias_sum_relu",
    "_sum",
    "_bias_clip",
    "_leaky",
    "_bias_gelu",
    "_swish",
)


def winograd(grid, regions, shape, channels, kernel_depth, name, last=False, constant=True, **attributes):
    """Add one Winograd convolution, which no placement would choose without measuring, as a region."""
    kernel = (kernel_depth, 3, 3)
    inputs = shape[-1] if last else shape[1]
    data = grid.input(*shape)
    weight_shape = (*kernel, inputs, channels) if last else (channels, inputs, *kernel)
    weight = grid.constant(*weight_shape) if constant else grid.input(*weight_shape)
    arguments = [data, weight]
    if "bias" in name:
        arguments.append(grid.constant(channels) if last else channel_bias(grid, 3, channels))

    def convolution(x, w):
        return conv3d(x, w, channels, kernel, last, **attributes)

    if "sum" in name:
        result = relay.transform.InferTypeLocal(convolution(data, weight)).concrete_shape
        arguments.append(grid.input(*result))

    def body(x, w, *addends):
        one = convolution(x, w)
        for addend in addends:
            one = one + addend
        activation = name.rsplit("_", 1)[-1]
        return ACTIVATIONS[activation](one) if activation in ACTIVATIONS else one

    # Sums of thousands of products, of which Winograd's transforms lose some digits.
    grid.add(f"winograd {shape} {channels} {attributes}{name}", body(*arguments), rtol=1e-3, atol=2e-3)
    regions.append(region(f"r{len(regions)}", f"native.winograd_conv3d{name}", body, *arguments))


def check(grid, regions):
    module = tvm.IRModule.from_expr(relay.Function(list(grid.inputs), relay.Tuple(regions)))
    grid.check(lambda _: relay.transform.InferType()(module))


def test_winograd_depths(generator):
    grid, regions = Grid(), []
    for depth in (1, 2, 3, 4, 5):
        for kernel, stride, dilation, padding in (
            (3, 1, 1, (1, 1, 1, 1, 1, 1)),
            (3, 2, 1, (1, 0, 1, 1, 1, 0)),
            (3, 1, 2, (2, 2, 0, 2, 1, 3)),
            (1, 1, 1, (0, 1, 1, 0, 1, 1)),
            (5, 1, 1, (4, 1, 1, 4, 1, 1)),
        ):
            winograd(
                grid, regions, (1, 16, depth, 9, 10), 32, kernel, "_bias_relu",
                strides=(stride, 1, 1), dilation=(dilation, 1, 1), padding=padding,
            )  # fmt: skip
    # The kernel lies in the padding for some results.
    winograd(grid, regions, (1, 16, 1, 5, 5), 16, 2, "_bias", padding=(3, 1, 1, 3, 1, 1))
    check(grid, regions)


def test_winograd_epilogues(generator):
    grid, regions = Grid(), []
    for name in EPILOGUES:
        winograd(grid, regions, (2, 32, 2, 7, 6), 48, 3, name, padding=(1, 1, 1))
    for name in ("_relu", "_bias_sum_relu"):
        winograd(grid, regions, (1, 2, 9, 8, 16), 32, 3, name, last=True, padding=(1, 1, 1))
    check(grid, regions)


def test_winograd_sizes(generator):
    """Both sizes of tiles, in blocks and not, panels of weights that are not full, edges."""
    grid, regions = Grid(), []
    for shape, channels in (
        ((1, 64, 3, 30, 31), 64),
        ((1, 16, 2, 66, 65), 80),
        ((3, 48, 1, 14, 14), 112),
        ((1, 128, 1, 7, 7), 128),
        ((1, 16, 2, 1, 1), 16),
        ((2, 16, 1, 2, 17), 16),
    ):
        winograd(grid, regions, shape, channels, 3, "_bias_sum_relu", padding=(1, 1, 1))
    check(grid, regions)


def test_residual_sums(partition):
    """1x1 convolutions with what is added to them."""
    grid = Grid()
    for shape, channels, steps in (
        ((1, 8, 72, 71), 64, 1),
        ((1, 24, 72, 71), 80, 1),  # a panel of weights that is not full
        ((2, 16, 3, 41, 40), 48, 1),
        ((1, 16, 90, 91), 64, 2),  # strides
        ((1, 16, 9, 11), 32, 1),
        ((1, 16, 72, 71), 72, 1),  # not a multiple of 16 channels
    ):
        dims = len(shape) - 2
        for name in ("_bias_sum_relu", "_sum", "_sum_clip", "_bias_sum", "_bias_sum_leaky", "_sum_gelu"):
            one = getattr(nn, f"conv{dims}d")(
                grid.input(*shape),
                grid.constant(channels, shape[1], *[1] * dims),
                channels=channels,
                kernel_size=(1,) * dims,
                strides=(steps,) * dims,
            )
            if "bias" in name:
                one = one + channel_bias(grid, dims, channels)
            one = one + grid.input(*relay.transform.InferTypeLocal(one).concrete_shape)
            activation = name.rsplit("_", 1)[-1]
            if activation in ("relu", "clip"):
                taken = [f"dnnl.conv{dims}d{name}"]
            else:  # a composite without it, and what is fused behind
                taken = [f"dnnl.conv{dims}d" + name.removesuffix("_leaky").removesuffix("_gelu")]
            if activation in ACTIVATIONS:
                one = ACTIVATIONS[activation](one)
                taken += {"leaky": ["nn.leaky_relu"], "gelu": ["dnnl.gelu"]}.get(activation, [])
            grid.add(f"{shape} to {channels}, strides {steps}{name}", one, *taken)
    # What is added is needed afterwards, is added twice, or is what is convolved.
    x = grid.input(1, 64, 72, 71)
    kept = nn.relu(x)
    one = nn.conv2d(kept, grid.constant(64, 64, 1, 1)) + kept
    grid.add("the data itself", one * kept, "nn.relu", "dnnl.conv2d_sum", "multiply")
    kept = relay.exp(x)
    one = nn.conv2d(x, grid.constant(64, 64, 1, 1)) + kept + kept
    grid.add("twice", one, "exp", "dnnl.conv2d_sum", "add")
    grid.check(partition)


def test_winograd_of_a_weight_that_is_no_constant(generator):
    """The runtime falls back: weights are transformed once, when a region is loaded."""
    grid, regions = Grid(), []
    winograd(grid, regions, (1, 16, 2, 8, 8), 16, 3, "_relu", constant=False, padding=(1, 2, 2))
    check(grid, regions)


class _Winograd(relay.ExprMutator):
    """Makes Winograd convolutions of all composites that can be some."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def visit_function(self, function):
        function = super().visit_function(function)
        name = str(function.attrs["Composite"]) if function.attrs and "Composite" in function.attrs else ""
        fits = []

        def visit(node):
            if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op) and node.op.name == "nn.conv3d":
                fits.append(
                    [int(k) for k in node.attrs.kernel_size[1:]] == [3, 3]
                    and [int(s) for s in node.attrs.strides[1:]] == [1, 1]
                )

        walk(function.body, visit)
        if name.startswith("dnnl.conv3d") and fits == [True]:
            self.count += 1
            function = function.with_attr("Composite", tvm.runtime.String(name.replace("dnnl.", "native.winograd_")))
        return function


@pytest.mark.long
def test_resnet50_3d(partition):
    """The whole network on oneDNN, with direct and with Winograd convolutions."""
    from collage.workloads.resnet import resnet50_3d

    module, params = resnet50_3d()
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    module = relay.transform.InferType()(module)
    direct = partition(module)
    tiled = tvm.IRModule(dict(direct.functions))
    rewriter = _Winograd()
    for variable, function in direct.functions.items():
        if function.attrs and function.attrs.get("Compiler") == "collage_dnnl":
            tiled[variable] = rewriter.visit(function)
    assert rewriter.count == 13
    image = np.random.RandomState(0).uniform(-1, 1, (1, 64, 3, 56, 56)).astype("float32")

    def run(module):
        with tvm.transform.PassContext(opt_level=2):
            factory = relay.build(relay.transform.InferType()(module), "llvm")
        executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
        executor.run(input0=image)
        return executor.get_output(0).numpy()

    want = run(module)
    for name, placed in (("direct", direct), ("Winograd", tiled)):
        np.testing.assert_allclose(run(placed), want, rtol=1e-3, atol=1e-3 * np.abs(want).max(), err_msg=name)
