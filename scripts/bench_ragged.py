# SPDX-License-Identifier: Apache-2.0
"""Padded batches of sequences of different lengths: Collage, which computes tokens alone, beside engines that compute
the padding, and PyTorch's nested tensors, which do not.

    bench_ragged.py [MODEL.onnx...] [--networks NAME,...] [--batches N,...] [--lengths KIND,...] [--rounds N]
                    [--search-time DURATION] [--precision P --max-error E] [--threads N] [--db FILE] [--json FILE]

Each network is written for a batch as long as its longest sequence, so that nothing is padded that a tokenizer would
not pad, with random weights (scripts/models/ragged.py; `make peers` has what it takes); what has too many rows is left
out (NETWORKS). It is compiled with and without --ragged, by the same backends. Each engine runs in a process of its
own, all in turn, in each round once; of each the fastest round counts. Answers are held to ONNX Runtime's, where tokens
are. With MODEL.onnx, a network of one's own with a mask of fixed size among its inputs, PyTorch is left out.

Lengths are drawn, with a seed for each kind and batch: the natural logarithm is normal, about that of the median, as
lengths of texts usually are. They are our own choice, not those of a set of texts; "full" is a batch without padding.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_dynamic
from bench_dynamic import BACKENDS, ERROR, PEERS, TREE

# Of each kind of text the median of the tokens, the deviation of their logarithm, and the most that there are.
KINDS = {
    "sentences": (14, 0.5, 64),
    "pairs": (40, 0.45, 128),
    "paragraphs": (150, 0.4, 384),
    "documents": (350, 0.4, 512),
    "full": (64, 0.0, 64),
}
# Of each network the most rows, batch times length, that it is measured with: of more, runs of plain TVM would take all
# the time of a search.
NETWORKS = {"attention": 4096, "layer": 4096, "bert_base": 1100}
SEARCHES = {"collage": True, "padded": False}
ENGINES = ("collage", "padded", "onnxruntime", "openvino", "torch")


def drawn(kind, batch, most=None):
    """How many tokens each sequence of a batch has."""
    import numpy as np

    median, deviation, limit = KINDS[kind]
    rng = np.random.default_rng([batch, *kind.encode()])
    lengths = np.exp(rng.normal(math.log(median), deviation, batch)).round().astype(int)
    return [int(length) for length in lengths.clip(1, min(limit, most or limit))]


def mask_of(model):
    """The name of a model's mask, and its batch and length."""
    for name, (dims, _) in bench_dynamic.inputs(model).items():
        if "mask" in name and len(dims) == 2 and all(isinstance(dim, int) for dim in dims):
            return name, *dims
    raise SystemExit(
        f"bench-ragged: error: {model} has no input of batch and length, of fixed sizes, with mask in its name"
    )


