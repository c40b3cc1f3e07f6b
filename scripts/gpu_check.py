# SPDX-License-Identifier: Apache-2.0
"""All of CUDA, tried on a machine with an NVIDIA card.

    gpu_check.py [--json FILE] [--minutes M] [--part NAME]... [--dry-run]

Each part is a process of its own with a time limit, the most important one first, so that one that fails or hangs
costs nothing else; after each, what is known so far is written. --part runs only those that are named. --dry-run needs
no card: parts that are small enough run on the one that the tests emulate. Exit code 1: a part failed.

From a bundle (gpu_bundle.sh) it runs with any Python 3.10 or newer that has NumPy.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "tests", HERE.parent / "python"):
    sys.path.insert(0, str(folder))

KERNELS, LIBRARY = "tvm_cuda", "cublas"
THREADS = min(8, os.cpu_count() or 1)


def machine(_):
    """The cards, the driver, the compiler, and what nvidia-smi says of clocks."""
    import bench_devices
    import collage

    found = bench_devices.device("cuda")
    told = {"card": found, "python": sys.version.split()[0], "threads": THREADS}
    told["backends"] = versions()
    told["collage"] = collage.__version__
    if shutil.which("nvidia-smi"):
        fields = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
        asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
        told["nvidia_smi"] = subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout.strip()
    return told


def versions():
    """The versions of the backends for cards that can be used here, by name."""
    import bench_devices
    from tvm import IRModule, relay

    module = relay.transform.InferType()(IRModule.from_expr(relay.exp(relay.var("x", shape=(4,)))))
    _, plan = bench_devices.by_costs(module, ["tvm"], THREADS, devices=["cuda"])
    return {one["name"]: one["version"] for one in plan["backends"] if one["name"] != "tvm"}


def error_of(module, split, folder):
    """How far a placed module's outputs are from TVM's on the processor."""
    import bench_devices

    inputs = bench_devices.drawn(module)
    wanted, outputs = (
        bench_devices.answers(bench_devices.executor(each, folder, THREADS), inputs) for each in (module, split)
    )
    worst = float(bench_devices.difference(outputs, wanted))
    if not worst <= bench_devices.ERROR:
        raise ValueError(f"the outputs are off by {worst:.2g} of the greatest")
    return worst


def named(module):
    """The names of the operators of main."""
    from tvm import ir, relay

    names = set()

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, ir.Op):
            names.add(node.op.name)

    relay.analysis.post_order_visit(module["main"], visit)
    return names


def with_folder(body):
    """Calls a function with an empty folder that goes afterwards."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        return body(Path(folder))


def operators(kind):
    """TVM's kernels for the operators of one kind (tests/device_operators.py)."""
    import bench_devices
    import device_operators
    from tvm import IRModule, relay

    bench_devices.device("cuda")
    made = device_operators.OPERATORS[kind].values()
    module = relay.transform.InferType()(IRModule.from_expr(relay.Tuple([make() for make in made])))
    split, plan = bench_devices.by_costs(module, [KERNELS, "tvm"], THREADS)
    return {
        "operators": len(bench_devices.nodes(plan, KERNELS)),
        "error": with_folder(lambda folder: error_of(module, split, folder)),
    }


