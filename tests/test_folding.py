# SPDX-License-Identifier: Apache-2.0
"""Constant folding in Go: beside TVM's FoldConstant on many constant expressions, in Normalise, and while a model is
read.
"""

import importlib
import re
import zlib

import collage
import exported_transformer
import numpy as np
import pytest
import tvm
from collage import export, folding, frontends, library, target
from tvm import relay
from tvm.relay.backend import te_compiler
from tvm.relay.frontend import common

FLOATS = ["float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint32", "uint64"]
# What is broadcast to what. A test takes two of them; at night, all.
SHAPES = [((), ()), ((3,), (3,)), ((2, 1, 4), (3, 1)), ((0, 3), (1, 3)), ((1,), ()), ((4, 5, 6), (5, 1)), ((17,), (1,))]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.long)])
def shapes(request):
    if request.param == "all":
        return SHAPES
    first = zlib.crc32(request.node.nodeid.encode())
    return [SHAPES[(first + i) % len(SHAPES)] for i in (0, 2)]


@pytest.fixture
def kernels(monkeypatch):
    """The operators that TVM compiles a kernel for, as it does."""
    compiled = []
    select = te_compiler.select_implementation

    def counting(op, *args, **kwargs):
        compiled.append(op.name)
        return select(op, *args, **kwargs)

    monkeypatch.setattr(te_compiler, "select_implementation", counting)
    return compiled


def items(rng, dtype, shape, least=None):
    """Random items of a type, its odd ones among them."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        odd = [np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).max, np.finfo(dtype).tiny / 4, 0.5, -2.5]
        values = (rng.standard_normal(shape) * 10).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        odd = [limits.min, limits.max, 0, 1]
        values = rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    values = np.array(values, dtype)
    where = rng.random(shape) < 0.3
    values[where] = rng.choice(np.array(odd, dtype), int(where.sum()))
    return values if least is None else np.maximum(values, np.array(least, dtype))


def const(array):
    return relay.Constant(tvm.nd.array(np.ascontiguousarray(array)))


def in_go(expr):
    """What Go makes of an expression, and whether it leaves something to TVM."""
    library.load()
    folded, left = tvm.get_global_func("collage.fold_expressions")()(expr)
    return folded, bool(int(left))


def values_of(expr):
    if isinstance(expr, relay.Tuple):
        return [value for field in expr.fields for value in values_of(field)]
    assert isinstance(expr, relay.Constant), expr
    return [expr.data.numpy()]


def ulps(a, b):
    """How many floats lie between two arrays at most; NaN is NaN, and 0 is not -0."""
    bits = {4: np.int32, 8: np.int64}[a.dtype.itemsize]
    both = np.isnan(a) & np.isnan(b)
    ordered = [np.where(x.view(bits) < 0, np.iinfo(bits).min - x.view(bits), x.view(bits)) for x in (a, b)]
    zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    apart = np.abs(ordered[0].astype(object) - ordered[1].astype(object)) + zeros
    return max(np.where(both, 0, apart).flatten(), default=0)


def compare(expr, most=0):
    """Go evaluates all of the expression, and gives what TVM does: to the bit, or ``most`` floats beside it."""
    expected = values_of(relay.transform.FoldConstantExpr(expr, tvm.IRModule()))
    folded, left = in_go(expr)
    assert not left, expr
    found = values_of(folded)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, expr
        if ours.dtype.kind == "f":
            assert ulps(ours, theirs) <= most, f"{expr}\n{ours}\n{theirs}"
        else:
            np.testing.assert_array_equal(ours, theirs, str(expr))


# One operator on constants of all shapes that broadcast to each other.


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "floor_divide", "floor_mod", "maximum", "minimum"])
def test_float_arithmetic(rng, shapes, op, dtype):
    for a, b in shapes:
        compare(getattr(relay, op)(const(items(rng, dtype, a)), const(items(rng, dtype, b))))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_division(rng, shapes, dtype):
    """TVM multiplies by the inverse where the divisor is one number; we divide."""
    for a, b in shapes:
        compare(relay.divide(const(items(rng, dtype, a)), const(items(rng, dtype, b))), most=0 if b else 1)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_integer_arithmetic(rng, shapes, op, dtype):
    for a, b in shapes:
        compare(getattr(relay, op)(const(items(rng, dtype, a)), const(items(rng, dtype, b))))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["divide", "floor_divide", "mod", "floor_mod"])
def test_integer_division(rng, shapes, op, dtype):
    divisors = np.array([1, 2, 3, 7, 100] + ([-2, -3, -100] if dtype[0] == "i" else []), dtype)
    for a, b in shapes:
        x, y = items(rng, dtype, a), np.array(rng.choice(divisors, b))
        expr = getattr(relay, op)(const(x), const(y))
        if y.size == 1 or not op.startswith("floor"):
            compare(expr)
        else:  # TVM's compiler refuses what it makes of these itself
            function = {"floor_divide": np.floor_divide, "floor_mod": np.mod}[op]
            np.testing.assert_array_equal(values_of(in_go(expr)[0])[0], function(x, y))


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparison(rng, shapes, op, dtype):
    for a, b in shapes:
        x, y = items(rng, dtype, a), items(rng, dtype, b)
        compare(getattr(relay, op)(const(x), const(y)))


@pytest.mark.parametrize("op", ["logical_and", "logical_or", "logical_xor"])
def test_truth_values(rng, shapes, op):
    for a, b in shapes:
        compare(getattr(relay, op)(const(items(rng, "bool", a)), const(items(rng, "bool", b))))
    compare(relay.logical_not(const(items(rng, "bool", (5, 2)))))
    compare(relay.all(const(items(rng, "bool", (5, 2))), axis=1))
    compare(relay.any(const(items(rng, "bool", (5, 2))), axis=0, keepdims=True))


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
def test_bits(rng, op, dtype):
    x, y = items(rng, dtype, (4, 3)), items(rng, dtype, (3,))
    compare(getattr(relay, op)(const(x), const(y % 8 if "shift" in op else y)))
    compare(relay.bitwise_not(const(x)))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op", ["sqrt", "rsqrt", "negative", "abs", "floor", "ceil", "trunc", "round", "sign", "isnan", "isfinite", "isinf"]
)
def test_exact_functions(rng, op, dtype):
    # One number is written into TVM's kernel, where its compiler evaluates it: -0 for the negative of 0.
    shapes = [(1,), (64,), (3, 5), (0, 2)] if op == "negative" else [(), (1,), (64,), (3, 5), (0, 2)]
    for shape in shapes:
        compare(getattr(relay, op)(const(items(rng, dtype, shape))))


@pytest.mark.parametrize("op", ["exp", "log", "erf", "sigmoid", "sin", "cos"])
def test_rounded_functions(rng, op):
    """Go rounds the exact value; TVM's libraries are off by up to two floats."""
    values = items(rng, "float32", (5000,))
    compare(getattr(relay, op)(const(values)), most=2)


