# SPDX-License-Identifier: Apache-2.0
"""Networks whose sizes vary: one executable of Collage's beside ONNX Runtime, OpenVINO and PyTorch, for all sizes.

    bench_dynamic.py [MODEL.onnx...] [--sizes NAME=1..512] [--ragged INPUT] [--shapes N] [--rounds N] [--threads N]
                     [--json FILE]

A dimension that the model leaves open is called by the model's own name for it (len=1..512, batch=1..16, frames=2..400
and past=1..512 unless --sizes says otherwise). Each engine runs in a process of its own. In each round all are asked
in turn for each shape, in another order each time: so the first run is one after a change of shape. Of each shape the
fastest round counts, and, beside it, what the first run of a shape took that the engine had not met. Answers are held
to ONNX Runtime's.
With --ragged, the name of a mask of batch and length, one sentence of each batch is as long as that, and the others are
of any length up to it; Collage is told which input the mask is, and answers are compared where tokens are.
Models: those that `python -m models --open` writes into build/models. PyTorch, eager and by
torch.compile(dynamic=True), runs those alone, which are its own, where `make peers` has installed it.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
TREE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TREE / "python"))

SIZES = {
    "len": (1, 512), "batch": (1, 16), "frames": (2, 400), "past": (1, 512), "height": (64, 256), "width": (64, 256),
}  # fmt: skip
ENGINES = ("collage", "onnxruntime", "openvino")
OF_TORCH = ("torch", "torch_compile")
PEERS = TREE / ".venv-peers/bin/python"
BACKENDS = "tvm,dnnl,native,onnxruntime,openvino"
# How far outputs may be from ONNX Runtime's, as a share of the greatest of them.
ERROR = 1e-3
# A run is timed as the mean of as many as fill this.
LEAST_MS = 2.0
# How long is waited before an engine is asked: ONNX Runtime's threads look for work for a while when there is no more,
# and whoever came next would have the processors with them.
PAUSE_S = 0.05


def inputs(path):
    """{name: (dims, dtype)} of a model's inputs; names for what is open."""
    import onnx
    from onnx import helper

    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return {
        value.name: (
            [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim],
            str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
        )
        for value in graph.input
        if value.name not in weights
    }


def values(asked, sizes, lengths=None, mask=None):
    """Random inputs at these sizes, the same for all engines: words are small whole numbers, masks (the one of the name
    ``mask``, too) all ones, or, of a batch of sequences of so many tokens, ones for these.
    """
    import numpy as np

    rng = np.random.default_rng(sum(sizes.values()))
    made = {}
    for name, (dims, dtype) in asked.items():
        shape = [sizes.get(dim, dim) for dim in dims]
        if name == mask or "mask" in name:
            made[name] = np.ones(shape, dtype)
            if lengths is not None:
                made[name] *= np.arange(shape[1]) < np.array(lengths)[:, None]
        elif dtype.startswith("int"):
            made[name] = rng.integers(0, 900, shape).astype(dtype)
        else:
            made[name] = rng.standard_normal(shape).astype(dtype)
    return made


class _Collage:
    def __init__(self, path, threads):
        import collage

        self.version = collage.__version__
        self.model = collage.load(path)

    def run(self, given):
        return self.model.run(given)[0]


class _OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime

        self.version = onnxruntime.__version__
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, given):
        return self.session.run(None, given)[0]


class _OpenVino:
    def __init__(self, path, threads):
        import openvino

        self.version = openvino.__version__
        core = openvino.Core()
        told = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        self.request = core.compile_model(core.read_model(path), "CPU", told).create_infer_request()

    def run(self, given):
        return self.request.infer(given)[0]


class _Torch:
    """The network that scripts/models wrote into the file, as PyTorch runs it."""

    def __init__(self, path, threads):
        sys.path.insert(0, str(TREE / "scripts"))
        import torch
        from models import ragged
        from models.table import OPEN

        self.version, self.torch = torch.__version__, torch
        torch.set_num_threads(threads)
        torch.manual_seed(0)  # as the file was written
        name, _, kind = Path(path).name.removesuffix(".onnx").partition(".")
        network, _ = OPEN[name][0]() if kind == "open" else ragged.named(name)
        self.network = network.eval()

    def run(self, given):
        with self.torch.no_grad():
            out = self.network(*map(self.torch.from_numpy, given.values()))
        return (out[0] if isinstance(out, (tuple, list)) else out).numpy()


class _TorchCompile(_Torch):
    def __init__(self, path, threads):
        super().__init__(path, threads)
        self.network = self.torch.compile(self.network, dynamic=True)


