# SPDX-License-Identifier: Apache-2.0
"""TVM's own CollagePartition (a prototype for GPUs) at work on a processor, with oneDNN.

It has the same backends and patterns as Collage with the backends tvm and dnnl_tvm, and is made to work
through its own interfaces, as far as it has them:

- Its estimator calls nvcc. A CustomCostEstimator stands in, a copy of it that links with the C++ compiler,
  with its own counts of runs (MEASURE_NUMBER, MEASURE_REPEAT, WARMUP_MIN_REPEAT_MS).
- There is no TargetKind "dnnl", and no interface registers one from Python: libtvm's
  TargetKindRegEntry::RegisterOrGet and UpdateAttr are called by their mangled names, with what
  TVM_REGISTER_TARGET_KIND would set (device type CPU, is_external_codegen).
- make_byoc_partition_rule is registered anew, with Collage's table of patterns (collage.patterns.table_of):
  each pattern as tvm.relay.dataflow_pattern, with a predicate that says where Collage's own matcher and the
  backend's limits allow it. Its operators that oneDNN expects without a Composite function are unwrapped
  before they are built.
- relay.ext.dnnl and the oneDNN runtime are Collage's. The graph executor cannot build the result, so it is
  built and run with the VM.
- It is to be run in a process of its own, which can be ended: on large graphs it takes long before it
  estimates anything, where no exception can stop it. The estimator gives up, too (TimeoutError).
"""

import ctypes
import math
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.relay import collage as prototype

from .. import export, library, patterns, region, target, transform

# Collage's name, and the Compiler attribute: the target kind of TVM's pass.
BACKEND, COMPILER = "dnnl_tvm", "dnnl"
# How deep TVM's pass fuses TVM's operators, and how long its search may take.
DEPTH = 4
SECONDS = 1800.0


def register_target_kind(name):
    """What TVM_REGISTER_TARGET_KIND(name, kDLCPU).set_attr<Bool>("is_external_codegen", true) would do."""
    if name in tvm.target.Target.list_kinds():
        return
    libtvm = tvm._ffi.base._LIB
    register = libtvm._ZN3tvm18TargetKindRegEntry13RegisterOrGetERKNS_7runtime6StringE
    register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    update = libtvm._ZN3tvm18TargetKindRegEntry10UpdateAttrERKNS_7runtime6StringENS1_11TVMRetValueEi
    update.restype, update.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    kept = []

    def reference(thing):
        """The address of a tvm::ObjectRef that refers to a Python-held object, which lives for ever."""
        cell = ctypes.c_void_p(thing.handle.value)
        header = (ctypes.c_int32 * 2).from_address(thing.handle.value)  # type index, reference count
        header[1] += 1
        kept.extend([thing, cell])
        return ctypes.addressof(cell)

    def text(value):
        return reference(tvm.runtime.container.String(value).__tvm_object__)

    entry = register(text(name))
    # TargetKindRegEntry begins with its TargetKind; a TargetKindNode is: header (16 bytes), name, default
    # device type (int), default keys (Array).
    node = ctypes.c_void_p.from_address(entry).value
    ctypes.c_void_p.from_address(node + 16).value = ctypes.c_void_p.from_address(text(name)).value
    ctypes.c_int32.from_address(node + 24).value = 1
    keys = reference(tvm.runtime.convert([]))
    ctypes.c_void_p.from_address(node + 32).value = ctypes.c_void_p.from_address(keys).value

    class ReturnValue(ctypes.Structure):
        _fields_ = (("value", ctypes.c_int64), ("code", ctypes.c_int))

    boxed = ReturnValue(1, 0)  # an integer, which converts to TVM's Bool
    kept.append(boxed)
    update(entry, text("is_external_codegen"), ctypes.addressof(boxed), 10)
    register_target_kind.kept = kept


def rule_maker(table):
    """tvm.relay.collage.make_byoc_partition_rule with a table of Collage's."""

    def make_rule(compiler):
        api = prototype.collage._ffi_api
        rules = [
            api.MakeLabelledDFPatternPartitionRuleWithPredicate(compiler, composite, pattern, predicate)
            for composite, pattern, predicate, _ in table
        ]
        return api.MakePatternBYOCPartitionRule(compiler, rules)

    return make_rule


