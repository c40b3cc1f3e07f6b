# SPDX-License-Identifier: Apache-2.0
"""How the time and the memory of each step grow with a network's operators, and with its weights.

ONNX files are written for it: stacks of a convolution, a ReLU and a sum of both of 10 to 10,000 operators with small
weights, whose shapes differ so that there is more to measure the more operators there are, and stacks of eight matrix
products with 1 MB to 2 GB of weights. Of each file a process of its own reads (collage.frontends), normalises, places
(by parts, tvm and dnnl, once with an empty store, once with what that left), builds (TVM's own build) and exports; and
`collage plan` plans it, with an empty store and with what that left, to 1,000 operators. The memory is that of the
process and of all that it starts. A step that takes longer than --limit, and what comes after it, is left out of the
larger sizes; one that takes half a minute more is ended. Under a row stands what did not end well, and why.

    .venv/bin/python scripts/bench_scale.py [--operators 10,100] [--megabytes 1,10] [--limit 300] [--json FILE]
    .venv/bin/python scripts/bench_scale.py --keep FILE     # rows as they come; the same again goes on from there
"""

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import apart_runs
import numpy as np

TREE = Path(__file__).resolve().parents[1]
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(TREE / "python"))

STEPS = ("read", "normalise", "place", "place again", "build", "export")
PLANS = ("plan", "plan again")
# Seconds that a process may take to start.
START = 30
# Seconds between two looks at how much memory is held.
LOOK = 0.2
# `collage plan` is run of so many operators at most.
PLANNED = 1000
OPERATORS = (10, 100, 1000, 10_000)
MEGABYTES = (1, 10, 100, 1000, 2000)


# Convolutions have 4 to 26 channels: a prime number of widths, so that each pair of them comes once before any comes
# again.
WIDTHS = 23


def stack(path, operators):
    """So many operators: convolution, ReLU, sum of both, over and over. 1,012 convolutions are all different."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(1)
    nodes, weights, last, before, width = [], [], "x", "x", 0
    for i in range(operators):
        name, turn = f"v{i}", i // 3
        if i % 3 == 0:
            wider = (width + 1 + turn // WIDTHS % (WIDTHS - 1)) % WIDTHS
            kernel = 1 if turn // (WIDTHS * (WIDTHS - 1)) % 2 else 3
            weight = rng.standard_normal((4 + wider, 4 + width, kernel, kernel), dtype=np.float32)
            weights.append(numpy_helper.from_array(weight / (kernel * (4 + width) ** 0.5), f"w{i}"))
            nodes.append(helper.make_node("Conv", [last, f"w{i}"], [name], pads=[kernel // 2] * 4))
            before, width = name, wider
        elif i % 3 == 1:
            nodes.append(helper.make_node("Relu", [last], [name]))
        else:
            nodes.append(helper.make_node("Add", [last, before], [name]))
        last = name
    _save(path, nodes, weights, (1, 4, 14, 14), last)


def products(path, megabytes):
    """Eight matrix products with so many megabytes of weights in all."""
    from onnx import helper, numpy_helper

    width = max(8, int((megabytes * 1e6 / 4 / 8) ** 0.5) // 8 * 8)
    rng, nodes, weights, last = np.random.default_rng(2), [], [], "x"
    for i in range(8):
        weights.append(numpy_helper.from_array(rng.standard_normal((width, width), dtype=np.float32) / width, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"v{i}"]))
        last = f"v{i}"
    _save(path, nodes, weights, (4, width), last)


def _save(path, nodes, weights, shape, last):
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, str(path), save_as_external_data=True, location=path.name + ".weights")


def steps(path, store, most):
    """Do the steps with one file, the first ``most`` of them, and print what each took as a line of JSON."""
    import tvm
    from collage import api, export, frontends, library, region, transform

    library.load()
    place = tvm.get_global_func("collage.place")
    told = transform.configuration(["tvm", "dnnl"], store=store, samples=3)
    made = {}

    def read():
        made["read"] = frontends.load(path).module

    def normalise():
        made["normal"] = transform.Normalise()(made.pop("read"))

    def placing():
        made["placed"] = place(made["normal"], told)[0]

    def build():
        made["built"] = export.build(made["placed"])

    def write():
        compilers = ("", *api.compilers(made["placed"]))
        plugins = dict.fromkeys(plugin for name in compilers for plugin in region.plugins_for(name))
        export.write(made["built"], path.with_suffix(".so"), list(plugins))

    for name, work in list(zip(STEPS, (read, normalise, placing, placing, build, write), strict=True))[:most]:
        began = time.perf_counter()
        work()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"step": name, "seconds": time.perf_counter() - began, "peak_mb": peak}), flush=True)


class Memory(threading.Thread):
    """Looks at how much memory all processes of a session hold, in megabytes; ``peak`` is the most of it."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.peak, self.over = session, 0.0, threading.Event()

    def run(self):
        while not self.over.wait(LOOK):
            self.peak = max(self.peak, sum(map(held, processes(self.session))))


def processes(session):
    """The processes of a session, by number."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # pid (name) state ppid pgrp session ...; a name may hold anything.
            if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session:
                yield int(path.name)


def held(process):
    """The megabytes that a process holds, of what it shares with others its part; 0 where it is gone."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
        return int(re.search(r"^Pss: +(\d+)", text, re.M).group(1)) / 1024
    return 0.0


