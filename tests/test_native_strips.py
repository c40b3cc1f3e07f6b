# SPDX-License-Identifier: Apache-2.0
"""Groups of operators that run strip by strip (the backend native's kernel strips), and what is shared within a
region: against TVM's answer, with the steps that were made of them counted.
"""

import json

import numpy as np
import placed
import pytest
import tvm
from dnnl_grid import WholeGrid
from dnnl_steps import Steps, load_runtime, profile
from native_placement import prefer
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("strips")


def pointwise(grid, x, inputs, channels, bias=False, **attributes):
    weight = grid.constant(channels, inputs, 1, 1, low=-0.3, high=0.3)
    one = nn.conv2d(x, weight, channels=channels, kernel_size=(1, 1), **attributes)
    return one + grid.constant(channels, 1, 1) if bias else one


def depthwise(grid, x, channels, kernel=3, stride=1, padding=None, bias=False):
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight = grid.constant(channels, 1, *kernel, low=-0.5, high=0.5)
    one = nn.conv2d(
        x, weight, channels=channels, kernel_size=kernel, groups=channels, strides=(stride, stride),
        padding=padding or tuple(k // 2 for k in kernel),
    )  # fmt: skip
    return one + grid.constant(channels, 1, 1) if bias else one


def separable(grid, x, inputs, channels, kernel=3, stride=1, **options):
    return pointwise(grid, depthwise(grid, x, inputs, kernel, stride, **options), inputs, channels)


def average(x, **options):
    options = {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1), **options}
    return nn.avg_pool2d(x, **options)


def check(grid, partition, strips):
    """Nothing is TVM's, all is as TVM has it, and so many groups were run strip by strip."""
    steps = Steps(grid, partition)
    assert steps["strips"] == strips, steps


@pytest.mark.parametrize("channels", [1, 16, 19, 33, 48])
def test_channels(partition, channels):
    """Vectors that are not full, at the end of the first and of the second vector of a tile."""
    grid = WholeGrid(channels)
    for image in ((1, 6, 6), (2, 9, 7), (3, 15, 16)):
        x = grid.input(image[0], channels, *image[1:])
        grid.add(f"{image}", nn.relu(separable(grid, x, channels, channels + 3, bias=True)))
        y = separable(grid, x, channels, channels) + x
        grid.add(f"{image} residual", relay.clip(y, -0.3, 0.4))
    check(grid, partition, len(grid.names))


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 2])
def test_windows(partition, stride):
    """Depthwise kernels and pools of all sizes that are written out, with padding on some sides only."""
    grid = WholeGrid(stride)
    for kernel in (2, 3, 5, 7, (1, 3), (3, 7)):
        height, width = 13, 23
        size = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        least = tuple(k // 2 for k in size)
        for padding in (least, (0, 0, *least), (*least, 0, 0)):
            x = grid.input(1, 20, height, width)
            y = separable(grid, x, 20, 12, kernel, stride, padding=padding)
            if size[0] > 1 and size[1] > 1:
                pooled = {"pool_size": size, "strides": (stride, stride), "padding": padding}
                parts = [
                    y,
                    nn.max_pool2d(x, **pooled),
                    nn.avg_pool2d(x, **pooled, count_include_pad=False),
                    nn.avg_pool2d(x, **pooled, count_include_pad=True),
                ]
                y = relay.concatenate(parts, 1)
            grid.add(f"{kernel} of {height}x{width}, padding {padding}", y)
    check(grid, partition, len(grid.names))


def test_pools_with_sums(partition):
    grid = WholeGrid()
    for channels in (16, 21):
        x = grid.input(1, channels, 10, 11)
        y = separable(grid, x, channels, channels)
        for name, value in (
            ("plus an input", average(x) + x),
            ("plus a sibling", average(x) + y),
            ("twice", average(x) + average(x)),
            (
                "twice, and bounds",
                nn.relu(average(x, count_include_pad=True) + average(x, count_include_pad=True)),
            ),
            ("both kinds", average(x) + average(x, count_include_pad=True)),
            ("maximum, twice", relay.add(*[nn.max_pool2d(x, (3, 3), (1, 1), padding=(1, 1))] * 2)),
            ("plus a constant", average(x) + grid.constant(1, channels, 10, 11)),
            ("clipped", relay.clip(average(x) + x, -0.1, 0.2)),
        ):
            grid.add(f"{name}, {channels}", relay.concatenate([value, y], 1))
    # Pools alone, with what is hung on them and what cannot be.
    x = grid.input(1, 24, 12, 12)
    grid.add("alone", average(x) + x)
    grid.add("alone, twice", nn.relu(average(x) + average(x)))
    grid.add("alone, maximum", nn.leaky_relu(nn.max_pool2d(x, (2, 2), (2, 2)), 0.3))
    grid.add("alone, per channel", average(x) + grid.constant(24, 1, 1))
    # All cases with one y are one group; those alone are a region each.
    check(grid, partition, 6)


def gelu(x):
    return x * (relay.const(0.5) + relay.erf(x * relay.const(0.5**0.5)) * relay.const(0.5))


def hard_sigmoid(x):
    return relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0)