def products(_):
    """cuBLAS's products with each of its epilogues, between TVM's kernels."""
    import bench_devices
    import numpy as np
    from tvm import IRModule, relay

    bench_devices.device("cuda")

    def weight(*shape):
        drawn = np.random.default_rng(len(shape)).standard_normal(shape) / shape[-1] ** 0.5
        return relay.const(drawn.astype("float32"))

    x, residual = relay.var("x", shape=(33, 96)), relay.var("r", shape=(33, 64))
    y, z = relay.var("y", shape=(4, 33, 96)), relay.var("z", shape=(4, 64, 96))
    one = relay.nn.dense(x, weight(64, 96))
    biased = one + weight(64)
    forms = [
        one, biased, relay.nn.relu(one), relay.nn.relu(biased), one + residual, relay.nn.relu(biased + residual),
        one * relay.const(0.5), relay.nn.batch_matmul(y, z), relay.nn.matmul(x, weight(96, 64)),
        relay.nn.dense(relay.var("row", shape=(1, 96)), weight(64, 96)),
    ]  # fmt: skip
    errors = {}
    for index, form in enumerate(forms):
        module = relay.transform.InferType()(IRModule.from_expr(relay.tanh(form)))
        pins = [f"{name}={LIBRARY}" for name in named(module) - {"tanh"}]
        split, plan = bench_devices.by_costs(module, [KERNELS, LIBRARY, "tvm"], THREADS, pin=pins)
        taken = [one["composite"] for region in plan["regions"] for one in region["candidates"] if "composite" in one]
        if len(taken) != 1:
            raise ValueError(f"form {index} has {taken} on cuBLAS")
        errors[f"{index} {taken[0]}"] = with_folder(lambda folder, a=module, b=split: error_of(a, b, folder))
    return {"errors": errors}


def network(name):
    """A network on TVM's kernels, with cuBLAS among them, and on the processor: right, and how long each takes."""
    import bench_devices

    bench_devices.device("cuda")
    rows = bench_devices.measure(f"workload:{name}", 7, THREADS, "cuda")
    fields = ("placement", "ms", "build_s", "operators", "of_the_library", "error")
    return {"rows": [dict(zip(fields, map(plain, row), strict=True)) for row in rows]}


def plain(value):
    return value.item() if hasattr(value, "item") else value


def together(name):
    """What multiplies on the card, the rest on the processor."""
    import re

    import bench_devices
    from collage import frontends, transform

    bench_devices.device("cuda")
    module = transform.Normalise()(frontends.load(f"workload:{name}").module)
    multiplies = re.compile("conv|dense|matmul")
    pins = [f"{one}={KERNELS if multiplies.search(one) else 'tvm'}" for one in sorted(named(module))]
    split, plan = bench_devices.by_costs(module, ["tvm", KERNELS], THREADS, pin=pins)
    return {
        "operators": len(bench_devices.nodes(plan, KERNELS)),
        "error": with_folder(lambda folder: error_of(module, split, folder)),
    }


def small():
    """A network that an emulated card is quick with."""
    import numpy as np
    from tvm import IRModule, relay

    def weight(*shape):
        return relay.const(np.random.default_rng(len(shape)).standard_normal(shape).astype("float32") / 10)

    data = relay.var("data", shape=(1, 3, 16, 16))
    data = relay.nn.relu(relay.nn.conv2d(data, weight(8, 3, 3, 3), kernel_size=(3, 3), channels=8, padding=(1, 1)))
    data = relay.nn.batch_flatten(relay.nn.max_pool2d(data, (2, 2), (2, 2)))
    return IRModule.from_expr(relay.nn.softmax(relay.nn.dense(data, weight(10, 512))))


def search(name):
    """The search itself: compiled with the card among the backends, from an empty store."""

    def body(folder):
        import collage

        model = collage.compile(
            f"workload:{name}" if name else small(), backends=["tvm"], devices=["cuda"], threads=THREADS,
            store=folder / "costs.jsonl", plan_out=folder / "plan.json", search_time=45 if name else 20,
        )  # fmt: skip
        plan = json.loads((folder / "plan.json").read_text())
        tried = {one["name"]: one.get("failure") or "ok" for one in plan["graph_level"]["networks"]}
        if wrong := {one: why for one, why in tried.items() if why != "ok"}:
            raise ValueError(f"networks that were tried failed: {wrong}")
        return {
            "backends": sorted({region["backend"] for region in plan["regions"]}),
            "tried": sorted(tried),
            "finalists": plan["finalists"],
            "ms": float(model.benchmark(repeat=20).median) * 1e3,
        }

    return with_folder(body)