def measured(make, size, most, limit, folder):
    """The steps of one size: {step: {"seconds", "peak_mb"}}, how many of them the next size may take, and why the next
    step did not end; "" where all did.
    """
    path = Path(folder) / "stack.onnx"
    make(path, size)
    command = [sys.executable, __file__, "--one", str(path), "--store", f"{folder}/costs.jsonl", "--most", str(most)]
    done, why, steps_left = {}, "", list(STEPS[:most])
    said = Path(folder) / "stderr"
    with (
        said.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as running,
    ):
        memory = Memory(running.pid)
        memory.start()
        while steps_left:
            # A step that does not end in time is ended, and prints nothing.
            timer = threading.Timer(limit + START, running.kill)
            timer.start()
            began = time.monotonic()
            line = running.stdout.readline()
            timer.cancel()
            if not line:
                late = time.monotonic() - began >= limit + START
                why = f"{steps_left[0]}: {ending(running.wait(), late, limit + START, said.read_text())}"
                break
            if line.startswith('{"step"'):
                one = json.loads(line)
                one["peak_mb"] = max(one["peak_mb"], memory.peak)
                done[one.pop("step")] = one
                if one["seconds"] > limit:
                    running.kill()
                    break
                steps_left.pop(0)
        memory.over.set()
        memory.join()
    return done, most - len(steps_left), why


def ending(code, late, limit, errors):
    """Why a process has ended."""
    if late:
        return f"ended after {limit:.0f} s"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return f"{how}, {lines[-1][:200]}" if lines else how


def planned(folder, limit):
    """`collage plan` of the stack in a folder, cold and warm: {name: {"seconds", "peak_mb"}}, and why one failed."""
    program = str(Path(sys.executable).parent / "collage")
    command = [program, "plan", f"{folder}/stack.onnx", "--backends", "tvm,dnnl", "--repeat", "3", "-q"]
    command += ["--db", f"{folder}/plan.jsonl", "--plan-out", f"{folder}/plan.json"]
    done = {}
    for name in PLANS:
        said = Path(folder) / "stderr"
        began = time.perf_counter()
        with (
            said.open("w") as errors,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True) as running,
        ):
            memory = Memory(running.pid)
            memory.start()
            late = False
            try:
                running.wait(limit + START)
            except subprocess.TimeoutExpired:
                late = True
                running.terminate()
            code = running.wait()
            memory.over.set()
            memory.join()
        if code or late:
            return done, f"{name}: {ending(code, late, limit + START, said.read_text())}"
        done[name] = {"seconds": time.perf_counter() - began, "peak_mb": memory.peak}
    return done, ""


def table(title, unit, sizes, make, limit, keep=None):
    """Measure all sizes and print a row for each. ``keep`` is the file that rows stand in as they come, and are taken
    from where they are there.
    """
    print(f"\n{title}\n{unit:>10}  " + "".join(f"{name + ' s':>14}" for name in (*STEPS, *PLANS)) + "      peak MB")
    known = apart_runs.kept(keep)
    rows, most = [], len(STEPS)
    for size in sizes:
        if (unit, str(size)) in known:
            row, most = known[unit, str(size)]
        else:
            row, most = measured_row(unit, size, make, most, limit)
            if keep:
                apart_runs.add(keep, (unit, str(size)), (row, most))
        tell(row, size)
        rows.append(row)
    return rows


def measured_row(unit, size, make, most, limit):
    """The row of a size, and how many steps the next size may take."""
    with tempfile.TemporaryDirectory(prefix="collage-scale-") as folder:
        done, most, why = measured(make, size, most, limit, folder)
        ended = [why] if why else []
        if unit == "operators" and size <= PLANNED:
            plans, why = planned(folder, limit)
            done |= plans
            ended += [why] if why else []
    return {unit: size, "steps": done} | ({"ended": ended} if ended else {}), most


def tell(row, size):
    """Print a row."""
    done = row["steps"]
    numbers = "".join(f"{done[name]['seconds']:14.2f}" if name in done else f"{'-':>14}" for name in (*STEPS, *PLANS))
    peak = max((one["peak_mb"] for one in done.values()), default=0)
    print(f"{size:>10}  {numbers}  {peak:11.0f}", flush=True)
    for why in row.get("ended", ()):
        print(f"{'':>10}  {why}", flush=True)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", default=",".join(map(str, OPERATORS)), help="sizes, with commas (%(default)s)")
    parser.add_argument("--megabytes", default=",".join(map(str, MEGABYTES)), help="of weights (%(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a step (%(default)s)")
    parser.add_argument("--keep", metavar="FILE", help="rows stand here as they come; those that do are not redone")
    parser.add_argument("--json", help="write the rows here")
    for hidden in ("--one", "--store", "--most"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        steps(Path(given.one), given.store, int(given.most))
        return
    document = {"schema": 1}
    for key, title, sizes, make in (
        ("operators", "operators: convolution, ReLU, sum of both", given.operators, stack),
        ("megabytes", "weights: eight matrix products", given.megabytes, products),
    ):
        sizes = [int(size) for size in sizes.split(",") if size]
        document[key] = table(title, key, sizes, make, given.limit, given.keep) if sizes else []
    if given.json:
        Path(given.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
