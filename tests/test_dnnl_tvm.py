# SPDX-License-Identifier: Apache-2.0
"""The backend dnnl_tvm: relay.ext.dnnl in front of TVM's own oneDNN runtime.

Operators of each kind, regions of many operators that TVM's passes made, its constants, its errors.
"""

import numpy as np
import pytest
import tvm
from dnnl_grid import Grid, channel_bias, offloaded, sums_in_the_padding
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    import collage

    def place(module):
        return collage.partition(module, backends=["tvm", "dnnl_tvm"], only="dnnl_tvm")

    return place


def test_operators(partition):
    """One of each kind; byoc/dnnl's tests have the whole grid."""
    grid = Grid()
    for dims, data in ((1, (2, 6, 19)), (2, (2, 6, 11, 13)), (3, (1, 6, 6, 7, 8))):
        conv = getattr(nn, f"conv{dims}d")
        weight = grid.constant(8, 6, *[3] * dims)
        one = conv(grid.input(*data), weight, channels=8, kernel_size=(3,) * dims, padding=(1,) * 2 * dims)
        grid.add(f"conv{dims}d", one, f"nn.conv{dims}d")
        weight = grid.constant(8, 6, *[3] * dims)
        one = conv(grid.input(*data), weight, channels=8, kernel_size=(3,) * dims, strides=(2,) * dims)
        biased = nn.relu(one + channel_bias(grid, dims, 8))
        grid.add(f"conv{dims}d bias relu", biased, f"dnnl.conv{dims}d_bias_relu")
        weight = grid.constant(6, 8, *[3] * dims)
        one = getattr(nn, f"conv{dims}d_transpose")(
            grid.input(*data), weight, channels=8, kernel_size=(3,) * dims, strides=(2,) * dims
        )
        grid.add(f"conv{dims}d_transpose", one, f"nn.conv{dims}d_transpose")
        pooled = getattr(nn, f"avg_pool{dims}d")(grid.input(*data), (3,) * dims, (2,) * dims, padding=(1,) * dims)
        grid.add(f"avg_pool{dims}d", pooled, f"nn.avg_pool{dims}d")
    one = nn.conv2d_transpose(
        grid.input(2, 6, 7, 8), grid.constant(6, 4, 3, 3), channels=8, kernel_size=(3, 3), groups=2
    )
    grid.add("grouped conv2d_transpose", one, "nn.conv2d_transpose")
    for form, name in ((nn.relu, "relu"), (relay.tanh, "tanh"), (lambda x: nn.leaky_relu(x, 0.1), "leaky")):
        one = nn.dense(grid.input(5, 24), grid.constant(16, 24), units=16) + grid.constant(16)
        grid.add(f"dense bias {name}", form(one), f"dnnl.dense_bias_{name}")
    left, right = grid.input(3, 5, 9), grid.input(3, 7, 9)
    grid.add("batch_matmul", nn.batch_matmul(left, right), "nn.batch_matmul")
    grid.add("softmax", nn.softmax(grid.input(3, 7), 0), "nn.softmax")
    grid.add("clip", relay.clip(grid.input(3, 7), -0.5, 0.25), "clip")
    grid.add("add", grid.input(3, 7) + grid.input(3, 7), "add")
    grid.add("broadcast add", grid.input(2, 8, 4, 4) + grid.constant(8, 1, 1))
    grid.check(partition)


def test_sums_in_the_padding(partition):
    grid = Grid()
    sums_in_the_padding(grid)
    grid.check(partition)


