# SPDX-License-Identifier: Apache-2.0
"""Compile trained models and see that the answers are the task's: python -m trained [--only REGEX] [--json FILE].

Each model is taken from the package that ships it, compiled by `collage compile` with a short search, and asked what
it was trained for (of which type a file is, what is written in an image, ...). The same is asked of the model's own
runtime: ONNX Runtime, or LiteRT. A model is right where every answer is the task's and every output is that of the
runtime; with --precision, where every answer is the task's, and of what is counted no more than 1 % fewer are right.
The exit code is 1 where one is wrong, crashes, or is refused.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib import metadata
from pathlib import Path

import numpy as np

from . import digits, faces, files, music, speech, text

TREE = Path(__file__).resolve().parents[2]
BACKENDS = "tvm,dnnl,native,onnxruntime,openvino"
# Seconds of each step of one model.
LIMIT = 900
# Where parts may be computed narrowly, a share of the answers that is smaller by this may be right.
LOST = 0.01
# How the names of backends end that compute narrowly.
NARROW = ("_bf16", "_int8")


def models(folder):
    """All models; what is made here is written to ``folder``."""
    return [one for task in (files, text, speech, music, faces, digits) for one in task.models(TREE, folder)]


def reference(path):
    """The model's own runtime as a function from {input: array} to a list of outputs, and its name."""
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path), num_threads=1)
        interpreter.allocate_tensors()
        places = {one["name"]: one["index"] for one in interpreter.get_input_details()}

        def net(inputs):
            for name, value in inputs.items():
                interpreter.set_tensor(places[name], value)
            interpreter.invoke()
            return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]

        return net, f"LiteRT {metadata.version('ai-edge-litert')}"
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rate = {"sr": np.array(speech.RATE)} if "sr" in [one.name for one in session.get_inputs()] else {}
    return lambda inputs: session.run(None, {**rate, **inputs}), f"ONNX Runtime {onnxruntime.__version__}"


def compiled(path):
    """An executable of Collage's in the same form."""
    import collage

    executor = collage.load(path)

    def net(inputs):
        for name, value in inputs.items():
            executor.set_input(name, value)
        executor.run()
        return [executor.get_output(number).numpy() for number in range(executor.get_num_outputs())]

    return net


def one(name, executable, out, folder):
    """Ask one model; all outputs go to the file ``out``, the questions to standard output."""
    (model,) = [each for each in models(folder) if each.name == name]
    net, engine = (compiled(executable), "collage") if executable else reference(model.file())
    seen = []

    def noted(inputs):
        outputs = net(inputs)
        seen.extend(np.array(value) for value in outputs)
        return outputs

    questions = [vars(question) for question in model.ask(noted)]
    np.savez(out, *seen)
    print(json.dumps({"engine": engine, "questions": questions}))


def asked(name, executable, out, folder):
    """one, in a process of its own: what it says, or the reason why there is nothing."""
    command = [sys.executable, "-m", "trained", "--one", name, "--out", str(folder), "--outputs", str(out)]
    ran = _run([*command, "--executable", str(executable)] if executable else command)
    answers = [line for line in ran.stdout.splitlines() if line.startswith('{"')]
    if ran.returncode == 0 and answers:
        return json.loads(answers[-1])
    return {"why": f"exit code {ran.returncode}: {(ran.stderr.strip().splitlines() or [''])[-1][:200]}"}


def _run(command):
    paths = os.pathsep.join(filter(None, (str(TREE / "python"), str(TREE / "scripts"), os.environ.get("PYTHONPATH"))))
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": paths}
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"it takes longer than {LIMIT} s")


def judged(model, folder, given):
    """What became of one model, as it stands in the results."""
    told = {"model": model.name, "package": _version(model.package)}
    with tempfile.TemporaryDirectory(prefix="collage-trained-") as temporary:
        temporary = Path(temporary)
        executable = temporary / "model.so"
        path = model.file()
        told["file"] = path.name
        command = [sys.executable, "-m", "collage", "compile", str(path), *model.options, "-o", str(executable)]
        command += ["--backends", given.backends, "--skip-unusable", "--repeat", "3"]
        command += ["--search-time", f"{given.search_time}s", "--precision", given.precision]
        if given.calibration_method:
            command += ["--calibration-method", given.calibration_method]
        command += [word for rule in given.pin for word in ("--pin", rule)]
        if given.precision != "f32" and model.learnt is not None:
            (temporary / "learnt").mkdir()
            for number, sample in enumerate(model.learnt()):
                np.savez(temporary / "learnt" / f"{number}.npz", **sample)
            command += ["--calibration", str(temporary / "learnt")]
        ran = _run([*command, "--db", str(temporary / "costs.jsonl"), "-q", "--json"])
        if ran.returncode != 0:
            why = (ran.stderr.strip().splitlines() or [""])[-1].replace(str(path), "the model")
            verdict = "refused" if ran.returncode == 2 else "crashed"
            return {**told, "verdict": verdict, "why": why.removeprefix("collage: error: ")}
        report = json.loads(ran.stdout)
        told["operators"] = report["model_info"]["operators"]
        if given.precision != "f32":
            shares = {one["name"]: one["operators"] for one in report["report"]["backends"]}
            told["narrow"] = sum(count for name, count in shares.items() if name.endswith(NARROW))
            precision = report["report"]["precision"]
            if precision.get("calibration"):
                told["calibration"] = precision["searched_inputs"] + precision["held_out_inputs"]
        checked = report["import_check"]
        told["import_check"] = checked.get("unchecked") or checked["engine"]
        outputs = [temporary / "ours.npz", temporary / "theirs.npz"]
        ours = asked(model.name, executable, outputs[0], folder)
        theirs = asked(model.name, None, outputs[1], folder)
        for answer in (ours, theirs):
            if "why" in answer:
                return {**told, "verdict": "crashed", "why": answer["why"]}
        told |= {"runtime": theirs["engine"], "kept": report["chosen"]}
        told["questions"] = [
            {**{key: value for key, value in ours_is.items() if value is not None}, **_of_runtime(theirs_is)}
            for ours_is, theirs_is in zip(ours["questions"], theirs["questions"], strict=True)
        ]
        return {**told, **_verdict(ours, theirs, outputs, given.precision)}


