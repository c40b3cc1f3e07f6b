# SPDX-License-Identifier: Apache-2.0
"""Regions as CollagePartition writes them, beside those that TVM's own passes make of the same operators."""

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard

pytestmark = [pytest.mark.usefixtures("loaded"), pytest.mark.fast]


@pytest.fixture(scope="module")
def loaded(collage_library):
    """libcollage in this process."""
    import collage

    return collage.library.load()


def weight(*shape):
    values = np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)
    return relay.const(values * np.float32(0.1))


def conv(x, channels=8):
    return relay.nn.conv2d(x, weight(channels, 8, 3, 3), padding=1, channels=channels, kernel_size=(3, 3))


def plain_chain(x):
    return relay.nn.relu(relay.add(conv(x), weight(8, 1, 1)))


def residual(x):
    first = plain_chain(x)
    return relay.nn.relu(relay.add(relay.add(conv(first), weight(8, 1, 1)), first))


def alone(x):
    return relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(plain_chain(x))))


def theirs(module):
    """MergeComposite, AnnotateTarget and PartitionGraph with the patterns that are needed here."""
    biased = is_op("add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard())
    table = [
        ("dnnl.conv2d_bias_sum_relu", is_op("nn.relu")(is_op("add")(biased, wildcard()))),
        ("dnnl.conv2d_bias_relu", is_op("nn.relu")(biased)),
    ]
    return tvm.transform.Sequential(
        [
            relay.transform.MergeComposite(table),
            relay.transform.AnnotateTarget("dnnl"),
            relay.transform.PartitionGraph(),
        ]
    )(module)


def calls(module):
    """The regions in the order in which main calls them."""
    found = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            found.append(module[expr.op])

    relay.analysis.post_order_visit(module["main"].body, visit)
    return found


def unnamed(function):
    """The function under one name for all: PartitionGraph counts what it does not keep."""
    assert str(function.attrs["global_symbol"]).startswith("tvmgen_default_dnnl_main_")
    return function.with_attr("global_symbol", tvm.runtime.String("region"))


@pytest.mark.parametrize("network", [plain_chain, residual, alone])
def test_regions_are_those_of_partition_graph(network):
    import collage

    x = relay.var("x", shape=(1, 8, 14, 14), dtype="float32")
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], network(x))))
    ours = calls(collage.transform.CollagePartition(backends=["tvm", "dnnl_tvm"], only="dnnl_tvm")(module))
    expected = calls(theirs(module))
    assert len(ours) == len(expected) > 0
    for one, other in zip(ours, expected, strict=True):
        tvm.ir.assert_structural_equal(unnamed(one), unnamed(other))
        assert [p.name_hint.rsplit("_", 1)[1] for p in one.params] == [
            p.name_hint.rsplit("_", 1)[1] for p in other.params
        ]
