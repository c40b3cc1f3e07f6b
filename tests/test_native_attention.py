# SPDX-License-Identifier: Apache-2.0
"""Transformers on kernels of the backend native: attention as one step, dense layers of one tensor as one, dense
layers with packed weights. Each gives TVM's answer, and the steps that a region takes are counted.
"""

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import run_python
from dnnl_grid import WholeGrid
from dnnl_steps import Steps
from native_placement import prefer
from tvm import relay

nn = relay.nn


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("attention", "product", "norm")


@pytest.fixture
def grid():
    return WholeGrid()


def split(value, batch, tokens, heads, size):
    """[batch * tokens, heads * size] as [batch, heads, tokens, size]."""
    return relay.transpose(relay.reshape(value, (batch, tokens, heads, size)), (0, 2, 1, 3))


def join(value, batch, tokens, heads, size):
    return relay.reshape(relay.transpose(value, (0, 2, 1, 3)), (batch * tokens, heads * size))


def attention(grid, batch, heads, queries, keys, size, value_size=None, scores_of=None, low=-1.0, high=1.0):
    """Attention on three new inputs [batch * tokens, heads * size]."""
    value_size = value_size or size
    count = batch * heads
    q = split(grid.input(batch * queries, heads * size, low=low, high=high), batch, queries, heads, size)
    k = split(grid.input(batch * keys, heads * size, low=low, high=high), batch, keys, heads, size)
    v = split(grid.input(batch * keys, heads * value_size), batch, keys, heads, value_size)
    scores = nn.batch_matmul(
        relay.reshape(q, (count, queries, size)), relay.reshape(k, (count, keys, size)), transpose_b=True
    )
    scores = relay.reshape(scores, (batch, heads, queries, keys))
    scores = scores_of(scores) if scores_of else scores / relay.const(math.sqrt(size), "float32")
    weights = relay.reshape(nn.softmax(scores, axis=-1), (count, queries, keys))
    v = relay.reshape(v, (count, keys, value_size))
    mixed = nn.batch_matmul(weights, v, transpose_b=False)
    mixed = relay.reshape(mixed, (batch, heads, queries, value_size))
    return join(mixed, batch, queries, heads, value_size)


def test_sizes(grid, partition):
    cases = [
        # batch, heads, queries, keys, size, value size
        (1, 1, 1, 1, 16, 16),
        (1, 8, 64, 64, 32, 32),
        (2, 3, 50, 50, 16, 16),
        (3, 2, 7, 7, 48, 48),
        (1, 2, 5, 19, 64, 64),
        (1, 3, 33, 2, 80, 80),
        (2, 1, 9, 31, 20, 32),
        (1, 2, 16, 257, 7, 16),
        (1, 4, 197, 197, 64, 64),
        (2, 5, 1, 40, 32, 96),
        (1, 1, 100, 17, 33, 112),
        (2, 2, 6, 9, 8, 5),
    ]
    for case in cases:
        grid.add(f"{case}", attention(grid, *case))
    steps = Steps(grid, partition)
    assert steps == {"attention": len(cases)}, "nothing is copied beside"


