# SPDX-License-Identifier: Apache-2.0
"""Seconds of searching and latency of what is found, beside TVM's own CollagePartition on the same machine.

For each network, in turn: Collage from an empty store, Collage again with the store warm, TVM's pass. The
results are run in turn, too. Both sides have the same backends (TVM, and oneDNN through TVM's runtime: the
backend dnnl_tvm) and the same candidate rules:

  - oneDNN: one candidate for each match of a pattern, of the same patterns with the same limits. TVM's pass
  is given Collage's table (collage.patterns.table_of): each pattern as tvm.relay.dataflow_pattern, with a
  predicate that says where Collage's own matcher and the backend's limits allow it. Neither side joins
  matches. - TVM: operators by themselves and fused as FuseOps fuses them; TVM's pass up to --depth operators
  deep, Collage the groups that FuseOps makes, their parts where oneDNN may take the rest, and the nodes of
  each oneDNN candidate.

TVM's pass (a prototype for GPUs) is made to work on a processor through its own interfaces, as far as it has
them:

- Its estimator calls nvcc. A CustomCostEstimator stands in, a copy of it that links with the C++ compiler,
with its own counts of runs (MEASURE_NUMBER, MEASURE_REPEAT, WARMUP_MIN_REPEAT_MS). - There is no TargetKind
"dnnl", and no interface registers one from Python: libtvm's TargetKindRegEntry::RegisterOrGet and UpdateAttr
are called by their mangled names, with what TVM_REGISTER_TARGET_KIND would set (device type CPU,
is_external_codegen). - make_byoc_partition_rule is registered anew, with that table. Its operators that
oneDNN expects without a Composite function are unwrapped before they are built. - relay.ext.dnnl and the
oneDNN runtime are Collage's. The graph executor cannot build the result, so it is built and run with the VM;
Collage's is run both ways. - It runs in a process of its own, which is ended after --limit seconds: on large
graphs it takes long before it estimates anything, where no exception can stop it. The estimator gives up
then, too (TimeoutError).
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import collage
import numpy as np
import tvm
from collage import export, frontends, library, patterns, region, target, transform
from tvm import relay
from tvm.relay import collage as prototype

NETWORKS = ["resnext50_32x4d", "nasneta"]
# As it is exported, and both on TVM's VM.
LATENCIES = ("collage_ms", "collage_vm_ms", "tvm_vm_ms")
# Collage's name, and the Compiler attribute: the target kind of TVM's pass.
BACKEND, COMPILER = "dnnl_tvm", "dnnl"


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
        if (
            isinstance(inner, relay.Function)
            and inner.attrs
            and inner.attrs.get_str("Composite") in self.names
        ):
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
    """TVM's estimate_seconds with the C++ compiler in the place of nvcc; it counts and can be cut short."""

    def __init__(self, threads, most_seconds, bare):
        self.threads, self.most_seconds, self.bare = threads, most_seconds, bare
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
        lib.export_library(path, options=export.link_options(region.plugins_for(COMPILER)))
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


def run_tvm(told):
    """Run TVM's pass in this process, for --tvm-only: writes what it found to the file."""
    (name,) = told.networks
    module = relay.transform.InferType()(transform.Normalise()(frontends.load(f"workload:{name}").module))
    library.install(COMPILER)
    table = patterns.table_of(BACKEND, module)
    bare = {composite for composite, _, _, unwrapped in table if unwrapped}
    estimator = Estimator(told.threads, told.limit, bare)
    tvm.register_func("collage.bench.estimate_seconds", estimator.__call__, override=True)
    tvm.register_func("tvm.relay.collage.make_byoc_partition_rule", rule_maker(table), override=True)
    register_target_kind(COMPILER)
    # Matches are not joined, so that no pattern is cut is all that the second depth has to do.
    options = {"relay.collage.tvm_max_depth": told.depth, "relay.collage.byoc_max_depth": 64}
    found = {}
    with tvm.transform.PassContext(opt_level=3, config=options) as context:
        host = tvm.target.Target(target.default_target())
        config = tvm.target.make_compilation_config(context, [host, tvm.target.Target(COMPILER)])
        custom = prototype.CustomCostEstimator("collage.bench.estimate_seconds")
        started = time.perf_counter()
        try:
            placed = tvm.relay.transform.CollagePartition(config, custom)(module)
            found["module"] = tvm.ir.save_json(unwrapped(placed, bare))
        except (TimeoutError, tvm.TVMError) as error:
            found["ended"] = (str(error).strip().splitlines() or ["time limit"])[-1]
        found["seconds"] = time.perf_counter() - started
    found.update(calls=estimator.calls, failed=estimator.failed, measuring=estimator.seconds)
    Path(told.tvm_only).write_text(json.dumps(found))


