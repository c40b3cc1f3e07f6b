# SPDX-License-Identifier: Apache-2.0
"""ONNX's sequences and optionals: as inputs, results, inside of networks, and from round to round of loops."""

import json

import numpy as np
import onnx
import pytest
from collage import export, frontends, transform
from onnx_networks import BOOL, FLOAT, INT, answers, graph, hold, node, normal, ran, values, weights, write

ON = [node("Identity", ["going"], ["goes"])]
SCALARS = values(i=(INT, []), going=(BOOL, []))


def sequence(name, shape=None):
    return onnx.helper.make_tensor_sequence_value_info(name, FLOAT, shape)


def optional(name, shape):
    kind = onnx.helper.make_optional_type_proto(onnx.helper.make_tensor_type_proto(FLOAT, shape))
    return onnx.helper.make_value_info(name, kind)


def collecting(nodes, shape):
    """A loop's body that hands on s, of a shape, and a sequence l."""
    return graph(
        "body", [*nodes, *ON], [*SCALARS, *values(s=shape), sequence("l")],
        [*values(goes=(BOOL, []), s2=shape), sequence("l2")],
    )  # fmt: skip


STEP = [node("MatMul", ["s", "w"], ["q"]), node("Tanh", ["q"], ["s2"])]
LAST = [node("SequenceInsert", ["l", "s2"], ["l2"])]
FIRST = [node("Constant", [], ["begin"], value_int=0), node("SequenceInsert", ["l", "s2", "begin"], ["l2"])]


def collected(path, new_axis=1, axis=1, place=LAST):
    """What each round gives, in a sequence, as PyTorch's exporter writes a list that a loop makes longer."""
    return write(
        path,
        [
            node("SequenceEmpty", [], ["l0"]),
            node("Loop", ["n", "", "x", "l0"], ["y", "ys"], body=collecting(STEP + place, [4, 8])),
            node("ConcatFromSequence", ["ys"], ["out"], axis=axis, new_axis=new_axis),
            node("SequenceLength", ["ys"], ["length"]),
            node("SequenceAt", ["ys", "k"], ["one"]),
        ],
        values(x=[4, 8], n=(INT, []), k=(INT, [])),
        values(out=[None] * (2 + new_axis), length=(INT, []), one=[4, 8]), weights(w=(8, 8)),
    )  # fmt: skip


def joined(path):
    return collected(path, 0, -1)


def turned_round(path):
    return collected(path, 0, 0, FIRST)


def moved(path):
    """Tensors that are put in and taken out at places that are known when it runs, of a sequence that a loop made."""
    return write(
        path,
        [
            node("SequenceConstruct", ["x"], ["l0"]),
            node("Loop", ["n", "", "x", "l0"], ["y", "ys"], body=collecting(STEP + LAST, [4, 8])),
            node("SequenceInsert", ["ys", "z", "k"], ["more"]),
            node("SequenceErase", ["more", "e"], ["less"]),
            node("SequenceErase", ["less"], ["least"]),
            node("ConcatFromSequence", ["least"], ["out"], axis=0),
        ],
        values(x=[4, 8], z=[4, 8], n=(INT, []), k=(INT, []), e=(INT, [])), values(out=[None, 8]), weights(w=(8, 8)),
    )  # fmt: skip


def chosen(path):
    """The same of a sequence whose length is known: its tensors' places alone are not."""
    return write(
        path,
        [
            node("SequenceConstruct", ["x", "z", "w"], ["l"]),
            node("SequenceAt", ["l", "k"], ["one"]),
            node("SequenceErase", ["l", "k"], ["less"]),
            node("SequenceInsert", ["less", "x", "k"], ["more"]),
            node("ConcatFromSequence", ["more"], ["all"], axis=1),
            node("ConcatFromSequence", ["less"], ["two"], axis=0, new_axis=1),
        ],
        values(x=[4, 8], z=[4, 8], k=(INT, [])), values(one=[4, 8], all=[4, 24], two=[2, 4, 8]), weights(w=(4, 8)),
    )  # fmt: skip


def branches(path):
    """A sequence of two tensors of different shapes, by either branch."""

    def branch(operator):
        return graph(
            operator,
            [node(operator, [name], [f"{name}{operator}"]) for name in "xz"]
            + [node("SequenceConstruct", [f"x{operator}", f"z{operator}"], [f"l{operator}"])],
            [], [sequence(f"l{operator}")],
        )  # fmt: skip

    return write(
        path,
        [
            node("If", ["c"], ["l"], then_branch=branch("Relu"), else_branch=branch("Abs")),
            node("ConcatFromSequence", ["l"], ["out"], axis=0),
        ],
        values(x=[4, 8], z=[2, 8], c=(BOOL, [])), values(out=[6, 8]),
    )  # fmt: skip


def numbers(**those):
    return {name: np.array(value) for name, value in those.items()}