def _of_runtime(question):
    return {} if question["score"] is None else {"runtime_score": question["score"]}


def _verdict(ours, theirs, outputs, precision):
    """Whether the answers are the task's, and the outputs the runtime's."""
    from collage import check
    from collage.precision import errors

    for answer, whose in ((theirs, theirs["engine"]), (ours, "the executable")):
        for question in answer["questions"]:
            if question["got"] != question["expected"]:
                text = f"{question['asked']}: {whose} says {question['got']!r}, and it is {question['expected']!r}"
                return {"verdict": "wrong", "why": text}
    arrays = []
    for path in outputs:
        with np.load(path) as archive:
            arrays.append([archive[f"arr_{number}"] for number in range(len(archive.files))])
    if precision != "f32":
        for question, same in zip(ours["questions"], theirs["questions"], strict=True):
            if question["score"] is not None and question["score"] < same["score"] - LOST:
                text = f"{question['asked']}: {question['score']:.1%} are right; the runtime has {same['score']:.1%}"
                return {"verdict": "wrong", "why": text}
        return {"verdict": "right", "l2_error": float(f"{errors([arrays[0]], [arrays[1]])['l2']:.1e}")}
    share, mismatch = check.witnessed(*arrays, False)
    if mismatch:
        return {"verdict": "wrong", "why": mismatch}
    return {"verdict": "right", "max_error_share": float(f"{share:.1e}")}


def _version(package):
    return f"{package} {metadata.version(package)}" if package else "trained here"


def lines(told):
    """A model's rows of the table: itself, and what it was asked."""
    if told["verdict"] != "right":
        said = told["why"]
    elif "l2_error" in told:
        on = f"{told['calibration']} real inputs" if "calibration" in told else "random inputs"
        said = f"off by {told['l2_error']:.1e} (L2) from {told['runtime']}; {told['narrow']} narrow, by {on}"
    else:
        said = f"within {told['max_error_share']:.1e} of {told['runtime']}"
    yield f"{told['model']:18} {told['package']:28} {told.get('operators', ''):>9}  {told['verdict']:8} {said}"
    for question in told.get("questions", []):
        counted = ""
        if "score" in question:
            counted = f" ({question['score']:.1%}; the runtime {question['runtime_score']:.1%})"
        yield f"    {question['asked']}: {question['got']}{counted}"


def main():
    """Compile, ask, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m trained", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="models whose name has it")
    parser.add_argument("--backends", default=BACKENDS, help="those of them that can be used here")
    parser.add_argument("--search-time", type=int, default=20, metavar="SECONDS", help="of each model")
    parser.add_argument("--precision", default="f32", help="as of collage compile, within its limit of error")
    parser.add_argument("--calibration-method", metavar="METHOD", help="as of collage compile")
    parser.add_argument("--pin", action="append", default=[], metavar="RULE", help="as of collage compile")
    parser.add_argument("--json", help="write the table here")
    parser.add_argument("--out", type=Path, default=TREE / "build" / "trained", help="where models are written")
    for hidden in ("--one", "--executable", "--outputs"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one, given.executable, given.outputs, given.out)
        return 0
    wanted = [model for model in models(given.out) if re.search(given.only, model.name)]
    if not wanted:
        sys.exit(f"trained: error: no model is named {given.only}: {', '.join(one.name for one in models(given.out))}")
    print(f"{'model':18} {'from':28} {'operators':>9}  {'verdict':8} outputs, or why")
    rows = []
    for model in wanted:
        rows.append(judged(model, given.out, given))
        for line in lines(rows[-1]):
            print(line, flush=True)
    counts = Counter(row["verdict"] for row in rows)
    print("\n" + ", ".join(f"{counts[verdict]} {verdict}" for verdict in sorted(counts)))
    if given.json:
        Path(given.json).write_text(json.dumps({"schema": 1, "models": rows}, indent=1) + "\n")
    return 0 if set(counts) == {"right"} else 1


if __name__ == "__main__":
    sys.exit(main())
