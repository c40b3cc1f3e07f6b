# SPDX-License-Identifier: Apache-2.0
"""Seconds of searching and latency of what is found, beside TVM's own CollagePartition on the same machine.

For each network, in turn: Collage by what candidates take alone, from an empty store, and again with the store
warm; Collage as users get it, by whole networks, from an empty store; TVM's pass. The results are run in turn, too.
Both sides have the same backends (TVM, and oneDNN through TVM's runtime: the backend dnnl_tvm) and the same
candidate rules:

- oneDNN: one candidate for each match of a pattern, of the same patterns with the same limits. TVM's pass is
  given Collage's table (collage.patterns.table_of): each pattern as tvm.relay.dataflow_pattern, with a
  predicate that says where Collage's own matcher and the backend's limits allow it. Neither side joins
  matches.
- TVM: operators by themselves and fused as FuseOps fuses them; TVM's pass up to --depth operators deep,
  Collage the groups that FuseOps makes, their parts where oneDNN may take the rest, and the nodes of each
  oneDNN candidate.

How TVM's pass (a prototype for GPUs) is made to work on a processor stands in collage.peers.prototype. Its
result runs on TVM's VM, since the graph executor cannot build it; Collage's is run both ways. It runs in a
process of its own, which is ended after --limit seconds.

"measuring" is on both sides the wall time in the cost estimator, builds of candidates included.
"""

import argparse
import json
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
import tvm
from bench_threads import BUSY, Meter, describe, from_command
from collage import export, frontends, region, transform
from collage.peers import prototype

NETWORKS = ["resnext50_32x4d", "nasneta"]
# As it is exported, and both on TVM's VM.
LATENCIES = ("collage_ms", "whole_ms", "collage_vm_ms", "whole_vm_ms", "tvm_vm_ms")


def read(name):
    """A built-in network, or a model file, normalised."""
    source = name if ":" in name or os.path.exists(name) else f"workload:{name}"
    return transform.Normalise()(frontends.load(source).module)


def search_collage(module, store, threads):
    """(placed module, plan, seconds, seconds of them measuring), by what candidates take alone, as TVM's pass does."""
    options = transform.configuration(["tvm", "dnnl_tvm"], store=store, threads=threads)
    started = time.perf_counter()
    placed, plan = tvm.get_global_func("collage.place")(module, options)
    seconds = time.perf_counter() - started
    measuring = json.loads(tvm.get_global_func("collage.last_timings")())["measure_ms"] / 1000
    return placed, json.loads(str(plan)), seconds, measuring


def search_whole(module, store, told):
    """(placed module, what stands in the row of it) by collage.partition, which searches among whole networks."""
    options = transform.configuration(
        ["tvm", "dnnl_tvm"], store=store, threads=told.threads, search_time=told.search_time
    )
    started = time.perf_counter()
    placed, plan = tvm.get_global_func("collage.partition")(module, options)
    row = {"whole_seconds": time.perf_counter() - started}
    plan = json.loads(str(plan))
    kept = next(one for one in plan["finalists"] if one.get("chosen"))
    row["whole_kept"] = kept["name"]
    known = {one["placement"]: one["seconds"] for one in plan["timeline"]["networks"]}
    called = {kept["name"], kept.get("origin"), str(kept.get("origin")).removeprefix("the ").removesuffix("'s")}
    times = [known[one["placement"]] for one in plan["graph_level"]["networks"] if one["name"] in called]
    row["whole_known"] = min(times, default=row["whole_seconds"])
    return placed, row


def run_tvm(told):
    """Run TVM's pass in this process, for --tvm-only: writes what it found to the file."""
    (name,) = told.networks
    module = read(name)
    counts = Path(told.tvm_only + ".counts")
    found = prototype.search(
        module, told.threads, told.depth, told.limit, lambda now: counts.write_text(json.dumps(now))
    )
    if "module" in found:
        found["module"] = tvm.ir.save_json(found["module"])
    Path(told.tvm_only).write_text(json.dumps(found))


def search_tvm(name, folder, told):
    """What run_tvm found in a process of its own; without a module where it did not finish."""
    path = Path(folder, "tvm.json")
    arguments = [name, "--threads", told.threads, "--depth", told.depth, "--limit", told.limit]
    command = [sys.executable, __file__, *map(str, arguments), "--tvm-only", str(path)]
    started = time.perf_counter()
    try:
        subprocess.run(command, check=True, timeout=told.limit + 30)
        return json.loads(path.read_text())
    except subprocess.TimeoutExpired:
        ended = f"it was ended after {time.perf_counter() - started:.0f} s"
    except subprocess.CalledProcessError as error:
        ended = f"its process ended with {error.returncode}"
    seconds = time.perf_counter() - started
    counts = Path(str(path) + ".counts")
    made = json.loads(counts.read_text()) if counts.exists() else {"calls": 0, "failed": 0, "measuring": 0.0}
    if made["calls"]:
        ended += f"; its last estimate was done at {made['last']:.0f} s, the rest is its shortest path"
    return {"ended": ended, "seconds": seconds, **made}


