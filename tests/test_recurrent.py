# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: read step by step, and given to engines as the one operator that they have for them."""

import itertools
import re
import subprocess
import sys

import numpy as np
import onnx
import onnx_networks
import placed
import pytest
from collage import export, frontends
from conftest import environment
from dnnl_steps import profile
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

onnxruntime = pytest.importorskip("onnxruntime")

ENGINES = ("onnxruntime", "openvino", "native")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Written:
    """An ONNX model of recurrent layers, one behind the other, with seeded weights; a size that is a name is open."""

    def __init__(self, kind, layers=1, direction="forward", steps=5, batch=1, size=6, hidden=8, states=False,
                 given=False, bias=True, seed=0, want=("Y",), **attributes):  # fmt: skip
        self.rng = np.random.default_rng(seed)
        self.weights, self.nodes, self.inputs = [], [], [("x", (steps, batch, size))]
        directions = 2 if direction == "bidirectional" else 1
        sequence, results = "x", []
        for k in range(layers):
            names = [sequence, self.weight(f"w{k}", directions, GATES[kind] * hidden, size),
                     self.weight(f"r{k}", directions, GATES[kind] * hidden, hidden)]  # fmt: skip
            names.append(self.weight(f"b{k}", directions, 2 * GATES[kind] * hidden) if bias else "")
            names.append("")
            for state in ("h", "c")[: 2 if kind == "LSTM" else 1]:
                if given:
                    self.inputs.append((f"{state}{k}", (directions, batch, hidden)))
                names.append(
                    f"{state}{k}" if given
                    else self.weight(f"{state}{k}", directions, batch, hidden) if states
                    else ""
                )  # fmt: skip
            made = {"Y": f"y{k}", "Y_h": f"last{k}", "Y_c": f"cell{k}"}
            wanted = [made[one] if one == "Y" or one in want else "" for one in ("Y", "Y_h", "Y_c")]
            while not wanted[-1]:
                wanted.pop()
            self.nodes.append(
                helper.make_node(kind, names, wanted, hidden_size=hidden, direction=direction, **attributes)
            )
            results += [made[one] for one in want if one != "Y"]
            # [steps, directions, batch, hidden] to what the next layer reads
            self.nodes.append(helper.make_node("Transpose", [f"y{k}"], [f"t{k}"], perm=[0, 2, 1, 3]))
            self.constant(f"shape{k}", np.array([0, 0, -1]))
            self.nodes.append(helper.make_node("Reshape", [f"t{k}", f"shape{k}"], [f"s{k}"]))
            sequence, size = f"s{k}", directions * hidden
        results.append(sequence)
        self.model = helper.make_model(
            helper.make_graph(
                self.nodes, kind,
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in self.inputs],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results], self.weights,
            ),
            opset_imports=[helper.make_opsetid("", 18)], ir_version=8,
        )  # fmt: skip

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, name, *shape):
        return self.constant(name, self.rng.uniform(-0.5, 0.5, shape).astype("float32"))

    def values(self, **sizes):
        """Inputs; sizes that are open are those."""
        return {
            name: self.rng.standard_normal([sizes.get(size, size) for size in shape]).astype("float32")
            for name, shape in self.inputs
        }

    def open(self):
        """Which dimensions of which inputs are open."""
        return {name: [i for i, size in enumerate(shape) if isinstance(size, str)] for name, shape in self.inputs}


# Places a model on an engine, runs it, and says which operators the engine was given. A process of its own, since Go
# reads the variable for the dump when it begins.
RUN = """
import json, sys
import numpy as np
sys.path.insert(0, {tests!r})
import placed
from collage import frontends
backend, model, values, out = sys.argv[1:]
read = frontends.load(model)
module = placed.place(read.module, backend)
placed.export_to(out, module)
values = np.load(values)
np.savez(out + ".npz", *placed.run(placed.load(out), *(values[name] for name in values.files)))
print(json.dumps([dict(one) for one in placed.regions(module).values()]))
"""


