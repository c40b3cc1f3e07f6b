# SPDX-License-Identifier: Apache-2.0
"""Seconds of searching and latency of what is found, beside TVM's own CollagePartition on the same machine.

For each network, in turn: Collage from an empty store, Collage again with the store warm, TVM's pass. The
results are run in turn, too. TVM's pass (a prototype for GPUs) is made to work on a processor through its own
interfaces, as far as it has them:

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

import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import collage
import numpy as np
import tvm
from collage import export, frontends, library, region, target, transform
from tvm import relay
from tvm.relay import collage as prototype

NETWORKS = ["resnext50_32x4d", "nasneta"]


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
    with target.build_context(None, None):
        executable = relay.vm.compile(module, tvm.target.Target(target.default_target()))
    code, lib = executable.save()
    create = tvm.get_global_func("collage.runtime.ThreadsModuleCreate", allow_missing=True)
    if create is not None:
        lib.import_module(create(threads))
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        path = os.path.join(folder, "library.so")
        lib.export_library(path, options=export.link_options(region.plugins_for("dnnl")))
        executable = tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(path))
    inputs = {}
    for var in module["main"].params:
        kind = var.checked_type
        inputs[var.name_hint] = tvm.nd.array(
            np.random.default_rng(0).uniform(-1, 1, kind.concrete_shape).astype(kind.dtype)
        )
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()), inputs


def search_collage(module, store, threads):
    """(placed module, plan, seconds)."""
    options = transform.configuration(["tvm", "dnnl_tvm"], store=store, threads=threads)
    started = time.perf_counter()
    placed, plan = tvm.get_global_func("collage.partition")(module, options)
    return placed, json.loads(str(plan)), time.perf_counter() - started


def search_tvm(module, threads, depth, most_seconds):
    """(placed module or None, Estimator, seconds)."""
    estimator = Estimator(threads, most_seconds)
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
            print(f"  TVM's CollagePartition ended: {str(error).strip().splitlines()[-1:] or 'time limit'}")
            placed = None
    return placed, estimator, time.perf_counter() - started


def main():
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--depth", type=int, default=4, help="TVM's limits of fusion depth (default 4)")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for TVM's search (default 7200)")
    parser.add_argument("--rounds", type=int, default=20, help="runs of the results in turn (default 20)")
    parser.add_argument("--json", help="write the numbers here")
    told = parser.parse_args()
    library.load()
    for plugin in region.plugins_for("dnnl"):
        library.load_plugin(plugin)
    rows = []
    for name in told.networks:
        print(f"{name}: {told.threads} threads")
        module = transform.Normalise()(frontends.load(f"workload:{name}").module)
        row = {"network": name}
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            store = Path(folder, "costs.jsonl")
            placed, plan, row["collage_seconds"] = search_collage(module, store, told.threads)
            counts = plan["candidates"]
            row["collage_measured"], row["collage_bounded"] = counts["measured"], counts["bounded"]
            row["collage_distinct"] = counts["distinct"]
            row["collage_estimate_ms"] = plan["estimate"]["total_ms"]
            _, warm, row["warm_seconds"] = search_collage(module, store, told.threads)
            row["warm_measured"] = warm["candidates"]["measured"]
            print(f"  Collage: {row['collage_seconds']:.1f} s")
            print(
                f"    {counts['measured']} of {counts['distinct']} measured, {counts['bounded']} bounded away"
            )
            print(f"    warm: {row['warm_seconds']:.2f} s, {row['warm_measured']} measured")
            theirs, estimator, row["tvm_seconds"] = search_tvm(module, told.threads, told.depth, told.limit)
            row["tvm_measured"], row["tvm_failed"] = estimator.calls, estimator.failed
            row["tvm_measuring_seconds"] = estimator.seconds
            row["tvm_finished"] = theirs is not None
            print(
                f"  TVM: {row['tvm_seconds']:.1f} s, {estimator.calls} estimates ({estimator.failed} failed),"
            )
            ended = "finished" if theirs is not None else "not finished"
            print(f"    {estimator.seconds:.1f} s of them measuring; {ended}")
            row.update(latencies(placed, theirs, told))
            print(
                "  latency: "
                + ", ".join(f"{key} {row[key]:.2f} ms" for key in ("collage_ms", "tvm_ms") if key in row)
            )
        rows.append(row)
    if told.json:
        Path(told.json).write_text(json.dumps(rows, indent=1) + "\n")


def latencies(placed, theirs, told):
    """Medians of the results, run in turn: Collage's as it is exported, TVM's on the VM."""
    factory = export.build(placed)
    export.attach_threads(factory, told.threads)
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        path = os.path.join(folder, "collage.so")
        export.link(factory, path, region.plugins_for("dnnl"))
        executor = region.load_executor(path)
    machine, inputs = virtual_machine(theirs, told.threads) if theirs is not None else (None, {})
    samples = {"collage_ms": [], "tvm_ms": []}
    for _ in range(told.rounds):
        timer = executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=1)
        samples["collage_ms"].append(1000 * timer().results[0])
        if machine is not None:
            result = machine.benchmark(tvm.cpu(), repeat=1, number=1, func_name="main", **inputs)
            samples["tvm_ms"].append(1000 * result.median)
    return {key: statistics.median(values) for key, values in samples.items() if values}


assert collage.__version__  # importing it registers what is called above by name

if __name__ == "__main__":
    main()
