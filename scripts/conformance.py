# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests of its operators, read and run: which are right, which are refused and why, which are wrong.

The `onnx` package brings them with it: models with inputs and the outputs that they must give, of the kinds node,
simple, pytorch-converted and pytorch-operator. Each is read as `collage compile` reads it and built

    tvm              for plain TVM
    tvm+dnnl, ...    with all that the backend takes given to it, the rest for TVM, nothing measured: as the file
                     stands, and once more with all inputs but the first as weights, which engines pack
    tvm-batch        for plain TVM's virtual machine, with the first dimension of the first input open, and that of each
                     other input that is as long
    tvm-sizes        so with all dimensions of the first input open
    onnxruntime      ONNX Runtime runs the file itself

    .venv/bin/python scripts/conformance.py [--kinds node,simple] [--only resize] [--json FILE] [--jobs 2]
    .venv/bin/python scripts/conformance.py --engines tvm-batch,tvm-sizes
    .venv/bin/python scripts/conformance.py --keep FILE     # verdicts as they come; the same again goes on from there
    .venv/bin/python scripts/conformance.py --converters    # which of our converters TVM's own would serve as well

Processes of their own do the work (scripts/apart_runs.py): a test that ends its process, or takes longer than two
minutes, is counted (`crashed`) and costs itself only. A result is right where it is within the test's tolerance, or
2e-6 of the greatest number of a tensor of floats; `disputed` where it is not but ONNX Runtime gives the same. Inputs
that say of which shape something is (axes, sizes: a few numbers) are made constants where the model cannot be read
else, as --input-value does.
"""

import argparse
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import apart_runs

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
# Seconds that one test may take.
LIMIT = 120
# Tests that a converter of ours is left out of at a time, until one is worse without it.
ROUND = 6
# A test's file.
MODEL = r"/\S+/model\.onnx"
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
    read = onnx.TensorProto.FromString(data)
    if kind.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:  # the tests' files call such bits whole numbers
        from collage import onnx_narrow

        read.data_type = onnx.TensorProto.BFLOAT16
        return onnx_narrow.numbers(read)
    return numpy_helper.to_array(read)


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


class UntouchedError(Exception):
    """A backend takes nothing of a test, or plain reading refuses it: there is nothing to say of the backend."""


def read(path, weights=False):
    """A test's model as collage reads it: all inputs but the first as weights, or as few inputs as can be constant."""
    model, error = attempt(path, weights)
    if error is not None:
        raise error
    return model


@functools.lru_cache(maxsize=2)
def attempt(path, weights):
    """(the model, None), or (None, why it cannot be read): engines ask one after the other."""
    try:
        return read_anew(path, weights), None
    except Exception as error:
        return None, error


def read_anew(path, weights):
    """The same, raising."""
    import collage
    import numpy as np
    import onnx
    from collage import frontends

    assert collage.__version__
    proto = onnx.load(path)
    first, counts = as_tensors(real_inputs(proto), next(data_sets(proto, Path(path).parent))[0])
    shapes = {name: np.shape(value) for name, value in first.items()} | counts
    if weights:
        fixed = {name: first[name] for name in list(first)[1:]}
        return frontends.load(path, input_shapes=dict([next(iter(shapes.items()))]) | counts, input_values=fixed)
    return with_few_constants(path, first, shapes)


def with_few_constants(path, values, shapes, dynamic=()):
    """A model as collage reads it, with as few inputs as can be constant, none of those that are ``dynamic``."""
    from collage import frontends

    # Axes, sizes, repetitions: what says of which shape something is must be known when the model is read.
    for kinds in ("", "iub", "iubf"):
        fixed = {name: value for name, value in values.items() if name not in dynamic and of_shapes(value, kinds)}
        left = {name: shape for name, shape in shapes.items() if name not in fixed}
        try:
            return frontends.load(path, input_shapes=left, input_values=fixed, dynamic=dynamic or None)
        except Exception:
            if kinds == "iubf":
                raise