def answered(tmp_path, backend, written):
    """Outputs on an engine, ONNX Runtime's of the file, and the operators in the engine's regions."""
    path, values = tmp_path / "model.onnx", written.values()
    onnx.save(written.model, path)
    np.savez(tmp_path / "values.npz", **values)
    out = tmp_path / "model.so"
    wanted = onnxruntime.InferenceSession(str(path)).run(None, values)
    if backend == "native":  # it reads no variable for a dump
        placed.export_to(out, placed.place(frontends.load(path).module, backend))
        return placed.run(placed.load(out), *values.values()), wanted, layers_given(backend, None, out)
    dump = tmp_path / "dump"
    dump.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(tests=str(placed.Path(__file__).parent)), backend, str(path),
         str(tmp_path / "values.npz"), str(out)],
        capture_output=True, text=True, timeout=300, env=environment() | {"COLLAGE_ONNXRUNTIME_DUMP": str(dump)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = np.load(f"{out}.npz")
    return [got[name] for name in got.files], wanted, layers_given(backend, dump, out)


def layers_given(backend, dump, executable):
    """How many recurrent operators the engine was given, and how many others that multiply or squash."""
    if backend == "native":  # one for each direction of a layer
        kinds = [kind.decode() for kind in re.findall(rb'"op": "(\w+)"', executable.read_bytes())]
        return kinds.count("recurrent"), sum(kind in ("matmul", "eltwise") for kind in kinds)
    if backend == "onnxruntime":
        kinds = [node.op_type for path in dump.iterdir() for node in onnx.load(path).graph.node]
    else:
        kinds = [
            kind.decode() for kind in re.findall(rb'<layer id="\d+" name="[^"]*" type="(\w+)"', executable.read_bytes())
        ]
    recurrent = [kind for kind in kinds if kind.removesuffix("Sequence") in GATES]
    steps = [kind for kind in kinds if kind in ("Gemm", "MatMul", "Sigmoid", "Tanh", "Relu", "ReLU")]
    return len(recurrent), len(steps)


def agree(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


CASES = {
    f"{kind}-{direction}-{layers}": dict(kind=kind, direction=direction, layers=layers, batch=2)
    for kind, direction, layers in itertools.product(GATES, ("forward", "reverse", "bidirectional"), (1, 2))
} | {
    "LSTM with states": dict(kind="LSTM", states=True, batch=3, want=("Y", "Y_h", "Y_c")),
    "LSTM with states that are inputs": dict(
        kind="LSTM", given=True, direction="bidirectional", want=("Y", "Y_h", "Y_c")
    ),
    "GRU with states that are inputs": dict(kind="GRU", given=True, batch=2, want=("Y", "Y_h")),
    "RNN with states that are inputs": dict(kind="RNN", given=True, batch=2, want=("Y", "Y_h")),
    "GRU, reset before": dict(kind="GRU", given=True, linear_before_reset=0),
    "LSTM, one of a batch": dict(kind="LSTM"),
    "RNN, one of a batch": dict(kind="RNN"),
    # The first step's state of zeros stands in its weights (FoldScaleAxis): it is done apart.
    "GRU, reset before, one of a batch": dict(kind="GRU", linear_before_reset=0),
    "GRU, reset after": dict(kind="GRU", linear_before_reset=1, batch=2, direction="bidirectional"),
    "RNN of ReLU": dict(kind="RNN", activations=["Relu"]),
    "LSTM without bias": dict(kind="LSTM", bias=False),
}  # fmt: skip


# Two layers in both directions; the others by night.
SOME = [("bidirectional", 2)]
OFTEN = [n for n, case in CASES.items() if "layers" not in case or (case["direction"], case["layers"]) in SOME]


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.long) for n in CASES])
def test_a_layer_is_one_operator(tmp_path, backend, name):
    got, wanted, (recurrent, steps) = answered(tmp_path, backend, Written(**CASES[name]))
    agree(got, wanted)
    directions = 2 if backend == "native" and CASES[name].get("direction") == "bidirectional" else 1
    assert recurrent == CASES[name].get("layers", 1) * directions
    assert steps == 0 or "before, one of a batch" in name


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", GATES)
def test_directions_have_a_thread_each(tmp_path, kind, threads):
    written = Written(kind=kind, direction="bidirectional", batch=2, want=("Y", "Y_h"))
    path, out, values = tmp_path / "model.onnx", tmp_path / "model.so", written.values()
    onnx.save(written.model, path)
    placed.export_to(out, placed.place(frontends.load(path).module, "native"), threads)
    model = placed.load(out)
    got, steps = profile(lambda: placed.run(model, *values.values()))
    taken = [step["what"] for step in steps if step["what"].startswith("recurrent")]
    together = ["recurrent inputs"] * 2 + ["recurrent steps of both directions"] + ["recurrent state"] * 2
    alone = ["recurrent inputs", "recurrent steps", "recurrent state"] * 2
    assert taken == (together if threads > 1 else alone)
    agree(got, onnxruntime.InferenceSession(str(path)).run(None, values))
    agree(placed.run(model, *values.values()), got)  # on threads that stay together


