# SPDX-License-Identifier: Apache-2.0
"""Build, run, check and time one region, or compare whole models. What the measuring worker does, without
its protocol.

In: a Relay function as pass/annotate makes it (attributes Compiler and global_symbol where it belongs to
another backend than TVM), whose large constants are parameters. Out: samples of its latency in
milliseconds, and how far its result is from plain TVM's.
"""

import hashlib
import math
import os
import re
import tarfile
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from . import export, library, workerside

# Operators that want positive numbers: on others both sides would answer NaN, and the check would say
# nothing.
_POSITIVE = {"sqrt", "rsqrt", "log", "log2", "log10", "power"}

# What is kept of regions that were built: how many, and bytes of reference outputs. The oldest go first.
_KEPT_REGIONS = 64
_REFERENCE_BYTES = 256 << 20

# A region leaks whose every further block of runs takes at least so much more memory.
_LEAK_BYTES = 64 << 10
_LEAK_BLOCKS = 4
# A block of runs takes about as long.
_LEAK_SECONDS = 0.1


class RegionError(Exception):
    """A region failed: in which ``phase`` (setup, build, load, run, check) and of which ``kind``."""

    def __init__(self, phase, kind, detail):
        super().__init__(detail)
        self.phase = phase
        self.kind = kind


def generator(*parts):
    """A random generator that depends on ``parts`` only, so that a key always gets the same numbers."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode("utf-8")).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest[:16], "little")))


def random_array(shape, dtype, rng, positive=False, scale=1.0):
    """Values that suit most operators: normal for floats, 0 or 1 for integers (valid as indices too)."""
    if dtype.startswith(("float", "bfloat")):
        array = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        if positive:
            array = np.abs(array) + np.float32(0.1)
        return array.astype(dtype)
    return rng.integers(0, 2, size=shape).astype(dtype)


def constant_array(name, shape, dtype, key, positive=False):
    """A stand-in for a large constant: weights scaled by what enters one output, vectors positive
    (variances are).
    """
    rng = generator(key, "constant", name)
    if len(shape) < 2 or math.prod(shape) == max(shape):
        return random_array(shape, dtype, rng, positive=True)
    return random_array(shape, dtype, rng, positive, 1.0 / math.sqrt(max(1, math.prod(shape[1:]))))


def operators(function):
    """Names of the primitive operators in a function, those inside composite functions too."""
    names = set()

    def visit(expr):
        if isinstance(expr, tvm.ir.Op):
            names.add(expr.name)

    relay.analysis.post_order_visit(function, visit)
    return names


def _static_shape(var):
    kind = var.checked_type if _is_typed(var) else var.type_annotation
    if not isinstance(kind, relay.TensorType):
        raise RegionError("build", "error", f"input {var.name_hint} is not a tensor but {kind}")
    if any(isinstance(dim, tvm.tir.Any) for dim in kind.shape):
        raise RegionError("build", "error", f"input {var.name_hint} has a shape that is not fixed: {kind}")
    return tuple(int(dim) for dim in kind.shape), kind.dtype


def _is_typed(expr):
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


class Region:
    """A region ready to be built: its constants filled in, its inputs described."""

    def __init__(self, function, constants, key):
        self.positive = bool(operators(function) & _POSITIVE)
        self.key = key
        values = {
            constant["name"]: tvm.nd.array(
                constant_array(
                    constant["name"], tuple(constant["shape"]), constant["dtype"], key, self.positive
                )
            )
            for constant in constants
        }
        missing = set(values) - {var.name_hint for var in function.params}
        if missing:
            raise RegionError("build", "error", f"the function has no parameter {sorted(missing)[0]}")
        # Inside the region, not beside it: weights that come as arguments are packed anew at every call.
        self.function = relay.build_module.bind_params_by_name(function, values) if values else function
        self.inputs = [_static_shape(var) for var in self.function.params]

    def module(self, compiler):
        """A module whose main is the region (TVM's own) or calls it (another backend's)."""
        if not compiler:
            return self._typed(tvm.IRModule.from_expr(plain(self.function)))
        attrs = self.function.attrs
        symbol = (
            str(attrs["global_symbol"]) if attrs and "global_symbol" in attrs else f"collage_{compiler}_0"
        )
        function = self.function.with_attr("global_symbol", tvm.runtime.String(symbol))
        function = function.with_attr("Compiler", tvm.runtime.String(compiler))
        function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
        function = function.with_attr("Inline", tvm.tir.IntImm("int32", 1))
        var = relay.GlobalVar(symbol)
        module = tvm.IRModule({var: function})
        outer = [relay.var(f"x{i}", shape=shape, dtype=dtype) for i, (shape, dtype) in enumerate(self.inputs)]
        module["main"] = relay.Function(outer, relay.Call(var, outer))
        return self._typed(module)

    @staticmethod
    def _typed(module):
        try:
            return relay.transform.InferType()(module)
        except tvm.TVMError as error:
            raise RegionError("build", "error", f"the region does not type-check: {error}") from None

    def values(self):
        """The inputs' values: the same for the same key."""
        return [
            random_array(shape, dtype, generator(self.key, "input", index), self.positive)
            for index, (shape, dtype) in enumerate(self.inputs)
        ]