@pytest.mark.parametrize("merged", [False, True])
def test_regions_that_tvm_partitioned(collage_library, merged):
    """Regions made by TVM's passes, of one operator and of many: residual values that are needed again."""
    from collage import library

    library.load()
    load_backend()
    grid = Grid()
    x = grid.input(1, 8, 10, 10)

    def layer(value, channels, kernel):
        one = nn.conv2d(
            value,
            grid.constant(channels, 8, kernel, kernel, low=-0.2, high=0.2),
            channels=channels,
            kernel_size=(kernel, kernel),
            padding=(kernel // 2,) * 2,
        )
        return one + channel_bias(grid, 2, channels)

    a = nn.relu(layer(x, 8, 3))
    b = nn.relu(layer(a, 8, 1) + a)  # the residual value is the convolution's own input
    c = nn.relu(layer(b, 8, 3) + a)  # a is needed no longer
    d = relay.clip(layer(c, 8, 1), 0.0, 0.5)
    e = layer(d, 8, 3) + b  # d and b are read again below
    grid.add("e", e + d + b)
    grid.add("c", nn.softmax(nn.max_pool2d(c, (2, 2), (2, 2)), 1))
    grid.add("d", d)

    def place(module):
        passes = [
            relay.transform.MergeComposite(residual_patterns()),
            relay.transform.AnnotateTarget("dnnl"),
            *([relay.transform.MergeCompilerRegions()] if merged else []),
            relay.transform.PartitionGraph(),
            relay.transform.InferType(),
        ]
        with tvm.transform.PassContext(opt_level=3):
            placed = tvm.transform.Sequential(passes)(module)
        regions = [f for f in placed.functions.values() if f.attrs and "Compiler" in f.attrs]
        assert len(regions) == 1 if merged else len(regions) >= len(offloaded(placed))
        grid.taken = ["dnnl.conv2d_bias_relu", "dnnl.conv2d_bias_sum_relu", "dnnl.conv2d_bias_sum_relu"]
        grid.taken += [
            "dnnl.conv2d_bias_clip",
            "dnnl.conv2d_bias_sum",
            "add",
            "add",
            "nn.max_pool2d",
            "nn.softmax",
        ]
        return placed

    grid.check(place)


def residual_patterns():
    """The patterns as people write them for TVM's MergeComposite (its own table fails on residual values)."""
    from tvm.relay.dataflow_pattern import is_op, wildcard

    layer = is_op("add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard())
    added = is_op("add")(layer, wildcard())
    return [
        ("dnnl.conv2d_bias_sum_relu", is_op("nn.relu")(added)),
        ("dnnl.conv2d_bias_relu", is_op("nn.relu")(layer)),
        ("dnnl.conv2d_bias_clip", is_op("clip")(layer)),
        ("dnnl.conv2d_bias_sum", added),
    ]


def test_codegen_refuses_what_the_runtime_does_not_know(collage_library):
    """An operator without a kernel is an error of the build that says which, not an abort at run time."""
    from collage import library

    library.load()
    load_backend()
    x = relay.var("x", shape=(2, 3))
    region = relay.Function([x], relay.round(x))
    for name, value in (
        ("Compiler", "dnnl"),
        ("Primitive", 1),
        ("global_symbol", "tvmgen_default_dnnl_main_0"),
    ):
        region = region.with_attr(name, tvm.tir.IntImm("int32", 1) if value == 1 else value)
    y = relay.var("y", shape=(2, 3))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([y], region(y))))
    with pytest.raises(ValueError, match="no kernel for the operator round"):
        relay.build(module, "llvm")


def load_backend():
    """Install relay.ext.dnnl, as the first partitioning does."""
    import collage

    x = relay.var("x", shape=(2, 3))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.relu(x))))
    placed = collage.partition(module, backends=["tvm", "dnnl_tvm"], only="dnnl_tvm")
    assert offloaded(placed) == ["nn.relu"]


def test_constants_are_named_and_bound(partition):
    """Equal weights of two regions are two constants; one region's constants carry its name."""
    grid = Grid()
    weight = relay.const(np.ones((4, 4), "float32"))
    one = nn.dense(grid.input(2, 4), weight, units=4)
    two = nn.dense(grid.input(2, 4), weight, units=4)
    grid.add("one", one, "nn.dense")
    grid.add("two", two, "nn.dense")
    grid.check(partition)
    updater = tvm.get_global_func("relay.ext.dnnl.constant_updater")
    placed = partition(grid.module())
    for variable, function in placed.functions.items():
        if function.attrs and "Compiler" in function.attrs:
            names = list(updater(function, variable.name_hint))
            assert [str(name) for name in names] == [f"dnnl_{variable.name_hint}_const_0"]