X, Z = normal(1, 4, 8), normal(2, 4, 8)
NETWORKS = {
    collected: [{"x": X, **numbers(n=n, k=k)} for n, k in ((1, 0), (5, 3), (5, -1), (6, -6))],
    joined: [{"x": X, **numbers(n=n, k=0)} for n in (1, 4)],
    turned_round: [{"x": X, **numbers(n=n, k=0)} for n in (1, 4)],
    moved: [
        {"x": X, "z": Z, **numbers(n=n, k=k, e=e)}
        for n, k, e in ((3, 0, 4), (3, 4, 0), (3, 2, 2), (3, -1, -1), (3, -4, -5), (1, 1, 0))
    ],
    chosen: [{"x": X, "z": Z, **numbers(k=k)} for k in (0, 1, 2, -1, -2)],
    branches: [{"x": X, "z": normal(3, 2, 8), "c": np.array(c)} for c in (True, False)],
}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.__name__)
def test_it_computes_what_another_engine_does(network, tmp_path):
    path = network(tmp_path / "network.onnx")
    model = export.runnable(transform.Normalise()(frontends.load(path).module))
    for given in NETWORKS[network]:
        hold(ran(model, given), answers(path, given))


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_of_an_open_dimension(axis, keep, tmp_path):
    """What PyTorch's `for row in x` is."""
    shape = ["n" if i == axis else 3 + i for i in range(3)]
    path = write(
        tmp_path / "network.onnx",
        [
            node("SplitToSequence", ["x"], ["l"], axis=axis, keepdims=keep),
            node("SequenceAt", ["l", "k"], ["one"]),
            node("ConcatFromSequence", ["l"], ["out"], axis=0, new_axis=1),
        ],
        values(x=shape, k=(INT, [])), values(one=[None] * (2 + keep), out=[None] * (3 + keep)),
    )  # fmt: skip
    model = export.runnable(transform.Normalise()(frontends.load(path, dynamic={"x": [axis]}).module))
    for size, k in ((1, 0), (4, 2), (4, -4)):
        given = {"x": normal(4, *(size if one == "n" else one for one in shape)), "k": np.array(k)}
        hold(ran(model, given), answers(path, given))


def test_rounds_that_are_known_leave_no_loop(tmp_path):
    """Its tensors need not be of one shape."""
    nodes = [node("Concat", ["s", "s"], ["t"], axis=0), node("Slice", ["t", "zero", "end"], ["u"])]
    nodes += [node("Add", ["i", "one"], ["end"]), node("SequenceInsert", ["l", "u"], ["l2"])]
    body = collecting([nodes[2], *nodes[:2], nodes[3], node("Relu", ["s"], ["s2"])], [4, 8])
    path = write(
        tmp_path / "network.onnx",
        [
            node("SequenceEmpty", [], ["l0"]),
            node("Loop", ["n", "", "x", "l0"], ["y", "ys"], body=body),
            node("ConcatFromSequence", ["ys"], ["out"], axis=0),
        ],
        values(x=[4, 8]), values(out=[10, 8]), weights(n=np.array(4), zero=np.array([0]), one=np.array([1])),
    )  # fmt: skip
    model = frontends.load(path)
    assert model.module["main"].ret_type.shape[0] == 10
    assert set(model.info()["operator_counts"]) <= {"concatenate", "nn.relu", "strided_slice"}
    hold(ran(export.runnable(transform.Normalise()(model.module)), {"x": X}), answers(path, {"x": X}))


def test_a_loop_that_fills_a_sequence_is_read_once(tmp_path, monkeypatch):
    """That the sequence grows is known, and not found out by reading the body again."""
    from collage.onnx_reader import control_flow

    read, inside = [], control_flow._inside
    monkeypatch.setattr(control_flow, "_inside", lambda body, *values: read.append(body.name) or inside(body, *values))
    frontends.load(moved(tmp_path / "network.onnx"))
    assert len(read) == 1


def given_apart(path):
    """A sequence as an input and as a result, and an optional that may be left out."""
    there = graph("there", [node("OptionalGetElement", ["o"], ["o1"])], [], values(o1=[4, 8]))
    absent = graph("absent", [node("Identity", ["w"], ["w1"])], [], values(w1=[4, 8]))
    made = onnx.helper.make_model(
        graph(
            "network",
            [
                node("OptionalHasElement", ["o"], ["has"]),
                node("If", ["has"], ["v"], then_branch=there, else_branch=absent),
                node("SequenceInsert", ["l", "v"], ["r"]),
                node("SequenceAt", ["l", "k"], ["one"]),
            ],
            [sequence("l", [4, 8]), optional("o", [4, 8])], [sequence("r"), *values(one=[4, 8])],
            weights(w=(4, 8), k=np.array(-1)),
        ),
        opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8,
    )  # fmt: skip
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("there", [0, 1])
def test_inputs_and_results_come_as_their_tensors(there, command, store, tmp_path):
    path = given_apart(tmp_path / "network.onnx")
    model = frontends.load(path, input_shapes={"l": (3,), "o": (there,)})
    names = ["l.0", "l.1", "l.2", *(["o.0"] if there else [])]
    assert model.inputs == {name: ((4, 8), "float32") for name in names}
    arrays = {name: normal(10 + i, 4, 8) for i, name in enumerate(names)}
    (made, one) = onnx.reference.ReferenceEvaluator(str(path)).run(
        None, {"l": [arrays[f"l.{i}"] for i in range(3)], "o": arrays.get("o.0")}
    )
    hold(ran(export.runnable(transform.Normalise()(model.module)), arrays), [*made, one])
    # The other engine is asked with the same inputs, put together again.
    shapes = [f"--input-shape=l:3 --input-shape=o:{there}", f"--input-shape=l.2:4,8 --input-shape=o:{there}"]
    told = command("compile", path, "-o", tmp_path / "network.so", *shapes[there].split(), "--db", store,
                   "--rounds", "2", "--backends", "tvm", "--json", "-q")  # fmt: skip
    assert told.returncode == 0, told.stderr
    checked = json.loads(told.stdout)["import_check"]
    assert checked["engine"] and not checked.get("unchecked"), checked


