# SPDX-License-Identifier: Apache-2.0
"""A region as it is measured: its function with values for its constants and inputs, and the plug-ins that it
needs.

In: a Relay function as pass/annotate makes it (attributes Compiler and global_symbol where it belongs to
another backend than TVM), whose large constants are parameters. Out: modules for TVM, arrays, and failures
with the phase that they happened in. The values depend on the region's key alone: every backend gets the
same.
"""

import hashlib
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from . import errors, library, shared_weights, virtual_machine, workerside
from .seeded import generator, random_array

# Operators that want positive numbers: on others both sides would answer NaN, and the check would say
# nothing.
POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "power"}


class RegionError(errors.CollageError):
    """A region failed: in which ``phase`` (setup, build, load, run, check) and of which ``kind``."""

    def __init__(self, phase, kind, detail):
        super().__init__(detail)
        self.phase = phase
        self.kind = kind


def constant_array(name, shape, dtype, key, positive=False):
    """A stand-in for a large constant: weights scaled by what enters one output, vectors positive
    (variances are).
    """
    rng = generator(key, "constant", name)
    if len(shape) < 2 or math.prod(shape) == max(shape):
        return random_array(shape, dtype, rng, positive=True)
    return random_array(shape, dtype, rng, positive, 1.0 / math.sqrt(max(1, math.prod(shape[1:]))))


def input_array(key, index, shape, dtype, positive=False):
    """The value of a region's ``index``-th parameter."""
    return random_array(shape, dtype, generator(key, "input", index), positive)


def large_constants(function, constants, key, positive):
    """{name: NDArray}: the values of a function's constants as a request describes them."""
    into = {}
    if any(constant["dtype"] in ("int32", "int64") for constant in constants):
        into = scattered_into(plain(function))
    values = {}
    for constant in constants:
        name, shape, dtype = constant["name"], tuple(constant["shape"]), constant["dtype"]
        array = places(shape, dtype, generator(key, "constant", name), into[name]) if name in into else None
        if array is None:
            array = constant_array(name, shape, dtype, key, positive)
        values[name] = tvm.nd.array(array)
    return values


def scattered_into(function):
    """{name: shape}: of the parameters of a function without composites that say where ``scatter_nd`` writes, the
    shape of what it writes into. Engines take it only where no place stands there twice.
    """
    into = {}

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name == "scatter_nd":
            data, indices, _ = expr.args
            if isinstance(indices, relay.Var):
                into[indices.name_hint] = tuple(int(dim) for dim in data.checked_type.shape)

    relay.analysis.post_order_visit(typed(tvm.IRModule.from_expr(function))["main"], visit)
    return into


def places(shape, dtype, rng, into):
    """Different places in a tensor of the shape ``into``, their coordinates first; None where it has too few."""
    slots, count = math.prod(into[: shape[0]]), math.prod(shape[1:])
    if count > slots:
        return None
    flat = rng.permutation(slots)[:count]
    return np.stack(np.unravel_index(flat, into[: shape[0]])).reshape(shape).astype(dtype)


def operators(function):
    """Names of the primitive operators in a function, those inside composite functions too."""
    names = set()

    def visit(expr):
        if isinstance(expr, tvm.ir.Op):
            names.add(expr.name)

    relay.analysis.post_order_visit(function, visit)
    return names


def static_shape(var):
    """(shape, dtype) of a parameter; a RegionError where that is not a tensor of fixed shape."""
    kind = var.checked_type if is_typed(var) else var.type_annotation
    if not isinstance(kind, relay.TensorType):
        raise RegionError("build", "error", f"input {var.name_hint} is not a tensor but {kind}")
    if any(isinstance(dim, tvm.tir.Any) for dim in kind.shape):
        raise RegionError("build", "error", f"input {var.name_hint} has a shape that is not fixed: {kind}")
    return tuple(int(dim) for dim in kind.shape), kind.dtype


