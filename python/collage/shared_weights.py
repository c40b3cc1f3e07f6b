# SPDX-License-Identifier: Apache-2.0
"""Graph executors whose weights are held once by all copies of a model in the process.

In: what was opened of an exported model. Out: a GraphModule of TVM's. Which memory is shared, and how it is found, is
``byoc/runtime/shared_parameters.cc``'s; a runtime plug-in that is older than it opens models as TVM does, each with a
set of its own. A run writes to no weight. Whoever sets one by this module's functions gets a copy of it first; those of
``executor.module`` go past that, and would set it for all.
"""

from pathlib import Path

import tvm
from tvm.contrib import graph_executor

from . import parameters


class Model(graph_executor.GraphModule):
    """TVM's GraphModule, of which the inputs ``weights`` (names) may be shared with others."""

    def __init__(self, module, weights):
        super().__init__(module)
        self._weights = set(weights)
        self._own = {}  # weights that were set since: name -> array
        self._get_shared = self._get_input
        self._get_input = self._input

    def _name(self, key):
        """The weight that a name or the number of an input means; None for any other input."""
        if isinstance(key, int):
            index = self.module["get_input_index"]
            return next((name for name in self._weights if index(name) == key), None)
        return key if key in self._weights else None

    def _input(self, key):
        name = self._name(key)
        return self._own[name] if name in self._own else self._get_shared(key)

    def set_input(self, key=None, value=None, **params):
        """As TVM's. A weight is this model's own from then on."""
        for name in {self._name(one) for one in (key, *params) if one is not None} - {None} - self._own.keys():
            self._own[name] = self._get_shared(name).copyto(tvm.cpu())
            self.module["set_input_zero_copy"](name, self._own[name])
        super().set_input(key, value, **params)

    def load_params(self, params_bytes):
        """As TVM's; the weights are this model's own from then on."""
        self.set_input(**tvm.runtime.load_param_dict(params_bytes))

    def get_input_info(self):
        """As TVM's, without the weights."""
        return tuple(
            {name: one for name, one in info.items() if name not in self._weights} for info in super().get_input_info()
        )


def _shared(name):
    return tvm.get_global_func(f"collage.runtime.{name}", allow_missing=True)


def trim():
    """Have the heap give back what a model came in, once that was let go of: of many copies, many times the weights."""
    function = _shared("Trim")
    if function is not None:
        function()


def of_library(factory):
    """The executor of a library with TVM's executor factory in it."""
    create = _shared("Open")
    if create is None or factory.type_key != "GraphExecutorFactory":
        return graph_executor.GraphModule(factory["default"](tvm.cpu()))
    device = tvm.cpu()
    return Model(create(factory, device.device_type, device.device_id), factory["get_graph_params"]().keys())


def of_parts(graph, functions, weights):
    """The executor of a graph (JSON), the module with its functions, and its weights, the file as TVM saves them."""
    create = _shared("OpenParts")
    if create is None:
        executor = graph_executor.create(graph, functions, tvm.cpu())
        executor.load_params(Path(weights).read_bytes())
        return executor
    arrays, device = parameters.read(weights), tvm.cpu()
    return Model(create(graph, functions, arrays, device.device_type, device.device_id), arrays.keys())
