# SPDX-License-Identifier: Apache-2.0
"""Which steps the regions of our oneDNN runtime took: counted while they run, as a profile tells them."""

import json
from collections import Counter

import numpy as np
import tvm
from grid import built, outputs
from tvm import relay


class Steps(Counter):
    """How many steps of each kind the regions took that a grid's check ran, by the first word."""

    def __init__(self, grid, partition):
        super().__init__()
        load_runtime(partition)

        def profiled(module):
            executor = built(module, grid.inputs)
            timed, taken = profile(lambda: outputs(executor))
            self.update(step["what"].split()[0] for step in taken)
            # Steps that are timed run one by one, the others on threads that stay together.
            together = outputs(executor)
            for a, b in zip(timed, together, strict=True):
                np.testing.assert_array_equal(a, b)
            return together

        grid.run = profiled
        grid.check(partition)


def profile(run):
    """What ``run()`` gives, and the steps that regions took meanwhile."""
    given, told = profiled_regions(run)
    return given, [step for steps in told.values() for step in steps]


def profiled_regions(run):
    """What ``run()`` gives, and the steps that each region took meanwhile, by its symbol."""
    switch = tvm.get_global_func("collage.runtime.ProfileRegions")
    switch(True)
    try:
        given = run()
        told = json.loads(str(tvm.get_global_func("collage.runtime.RegionProfile")()))
    finally:
        switch(False)
    return given, {symbol: one["steps"]["steps"] for symbol, one in told.items()}


def load_runtime(partition):
    """Bring the runtime into this process, as the code generator does."""
    x = relay.var("x", shape=(2, 3))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    relay.build(partition(module), "llvm")