def test_masks_and_scales(grid, partition):
    batch, heads, queries, keys, size = 2, 3, 10, 21, 16
    shape = (batch, heads, queries, keys)
    masks = [
        (keys,), (queries, keys), (1, keys), (queries, 1), (heads, queries, keys), (heads, 1, keys),
        (batch, 1, 1, keys), (1, heads, queries, keys), shape, (batch, 1, queries, keys), (1, 1, 1, 1),
    ]  # fmt: skip
    for mask in masks:
        added = grid.input(*mask, low=-4.0, high=4.0)
        one = attention(grid, *shape[:2], queries, keys, size, scores_of=lambda s, m=added: s * relay.const(0.3) + m)
        grid.add(f"mask {mask}", one)
    causal = np.where(np.tril(np.ones((queries, keys))) > 0, 0.0, -np.inf).astype("float32")
    hard = grid.array((batch, 1, 1, keys)).copy()
    hard[..., 15:] = -1e9
    for name, mask in {"causal": causal, "padding": hard}.items():
        constant = relay.const(mask)
        one = attention(grid, *shape[:2], queries, keys, size, scores_of=lambda s, m=constant: m + s)
        grid.add(name, one)
    number = relay.const
    scales = {
        "none": lambda s: s,
        "negative": lambda s: s * number(-0.7),
        "twice": lambda s: number(0.5) * (s / number(3.0)),
        "zero": lambda s: s * number(0.0),
        "before the heads are apart": lambda s: relay.reshape(
            relay.reshape(s, (batch * heads, queries, keys)) / number(2.0), shape
        ),
    }
    for name, scale in scales.items():
        grid.add(f"scale {name}", attention(grid, *shape[:2], queries, keys, size, scores_of=scale, low=-3, high=3))
    # Scores of some hundred, of which all but one become nothing.
    grid.add("large", attention(grid, 1, 2, 12, 40, 32, low=-8.0, high=8.0), rtol=1e-3, atol=1e-4)
    steps = Steps(grid, partition)
    assert steps == {"attention": len(masks) + 2 + len(scales) + 1}


def test_other_ways_to_write_it(grid, partition):
    # As front ends write a product of four dimensions: both sides reshaped, the right one transposed.
    q, k, v = (split(grid.input(24, 48), 2, 12, 3, 16) for _ in range(3))

    def product(a, b, rows, inner, columns):
        a = relay.reshape(a, (6, rows, inner))
        b = relay.transpose(relay.reshape(b, (6, inner, columns)), (0, 2, 1))
        return relay.reshape(nn.batch_matmul(a, b), (2, 3, rows, columns))

    scores = product(q, relay.transpose(k, (0, 1, 3, 2)), 12, 16, 12)
    weights = nn.softmax(scores / relay.const(4.0), axis=3)
    grid.add("transposed twice", join(product(weights, v, 12, 12, 16), 2, 12, 3, 16))

    # Heads that are there already, results that stay apart, sides that the product itself transposes.
    scores = nn.batch_matmul(grid.input(4, 9, 16), grid.input(4, 11, 16), transpose_b=True)
    mixed = nn.batch_matmul(nn.softmax(scores), grid.input(4, 11, 32), transpose_b=False)
    grid.add("heads apart", mixed)
    scores = nn.batch_matmul(
        relay.transpose(grid.input(4, 9, 16), (0, 2, 1)),
        relay.transpose(grid.input(4, 11, 16), (0, 2, 1)),
        transpose_a=True,
        transpose_b=False,
    )
    values = relay.transpose(grid.input(4, 11, 32), (0, 2, 1))
    grid.add("transposed by the product", nn.batch_matmul(nn.softmax(scores), values, transpose_b=True))

    steps = Steps(grid, partition)
    assert steps == {"attention": 3}


def test_queries_across_the_grain(grid, partition):
    """Columns that do not lie one after the other are copied first."""
    q = grid.input(2, 16, 9)  # transposed: a query's numbers are 9 apart
    scores = nn.batch_matmul(q, grid.input(2, 16, 11), transpose_a=True, transpose_b=False)
    grid.add("left as it is", nn.batch_matmul(nn.softmax(scores), grid.input(2, 11, 16), transpose_b=False))
    values = grid.input(2, 16, 11)
    scores = nn.batch_matmul(grid.input(2, 9, 16), grid.input(2, 11, 16), transpose_b=True)
    grid.add("values as they are", nn.batch_matmul(nn.softmax(scores), values, transpose_b=True))
    turned = relay.transpose(grid.input(2, 16, 9), (0, 2, 1))
    scores = nn.batch_matmul(turned, grid.input(2, 11, 16), transpose_b=True)
    grid.add("copied", nn.batch_matmul(nn.softmax(scores), grid.input(2, 11, 16), transpose_b=False))
    steps = Steps(grid, partition)
    assert steps["attention"] == 2 and steps["softmax"] == 1 and steps["reorder"] >= 1


