# SPDX-License-Identifier: Apache-2.0
"""The grid of expressions that are given to ONNX Runtime, each of them whole or not at all."""

import grid
import numpy as np

COMPILER = "collage_onnxruntime"
operators = grid.operators


class Grid(grid.Grid):
    """Cases that ONNX Runtime is to take whole, or to leave alone."""

    library = "ONNX Runtime"

    def array(self, shape, dtype="float32", low=-1.0, high=1.0):
        """Numbers between low and high; whole ones below high for integers."""
        if dtype == "bool":
            return self.random.randint(0, 2, shape).astype("bool")
        if dtype.startswith(("int", "uint")):
            return self.random.randint(int(low), int(high), shape).astype(dtype)
        return np.asarray(self.random.uniform(low, high, shape)).astype(dtype)

    def offloaded(self, placed):
        return offloaded(placed)

    def add(self, name, expression, taken=True, rtol=1e-4, atol=None):
        """Add a case that the engine is to take whole, or to leave alone."""
        super().add(name, expression, *(operators(expression) if taken else ()), rtol=rtol, atol=atol)

    def check(self, partition, least):
        """As of grid.Grid; there must be ``least`` cases."""
        assert len(self.names) >= least, f"only {len(self.names)} cases"
        return super().check(partition)


def regions(module):
    """The module's functions that the engine runs."""
    return grid.regions(module, COMPILER)


def offloaded(module):
    """The operators in the module's regions."""
    return [name for function in regions(module) for name in operators(function.body)]
