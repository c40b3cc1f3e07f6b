# SPDX-License-Identifier: Apache-2.0
"""What is computed of open dimensions is written as with fixed sizes where it is the same at all, and only there."""

import re

import numpy as np
import pytest
from collage import export, frontends
from onnx_networks import answers, hold, node, normal, ran, values, weights, write

pytestmark = pytest.mark.usefixtures("collage_library")


def text(read):
    return read.module["main"].astext(show_meta_data=False)


def dynamic_operators(read):
    return sorted(re.findall(r"= (dyn\.\w+|shape_of)\(", text(read)) + re.findall(r"^  (dyn\.\w+)\(", text(read), re.M))


def head(path, batch=1):
    """As PyTorch's exporter writes a head of attention: products of matrices of three dimensions, shapes that are taken
    apart and put together, a broadcast to the size that is there, a table of positions that is cut.
    """
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Unsqueeze", ["length", "zeros"], ["lengths"]),
        node("Slice", ["table", "zeros", "lengths", "zeros"], ["places"]),
        node("Add", ["x", "places"], ["e"]),
        node("MatMul", ["e", "w"], ["q"]),
        node("Shape", ["q"], ["of_q"]),
        node("Slice", ["of_q", "zeros", "twos"], ["outer"]),
        node("Concat", ["outer", "heads"], ["split"], axis=0),
        node("Reshape", ["q", "split"], ["q1"]),
        node("Transpose", ["q1"], ["q2"], perm=[0, 2, 1, 3]),
        node("Shape", ["q2"], ["of_q2"]),
        node("Expand", ["q2", "of_q2"], ["q3"]),
        node("Transpose", ["q3"], ["q4"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q3", "q4"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "q3"], ["o"]),
        node("Erf", ["o"], ["out"]),
    ]
    inside = {
        "one": np.array(1), "zeros": np.array([0]), "twos": np.array([2]), "heads": np.array([2, 8]),
        "table": (40, 16), "w": (16, 16),
    }  # fmt: skip
    return write(path, nodes, values(x=[batch, "len", 16]), values(out=[batch, 2, "len", 8]), weights(**inside))


def test_shapes_that_are_taken_apart_and_put_together(tmp_path):
    path = head(tmp_path / "network.onnx")
    read = frontends.load(path, dynamic={"x": {1: (1, 40)}})
    assert dynamic_operators(read) == ["dyn.strided_slice", "shape_of"], "the table is cut at what the length is"
    assert "[(1, 2, ?, ?), float32]" in text(read)
    assert "[(?, ?, ?" not in text(read)
    model = export.runnable(read.module)
    for length in (1, 2, 16, 40):
        given = {"x": normal(length, 1, length, 16)}
        hold(ran(model, given), answers(path, given))


def test_batch_and_length_are_both_open(tmp_path):
    """A reshape says of one size alone that it is what is left: others are put together, or another tensor's."""
    path = head(tmp_path / "network.onnx", batch="batch")
    read = frontends.load(path, dynamic={"x": {0: (1, 5), 1: (1, 40)}})
    assert dynamic_operators(read) == ["dyn.strided_slice", "shape_of"], "the table is cut at what the length is"
    assert "reshape_like(" in text(read)
    assert "[(?, ?, ?, ?)" not in text(read)
    model = export.runnable(read.module)
    for batch, length in ((1, 1), (2, 3), (5, 40), (3, 2)):
        given = {"x": normal(length, batch, length, 16)}
        hold(ran(model, given), answers(path, given))


def either(path, second):
    """A tensor in the shape of another one."""
    return write(
        path,
        [node("Shape", ["b"], ["shape"]), node("Reshape", ["a", "shape"], ["r"]), node("Relu", ["r"], ["out"])],
        values(a=["n", "m"], b=second), values(out=["p", "q"]), weights(),
    )  # fmt: skip


@pytest.mark.parametrize(("second", "stays"), [(["n", "m"], False), (["m", "n"], False), (["k", "l"], True)])
def test_only_what_has_one_name_is_one_size(second, stays, tmp_path):
    path = either(tmp_path / "network.onnx", second)
    read = frontends.load(path, dynamic={"a": [0, 1], "b": [0, 1]})
    assert bool(dynamic_operators(read)) == stays
    if second != ["n", "m"]:
        model = export.runnable(read.module)
        given = {"a": normal(1, 2, 6), "b": normal(2, 6, 2)}
        hold(ran(model, given), answers(path, given))


def cut(path):
    """The first 8 of a sequence."""
    nodes = [node("Slice", ["x", "zeros", "eights", "ones"], ["c"]), node("Relu", ["c"], ["out"])]
    inside = {"zeros": np.array([0]), "eights": np.array([8]), "ones": np.array([1])}
    return write(path, nodes, values(x=[2, "len"]), values(out=[2, "k"]), weights(**inside))


def test_a_slice_is_dropped_only_where_it_takes_all(tmp_path):
    path = cut(tmp_path / "network.onnx")
    for most in (8, 9):
        read = frontends.load(path, dynamic={"x": {1: (1, most)}})
        model = export.runnable(read.module)
        for length in (1, 8, most):
            given = {"x": normal(length, 2, length)}
            hold(ran(model, given), answers(path, given))


def positions(path):
    """As PyTorch's exporter finds where sentences begin in a batch of one: a sequence of numbers, with one in front
    that is made of the first of them, less itself without the last; slices with one computed bound.
    """
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "ones"], ["lengths"]),
        node("Slice", ["x", "zeros", "ones", "ones"], ["first"]),
        node("Sub", ["first", "step"], ["before"]),
        node("Concat", ["before", "x"], ["longer"], axis=1),
        node("Add", ["lengths", "ones"], ["ends"]),
        node("Slice", ["longer", "ones", "ends", "ones"], ["later"]),
        node("Slice", ["longer", "zeros", "lengths", "ones"], ["earlier"]),
        node("Sub", ["later", "earlier"], ["steps"]),
        node("Reshape", ["steps", "flat"], ["out"]),
    ]
    inside = {
        "ones": np.array([1]), "zeros": np.array([0]), "step": np.array([0.5], "float32"), "flat": np.array([-1])
    }  # fmt: skip
    return write(path, nodes, values(x=[1, "len"]), values(out=["k"]), weights(**inside))