def written(network, lengths, folder):
    """The file of a network for a batch of these lengths."""
    name = f"{network}_{len(lengths)}x{max(lengths)}"
    command = [PEERS, "-m", "models", "--ragged", name, "--out", folder]
    environment = {**os.environ, "PYTHONPATH": str(TREE / "scripts")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench-ragged: error: {name} cannot be written: {done.stderr.strip()[-400:]}")
    return folder / f"{name}.ragged.onnx"


def compiled(model, mask, ragged, given, folder):
    """The executable, and seconds that compiling it took."""
    path = folder / f"{model.name.removesuffix('.onnx')}.{'ragged' if ragged else 'padded'}.so"
    command = [str(TREE / "python/collage/bin/collage"), "compile", str(model), "-o", str(path), "-q"]
    command += ["--backends", BACKENDS, "--threads", str(given.threads), "--search-time", given.search_time]
    command += ["--ragged", mask] if ragged else []
    command += ["--precision", given.precision, "--max-error", given.max_error] if given.precision != "f32" else []
    command += ["--db", given.db] if given.db else []
    environment = {**os.environ, "COLLAGE_PYTHON": sys.executable, "PYTHONPATH": str(TREE / "python")}
    began = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return path, time.monotonic() - began


def error(got, wanted, lengths):
    """How far an answer is off where tokens are, as a share of the greatest number there; None for another shape."""
    import numpy as np

    tokens = np.arange(wanted.shape[1]) < np.array(lengths)[:, None]
    if got.shape[:1] + got.shape[2:] != wanted.shape[:1] + wanted.shape[2:] or got.shape[1] < max(lengths):
        return None
    # Nested tensors come back as long as their longest.
    got, wanted, tokens = (array[:, : max(lengths)] for array in (got, wanted, tokens))
    return float(np.abs(got - wanted)[tokens].max() / np.abs(wanted[tokens]).max())


def measured(model, kind, lengths, given, folder):
    """What is found of one model and batch."""
    import numpy as np

    mask, _, length = mask_of(model)
    files, seconds = {}, {}
    for engine, ragged in SEARCHES.items():
        files[engine], seconds[engine] = compiled(model, mask, ragged, given, folder)
    wanted = [engine for engine in ENGINES if engine != "torch" or (PEERS.exists() and not given.models)]
    engines = {}
    for engine in wanted:
        runner = "collage" if engine in SEARCHES else engine
        engines[engine] = bench_dynamic.Process(runner, files.get(engine, model), model, given.threads)
    row = {
        "model": model.name, "kind": kind, "batch": len(lengths), "length": length, "lengths": lengths,
        "seconds": seconds, "ms": {}, "error": {}, "resident_mb": {},
    }  # fmt: skip
    for round_number in range(given.rounds):
        for engine, process in engines.items():
            out = str(folder / f"{engine}.npy") if round_number == 0 else None
            told = process.ask({}, out, lengths)
            row["ms"][engine] = min(told["ms"], row["ms"].get(engine, math.inf))
            row["resident_mb"][engine] = told["resident_mb"]
    answers = {engine: np.load(folder / f"{engine}.npy") for engine in engines}
    for engine, got in answers.items():
        row["error"][engine] = error(got, answers["onnxruntime"], lengths)
    row["versions"] = {engine: process.version for engine, process in engines.items()}
    for process in engines.values():
        process.close()
    return row


def told(row):
    """The line of one model and batch."""
    tokens = sum(row["lengths"]) / (row["batch"] * row["length"])
    limit = row["limit"]
    wrong = "".join(
        f"  {engine} is wrong" for engine, off in row["error"].items()
        if off is None or off > (limit if engine in SEARCHES else ERROR)
    )  # fmt: skip
    times = "".join(f"{row['ms'][engine]:13.2f}" if engine in row["ms"] else f"{'-':>13}" for engine in ENGINES)
    name = row["model"].removesuffix(".onnx").removesuffix(".ragged").rpartition("_")[0] or row["model"]
    where = f"{name:15} {row['kind']:12}{row['batch']:5}{row['length']:8}{tokens:9.0%}"
    return where + times + "".join(f"{ratio:12.2f}" for ratio in ratios(row)) + wrong


def ratios(row):
    """What the strongest engine with padding, the same kernels with it, and the strongest of all take to ours."""
    ms = row["ms"]
    padding = min(ms[engine] for engine in ENGINES[2:4])
    return (
        padding / ms["collage"],
        ms["padded"] / ms["collage"],
        min(padding, ms.get("torch", math.inf)) / ms["collage"],
    )


HEAD = (
    f"{'network':15} {'lengths':12}{'batch':>5}{'length':>8}{'tokens':>9}"
    + "".join(f"{engine:>13}" for engine in ENGINES)
    + "".join(f"{what:>12}" for what in ("engines", "own padded", "best other"))
)


def summary(rows):
    """What holds for all."""
    lines = []
    for what, some in (("with padding", [row for row in rows if row["kind"] != "full"]),
                       ("without", [row for row in rows if row["kind"] == "full"])):  # fmt: skip
        if not some:
            continue
        columns = zip(*map(ratios, some), strict=True)
        names = ("the strongest engine that computes padding", "the same kernels with padding", "the strongest other")
        for name, column in zip(names, columns, strict=True):
            lines.append(f"batches {what}, {name} to ours: geometric mean {bench_dynamic.mean(column):.2f}, "
                         f"least {min(column):.2f}")  # fmt: skip
    most = {engine: max((row["resident_mb"].get(engine, 0) for row in rows), default=0) for engine in ENGINES}
    lines.append(
        "memory of a process behind its runs, at most, MB: "
        + ", ".join(f"{engine} {mb:.0f}" for engine, mb in most.items() if mb)
    )
    return "\n".join(lines)


def names(known):
    def parse(text):
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(known)}")
        return text.split(",")

    return parse


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--networks", type=names(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")], default=[8, 32])
    parser.add_argument("--lengths", type=names(KINDS), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--search-time", default="60s")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--max-error", default="1e-2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--db", help="the cost store")
    parser.add_argument("--out", type=Path, default=TREE / "build/models", help="where networks are written")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def batches(given):
    """(model, kind, lengths) of all that is to be measured."""
    for model in given.models:
        _, batch, length = mask_of(model)
        for kind in given.lengths:
            yield model, kind, drawn(kind, batch, length) if kind != "full" else [length] * batch
    if given.models:
        return
    if not PEERS.exists():
        raise SystemExit("bench-ragged: error: `make peers` has what networks are written by; or name a MODEL.onnx")
    for network in given.networks:
        for batch in given.batches:
            for kind in given.lengths:
                lengths = drawn(kind, batch)
                if batch * max(lengths) > NETWORKS[network]:
                    continue
                yield written(network, lengths, given.out), kind, lengths


def main():
    given = arguments()
    found = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-ragged-") as folder:
        for model, kind, lengths in batches(given):
            row = measured(model, kind, lengths, given, Path(folder))
            row["limit"] = ERROR if given.precision == "f32" else 10 * float(given.max_error)
            found.append(row)
            print(told(row), flush=True)
    print(summary(found))
    versions = ", ".join(f"{engine} {version}" for engine, version in found[0]["versions"].items())
    print(f"{given.threads} threads, {given.rounds} rounds, ms; {versions}")
    if given.json:
        written_as = {"schema": 1, "threads": given.threads, "rounds": given.rounds, "batches": found}
        given.json.write_text(json.dumps(written_as, indent=1) + "\n")


if __name__ == "__main__":
    main()
