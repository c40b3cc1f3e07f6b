# SPDX-License-Identifier: Apache-2.0
"""Regions of many operators on our oneDNN runtime: layouts inside, several results, threads, two at once."""

import json
from collections import Counter

import numpy as np
import placed
import pytest
import tvm
from conftest import run_python
from dnnl_grid import WholeGrid, channel_bias, offloaded
from dnnl_steps import load_runtime
from side_by_side import in_threads
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    import collage

    def place(module):
        return collage.partition(module, backends=["tvm", "dnnl"], only="dnnl")

    return place


def regions(module):
    return [f for f in module.functions.values() if f.attrs and str(f.attrs.get("Compiler")) == "collage_dnnl"]


def layer(grid, value, inputs, channels, kernel=3, **attributes):
    weight = grid.constant(channels, inputs // attributes.get("groups", 1), kernel, kernel, low=-0.2, high=0.2)
    attributes.setdefault("padding", (kernel // 2,) * 2)
    one = nn.conv2d(value, weight, channels=channels, kernel_size=(kernel, kernel), **attributes)
    return one + channel_bias(grid, 2, channels)


def network(grid):
    """Blocks of all sorts in which values are needed again, with odd channel numbers, and a head."""
    x = grid.input(2, 3, 20, 20)
    a = nn.relu(layer(grid, x, 3, 20, strides=(2, 2)))
    b = nn.relu(layer(grid, a, 20, 20) + a)  # the residual value is the convolution's own input
    c = nn.relu(layer(grid, b, 20, 20, 1) + a)  # a is needed no longer
    d = relay.clip(layer(grid, c, 20, 20, groups=20), 0.0, 0.5)
    e = relay.concatenate([layer(grid, d, 20, 13), b, nn.avg_pool2d(c, (3, 3), (1, 1), padding=(1, 1))], 1)
    gate = relay.sigmoid(layer(grid, nn.global_avg_pool2d(e), 53, 53, 1))
    g = nn.max_pool2d(e * gate, (2, 2), (2, 2))
    up = nn.upsampling(g, 2, 2) + nn.leaky_relu(e, 0.1)
    head = nn.dense(nn.batch_flatten(g), grid.constant(7, 53 * 25, low=-0.1, high=0.1)) + grid.constant(7)
    return x, [e, d, up, nn.softmax(head), relay.mean(up, axis=(2, 3)), a]


# The composites that its convolutions and what hangs on them become, and the operators beside.
NETWORK_TAKES = {
    "dnnl.conv2d_bias": 1, "dnnl.conv2d_bias_relu": 1, "dnnl.conv2d_bias_clip": 1,
    "dnnl.conv2d_bias_sigmoid": 1, "dnnl.conv2d_bias_sum_relu": 2, "dnnl.dense_bias": 1,
    "add": 1, "concatenate": 1, "mean": 1, "multiply": 1, "nn.avg_pool2d": 1, "nn.batch_flatten": 1,
    "nn.global_avg_pool2d": 1, "nn.leaky_relu": 1, "nn.max_pool2d": 1, "nn.softmax": 1, "nn.upsampling": 1,
}  # fmt: skip


def check_one_region(grid, partition, wanted):
    """All cases are one region, made of what is wanted, and give TVM's answers."""

    def place(module):
        placed = partition(module)
        assert len(regions(placed)) == 1
        assert Counter(offloaded(placed)) == wanted
        return placed

    grid.check(place)


def test_a_network_is_one_region(partition):
    grid = WholeGrid()
    _, results = network(grid)
    for i, result in enumerate(results):
        grid.add(f"result {i}", result)

    check_one_region(grid, partition, NETWORK_TAKES)


def test_channels_last(partition):
    """Layouts are views: what the network calls NHWC is in the library's order inside."""
    grid = WholeGrid()
    x = grid.input(1, 9, 9, 16)
    for _ in range(3):
        weight = grid.constant(3, 3, 16, 16, low=-0.2, high=0.2)
        one = nn.conv2d(
            x,
            weight,
            channels=16,
            kernel_size=(3, 3),
            padding=(1, 1),
            data_layout="NHWC",
            kernel_layout="HWIO",
        )
        x = nn.relu(one + grid.constant(16)) + x
    pooled = nn.avg_pool2d(x, (3, 3), (2, 2), layout="NHWC")
    grid.add("pooled", pooled)
    grid.add("turned", relay.transpose(pooled, (0, 3, 1, 2)))

    check_one_region(grid, partition, {"dnnl.conv2d_bias_relu": 3, "add": 3, "nn.avg_pool2d": 1, "transpose": 1})


def test_attention(partition):
    """Dense layers of a sequence, heads, scores with a mask, and the normalisation around them."""
    grid = WholeGrid()
    x = grid.input(2, 10, 24)
    flat = relay.reshape(x, (20, 24))

    def project(value):
        one = nn.dense(value, grid.constant(24, 24, low=-0.3, high=0.3), units=24)
        return relay.reshape(one, (2, 10, 24)) + grid.constant(24)

    def heads(value):
        return relay.reshape(relay.transpose(relay.reshape(value, (2, 10, 3, 8)), (0, 2, 1, 3)), (6, 10, 8))

    q, k, v = (heads(project(flat)) for _ in range(3))
    scores = relay.reshape(nn.batch_matmul(q, k, transpose_b=True), (2, 3, 10, 10))
    scores = scores / relay.const(3.0) + grid.input(2, 1, 1, 10)
    weights = relay.reshape(nn.softmax(scores), (6, 10, 10))
    mixed = nn.batch_matmul(weights, v, transpose_b=False)
    joined = relay.reshape(relay.transpose(relay.reshape(mixed, (2, 3, 10, 8)), (0, 2, 1, 3)), (20, 24))
    y = project(joined) + x
    y = nn.layer_norm(y, grid.constant(24), grid.constant(24))
    grid.add("attention", y)

    wanted = {
        "nn.dense": 4, "nn.batch_matmul": 2, "nn.softmax": 1, "dnnl.layer_norm": 1, "add": 6, "divide": 1,
        "reshape": 15, "transpose": 4,
    }  # fmt: skip
    check_one_region(grid, partition, wanted)


def test_what_a_region_returns(partition):
    """Inputs, constants, views and one value several times."""
    grid = WholeGrid()
    x = grid.input(4, 6)
    y = nn.relu(x)
    z = relay.reshape(y, (2, 12))
    for name, value in (("y", y), ("z", z), ("again", y), ("turned", relay.transpose(y)), ("sum", z + z)):
        grid.add(name, value)

    check_one_region(grid, partition, {"nn.relu": 1, "reshape": 1, "transpose": 1, "add": 1})


def factory(partition, seed=0):
    """A network on oneDNN, built; its inputs by name; TVM's results."""
    from collage import export

    grid = WholeGrid(seed)
    _, results = network(grid)
    for i, result in enumerate(results):
        grid.add(f"result {i}", result)
    module = grid.module()
    built = export.build(partition(module), opt_level=2)
    inputs = {variable.name_hint: value for variable, value in grid.inputs.items()}
    return built, inputs, grid.expected(module)


def run(executor, inputs):
    executor.set_input(**inputs)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_close(got, want):
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_two_models_at_once(partition):
    """Each has its own engine; they share the workspace, and must not share it while both run."""
    from tvm.contrib import graph_executor

    made = [factory(partition, seed) for seed in (1, 2)]
    executors = [graph_executor.GraphModule(built["default"](tvm.cpu())) for built, _, _ in made]

    def work(i):
        for _ in range(20):
            assert_close(run(executors[i], made[i][1]), made[i][2])

    in_threads(lambda: work(0), lambda: work(1))


def test_another_number_of_threads(partition):
    """A model that was loaded under one number of threads runs under others."""
    from tvm.contrib import graph_executor

    built, inputs, want = factory(partition)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    try:
        for threads in (1, 4, 2):
            set_threads(threads)
            assert_close(run(executor, inputs), want)
    finally:
        set_threads(0)


RUNNER = """
import json, sys
import numpy as np, tvm
from tvm.contrib import graph_executor
executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
with np.load(sys.argv[2]) as inputs:
    executor.set_input(**dict(inputs))
executor.run()
np.savez(sys.argv[3], *[executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
print(json.dumps([line.split("/")[-1].strip() for line in open("/proc/self/maps") if "libcollage" in line]))
"""


def test_an_exported_model_needs_neither_go_nor_python_of_ours(partition, tmp_path):
    from collage import export, region

    built, inputs, want = factory(partition)
    export.link(built, tmp_path / "model.so", region.plugins_for("collage_dnnl"))
    np.savez(tmp_path / "x.npz", **inputs)
    mapped = run_python(RUNNER, tmp_path / "model.so", tmp_path / "x.npz", tmp_path / "y.npz", PYTHONPATH="")
    assert "libcollage_dnnl.so" in mapped and "libcollage.so" not in mapped
    with np.load(tmp_path / "y.npz") as got:
        assert_close([got[f"arr_{i}"] for i in range(len(want))], want)


CONVOLUTION = {
    "format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1], "outputs": [2],
    "values": [["f32", [1, 64, 14, 14]], ["f32", [64, 64, 3, 3]], ["f32", [1, 64, 14, 14]]],
    "ops": [{
        "op": "conv", "algorithm": "direct", "in": [0, 1], "out": 2, "strides": [1, 1], "dilation": [1, 1],
        "padding": [1, 1, 1, 1], "weight": {"dims": [64, 64, 3, 3], "strides": [576, 9, 3, 1]},
        "post": [{"op": "relu"}],
    }],
}  # fmt: skip


def steps(program, *constants):
    arrays = [tvm.nd.array(np.ones(shape, "float32")) for shape in constants]
    text = tvm.get_global_func("collage.runtime.DNNLDescribe")(json.dumps(program), arrays)
    return [line for line in str(text).splitlines() if line and not line.startswith("workspace")]


@pytest.mark.fast
def test_what_becomes_of_a_program(partition):
    """Two convolutions in a row are two primitives between two reorders: fused, in the library's layout."""
    load_runtime(partition)
    program = json.loads(json.dumps(CONVOLUTION))
    program["values"].append(["f32", [1, 64, 14, 14]])
    program["ops"].append({**program["ops"][0], "in": [2, 1], "out": 3})
    program["outputs"] = [3]
    assert [step.split()[0] for step in steps(program, (64, 64, 3, 3))] == [
        "reorder",
        "conv",
        "conv",
        "reorder",
    ]


def test_kernels_of_our_own(partition):
    """A Winograd convolution, and a 1x1 convolution of oneDNN's whose result is added to, are one step each."""
    load_runtime(partition)
    data, weight = ["f32", [1, 64, 64, 64]], {"dims": [64, 64, 1, 1], "strides": [64, 1, 1, 1]}
    winograd = {**CONVOLUTION["ops"][0], "kernel": "winograd"}
    pointwise = {
        **CONVOLUTION["ops"][0], "in": [2, 3], "out": 4, "padding": [0, 0, 0, 0], "weight": weight,
        "post": [{"op": "add", "in": 0}, {"op": "relu"}],
    }  # fmt: skip
    program = {
        **CONVOLUTION, "constants": [1, 3], "outputs": [4], "ops": [winograd, pointwise],
        "values": [data, CONVOLUTION["values"][1], data, ["f32", [64, 64, 1, 1]], data],
    }  # fmt: skip
    made = steps(program, (64, 64, 3, 3), (64, 64, 1, 1))
    assert [step for step in made if step.startswith("conv")] == ["conv winograd", made[-2]]
    # Without AVX-512 oneDNN keeps eight channels together, where our kernel keeps sixteen: what is read and what is
    # added are laid out anew.
    between = [] if placed.has("avx512f") else ["reorder", "reorder"]
    assert [step.split()[0] for step in made] == ["reorder", "conv", *between, "conv", "reorder"]


@pytest.mark.fast
def test_a_bad_program_is_refused(partition):
    load_runtime(partition)
    for change, message in (
        ({"version": 99}, "another version"),
        ({"inputs": [7]}, "no value 7"),
        ({"ops": [{"op": "fft", "in": [0], "out": 2}]}, r"operation 0 \(fft\): this runtime does not know"),
        ({"values": [["f16", [1]]]}, "type f16"),
        ({"constants": []}, r"argument 1 \(value 1\) .* is read before it is made"),
        ({"ops": [{**CONVOLUTION["ops"][0], "strides": [2, 2]}]}, "do not lead from the argument's extents"),
    ):
        with pytest.raises(tvm.TVMError, match=message):
            steps({**CONVOLUTION, **change}, (64, 64, 3, 3))
    with pytest.raises(tvm.TVMError, match="speaks of 1 constants, 0 are there"):
        steps(CONVOLUTION)
    with pytest.raises(tvm.TVMError, match="no primitive for operator 0"):
        nothing = [{"op": "eltwise", "algorithm": "clip", "alpha": 2, "beta": 1, "in": [0], "out": 2}]
        steps({**CONVOLUTION, "ops": nothing}, (64, 64, 3, 3))
