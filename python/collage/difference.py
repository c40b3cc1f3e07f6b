# SPDX-License-Identifier: Apache-2.0
"""Which operator of an ONNX, TorchScript or TensorFlow Lite model TVM computes otherwise than another engine.

In: a file whose outputs differ (of torch.export's, that which PyTorch writes as ONNX), and how it was read. Out: the
first node, in the file's order, whose output differs, with both engines run on the same inputs.
"""

import tempfile
from pathlib import Path

import numpy as np

from . import check, export, frontends, onnx_inputs, seeded, tflite_reader, torchscript_inside, witness

# How many values inside the network are looked at together.
_AT_ONCE = 32


def first(path, input_shapes, input_values, seed=0, form="onnx"):
    """The first node that differs: {"operator", "makes", "mismatch"}; None where none does by itself.

    Raises what reading, building and running raise.
    """
    if form == "tflite":
        return _first_lite(path, input_shapes or {}, seed)
    if form == "torchscript":
        return _first_script(path, input_shapes or {}, seed)
    if form == "pt2":
        with frontends.written_as_onnx(path) as written:
            return _first(written, input_shapes, input_values, seed)
    return _first(path, input_shapes, input_values, seed)


def _first(path, input_shapes, input_values, seed):
    import onnx

    given = path, input_shapes or {}, input_values or {}
    question = frontends.load(path, None, input_shapes, "onnx", input_values).question(seed)
    proto = onnx.load(str(path), load_external_data=False)
    no_tensors = _no_tensors(proto)
    inside = [
        (node.op_type, name) for node in proto.graph.node for name in node.output if name and name not in no_tensors
    ]
    with tempfile.TemporaryDirectory() as folder:
        return _searched(inside, lambda names: _compared(given, names, question, Path(folder)))


def _no_tensors(proto):
    """The values of an ONNX model that are sequences or optionals."""
    import onnx

    if not any(kind.startswith(("Sequence", "SplitToSequence", "Optional")) for kind in witness.operators(proto)):
        return set()
    return {
        one.name for one in onnx.shape_inference.infer_shapes(proto).graph.value_info if onnx_inputs.is_composite(one)
    }


def _first_lite(path, input_shapes, seed):
    question = frontends.load(path, None, input_shapes, "tflite").question(seed)
    shapes = {one["name"]: tuple(one["shape"]) for one in question["inputs"]}
    inside = tflite_reader.made(*tflite_reader.graph_of(Path(path)))
    return _searched(inside, lambda names: _compared_lite(Path(path), shapes, names, question))


def _first_script(path, input_shapes, seed):
    question = frontends.load(path, None, input_shapes, "torchscript").question(seed)
    return _searched(torchscript_inside.made(path), lambda names: _compared_script(path, names, question))


def _searched(inside, compared):
    """The first of the values ``inside`` a network, [(operator, name), ...], that differs; ``compared`` says of names
    how each of them differs, None where it does not.
    """
    agreed, differs, found = -1, len(inside) - 1, None
    while agreed < differs:
        places = _spread(agreed + 1, differs)
        results = compared([inside[at][1] for at in places])
        which = next((i for i, mismatch in enumerate(results) if mismatch), None)
        if which is None:
            return found
        operator, name = inside[places[which]]
        found = {"operator": operator, "makes": name, "mismatch": results[which].removeprefix("output 0 ")}
        if which:
            agreed = places[which - 1]
        differs = places[which] - 1
    return found


def _spread(low, high):
    """So many places from low to high, both among them."""
    return sorted({int(at) for at in np.linspace(low, high, min(_AT_ONCE, high - low + 1)).round()})


def _compared(given, names, question, folder):
    """For each value inside the network how it differs; None where it does not, or is nothing that can be compared."""
    import onnx

    path, input_shapes, input_values = given
    proto = onnx.load(str(path))
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    cut = folder / "inside.onnx"
    onnx.save(proto, str(cut), save_as_external_data=True, location="weights")
    _, loose, answers = witness.answer({**question, "model": str(cut), "seconds": 60})
    (folder / "weights").unlink(missing_ok=True)

    proto = onnx.load(str(path))
    del proto.graph.output[:]
    for name, value in zip(names, answers, strict=True):
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        proto.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
    module, _, _ = frontends.onnx_module(proto, path, input_shapes, input_values)
    executor = export.runnable(module, "llvm -opt-level=0", 2)
    types = {one["name"]: (one["shape"], one["dtype"]) for one in question["inputs"]}
    for name, value in seeded.inputs(question["seed"], types).items():
        executor.set_input(name, value)
    executor.run()
    return _differing(executor, answers, loose)


def _differing(executor, answers, loose):
    """How each of the results differs from an answer; None where it does not."""
    return [
        check.witnessed([executor.get_output(number).numpy()], [answer], loose)[1]
        for number, answer in enumerate(answers)
    ]


def _compared_lite(path, shapes, names, question):
    """_compared for a TensorFlow Lite file. What TVM's importer makes no value of (weights that are stored in another
    way) is nothing that can be compared.
    """
    module, values, there = tflite_reader.values_inside(path, tflite_reader.graph_of(path)[0], shapes, names)
    if not there:
        return [None] * len(names)
    _, loose, answers = witness.answer({**question, "inside": there})
    types = {one["name"]: (one["shape"], one["dtype"]) for one in question["inputs"]}
    mismatches = _mismatches(path, module, values, seeded.inputs(question["seed"], types), answers, loose)
    results = dict.fromkeys(names) | dict(zip(there, mismatches, strict=True))
    return [results[name] for name in names]


def _compared_script(path, names, question):
    """_compared for a TorchScript file, by PyTorch in this process."""
    types = {one["name"]: (tuple(one["shape"]), one["dtype"]) for one in question["inputs"]}
    given = seeded.inputs(question["seed"], types)
    answers = torchscript_inside.answers(path, given.values(), names)
    module, values = torchscript_inside.module(path, list(types.items()), names)
    return _mismatches(path, module, values, given, answers, False)


def _mismatches(path, module, weights, given, answers, loose):
    """How each of a network's results differs from an answer, None where it does not: of an untyped module and its
    weights, with {name: value} for its inputs, of which it may take fewer.
    """
    module = frontends.bind(frontends.typed(module, path), weights, str(path))
    executor = export.runnable(module, "llvm -opt-level=0", 2)
    taken = {var.name_hint for var in module["main"].params}
    for name, value in given.items():
        if name in taken:
            executor.set_input(name, value)
    executor.run()
    return _differing(executor, answers, loose)