RUNNERS = {
    "collage": _Collage,
    "onnxruntime": _OnnxRuntime,
    "openvino": _OpenVino,
    "torch": _Torch,
    "torch_compile": _TorchCompile,
}


def resident_mb():
    """The memory that this process has. (The most that it had is what reading the model's file took.)"""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def work(engine, path, model, threads):
    """Serve runs: a line with sizes in, a line with milliseconds out, and the output's file where one is named."""
    import numpy as np

    asked = inputs(model)
    running = RUNNERS[engine](path, threads)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"version": running.version}), file=out, flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        given = values(asked, told["sizes"], told.get("lengths"), told.get("mask"))
        began = time.perf_counter()
        output = running.run(given)  # after a change of shape: it counts as all others do
        once = time.perf_counter() - began
        times = [once]
        while sum(times) < LEAST_MS / 1e3:
            began = time.perf_counter()
            running.run(given)
            times.append(time.perf_counter() - began)
        if told.get("out"):
            np.save(told["out"], output)
        answer = {"first_ms": 1e3 * once, "ms": 1e3 * sum(times) / len(times), "resident_mb": resident_mb()}
        print(json.dumps(answer), file=out, flush=True)


class Process:
    def __init__(self, engine, path, model, threads):
        python = PEERS if engine in OF_TORCH else sys.executable
        command = [str(python), __file__, "--work", engine, "--threads", str(threads), str(path), str(model)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.version = self._answer()["version"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench-dynamic: error: an engine ended: {self.process.stderr.read().strip()[-800:]}")
        return json.loads(line)

    def ask(self, sizes, out=None, lengths=None, mask=None):
        time.sleep(PAUSE_S)
        asked = {"sizes": sizes, "out": out, "lengths": lengths, "mask": mask}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        return self._answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compiled(model, asked, domains, given, folder):
    """The executable, and seconds that compiling it took."""
    path = folder / (model.name.removesuffix(".onnx") + ".so")
    dynamic = []
    for name, (dims, _) in asked.items():
        axes = [f"{axis}={least}..{most}" for axis, dim in enumerate(dims) if isinstance(dim, str)
                for least, most in [domains[dim]]]  # fmt: skip
        if axes:
            dynamic += ["--dynamic", f"{name}:{','.join(axes)}"]
    began = time.monotonic()
    command = [str(TREE / "python/collage/bin/collage"), "compile", str(model), "-o", str(path), "-q"]
    command += ["--backends", BACKENDS, "--threads", str(given.threads), *dynamic]
    command += ["--ragged", given.ragged] if given.ragged else []
    command += ["--db", given.db] if given.db else []
    environment = {**os.environ, "COLLAGE_PYTHON": sys.executable, "PYTHONPATH": str(TREE / "python")}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return path, time.monotonic() - began


def measured(model, given, folder):
    """What is found of one model."""
    import numpy as np

    asked = inputs(model)
    names = sorted({dim for dims, _ in asked.values() for dim in dims if isinstance(dim, str)})
    if not names:
        raise SystemExit(f"bench-dynamic: error: {model} leaves no dimension open")
    for name in names:
        if name not in given.sizes:
            raise SystemExit(f"bench-dynamic: error: {model} has the open dimension {name}: give --sizes {name}=1..64")
    domains = {name: given.sizes[name] for name in names}
    if given.ragged and len(asked.get(given.ragged, ([],))[0]) != 2:
        raise SystemExit(f"bench-dynamic: error: {model} has no input {given.ragged} of batch and length")
    path, seconds = compiled(model, asked, domains, given, folder)
    of_torch = OF_TORCH if PEERS.exists() and model.name.endswith(".open.onnx") else ()
    engines = {
        engine: Process(engine, path if engine == "collage" else model, model, given.threads)
        for engine in (*ENGINES, *of_torch)
    }
    order = random.Random(0)
    shapes = [{name: order.randint(*domains[name]) for name in names} for _ in range(given.shapes)]
    rows = [{"sizes": sizes, "ms": {}, "new_ms": {}, "error": {}} for sizes in shapes]
    for row in rows if given.ragged else ():
        batch, length = (row["sizes"].get(dim, dim) for dim in asked[given.ragged][0])
        row["lengths"] = [length, *(order.randint(1, length) for _ in range(batch - 1))]
    for round_number in range(given.rounds):
        for place, at in enumerate(order.sample(range(len(shapes)), len(shapes))):
            row = rows[at]
            for engine, process in engines.items():
                out = str(folder / f"{engine}.npy") if round_number == 0 else None
                told = process.ask(row["sizes"], out, row.get("lengths"), given.ragged)
                if round_number == 0 and place > 0:  # at the very first an engine makes more than is the shape's
                    row["new_ms"][engine] = told["first_ms"]
                row["ms"][engine] = min(told["ms"], row["ms"].get(engine, math.inf))
            if round_number == 0:
                answers = {engine: np.load(folder / f"{engine}.npy") for engine in engines}
                wanted = answers["onnxruntime"]
                if given.ragged:
                    wanted = of_tokens(wanted, row["lengths"])
                for engine, got in answers.items():
                    if given.ragged:
                        got = of_tokens(got, row["lengths"])
                    alike = got.shape == wanted.shape and bool(np.isfinite(got).all())
                    row["error"][engine] = float(np.abs(got - wanted).max() / np.abs(wanted).max()) if alike else None
    versions = {engine: process.version for engine, process in engines.items()}
    for process in engines.values():
        process.close()
    return {"model": model.name, "seconds": seconds, "versions": versions, "shapes": rows}


def of_tokens(output, lengths):
    """What tokens have of an output; all of one that has no row for each place."""
    import numpy as np

    if output.ndim < 2 or output.shape[:2] != (len(lengths), max(lengths)):
        return output
    return output[np.arange(max(lengths)) < np.array(lengths)[:, None]]


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def told(found):
    """The table of one model."""
    rows = found["shapes"]
    engines = list(rows[0]["ms"])
    peers = engines[1:]
    lines = [f"{found['model']}  (compiled in {found['seconds']:.0f} s)"]
    lines.append(f"{'sizes':28}" + "".join(f"{engine + ' ms':>18}" for engine in engines) + f"{'best peer / ours':>20}")
    for row in sorted(rows, key=lambda row: list(row["sizes"].values())):
        sizes = " ".join(f"{name}={size}" for name, size in row["sizes"].items())
        if lengths := row.get("lengths"):
            sizes += f" {sum(lengths) / len(lengths) / max(lengths):.0%} tokens"
        best = min(row["ms"][engine] for engine in peers)
        wrong = "".join(
            f"  {engine} is wrong" for engine in engines if row["error"][engine] is None or row["error"][engine] > ERROR
        )
        times = "".join(f"{row['ms'][engine]:18.3f}" for engine in engines)
        lines.append(f"{sizes:28}{times}{best / row['ms']['collage']:20.2f}{wrong}")
    ratios = [min(row["ms"][engine] for engine in peers) / row["ms"]["collage"] for row in rows]
    lines.append(f"best peer / ours: geometric mean {mean(ratios):.2f}, least {min(ratios):.2f}")
    for peer in peers:
        ratio = mean([row["ms"][peer] / row["ms"]["collage"] for row in rows])
        lines.append(f"{peer} / ours: geometric mean {ratio:.2f}")
    for what, of in (("mean ms over the shapes", "ms"), ("mean ms of the first run of a new shape", "new_ms")):
        some = [row for row in rows if row[of]]
        if some:
            means = (f"{engine} {sum(row[of][engine] for row in some) / len(some):.2f}" for engine in engines)
            lines.append(f"{what}: " + ", ".join(means))
    return "\n".join(lines)


def domain(text):
    name, _, sizes = text.partition("=")
    least, dots, most = sizes.partition("..")
    if not (name and dots and least.isdigit() and most.isdigit() and 1 <= int(least) <= int(most)):
        raise argparse.ArgumentTypeError(f"{text}: give it as NAME=1..512")
    return name, (int(least), int(most))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--sizes", type=domain, action="append", default=[], metavar="NAME=1..512")
    parser.add_argument("--ragged", metavar="INPUT", help="the mask of a batch of sequences, which differ in length")
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--db", help="the cost store")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.sizes = {**SIZES, **dict(given.sizes)}
    return given


def main():
    given = arguments()
    if given.work:
        path, model = given.models
        work(given.work, str(path), model, given.threads)
        return
    models = given.models or sorted((TREE / "build/models").glob("*.open.onnx"))
    if not models:
        raise SystemExit("bench-dynamic: error: no model; `python -m models --open` writes some (make bench-dynamic)")
    found = []
    with tempfile.TemporaryDirectory(prefix="bench-dynamic-") as folder:
        for model in models:
            found.append(measured(model, given, Path(folder)))
            print(told(found[-1]) + "\n", flush=True)
    versions = ", ".join(f"{engine} {version}" for engine, version in found[0]["versions"].items())
    print(f"{given.threads} threads, {given.shapes} shapes, {given.rounds} rounds; {versions}")
    if given.json:
        given.json.write_text(
            json.dumps({"schema": 1, "threads": given.threads, "rounds": given.rounds, "models": found}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
