# SPDX-License-Identifier: Apache-2.0
"""1x1 convolutions that run ahead in the group of the windows that read them (the backend native's kernel expansion):
inverted residuals and their like, against TVM's answer, with the steps that were made of them counted.
"""

import json

import numpy as np
import placed
import pytest
import tvm
from dnnl_grid import WholeGrid
from dnnl_steps import load_runtime, profile
from native_placement import prefer
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("expansion", "strips")


def hard_swish(x):
    return x * (relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0))


ACTIVATIONS = {
    "relu": nn.relu,
    "relu6": lambda x: relay.clip(x, 0.0, 6.0),
    "hard_swish": hard_swish,
    "silu": lambda x: x * relay.sigmoid(x),
    "none": lambda x: x,
}


class Layers:
    """Convolutions on images in one order of the axes."""

    def __init__(self, grid, layout="NCHW"):
        self.grid, self.layout = grid, layout

    def input(self, batch, channels, height, width):
        shape = {"N": batch, "C": channels, "H": height, "W": width}
        return self.grid.input(*(shape[axis] for axis in self.layout), low=-2, high=2)

    def bias(self, channels):
        return self.grid.constant(*((channels, 1, 1) if self.layout == "NCHW" else (channels,)))

    def pointwise(self, x, inputs, channels, bias=True):
        kernel = "OIHW" if self.layout == "NCHW" else "HWIO"
        shape = (channels, inputs, 1, 1) if kernel == "OIHW" else (1, 1, inputs, channels)
        one = nn.conv2d(
            x, self.grid.constant(*shape, low=-0.4, high=0.4), channels=channels, kernel_size=(1, 1),
            data_layout=self.layout, kernel_layout=kernel,
        )  # fmt: skip
        return one + self.bias(channels) if bias else one

    def depthwise(self, x, channels, kernel=3, stride=1, padding=None, dilation=1):
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        layout, shape = ("OIHW", (channels, 1, *kernel)) if self.layout == "NCHW" else ("HWOI", (*kernel, channels, 1))
        least = tuple((k - 1) // 2 * dilation for k in kernel)
        weight = self.grid.constant(*shape, low=-0.5, high=0.5)
        strides = stride if isinstance(stride, tuple) else (stride, stride)
        one = nn.conv2d(
            x, weight, channels=channels, kernel_size=kernel, groups=channels, strides=strides,
            padding=padding or least, dilation=(dilation, dilation), data_layout=self.layout, kernel_layout=layout,
        )  # fmt: skip
        return one + self.bias(channels)

    def block(self, x, inputs, wide, outputs, activation=nn.relu, residual=False, **window):
        """An inverted residual."""
        y = activation(self.pointwise(x, inputs, wide))
        y = self.pointwise(activation(self.depthwise(y, wide, **window)), wide, outputs)
        return y + x if residual else y


def taken(grid, partition):
    """Runs the grid, which is as TVM has it, and gives what its steps in strips are."""
    given = []
    run = grid.run

    def profiled(module):
        answer, steps = profile(lambda: run(module))
        given.extend(step["what"] for step in steps if not step.get("reorder"))
        return answer

    grid.run = profiled
    grid.check(partition)
    return given


def check_groups(grid, partition, blocks):
    """Each block is one group with an expansion, and nothing else runs."""
    steps = taken(grid, partition)
    assert len(steps) == blocks and all("2 products 1 windows" in s and "1 ahead" in s for s in steps), steps


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_inverted_residuals(partition, name, layout):
    """Each activation, in both orders, with a residual sum and with a stride, on odd channels and of several images."""
    grid = WholeGrid(len(name))
    layers = Layers(grid, layout)
    for batch, inputs, wide in ((1, 16, 48), (3, 7, 21)):
        for options in ({"residual": True}, {"stride": 2, "kernel": 5}):
            x = layers.input(batch, inputs, 13, 11)
            y = layers.block(x, inputs, wide, inputs, ACTIVATIONS[name], **options)
            grid.add(f"{batch} {options}", y, rtol=1e-4, atol=1e-4)
    check_groups(grid, partition, 4)


@pytest.mark.parametrize("layout", ["NCHW", pytest.param("NHWC", marks=pytest.mark.long)])
def test_windows(partition, layout):
    """Any window and stride, with padding on some sides only, and rows that nobody sees."""
    grid = WholeGrid(2)
    layers = Layers(grid, layout)
    windows = [
        {"kernel": (3, 5)}, {"kernel": 7, "padding": (3, 0, 0, 3)}, {"kernel": 2, "stride": 3, "padding": (0, 0)},
        {"kernel": 3, "dilation": 2}, {"kernel": (1, 3), "stride": (2, 1)}, {"kernel": 3, "padding": (0, 0)},
        {"kernel": 5, "stride": 2, "padding": (0, 1, 4, 2)}, {"kernel": 4, "stride": (1, 2), "padding": (2, 1)},
    ]  # fmt: skip
    for i, window in enumerate(windows):
        x = layers.input(2, 9, 14, 10)
        y = layers.block(x, 9, 18, 5 + i, **window)
        grid.add(f"{window}", y)
    check_groups(grid, partition, len(windows))


def test_chains(partition):
    """Block after block: only what is between them is stored. With squeeze-and-excitation a group ends at the means."""
    grid = WholeGrid()
    layers = Layers(grid)
    x = y = layers.input(1, 8, 12, 12)
    for _ in range(3):
        y = layers.block(y, 8, 24, 8, residual=True)
    grid.add("residual", layers.block(y, 8, 16, 12, stride=2))
    wide = nn.relu(layers.depthwise(nn.relu(layers.pointwise(x, 8, 24)), 24, 5, 2))
    mean = nn.global_avg_pool2d(wide)
    factors = relay.sigmoid(layers.pointwise(nn.relu(layers.pointwise(mean, 24, 4)), 4, 24))
    grid.add("excited", layers.pointwise(wide * factors, 24, 8), rtol=1e-4, atol=1e-4)
    steps = taken(grid, partition)
    assert [s.split()[1:5] for s in steps if "ahead" in s] == [["2", "products", "1", "windows"]] * 4 + [
        ["1", "products", "1", "windows"]], steps  # fmt: skip


def test_several_readers(partition):
    """Windows of all kinds read what is made ahead, some of them more of it; sums with what is outside."""
    grid = WholeGrid()
    layers = Layers(grid)
    for channels in (16, 21):
        x = layers.input(2, 8, 11, 9)
        other = layers.input(2, channels, 11, 9)
        wide = nn.relu(layers.pointwise(x, 8, channels) + other)
        pooled = nn.max_pool2d(wide, (3, 3), (1, 1), padding=(1, 1))
        mean = nn.avg_pool2d(wide, (5, 5), (1, 1), padding=(2, 2))
        least = nn.avg_pool2d(wide, (3, 3), (1, 1), padding=(1, 1), count_include_pad=True)
        y = relay.concatenate([layers.depthwise(wide, channels, 7), pooled + mean, least], 1)
        grid.add(f"{channels}", layers.pointwise(y, 3 * channels, 5))
        # Transitions: a pool that goes down in steps of its size.
        grid.add(f"{channels} transition", nn.avg_pool2d(layers.pointwise(x, 8, channels), (2, 2), (2, 2)))
    steps = taken(grid, partition)
    assert len(steps) == 4 and sum("4 windows" in s for s in steps) == 2 and all("1 ahead" in s for s in steps), steps


def test_what_cannot_be_ahead(partition):
    """Read by somebody else, or by windows that go down in different steps: right, and as any 1x1 convolution."""
    grid = WholeGrid()
    layers = Layers(grid)
    x = layers.input(1, 8, 12, 12)
    wide = nn.relu(layers.pointwise(x, 8, 24))
    grid.add("a result, too", relay.concatenate([layers.depthwise(wide, 24), wide], 1))
    wide = layers.pointwise(x, 8, 24)
    steep = nn.max_pool2d(wide, (12, 1), (12, 1))
    grid.add("in different steps", layers.depthwise(wide, 24) + nn.upsampling(steep, 12, 1))
    steps = taken(grid, partition)
    assert any(s.startswith("strips") for s in steps) and not any("ahead" in s for s in steps), steps


def test_threads(partition):
    """Strips that see the same rows, on one thread and on several."""
    from collage import export
    from tvm.contrib import graph_executor

    grid = WholeGrid()
    layers = Layers(grid)
    x = layers.input(2, 24, 61, 56)
    y = layers.block(layers.block(x, 24, 144, 24, residual=True, kernel=5), 24, 144, 8, stride=2)
    grid.add("blocks", y)
    module = grid.module()
    want = grid.expected(module)
    executor = graph_executor.GraphModule(export.build(partition(module), opt_level=2)["default"](tvm.cpu()))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    executor.set_input(**{variable.name_hint: value for variable, value in grid.inputs.items()})
    try:
        for threads in (1, 3, 16, 2):
            set_threads(threads)
            for _ in range(2):
                executor.run()
            np.testing.assert_allclose(executor.get_output(0).numpy(), want[0], rtol=1e-3, atol=1e-4)
        _, steps = profile(executor.run)
        strips = [step["what"].split() for step in steps if step["what"].startswith("strips")]
        assert len(strips) == 2 and all(int(what[5]) > 2 and what[-1] == "ahead" for what in strips), strips
    finally:
        set_threads(0)


BLOCK = {
    "format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1, 2], "outputs": [4],
    "values": [["f32", [1, 16, 14, 14]], ["f32", [32, 16, 1, 1]], ["f32", [32, 1, 3, 3]],
               ["f32", [1, 32, 14, 14]], ["f32", [1, 32, 7, 7]]],
    "ops": [{
        "op": "conv", "kernel": "expansion", "algorithm": "direct", "in": [0, 1], "out": 3,
        "strides": [1, 1], "dilation": [1, 1],
        "padding": [0, 0, 0, 0], "weight": {"dims": [32, 16, 1, 1], "strides": [16, 1, 1, 1]},
    }, {
        "op": "conv", "kernel": "strips", "algorithm": "direct", "in": [3, 2], "out": 4,
        "strides": [2, 2], "dilation": [1, 1],
        "padding": [1, 1, 1, 1], "weight": {"dims": [32, 1, 1, 3, 3], "strides": [9, 9, 9, 3, 1]},
    }],
    "strips": [0, 2],
}  # fmt: skip


def made(**changes):
    """The steps of the program with fields replaced."""
    program = {**json.loads(json.dumps(BLOCK)), **changes}
    arrays = [tvm.nd.array(np.ones(program["values"][i][1], "float32")) for i in program["constants"]]
    text = str(tvm.get_global_func("collage.runtime.DNNLDescribe")(json.dumps(program), arrays))
    return [line for line in text.splitlines() if line and not line.startswith("workspace")]


@pytest.mark.fast
def test_the_runtime_looks_again(partition):
    """A group is an offer: what is read in another way is compiled one by one, whatever the program says."""
    load_runtime(partition)
    assert sum("1 ahead" in step for step in made()) == 1
    wide, deep = BLOCK["ops"]
    dense = {"dims": [32, 32, 3, 3], "strides": [288, 9, 3, 1]}
    values = [*BLOCK["values"][:2], ["f32", [32, 32, 3, 3]], *BLOCK["values"][3:]]
    for changes in (
        {"outputs": [4, 3]},  # it is a result, too
        {"ops": [wide, {**deep, "weight": dense}], "values": values},  # what reads it is no window
        {"strips": [0, 1, 1, 1]},  # the window is of another group
    ):
        steps = made(**changes)
        assert not any("ahead" in step for step in steps), steps
        assert sum(step.startswith("conv") for step in steps) >= 1, steps
    with pytest.raises(tvm.TVMError, match="it stands in no group of strips"):
        made(strips=[1, 1])


@pytest.mark.long
@pytest.mark.parametrize("name,ahead", [("mobilenet_v2", 12), ("efficientnet_b0", 12), ("mobilenet_v3", 12)])
def test_networks(name, ahead, partition, tmp_path):
    """Whole networks give TVM's answer, and their blocks are groups."""
    from collage import frontends, transform

    module = transform.Normalise()(frontends.load(f"workload:{name}").module)
    values = placed.values(module, seed=3)
    want = placed.expected(module, *values)
    split = partition(module)
    executor = placed.load(placed.export_to(tmp_path / "model.tar", split))
    placed.same(placed.run(executor, *values), want, rtol=1e-3, share=1e-4)
    _, steps = profile(lambda: placed.run(executor, *values))
    assert sum("ahead" in step["what"] for step in steps) >= ahead
    placed.forget()