def is_typed(expr):
    """Whether InferType has seen an expression."""
    try:
        return expr.checked_type is not None
    except ValueError:
        return False


class _Inline(relay.ExprMutator):
    """Composite functions replaced by their bodies."""

    def visit_call(self, call):
        if isinstance(call.op, relay.Function):
            arguments = [self.visit(argument) for argument in call.args]
            body = self.visit(call.op.body)
            return relay.bind(body, dict(zip(call.op.params, arguments, strict=True)))
        return super().visit_call(call)


def plain(function):
    """The same computation as a function for TVM: no attributes, composites inlined."""
    body = _Inline().visit(function.body)
    return relay.Function(function.params, body)


def typed(module):
    """InferType, whose error is the region's."""
    try:
        return relay.transform.InferType()(module)
    except tvm.TVMError as error:
        raise RegionError("build", "error", f"the region does not type-check: {error}") from None


class Region:
    """A region ready to be built: its constants filled in, its inputs described."""

    def __init__(self, function, constants, key):
        self.positive = bool(operators(function) & POSITIVE)
        self.key = key
        values = large_constants(function, constants, key, self.positive)
        missing = set(values) - {var.name_hint for var in function.params}
        if missing:
            raise RegionError("build", "error", f"the function has no parameter {sorted(missing)[0]}")
        # Inside the region, not beside it: weights that come as arguments are packed anew at every call.
        self.function = relay.build_module.bind_params_by_name(function, values) if values else function
        self.inputs = [static_shape(var) for var in self.function.params]

    def external(self, compiler):
        """The region as a function of another backend's, with the attributes that TVM hands it over with."""
        attrs = self.function.attrs
        symbol = str(attrs["global_symbol"]) if attrs and "global_symbol" in attrs else f"collage_{compiler}_0"
        function = self.function.with_attr("global_symbol", tvm.runtime.String(symbol))
        function = function.with_attr("Compiler", tvm.runtime.String(compiler))
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        return function.with_attr("Inline", tvm.tir.IntImm("int32", 1))

    def module(self, compiler):
        """A module whose main is the region (TVM's own) or calls it (another backend's)."""
        if not compiler:
            return typed(tvm.IRModule.from_expr(plain(self.function)))
        function = self.external(compiler)
        var = relay.GlobalVar(str(function.attrs["global_symbol"]))
        module = tvm.IRModule({var: function})
        outer = [relay.var(f"x{i}", shape=shape, dtype=dtype) for i, (shape, dtype) in enumerate(self.inputs)]
        module["main"] = relay.Function(outer, relay.Call(var, outer))
        return typed(module)

    def values(self):
        """The inputs' values: the same for the same key."""
        return [
            input_array(self.key, index, shape, dtype, self.positive)
            for index, (shape, dtype) in enumerate(self.inputs)
        ]


def identity(request, compiler):
    """What a request builds, as a text: two with the same build the same."""
    fields = ("constants", "target", "opt_level", "disabled_passes", "key", "threads")
    # Under plain TVM all backends' functions of one key are the same computation.
    function = "" if request.get("key") and not compiler else request["function"]
    return hashlib.sha256(repr([compiler, function, *(request.get(name) for name in fields)]).encode()).hexdigest()


def outputs_of(executor):
    """What an executor computed last, as numpy arrays that are the caller's."""
    if isinstance(executor, virtual_machine.Model):
        return executor.outputs()
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def spoil(array):
    """Fill an array with what no computation gives, so that elements that are never written are seen."""
    if array.dtype in ("float16", "float32", "float64"):
        array.copyfrom(np.full(array.shape, np.nan, array.dtype))
    elif re.fullmatch(r"u?int\d+", array.dtype):
        array.copyfrom(np.full(array.shape, np.iinfo(array.dtype).max - 2, array.dtype))


