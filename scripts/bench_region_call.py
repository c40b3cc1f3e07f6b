# SPDX-License-Identifier: Apache-2.0
"""What calling a region takes: one ReLU of 16 numbers, so that next to nothing is computed.

    bench_region_call.py [--calls N] [--rounds N]

For each backend that can be used here, in turn: the region's function called from C++, and a run of the graph executor
that calls it alone; beside both what TVM's own kernel takes. One thread. The median of the rounds, in microseconds,
and the least and greatest.
"""

import argparse
import os
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
from bench_threads import Meter, describe, from_command

NETWORK = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 16, 1, 1), float32]) { nn.relu(%x) }
"""
SHAPE = (1, 16, 1, 1)


def usable():
    """The backends that can be used here, TVM first."""
    told = from_command("backends")["backends"]
    names = [
        one["name"] for one in told if one["probe"]["usable"] and one["precision"] == "f32" and one["device"] == "cpu"
    ]
    return ["tvm", *(name for name in names if name != "tvm")]


def compiled(backend, folder):
    """The network with its one operator on a backend, as a .so; None where the backend does not take it."""
    path = folder / f"relu_{backend}.so"
    names = list(dict.fromkeys(["tvm", backend]))
    command = [sys.executable, "-m", "collage", "compile", folder / "relu.relay", "--backends", ",".join(names)]
    command += ["--pin", f"nn.relu={backend}", "--threads", 1, "--level", "operator", "--search-time", "5s", "-q"]
    done = subprocess.run([*map(str, command), "-o", str(path)], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return path
    if "cannot be kept" in done.stderr:
        return None
    raise RuntimeError(f"{backend}: {done.stderr}")


def function(library, backend):
    """(module, name) of the function of the library's one region, or of TVM's kernel."""
    modules = [library]
    for module in modules:
        modules += module.imported_modules
    # native's regions are run by dnnl's engine.
    symbols = [f"tvmgen_default_{compiler}_main_0" for compiler in (f"collage_{backend}", "collage_dnnl", "dnnl")]
    for module in reversed(modules):  # regions come behind what loads their constants
        for name in symbols if module.type_key != "library" else ["tvmgen_default_fused_nn_relu"]:
            if module.implements_function(name):
                return module, name
    raise RuntimeError(f"the library of {backend} has no such function")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20000, help="how many calls a round has")
    parser.add_argument("--rounds", type=int, default=15, help="how often each is timed, in turn")
    told = parser.parse_args()
    meter = Meter()
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        folder = Path(folder)
        (folder / "relu.relay").write_text(NETWORK)
        timers, absent, kept = {}, [], []
        times = {"number": told.calls, "repeat": 1}
        values = np.linspace(-1, 1, 16, dtype="float32").reshape(SHAPE)
        x, y = tvm.nd.array(values), tvm.nd.array(np.zeros(SHAPE, "float32"))
        for backend in usable():
            path = compiled(backend, folder)
            if path is None:
                absent.append(backend)
                continue
            model = collage.load(str(path))
            model.set_input("x", x)
            library = tvm.runtime.load_module(str(path))
            library["default"](tvm.cpu())  # gives the regions their constants
            module, name = function(library, backend)
            module.get_function(name)(x, y)
            np.testing.assert_array_equal(y.numpy(), np.maximum(values, 0))
            kept += [model, library]
            timers[backend] = (
                lambda module=module, name=name: module.time_evaluator(name, tvm.cpu(), **times)(x, y).mean,
                lambda model=model: model.module.time_evaluator("run", tvm.cpu(), **times)().mean,
            )
        taken = {backend: ([], []) for backend in timers}
        for _ in range(told.rounds):
            for backend, (call, run) in timers.items():
                taken[backend][0].append(call() * 1e6)
                taken[backend][1].append(run() * 1e6)
    print(
        "What calling a region takes, in microseconds: a ReLU of 16 numbers on one thread, so that the call is nearly"
    )
    print(f"all of it. Median of {told.rounds} rounds of {told.calls} calls, in turn, and the least and greatest.\n")
    print(f"{'':14}{'its function':>14}{'':>18}{'a run of the executor':>24}")
    for backend, both in taken.items():
        texts = [f"{statistics.median(one):.2f}" for one in both]
        spread = [f"[{min(one):.2f}, {max(one):.2f}]" for one in both]
        print(f"{backend:14}{texts[0]:>14}{spread[0]:>18}{texts[1]:>12}{spread[1]:>18}")
    if absent:
        print(f"\nThey take no such operator: {', '.join(absent)}")
    machine, others = from_command("doctor")["machine"], meter.others()
    print(f"machine: {describe(machine)}")
    print(f"load: other processes took {100 * others:.1f} % of the processors' time")


if __name__ == "__main__":
    main()
