# SPDX-License-Identifier: Apache-2.0
"""One thread pool for the whole executable beside separate ones, idle and with a neighbour taking a core.

For each network and each backend that is installed: an executable whose convolutions and matrix products are
the backend's and whose other operators are TVM's, so that the two alternate. It is exported three times:

- one pool: as Collage exports it, TVM's loops and the library in one oneTBB arena;
- separate: without Collage's threads module, so that TVM's loops run on TVM's own pool, whose workers spin,
  and the library on its own threads;
- separate, yielding: the same with TVM_THREAD_POOL_SPIN_COUNT=0, TVM's way to be a better neighbour.

Each runs in a process of its own, stopped while it is not its turn. The neighbour is a process that does
nothing but compute, on whatever core the kernel gives it. Medians of the turns' medians, in milliseconds.
"""

import argparse
import json
import os
import resource
import signal
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
from collage import api, export, frontends, region, transform
from collage.workloads import count_operators

PACKAGE = Path(collage.__file__).parents[1]
NETWORKS = ("bert_full", "resnext50_32x4d")
HEAVY = ("nn.conv2d", "nn.conv3d", "nn.dense", "nn.batch_matmul")
VARIANTS = {
    "one pool": {},
    "separate": {},
    "separate, yielding": {"TVM_THREAD_POOL_SPIN_COUNT": "0"},
}
BUSY_LOOP = "while True: pass"
# What other processes may take of the machine without disturbing what is measured.
BUSY = 0.05


def mixed(module, backend, threads, store):
    """The module with its heavy operators on ``backend`` and the others on TVM; None where it takes none."""
    counts = count_operators(module)
    alone = collage.partition(module, only=backend, threads=threads)
    taken = {name for name in HEAVY if name in counts and on_backend(alone, name)}
    if not taken:
        return None
    pins = [f"{name}={backend if name in taken else 'tvm'}" for name in counts]
    options = transform.configuration(["tvm", backend], store=store, threads=threads, samples=1, pin=pins)
    return tvm.get_global_func("collage.partition")(module, options)[0]


def on_backend(placed, name):
    """Whether every operator of a name stands in a region, none in ``main``."""
    return count_operators(placed).get(name, 0) == 0