def spoil_outputs(executor):
    """``spoil`` what a graph executor writes its outputs into, but where that is an input (a reshape)."""
    if isinstance(executor, virtual_machine.Model):
        return  # it makes its outputs anew at each call
    given = {_address(executor.get_input(index)) for index in range(executor.get_num_inputs())}
    for index in range(executor.get_num_outputs()):
        output = executor.get_output(index)
        if _address(output) not in given:
            spoil(output)


def _address(array):
    return array.handle.contents.data


def plugins_for(compiler):
    """The runtime plug-ins that a region of ``compiler`` is linked with; those that are not built are left
    out.
    """
    plugins = [library.plugin_path("runtime")]
    found = workerside.libraries(compiler)
    if found is None and (ask := tvm.get_global_func("collage.backend.libraries", allow_missing=True)):
        found = [str(path) for path in ask(compiler)]
    plugins += [library.plugin_path(compiler) if compiler else None] if found is None else found
    return [path for path in plugins if path]


def load_executor(path):
    """Open an exported model, a .so, a .tar, or a folder of collage package, with the plug-ins of this installation: as
    a GraphModule, or as a virtual_machine.Model. What is no model raises ValueError.
    """
    library.load()
    prepare = tvm.get_global_func("collage.prepare_model")
    with tempfile.TemporaryDirectory(prefix="collage-load-") as folder:
        files = tvm.get_global_func("collage.model_files")(str(Path(path).resolve()), folder)
        library_file, graph, weights = map(str, files)
        prepare(library_file)
        loaded = _loaded(library_file, folder)
        if loaded.type_key == virtual_machine.TYPE:
            return virtual_machine.Model.loaded(loaded, library_file)
        if graph:
            executor = shared_weights.of_parts(Path(graph).read_text(), loaded, weights)
        else:
            executor = shared_weights.of_library(loaded)
        del loaded
    shared_weights.trim()
    return executor


def _loaded(library_file, folder):
    """The runtime module of a library. The system's loader gives what it has by a name already, also where another file
    has taken the place of the one that it has (a model that was compiled anew, while the former one is in use): then it
    is asked for a link in ``folder``. A file that it has by another name it knows.
    """
    if f" {library_file} (deleted)\n" not in Path("/proc/self/maps").read_text():
        return tvm.runtime.load_module(library_file)
    link = Path(folder) / "library.so"
    link.symlink_to(library_file)
    # tvm.runtime.load_module would follow the link.
    return tvm.get_global_func("runtime.ModuleLoadFromFile")(str(link), "so")


def in_phase(phase, function, *arguments):
    """Call a function; what it raises becomes a RegionError of that phase."""
    try:
        return function(*arguments)
    except (RegionError, MemoryError):
        raise
    except Exception as error:
        raise RegionError(phase, kind_of(error), in_short(error)) from error


def kind_of(error):
    """What an exception means: TVM and libraries say in words that memory is short."""
    text = str(error).lower()
    short = "bad_alloc" in text or "out of memory" in text or "cannot allocate memory" in text
    return "out-of-memory" if short else "error"


def in_short(error, limit=2000):
    """What an error says, without TVM's C++ stack."""
    text = str(error).strip() or errors.python_name(error)
    match = re.search(r"(?:^|\n)\s*(?:\w+Error|Check failed|InternalError): [^\n]*", text)
    lines = text.splitlines()
    said = match.group(0).strip() if match else (lines[-1].strip() if lines else text)
    return f"{errors.python_name(error)}: {said}"[:limit]


def is_parameter(name):
    """Whether a graph's input is a constant that relay.build named (p0, p1, ...)."""
    return re.fullmatch(r"p\d+", name) is not None


def model_inputs(executor):
    """{name: (shape, dtype)} of what a loaded model asks its user for."""
    shapes, dtypes = executor.get_input_info()
    names = [name for name in shapes if not is_parameter(name)] or list(shapes)
    return {name: (tuple(int(dim) for dim in shapes[name]), str(dtypes[name])) for name in sorted(names)}