def _outputs(executor):
    return [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]


def _run(executor, values):
    # main's parameters are the first of the graph's inputs, in order.
    for index, value in enumerate(values):
        executor.set_input(index, value)
    executor.run()
    return _outputs(executor)


class Artefact:
    """A region that is built and loaded, with what is known about running it."""

    def __init__(self, region, executor):
        self.region = region
        self.executor = executor
        self.number = None  # runs in one sample

    def outputs(self):
        """The outputs for the inputs that belong to the region's key."""
        return _run(self.executor, self.region.values())


class Artefacts:
    """Regions that were built, and plain TVM's answers by key, so that nothing is built twice in a row."""

    def __init__(self, count=_KEPT_REGIONS, reference_bytes=_REFERENCE_BYTES):
        self._built = OrderedDict()
        self._count = count
        self._outputs = OrderedDict()
        self._limit = reference_bytes
        self._bytes = 0

    def get(self, request, compiler, built=None):
        """The region of a request as an Artefact; builds it where it is not kept. ``built`` gets the
        seconds.
        """
        identity = _identity(request, compiler)
        seconds = 0.0
        if identity in self._built:
            self._built.move_to_end(identity)
        else:
            started = time.perf_counter()
            self._built[identity] = _build(request, compiler)
            seconds = time.perf_counter() - started
            while len(self._built) > self._count:
                self._built.popitem(last=False)
        if built:
            built(seconds)
        artefact = self._built[identity]
        if artefact.executor is None:
            try:
                artefact.executor = _in_phase("load", load_executor, artefact.path)
            except BaseException:
                del self._built[identity]
                raise
            finally:
                # What is loaded stays loaded; a worker that is killed later leaves nothing behind.
                os.unlink(artefact.path)
        return artefact

    def drop(self, request, compiler):
        """Forget a region that did harm."""
        self._built.pop(_identity(request, compiler), None)

    def reference(self, request):
        """The outputs of a request's region under plain TVM."""
        key = (request.get("key") or "", request.get("target") or "")
        if key in self._outputs:
            self._outputs.move_to_end(key)
            return self._outputs[key]
        outputs = self.get(request, "").outputs()
        self._outputs[key] = outputs
        self._bytes += sum(output.nbytes for output in outputs)
        while self._bytes > self._limit and len(self._outputs) > 1:
            self._bytes -= sum(output.nbytes for output in self._outputs.popitem(last=False)[1])
        return outputs


def _identity(request, compiler):
    fields = ("constants", "target", "opt_level", "disabled_passes", "key", "threads")
    # Under plain TVM all backends' functions of one key are the same computation.
    function = "" if request.get("key") and not compiler else request["function"]
    return hashlib.sha256(
        repr([compiler, function, *(request.get(name) for name in fields)]).encode()
    ).digest()


def difference(got, expected, rtol, atol):
    """Compare lists of arrays: (largest absolute error, None or a text that says where they differ).

    An element differs where |got - expected| > atol + rtol * |expected|. Equal infinities and NaN in the
    same place count as equal.
    """
    if len(got) != len(expected):
        return math.inf, f"{len(got)} outputs where {len(expected)} were expected"
    largest = 0.0
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return math.inf, f"output {number} is {one.dtype}{one.shape} and not {other.dtype}{other.shape}"
        if not one.size:
            continue
        a, b = one.astype("float64"), other.astype("float64")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            error = np.where(same, 0.0, np.abs(a - b))
        error = np.where(np.isnan(error), np.inf, error)
        largest = max(largest, float(error.max()))
        wrong = error > atol + rtol * np.where(np.isfinite(b), np.abs(b), 0.0)
        if wrong.any():
            place = tuple(
                int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), a.shape)
            )
            return largest, (
                f"output {number} differs in {int(wrong.sum())} of {a.size} elements, "
                f"most at {list(place)}: {one[place]!s} instead of {other[place]!s}"
            )
    return largest, None


