# SPDX-License-Identifier: Apache-2.0
"""What reading a network takes grows with its operators, and no more: calls of functions are counted, not seconds.

What twice as many operators more take is at most GROWTH times what the first ones more took; what is done once for the
whole counts in neither. TVM itself is not looked into: its functions count as calls.
"""

import gc
import subprocess
import sys
from collections import Counter

import numpy as np
import onnx
import pytest
from collage import frontends
from conftest import environment
from onnx import helper, numpy_helper
from test_tflite import KINDS, Writer, schema
from test_torchscript import torch_environment  # noqa: F401

GROWTH = 2.03


def calls(read):
    """How many functions are called, of Python's and of C's."""
    count = Counter()

    def counted(_, event, __):
        count[event] += event in ("call", "c_call")

    gc.collect()  # what others left behind is let go of by calls, too
    gc.disable()
    sys.setprofile(counted)
    try:
        read()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count.total()


def linear(read, size):
    """``read(size)`` gives what reads a network of that size."""
    read(size)()  # what is imported and remembered once
    small, double, large = (calls(read(times * size)) for times in (1, 2, 4))
    assert double - small > 100 * size  # of each operator, something is counted
    assert large - double <= GROWTH * (double - small), (small, double, large)


def weight(name, *shape):
    return numpy_helper.from_array(np.linspace(-1, 1, int(np.prod(shape)), dtype="float32").reshape(shape), name)


def layers(count):
    """Dense layers with what exporters write around them: shapes that are computed, normalisation, GELU."""
    nodes, weights, last = [], [numpy_helper.from_array(np.array([0]), "zero"), weight("scale", 16)], "x"
    weights += [numpy_helper.from_array(np.array(dims), name) for name, dims in (("four", [4, 4]), ("back", [-1, 16]))]
    for i in range(count):
        weights.append(weight(f"w{i}", 16, 16))
        for kind, inputs, output, attributes in (
            ("MatMul", [last, f"w{i}"], "product", {}),
            ("LayerNormalization", [f"product{i}", "scale"], "norm", {}),
            ("Shape", [f"norm{i}"], "shape", {}),
            ("Gather", [f"shape{i}", "zero"], "rows", {}),
            ("Concat", [f"rows{i}", "four"], "dims", {"axis": 0}),
            ("Reshape", [f"norm{i}", f"dims{i}"], "parts", {}),
            ("Transpose", [f"parts{i}"], "turned", {"perm": [0, 2, 1]}),
            ("Gelu", [f"turned{i}"], "gelu", {}),
            ("Reshape", [f"gelu{i}", "back"], "flat", {}),
            ("Add", [f"flat{i}", last], "sum", {}),
        ):
            nodes.append(helper.make_node(kind, inputs, [f"{output}{i}"], **attributes))
        last = f"sum{i}"
    return nodes, weights, last


def one_for_all(count):
    """One value that all read, and one that reads all."""
    nodes = [helper.make_node("Exp", ["x"], [f"e{i}"]) for i in range(count)]
    return [*nodes, helper.make_node("Sum", [f"e{i}" for i in range(count)], ["sum"])], [], "sum"


def constants(count):
    """Constants that are computed of each other, and each of which is used."""
    nodes, last, known = [], "x", "c"
    for i in range(count):
        nodes += [helper.make_node("Add", [known, "c"], [f"c{i}"]), helper.make_node("Mul", [last, f"c{i}"], [f"x{i}"])]
        last, known = f"x{i}", f"c{i}"
    return nodes, [weight("c", 8, 16)], last


def steps(count):
    """A recurrent layer, of as many steps."""
    nodes = [
        helper.make_node("Expand", ["x", "dims"], ["whole"]),
        helper.make_node("LSTM", ["whole", "w", "r"], ["y"], hidden_size=4),
    ]
    dims = numpy_helper.from_array(np.array([count, 8, 16]), "dims")
    return nodes, [dims, weight("w", 1, 16, 16), weight("r", 1, 16, 4)], "y"


def branches(count):
    """Branches that the network chooses, each of which reads what is around it."""
    nodes = [helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)]
    nodes.append(helper.make_node("Cast", ["most"], ["some"], to=9))
    weights, last, value = [], "x", helper.make_tensor_value_info
    for i in range(count):
        sides = [
            helper.make_graph([helper.make_node(kind, [last, f"w{i}"], ["y"])], kind, [], [value("y", 1, None)])
            for kind in ("Add", "Mul")
        ]
        weights.append(weight(f"w{i}", 16))
        nodes.append(helper.make_node("If", ["some"], [f"y{i}"], then_branch=sides[0], else_branch=sides[1]))
        last = f"y{i}"
    return nodes, weights, last


def loops(count):
    """Loops one after the other, each of as many rounds as the network says."""
    nodes = [helper.make_node("Size", ["x"], ["rounds"])]
    last, value, weights = "x", helper.make_tensor_value_info, []
    for i in range(count):
        round_of = helper.make_graph(
            [
                helper.make_node("Add", ["h", f"w{i}"], ["more"]),
                helper.make_node("Identity", ["going"], ["goes_on"]),
            ],
            "round",
            [value("number", 7, ()), value("going", 9, ()), value("h", 1, None)],
            [value("goes_on", 9, ()), value("more", 1, None)],
        )
        weights.append(weight(f"w{i}", 16))
        nodes.append(helper.make_node("Loop", ["rounds", "", last], [f"h{i}"], body=round_of))
        last = f"h{i}"
    return nodes, weights, last