# Each part: its name, what it does, with what, and its limit in seconds; the most important first.
PAPER = ("bert_full", "resnext50_32x4d", "nasneta", "dcgan", "resnet50_3d")
OPERATORS = (
    "products", "convolutions", "norms", "pools", "reductions", "elementwise", "movement", "selection", "images",
    "bytes",
)  # fmt: skip


def parts(dry):
    """The parts in the order in which they run."""
    listed = [("machine", machine, None, 60), ("products of cublas", products, None, 90)]
    listed += [(f"operators: {kind}", operators, kind, 90) for kind in OPERATORS[:2]]
    if dry:
        return [*listed, ("search: a small network", search, None, 120)]
    listed += [(f"network: {name}", network, name, 120) for name in PAPER[:2]]
    listed += [("together: bert_full", together, "bert_full", 60), ("search: bert_full", search, "bert_full", 120)]
    listed += [(f"network: {name}", network, name, 120) for name in PAPER[2:]]
    listed += [(f"operators: {kind}", operators, kind, 90) for kind in OPERATORS[2:]]
    return [*listed, ("search: resnext50_32x4d", search, "resnext50_32x4d", 120)]


def main():
    """Runs the parts; in a part's own process, that part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("gpu-check.json"), help="where to write it (gpu-check.json)")
    parser.add_argument("--minutes", type=float, default=8, help="no part begins after so many (8)")
    parser.add_argument("--part", action="append", help="only this part; may be given several times")
    parser.add_argument("--dry-run", action="store_true", help="on the emulated card of the tests, with small networks")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args()
    every = parts(options.dry_run)
    if options.within:
        (one,) = [one for one in every if one[0] == options.within]
        print("\n" + json.dumps(one[1](one[2])))
        return 0
    known = [name for name, *_ in every]
    if wrong := [name for name in options.part or [] if name not in known]:
        parser.error(f"there is no part {wrong[0]!r} (known: {', '.join(known)})")
    chosen = [one for one in every if not options.part or one[0] in options.part]
    emulated = contextlib.nullcontext()
    if options.dry_run:
        import emulated_card

        os.environ.update(emulated_card.ENVIRONMENT)
        emulated = emulated_card.present()
    with emulated:
        return run(chosen, options)


def run(chosen, options):
    """Runs parts one by one and writes what they told after each."""
    began, results = time.monotonic(), []
    for name, _, _, limit in chosen:
        spent = time.monotonic() - began
        if spent < 60 * options.minutes:
            told = one_part(name, limit, options.dry_run)
        else:
            late = f"not begun: {options.minutes:g} minutes were over"
            told = {"part": name, "ok": False, "seconds": 0, "error": late}
        results.append(told)
        report = {"schema": 1, "dry_run": options.dry_run, "seconds": time.monotonic() - began, "parts": results}
        written = options.json.with_name(options.json.name + ".part")
        written.write_text(json.dumps(report, indent=1) + "\n")
        written.replace(options.json)
        shown = "ok" if told["ok"] else "FAILED: " + told["error"].splitlines()[-1]
        print(f"gpu-check: {name:28} {told['seconds']:6.1f} s  {shown}", flush=True)
    failed = [one["part"] for one in results if not one["ok"]]
    print(f"gpu-check: {len(results) - len(failed)} of {len(results)} parts passed, {options.json}")
    return 1 if failed else 0


def one_part(name, limit, dry):
    """What a part told, or why it did not."""
    command = [sys.executable, __file__, "--within", name, *(["--dry-run"] if dry else [])]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired as late:
        said = late.stderr or b""
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        return {"part": name, "ok": False, "seconds": limit, "error": f"{said[-2000:]}\nnot ended after {limit} s"}
    told = {"part": name, "ok": done.returncode == 0, "seconds": round(time.monotonic() - began, 1)}
    if done.returncode == 0:
        told["result"] = json.loads(done.stdout.splitlines()[-1])
    else:
        told["error"] = done.stderr[-3000:].strip() or f"ended with {done.returncode}"
    return told


if __name__ == "__main__":
    sys.exit(main())