def _tolerances(request, expected, rtol):
    """(rtol, atol) of a request; where it says nothing (or 0), defaults from what is expected.

    "atol_of_greatest" is a share of the greatest expected value: sums of both signs cancel, and what is small
    beside the greatest value has no digits of its own.
    """
    scale = max(
        (float(np.abs(np.nan_to_num(o.astype("float64"))).max()) for o in expected if o.size), default=0.0
    )
    atol = request.get("atol") or (request.get("atol_of_greatest") or 1e-5) * scale
    return request.get("rtol") or rtol, atol


def _has_new_nan(got, expected):
    return any(
        np.issubdtype(one.dtype, np.floating) and np.isnan(one).any() and not np.isnan(other).any()
        for one, other in zip(got, expected, strict=False)
    )


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


def _load(path, factory):
    """The executor of a factory whose library was exported to ``path``."""
    executor = graph_executor.create(factory.get_graph_json(), tvm.runtime.load_module(path), tvm.cpu())
    executor.set_input(**factory.get_params())
    return executor


def load_executor(path):
    """Load an exported model, .so or .tar, as a GraphModule."""
    path = Path(path)
    if path.suffix != ".tar":
        return graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](tvm.cpu()))
    with tempfile.TemporaryDirectory(prefix="collage-load-") as folder:
        with tarfile.open(path) as tar:
            for name in ("mod.so", "mod.json", "mod.params"):
                tar.extract(name, folder, filter="data")
        loaded = tvm.runtime.load_module(os.path.join(folder, "mod.so"))
        executor = graph_executor.create(Path(folder, "mod.json").read_text(), loaded, tvm.cpu())
        executor.load_params(Path(folder, "mod.params").read_bytes())
    return executor


def _runs(executor, min_sample_ms):
    """How many runs fill ``min_sample_ms``."""
    # time_evaluator itself makes a run before, untimed.
    once = executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=1)().mean
    return max(1, math.ceil(min_sample_ms / 1000.0 / max(once, 1e-7)))


def sample(artefact, samples, min_sample_ms):
    """Latency samples in ms; each is the mean of as many runs as fill ``min_sample_ms``."""
    timer = artefact.executor.module.time_evaluator
    if artefact.number is None:
        once = timer("run", tvm.cpu(), number=1, repeat=2)().results
        artefact.number = max(1, math.ceil(min_sample_ms / 1000.0 / max(min(once), 1e-7)))
    results = timer("run", tvm.cpu(), number=artefact.number, repeat=samples)().results
    return [1000.0 * result for result in results]


