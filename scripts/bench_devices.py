# SPDX-License-Identifier: Apache-2.0
"""Whole networks on a device: TVM's kernels alone, beside these with a library's.

    bench_devices.py [NETWORK...] [--device KIND] [--rounds N] [--threads N]

Nothing is searched: one network has everything that the device takes on TVM's kernels, the other has on the library
(CLBlast on OpenCL, cuBLAS on CUDA) what that takes, and the rest on TVM's. Both are run in turn with plain TVM on the
processor, whose answers theirs are held to; of each the fastest round counts.
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

NETWORKS = ("workload:bert_full", "workload:vit_b16", "workload:mobilenet_v2", "workload:nasneta")
# TVM's backend and the library's, by kind of device.
BACKENDS = {"opencl": ("tvm_opencl", "clblast"), "cuda": ("tvm_cuda", "cublas")}
# How far outputs may be from plain TVM's, as a share of the greatest of them.
ERROR = 1e-3


def device(kind):
    """What the plug-in says of the device that regions run on, which is found when this is first called."""
    import collage
    import tvm

    collage.library.load()
    collage.library.install(f"collage_{kind}")
    found = json.loads(str(tvm.get_global_func(f"collage.runtime.{kind}.Devices")()))
    return found[int(tvm.get_global_func(f"collage.runtime.{kind}.Device")())]


# Of CLBlast's kernels for one operator the more special one.
SPECIAL = ("clblast.gemm_conv2d", "clblast.gemv_dense", "clblast.gemv_matmul")


def by_costs(module, backends, threads, **rules):
    """The module with each operator on the first of the backends that takes it, within the rules, and its plan. Costs
    are given, each backend's far below the next one's, so that nothing is measured.
    """
    import collage
    import tvm

    costs = {name: 1e-6 * 1e5**place for place, name in enumerate(backends)}

    def estimate(text):
        key = json.loads(str(text))
        return costs.get(key["backend"], 1.0) * (0.5 if key.get("composite") in SPECIAL else 1)

    told = collage.transform.configuration(backends, threads=threads, **rules)
    split, plan = tvm.get_global_func("collage.partition")(module, told, estimate)
    return split, json.loads(str(plan))


def nodes(plan, backend):
    """The operators that a plan has on a backend, by their numbers in main."""
    return [
        node["index"]
        for region in plan["regions"] or []
        for part in region["candidates"]
        if part.get("backend", region["backend"]) == backend and region["function"] == "main"
        for node in part["nodes"]
    ]


def placements(module, threads, kind):
    """{name: (module, operators on the device, those of the library's)} of plain TVM and both ways with the device."""
    alone, library = BACKENDS[kind]
    split, plan = by_costs(module, [alone, "tvm"], threads)
    made = {"tvm": (module, 0, 0), alone: (split, len(nodes(plan, alone)), 0)}
    _, plan = by_costs(module, [library, "tvm"], threads, only=library)
    pins = [f"%{index}={library}" for index in nodes(plan, library)]
    if pins:
        split, plan = by_costs(module, [alone, library, "tvm"], threads, pin=pins)
        theirs = len(nodes(plan, library))
        made[f"{library}+{alone}"] = split, len(nodes(plan, alone)) + theirs, theirs
    return made


def executor(module, folder, threads):
    """The module built, written and loaded as users have it."""
    from collage import api, export, region

    plugins = [path for name in ("", *api.compilers(module)) for path in region.plugins_for(name)]
    path = Path(folder) / "model.tar"
    export.write(export.build(module), path, list(dict.fromkeys(map(str, plugins))), threads)
    return region.load_executor(path)


def measure(network, rounds, threads, kind):
    """[(name, ms, seconds to build, operators on the device, the library's, error)] of a network's placements."""
    from collage import frontends, transform

    module = transform.Normalise()(frontends.load(network).module)
    inputs = drawn(module)
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-devices-") as folder:
        for name, (made, there, theirs) in placements(module, threads, kind).items():
            print(f"{network}: building {name}", file=sys.stderr, flush=True)
            began = time.perf_counter()
            model = executor(made, folder, threads)
            built = time.perf_counter() - began
            rows.append([name, model, math.inf, built, there, theirs, answers(model, inputs)])
        for turn in range(rounds):
            print(f"{network}: round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
            for row in rows:
                began = time.perf_counter()
                row[1].run()
                row[2] = min(row[2], 1e3 * (time.perf_counter() - began))
    told = []
    for name, _, ms, built, there, theirs, outputs in rows:
        error = difference(outputs, rows[0][-1])
        if not error <= ERROR:
            raise SystemExit(f"bench_devices: {network} on {name} is off by {error:.2g} of its outputs")
        told.append((name, ms, built, there, theirs, error))
    return told


def answers(model, inputs):
    """The outputs of a loaded model."""
    for index, value in enumerate(inputs):
        model.set_input(index, value)
    model.run()
    return [model.get_output(i).numpy() for i in range(model.get_num_outputs())]


def difference(outputs, wanted):
    """How far outputs are from what is wanted, as a share of the greatest of that; no number where one is none."""
    import numpy as np

    pairs = zip(outputs, wanted, strict=True)
    # NumPy's greatest is no number where one of them is none; Python's is not.
    return np.max(
        [np.abs(one.astype("float64") - other).max() / max(1e-30, np.abs(other).max()) for one, other in pairs]
    )


def drawn(module):
    """Inputs of main: from a seed, numbers of the normal distribution, whole ones from 0 to 3."""
    import numpy as np

    random = np.random.default_rng(0)
    values = []
    for param in module["main"].params:
        shape, dtype = [int(extent) for extent in param.checked_type.shape], param.checked_type.dtype
        whole = not dtype.startswith("float")
        values.append((random.integers(0, 4, shape) if whole else random.standard_normal(shape)).astype(dtype))
    return values


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=NETWORKS, help=f"what to run ({', '.join(NETWORKS)})")
    parser.add_argument("--device", default="opencl", choices=BACKENDS, help="the kind of device (opencl)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each has its turn (5)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the processor's part")
    options = parser.parse_args()
    used = device(options.device)
    print(f"device: {used['name']}, {used['version']}, driver {used['driver']}, {used['units']} units")
    print(f"fastest of {options.rounds} rounds in turn; operators: on the device, of them the library's\n")
    print(f"{'network':26} {'':20} {'ms':>10} {'operators':>11} {'error':>9} {'build s':>8}")
    for network in options.networks:
        for name, ms, built, there, theirs, error in measure(network, options.rounds, options.threads, options.device):
            share = f"{there}, {theirs}" if there else "-"
            shown = network.removeprefix("workload:")
            print(f"{shown:26} {name:20} {ms:10.2f} {share:>11} {error:9.1e} {built:8.1f}", flush=True)


if __name__ == "__main__":
    main()