def hard_swish(x):
    return x * hard_sigmoid(x)


FUNCTIONS = {
    "relu": nn.relu,
    "clip": lambda x: relay.clip(x, -0.2, 0.3),
    "sigmoid": relay.sigmoid,
    "silu": lambda x: x * relay.sigmoid(x),
    "gelu": gelu,
    "leaky": lambda x: nn.leaky_relu(x, 0.1),
    "hard_swish": hard_swish,
    "hard_sigmoid": hard_sigmoid,
}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_on_the_way_out(partition, name, stride):
    """Of the depthwise and of the 1x1 convolution: nothing is left behind the group."""
    function = FUNCTIONS[name]
    grid = WholeGrid(stride)
    for batch, channels in ((1, 16), (3, 21)):
        x = grid.input(batch, channels, 13, 11, low=-4, high=4)
        y = function(depthwise(grid, x, channels, 3, stride, bias=True))
        y = function(pointwise(grid, y, channels, channels + 5, bias=True))
        grid.add(f"{name} {batch}", y, rtol=1e-4, atol=1e-4)
    steps = Steps(grid, partition)
    assert steps["strips"] == 2 and set(steps) <= {"strips", "reorder"}, steps


def excite(grid, x, channels, factors):
    """Each channel times a number that depends on the means of all channels."""
    mean = nn.global_avg_pool2d(x)
    inner = pointwise(grid, mean, channels, 4, bias=True)
    inner = inner * relay.sigmoid(inner)
    return factors(x, relay.sigmoid(pointwise(grid, inner, 4, channels, bias=True)))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("side", ["left", "right"])
def test_squeeze_and_excitation(partition, batch, side):
    """What is scaled is read where it is made; two blocks, the second with a stride, residual sums."""

    def factors(x, s):
        return s * x if side == "left" else x * s

    grid = WholeGrid(batch)
    for channels, height, width in ((16, 12, 14), (19, 9, 7)):
        x = grid.input(batch, channels, height, width)
        y = depthwise(grid, x, channels, 5, bias=True)
        y = excite(grid, y * relay.sigmoid(y), channels, factors)
        y = pointwise(grid, y, channels, channels, bias=True) + x
        grid.add(f"one block {channels}", y, rtol=1e-4, atol=1e-4)
        y = nn.relu(depthwise(grid, y, channels, 3, 2, bias=True))
        y = pointwise(grid, excite(grid, y, channels, factors), channels, 8, bias=True)
        grid.add(f"two blocks {channels}", y, rtol=1e-4, atol=1e-4)
    taken = []
    run = grid.run

    def profiled(module):
        given, steps = profile(lambda: run(module))
        taken.extend(step["what"] for step in steps if not step.get("reorder"))
        return given

    grid.run = profiled
    grid.check(partition)
    others = [what for what in taken if not what.startswith(("strips", "pool"))]
    assert not others, others
    # Of each block: the depthwise convolution, both of one pixel, and the rest with what is scaled.
    assert len([what for what in taken if what.startswith("strips")]) == 12, taken


