# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests of its operators, read and run: which are right, which are refused and why, which are wrong.

The `onnx` package brings them with it: models with inputs and the outputs that they must give, of the kinds node,
simple, pytorch-converted and pytorch-operator. Each is read as `collage compile` reads it and built for plain TVM;
ONNX Runtime, where it is installed, runs the same. Processes of their own do the work, so that a test that ends its
process is counted (`crashed`) and costs itself only.

    .venv/bin/python scripts/conformance.py [--kinds node,simple] [--only resize] [--json FILE] [--jobs 2]

A result is right where it is within the test's tolerance, or 2e-6 of the greatest number of a tensor of floats.
Inputs that say of which shape something is (axes, sizes: a few numbers) are made constants where the model cannot be
read else, as --input-value does.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import re
import sys
import warnings
from collections import Counter
from concurrent import futures
from pathlib import Path

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# Seconds that one test may take.
LIMIT = 120
# Numbers that are drawn: no two implementations give the same.
RANDOM = re.compile(r"^test_(bernoulli|random_|multinomial|training_dropout)")


def tests(kinds, only):
    """The tests' (kind, name, folder, rtol, atol)."""
    from onnx.backend.test.loader import load_model_tests

    found = [
        (kind, case.name, case.model_dir, case.rtol, case.atol)
        for kind in kinds
        for case in load_model_tests(kind=kind)
        if case.model_dir and re.search(only, case.name)
    ]
    return sorted(found)


def tensor(path, kind):
    """What a file of a test holds, of the type that the model says: an array, a list of them, or None."""
    import onnx
    from onnx import numpy_helper

    data = Path(path).read_bytes()
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def data_sets(model, folder):
    """The inputs and outputs of each data set of a test: lists in the order of the graph's."""
    for at in sorted(Path(folder).glob("test_data_set_*")):
        yield tuple(
            [
                tensor(at / f"{what}_{i}.pb", value.type)
                for i, value in enumerate(values)
                if (at / f"{what}_{i}.pb").exists()
            ]
            for what, values in (("input", real_inputs(model)), ("output", model.graph.output))
        )


