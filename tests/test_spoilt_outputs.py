# SPDX-License-Identifier: Apache-2.0
"""What is filled in before outputs are checked: every output that is computed, and nothing that is read."""

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")

from collage import export, region  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402

pytestmark = pytest.mark.fast


def executor_of(*outputs, of):
    module = tvm.IRModule.from_expr(relay.Function(of, relay.Tuple(list(outputs))))
    return graph_executor.GraphModule(export.build(module)["default"](tvm.cpu()))


def test_outputs_that_are_inputs_stay():
    """A result may be an input, a view of one, or a constant."""
    x = relay.var("x", shape=(2, 6))
    constant = np.arange(4, dtype="float32")
    results = [
        x,
        relay.reshape(x, (3, 4)),
        relay.const(constant),
        relay.reshape(relay.const(constant), (2, 2)),
    ]
    results += [relay.nn.relu(x), relay.cast(x, "int32"), relay.cast(x, "float16"), x > relay.const(0.0)]
    executor = executor_of(*results, of=[x])
    data = np.array([[1, -2, 3, -4, 5, 6], [7, 8, -9, 10, 11, 12]], "float32")
    executor.set_input("x", data)
    for _ in range(2):
        region.spoil_outputs(executor)
        executor.run()
        got = region.outputs_of(executor)
        wanted = [data, data.reshape(3, 4), constant, constant.reshape(2, 2), np.maximum(data, 0)]
        wanted += [data.astype("int32"), data.astype("float16"), data > 0]
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_is_computed_is_spoilt():
    x = relay.var("x", shape=(2, 6))
    executor = executor_of(relay.nn.relu(x), relay.cast(x, "int8"), of=[x])
    executor.set_input("x", np.ones((2, 6), "float32"))
    executor.run()
    region.spoil_outputs(executor)
    floats, integers = region.outputs_of(executor)
    assert np.isnan(floats).all()
    assert (integers == 125).all()