def test_a_layer_is_written_out_once(tmp_path):
    """However many of its outputs are wanted."""
    onnx.save(Written("LSTM", steps=5, want=("Y", "Y_h", "Y_c")).model, tmp_path / "lstm.onnx")
    assert frontends.load(tmp_path / "lstm.onnx").info()["operator_counts"]["nn.dense"] == 5


FURTHER = {
    f"{kind} {direction} {attributes} {ends}": (kind, direction, attributes, ends)
    for kind, direction, (attributes, ends) in itertools.product(
        GATES, ("forward", "reverse", "bidirectional"),
        (({"clip": 0.2}, None), ({}, (5, 3, 1)), ({"clip": 0.4}, (2, 5, 4))),
    )
} | {
    "one gate": ("LSTM", "bidirectional", {"input_forget": 1}, None),
    "one gate, clipped, and lengths": ("LSTM", "forward", {"input_forget": 1, "clip": 0.3}, (1, 4, 5)),
    "reset after": ("GRU", "bidirectional", {"linear_before_reset": 1, "clip": 0.2}, (5, 2, 4)),
    "ReLU": ("RNN", "forward", {"activations": ["Relu"], "clip": 0.2}, None),
    "other functions": ("LSTM", "forward", {"activations": ["HardSigmoid", "Relu", "Softsign"]}, (3, 5, 4)),
    "without bias": ("LSTM", "forward", {"clip": 0.2, "bias": False}, None),
    "without bias, reset before": ("GRU", "forward", {"bias": False}, (5, 4, 3)),
}  # fmt: skip


def limited(kind, direction, attributes, ends, given=True):
    """A layer with states, all of its outputs, and sequences that end somewhere; ends is a constant, or "input"."""
    want = ("Y", "Y_h", "Y_c") if kind == "LSTM" else ("Y", "Y_h")
    written = Written(kind, batch=3, direction=direction, given=given, want=want, **attributes)
    if ends is not None:
        written.model.graph.node[0].input[4] = "ends"
    if ends == "input":
        written.model.graph.input.append(helper.make_tensor_value_info("ends", TensorProto.INT32, [3]))
    elif ends is not None:
        written.model.graph.initializer.append(numpy_helper.from_array(np.array(ends, np.int32), "ends"))
    return written


def plain(path, values):
    """What plain TVM makes of a file."""
    executor = export.runnable(frontends.load(path).module, "llvm -opt-level=0", 2)
    for name, value in values.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


@pytest.mark.parametrize("name", FURTHER)
def test_layers_that_are_clipped_end_early_or_share_a_gate(tmp_path, name):
    """As ONNX Runtime has them; onnx's reference evaluator leaves all that out."""
    written, path = limited(*FURTHER[name]), tmp_path / "layer.onnx"
    onnx.save(written.model, path)
    values = written.values()
    wanted = onnxruntime.InferenceSession(str(path)).run(None, values)
    agree(plain(path, values), wanted)
    # The same layer without: it makes a difference.
    bare = limited(*FURTHER[name][:2], {"bias": FURTHER[name][2].get("bias", True)}, None)
    onnx.save(bare.model, tmp_path / "bare.onnx")
    other = onnxruntime.InferenceSession(str(tmp_path / "bare.onnx")).run(None, values)
    assert max(np.abs(a - b).max() for a, b in zip(wanted, other, strict=True)) > 1e-3


@pytest.mark.parametrize("kind", GATES)
def test_lengths_that_are_an_input(tmp_path, kind):
    written, path = limited(kind, "bidirectional", {}, "input"), tmp_path / "layer.onnx"
    onnx.save(written.model, path)
    session = onnxruntime.InferenceSession(str(path))
    for ends in ((5, 5, 5), (1, 3, 5), (0, 2, 4)):
        values = written.values() | {"ends": np.array(ends, np.int32)}
        agree(plain(path, values), session.run(None, values))


