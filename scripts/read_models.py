# SPDX-License-Identifier: Apache-2.0
"""Read the networks of `make models` and say which are right: read_models.py [FOLDER] [--only REGEX] [--json FILE].

Each file of the folder (build/models) is read as `collage compile` reads it, built for plain TVM, run on seeded
inputs and held against another engine's answer (ONNX Runtime, else onnx's reference evaluator). A process of its own
does each, so that one that ends its process costs itself only. The exit code is 1 where one is wrong, refused or
crashes.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(TREE / "python"))
# Seconds that one network may take.
LIMIT = 900


def judged(path):
    """What became of one file: {"verdict": right, wrong, refused or unchecked, ...}."""
    warnings.simplefilter("ignore")
    from collage import check, export, frontends, seeded, witness

    began = time.perf_counter()
    try:
        model = frontends.load(path)
    except Exception as error:
        return {"verdict": "refused", "why": " ".join(str(error).split()).replace(str(path), "the model")}
    told = {"operators": model.info()["operators"], "read_s": round(time.perf_counter() - began, 2)}
    try:
        engine, loose, answers = witness.ask({**model.question(), "seconds": 60})
    except witness.UncheckedError as error:
        return {**told, "verdict": "unchecked", "why": str(error)}
    executor = export.runnable(model.module)
    for name, value in seeded.inputs(0, model.inputs).items():
        executor.set_input(name, value)
    executor.run()
    outputs = [executor.get_output(number).numpy() for number in range(executor.get_num_outputs())]
    share, mismatch = check.witnessed(outputs, answers, loose)
    told["engine"] = engine
    if mismatch:
        return {**told, "verdict": "wrong", "why": mismatch}
    return {**told, "verdict": "right", "max_error_share": share}


def interpreter(path):
    """The Python that can read a file: PyTorch's own needs PyTorch (make peers)."""
    peers = TREE / ".venv-peers" / "bin" / "python"
    return str(peers) if path.suffix == ".pt2" and peers.exists() else sys.executable


def apart(path):
    """judged, in a process of its own."""
    try:
        ran = subprocess.run(
            [interpreter(path), __file__, "--one", str(path)], capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"verdict": "crashed", "why": f"it takes longer than {LIMIT} s"}
    answers = [line for line in ran.stdout.splitlines() if line.startswith('{"')]
    if ran.returncode == 0 and answers:
        return json.loads(answers[-1])
    last = (ran.stderr.strip().splitlines() or [""])[-1]
    return {"verdict": "crashed", "why": f"exit code {ran.returncode}: {last[:200]}"}


def line(name, exporter, told):
    """A row of the table."""
    numbers = f"{told.get('operators', ''):>9}  {told.get('read_s', ''):>6}"
    said = f"{told['max_error_share']:.1e}" if told["verdict"] == "right" else told["why"]
    return f"{name:22} {exporter:8} {numbers}  {told['verdict']:9}  {said}"


def main():
    """Read all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=TREE / "build" / "models")
    parser.add_argument("--only", default="", metavar="REGEX", help="files whose name has it")
    parser.add_argument("--json", help="write the table here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(judged(Path(given.one))))
        return 0
    files = [path for path in sorted(given.folder.glob("*.*")) if path.suffix in (".onnx", ".pt2")]
    files = [path for path in files if re.search(given.only, path.name) and not path.name.startswith("part.")]
    if not files:
        sys.exit(f"read_models: error: no model in {given.folder} is to be read; make models writes some")
    print(f"{'network':22} {'exporter':8} {'operators':>9}  {'read s':>6}  {'verdict':9}  largest difference, or why")
    rows = []
    for path in files:
        name, _, exporter = path.name.removesuffix(".onnx").rpartition(".")
        rows.append({"network": name, "exporter": exporter, **apart(path)})
        print(line(name, exporter, rows[-1]), flush=True)
    counts = Counter(row["verdict"] for row in rows)
    print("\n" + ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts)))
    if given.json:
        Path(given.json).write_text(json.dumps({"schema": 1, "models": rows}, indent=1) + "\n")
    return 0 if set(counts) <= {"right", "unchecked"} else 1


if __name__ == "__main__":
    sys.exit(main())
