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
import signal
import statistics
import subprocess
import sys
import tempfile
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
    plugins = list(
        dict.fromkeys(path for name in ("", *api.compilers(module)) for path in region.plugins_for(name))
    )
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


def usable():
    """The backends beside TVM that can be used here."""
    binary = collage.library.binary_path()
    told = subprocess.run([str(binary), "backends", "--json"], capture_output=True, text=True, check=True)
    return [
        entry["name"]
        for entry in json.loads(told.stdout)["backends"]
        if entry["probe"]["usable"] and not entry["takes_anything"]
    ]


def main():
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--backends", help="names with commas; by default all that can be used")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=9, help="turns of each (default 9)")
    parser.add_argument("--turn", type=float, default=0.3, help="seconds of a turn (default 0.3)")
    parser.add_argument("--json", help="write the numbers here")
    told = parser.parse_args()
    rows = []
    print(f"{told.threads} threads of {os.cpu_count()} processors, load average {os.getloadavg()[0]:.2f}")
    print(f"{'':34}{'idle: one pool':>16}{'separate':>12}{'yielding':>12}", end="")
    print(f"{'busy: one pool':>18}{'separate':>12}{'yielding':>12}")
    for name in told.networks:
        source = name if ":" in name or os.path.exists(name) else f"workload:{name}"
        module = transform.Normalise()(frontends.load(source).module)
        for backend in told.backends.split(",") if told.backends else usable():
            with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
                placed = mixed(module, backend, told.threads, Path(folder, "costs.jsonl"))
                if placed is None:
                    continue
                inputs = Path(folder, "inputs.npz")
                rng = np.random.default_rng(0)
                np.savez(
                    inputs,
                    **{
                        var.name_hint: rng.standard_normal(var.checked_type.concrete_shape, dtype="float32")
                        for var in module["main"].params
                    },
                )
                medians = measure(executables(placed, told.threads, Path(folder)), inputs, told)
            rows.append({"network": name, "backend": backend, "threads": told.threads, "rounds": told.rounds})
            rows[-1]["idle_ms"] = {variant: medians[variant, False] for variant in VARIANTS}
            rows[-1]["neighbour_ms"] = {variant: medians[variant, True] for variant in VARIANTS}
            cells = [medians[variant, neighbour] for neighbour in (False, True) for variant in VARIANTS]
            widths = (16, 12, 12, 18, 12, 12)
            print(f"{name + ' on ' + backend + ' and TVM':34}", end="")
            print(*(f"{ms:{width}.2f}" for ms, width in zip(cells, widths, strict=True)), sep="", flush=True)
    if told.json:
        Path(told.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
