# SPDX-License-Identifier: Apache-2.0
"""How the time and the memory of each step grow with a network's operators, and with its weights.

ONNX files are written for it: stacks of a convolution, a ReLU and a residual sum of 10 to 10,000 operators with small
weights, and stacks of eight matrix products with 1 MB to 2 GB of weights. Of each file a process of its own reads
(collage.frontends), normalises, places (by parts, tvm and dnnl, once with an empty store, once with what that left),
builds (TVM's own build) and exports. A step that takes longer than --limit, and what comes after it, is left out of the
larger sizes; one that takes half a minute more is ended, and is a - in its row.

    .venv/bin/python scripts/bench_scale.py [--operators 10,100] [--megabytes 1,10] [--limit 300] [--json FILE]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

TREE = Path(__file__).resolve().parents[1]
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(TREE / "python"))

STEPS = ("read", "normalise", "place", "place again", "build", "export")
# Seconds that a process may take to start.
START = 30
OPERATORS = (10, 100, 1000, 10_000)
MEGABYTES = (1, 10, 100, 1000, 2000)


def stack(path, operators):
    """So many operators: convolution, ReLU, sum with what came before, over and over."""
    from onnx import helper, numpy_helper

    weight = 0.05 * np.random.default_rng(1).standard_normal((16, 16, 3, 3))
    nodes, weights, last, before = [], [], "x", "x"
    for i in range(operators):
        name = f"v{i}"
        if i % 3 == 0:
            weights.append(numpy_helper.from_array((weight + i * 1e-6).astype("float32"), f"w{i}"))
            nodes.append(helper.make_node("Conv", [last, f"w{i}"], [name], pads=[1, 1, 1, 1]))
        elif i % 3 == 1:
            nodes.append(helper.make_node("Relu", [last], [name]))
        else:
            nodes.append(helper.make_node("Add", [last, before], [name]))
            before = name
        last = name
    _save(path, nodes, weights, (1, 16, 14, 14), last)


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


def measured(make, size, most, limit, folder):
    """The steps of one size: {step: {"seconds", "peak_mb"}}, and how many of them the next size may take."""
    path = Path(folder) / "stack.onnx"
    make(path, size)
    command = [sys.executable, __file__, "--one", str(path), "--store", f"{folder}/costs.jsonl", "--most", str(most)]
    done = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        steps_left = list(STEPS[:most])
        while steps_left:
            # A step that does not end in time is ended, and prints nothing.
            timer = threading.Timer(limit + START, running.kill)
            timer.start()
            line = running.stdout.readline()
            timer.cancel()
            if not line:
                break
            if line.startswith('{"step"'):
                one = json.loads(line)
                done[one.pop("step")] = one
                if one["seconds"] > limit:
                    running.kill()
                    break
                steps_left.pop(0)
    return done, most - len(steps_left)


def table(title, unit, sizes, make, limit):
    """Measure all sizes and print a row for each."""
    print(f"\n{title}\n{unit:>10}  " + "".join(f"{name + ' s':>14}" for name in STEPS) + "      peak MB")
    rows, most = [], len(STEPS)
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="collage-scale-") as folder:
            done, most = measured(make, size, most, limit, folder)
        numbers = "".join(f"{done[name]['seconds']:14.2f}" if name in done else f"{'-':>14}" for name in STEPS)
        peak = max((one["peak_mb"] for one in done.values()), default=0)
        print(f"{size:>10}  {numbers}  {peak:11.0f}", flush=True)
        rows.append({unit: size, "steps": done})
    return rows


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operators", default=",".join(map(str, OPERATORS)), help="sizes, with commas (%(default)s)")
    parser.add_argument("--megabytes", default=",".join(map(str, MEGABYTES)), help="of weights (%(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="seconds of a step (%(default)s)")
    parser.add_argument("--json", help="write the rows here")
    for hidden in ("--one", "--store", "--most"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        steps(Path(given.one), given.store, int(given.most))
        return
    document = {"schema": 1}
    for key, title, sizes, make in (
        ("operators", "operators: convolution, ReLU, sum", given.operators, stack),
        ("megabytes", "weights: eight matrix products", given.megabytes, products),
    ):
        sizes = [int(size) for size in sizes.split(",") if size]
        document[key] = table(title, key, sizes, make, given.limit) if sizes else []
    if given.json:
        Path(given.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
