# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: read step by step, and given to engines as the one operator that they have for them."""

import itertools
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import placed
import pytest
from collage import frontends
from conftest import environment
from onnx import TensorProto, helper, numpy_helper

ENGINES = ("onnxruntime", "openvino")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


class Written:
    """An ONNX model of recurrent layers, one behind the other, with seeded weights."""

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
            self.constant(f"shape{k}", np.array([steps, batch, directions * hidden]))
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

    def values(self):
        return {name: self.rng.standard_normal(shape).astype("float32") for name, shape in self.inputs}


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
    dump = tmp_path / "dump"
    dump.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(tests=str(placed.Path(__file__).parent)), backend, str(path),
         str(tmp_path / "values.npz"), str(out)],
        capture_output=True, text=True, timeout=300, env=environment() | {"COLLAGE_ONNXRUNTIME_DUMP": str(dump)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    got = np.load(f"{out}.npz")
    wanted = onnxruntime.InferenceSession(str(path)).run(None, values)
    return [got[name] for name in got.files], wanted, layers_given(backend, dump, out)


def layers_given(backend, dump, executable):
    """How many recurrent operators the engine was given, and how many others that multiply or squash."""
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
    assert recurrent == CASES[name].get("layers", 1)
    assert steps == 0 or "before, one of a batch" in name


def test_a_layer_is_written_out_once(tmp_path):
    """However many of its outputs are wanted."""
    onnx.save(Written("LSTM", steps=5, want=("Y", "Y_h", "Y_c")).model, tmp_path / "lstm.onnx")
    assert frontends.load(tmp_path / "lstm.onnx").info()["operator_counts"]["nn.dense"] == 5


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        (dict(clip=2.0), "it clips at 2 what goes into its activations, which is not supported"),
        (dict(input_forget=1), r"it has one gate for input and forgetting \(input_forget\), which is not supported"),
    ],
)
def test_what_would_be_left_out_is_refused(tmp_path, attributes, reason):
    onnx.save(Written("LSTM", **attributes).model, tmp_path / "lstm.onnx")
    with pytest.raises(ValueError, match=reason):
        frontends.load(tmp_path / "lstm.onnx")


@pytest.mark.parametrize("ends", [(5, 5), (5, 3)])
def test_lengths_of_sequences(tmp_path, ends):
    """Those of all steps are none; others would be left out by TVM's converter."""
    written = Written("LSTM", batch=2)
    node = written.model.graph.node[0]
    node.input[4] = "ends"
    written.model.graph.initializer.append(numpy_helper.from_array(np.array(ends, np.int32), "ends"))
    path = tmp_path / "lstm.onnx"
    onnx.save(written.model, path)
    if ends == (5, 5):
        assert frontends.load(path).info()["operator_counts"]["nn.dense"] == 5
        return
    with pytest.raises(
        ValueError, match=r"its sequences end after 5, 3 of 5 steps \(sequence_lens\), which is not supp"
    ):
        frontends.load(path)
