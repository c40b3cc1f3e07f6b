# SPDX-License-Identifier: Apache-2.0
"""Many regions in one run of TVM's compiler: one relay.build, one library, one link.

In: requests as "measure" has them, for plain TVM. Out: a library and a manifest (JSON) in a folder, from
which the process that measures makes an executor for each region. That is the code which each region by
itself would get, for a fraction of the time: kernels that regions share are compiled once, large weights
are no part of what is compiled, nor are the kernels that lay them out anew, and kernels do not check the arrays that
they are given.

This process only builds: what goes wrong here is no failure of a region. Whoever measures builds what is
missing by itself, and reports what TVM says.
"""

import contextlib
import ctypes
import gc
import json
import math
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from . import export, graph_cut, library, parameters
from .folding import laid_out
from .region import (
    POSITIVE,
    constant_array,
    identity,
    input_array,
    is_typed,
    large_constants,
    operators,
    plain,
    plugins_for,
    static_shape,
    typed,
)

# Operators whose second argument no pass looks into: as a parameter it gives the same code as a constant.
_WEIGHED = {
    "nn.conv2d",
    "nn.conv3d",
    "nn.conv1d_transpose",
    "nn.conv2d_transpose",
    "nn.conv3d_transpose",
    "nn.dense",
    "nn.matmul",
    "nn.batch_matmul",
}


def weights(function, constants):
    """Which of a function's parameters that stand for constants may stay parameters while it is compiled:
    those that only are some operator's weight, by name.
    """
    free = {constant["name"] for constant in constants}
    by_var = {var: var.name_hint for var in function.params if var.name_hint in free}

    def visit(expr):
        if isinstance(expr, relay.Call):
            weighed = isinstance(expr.op, tvm.ir.Op) and expr.op.name in _WEIGHED
            used = [argument for index, argument in enumerate(expr.args) if not (weighed and index == 1)]
        elif isinstance(expr, relay.Tuple):
            used = list(expr.fields)
        elif isinstance(expr, relay.Function):
            used = [expr.body]
        else:
            return
        for argument in used:
            if isinstance(argument, relay.Var) and argument in by_var:
                free.discard(by_var[argument])

    relay.analysis.post_order_visit(function, visit)
    return free


@contextlib.contextmanager
def _unprinted():
    """TVM 0.19 makes a text of the index expressions of each layout that it looks at, in every type
    inference, for a log that is off: a quarter of what relay.build takes. Here its table of printers is empty
    for so long; nothing else in a build prints.
    """
    table = getattr(tvm._ffi.base._LIB, "_ZN3tvm11ReprPrinter6vtableEv", None)
    if table is None:
        yield
        return
    table.restype, table.argtypes = ctypes.c_void_p, []
    # A NodeFunctor begins with the std::vector of its functions: where it begins, where it ends.
    vector = (ctypes.c_void_p * 2).from_address(table())
    end = vector[1]
    vector[1] = vector[0]
    try:
        yield
    finally:
        vector[1] = end


# What checks a kernel's arguments is a third of what LLVM has to compile, and takes nanoseconds.
_UNCHECKED = {"tir.disable_assert": True}


class _Layouts(relay.ExprMutator):
    """Takes out of a module what lays weights out anew: the result is an input, as it would be a constant.

    ``made`` says of each such input (weight, layout, its own layout), weights by name.
    """

    def __init__(self, weights):
        super().__init__()
        self._weights = weights
        self.made = {}

    def __call__(self, module):
        # Compiled again without something else, it begins anew.
        self.made, self.memo_map = {}, {}
        body = self.visit(relay.transform.InferType()(module)["main"].body)
        return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))

    def visit_call(self, call):
        weight = call.args[0] if call.args else None
        moved = isinstance(call.op, tvm.ir.Op) and call.op.name == "layout_transform" and isinstance(weight, relay.Var)
        if not moved or weight.name_hint not in self._weights:
            return super().visit_call(call)
        name = f"{weight.name_hint}_laid{len(self.made)}"
        self.made[name] = (weight.name_hint, call.attrs.src_layout, call.attrs.dst_layout)
        return relay.var(name, type_annotation=call.checked_type)


class _Piece:
    """One region on its way through the compiler."""

    def __init__(self, number, request):
        function = tvm.ir.load_json(request["function"])
        constants = request.get("constants") or []
        self.identity = identity(request, "")
        self.key = request.get("key") or ""
        self.positive = bool(operators(function) & POSITIVE)
        self.weights = {}  # name in the graph -> the constant's description
        function = plain(function)
        open_names = weights(function, constants)
        described = {constant["name"]: constant for constant in constants}
        filled = [constant for constant in constants if constant["name"] not in open_names]
        values = large_constants(function, filled, self.key, self.positive)
        if values:
            function = relay.build_module.bind_params_by_name(function, values)
        # Of each input its name in the graph and, for the values that it gets, its number, shape and dtype.
        self.inputs, self.params, bound = [], [], {}
        for index, var in enumerate(function.params):
            name = f"r{number}_{var.name_hint}"
            kind = var.checked_type if is_typed(var) else var.type_annotation
            bound[var] = relay.var(name, type_annotation=kind)
            self.params.append(bound[var])
            if var.name_hint in open_names:
                self.weights[name] = described[var.name_hint]
            else:
                self.inputs.append((name, index, *static_shape(var)))
        self.body = relay.bind(function.body, bound)


