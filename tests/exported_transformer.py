# SPDX-License-Identifier: Apache-2.0
"""A vision transformer as PyTorch's exporter writes it into an ONNX file: shapes are taken apart, computed and put
together again in the graph, and layer normalisations, GELU and attention stand there as arithmetic.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Graph:
    def __init__(self, seed):
        self.nodes, self.weights = [], []
        self.rng = np.random.default_rng(seed)

    def __call__(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, array):
        return self("Constant", value=numpy_helper.from_array(np.asarray(array)))

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        values = (self.rng.standard_normal(shape) * 0.05).astype("float32")
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def size(self, x, axis):
        """One number of a shape, as a tensor of one dimension."""
        one = self("Gather", self("Shape", x), self.constant(np.int64(axis)), axis=0)
        return self("Unsqueeze", one, self.constant(np.int64([0])))

    def reshape(self, x, *parts):
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def number(self, n):
        return self.constant(np.int64([n]))

    def norm(self, x, width):
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        square = self("Pow", centred, self.constant(np.float32(2)))
        spread = self("Sqrt", self("Add", self("ReduceMean", square, axes=[-1]), self.constant(np.float32(1e-6))))
        return self("Add", self("Mul", self("Div", centred, spread), self.weight(width)), self.weight(width))

    def dense(self, x, width, out):
        return self("Add", self("MatMul", x, self.weight(width, out)), self.weight(out))


def _layer(g, x, width, heads):
    normed = g.norm(x, width)
    batch, tokens = g.size(normed, 0), g.size(normed, 1)

    def split(y):
        return g("Transpose", g.reshape(y, batch, tokens, g.number(heads), g.number(width // heads)), perm=[0, 2, 1, 3])

    query, key, value = (split(g.dense(normed, width, width)) for _ in range(3))
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 1, 3, 2]))
    scores = g("Div", scores, g("Sqrt", g("Cast", g.size(query, 3), to=TensorProto.FLOAT)))
    mixed = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    x = g("Add", x, g.dense(g.reshape(mixed, batch, tokens, g.number(width)), width, width))
    hidden = g.dense(g.norm(x, width), width, 4 * width)
    gelu = g("Add", g("Erf", g("Div", hidden, g.constant(np.float32(2**0.5)))), g.constant(np.float32(1)))
    gelu = g("Mul", g("Mul", hidden, gelu), g.constant(np.float32(0.5)))
    return g("Add", x, g.dense(gelu, 4 * width, width))


def save(path, layers=12, width=64, heads=4, pixels=32, patch=8):
    """Write the model, which takes ``x``, 1x3xPIXELSxPIXELS."""
    g = _Graph(layers)
    x = g("Conv", "x", g.weight(width, 3, patch, patch), g.weight(width), kernel_shape=[patch] * 2, strides=[patch] * 2)
    x = g("Transpose", g.reshape(x, g.size(x, 0), g.size(x, 1), g.number(-1)), perm=[0, 2, 1])
    shape = g("Concat", g.size(x, 0), g.number(-1), g.number(-1), axis=0)
    asked = g("Equal", shape, g.number(-1))
    ones = g("ConstantOfShape", g("Shape", shape), value=numpy_helper.from_array(np.int64([1])))
    token = g("Expand", g.weight(1, 1, width), g("Where", asked, ones, shape))
    tokens = (pixels // patch) ** 2 + 1
    x = g("Add", g("Concat", token, x, axis=1), g.weight(1, tokens, width))
    for _ in range(layers):
        x = _layer(g, x, width, heads)
    head = g("Gather", g.norm(x, width), g.constant(np.int64(0)), axis=1)
    g.nodes.append(helper.make_node("Gemm", [head, g.weight(10, width), g.weight(10)], ["y"], transB=1))
    graph = helper.make_graph(
        g.nodes,
        "transformer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, pixels, pixels])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        g.weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path