def test_layers_with_the_batch_first_that_end_early(tmp_path):
    """ONNX Runtime has no such layers: the same numbers as with the batch second."""
    written = limited("GRU", "bidirectional", {}, (5, 3, 1), given=False)
    graph = written.model.graph
    del graph.node[1:], graph.output[:]
    graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y0", "last0"))
    onnx.save(written.model, tmp_path / "second.onnx")
    values = written.values()
    wanted = onnxruntime.InferenceSession(str(tmp_path / "second.onnx")).run(None, values)
    graph.node[0].attribute.append(helper.make_attribute("layout", 1))
    sizes = graph.input[0].type.tensor_type.shape.dim
    sizes[0].dim_value, sizes[1].dim_value = sizes[1].dim_value, sizes[0].dim_value
    onnx.save(written.model, tmp_path / "first.onnx")
    got = plain(tmp_path / "first.onnx", {"x": values["x"].transpose(1, 0, 2)})
    agree(got, [wanted[0].transpose(2, 0, 1, 3), wanted[1].transpose(1, 0, 2)])


@pytest.mark.parametrize("backend", ENGINES)
def test_engines_take_the_steps_of_layers_that_end_early(tmp_path, backend):
    """Not as one operator: those that TVM's converter writes out are known again, and these are others."""
    written = limited("LSTM", "forward", {"clip": 0.4}, (5, 3, 1))
    got, wanted, (recurrent, steps) = answered(tmp_path, backend, written)
    agree(got, wanted)
    assert recurrent == 0 and steps >= 5


def test_lengths_of_sequences(tmp_path):
    """Those of all steps are none; those beyond cannot be."""
    written, path = limited("LSTM", "forward", {}, (5, 5, 5)), tmp_path / "lstm.onnx"
    onnx.save(written.model, path)
    assert frontends.load(path).info()["operator_counts"]["nn.dense"] == 5
    onnx.save(limited("LSTM", "forward", {}, (5, 6, 5)).model, path)
    with pytest.raises(ValueError, match=r"LSTM_?.*its sequences end after 5, 6, 5 of 5 steps \(sequence_lens\)"):
        frontends.load(path)


OPEN = {
    "LSTM": Written("LSTM", 2, "bidirectional", "T", "N", want=("Y", "Y_h", "Y_c")),
    "LSTM, clipped, one gate": Written("LSTM", steps="T", batch=2, clip=0.2, input_forget=1, bias=False),
    "GRU with states that are inputs": Written("GRU", 1, "forward", "T", "N", given=True, want=("Y", "Y_h")),
    "GRU, reset after": Written("GRU", 1, "reverse", "T", 2, linear_before_reset=1),
    "RNN with states": Written("RNN", 2, "bidirectional", "T", 3, states=True),
}


def runs(read):
    """Runs a network that was read, of which sizes are open."""
    model = export.runnable(read.module)
    return lambda values: onnx_networks.ran(model, values)


@pytest.mark.parametrize("name", OPEN)
def test_any_number_of_steps(tmp_path, name):
    written, path = OPEN[name], tmp_path / "layers.onnx"
    onnx.save(written.model, path)
    run = runs(frontends.load(path, dynamic=written.open()))
    session = onnxruntime.InferenceSession(str(path))
    for steps, batch in ((4, 3), (7, 1), (1, 2)):
        values = written.values(T=steps, N=batch)
        agree(run(values), session.run(None, values))


@pytest.mark.parametrize("ends", [(4, 1, 3), "input"], ids=str)
def test_any_number_of_steps_of_sequences_that_end_early(tmp_path, ends):
    written, path = limited("GRU", "bidirectional", {"steps": "T"}, ends), tmp_path / "layer.onnx"
    onnx.save(written.model, path)
    run = runs(frontends.load(path, dynamic={"x": [0]}))
    session = onnxruntime.InferenceSession(str(path))
    for steps in (4, 9):
        values = written.values(T=steps)
        if ends == "input":
            values["ends"] = np.array([steps, 0, 2], np.int32)
        agree(run(values), session.run(None, values))


def test_what_goes_into_all_steps_is_computed_before_the_loop(tmp_path):
    """A step has the product with the state before it, and no other."""
    onnx.save(Written("LSTM", steps="T", batch="N").model, tmp_path / "lstm.onnx")
    module = frontends.load(tmp_path / "lstm.onnx", dynamic={"x": [0, 1]}).module
    loops = []
    relay.analysis.post_order_visit(module["main"].body, lambda e: loops.append(e) if isinstance(e, relay.Let) else 0)
    assert [str(one.value).count("nn.dense") for one in loops] == [1]
    assert str(module["main"]).count("nn.dense") == 2
    # What is known of a reshape by [0, 0, -1] is known behind it.
    assert module["main"].ret_type.shape[2] == 8