def search_tvm(name, folder, told):
    """What run_tvm found in a process of its own; without a module where it did not finish."""
    path = Path(folder, "tvm.json")
    arguments = [name, "--threads", told.threads, "--depth", told.depth, "--limit", told.limit]
    command = [sys.executable, __file__, *map(str, arguments), "--tvm-only", str(path)]
    started = time.perf_counter()
    try:
        subprocess.run(command, check=True, timeout=told.limit + 120)
        return json.loads(path.read_text())
    except subprocess.TimeoutExpired:
        ended = f"it was ended after {time.perf_counter() - started:.0f} s, before it estimated any further"
    except subprocess.CalledProcessError as error:
        ended = f"its process ended with {error.returncode}"
    seconds = time.perf_counter() - started
    return {"ended": ended, "seconds": seconds, "calls": None, "failed": None, "measuring": None}


def main():
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--depth", type=int, default=4, help="how deep TVM's pass fuses TVM's operators (default 4)"
    )
    parser.add_argument("--limit", type=float, default=3600, help="seconds for TVM's search (default 3600)")
    parser.add_argument("--rounds", type=int, default=20, help="runs of the results in turn (default 20)")
    parser.add_argument("--json", help="write the numbers here")
    parser.add_argument("--tvm-only", metavar="FILE", help="run TVM's pass alone, and write what it found")
    told = parser.parse_args()
    library.load()
    if told.tvm_only:
        for plugin in region.plugins_for(COMPILER):
            library.load_plugin(plugin)
        run_tvm(told)
        return
    for plugin in region.plugins_for(COMPILER):
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
            found = search_tvm(name, folder, told)
            for key in ("seconds", "calls", "failed", "measuring", "ended"):
                row[f"tvm_{key}"] = found.get(key)
            theirs = tvm.ir.load_json(found["module"]) if "module" in found else None
            row["tvm_finished"] = theirs is not None
            print(f"  TVM: {found['seconds']:.1f} s, {'finished' if theirs is not None else found['ended']}")
            if found["calls"] is not None:
                seconds = f"{found['measuring']:.1f} s measuring"
                print(f"    {found['calls']} estimates ({found['failed']} failed), {seconds}")
            row.update(latencies(placed, theirs, told))
            print("  latency: " + ", ".join(f"{key} {row[key]:.2f} ms" for key in LATENCIES if key in row))
        rows.append(row)
    if told.json:
        Path(told.json).write_text(json.dumps(rows, indent=1) + "\n")


def latencies(placed, theirs, told):
    """Medians of the results, run in turn: Collage's as it is exported and on the VM, TVM's on the VM."""
    factory = export.build(placed)
    export.attach_threads(factory, told.threads)
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        path = os.path.join(folder, "collage.so")
        export.link(factory, path, region.plugins_for(COMPILER))
        executor = region.load_executor(path)
    machines = {"collage_vm_ms": virtual_machine(placed, told.threads)}
    if theirs is not None:
        machines["tvm_vm_ms"] = virtual_machine(theirs, told.threads)
    samples = {key: [] for key in LATENCIES}
    for _ in range(told.rounds):
        timer = executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=1)
        samples["collage_ms"].append(1000 * timer().results[0])
        for key, (machine, inputs) in machines.items():
            result = machine.benchmark(tvm.cpu(), repeat=1, number=1, func_name="main", **inputs)
            samples[key].append(1000 * result.median)
    return {key: statistics.median(values) for key, values in samples.items() if values}


assert collage.__version__  # importing it registers what is called above by name

if __name__ == "__main__":
    main()
