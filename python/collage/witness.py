# SPDX-License-Identifier: Apache-2.0
"""What somebody else answers: a network's outputs on seeded inputs, by an engine that is not TVM.

``python -m collage.witness`` reads one question as JSON from its standard input and prints one JSON object:

    {"model", "format", "inputs": [{"name", "shape", "dtype"}, ...], "values": {name: {"dtype", "shape", "hex"}},
     "seed", "seconds", "second", "inside", "out"}
        -> {"engine": "ONNX Runtime 1.31.1", "loose": false}, the outputs, in order, in the .npz file "out"
        -> {"unchecked": why there is no answer}

"format" is onnx (ONNX Runtime where it is installed, else the reference evaluator of the onnx package, which gets
"seconds"), torchscript or pt2 (PyTorch), or tflite (LiteRT, or TensorFlow's own runtime). "values" are inputs that were
made constants when TVM read the model, their bytes as hexadecimal digits. A "loose" answer is that of a quantised
network, in which one step of rounding is worth more than the usual tolerance, or PyTorch's in bfloat16. "inside" names
the tensors of a tflite file that are to be the outputs. "second" asks for the engine that is asked where the first
one's answer is another than TVM's: the reference evaluator, or LiteRT with its reference kernels.
TVM is not imported.
"""

import contextlib
import importlib
import importlib.metadata
import json
import os
import signal
import sys
import tempfile

import numpy as np

from . import apart, errors, onnx_inputs

# Operators that draw numbers: no two engines give the same.
_DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

