# SPDX-License-Identifier: Apache-2.0
"""Attention in many forms, with masks of all kinds, and heads that share keys: each is one step of the backend native
and gives TVM's answer, also where numbers are not finite.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import run_python
from dnnl_grid import WholeGrid
from dnnl_steps import Steps
from native_placement import prefer
from test_native_attention import attention, join, split
from tvm import relay

nn = relay.nn
LOWEST = float(np.finfo("float32").min)


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("attention", "product", "norm")


@pytest.fixture
def grid():
    return WholeGrid()


def given(grid, array):
    """A new input of the module with these values."""
    array = np.asarray(array)
    variable = relay.var(f"x{len(grid.inputs)}", shape=array.shape, dtype=str(array.dtype))
    grid.inputs[variable] = array
    return variable


def number(value):
    return relay.const(np.float32(value))


def only_attention(grid, partition):
    """Each case is one step of the kernel, and nothing else is done."""
    assert Steps(grid, partition) == {"attention": len(grid.names)}


def below_diagonal(queries, keys, sees=None):
    """Which keys each query sees: 0 to i + sees - 1."""
    sees = keys - queries + 1 if sees is None else sees
    return np.arange(keys)[None, :] < np.arange(queries)[:, None] + sees


def test_products_of_other_forms(grid, partition):
    q, k, v = grid.input(2, 9, 16), grid.input(2, 11, 16), grid.input(2, 11, 24)
    scores = nn.batch_matmul(q, relay.transpose(k, (0, 2, 1)), transpose_b=False)
    grid.add("keys turned", nn.batch_matmul(nn.softmax(scores), v, transpose_b=False))
    # One head, of matrices: nn.matmul and nn.dense.
    q, k, v = grid.input(9, 16), grid.input(11, 16), grid.input(11, 24)
    mixed = nn.matmul(nn.softmax(nn.matmul(q, k, transpose_b=True)), v)
    grid.add("matrices", mixed)
    turned = nn.matmul(relay.transpose(grid.input(9, 16)), relay.transpose(grid.input(11, 16)), transpose_a=True)
    grid.add("matrices, turned", nn.matmul(nn.softmax(turned), grid.input(24, 11), transpose_b=True))
    scores = nn.dense(grid.input(9, 16), grid.input(11, 16))
    grid.add("dense", nn.dense(nn.softmax(scores), grid.input(24, 11)))
    # All queries meet the keys of one sequence.
    scores = nn.batch_matmul(grid.input(3, 9, 16), grid.input(1, 11, 16))
    grid.add("one batch", nn.batch_matmul(nn.softmax(scores), grid.input(1, 11, 24), transpose_b=False))
    only_attention(grid, partition)


def test_scales_on_either_side(grid, partition):
    def scaled(left, right, behind=None):
        q, k, v = (split(grid.input(18, 48, low=-2.0, high=2.0), 2, 9, 3, 16) for _ in range(3))
        q, k, v = (relay.reshape(x, (6, 9, 16)) for x in (left(q), right(k), v))
        scores = nn.batch_matmul(q, k)
        mixed = nn.batch_matmul(nn.softmax(behind(scores) if behind else scores), v, transpose_b=False)
        return join(relay.reshape(mixed, (2, 3, 9, 16)), 2, 9, 3, 16)

    def same(x):
        return x

    root = number(math.sqrt(0.25))
    grid.add("query", scaled(lambda x: x * number(0.25), same))
    grid.add("key", scaled(same, lambda x: x / number(4.0)))
    grid.add("both", scaled(lambda x: x * root, lambda x: root * x))
    grid.add("all", scaled(lambda x: x * root, lambda x: x / number(1.5), lambda x: x * number(-0.3)))
    q = relay.reshape(split(grid.input(18, 48) * number(0.3), 2, 9, 3, 16), (6, 9, 16))
    mixed = nn.batch_matmul(
        nn.softmax(nn.batch_matmul(q, grid.input(6, 7, 16))), grid.input(6, 7, 8), transpose_b=False
    )
    grid.add("before the heads", mixed)
    only_attention(grid, partition)


def test_softmax_in_parts(grid, partition):
    q, k, v = (grid.input(6, 9, 16, low=-3.0, high=3.0) for _ in range(3))
    scores = nn.batch_matmul(q, k)
    power = relay.exp(scores - relay.max(scores, axis=-1, keepdims=True))
    grid.add("parts", nn.batch_matmul(power / relay.sum(power, axis=-1, keepdims=True), v, transpose_b=False))
    # Not about the greatest: what overflows overflows.
    q, k, v = (grid.input(6, 9, 16) for _ in range(3))
    power = relay.exp(nn.batch_matmul(q, k))
    grid.add("as it is", nn.batch_matmul(power / relay.sum(power, axis=-1, keepdims=True), v, transpose_b=False))
    steps = Steps(grid, partition)
    assert steps["attention"] == 1 and steps["product"] == 2


def test_choosing_masks(grid, partition):
    batch, heads, queries, keys = 2, 3, 10, 21
    shape = (batch, heads, queries, keys)
    shapes = [
        (keys,), (queries, keys), (queries, 1), (heads, 1, keys), (batch, 1, 1, keys), (1, heads, queries, keys), shape,
        (batch, 1, queries, keys), (1, 1, 1, 1),
    ]  # fmt: skip
    random = np.random.RandomState(1)

    def case(name, scores_of):
        grid.add(name, attention(grid, *shape, 16, scores_of=lambda s: scores_of(s * number(0.3)), low=-2.0, high=2.0))

    for mask in shapes:
        truth = given(grid, random.rand(*mask) < 0.7)
        case(f"kept {mask}", lambda s, m=truth: relay.where(m, s, number(-1e9)))
        case(f"replaced {mask}", lambda s, m=truth: relay.where(m, number(LOWEST), s))
        constant = relay.const(random.rand(*mask) < 0.7)
        case(f"constant {mask}", lambda s, m=constant: relay.where(m, s, number(-math.inf)))
    truth = given(grid, random.rand(*shapes[4]) < 0.5)
    for fill in (-math.inf, -1.5, 0.0, 2.0):
        case(f"fill {fill}", lambda s, m=truth, f=fill: relay.where(m, s, number(f)))
    whole = relay.const(np.full(shape, -1e4, "float32"))
    case("a tensor of one number", lambda s: relay.where(truth, s, whole))
    grid.add(
        "spread before",
        attention(
            grid, *shape, 16,
            scores_of=lambda s: relay.where(relay.broadcast_to(truth, (batch, 1, queries, keys)), s, number(-1e4)),
        ),
    )  # fmt: skip
    only_attention(grid, partition)


def test_two_masks(grid, partition):
    batch, heads, queries, keys = 2, 3, 12, 21
    shape = (batch, heads, queries, keys)
    random = np.random.RandomState(2)
    padding = np.where(np.arange(keys)[None, None, None, :] < np.array([21, 9])[:, None, None, None], 0.0, -1e4)
    padding = padding.astype("float32")
    added, bias = given(grid, padding), grid.input(1, heads, queries, keys, low=-4.0, high=4.0)
    kept = given(grid, random.rand(batch, 1, queries, keys) < 0.8)
    seen = relay.const(below_diagonal(queries, keys))
    causal = relay.const(np.where(below_diagonal(queries, keys), 0.0, -1e9).astype("float32"))
    kinds = {
        "added, added": lambda s: s + bias + added,
        "added, from the left": lambda s: added + (bias + s),
        "kept, added": lambda s: relay.where(kept, s, number(-1e4)) + added,
        "added, kept": lambda s: relay.where(kept, s + bias, number(-1e4)),
        "kept, kept": lambda s: relay.where(seen, relay.where(kept, s, number(-2.0)), number(-1e4)),
        "causal, padding": lambda s: relay.where(seen, s, number(LOWEST)) + added,
        "causal, added": lambda s: s + causal + bias,
        "bias, causal": lambda s: s + bias + causal,
        "bias, causal kept": lambda s: relay.where(seen, s + bias, number(-1e4)),
        "padding, scores": lambda s: relay.where(seen, s + added, number(-math.inf)),
    }
    for name, kind in kinds.items():
        scores_of = lambda s, f=kind: f(s / number(4.0))  # noqa: E731
        grid.add(name, attention(grid, *shape, 16, scores_of=scores_of, low=-2.0, high=2.0))
    assert Steps(grid, partition) == {"attention": len(kinds)}


def test_three_masks_are_too_many(grid, partition):
    """The first one is somebody else's."""
    kept = given(grid, np.random.RandomState(3).rand(10, 21) < 0.8)
    bias, more = grid.input(10, 21), grid.input(21)
    one = attention(grid, 1, 2, 10, 21, 16, scores_of=lambda s: relay.where(kept, s + bias + more, number(-1.0)))
    grid.add("three", one, leaves=["where", "add", "add", "reshape"])
    assert Steps(grid, partition)["attention"] == 0


