# SPDX-License-Identifier: Apache-2.0
"""The grid of expressions that are offloaded to OpenVINO, and why it may not be there."""

import importlib.util
import os

import grid
import tvm
from tvm import relay

COMPILER = "collage_openvino"
run = grid.run


def why_not():
    """Why OpenVINO cannot be used; "" where it can."""
    if os.environ.get("COLLAGE_OPENVINO_LIBRARY"):
        return ""
    if importlib.util.find_spec("openvino"):
        return ""
    return "OpenVINO is not installed: make backends BACKENDS=openvino"


class Grid(grid.Grid):
    """Cases, each with the operators that OpenVINO is to take of it."""

    library = "OpenVINO"
    atol = 2e-5

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Random values; whole numbers and truth values where the dtype has no others."""
        if dtype == "bool":
            return self.random.randint(0, 2, shape).astype("bool")
        if dtype.startswith(("int", "uint")):
            return self.random.randint(int(low), int(high) + 1, shape).astype(dtype)
        return self.random.uniform(low, high, shape).astype(dtype)

    def offloaded(self, placed):
        return offloaded(placed)


def regions(module, compiler=COMPILER):
    """The functions of a partitioned module that belong to a backend."""
    return grid.regions(module, compiler)


def offloaded(module, compiler=COMPILER):
    """Names of the operators in the module's regions, as often as they stand there."""
    names = []

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.append(node.op.name)

    for region in regions(module, compiler):
        relay.analysis.post_order_visit(region, visit)
    return names
