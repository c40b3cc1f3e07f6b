# SPDX-License-Identifier: Apache-2.0
"""A library of one function, rows_softmax, as a backend; run as a program it is tried out."""

import collage
import numpy as np
import tvm
from tvm import relay
from tvm.relay.dataflow_pattern import is_op, wildcard

LIBRARY = """
#include <math.h>
static void rows_softmax(const float* x, const float* mask, float* y, int rows, int columns) {
  for (int i = 0; i < rows; ++i, x += columns, y += columns) {
    float most = -INFINITY, sum = 0;
    for (int j = 0; j < columns; ++j) most = fmaxf(most, y[j] = mask ? x[j] + *mask++ : x[j]);
    for (int j = 0; j < columns; ++j) sum += y[j] = expf(y[j] - most);
    for (int j = 0; j < columns; ++j) y[j] /= sum;
  }
}
"""


def is_over_rows(softmax):
    """The library goes over rows of float32."""
    kind = softmax.checked_type
    return kind.dtype == "float32" and int(softmax.attrs.axis) in (-1, len(kind.shape) - 1)


def is_masked_in_full(softmax):
    """There is a number in the mask for each one that is masked; the library does not broadcast."""
    x, mask = softmax.args[0].args
    return is_over_rows(softmax) and tvm.ir.structural_equal(x.checked_type, mask.checked_type)


PATTERNS = [
    ("masked", is_op("nn.softmax")(is_op("add")(wildcard(), wildcard())), is_masked_in_full),
    ("plain", is_op("nn.softmax")(wildcard()), is_over_rows),
]


@collage.backend(name="rows", patterns=PATTERNS, prelude=LIBRARY)
def rows(region):
    """The C code of a region: a call for each part."""
    calls = []
    for part in region.parts:
        (x, *others), y = part.arguments, part.results[0]
        mask, columns = others[0] if part.name == "masked" else "0", y.shape[-1]
        calls.append(f"rows_softmax({x}, {mask}, {y}, {y.size // columns}, {columns});")
    return "\n".join(calls)


def attention(queries=16, keys=64, width=32):
    """softmax(q k^T + mask) v for one head."""
    q = relay.var("q", shape=(queries, width))
    k, v = relay.var("k", shape=(keys, width)), relay.var("v", shape=(width, keys))
    scores = relay.nn.dense(q, k) + relay.var("mask", shape=(queries, keys))
    return tvm.IRModule.from_expr(relay.nn.dense(relay.nn.softmax(scores), v))


if __name__ == "__main__":
    from tvm.contrib import graph_executor

    print(collage.partition(attention(), backends=["tvm", "rows"], store="costs.jsonl"))  # by what was measured

    rng = np.random.default_rng(0)
    shapes = {"q": (16, 32), "k": (64, 32), "v": (32, 64), "mask": (16, 64)}
    values = {name: rng.standard_normal(shape, dtype="float32") for name, shape in shapes.items()}
    results = []
    for only in ("rows", "tvm"):  # all that the backend takes, and nothing
        library = collage.compile(attention(), backends=["tvm", "rows"], only=only)
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        executor.run(**values)
        results.append(executor.get_output(0).numpy())
    difference = np.abs(results[0] - results[1]).max()
    print(f"largest difference to plain TVM: {difference:.1e}")
    assert difference < 1e-5