def convolutions(count):
    """Convolutions with batch normalisation and ReLU, and a residual connection around each."""
    sizes = numpy_helper.from_array(np.array([1, 8, 4, 4]), "sizes")
    nodes, weights, last = [helper.make_node("Reshape", ["x", "sizes"], ["image"])], [sizes], "image"
    for i in range(count):
        weights += [weight(f"w{i}", 8, 8, 3, 3), *(weight(f"{name}{i}", 8) for name in ("scale", "shift", "mean"))]
        weights.append(numpy_helper.from_array(np.ones(8, "float32"), f"variance{i}"))
        statistics = [f"{name}{i}" for name in ("scale", "shift", "mean", "variance")]
        nodes += [
            helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1] * 4),
            helper.make_node("BatchNormalization", [f"c{i}", *statistics], [f"n{i}"]),
            helper.make_node("Relu", [f"n{i}"], [f"r{i}"]),
            helper.make_node("Add", [f"r{i}", last], [f"s{i}"]),
        ]
        last = f"s{i}"
    return nodes, weights, last


def reshapes(count):
    """One Reshape after the other, to sizes that are computed of the one before."""
    nodes, last = [], "x"
    for i in range(count):
        nodes += [
            helper.make_node("Shape", [last], [f"s{i}"]),
            helper.make_node("Gather", [f"s{i}", "turned"], [f"t{i}"]),
            helper.make_node("Reshape", [last, f"t{i}"], [f"r{i}"]),
        ]
        last = f"r{i}"
    return nodes, [numpy_helper.from_array(np.array([1, 0]), "turned")], last


def parts(count):
    """One value in as many parts, and all of them in one again."""
    whole = numpy_helper.from_array(np.array([count, 8, 16]), "dims")
    names = [f"p{i}" for i in range(count)]
    nodes = [
        helper.make_node("Expand", ["x", "dims"], ["whole"]),
        helper.make_node("Split", ["whole"], names, axis=0, num_outputs=count),
        *(helper.make_node("Relu", [name], [f"r{i}"]) for i, name in enumerate(names)),
        helper.make_node("Concat", [f"r{i}" for i in range(count)], ["y"], axis=0),
    ]
    return nodes, [whole], "y"


NETWORKS = [layers, one_for_all, constants, steps, branches, loops, convolutions, reshapes, parts]


@pytest.mark.parametrize("network", NETWORKS)
def test_onnx(collage_library, network, tmp_path):
    def read(size):
        nodes, weights, last = network(size)
        value = helper.make_tensor_value_info
        graph = helper.make_graph(nodes, "g", [value("x", 1, (8, 16))], [value(last, 1, None)], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, str(tmp_path / f"{size}.onnx"))
        return lambda: frontends.load(tmp_path / f"{size}.onnx")

    linear(read, 12)


def test_tflite(collage_library, tmp_path):
    def read(size):
        file, rng = Writer(), np.random.default_rng(0)
        first = last = file.tensor("x", (1, 8))
        for i in range(size):
            dense, total = file.tensor(f"dense{i}", (1, 8)), file.tensor(f"sum{i}", (1, 8))
            matrix = file.constant(f"w{i}", rng.standard_normal((8, 8)).astype("float32"))
            bias = file.constant(f"b{i}", np.ones(8, "float32"))
            file.operator(KINDS.FULLY_CONNECTED, [last, matrix, bias], [dense], schema.FullyConnectedOptionsT())
            file.operator(KINDS.ADD, [dense, last], [total], schema.AddOptionsT())
            last = total
        file.write(tmp_path / f"{size}.tflite", [first], [last])
        return lambda: frontends.load(tmp_path / f"{size}.tflite")

    linear(read, 12)


SCRIPT = """
import sys
import torch
from torch import nn
from collage import frontends
import test_reading_growth as growth

class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(count)])
        self.norm = nn.LayerNorm(16)
    def forward(self, x):
        for layer in self.layers:
            y = self.norm(layer(x)).reshape(x.shape[0], 4, 4).transpose(1, 2)
            x = nn.functional.gelu(y).reshape(-1, 16) + x
        return x

def read(size):
    path = f"{sys.argv[1]}/{size}.pt"
    torch.jit.trace(Layers(size).eval(), torch.rand(8, 16)).save(path)
    return lambda: frontends.load(path, input_shapes={"x": (8, 16)})

growth.linear(read, 12)
"""


@pytest.mark.long
def test_torchscript(torch_environment, tmp_path):  # noqa: F811
    told = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    tests = {**environment(), **torch_environment}
    tests["PYTHONPATH"] += ":tests"
    ran = subprocess.run(told, capture_output=True, text=True, env=tests, timeout=600)
    assert ran.returncode == 0, ran.stderr