def real_inputs(model):
    """The graph's inputs without its weights."""
    weights = {one.name for one in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def flat(values):
    """The elements of sequences one by one."""
    return [one for value in values for one in (flat(value) if isinstance(value, list) else [value])]


def difference(got, wanted, rtol, atol):
    """What is wrong with the outputs; "" for nothing."""
    import numpy as np

    got, wanted = flat(got), flat(wanted)
    if len(got) != len(wanted):
        return f"{len(got)} outputs instead of {len(wanted)}"
    for i, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one is None or other is None:
            if one is not other:
                return f"output {i} is {'nothing' if one is None else 'something'}"
            continue
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return f"output {i} has the shape {one.shape} instead of {other.shape}"
        if one.dtype != other.dtype:
            return f"output {i} is {one.dtype} instead of {other.dtype}"
        if other.dtype.kind in "OSUV":
            if (one != other).any():
                return f"output {i} is another text"
            continue
        a, b = one.astype("float64"), other.astype("float64")
        # Where numbers of some size cancel out, what is left is their last digits.
        finite = np.abs(b[np.isfinite(b)])
        near = max(atol, 2e-6 * finite.max(initial=0.0)) if other.dtype.kind == "f" else atol
        if not np.allclose(a, b, rtol=rtol, atol=near, equal_nan=True):
            with np.errstate(invalid="ignore"):
                most, greatest = np.nanmax(np.abs(a - b)), np.nanmax(np.abs(b))
            return f"output {i} differs by up to {most:.3g}, the greatest is {greatest:.3g}"
    return ""


def by_tvm(path, sets):
    """Outputs of each data set, read as collage reads a model and built for plain TVM."""
    import collage
    import numpy as np
    import tvm
    from collage import export, frontends

    assert collage.__version__
    import onnx

    names = [value.name for value in real_inputs(onnx.load(path))]
    first = dict(zip(names, sets[0][0], strict=False))
    if any(isinstance(value, list) or value is None for value in first.values()):
        frontends.load(path)  # which says why not
    shapes = {name: np.shape(value) for name, value in first.items()}
    # Axes, sizes, repetitions: what says of which shape something is must be known when the model is read.
    for kinds in ("", "iub", "iubf"):
        fixed = {name: value for name, value in first.items() if of_shapes(value, kinds)}
        left = {name: shape for name, shape in shapes.items() if name not in fixed}
        try:
            model = frontends.load(path, input_shapes=left, input_values=fixed)
            break
        except Exception:
            if kinds == "iubf":
                raise
    built = export.build(model.module, "llvm -opt-level=0", 2)
    executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    results = []
    for inputs, _ in sets:
        for name, value in zip(names, inputs, strict=False):
            if name in model.inputs:
                executor.set_input(name, value)
        executor.run()
        results.append([executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
    return results


def of_shapes(value, kinds):
    """Whether an input may say of which shape something is: a few whole numbers, or the scales of a Resize."""
    import numpy as np

    value = np.asarray(value)
    return value.ndim <= 1 and value.size <= 16 and value.dtype.kind in kinds


def by_onnxruntime(path, sets):
    """The same by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return [session.run(None, dict(zip(names, inputs, strict=False))) for inputs, _ in sets]


ENGINES = {"tvm": by_tvm, "onnxruntime": by_onnxruntime}


def judged(test, engine):
    """(test's name, "pass", "refused" or "wrong", why)."""
    import onnx

    kind, name, folder, rtol, atol = test
    warnings.simplefilter("ignore")
    path = os.path.join(folder, "model.onnx")
    try:
        sets = list(data_sets(onnx.load(path), folder))
        results = ENGINES[engine](path, sets)
    except Exception as error:
        lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
        where = lines[-1] if engine == "tvm" and lines else " ".join(lines)
        return kind, name, "refused", f"{type(error).__name__}: {where.replace(path, 'the model')[:300]}"
    for got, (_, wanted) in zip(results, sets, strict=True):
        if what := difference(got, wanted, rtol, atol):
            return kind, name, "wrong", what
    return kind, name, "pass", ""


def all_of(chosen, engine, jobs):
    """The verdicts of all tests, side by side; one that ends its process is tried again by itself."""
    verdicts, waiting = {}, list(chosen)
    context = multiprocessing.get_context("spawn")
    while waiting:
        alone = len(waiting) <= jobs
        batch, waiting = (waiting[:1], waiting[1:]) if alone else (waiting, [])
        with futures.ProcessPoolExecutor(1 if alone else jobs, mp_context=context) as pool:
            running = {pool.submit(judged, test, engine): test for test in batch}
            for future, test in running.items():
                try:
                    verdict = future.result(timeout=LIMIT if alone else LIMIT * len(batch))
                    verdicts[verdict[:2]] = verdict[2:]
                except futures.process.BrokenProcessPool:
                    if alone:
                        verdicts[test[:2]] = ("crashed", "its process ended")
            waiting += [test for test in batch if test[:2] not in verdicts]
        if not alone and len(waiting) == len(batch):
            jobs = len(waiting)  # nothing gets through side by side
    return verdicts


def reason(why):
    """A refusal without the names and numbers of the test, so that like ones are counted together."""
    text = re.sub(r"(its \w+) \S+ (is|of)", r"\1 \2", re.sub(r" that makes \S+", "", why))
    return re.sub(r"\b\d+\b", "N", text.removeprefix("ValueError: ").replace("the model cannot be read: ", ""))


def report(engine, kinds, verdicts, listed):
    """Print what became of the tests; gives it as plain data."""
    counts = {kind: Counter(what for (k, _), (what, _) in verdicts.items() if k == kind) for kind in kinds}
    print(f"\n{engine}")
    for kind, of in counts.items():
        print(f"  {kind:18} " + ", ".join(f"{of[what]} {what}" for what in sorted(of)))
    others = [
        {"kind": kind, "test": name, "verdict": what, "why": why, **({"random": True} if RANDOM.search(name) else {})}
        for (kind, name), (what, why) in sorted(verdicts.items())
        if what != "pass"
    ]
    if listed:
        for one in others:
            if one["verdict"] != "refused":
                mark = ", which draws random numbers" if "random" in one else ""
                print(f"  {one['verdict']}: {one['kind']}/{one['test']}{mark}: {one['why']}")
        reasons = Counter(reason(one["why"]) for one in others if one["verdict"] == "refused")
        for why, count in reasons.most_common():
            print(f"  refused {count:3}: {why}")
    return {"counts": counts, "not_passed": others}


def main():
    """Run the tests and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="which tests (%(default)s)")
    parser.add_argument("--only", default="", metavar="REGEX", help="tests whose name has it")
    parser.add_argument("--engines", default=",".join(ENGINES), help="%(default)s, as far as they are installed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write what did not pass here")
    told = parser.parse_args()
    kinds = told.kinds.split(",")
    chosen = tests(kinds, told.only)
    import onnx

    print(f"{len(chosen)} tests of onnx {onnx.__version__}")
    document = {"schema": 1, "onnx": onnx.__version__, "tests": len(chosen), "engines": {}}
    for engine in told.engines.split(","):
        if importlib.util.find_spec(engine) is None:
            print(f"\n{engine} is not installed")
            continue
        verdicts = all_of(chosen, engine, told.jobs)
        document["engines"][engine] = report(engine, kinds, verdicts, engine == "tvm")
    if told.json:
        Path(told.json).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
