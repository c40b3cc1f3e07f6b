# SPDX-License-Identifier: Apache-2.0
"""Einsum of ONNX models: transposes, reshapes and products, with NumPy's answer; TVM's own for the rest."""

import numpy as np
import onnx
import pytest
from collage import frontends
from onnx import TensorProto, helper
from test_onnx_reader import model, outputs

# An equation, the operands' shapes, and the operator that does the work.
EQUATIONS = (
    ("ij,jk->ik", (3, 4), (4, 5), "nn.dense"),
    ("ij,kj", (3, 4), (5, 4), "nn.dense"),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5), "nn.batch_matmul"),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5), "nn.batch_matmul"),
    ("bhqk,bkhd->bqhd", (2, 3, 4, 5), (2, 5, 3, 6), "nn.batch_matmul"),
    ("...ij,...jk->...ik", (2, 7, 3, 4), (2, 7, 4, 5), "nn.batch_matmul"),
    ("...ij,jk", (2, 7, 3, 4), (4, 5), "nn.dense"),
    ("...ij,...jk->...ik", (7, 3, 4), (2, 1, 4, 5), "nn.dense"),
    ("bi,bi->b", (3, 4), (3, 4), "nn.batch_matmul"),
    ("i,i->", (6,), (6,), "nn.dense"),
    ("i,j->ij", (3,), (4,), "multiply"),
    ("i,j->ji", (3,), (4,), "multiply"),
    ("bci,bc->bci", (2, 3, 4), (2, 3), "multiply"),
    ("abc,cd->db", (2, 3, 4), (4, 5), "nn.dense"),
    ("ij,jk->i", (3, 4), (4, 5), "nn.dense"),
    ("ij,jk->ik", (3, 1), (4, 5), "multiply"),
    ("abcd,efcd->abef", (2, 3, 4, 5), (6, 2, 4, 5), "nn.dense"),
    (" i j , j k -> k i ", (3, 4), (4, 5), "nn.dense"),
    (",ij->ji", (), (3, 4), "multiply"),
)


def einsum(path, equation, *shapes, kind=TensorProto.FLOAT):
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    made = model([node], {name: (kind, shape) for name, shape in zip(names, shapes, strict=True)}, {"y": (kind, None)})
    onnx.save(made, path)
    rng = np.random.default_rng(3)
    draw = rng.standard_normal if kind == TensorProto.FLOAT else lambda shape: rng.integers(-5, 6, shape)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return {name: np.asarray(draw(shape)).astype(dtype) for name, shape in zip(names, shapes, strict=True)}


def held(path, equation, values):
    (got,) = outputs(path, values)
    wanted = np.einsum(equation.replace(" ", ""), *values.values())
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("equation", "one", "two", "operator"), EQUATIONS, ids=[each[0] for each in EQUATIONS])
def test_two_operands(tmp_path, equation, one, two, operator):
    values = einsum(tmp_path / "e.onnx", equation, one, two)
    counts = frontends.load(tmp_path / "e.onnx").info()["operator_counts"]
    assert counts[operator] == 1 and "einsum" not in counts
    held(tmp_path / "e.onnx", equation, values)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 4)]), ("abc->b", [(2, 3, 4)]), ("ij->", [(3, 4)]), ("ba", [(3, 4)]),
        ("...i->i...", [(2, 3, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]), ("bi,bj,bk->bijk", [(2, 3), (2, 4), (2, 5)]),
        ("ab,ac,bc->abc", [(2, 3), (2, 4), (3, 4)]),
    ],
)  # fmt: skip
def test_one_operand_and_three(tmp_path, equation, shapes):
    values = einsum(tmp_path / "e.onnx", equation, *shapes)
    assert "einsum" not in frontends.load(tmp_path / "e.onnx").info()["operator_counts"]
    held(tmp_path / "e.onnx", equation, values)


@pytest.mark.parametrize(
    ("equation", "shapes", "kind"),
    [("ii->i", [(4, 4)], TensorProto.FLOAT), ("ij,jk->ik", [(3, 4), (4, 5)], TensorProto.INT32)],
)
def test_the_rest_is_tvms(tmp_path, equation, shapes, kind):
    values = einsum(tmp_path / "e.onnx", equation, *shapes, kind=kind)
    assert frontends.load(tmp_path / "e.onnx").info()["operator_counts"]["einsum"] == 1
    held(tmp_path / "e.onnx", equation, values)


@pytest.mark.parametrize(
    ("equation", "shapes", "why"),
    [
        ("ij,jk->ik", [(3, 4)], "has 2 operands, it has 1"),
        ("ijk->i", [(3, 4)], "does not fit operands of 2 dimensions"),
    ],
)
def test_what_does_not_fit(tmp_path, equation, shapes, why):
    einsum(tmp_path / "e.onnx", equation, *shapes)
    with pytest.raises(ValueError, match=why):
        frontends.load(tmp_path / "e.onnx")