def test_powers(rng):
    base = items(rng, "float32", (2000,))
    for exponent in (2.0, 0.5, -1.0, 3.0, 1.7):
        compare(relay.power(const(base), const(np.float32(exponent))), most=2)
    compare(relay.power(const(np.abs(base)), const(items(rng, "float32", (2000,)))), most=2)


@pytest.mark.parametrize("to", ["float32", "float64", "int8", "int64", "uint8", "uint32", "bool"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64", "bool"])
def test_casts_of_integers(rng, dtype, to):
    compare(relay.cast(const(items(rng, dtype, (40,))), to))


@pytest.mark.parametrize("to", [*FLOATS, "int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_casts_of_floats(rng, dtype, to):
    values = items(rng, dtype, (40,))
    if to not in ("bool", *FLOATS):
        values = np.nan_to_num(values, nan=1.5, posinf=3.9, neginf=0.1).clip(0 if to[0] == "u" else -100, 100)
    compare(relay.cast(const(values), to))


def test_casts_out_of_range_are_left_to_tvm():
    _, left = in_go(relay.cast(const(np.float32([1e20, np.nan])), "int32"))
    assert left


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
def test_limits_and_choices(rng, dtype):
    x = items(rng, dtype, (4, 6))
    compare(relay.clip(const(x), -3.0, 6.0))
    compare(relay.nn.relu(const(x)))
    compare(relay.where(const(items(rng, "bool", (4, 1))), const(x), const(items(rng, dtype, (6,)))))
    compare(relay.where(const(items(rng, "int32", (6,))), const(x), const(x * 0)))


# Operators that move items, whatever they are.


def moves(x, y, at):
    """Expressions of a 2x3x4 tensor, a 2x3x4 one, and indices."""
    yield from (relay.reshape(x, shape) for shape in [(-1,), (6, 4), (0, -1), (0, 0, 2, -1), (-2, 1), (-3, 4)])
    yield from (relay.transpose(x, axes) for axes in [None, (0, 2, 1), (-1, 0, 1)])
    yield relay.squeeze(relay.expand_dims(x, 1, 2), [1])
    yield relay.squeeze(relay.expand_dims(x, -1))
    yield relay.broadcast_to(x, (5, 2, 3, 4))
    yield relay.broadcast_to(relay.expand_dims(x, 1), (2, 7, 3, 4))
    yield from (relay.concatenate([x, y], axis) for axis in (0, 1, -1))
    yield from (relay.stack([x, y, x], axis) for axis in (0, 2, -1))
    yield relay.split(x, 3, axis=1).astuple()
    yield relay.split(x, (1, 3), axis=-1).astuple()
    yield relay.split(x, 2, axis=2)[1]
    yield relay.strided_slice(x, [0, 1], [2, 3])
    yield relay.strided_slice(x, [0, 0, -1], [2, 3, -5], [1, 2, -2])
    yield relay.strided_slice(x, [1], [1000], axes=[2])
    yield relay.strided_slice(x, [0, 1, 1], [-1, 2, 2], slice_mode="size")
    yield relay.strided_slice(x, [1, 0, 0], [1, 3, 4])
    yield from (relay.tile(x, reps) for reps in [(2,), (3, 1, 2), (2, 1, 1, 1)])
    yield from (relay.repeat(x, 3, axis) for axis in (0, 1, -1))
    yield relay.reverse(x, 1)
    yield relay.copy(x)
    yield relay.zeros_like(x)
    yield relay.ones_like(x)
    yield from (relay.take(x, at, axis=axis, mode=mode) for axis in (0, -1, None) for mode in ("clip", "wrap"))
    yield relay.gather(x, 1, const(np.array([[[0, 1, 2, 0]], [[2, 2, 1, 1]]], "int64")))
    whole, rows = np.array([[1, 0], [2, 0], [3, 1]], "int64"), np.array([[0, 1, 1], [2, 2, 0]], "int32")
    yield relay.scatter_nd(x, const(whole), relay.take(relay.reshape(y, (-1,)), const(np.array([5, 11]))), "update")
    first = relay.reshape(relay.strided_slice(y, [0], [1], axes=[0]), (3, 4))
    yield relay.scatter_nd(x, const(rows), first, "update")


@pytest.mark.parametrize(
    "dtype", ["float32", *(pytest.param(dtype, marks=pytest.mark.long) for dtype in ("float64", "uint8", "bool"))]
)
def test_moves(rng, dtype):
    at = np.array([[0, 1, -1], [1, 9, -7]], "int64")
    x, y = (const(items(rng, dtype, (2, 3, 4))) for _ in range(2))
    for expr in moves(x, y, const(at)):
        compare(expr)


def test_scatters_that_are_left_to_tvm(rng):
    """Sums, places that are said twice, and what lies beside the tensor."""
    x, row = const(items(rng, "float32", (3, 4))), const(items(rng, "float32", (2, 4)))
    for places, mode in (([[0, 2]], "add"), ([[1, 1]], "update"), ([[0, -1]], "update"), ([[0, 3]], "update")):
        folded, left = in_go(relay.scatter_nd(x, const(np.array(places, "int64")), row, mode))
        assert left and isinstance(folded, relay.Call), (places, mode)


def test_moves_of_half_floats(rng):
    x = const(rng.standard_normal((2, 3, 4)).astype("float16"))
    for expr in (relay.transpose(x), relay.strided_slice(x, [0, 1], [2, 3]), relay.concatenate([x, x], 1)):
        compare_bytes(expr)


@pytest.mark.parametrize(
    ("shape", "source", "wanted"),
    [
        ((32, 8, 3, 3), "OIHW", "OIHW4i16o"),
        ((2, 8, 3, 3, 4, 16), "OIHW4i16o", "OIHW"),
        ((8, 1, 5, 5), "OIHW", "OIHW1i8o"),
        ((1, 6, 2, 2), "NCHW", "NHWC"),
        ((48, 10), "NC", "NC16n"),
        ((1, 3, 2, 2, 4), "NCHW4c", "NHWC4c"),
    ],
)
def test_layouts(rng, shape, source, wanted):
    compare(relay.layout_transform(const(items(rng, "float32", shape)), source, wanted))


def compare_bytes(expr):
    folded, left = in_go(expr)
    assert not left
    expected = values_of(relay.transform.FoldConstantExpr(expr, tvm.IRModule()))
    assert [v.tobytes() for v in values_of(folded)] == [v.tobytes() for v in expected]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_of_shapes(rng, dtype):
    x = const(items(rng, dtype, (3, 4, 2)))
    for op in (relay.sum, relay.prod, relay.max, relay.min):
        for axis in (None, 0, (0, 2), -1):
            compare(op(x, axis=axis))
        compare(op(x, axis=1, keepdims=True, exclude=True))
    for bounds in ((0, 7, 1), (5, -4, -3), (-3, 4, 2)):
        compare(relay.arange(*(relay.const(n, dtype) for n in bounds), dtype=dtype))
    compare(relay.full(relay.const(3, dtype), (2, 0, 3)))
    compare(relay.full(relay.const(300, dtype), (2, 3), "uint8"))


# What FoldConstant leaves, and errors.


def test_chains_as_front_ends_write_them(rng):
    """Shape arithmetic: take a shape apart, compute, put it together again."""
    shape = const(np.array([2, 197, 768], "int64"))
    parts = [relay.take(shape, relay.const(i, "int64"), axis=0) for i in range(3)]
    heads = relay.divide(parts[2], relay.const(64, "int64"))
    joined = relay.concatenate(
        [relay.expand_dims(p, 0) for p in (*parts[:2], heads, relay.cast(relay.const(64), "int64"))], axis=0
    )
    compare(relay.where(relay.less(joined, relay.const(0, "int64")), relay.zeros_like(joined), joined))


@pytest.mark.parametrize("op", ["divide", "floor_divide", "mod", "floor_mod"])
def test_division_by_zero_is_an_error(op):
    """TVM's own kernel ends the process by SIGFPE."""
    x = relay.var("x", shape=(2,), dtype="int32")
    expr = relay.add(x, getattr(relay, op)(const(np.int32([1, 2])), const(np.int32([1, 0]))))
    with pytest.raises(ValueError, match=f"folding constants: %.* {op}.*an integer is divided by zero"):
        in_go(expr)
    with pytest.raises(ValueError, match=r"normalising the module: function main: .*an integer is divided by zero"):
        collage.transform.Normalise()(tvm.IRModule.from_expr(relay.Function([x], expr)))


def test_what_is_left_is_tvms(kernels):
    """A function that Go does not know is evaluated by TVM, once, and what follows from it by Go again."""
    folder = folding.Folder()
    x = relay.var("x", shape=(2,), dtype="float32")
    first = folder.fold_constant(relay.add(x, relay.tanh(relay.const(0.5))))
    assert kernels == ["tanh"]
    np.testing.assert_allclose(first.args[1].data.numpy(), np.tanh(0.5), rtol=1e-6)
    second = folder.fold_constant(relay.multiply(first, relay.exp(first.args[1])))
    assert kernels == ["tanh"]
    assert isinstance(second.args[1], relay.Constant)
    assert folder.fold_constant(relay.qnn.op.dequantize(const(np.int8([1])), relay.const(1.0), relay.const(0))).op.name
    folder.close()
    assert kernels == ["tanh"]


def test_values_are_inferred(kernels):
    folder = folding.Folder()
    assert folder.infer_value(relay.add(relay.const(2), relay.const(3)), {}).numpy() == 5
    assert kernels == []
    x = relay.var("x", shape=(), dtype="int32")
    assert folder.infer_value(relay.add(x, relay.const(3)), {"x": tvm.nd.array(np.int32(4))}).numpy() == 7
    assert kernels == ["add"]
    folder.close()


@pytest.mark.parametrize("front_end", ["onnx", "pytorch"])
def test_functions_of_the_front_ends_come_back(front_end):
    places = [common, importlib.import_module(f"tvm.relay.frontend.{front_end}")]
    before = [dict(vars(place)) for place in places]
    with pytest.raises(KeyError), folding.here(front_end):
        for place, was in zip(places, before, strict=True):
            assert place.fold_constant is not was["fold_constant"]
        raise KeyError
    assert [dict(vars(place)) for place in places] == before


# Whole networks.


@pytest.mark.parametrize("name", ["efficientnet_b0", "resnext50_32x4d", "unet"])
def test_normalise_compiles_nothing(name, kernels):
    model = frontends.load(f"workload:{name}")
    collage.transform.Normalise()(model.module)
    assert kernels == []


def test_normalise_folds_as_tvm_does(rng):
    x = relay.var("x", shape=(1, 8, 6, 6), dtype="float32")
    body = x
    for _ in range(3):
        weight = const(rng.standard_normal((8, 8, 3, 3)).astype("float32"))
        body = relay.nn.conv2d(body, weight, padding=(1, 1), channels=8, kernel_size=(3, 3))
        gamma, beta, mean = (const(rng.standard_normal(8).astype("float32")) for _ in range(3))
        body = relay.nn.batch_norm(body, gamma, beta, mean, const(rng.random(8).astype("float32") + 0.1))[0]
        body = relay.nn.relu(body)
    module = tvm.IRModule.from_expr(relay.Function([x], body))
    ours = collage.transform.Normalise()(module)
    with tvm.transform.PassContext(opt_level=3):
        theirs = tvm.transform.Sequential(
            [
                relay.transform.InferType(),
                relay.transform.SimplifyInference(),
                relay.transform.FoldConstant(),
                relay.transform.CanonicalizeOps(),
                relay.transform.FoldScaleAxis(),
                relay.transform.FoldConstant(),
                relay.transform.InferType(),
            ]
        )(module)
    constants = {}
    for which, folded in (("ours", ours), ("theirs", theirs)):
        found = constants.setdefault(which, [])

        def visit(expr, found=found):
            if isinstance(expr, relay.Constant):
                found.append(expr.data.numpy())

        relay.analysis.post_order_visit(folded["main"], visit)
    assert len(constants["ours"]) == len(constants["theirs"]) == 6
    for a, b in zip(constants["ours"], constants["theirs"], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_reading_a_transformer_compiles_nothing(tmp_path, kernels):
    path = exported_transformer.save(tmp_path / "model.onnx", layers=1)
    model = frontends.load(path)
    assert kernels == []

    import onnx

    module, _ = relay.frontend.from_onnx(onnx.load(path), shape={"x": [1, 3, 32, 32]}, freeze_params=True)
    assert len(kernels) > 20, "TVM alone compiles for each of them"
    tvm.ir.assert_structural_equal(relay.transform.InferType()(module), model.module)


def test_builds_are_tvms_own(rng, kernels):
    """Weights are laid out anew in Go, and what is built is the same to the letter, but for addresses in comments."""
    x = relay.var("x", shape=(1, 16, 10, 10), dtype="float32")
    body = x
    for groups in (1, 16):
        weight = const(rng.standard_normal((16, 16 // groups, 3, 3)).astype("float32"))
        body = relay.nn.conv2d(body, weight, padding=(1, 1), channels=16, kernel_size=(3, 3), groups=groups)
        body = relay.nn.relu(relay.nn.bias_add(body, const(rng.standard_normal(16).astype("float32"))))
    body = relay.nn.dense(relay.nn.batch_flatten(body), const(rng.standard_normal((32, 1600)).astype("float32")))
    module = collage.transform.Normalise()(tvm.IRModule.from_expr(relay.Function([x], body)))
    kernels.clear()
    ours = export.build(module)
    compiled = len(kernels)
    kernels.clear()
    with target.build_context():
        theirs = relay.build(module, target=tvm.target.Target(target.default_target()))
    assert len(kernels) >= compiled + 4, "three weights and the biases"
    assert ours.get_graph_json() == theirs.get_graph_json()
    assert ours.get_params().keys() == theirs.get_params().keys()
    for name, array in theirs.get_params().items():
        np.testing.assert_array_equal(ours.get_params()[name].numpy(), array.numpy())
    ours, theirs = (re.sub("0x[0-9a-f]+", "", factory.get_lib().get_source("ll")) for factory in (ours, theirs))
    assert ours == theirs


def test_equal_constants_are_one(rng):
    """Those of a kilobyte and more: the steps of a recurrent network that was unrolled have one set of weights."""
    array = items(rng, "float32", (16, 32))
    first, second = const(array), const(array.copy())
    others = const(array.view("int32")), const(array.reshape(32, 16)), const(array + 1)
    small = const(array[0]), const(array[0].copy())
    turned = relay.transpose(first), relay.transpose(second)
    folded, left = in_go(relay.Tuple([first, second, *others, *small, *turned, relay.transpose(others[1])]))
    assert not left
    fields = list(folded.fields)
    assert all(isinstance(one, relay.Constant) for one in fields)
    assert fields[0].same_as(first) and fields[1].same_as(first)
    assert fields[7].same_as(fields[8])
    # What differs in type, shape or content stays by itself, and so does what is small.
    alone = [fields[at] for at in (0, 2, 3, 4, 5, 6, 7, 9)]
    assert not [1 for i, one in enumerate(alone) for other in alone[:i] if one.same_as(other)]
    np.testing.assert_array_equal(fields[8].data.numpy(), array.T)
    np.testing.assert_array_equal(fields[1].data.numpy(), array)