def main():
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "networks",
        nargs="*",
        default=NETWORKS,
        help="of collage's workloads, or files (default: %(default)s)",
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--depth", type=int, default=4, help="how deep TVM's pass fuses TVM's operators (default 4)")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for TVM's search (default 3600)")
    parser.add_argument(
        "--search-time", type=float, default=30, help="seconds for the search among whole networks (default 30)"
    )
    parser.add_argument("--rounds", type=int, default=20, help="runs of the results in turn (default 20)")
    parser.add_argument("--json", help="write the numbers here")
    parser.add_argument("--tvm-only", metavar="FILE", help="run TVM's pass alone, and write what it found")
    told = parser.parse_args()
    if told.tvm_only:
        run_tvm(told)
        return
    prototype.prepare()
    rows, meter = [], Meter()
    for name in told.networks:
        print(f"{name}: {told.threads} threads")
        module = read(name)
        row = {"network": name}
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            store = Path(folder, "costs.jsonl")
            placed, plan, row["collage_seconds"], row["collage_measuring"] = search_collage(module, store, told.threads)
            counts = plan["candidates"]
            row["collage_measured"], row["collage_bounded"] = counts["measured"], counts["bounded"]
            row["collage_distinct"] = counts["distinct"]
            row["collage_estimate_ms"] = plan["estimate"]["total_ms"]
            _, warm, row["warm_seconds"], _ = search_collage(module, store, told.threads)
            row["warm_measured"] = warm["candidates"]["measured"]
            print(f"  Collage: {row['collage_seconds']:.1f} s")
            print(f"    {counts['measured']} of {counts['distinct']} measured, {counts['bounded']} bounded away")
            print(f"    {row['collage_measuring']:.1f} s of them measuring")
            print(f"    warm: {row['warm_seconds']:.2f} s, {row['warm_measured']} measured")
            whole, of_whole = search_whole(module, Path(folder, "whole.jsonl"), told)
            row.update(of_whole)
            print(f"  Collage, whole networks: {row['whole_seconds']:.1f} s")
            print(f"    {row['whole_kept']} is kept, which was known after {row['whole_known']:.1f} s")
            found = search_tvm(name, folder, told)
            for key in ("seconds", "calls", "failed", "measuring", "last", "ended"):
                row[f"tvm_{key}"] = found.get(key)
            theirs = tvm.ir.load_json(found["module"]) if "module" in found else None
            row["tvm_finished"] = theirs is not None
            print(f"  TVM: {found['seconds']:.1f} s, {'finished' if theirs is not None else found['ended']}")
            print(f"    {found['calls']} estimates ({found['failed']} failed)")
            print(f"    {found['measuring']:.1f} s of them measuring")
            print(f"  measuring: {measuring_ratio(row)}")
            row.update(latencies({"collage": placed, "whole": whole}, theirs, told))
            print("  latency in turn: " + ", ".join(f"{key} {row[key]:.2f} ms" for key in LATENCIES if key in row))
            if theirs is not None:
                for key, what in (("collage", "Collage's"), ("whole", "by whole networks")):
                    print(f"    {what} to TVM's, both on the VM: {row[f'{key}_vm_ms'] / row['tvm_vm_ms']:.3f}")
        rows.append(row)
    machine, others = from_command("doctor")["machine"], meter.others()
    print(f"\nmachine: {describe(machine)}")
    busy = "; the machine was BUSY: take these figures again when it is quiet" if others > BUSY else ""
    print(f"load: other processes took {100 * others:.1f} % of the processors' time{busy}")
    if told.json:
        taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        report = {"schema": 1, "machine": machine, "taken": taken, "threads": told.threads, "rounds": told.rounds}
        Path(told.json).write_text(json.dumps({**report, "other_share": others, "rows": rows}, indent=1) + "\n")


def measuring_ratio(row):
    """How long Collage measured beside TVM's pass; which is at most that where the pass did not come to its end."""
    if not row["tvm_measuring"]:
        return "TVM's pass came to no estimate"
    ratio = row["collage_measuring"] / row["tvm_measuring"]
    return f"{ratio:.3f} of TVM's seconds" if row["tvm_finished"] else f"less than {ratio:.3f} of TVM's seconds"


def latencies(ours, theirs, told):
    """Medians of the results, run in turn: Collage's as they are exported and on the VM, TVM's on the VM."""
    executors, machines = {}, {}
    with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
        for key, placed in ours.items():
            factory = export.build(placed)
            export.attach_threads(factory, told.threads)
            path = os.path.join(folder, f"{key}.so")
            export.link(factory, path, region.plugins_for(prototype.COMPILER))
            executors[f"{key}_ms"] = region.load_executor(path)
            machines[f"{key}_vm_ms"] = prototype.virtual_machine(placed, told.threads)
    if theirs is not None:
        machines["tvm_vm_ms"] = prototype.virtual_machine(theirs, told.threads)
    samples = {key: [] for key in LATENCIES}
    for _ in range(told.rounds):
        for key, executor in executors.items():
            timer = executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=1)
            samples[key].append(1000 * timer().results[0])
        for key, (machine, inputs) in machines.items():
            result = machine.benchmark(tvm.cpu(), repeat=1, number=1, func_name="main", **inputs)
            samples[key].append(1000 * result.median)
    return {key: statistics.median(values) for key, values in samples.items() if values}


assert collage.__version__  # importing it registers what is called above by name

if __name__ == "__main__":
    main()
