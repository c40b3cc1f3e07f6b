# SPDX-License-Identifier: Apache-2.0
"""What `collage.partition` gives those who build with TVM themselves, beside each backend alone and plain TVM.

Each network is partitioned from an empty store, at the graph level and at the operator level (`--level` leaves one
out), and by each backend alone (`only=`), built the same way, and run in turn in this process. "ResNet-50" is TVM's
own (tvm.relay.testing); the others are collage's workloads, or files.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import collage
from collage import api, compare, export, frontends, region
from tvm import relay
from tvm.relay import testing

LEVELS = ("graph", "operator")
NETWORKS = ["mobilenet_v2", "ResNet-50", "unet", "bert_base_128"]


def read(name):
    """The network's module, with its weights as constants."""
    if name == "ResNet-50":
        module, params = testing.resnet.get_workload(num_layers=50, batch_size=1)
        return relay.transform.InferType()(frontends.bind(module, params, name, "its weights"))
    return frontends.load(name if Path(name).exists() else f"workload:{name}").module


def built(module, path, threads):
    """Build a partitioned module as an executable of its own."""
    names = ("", *api.compilers(module))
    plugins = list(dict.fromkeys(plugin for name in names for plugin in region.plugins_for(name)))
    export.write(export.build(module), path, plugins, threads)
    return {"name": path.stem, "path": str(path)}


def ways(name, told, folder):
    """The models of a network, collage.partition's first, and how many seconds these took, by level."""
    module, seconds, models = read(name), {}, []
    for level in told.levels:
        began = time.perf_counter()
        placed = collage.partition(
            module,
            backends=told.backends.split(","),
            level=level,
            store=folder / f"{level}.jsonl",  # neither knows what the other has measured
            search_time=told.search_time,
            threads=told.threads,
            plan_out=folder / f"{level}.json",
        )
        seconds[level] = time.perf_counter() - began
        models.append(built(placed, folder / f"{level}.so", told.threads))
    for backend in told.backends.split(","):
        alone = collage.partition(module, backends=["tvm", backend], only=backend, store=folder / "alone.jsonl")
        models.append(built(alone, folder / f"{backend}.so", told.threads))
    return models, seconds


def main():
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="default: %(default)s")
    parser.add_argument("--backends", default="tvm,dnnl,native", help="default: %(default)s")
    parser.add_argument("--search-time", type=float, default=60, help="seconds at the graph level (default 60)")
    parser.add_argument("--level", choices=LEVELS, action="append", dest="levels", help="default: both")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=20, help="runs of all in turn (default 20)")
    told = parser.parse_args()
    told.levels = told.levels or list(LEVELS)
    alone = told.backends.split(",")
    columns = " ".join(f"{f'{level} s':>10} {f'{level} ms':>11}" for level in told.levels)
    columns += " " + " ".join(f"{f'{b} ms':>10}" for b in alone)
    print(f"{'network':16} {columns}  the best alone to {' and '.join(told.levels)}")
    for name in told.networks:
        with tempfile.TemporaryDirectory(prefix="collage-bench-") as folder:
            models, seconds = ways(name, told, Path(folder))
            within = {"rtol": 1e-4, "atol_of_greatest": 1e-5}
            measured = compare.compare({"models": models, "rounds": told.rounds, "threads": told.threads, **within})
            wrong = {
                which: seen
                for which, seen in measured["outputs"].items()
                if seen["unlike"] or any(one["wrong"] for one in seen["each"])
            }
            if wrong:
                raise SystemExit(f"{name}: not all give the same: {wrong}")
            samples = measured["samples_ms"]
            medians = {which: statistics.median(samples[which]) for which in samples}
            best = min(alone, key=medians.get)
            ratios, row = [], [f"{Path(name).stem:16}"]
            for level in told.levels:
                ours = samples[level]
                ratios.append(statistics.median(a / b for a, b in zip(samples[best], ours, strict=True)))
                row.append(f"{seconds[level]:10.1f} {medians[level]:11.3f}")
            row += [f"{medians[b]:10.3f}" for b in alone]
            print(*row, f" {best}", *(f"{ratio:.2f}" for ratio in ratios), flush=True)
    print("collage.partition at the", " and the ".join(f"{level} level" for level in told.levels), end=": ")
    print(f"medians of {told.rounds} rounds, all in turn, {told.threads} threads; backends {told.backends}")


if __name__ == "__main__":
    main()