def test_slices_of_known_sizes(tmp_path):
    """Of the first item the size is known: it is taken. What is cut at the length has the length."""
    path = positions(tmp_path / "network.onnx")
    read = frontends.load(path, dynamic={"x": {1: (1, 40)}})
    shown = text(read)
    assert "take(" in shown and "Tensor[(1, 1), float32]" in shown, shown
    model = export.runnable(read.module)
    for length in (1, 2, 16, 40):
        given = {"x": normal(length, 1, length)}
        hold(ran(model, given), answers(path, given))


def distances(path):
    """As transformers' MPT cuts ALiBi's table to the words that there are: from a computed start on, to an end that is
    far behind, in a table that has one row.
    """
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"], axis=0),
        node("Sub", ["one", "length"], ["before"]),
        node("Max", ["before", "zero"], ["row"]),
        node("Slice", ["table", "row", "far", "one", "one"], ["rows"]),
        node("Sub", ["size", "length"], ["place"]),
        node("Slice", ["rows", "place", "far", "two", "one"], ["of"]),
        node("Add", ["x", "of"], ["out"]),
    ]
    inside = {
        "table": (3, 1, 40), "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]), "size": np.array([40]),
        "far": np.array([np.iinfo(np.int64).max]),
    }  # fmt: skip
    return write(path, nodes, values(x=[3, "len", "len"]), values(out=[3, "len", "len"]), weights(**inside))


def test_what_is_of_known_size_is_cut_at_computed_bounds(tmp_path):
    path = distances(tmp_path / "network.onnx")
    read = frontends.load(path, dynamic={"x": {1: (1, 40), 2: (1, 40)}})
    model = export.runnable(read.module)
    for length in (1, 2, 16, 40):
        given = {"x": normal(length, 3, length, length)}
        hold(ran(model, given), answers(path, given))


@pytest.mark.parametrize(("domain", "starts", "ends", "taken"), [
    ((1, 40), -1, 2**62, True), ((3, 40), -3, -1, True), ((1, 40), -3, -1, False),
    ((1, 5), -5, 1, False),  # one, but which depends on how many there are
])  # fmt: skip
def test_slices_from_the_end_of_known_sizes(tmp_path, domain, starts, ends, taken):
    """What is known to be there is taken by its place from the end."""
    path = write(
        tmp_path / "network.onnx", [node("Slice", ["x", "starts", "ends", "axes"], ["out"])],
        values(x=[1, "len", 4]), values(out=[1, "k", 4]),
        weights(starts=np.array([starts]), ends=np.array([ends]), axes=np.array([1])), opset=13,
    )  # fmt: skip
    read = frontends.load(path, dynamic={"x": {1: domain}})
    assert ("take(" in text(read)) == taken, text(read)
    model = export.runnable(read.module)
    for length in range(domain[0], 7):
        given = {"x": normal(length, 1, length, 4)}
        hold(ran(model, given), answers(path, given))
