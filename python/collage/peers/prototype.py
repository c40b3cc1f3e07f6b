# SPDX-License-Identifier: Apache-2.0
"""TVM's own CollagePartition (a prototype for GPUs) at work on a processor, with oneDNN.

It is made to work through its own interfaces, as far as it has them:

- Its estimator calls nvcc. A CustomCostEstimator stands in, a copy of it that links with the C++ compiler,
  with its own counts of runs (MEASURE_NUMBER, MEASURE_REPEAT, WARMUP_MIN_REPEAT_MS).
- There is no TargetKind "dnnl", and no interface registers one from Python: libtvm's
  TargetKindRegEntry::RegisterOrGet and UpdateAttr are called by their mangled names, with what
  TVM_REGISTER_TARGET_KIND would set (device type CPU, is_external_codegen).
- Patterns without a predicate crash it: make_byoc_partition_rule is registered anew and gives each one that
  is always true. The pattern table is TVM's for dnnl.
- relay.ext.dnnl and the oneDNN runtime are Collage's. The graph executor cannot build the result, so it is
  built and run with the VM.
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

from .. import export, library, target, transform

# TVM's limits of fusion depth, and how long its search may take.
DEPTH = 4
SECONDS = 1800.0


def plugins():
    """The plug-ins that a module with regions of TVM's oneDNN runtime needs."""
    oneDNN = library.plugin_path("dnnl_tvm") or library.plugin_path("dnnl")  # noqa: N806
    return [path for path in (library.plugin_path("runtime"), oneDNN) if path]


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


def make_rule(compiler):
    """tvm.relay.collage.make_byoc_partition_rule, for patterns without predicates, too."""
    api = prototype.collage._ffi_api
    rules = []
    for name, pattern, *predicate in tvm.relay.op.contrib.get_pattern_table(compiler):
        check = predicate[0] if predicate else (lambda _: True)
        rules.append(
            api.MakeLabelledDFPatternPartitionRuleWithPredicate(
                compiler, name, pattern, lambda e, check=check: bool(check(e))
            )
        )
    return api.MakePatternBYOCPartitionRule(compiler, rules)


class Estimator:
    """TVM's estimate_seconds with the C++ compiler in the place of nvcc; it counts and can be cut short."""

    def __init__(self, threads, most_seconds):
        self.threads, self.most_seconds = threads, most_seconds
        self.calls, self.failed, self.seconds = 0, 0, 0.0
        self.started = time.perf_counter()

    def __call__(self, module, build_for):
        if time.perf_counter() - self.started > self.most_seconds:
            raise TimeoutError
        self.calls += 1
        started = time.perf_counter()
        try:
            vm, inputs = virtual_machine(module, self.threads)
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
    path = os.path.join(folder, "library.so")
    lib.export_library(path, options=export.link_options(plugins()))
    Path(folder, "code.ro").write_bytes(code)
    return load(folder)


def load(folder):
    """What ``build`` wrote to ``folder``."""
    code, lib = (
        Path(folder, "code.ro").read_bytes(),
        tvm.runtime.load_module(os.path.join(folder, "library.so")),
    )
    return tvm.runtime.vm.Executable.load_exec(bytearray(code), lib)


def search(module, threads, depth=DEPTH, most_seconds=SECONDS):
    """(placed module or None, Estimator, seconds, why there is none)."""
    estimator = Estimator(threads, most_seconds)
    why = None
    tvm.register_func("collage.bench.estimate_seconds", estimator.__call__, override=True)
    tvm.register_func("tvm.relay.collage.make_byoc_partition_rule", make_rule, override=True)
    register_target_kind("dnnl")
    library.install("dnnl")
    options = {"relay.collage.tvm_max_depth": depth, "relay.collage.byoc_max_depth": depth}
    with tvm.transform.PassContext(opt_level=3, config=options) as context:
        host = tvm.target.Target(target.default_target())
        config = tvm.target.make_compilation_config(context, [host, tvm.target.Target("dnnl")])
        custom = prototype.CustomCostEstimator("collage.bench.estimate_seconds")
        started = time.perf_counter()
        try:
            placed = tvm.relay.transform.CollagePartition(config, custom)(module)
        except (TimeoutError, tvm.TVMError) as error:
            text = str(error).strip().splitlines()
            why = (
                text[-1]
                if text and "TimeoutError" not in str(error)
                else f"not finished after {most_seconds:.0f} s"
            )
            placed = None
    return placed, estimator, time.perf_counter() - started, why


def machine(model, files, threads):
    """(VirtualMachine of what TVM's CollagePartition makes of a model, its name). ``files["keep"]`` is a
    folder that keeps the result, since the search takes minutes; without it nothing is kept.
    """
    library.load()
    for plugin in plugins():
        library.load_plugin(plugin)
    kept = files.get("keep")
    if kept and Path(kept, "code.ro").exists():
        executable, told = load(kept), "kept"
    else:
        module = transform.Normalise()(model.module)
        placed, estimator, seconds, why = search(
            module, threads, most_seconds=float(files.get("seconds") or SECONDS)
        )
        if placed is None:
            raise RuntimeError(f"TVM's CollagePartition gave nothing: {why}")
        told = f"searched for {seconds:.0f} s, {estimator.calls} estimates"
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            if kept:
                os.makedirs(kept, exist_ok=True)
            executable = build(placed, threads, kept or folder)
    return tvm.runtime.vm.VirtualMachine(
        executable, tvm.cpu()
    ), f"TVM's CollagePartition with oneDNN ({told})"