def test_factors_of_all_images(partition):
    """One factor for each channel, or for each channel of each image, of inputs, of constants and of sums."""
    grid = WholeGrid()
    for batch in (1, 2, 5):
        for channels in (3, 16, 40):
            x = grid.input(batch, channels, 5, 9)
            for images in {1, batch}:
                scaled = (x + x) * grid.input(images, channels, 1, 1)
                grid.add(f"{batch} {channels} {images}", nn.relu(scaled) + x)
                one = pointwise(grid, relay.sigmoid(grid.input(images, channels, 1, 1)) * x, channels, 6)
                grid.add(f"{batch} {channels} {images}, read", one)
            grid.add(f"{batch} {channels}, equal", (x * relay.sigmoid(x + x)) + x)
            # Not a factor for each channel: left to oneDNN, with the right result.
            grid.add(f"{batch} {channels}, rows", nn.relu(x + x) * grid.input(1, 1, 5, 1))
    steps = Steps(grid, partition)
    assert steps["strips"] > 0


@pytest.mark.long
def test_concatenations(partition):
    """Parts that are made here, shared, inputs, constants, of odd widths, nested, and results themselves."""
    grid = WholeGrid()
    for a, b in ((16, 32), (5, 20)):
        x = grid.input(1, a, 9, 8)
        one, two = separable(grid, x, a, b), separable(grid, x, a, a)
        constant = grid.constant(1, 7, 9, 8)
        other = grid.input(1, 3, 9, 8)
        inner = relay.concatenate([two, one], 1)
        for name, value in (
            ("made", [one, two]),
            ("the same twice", [one, one, two]),
            ("with an input", [x, one]),
            ("with another input", [one, other, two]),
            ("with a constant", [constant, one]),
            ("nested", [inner, one, inner]),
            ("bounded parts", [nn.relu(one), relay.clip(two, -0.2, 0.2)]),
            ("of a sum", [two + x, one]),
            ("of a chain", [pointwise(grid, nn.relu(two), a, 9), two]),
        ):
            joined = relay.concatenate(value, 1)
            grid.add(f"{name}, {a}", joined)
            width = sum(int(relay.transform.InferTypeLocal(v).shape[1]) for v in value)
            grid.add(f"{name}, read, {a}", nn.relu(pointwise(grid, joined, width, 10, bias=True)))
            after = separable(grid, joined, width, 8)
            grid.add(f"{name}, read around, {a}", after + pointwise(grid, joined, width, 8))
    # Along other axes, and of vectors: not within a group.
    x = grid.input(1, 8, 8, 8)
    y = separable(grid, x, 8, 8)
    grid.add("along rows", relay.concatenate([y, x], 2))
    grid.add("of the outputs of a region", relay.concatenate([y, nn.relu(y)], 1))
    grid.add("itself", y)
    check(grid, partition, 5)


def cells(grid, count=3, channels=8, size=12, batch=1):
    """Cells that read their two predecessors, in which a pool is called twice, with a reduction between."""

    def fit(x, inputs):
        return nn.relu(pointwise(grid, x, inputs, channels, bias=True))

    x = grid.input(batch, channels, size, size)
    previous, current = (x, channels), (x, channels)
    for cell in range(count):
        a, b = fit(*current), fit(*previous)
        if cell == 1:
            first = separable(grid, b, channels, channels, 7, 2) + separable(grid, a, channels, channels, 5, 2)
            second = nn.max_pool2d(a, (3, 3), (2, 2), padding=(1, 1)) + separable(grid, b, channels, channels, 7, 2)
            third = average(first) + second
            sums = [first, second, third, separable(grid, first, channels, channels)]
        else:
            sums = [
                separable(grid, a, channels, channels) + a,
                separable(grid, b, channels, channels) + separable(grid, a, channels, channels),
                average(a) + b,
                average(b) + average(b),
            ]
        joined = (relay.concatenate(sums, 1), 4 * channels)
        previous, current = (joined, joined) if cell == 1 else (current, joined)
    return current[0]


@pytest.mark.parametrize(
    "batch,size,channels",
    [(2, 13, 20), *(pytest.param(*one, marks=pytest.mark.long) for one in ((5, 7, 33), (1, 12, 8), (1, 56, 16)))],
)
def test_cells(partition, batch, size, channels):
    grid = WholeGrid(size)
    grid.add("cells", cells(grid, 4, channels, size, batch), rtol=1e-3, atol=1e-4)
    check(grid, partition, 6)


