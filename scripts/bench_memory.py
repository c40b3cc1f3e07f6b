# SPDX-License-Identifier: Apache-2.0
"""What a model holds in memory: loaded, after its first run, after a thousand, and eight copies of it in a process.

For each network: an executable on one backend, or on several as a short search mixes them, exported as .so, run
by TVM's runtime and the plug-ins in a process that holds nothing else, opened as `collage run` and
`collage.load` do, at last also as plain TVM does. Resident memory is told apart as the kernel does: *own*
(anonymous: the heap, packed weights, tensors) and *file* (pages of the model and of libraries that are mapped;
the system takes them back when it needs memory, and all processes share them). What the process had before the
model is taken off. *shared* is what regions and TVM's executors hold together (byoc/runtime/shared_constants.h,
shared_parameters.cc). Copies are the same file loaded again, or copies of the file.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
PACKAGE = Path(__file__).resolve().parents[1] / "python"

NETWORKS = ("workload:bert_full", "workload:resnext50_32x4d", "workload:dcgan")
BACKENDS = "dnnl,tvm,native,tvm+dnnl+native,openvino,onnxruntime"
# How long backends are searched that share a network.
SEARCH_SECONDS = 20
COPIES, RUNS = 8, 1000

# A process that holds nothing but TVM's runtime, the plug-ins and models.
CHILD = """
import json, re, sys
import tvm
from tvm.contrib import graph_executor
opened = sys.argv.pop(1) == "collage"
runs, paths = int(sys.argv[1]), sys.argv[2:]

def now():
    status = open("/proc/self/status").read()
    found = {name: int(re.search(name + r":\\s+(\\d+) kB", status).group(1)) << 10
             for name in ("RssAnon", "RssFile", "VmHWM")}
    shared = tvm.get_global_func("collage.runtime.SharedBytes", allow_missing=True)
    return {"own": found["RssAnon"], "file": found["RssFile"], "peak": found["VmHWM"],
            "shared": shared() if shared else 0}

# The plug-ins and what they need, without a model.
import ctypes
for plugin in json.loads(sys.stdin.read()):
    ctypes.CDLL(plugin)
told = {"before": now()}
executors = []
def load(path):
    library = tvm.runtime.load_module(path)
    if opened:
        return tvm.get_global_func("collage.runtime.Open")(library, 1, 0)
    return library["default"](tvm.cpu())
for path in paths:
    executors.append(graph_executor.GraphModule(load(path)))
    if opened:
        tvm.get_global_func("collage.runtime.Trim")()
    told.setdefault("loaded", now())
    executors[-1].run()
    told.setdefault("first run", now())
for _ in range(runs):
    for executor in executors:
        executor.run()
told["runs"] = now()
executors.clear()
executor = None
told["unloaded"] = now()
print(json.dumps(told))
"""


def processor():
    """What the processor calls itself."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found.group(1) if found else "a processor without a name"


def export_model(network, backends, path, threads):
    """The network on one backend, with all that it takes, or on several; returns the plug-ins, in the order of loading,
    and the bytes of weights.
    """
    import collage
    from collage import api, export, frontends, region

    model = frontends.load(network)
    how = {"only": backends[0]}
    if len(backends) > 1:
        how = {"backends": backends, "search_time": SEARCH_SECONDS}
    placed = collage.partition(model.module, threads=threads, **how)
    plugins = [path for name in ("", *api.compilers(placed)) for path in region.plugins_for(name)]
    plugins = list(dict.fromkeys(map(str, plugins)))
    export.write(export.build(placed), path, plugins, threads)
    return plugins, frontends.parameter_bytes(model.module)


def unusable(backends):
    """Which of the backends cannot be used here, and why; "" for none."""
    command = [PACKAGE / "collage" / "bin" / "collage", "backends", "--json"]
    environment = {**os.environ, "COLLAGE_PYTHON": sys.executable}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    told = {one["name"]: one["probe"] for one in json.loads(told.stdout)["backends"]}
    for name in backends:
        if name not in told:
            raise SystemExit(f"bench_memory: there is no backend {name} (known: {', '.join(told)})")
        if not told[name]["usable"]:
            return f"{name}: {told[name]['reason']}"
    return ""


def measured(paths, plugins, runs, opened="collage"):
    """What the child tells of models, less what it had before them; opened as Collage does, or "tvm"."""
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "LD_LIBRARY_PATH": str(Path(plugins[0]).parent)}
    environment.pop("PYTHONPATH", None)
    told = subprocess.run(
        [sys.executable, "-c", CHILD, opened, str(runs), *map(str, paths)],
        input=json.dumps(plugins), capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    if told.returncode != 0:
        raise SystemExit(f"bench_memory: {told.stderr.strip().splitlines()[-1]}")
    report = json.loads(told.stdout.splitlines()[-1])
    before = report.pop("before")
    base = {"own": before["own"], "file": before["file"], "peak": before["own"] + before["file"], "shared": 0}
    return {when: {kind: size - base[kind] for kind, size in sizes.items()} for when, sizes in report.items()}


def bench(network, backends, options, folder):
    model = folder / "model.so"
    plugins, weights = export_model(network, backends, model, options.threads)
    copies = [shutil.copy(model, folder / f"model-{i}.so") for i in range(options.copies)]
    result = {
        "network": network,
        "backend": ", ".join(backends),
        "weights": weights,
        "model_file": model.stat().st_size,
        "one": measured([model], plugins, options.runs),
        "same file again": measured([model] * options.copies, plugins, 2),
        "copies of the file": measured(copies, plugins, 2),
        "same file again, opened by TVM": measured([model] * options.copies, plugins, 2, "tvm"),
    }
    for path in (model, *copies):
        Path(path).unlink()
    return result


def text_of(result, options):
    """The rows of one network: megabytes."""

    def row(name, sizes):
        cells = "".join(f"{sizes[kind] / 1e6:9.1f}" for kind in ("own", "file", "peak", "shared"))
        return f"  {name:<42}{cells}"

    head = f"{result['network']} on {result['backend']}: weights {result['weights'] / 1e6:.1f} MB"
    lines = [f"{head}, file {result['model_file'] / 1e6:.1f} MB", f"  {'':<42}      own     file     peak   shared"]
    one = result["one"]
    lines += [row("loaded", one["loaded"]), row("after the first run", one["first run"])]
    lines += [row(f"after {options.runs} runs", one["runs"]), row("let go of", one["unloaded"])]
    for how in ("same file again", "copies of the file", "same file again, opened by TVM"):
        lines.append(row(f"{options.copies} models, {how}", result[how]["runs"]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="models, as collage compile takes them")
    parser.add_argument(
        "--backends", default=BACKENDS, help="with commas, several that share a network with + (%(default)s)"
    )
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    sys.path.insert(0, str(PACKAGE))
    print(f"{processor()}, {options.threads} threads\n")
    print("What a model holds beside TVM's runtime and the plug-ins, in megabytes (own: anonymous memory; file: mapped")
    print("pages of files; peak: the most of both; shared: held once by all)\n")
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        for network in options.networks:
            for shared in options.backends.split(","):
                backends = shared.split("+")
                if missing := unusable(backends):
                    print(f"{network} on {shared}: not measured, {missing}\n", flush=True)
                    continue
                print(text_of(bench(network, backends, options, Path(folder)), options) + "\n", flush=True)


if __name__ == "__main__":
    main()
