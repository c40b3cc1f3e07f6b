# SPDX-License-Identifier: Apache-2.0
"""What detectors do with what they have found, of which nobody knows how much it is before: the greatest, scattered."""

import numpy as np
import pytest
from collage import export, frontends
from onnx_networks import INT, answers, hold, node, normal, ran, values, weights, write


def found(path, nodes, outputs, inputs, **constants):
    """A network that has the rows of x whose first element is above 0, "kept" [n, 4], and ``nodes`` behind that."""
    first = [
        node("Slice", ["x", "zero", "one", "one"], ["first"]),
        node("Squeeze", ["first", "one"], ["scores"]),
        node("Greater", ["scores", "nothing"], ["above"]),
        node("NonZero", ["above"], ["places"]),
        node("Squeeze", ["places", "zero"], ["at"]),
        node("Gather", ["x", "at"], ["kept"]),
    ]
    given = {"zero": np.array([0]), "one": np.array([1]), "nothing": np.array(0, "float32"), **constants}
    return write(path, [*first, *nodes], inputs, outputs, weights(**given), opset=18)


def greatest(path):
    """As RetinaNet has it: at most three, or as many as there are."""
    nodes = [
        node("Gather", ["scores", "at"], ["those"]),
        node("Shape", ["those"], ["many"]),
        node("Concat", ["many", "most"], ["both"], axis=0),
        node("ReduceMin", ["both"], ["k"], keepdims=1),
        node("TopK", ["those", "k"], ["out", "where"]),
    ]
    return found(path, nodes, values(out=["k"], where=(INT, ["k"])), values(x=[6, 4]), most=np.array([3]))


def scattered(path):
    """As torchvision's RoI pooling has it: rows put into what is as long as what was found."""
    nodes = [
        node("Shape", ["kept"], ["sizes"]),
        node("ConstantOfShape", ["sizes"], ["empty"]),
        node("ScatterElements", ["empty", "rows", "put"], ["out"], axis=0),
    ]
    return found(
        path, nodes, values(out=["n", 4]), values(x=[6, 4]),
        rows=np.array([[-1, 0, -1, 0]]), put=np.array([[5, 6, 7, 8]], "float32"),
    )  # fmt: skip


def scattered_slices(path):
    """The same by ScatterND, a row and an element of another one counted from the end; and taken again by GatherND."""
    nodes = [
        node("ScatterND", ["kept", "cells", "put"], ["filled"]),
        node("GatherND", ["filled", "again"], ["out"]),
    ]
    return found(
        path, nodes, values(out=[2]), values(x=[6, 4]),
        cells=np.array([[-1, 2], [0, -4]]), put=np.array([5, 6], "float32"), again=np.array([[-1, -2], [0, 0]]),
    )  # fmt: skip


@pytest.mark.parametrize("network", [greatest, scattered, scattered_slices])
def test_what_is_found_is_as_much_as_it_is(tmp_path, network):
    path = network(tmp_path / "network.onnx")
    model = export.runnable(frontends.load(path).module)
    for many in (1, 2, 5, 6):
        x = normal(many, 6, 4)
        x[:, 0] = np.where(np.arange(6) < many, 1, -1) * (0.1 + np.abs(x[:, 0]))
        hold(ran(model, {"x": x}), answers(path, {"x": x}))


def test_a_range_up_to_what_is_read_often(tmp_path):
    """Where a range ends stands in its attributes, too: as text it has all that it is made of, 2 to the 60th times. It
    is read; TVM, which writes such sums into each other, does not build it.
    """
    nodes = [node("Size", ["kept"], ["n0"])]
    nodes += [node("Min", [f"n{i}", f"n{i}"], [f"n{i + 1}"]) for i in range(60)]
    nodes += [node("Range", ["start", "n60", "step"], ["out"])]
    path = found(
        tmp_path / "network.onnx", nodes, values(out=(INT, ["n"])), values(x=[6, 4]),
        start=np.array(0), step=np.array(1),
    )  # fmt: skip
    counts = frontends.load(path).info()["operator_counts"]
    assert counts["minimum"] == 60 and counts["arange"] == 1