def test_what_is_read_elsewhere_is_not_hidden(grid, partition):
    q, k, v = grid.input(2, 9, 16), grid.input(2, 11, 16), grid.input(2, 11, 16)
    scores = nn.batch_matmul(q, k, transpose_b=True)
    weights = nn.softmax(scores)
    mixed = nn.batch_matmul(weights, v, transpose_b=False)
    grid.add("scores", scores)
    grid.add("mixed", mixed)
    q2, k2 = grid.input(2, 9, 16), grid.input(2, 11, 16)
    weights = nn.softmax(nn.batch_matmul(q2, k2, transpose_b=True))
    grid.add("weights twice", nn.batch_matmul(weights, v, transpose_b=False) + relay.sum(weights))
    # Keys, values and the result may be.
    k3 = nn.relu(k)
    mixed = nn.batch_matmul(nn.softmax(nn.batch_matmul(q, k3, transpose_b=True)), k3, transpose_b=False)
    grid.add("keys and values in one", mixed)
    grid.add("keys", k3)
    grid.add("result", nn.relu(mixed))
    steps = Steps(grid, partition)
    assert steps["softmax"] == 2 and steps["attention"] == 1


def dense(grid, x, inner, units, bias=True):
    y = nn.dense(x, grid.constant(units, inner, low=-0.3, high=0.3), units=units)
    return y + grid.constant(units) if bias else y


def test_dense_layers_on_few_rows(grid, partition):
    """The kernel of our own: rows, columns and depths that fill its tiles and panels and that do not."""
    shapes = [
        (16, 16, 16), (17, 7, 48), (64, 256, 256), (64, 300, 96), (50, 513, 32), (191, 64, 80), (192, 1, 16),
        (23, 1024, 144), (33, 255, 112),
    ]  # fmt: skip
    for rows, inner, columns in shapes:
        for bias in (True, False):
            x = grid.input(rows, inner)
            y = dense(grid, x, inner, columns, bias)
            grid.add(f"{rows}x{inner}x{columns} {bias}", y, atol=1e-4)
            y = nn.relu(dense(grid, x, inner, columns, bias))
            grid.add(f"{rows}x{inner}x{columns} {bias} relu", y, atol=1e-4)
    # One at a time, or its two layers would become one step.
    residual = grid.input(40, 600)
    y = dense(grid, residual, 600, 600, bias=False)
    grid.add("residual", y + residual, atol=1e-4)
    steps = Steps(grid, partition)
    assert set(steps) == {"product"}


def test_what_is_done_to_a_dense_layer(grid, partition):
    kinds = {
        "relu": nn.relu,
        "leaky": lambda y: nn.leaky_relu(y, 0.1),
        "scaled": lambda y: y * relay.const(0.5),
        "shifted": lambda y: y + relay.const(1.5),
        "scaled, relu, shifted": lambda y: nn.relu(y * relay.const(-2.0)) + relay.const(0.25),
        "residual": lambda y: y + grid.input(24, 32),
        "relu, residual": lambda y: nn.relu(y) + grid.input(24, 32),
        "residual, relu, residual": lambda y: nn.relu(y + grid.input(24, 32)) + grid.input(24, 32),
    }
    for name, kind in kinds.items():
        for inner in (24, 600):
            grid.add(f"{name} {inner}", kind(dense(grid, grid.input(24, inner), inner, 32)), atol=1e-4)
    others = {"gelu": lambda y: y * relay.sigmoid(y), "row": lambda y: y * grid.input(1, 32)}
    for name, kind in others.items():
        grid.add(name, kind(dense(grid, grid.input(24, 24), 24, 32)), atol=1e-4)
    steps = Steps(grid, partition)
    # TVM scales the weights by the row, which then are no constants.
    assert (steps["product"], steps["matmul"]) == (2 * len(kinds) + len(others) - 1, 1)