def causal_cases():
    """(queries, keys, sees) of triangles."""
    return [
        (1, 1, 1),
        (9, 9, 1),
        (40, 40, 1),
        (7, 30, 24),
        (30, 30, 5),
        (20, 9, 1),
        (20, 9, -10),
        (33, 600, 568),
        (6, 6, 3),
    ]


@pytest.mark.parametrize(
    "beyond", [-math.inf, -1e4, *(pytest.param(each, marks=pytest.mark.long) for each in (-1e9, LOWEST))]
)
def test_causal(grid, partition, beyond):
    fill = number(beyond)
    for queries, keys, sees in causal_cases():
        seen = below_diagonal(queries, keys, sees)
        added = relay.const(np.where(seen, 0.0, beyond).astype("float32"))
        truth = relay.const(seen.reshape(1, 1, queries, keys))
        hidden = relay.const(~seen)
        for name, scores_of in {
            "added": lambda s, m=added: s * number(0.25) + m,
            "kept": lambda s, m=truth: relay.where(m, s * number(0.25), fill),
            "replaced": lambda s, m=hidden: relay.where(m, fill, s * number(0.25)),
        }.items():
            grid.add(f"{name} {queries} {keys} {sees}", attention(grid, 2, 2, queries, keys, 16, scores_of=scores_of))
    only_attention(grid, partition)