class Runner:
    """An executable in a process of its own that is stopped between its turns."""

    def __init__(self, executable, threads, extra):
        environment = {
            **os.environ,
            "PYTHONPATH": str(PACKAGE),
            "TVM_NUM_THREADS": str(threads),
            "COLLAGE_NUM_THREADS": str(threads),
            **extra,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collage.peers", "collage"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.ask(op="load", files={"executable": str(executable)}, threads=threads)

    def ask(self, **request):
        """Let the process run until it has answered one request."""
        os.killpg(self.process.pid, signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        os.killpg(self.process.pid, signal.SIGSTOP)
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def end(self):
        """End the process."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def executables(module, threads, folder):
    """{variant: path} of a placed module."""
    plugins = list(dict.fromkeys(path for name in ("", *api.compilers(module)) for path in region.plugins_for(name)))
    factory = export.build(module)
    separate = folder / "separate.so"
    export.link(factory, separate, plugins)
    export.write(factory, folder / "one.so", plugins, threads)
    return {"one pool": folder / "one.so", "separate": separate, "separate, yielding": separate}


def measure(paths, inputs, told):
    """{(variant, neighbour): median ms}."""
    runners = {name: Runner(path, told.threads, VARIANTS[name]) for name, path in paths.items()}
    medians = {}
    try:
        for runner in runners.values():
            runner.ask(op="check", inputs=str(inputs))
        for neighbour in (False, True):
            busy = subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) if neighbour else None
            try:
                turns = {name: [] for name in runners}
                for _ in range(told.rounds):
                    for name, runner in runners.items():
                        answer = runner.ask(op="sample", seconds=told.turn, least=3)
                        turns[name].append(statistics.median(answer["samples_ms"]))
            finally:
                if busy:
                    busy.kill()
                    busy.wait()
            medians |= {(name, neighbour): statistics.median(values) for name, values in turns.items()}
    finally:
        for runner in runners.values():
            runner.end()
    return medians


def from_command(*arguments):
    """What the command line says as JSON."""
    binary = str(collage.library.binary_path())
    told = subprocess.run([binary, *arguments, "--json"], capture_output=True, text=True)
    return json.loads(told.stdout)


def usable():
    """The backends beside TVM that can be used here; ``dnnl_tvm`` is the same library as ``dnnl``."""
    return [
        entry["name"]
        for entry in from_command("backends")["backends"]
        if entry["probe"]["usable"]
        and not entry["takes_anything"]
        and entry["name"] != "dnnl_tvm"
        and entry["device"] == "cpu"
    ]


class Meter:
    """What other processes take of the machine, from its making on."""

    def __init__(self):
        self.started, self.busy, self.own = time.monotonic(), self._busy(), self._own()

    @staticmethod
    def _busy():
        with open("/proc/stat") as file:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _own():
        usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def others(self):
        """The share of all processors' time that other processes took; those of ours have ended."""
        seconds = (time.monotonic() - self.started) * os.cpu_count()
        return max(0.0, (self._busy() - self.busy - (self._own() - self.own)) / seconds)


def describe(machine):
    """The machine in a line."""
    memory = machine.get("memory_bytes", 0) / 2**30
    return (
        f"{machine.get('processor') or 'a processor without a name'}, {machine['processors']} processors, "
        f"{machine['os']}/{machine['arch']}, {memory:.0f} GiB ({' '.join(machine.get('features') or [])})"
    )


def input_file(module, folder):
    """Random inputs of a module, as a file for the peers protocol."""
    rng = np.random.default_rng(0)
    path = Path(folder, "inputs.npz")
    parameters = module["main"].params
    shapes = {var.name_hint: [int(dim) for dim in var.checked_type.shape] for var in parameters}
    np.savez(path, **{name: rng.standard_normal(shape, dtype="float32") for name, shape in shapes.items()})
    return path


def run(told):
    """One row for each network and backend: {"network", "backend", "idle_ms", "neighbour_ms"}; printed."""
    head = f"{'':34}{'idle: one pool':>16}{'separate':>12}{'yielding':>12}"
    print(f"{head}{'neighbour: one pool':>22}{'separate':>12}{'yielding':>12}", flush=True)
    for name in told.networks:
        source = name if ":" in name or os.path.exists(name) else f"workload:{name}"
        module = transform.Normalise()(frontends.load(source).module)
        for backend in told.backends.split(",") if told.backends else usable():
            with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
                placed = mixed(module, backend, told.threads, Path(folder, "costs.jsonl"))
                if placed is None:
                    continue
                paths = executables(placed, told.threads, Path(folder))
                medians = measure(paths, input_file(module, folder), told)
            row = {"network": name, "backend": backend}
            row["idle_ms"] = {variant: medians[variant, False] for variant in VARIANTS}
            row["neighbour_ms"] = {variant: medians[variant, True] for variant in VARIANTS}
            cells = [medians[variant, neighbour] for neighbour in (False, True) for variant in VARIANTS]
            widths = (16, 12, 12, 22, 12, 12)
            print(f"{name + ' on ' + backend + ' and TVM':34}", end="")
            print(*(f"{ms:{width}.2f}" for ms, width in zip(cells, widths, strict=True)), sep="", flush=True)
            yield row


def main():
    """Run the benchmark, print its table, write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--backends", help="names with commas; by default all that can be used")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default 7)")
    parser.add_argument("--turn", type=float, default=0.2, help="seconds of a turn (default 0.2)")
    parser.add_argument("--json", help="write the numbers here")
    told = parser.parse_args()
    report = {
        "schema": 1,
        "machine": from_command("doctor")["machine"],
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "threads": told.threads,
        "rounds": told.rounds,
        "turn_ms": 1000 * told.turn,
    }
    print(
        f"Executables shared by a backend and TVM, float32, {told.threads} threads: "
        f"median ms of {told.rounds} turns of at least {report['turn_ms']:.0f} ms, in turn\n\n"
        "one pool: as exported, TVM's loops and the library in one oneTBB arena. separate: TVM's own pool\n"
        "beside the library's threads. yielding: the same with TVM_THREAD_POOL_SPIN_COUNT=0. neighbour: a\n"
        "process that computes without end takes one core.\n"
    )
    meter = Meter()
    report["rows"] = list(run(told))
    report["other_share"] = others = meter.others()
    print("\nGeometric means of the times to one pool's:")
    for where in ("idle", "neighbour"):
        means = []
        for variant in list(VARIANTS)[1:]:
            ratios = [row[f"{where}_ms"][variant] / row[f"{where}_ms"]["one pool"] for row in report["rows"]]
            means.append(f"{variant} {statistics.geometric_mean(ratios):.2f}")
        print(f"  {where}: {'; '.join(means)}")
    print(f"\nmachine: {describe(report['machine'])}")
    busy = "; the machine was BUSY: take these figures again when it is quiet" if others > BUSY else ""
    print(f"load: other processes than the neighbour took {100 * others:.1f} % of the processors' time{busy}")
    if told.json:
        Path(told.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