def test_a_residual_that_is_needed_again(grid, partition):
    """The kernel does not write over what it adds."""
    x = grid.input(32, 48)
    a = nn.relu(x)
    b = dense(grid, a, 48, 48) + a
    c = dense(grid, b, 48, 48) + b
    grid.add("a", a)
    grid.add("b", b)
    grid.add("c", c + b, atol=1e-4)
    steps = Steps(grid, partition)
    assert steps["product"] == 2


def test_layers_of_one_tensor_are_one_step(grid, partition):
    x = nn.relu(grid.input(2, 24, 40))  # what is made in the region, so that the reshapes are in it, too

    def layer(units, bias=True):
        flat = relay.reshape(x, (48, 40))
        return relay.reshape(dense(grid, flat, 40, units, bias), (2, 24, units))

    for units in (32, 48, 16):
        grid.add(f"{units}", layer(units))
    grid.add("without bias", layer(32, bias=False))
    grid.add("another without bias", layer(64, bias=False))
    # A width that is no multiple of anything.
    y = grid.input(48, 40)
    grid.add("odd", dense(grid, y, 40, 20))
    grid.add("even", dense(grid, y, 40, 32))
    steps = Steps(grid, partition)
    assert (steps["product"], steps["matmul"]) == (4, 0)


@pytest.mark.parametrize("name", ["bert_full", "bert_base"])
def test_encoders(partition, name):
    """Two layers of the networks, of a number of tokens that is no multiple of anything."""
    from collage.workloads import bert

    make = {
        "bert_full": lambda: bert.bert_full(layers=2, tokens=50),
        "bert_base": lambda: bert.bert_base(layers=1, tokens=33, units=192, heads=4),
    }[name]
    module, params = make()
    function = relay.build_module.bind_params_by_name(module["main"], params)
    (variable,) = function.params
    grid = WholeGrid()
    grid.inputs[variable] = grid.array([int(dim) for dim in variable.type_annotation.shape])
    grid.add(name, function.body, rtol=1e-3, atol=1e-4)
    steps = Steps(grid, partition)
    layers = {"bert_full": 2, "bert_base": 1}[name]
    assert steps["attention"] == layers
    if name == "bert_full":
        assert steps == {"attention": 2, "product": 8, "norm": 4}, "nothing is moved in between"
    else:
        assert steps["product"] == 4 and not steps["matmul"]


NARROW = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native_attention as tests
from dnnl_grid import WholeGrid
from native_placement import prefer

place = prefer("attention", "product", "norm")
for test in (tests.test_sizes, tests.test_masks_and_scales, tests.test_other_ways_to_write_it):
    test(WholeGrid(), place)
grid = WholeGrid()
x = grid.input(48, 40)
for units in (32, 48):
    grid.add(str(units), tests.nn.relu(tests.dense(grid, x, 40, units)))
print(json.dumps(tests.Steps(grid, place)))
"""


@pytest.mark.parametrize("isa", ["AVX2", "SSE41"])
def test_on_other_processors(collage_library, isa):
    """Both have a variant for each width of vectors."""
    steps = run_python(NARROW, Path(__file__).parent, ONEDNN_MAX_CPU_ISA=isa, timeout=600)
    assert steps == {"product": 2}


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_other_numbers_of_threads(collage_library, threads):
    """Heads, queries, rows and columns are divided among more threads than there are of some of them."""
    program = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native_attention as tests
from dnnl_grid import WholeGrid
from native_placement import prefer

place = prefer("attention", "product", "norm")

tests.test_sizes(WholeGrid(), place)
tests.test_a_residual_that_is_needed_again(WholeGrid(), place)
tests.test_layers_of_one_tensor_are_one_step(WholeGrid(), place)
print(json.dumps("done"))
"""
    assert run_python(program, Path(__file__).parent, COLLAGE_NUM_THREADS=threads, timeout=600) == "done"