def test_what_is_beyond_the_triangle_may_be_seen(grid, partition):
    """Scores so low that those beyond the triangle are not the lowest; keys and values that are no numbers."""
    size, tokens = 8, 20
    seen = below_diagonal(tokens, tokens)
    random = np.random.RandomState(4)

    def head(rows, change=None):
        x = random.uniform(-1, 1, (1, rows, size)).astype("float32")
        if change:
            change(x)
        return x

    def case(name, q, k, v, scores_of):
        scores = nn.batch_matmul(given(grid, q), given(grid, k))
        grid.add(name, nn.batch_matmul(nn.softmax(scores_of(scores)), given(grid, v), transpose_b=False))

    def at(row, value):
        def change(x):
            x[0, row, 3] = value

        return change

    forms = {}
    for beyond in (-math.inf, -1e4, LOWEST):
        added = relay.const(np.where(seen, 0.0, beyond).astype("float32")[None])
        forms[f"added {beyond}"] = lambda s, m=added: s + m
        forms[f"kept {beyond}"] = lambda s, b=beyond: relay.where(relay.const(seen[None]), s, number(b))
    for name, form in forms.items():
        # Scores of tens of thousands: what each query sees is less than what it does not.
        q, k = np.full((1, tokens, size), 50, "float32"), np.full((1, tokens, size), -50, "float32")
        k[:, tokens // 2 :] = 50
        case(f"low {name}", q, k, head(tokens), form)
        for value in (math.nan, math.inf, -math.inf):
            case(f"value {value} {name}", head(tokens), head(tokens), head(tokens, at(15, value)), form)
            case(f"key {value} {name}", head(tokens), head(tokens, at(15, value)), head(tokens), form)
            case(f"query {value} {name}", head(tokens, at(5, value)), head(tokens), head(tokens), form)
        # Sequences that are padded on the left: the first queries see nothing but padding.
        padding = np.zeros((1, 1, tokens), "float32")
        padding[..., :7] = max(float(name.split()[1]), LOWEST)
        mask = given(grid, padding)
        case(f"padded {name}", head(tokens), head(tokens), head(tokens), lambda s, f=form, m=mask: f(s) + m)
        unknown = given(grid, np.where(np.arange(tokens) == 17, math.nan, 0).astype("float32"))
        case(f"mask {name}", head(tokens), head(tokens), head(tokens), lambda s, f=form, m=unknown: f(s) + m)
    only_attention(grid, partition)


def test_a_mask_that_does_nothing(grid, partition):
    zeros = relay.const(np.zeros((9, 9), "float32"))
    grid.add("zeros", attention(grid, 1, 2, 9, 9, 16, scores_of=lambda s: (s + zeros) * number(0.5)))
    only_attention(grid, partition)


def repeated(value, how, heads):
    """[batch, groups, tokens, size] with each group's as often as there are heads in it."""
    batch, groups, tokens, size = (int(dim) for dim in relay.transform.InferTypeLocal(value).shape)
    if how == "expand":
        value = relay.broadcast_to(relay.expand_dims(value, 2), (batch, groups, heads, tokens, size))
        return relay.reshape(value, (batch, groups * heads, tokens, size))
    return relay.repeat(value, heads, axis=1) if how == "repeat" else relay.tile(value, (1, heads, 1, 1))


@pytest.mark.parametrize("how", ["expand", "repeat", "tile"])
def test_heads_that_share_keys(grid, partition, how):
    """Nothing is copied: the heads of a group read the same keys and values."""
    for batch, groups, heads, tokens, size in ((1, 2, 3, 9, 16), (2, 2, 4, 7, 8), (3, 1, 4, 5, 16), (2, 3, 1, 6, 24)):
        count = batch * groups * heads
        q = split(grid.input(batch * tokens, groups * heads * size), batch, tokens, groups * heads, size)
        k, v = (split(grid.input(batch * tokens, groups * size), batch, tokens, groups, size) for _ in range(2))
        q, k, v = (
            relay.reshape(x, (count, tokens, size)) for x in (q, repeated(k, how, heads), repeated(v, how, heads))
        )
        causal = relay.const(np.where(below_diagonal(tokens, tokens), 0, -math.inf).astype("float32"))
        weights = nn.softmax(relay.reshape(nn.batch_matmul(q, k), (batch, groups * heads, tokens, tokens)) + causal)
        mixed = nn.batch_matmul(relay.reshape(weights, (count, tokens, tokens)), v, transpose_b=False)
        mixed = relay.reshape(mixed, (batch, groups * heads, tokens, size))
        grid.add(f"{batch} {groups} {heads}", join(mixed, batch, tokens, groups * heads, size))
    only_attention(grid, partition)


LEVEL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native_attention_forms as tests
from dnnl_grid import WholeGrid
from native_placement import prefer

place = prefer("attention", "product", "norm")
tests.test_choosing_masks(WholeGrid(), place)
tests.test_two_masks(WholeGrid(), place)
tests.test_causal(WholeGrid(), place, -1e4)
tests.test_what_is_beyond_the_triangle_may_be_seen(WholeGrid(), place)
tests.test_heads_that_share_keys(WholeGrid(), place, "expand")
print(json.dumps("done"))
"""


@pytest.mark.long
@pytest.mark.parametrize("level", ["plain", "avx2"])
@pytest.mark.parametrize("threads", [1, 3])
def test_at_other_levels(collage_library, level, threads):
    told = run_python(LEVEL, Path(__file__).parent, COLLAGE_MAX_CPU_ISA=level, COLLAGE_NUM_THREADS=threads, timeout=600)
    assert told == "done"