class Unwrap(relay.ExprMutator):
    """Calls of Composite functions of these names replaced by what is in them."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def visit_call(self, call):
        inner = call.op
        if isinstance(inner, relay.Function) and inner.attrs and inner.attrs.get_str("Composite") in self.names:
            arguments = [self.visit(argument) for argument in call.args]
            return relay.bind(self.visit(inner.body), dict(zip(inner.params, arguments, strict=True)))
        return super().visit_call(call)


def unwrapped(module, names):
    """A module without the Composite functions of these names."""
    made = tvm.IRModule(module.functions, module.type_definitions)
    for var, function in module.functions.items():
        if function.attrs and "Compiler" in function.attrs:
            made[var] = Unwrap(names).visit(function)
    return relay.transform.InferType()(made)


class Estimator:
    """TVM's estimate_seconds with the C++ compiler in the place of nvcc; it counts and can be cut short.
    ``told`` is called with the counts after each estimate: the search around it may never end.
    """

    def __init__(self, threads, most_seconds, bare, told=None):
        self.threads, self.most_seconds, self.bare, self.told = threads, most_seconds, bare, told
        self.calls, self.failed, self.seconds = 0, 0, 0.0
        self.started = time.perf_counter()

    def __call__(self, module, build_for):
        if time.perf_counter() - self.started > self.most_seconds:
            raise TimeoutError("TVM's search has used up its time")
        self.calls += 1
        started = time.perf_counter()
        try:
            vm, inputs = virtual_machine(unwrapped(module, self.bare), self.threads)
            options = {"func_name": "main", **inputs}
            device = tvm.cpu()
            vm.benchmark(device, repeat=1, number=1, min_repeat_ms=prototype.WARMUP_MIN_REPEAT_MS, **options)
            profile = vm.benchmark(
                device,
                repeat=prototype.MEASURE_REPEAT,
                number=prototype.MEASURE_NUMBER,
                min_repeat_ms=0,
                **options,
            )
            return profile.median
        except (RuntimeError, ValueError):
            self.failed += 1
            return math.inf
        finally:
            self.seconds += time.perf_counter() - started
            if self.told:
                self.told(self.counts())

    def counts(self):
        """What was estimated so far, and how many seconds after the start the last estimate ended."""
        last = time.perf_counter() - self.started
        return {"calls": self.calls, "failed": self.failed, "measuring": self.seconds, "last": last}


def virtual_machine(module, threads):
    """A module as a loaded VirtualMachine, and inputs for it."""
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        executable = build(module, threads, folder)
    inputs = {}
    for var in module["main"].params:
        kind = var.checked_type
        inputs[var.name_hint] = tvm.nd.array(
            np.random.default_rng(0).uniform(-1, 1, kind.concrete_shape).astype(kind.dtype)
        )
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()), inputs


def build(module, threads, folder):
    """A module as an Executable for the VM; what is written of it stands in ``folder``."""
    with target.build_context(None, None):
        executable = relay.vm.compile(module, tvm.target.Target(target.default_target()))
    code, lib = executable.save()
    create = tvm.get_global_func("collage.runtime.ThreadsModuleCreate", allow_missing=True)
    if create is not None:
        lib.import_module(create(threads))
    lib.export_library(os.path.join(folder, "library.so"), options=export.link_options(region.plugins_for(COMPILER)))
    Path(folder, "code.ro").write_bytes(code)
    return load(folder)


def load(folder):
    """What ``build`` wrote to ``folder``."""
    lib = tvm.runtime.load_module(os.path.join(folder, "library.so"))
    return tvm.runtime.vm.Executable.load_exec(bytearray(Path(folder, "code.ro").read_bytes()), lib)


def prepare():
    """Load Collage, the code generator of the regions and their runtime into this process."""
    library.load()
    for plugin in region.plugins_for(COMPILER):
        library.load_plugin(plugin)
    library.install(COMPILER)


def search(module, threads, depth=DEPTH, most_seconds=SECONDS, told=None):
    """What TVM's pass makes of a normalised module: {"module", "ended", "seconds", "calls", "failed",
    "measuring"}. "module" is absent where it did not finish, and then "ended" says why. ``told`` is called
    with the counts after each estimate.
    """
    prepare()
    module = relay.transform.InferType()(module)
    table = patterns.table_of(BACKEND, module)
    bare = {composite for composite, _, _, unwrapped in table if unwrapped}
    estimator = Estimator(threads, most_seconds, bare, told)
    tvm.register_func("collage.bench.estimate_seconds", estimator.__call__, override=True)
    tvm.register_func("tvm.relay.collage.make_byoc_partition_rule", rule_maker(table), override=True)
    register_target_kind(COMPILER)
    # The longest of the patterns fits into the second depth; with much more TVM makes candidates without end.
    options = {"relay.collage.tvm_max_depth": depth, "relay.collage.byoc_max_depth": 8}
    found = {}
    with tvm.transform.PassContext(opt_level=3, config=options) as context:
        host = tvm.target.Target(target.default_target())
        config = tvm.target.make_compilation_config(context, [host, tvm.target.Target(COMPILER)])
        custom = prototype.CustomCostEstimator("collage.bench.estimate_seconds")
        started = time.perf_counter()
        try:
            placed = tvm.relay.transform.CollagePartition(config, custom)(module)
            found["module"] = unwrapped(placed, bare)
        except (TimeoutError, tvm.TVMError) as error:
            found["ended"] = (str(error).strip().splitlines() or ["time limit"])[-1]
        found["seconds"] = time.perf_counter() - started
    found.update(calls=estimator.calls, failed=estimator.failed, measuring=estimator.seconds)
    return found


def machine(model, files, threads):
    """(VirtualMachine of what TVM's CollagePartition makes of a model, its name). ``files["keep"]`` is a
    folder that keeps the result, since the search takes minutes; without it nothing is kept.
    """
    prepare()
    kept = files.get("keep")
    if kept and Path(kept, "code.ro").exists():
        executable, told = load(kept), "kept"
    else:
        found = search(
            transform.Normalise()(model.module), threads, most_seconds=float(files.get("seconds") or SECONDS)
        )
        if "module" not in found:
            raise RuntimeError(f"TVM's CollagePartition gave nothing: {found['ended']}")
        told = f"searched for {found['seconds']:.0f} s, {found['calls']} estimates"
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            if kept:
                os.makedirs(kept, exist_ok=True)
            executable = build(found["module"], threads, kept or folder)
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()), f"TVM's CollagePartition with oneDNN ({told})"