def _leaves(kind):
    if isinstance(kind, relay.TupleType):
        return sum(_leaves(field) for field in kind.fields)
    return 1


def build(request):
    """Build the regions of request["items"] into request["folder"], files named request["name"].

    Gives {"manifest": path}. Raises whatever TVM raises, of any of the regions.
    """
    items = request["items"]
    settings = (items[0].get("target") or None, items[0].get("opt_level"), items[0].get("disabled_passes"))
    pieces = [_Piece(number, item) for number, item in enumerate(items)]
    module = tvm.IRModule.from_expr(
        relay.Function([var for piece in pieces for var in piece.params], relay.Tuple([p.body for p in pieces]))
    )
    module = typed(module)
    counts = [_leaves(field) for field in module["main"].body.checked_type.fields]
    layouts = _Layouts({name for piece in pieces for name in piece.weights})
    gc.disable()
    try:
        with _unprinted():
            factory = export.build(module, *settings, lowering=_UNCHECKED, rearrange=layouts)
    finally:
        gc.enable()
    plugins = plugins_for("")
    for plugin in plugins:
        library.load_plugin(plugin)
    export.attach_threads(factory, int(items[0].get("threads") or 0))

    graph = json.loads(factory.get_graph_json())
    small = factory.get_params()
    regions, head = [], 0
    for piece, count in zip(pieces, counts, strict=True):
        laid = {name: told for name, told in layouts.made.items() if told[0] in piece.weights}
        keep = small.keys() | piece.weights.keys() | laid.keys()
        part = graph_cut.cut(graph, list(range(head, head + count)), lambda name, keep=keep: name in keep)
        head += count
        regions.append(
            {
                "identity": piece.identity,
                "key": piece.key,
                "positive": piece.positive,
                "each": part.each,
                "once": part.once,
                "folded": part.folded,
                "inputs": [told for told in piece.inputs if told[0] in part.inputs],
                "weights": piece.weights,
                "laid": laid,
                "used": sorted(set(part.inputs) | set(part.once_inputs)),
            }
        )
    base = Path(request["folder"], request["name"])
    export.link(factory.get_lib(), f"{base}.so", plugins)
    parameters.write(small, f"{base}.params")
    manifest = base.with_suffix(".json")
    manifest.write_text(json.dumps({"library": f"{base}.so", "params": f"{base}.params", "regions": regions}))
    return {"manifest": str(manifest)}


class Built:
    """One region of a loaded batch, not yet an executor."""

    def __init__(self, library, params, description):
        self._library, self._params, self._told = library, params, description
        self.identity = description["identity"]

    def executor(self):
        """(GraphModule, {input's name: value}, bytes of what it holds); constants have their values."""
        told, device = self._told, tvm.cpu()
        used = set(told["used"])
        laid = {name: each for name, each in told["laid"].items() if name in used}
        made = used | {weight for weight, *_ in laid.values()}
        values = {
            name: constant_array(c["name"], tuple(c["shape"]), c["dtype"], told["key"], told["positive"])
            for name, c in told["weights"].items()
            if name in made
        }
        values.update({name: laid_out(values[weight], *layouts) for name, (weight, *layouts) in laid.items()})
        values.update({name: value for name, value in self._params.items() if name in used})
        each = graph_executor.create(json.dumps(told["each"]), self._library, device)
        if told["once"] is not None:
            once = graph_executor.create(json.dumps(told["once"]), self._library, device)
            _fill(once, told["once"], values)
            once.run()
            for index, name in enumerate(told["folded"]):
                each.set_input(name, once.get_output(index))
        _fill(each, told["each"], values)
        shapes = told["each"]["attrs"]["shape"][1]
        inputs = {
            name: input_array(told["key"], index, shape, dtype, told["positive"])
            for name, index, shape, dtype in told["inputs"]
        }
        return each, inputs, 8 * sum(math.prod(shape) for shape in shapes)


def _fill(executor, graph, values):
    names = {node["name"] for node in graph["nodes"] if node["op"] == "null"}
    for name in names & values.keys():
        executor.set_input(name, values[name])


def load(manifest):
    """The regions of a batch as Built objects. The files stay: they are the caller's."""
    told = json.loads(Path(manifest).read_text())
    for plugin in plugins_for(""):  # the library names them, and lies beside none
        library.load_plugin(plugin)
    module = tvm.runtime.load_module(told["library"])
    params = parameters.read(told["params"])
    return [Built(module, params, description) for description in told["regions"]]