def as_tensors(declared, values):
    """Values of inputs as the tensors that collage makes of them, {name: array}, and how many of them there are where
    an input is a sequence or an optional, {name: (number,)}.
    """
    arrays, counts = {}, {}

    def spread(name, kind, value):
        if kind.HasField("tensor_type"):
            arrays[name] = value
            return
        optional = kind.HasField("optional_type")
        parts = ([] if value is None else [value]) if optional else value
        counts[name] = (len(parts),)
        for i, part in enumerate(parts):
            spread(f"{name}.{i}", (kind.optional_type if optional else kind.sequence_type).elem_type, part)

    for one, value in zip(declared, values, strict=False):
        spread(one.name, one.type, value)
    return arrays, counts


def outputs(executor, model, path, sets):
    """What a model gives for each data set."""
    import onnx

    declared = real_inputs(onnx.load(path))
    results = []
    for inputs, _ in sets:
        for name, value in as_tensors(declared, inputs)[0].items():
            if name in model.inputs:
                executor.set_input(name, value)
        executor.run()
        results.append([executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
    return results


def by_tvm(path, sets):
    """Outputs of each data set, read as collage reads a model and built for plain TVM."""
    from collage import export

    model = read(path)
    yield "", outputs(export.runnable(model.module, "llvm -opt-level=0", 2), model, path, sets)


def with_share(backend):
    """A runner that gives a backend all that it takes, in both forms of a model."""

    def run(path, sets):
        from collage import api, export

        taken = False
        for form, weights in (("", False), ("with weights: ", True)):
            try:
                model = read(path, weights)
            except Exception:
                continue  # told of plain reading
            if weights and (not model.inputs or set(model.inputs) == set(read(path).inputs)):
                continue
            placed = api.partition(model.module, only=backend, threads=2)
            if not api.compilers(placed):
                continue
            taken = True
            executor = export.runnable(placed, "llvm -opt-level=0")
            yield form, outputs(executor, model, path, sets[:1] if weights else sets)
        if not taken:
            raise UntouchedError

    return run


def opened(path, whole):
    """A test's model with open dimensions, and which, {input: axes}: all of the first input (``whole``), or its first,
    and that of each other input that is as long. UntouchedError where the first input has none.
    """
    import onnx

    proto = onnx.load(path)
    sizes = {one.name: one.type.tensor_type.shape.dim for one in real_inputs(proto)}  # none of a sequence
    first = next(iter(sizes), None)
    if first is None or not sizes[first]:
        raise UntouchedError
    if whole:
        dynamic = {first: list(range(len(sizes[first])))}
    else:
        length = sizes[first][0].dim_value
        dynamic = {name: [0] for name, each in sizes.items() if each and each[0].dim_value == length}
    for name, axes in dynamic.items():
        for axis in axes:
            sizes[name][axis].dim_param = f"d{axis}"
    del proto.graph.value_info[:]
    for one in proto.graph.output:
        if one.type.HasField("tensor_type"):
            one.type.tensor_type.ClearField("shape")
    return proto, dynamic


def with_open(whole):
    """A runner that leaves dimensions of what can be read with fixed ones open."""

    def run(path, sets):
        import numpy as np
        import onnx
        from collage import export, transform

        if attempt(path, False)[1] is not None:
            raise UntouchedError  # told of plain reading
        proto, dynamic = opened(path, whole)
        values, counts = as_tensors(real_inputs(proto), sets[0][0])
        shapes = {name: np.shape(value) for name, value in values.items()} | counts
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "model.onnx")
            onnx.save(proto, file)
            model = with_few_constants(file, values, shapes, dynamic)
        module = transform.Normalise()(model.module)
        yield "", outputs(export.runnable(module, "llvm -opt-level=0", 2), model, path, sets)

    return run


def without(converter):
    """A runner that reads a model with one of our converters left out, and builds it for plain TVM."""

    def run(path, sets):
        from collage.onnx_reader import table

        ours = table._OURS.pop(converter)
        attempt.cache_clear()
        try:
            yield from by_tvm(path, sets)
        finally:
            table._OURS[converter] = ours
            attempt.cache_clear()

    return run


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
    yield "", [session.run(None, dict(zip(names, inputs, strict=False))) for inputs, _ in sets]


SHARES = ("dnnl", "dnnl_tvm", "mkl", "native", "onnxruntime", "openblas", "openvino")
ENGINES = {"tvm": by_tvm, **{f"tvm+{name}": with_share(name) for name in SHARES}, "onnxruntime": by_onnxruntime}
OPEN = {"tvm-batch": with_open(False), "tvm-sizes": with_open(True)}


def runner(engine):
    """What runs a model on an engine: gives (form, outputs of each data set) of each form that it is run in."""
    if " without " in engine:
        return without(engine.removeprefix("tvm without "))
    return with_share(engine.removeprefix("tvm+")) if "+" in engine else (ENGINES | OPEN)[engine]


def judged(test, engine):
    """("pass", "refused", "wrong", "disputed" or "untouched", why)."""
    import onnx
    from collage import onnx_narrow

    _, _, folder, rtol, atol = test
    warnings.simplefilter("ignore")
    path = os.path.join(folder, "model.onnx")
    try:
        model = onnx.load(path)
        if onnx_narrow.has_bfloat16(model):  # it is computed without what is cut off to have eight bits
            rtol = max(rtol, 2**-7)
        sets = list(data_sets(model, folder))
        for form, results in runner(engine)(path, sets):
            for got, (_, wanted) in zip(results, sets, strict=False):
                if what := difference(got, wanted, rtol, atol):
                    return verdict_of_difference(path, sets, results, engine, form + what, (rtol, atol))
    except UntouchedError:
        return "untouched", ""
    except Exception as error:
        return "refused", f"{type(error).__name__}: {re.sub(MODEL, 'the model', said(error))[:300]}"
    return "pass", ""


def said(error):
    """What an error says, in a line; TVM's has a C++ stack before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    begins = [at for at, line in enumerate(lines) if re.match(r"\w+Error: ", line)]
    return " ".join(lines[begins[-1] :] if begins else lines)


def verdict_of_difference(path, sets, results, engine, what, tolerance):
    """wrong; disputed where ONNX Runtime's answers, too, are not what the test's file has, but these."""
    if engine != "onnxruntime" and importlib.util.find_spec("onnxruntime"):
        try:
            ((_, others),) = by_onnxruntime(path, sets[: len(results)])
        except Exception:
            return "wrong", what
        if not any(difference(got, other, *tolerance) for got, other in zip(results, others, strict=True)):
            return "disputed", f"{what}; ONNX Runtime gives what ours does"
    return "wrong", what


def all_of(chosen, engines, jobs, keep=None):
    """{engine: {(kind, test's name): (verdict, why)}} of all tests, side by side; ``keep`` is the file that verdicts
    stand in as they come, and are taken from where they are there.
    """
    found = verdicts_of([(test, engine) for test in chosen for engine in engines], jobs, keep)
    return {engine: {test[:2]: found[(engine, *test[:2])] for test in chosen} for engine in engines}


def verdicts_of(pairs, jobs, keep):
    """{(engine, kind, test's name): (verdict, why)} of pairs of a test and an engine."""
    known = apart_runs.kept(keep)
    tasks = {(engine, *test[:2]): (test, engine) for test, engine in pairs}
    for key, verdict in apart_runs.run(judged, {key: tasks[key] for key in tasks if key not in known}, jobs, LIMIT):
        known[key] = tuple(verdict)
        if keep:
            apart_runs.add(keep, key, verdict)
    return {key: known[key] for key in tasks}


def gain_nothing(chosen, jobs, keep):
    """{name of a converter of ours: (how many tests have the operator, [(test, verdict, why)] of those that are
    right and are not without it, of the first ROUND or multiple of it that has any)}.
    """
    import onnx
    from collage.onnx_reader import form, table

    held = {name: [] for name in sorted(table._OURS)}
    for test in chosen:
        proto = onnx.load(os.path.join(test[2], "model.onnx"))
        try:
            proto, _ = form.formed(proto, table.names(form.opset_of(proto)))
        except Exception:
            continue  # told of plain reading
        for name in operators(proto.graph) & set(held):
            held[name].append(test)
    for tests_of in held.values():  # the smallest first
        tests_of.sort(key=lambda test: os.path.getsize(os.path.join(test[2], "model.onnx")))
    worse, begin = {name: [] for name in held}, 0
    while left := [name for name in held if not worse[name] and held[name][begin : begin + ROUND]]:
        pairs = [
            (test, engine)
            for name in left
            for test in held[name][begin : begin + ROUND]
            for engine in ("tvm", f"tvm without {name}")
        ]
        found = verdicts_of(pairs, jobs, keep)
        for name in left:
            for test in held[name][begin : begin + ROUND]:
                theirs = found[(f"tvm without {name}", *test[:2])]
                if found[("tvm", *test[:2])][0] == "pass" and theirs[0] != "pass":
                    worse[name].append((test, *theirs))
        begin += ROUND
    return {name: (len(held[name]), worse[name]) for name in held}


def operators(graph):
    """The names of the operators in a graph and those inside."""
    inside = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return {node.op_type for node in graph.node}.union(*map(operators, inside))


def reason(why):
    """A refusal without the names and numbers of the test, so that like ones are counted together."""
    text = re.sub(r"(its \w+) \S+ (is|of)", r"\1 \2", re.sub(r" that makes \S+", "", why))
    return re.sub(r"\b\d+\b", "N", text.removeprefix("ValueError: ").replace("the model cannot be read: ", ""))


# What stands behind an engine's name; of others nothing does.
HEADS = {f"tvm+{name}": ": {} tests of which it takes an operator" for name in SHARES} | dict.fromkeys(
    OPEN, ": {} tests that are read with fixed sizes, and whose first input has dimensions"
)


def report(engine, kinds, verdicts):
    """Print what became of the tests; gives it as plain data."""
    touched = {test: verdict for test, verdict in verdicts.items() if verdict[0] != "untouched"}
    counts = {kind: Counter(what for (k, _), (what, _) in touched.items() if k == kind) for kind in kinds}
    print(f"\n{engine}" + HEADS.get(engine, "").format(len(touched)))
    for kind, of in counts.items():
        print(f"  {kind:18} " + (", ".join(f"{of[what]} {what}" for what in sorted(of)) or "none"))
    others = [
        {"kind": kind, "test": name, "verdict": what, "why": why, **({"random": True} if RANDOM.search(name) else {})}
        for (kind, name), (what, why) in sorted(touched.items())
        if what != "pass"
    ]
    if engine != "onnxruntime":
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
    parser.add_argument(
        "--engines", default=",".join(ENGINES), help=f"%(default)s, as far as they are installed; {', '.join(OPEN)}"
    )
    parser.add_argument("-n", "--jobs", type=int, default=os.cpu_count(), help="processes (%(default)s)")
    parser.add_argument("--keep", metavar="FILE", help="verdicts stand here as they come; those that do are not redone")
    parser.add_argument("--json", metavar="FILE", help="write what did not pass here")
    parser.add_argument("--converters", action="store_true", help="which of our converters gain nothing, instead")
    told = parser.parse_args()
    kinds = told.kinds.split(",")
    chosen = tests(kinds, told.only)
    import onnx

    print(f"{len(chosen)} tests of onnx {onnx.__version__}", flush=True)
    if told.converters:
        for name, (count, worse) in gain_nothing(chosen, told.jobs, told.keep).items():
            for test, what, why in worse:
                print(f"  without {name}: {test[1]} is {what}: {why}")
            if not worse:
                print(f"  {name} gains nothing in {count} tests")
        return
    engines = [engine for engine in told.engines.split(",") if is_there(engine)]
    document = {"schema": 1, "onnx": onnx.__version__, "tests": len(chosen), "engines": {}}
    for engine, verdicts in all_of(chosen, engines, told.jobs, told.keep).items():
        document["engines"][engine] = report(engine, kinds, verdicts)
    if told.json:
        Path(told.json).write_text(json.dumps(document, indent=1) + "\n")


def is_there(engine):
    """Whether an engine can be used here; says so where it cannot."""
    if engine == "tvm" or engine in OPEN:
        return True
    if engine == "onnxruntime":
        why = "" if importlib.util.find_spec("onnxruntime") else "it is not installed"
    else:
        program = str(Path(sys.executable).parent / "collage")
        told = subprocess.run([program, "backends", "--json"], capture_output=True, text=True, check=True, timeout=120)
        probes = {one["name"]: one["probe"] for one in json.loads(told.stdout)["backends"]}
        probe = probes[engine.removeprefix("tvm+")]
        why = "" if probe["usable"] else probe["reason"]
    if why:
        print(f"\n{engine} is left out: {why}")
    return not why


if __name__ == "__main__":
    main()