ANY = values(x=[4, 8])


def unlike(path):
    """A loop that puts tensors of differing sizes into a sequence."""
    nodes = [node("Slice", ["s", "zero", "end"], ["u"]), node("SequenceInsert", ["l", "u"], ["l2"])]
    nodes = [node("Unsqueeze", ["i", "zero"], ["end"]), *nodes, node("Relu", ["s"], ["s2"])]
    return write(
        path,
        [
            node("SequenceEmpty", [], ["l0"]),
            node("Loop", ["n", "", "x", "l0"], ["y", "ys"], body=collecting(nodes, [4, 8])),
            node("ConcatFromSequence", ["ys"], ["out"], axis=0),
        ],
        values(x=[4, 8], n=(INT, [])), values(out=[None, 8]), weights(zero=np.array([0])),
    )  # fmt: skip


def unknown_length(path):
    return write(
        path,
        [
            node("SequenceEmpty", [], ["l0"]),
            node("Loop", ["n", "", "x", "l0"], ["y", "out"], body=collecting(STEP + LAST, [4, 8])),
        ],
        values(x=[4, 8], n=(INT, [])), [sequence("out")], weights(w=(8, 8)),
    )  # fmt: skip


def which_of_two(path):
    nodes = [node("SequenceConstruct", ["x", "z"], ["l"]), node("SequenceAt", ["l", "k"], ["out"])]
    return write(path, nodes, values(x=[4, 8], z=[2, 8], k=(INT, [])), values(out=[None, 8]))


def beyond(path):
    nodes = [node("SequenceConstruct", ["x"], ["l"]), node("SequenceAt", ["l", "k"], ["out"])]
    return write(path, nodes, ANY, values(out=[4, 8]), weights(k=np.array(1)))


def branches_of_two_lengths(path):
    def branch(*names):
        made = f"l{len(names)}"
        return graph(made, [node("SequenceConstruct", list(names), [made])], [], [sequence(made)])

    return write(
        path,
        [
            node("If", ["c"], ["l"], then_branch=branch("x"), else_branch=branch("x", "x")),
            node("ConcatFromSequence", ["l"], ["out"], axis=0),
        ],
        values(x=[4, 8], c=(BOOL, [])), values(out=[None, 8]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("network", "shapes", "why"),
    [
        (unlike, {}, "the operator Loop .*: the tensors that it puts into a sequence have sizes that are known only"),
        (unknown_length, {}, "its result out is a sequence whose length is known only when the network runs"),
        (which_of_two, {}, r"the operator SequenceAt .*: which tensor .* of the shapes \[2, 8\], \[4, 8\]"),
        (beyond, {}, "the operator SequenceAt .*: the position of SequenceAt is 1, and the sequence has 1 tensors"),
        (branches_of_two_lengths, {}, "its branches give a sequence of 1 and a sequence of 2"),
        (given_apart, {}, r"its input l is a sequence: say of how many tensors .*--input-shape l:1"),
        (given_apart, {"l": (2,)}, r"its input o is an optional: say whether it is there .*--input-shape o:1"),
        (given_apart, {"l": (2,), "o": (2,)}, r"its input o is optional: --input-shape o:2 does not fit \(1 where"),
        (given_apart, {"l": (2, 3), "o": (0,)}, r"its input l is a sequence: --input-shape l:2,3 does not fit"),
        (given_apart, {"l": (1,), "o": (0,), "l.0": (3, 8)}, r"input l\.0 of .* is \[4, 8\]; \[3, 8\] does not fit"),
        (given_apart, {"l": (1,), "o": (0,), "l.1": (4, 8)}, r"has no input 'l\.1'; its inputs are: l\.0"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(network, shapes, why, tmp_path):
    with pytest.raises(ValueError, match=why) as error:
        frontends.load(network(tmp_path / "network.onnx"), input_shapes=shapes)
    assert "\n" not in str(error.value)