def test_threads(partition):
    """Strips are divided anew for other numbers of threads."""
    from collage import export
    from tvm.contrib import graph_executor

    grid = WholeGrid()
    grid.add("cells", cells(grid, 3, 16, 20))
    module = grid.module()
    want = grid.expected(module)
    executor = graph_executor.GraphModule(export.build(partition(module), opt_level=2)["default"](tvm.cpu()))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    inputs = {variable.name_hint: value for variable, value in grid.inputs.items()}
    try:
        for threads in (1, 3, 16, 2):
            set_threads(threads)
            executor.set_input(**inputs)
            for _ in range(3):
                executor.run()
            np.testing.assert_allclose(executor.get_output(0).numpy(), want[0], rtol=1e-3, atol=1e-4)
        _, taken = profile(executor.run)
        assert any(step["what"].startswith("strips") for step in taken)
    finally:
        set_threads(0)


SEPARABLE = {
    "format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1, 2], "outputs": [4],
    "values": [["f32", [1, 16, 14, 14]], ["f32", [16, 1, 3, 3]], ["f32", [16, 16, 1, 1]],
               ["f32", [1, 16, 14, 14]], ["f32", [1, 16, 14, 14]]],
    "ops": [{
        "op": "conv", "kernel": "strips", "algorithm": "direct", "in": [0, 1], "out": 3,
        "strides": [1, 1], "dilation": [1, 1],
        "padding": [1, 1, 1, 1], "weight": {"dims": [16, 1, 1, 3, 3], "strides": [9, 9, 9, 3, 1]},
    }, {
        "op": "conv", "kernel": "strips", "algorithm": "direct", "in": [3, 2], "out": 4,
        "strides": [1, 1], "dilation": [1, 1],
        "padding": [0, 0, 0, 0], "weight": {"dims": [16, 16, 1, 1], "strides": [16, 1, 1, 1]},
    }],
    "strips": [0, 2],
}  # fmt: skip


def steps(program):
    arrays = [tvm.nd.array(np.ones(program["values"][i][1], "float32")) for i in program["constants"]]
    text = tvm.get_global_func("collage.runtime.DNNLDescribe")(json.dumps(program), arrays)
    return [line.split()[0] for line in str(text).splitlines() if line and not line.startswith("workspace")]


@pytest.mark.fast
def test_a_group_is_one_step(partition):
    load_runtime(partition)
    assert steps(SEPARABLE) == ["reorder", "strips", "reorder"]


def changed(**changes):
    """The program with fields of its operators replaced: op0 = {...}, op1 = {...}."""
    program = json.loads(json.dumps(SEPARABLE))
    for name, fields in changes.items():
        program["ops"][int(name[-1])].update(fields)
    return program


@pytest.mark.fast
def test_what_strips_cannot_do_is_compiled_one_by_one(partition):
    """A group is an offer: the runtime looks again, whatever the program says."""
    load_runtime(partition)
    for program in (
        changed(op1={"post": [{"op": "tanh"}]}),
        changed(op1={"post": [{"op": "relu"}, {"op": "mish"}]}),
    ):
        made = steps(program)
        assert "strips" not in made and made.count("conv") == 2


@pytest.mark.fast
def test_a_group_that_is_not_there_is_refused(partition):
    load_runtime(partition)
    for strips in ([0, 3], [-1, 1], [1, 0]):
        with pytest.raises(tvm.TVMError, match="strips has operators that are not there"):
            steps({**SEPARABLE, "strips": strips})


@pytest.mark.long
@pytest.mark.parametrize(
    "name,groups", [("nasneta", 20), ("mobilenet_v2", 10), ("efficientnet_b0", 40), ("mobilenet_v3", 30)]
)
def test_networks(name, groups, partition, tmp_path):
    """Whole networks on strips and dnnl give TVM's answer, and most of their operators are done in strips."""
    from collage import frontends, transform

    module = transform.Normalise()(frontends.load(f"workload:{name}").module)
    values = placed.values(module, seed=3)
    want = placed.expected(module, *values)
    split = partition(module)
    assert len(placed.regions(split)) == 1
    archive = placed.export_to(tmp_path / "model.tar", split)
    executor = placed.load(archive)
    placed.same(placed.run(executor, *values), want, rtol=1e-3, share=1e-4)
    timed, taken = profile(lambda: placed.run(executor, *values))
    placed.same(timed, want, rtol=1e-3, share=1e-4)
    in_strips = [step for step in taken if step["what"].startswith("strips")]
    assert len(in_strips) >= groups
    done = sum(len(step["of"]) for step in taken if "of" in step and not step.get("reorder"))
    assert sum(len(step["of"]) for step in in_strips) > done / 2
    placed.forget()