# Operators of quantised networks.
_QUANTISED = {"QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}


# What stands before the names of inputs in the file of answers.
_GIVEN = "given "


class UncheckedError(errors.CollageError):
    """Nobody could answer; the text says why."""


def answer(question):
    """(engine, whether it is loose, outputs) for a question. Raises UncheckedError."""
    from . import seeded

    types = {one["name"]: (tuple(one["shape"]), one["dtype"]) for one in question["inputs"]}
    values = {**seeded.inputs(question.get("seed") or 0, types), **_ones(question)}
    if question["format"] == "tflite":
        return _lite(question, values)
    if question["format"] != "onnx":
        if question.get("second"):
            raise UncheckedError("PyTorch alone reads such files")
        return _torch(question["model"], question["format"], values)
    for name, one in (question.get("values") or {}).items():
        values[name] = np.frombuffer(bytes.fromhex(one["hex"]), one["dtype"]).reshape(one["shape"])
    return _onnx(question, values)


def answers(archive):
    """(outputs, {name: array} of the inputs that were not drawn) of the file that a witness wrote."""
    given = {name.removeprefix(_GIVEN): archive[name] for name in archive.files if name.startswith(_GIVEN)}
    return [archive[f"arr_{number}"] for number in range(len(archive.files) - len(given))], given


def _ones(question):
    """{name: array} of the inputs that are 1 everywhere."""
    wanted = question.get("ones") or ()
    return {one["name"]: np.ones(one["shape"], one["dtype"]) for one in question["inputs"] if one["name"] in wanted}


def ask(question):
    """answer, in a process of its own: PyTorch and TVM do not go together."""
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        out = os.path.join(folder, "answers.npz")
        ran = apart.run("witness", given=json.dumps({**question, "out": out}))
        if ran.returncode != 0:
            raise UncheckedError(f"the engine's process ended: {ran.returncode} {ran.stderr[-200:]}")
        told = json.loads(ran.stdout)
        if "unchecked" in told:
            raise UncheckedError(told["unchecked"])
        with np.load(out) as archive:
            return told["engine"], told["loose"], answers(archive)[0]


def operators(proto):
    """The names of all operators of an ONNX model, those inside branches and functions too."""
    found = set()

    def visit(nodes):
        for node in nodes:
            found.add(node.op_type)
            for attribute in node.attribute:
                visit(attribute.g.node)

    visit(proto.graph.node)
    for function in proto.functions:
        visit(function.node)
    return found


def _onnx(question, values):
    import onnx

    path = question["model"]
    proto = onnx.load(path, load_external_data=False)
    for value in filter(onnx_inputs.is_composite, proto.graph.input):
        values[value.name] = onnx_inputs.gathered(value.name, value.type, values)
    kinds = operators(proto)
    if kinds & _DRAWING:
        raise UncheckedError(f"it draws random numbers ({', '.join(sorted(kinds & _DRAWING))})")
    loose = any(kind in _QUANTISED or kind.startswith("QLinear") for kind in kinds)
    tried = []
    with _in_float32(question, proto) as asked:
        for engine in (_reference,) if question.get("second") else (_onnxruntime, _reference):
            try:
                name, outputs = engine(asked, values)
            except ImportError:
                tried.append("ONNX Runtime is not installed")
            except Exception as error:
                tried.append(f"{_TITLES[engine]}: {apart.in_short(error)}")
            else:
                return name, loose, onnx_inputs.flat(outputs)
    raise UncheckedError("; ".join(tried))


@contextlib.contextmanager
def _in_float32(question, proto):
    """The question, of a file that computes in float32 where the model's does in bfloat16: so does what TVM reads, and
    engines have few operators of bfloat16. ``proto`` is the model without the weights that are in other files.
    """
    import onnx

    from . import onnx_narrow

    if not onnx_narrow.has_bfloat16(proto):
        yield question
        return
    proto = onnx.load(question["model"])
    onnx_narrow.widen(proto)
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        wide = os.path.join(folder, "model.onnx")
        onnx.save(proto, wide, save_as_external_data=True, location="weights")
        yield {**question, "model": wide}


def _onnxruntime(question, values):
    """What ONNX Runtime gives, operator by operator as the file has them."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(question["model"], options, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    outputs = session.run(None, {name: value for name, value in values.items() if name in wanted})
    return f"ONNX Runtime {onnxruntime.__version__}", outputs


def _reference(question, values):
    """What the onnx package's own evaluator gives, which is slow: it is ended after the question's seconds."""
    from onnx.reference import ReferenceEvaluator

    limit = int(question.get("seconds") or 5)

    def late(*_):
        raise TimeoutError(f"it takes longer than {limit} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(limit)
    try:
        evaluator = ReferenceEvaluator(question["model"])
        wanted = set(evaluator.input_names)
        outputs = evaluator.run(None, {name: value for name, value in values.items() if name in wanted})
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    outputs = [np.asarray(one) for one in onnx_inputs.flat(outputs)]
    return f"onnx {importlib.metadata.version('onnx')}'s reference evaluator", outputs


_TITLES = {_onnxruntime: "ONNX Runtime", _reference: "onnx's reference evaluator"}


def _torch(path, form, values):
    import torch

    exported = form == "pt2"
    network = torch.export.load(path).module() if exported else torch.jit.load(path, map_location="cpu").eval()
    rounds = any(one.dtype == torch.bfloat16 for one in network.parameters())
    torch.set_num_threads(1)
    with torch.no_grad():
        given = network(*(torch.from_numpy(np.ascontiguousarray(value)) for value in values.values()))

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [(value.float() if value.dtype == torch.bfloat16 else value).numpy()]
        return [one for each in (value.values() if isinstance(value, dict) else value) for one in tensors(each)]

    return f"PyTorch {torch.__version__}", rounds, tensors(given)


# Where an interpreter of TensorFlow Lite files is looked for.
_INTERPRETERS = (("ai_edge_litert", "LiteRT"), ("tflite_runtime", "TensorFlow Lite"), ("tensorflow.lite.python", ""))


def _lite(question, values):
    for package, title in _INTERPRETERS:
        try:
            engine = importlib.import_module(f"{package}.interpreter")
        except ImportError:
            continue
        top = package.split(".")[0]
        name = f"{title or 'TensorFlow'} {importlib.metadata.version(top.replace('_', '-'))}"
        return _interpreted(engine, name, question, values)
    raise UncheckedError("no runtime of TensorFlow Lite is installed (pip install ai-edge-litert)")


def _interpreted(engine, name, question, values):
    """What an interpreter of TensorFlow Lite gives with its own kernels, or with those for reference."""
    kinds = engine.OpResolverType
    kernels = kinds.BUILTIN_REF if question.get("second") else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    inside = question.get("inside")
    interpreter = engine.Interpreter(
        question["model"], num_threads=1, experimental_op_resolver_type=kernels,
        experimental_preserve_all_tensors=bool(inside),
    )  # fmt: skip
    places = {one["name"]: one["index"] for one in interpreter.get_input_details()}
    for key, value in values.items():
        interpreter.resize_tensor_input(places[key], value.shape, strict=True)
    interpreter.allocate_tensors()
    for key, value in values.items():
        interpreter.set_tensor(places[key], value)
    interpreter.invoke()
    loose = any(
        one["dtype"] in (np.int8, np.uint8) and one["quantization_parameters"]["scales"].size
        for one in interpreter.get_tensor_details()
    )
    wanted = [one["index"] for one in interpreter.get_output_details()]
    if inside:
        places = {one["name"]: one["index"] for one in interpreter.get_tensor_details()}
        wanted = [places[key] for key in inside]
    outputs = [interpreter.get_tensor(index) for index in wanted]
    return name + ("'s reference kernels" if question.get("second") else ""), loose, outputs


def main():
    """Answer one question."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what engines print belongs elsewhere
    os.nice(5)
    question = json.load(sys.stdin)
    try:
        engine, loose, outputs = answer(question)
        # What was not drawn stands with the answers, for who runs the same.
        np.savez(question["out"], *outputs, **{_GIVEN + name: value for name, value in _ones(question).items()})
        told = {"engine": engine, "loose": loose}
    except UncheckedError as error:
        told = {"unchecked": str(error)}
    except Exception as error:
        told = {"unchecked": f"{type(error).__name__}: {apart.in_short(error)}"}
    protocol.write(json.dumps(told) + "\n")
    protocol.flush()


if __name__ == "__main__":
    main()