def _resident():
    """This process's memory in bytes; 0 where it cannot be known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def leak(artefact, grown, run_ms):
    """Bytes that each run of a region leaves behind, as far as that is certain; 0 where it is not.

    ``grown`` is by how much the process grew while the region was timed: caches and pools grow, too, but
    stop.
    """
    if grown < _LEAK_BYTES:
        return 0
    runs = max(1, min(100_000, math.ceil(1000.0 * _LEAK_SECONDS / max(run_ms, 1e-6))))
    timer = artefact.executor.module.time_evaluator("run", tvm.cpu(), number=runs, repeat=1)
    before = first = _resident()
    for _ in range(_LEAK_BLOCKS):
        timer()
        now = _resident()
        if now - before < _LEAK_BYTES:
            return 0
        before = now
    return (before - first) // (_LEAK_BLOCKS * runs) or 1


def _build(request, compiler):
    """Build and link a region; its executor is loaded later, from ``path``."""
    settings = (request.get("target") or None, request.get("opt_level"), request.get("disabled_passes"))
    try:
        function = tvm.ir.load_json(request["function"])
        region = Region(function, request.get("constants") or [], request.get("key") or "")
        factory = export.build(region.module(compiler), *settings)
        plugins = plugins_for(compiler)
        for plugin in plugins:
            library.load_plugin(plugin)
        threads = int(request.get("threads") or 0)
        if not export.attach_threads(factory, threads) and threads:
            # Without the plug-in TVM's own pool runs the loops; 1 is its mode "prefer the big cores".
            tvm.get_global_func("runtime.config_threadpool")(1, threads)
        artefact = Artefact(region, None)
        handle, artefact.path = tempfile.mkstemp(prefix="collage-region-", suffix=".so")
        os.close(handle)
        try:
            export.link(factory, artefact.path, plugins)
        except BaseException:
            os.unlink(artefact.path)
            raise
        return artefact
    except (RegionError, MemoryError):
        raise
    except Exception as error:
        raise RegionError("build", _kind(error), _short(error)) from error


def measure(request, artefacts, built=None):
    """Do what one "measure" request asks; returns the fields of its result. Calls ``built(seconds)`` after
    the build.
    """
    compiler = request.get("compiler") or ""
    if compiler:
        # Not the candidate's fault: the phase "setup" says that the backend cannot be used.
        _in_phase("setup", library.install, compiler)
    artefact = artefacts.get(request, compiler, built)
    largest = None
    if not request.get("again"):
        outputs = _in_phase("run", artefact.outputs)
        if request.get("check"):
            expected = _in_phase("check", artefacts.reference, request) if compiler else outputs
            if _has_new_nan(outputs, expected):
                raise RegionError(
                    "check", "not-a-number", "the result holds NaN where plain TVM's holds numbers"
                )
            largest, mismatch = difference(outputs, expected, *_tolerances(request, expected, 1e-3))
            if mismatch:
                raise RegionError("check", "wrong-result", mismatch)
    before = _resident()
    times = _in_phase(
        "run", sample, artefact, int(request.get("samples") or 10), float(request.get("min_sample_ms") or 2.0)
    )
    if compiler:
        lost = _in_phase("run", leak, artefact, _resident() - before, min(times))
        if lost:
            artefacts.drop(request, compiler)
            raise RegionError("run", "leak", f"each run leaves about {_size(lost)} behind that is not freed")
    return {"samples_ms": times, "max_abs_error": largest, "mismatch": None}


def _size(count):
    return f"{count} bytes" if count < 10_000 else f"{count >> 10} KiB"


def _in_phase(phase, function, *arguments):
    try:
        return function(*arguments)
    except (RegionError, MemoryError):
        raise
    except Exception as error:
        raise RegionError(phase, _kind(error), _short(error)) from error


def _kind(error):
    """What an exception means: TVM and libraries say in words that memory is short."""
    text = str(error).lower()
    short = "bad_alloc" in text or "out of memory" in text or "cannot allocate memory" in text
    return "out-of-memory" if short else "error"


def _short(error, limit=2000):
    """What an error says, without TVM's C++ stack."""
    text = str(error).strip() or type(error).__name__
    match = re.search(r"(?:^|\n)\s*(?:\w+Error|Check failed|InternalError): [^\n]*", text)
    lines = text.splitlines()
    said = match.group(0).strip() if match else (lines[-1].strip() if lines else text)
    return f"{type(error).__name__}: {said}"[:limit]


def is_parameter(name):
    """Whether a graph's input is a constant that relay.build named (p0, p1, ...)."""
    return re.fullmatch(r"p\d+", name) is not None


def model_inputs(executor):
    """{name: (shape, dtype)} of what a loaded model asks its user for."""
    shapes, dtypes = executor.get_input_info()
    names = [name for name in shapes if not is_parameter(name)] or list(shapes)
    return {name: (tuple(int(dim) for dim in shapes[name]), str(dtypes[name])) for name in sorted(names)}


def compare(request, progress=None):
    """Do what one "compare" request asks: run whole models in turn on the same inputs; the first is the
    reference.
    """
    models = request["models"]
    threads = int(request.get("threads") or 0)
    if threads and library.plugin_path("runtime") is None:
        tvm.get_global_func("runtime.config_threadpool")(1, threads)
    executors = OrderedDict()
    for model in models:
        executors[model["name"]] = _in_phase("load", load_executor, model["path"])
    first = next(iter(executors))
    inputs = {
        name: random_array(shape, dtype, generator(request.get("seed") or 0, "input", name))
        for name, (shape, dtype) in model_inputs(executors[first]).items()
    }

    outputs = {}
    for name, executor in executors.items():

        def run(executor=executor):
            for key, value in inputs.items():
                executor.set_input(key, value)
            executor.run()
            return _outputs(executor)

        outputs[name] = _in_phase("run", run)

    equal = {}
    rtol, atol = _tolerances(request, outputs[first], 1e-4)
    for name in list(executors)[1:]:
        largest, mismatch = difference(outputs[name], outputs[first], rtol, atol)
        equal[name] = {"max_abs_error": largest if math.isfinite(largest) else None, "ok": mismatch is None}
        if mismatch:
            equal[name]["mismatch"] = mismatch

    min_ms = float(request.get("min_sample_ms") or 2.0)
    timers = {}
    for name, executor in executors.items():
        number = _runs(executor, min_ms)
        timers[name] = executor.module.time_evaluator("run", tvm.cpu(), number=number, repeat=1)
    samples = {name: [] for name in executors}
    for round_number in range(int(request.get("rounds") or 20)):
        for name, timer in timers.items():
            samples[name].append(1000.0 * timer().results[0])
        if progress:
            progress(round_number + 1)
    return {"samples_ms": samples, "outputs_equal": equal}
