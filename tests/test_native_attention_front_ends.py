# SPDX-License-Identifier: Apache-2.0
"""Attention as front ends write it: ONNX files as exporters make them of BERT, GPT-2, T5, Llama and ViT, and what TVM
0.19's front end for PyTorch makes of scaled_dot_product_attention. In each, attention is one step of native.
"""

import math

import numpy as np
import onnx
import pytest
from dnnl_grid import WholeGrid
from dnnl_steps import Steps
from native_placement import prefer
from onnx import TensorProto, helper, numpy_helper
from test_native_attention_forms import below_diagonal, given
from tvm import relay

nn = relay.nn
LOWEST = float(np.finfo("float32").min)
BATCH, HEADS, TOKENS, SIZE = 2, 4, 10, 8
UNITS = HEADS * SIZE


@pytest.fixture(scope="module")
def partition(collage_library):
    return prefer("attention", "product")


@pytest.fixture
def grid():
    return WholeGrid()


class Exported:
    """An ONNX graph that is being written, operator by operator."""

    def __init__(self):
        self.nodes, self.constants, self.inputs, self.values = [], [], [], {}
        self.random = np.random.RandomState(5)

    def input(self, *shape, values=None):
        name = f"in{len(self.inputs)}"
        values = self.random.uniform(-1, 1, shape).astype("float32") if values is None else np.asarray(values)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, values.shape))
        self.values[name] = values
        return name

    def constant(self, values, dtype="float32"):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def __getattr__(self, operator):
        def call(*arguments, outputs=1, **attributes):
            names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
            self.nodes.append(helper.make_node(operator, list(arguments), names, **attributes))
            return names[0] if outputs == 1 else names

        return call

    def weight(self, *shape):
        return self.constant(self.random.uniform(-0.5, 0.5, shape))

    def linear(self, x, units_in, units_out):
        return self.Add(self.MatMul(x, self.weight(units_in, units_out)), self.weight(units_out))

    def heads(self, x, tokens=TOKENS, heads=HEADS, perm=(0, 2, 1, 3)):
        shape = self.constant([BATCH, tokens, heads, SIZE], "int64")
        return self.Transpose(self.Reshape(x, shape), perm=perm)

    def joined(self, x, tokens=TOKENS):
        shape = self.constant([BATCH, tokens, UNITS], "int64")
        return self.Reshape(self.Transpose(x, perm=(0, 2, 1, 3)), shape)

    def add_to(self, grid, name, result, opset=13):
        """The graph as a case of the grid, as TVM's front end reads it."""
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, [BATCH, TOKENS, UNITS])
        graph = helper.make_graph(self.nodes, name, self.inputs, [out], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        onnx.checker.check_model(model)
        module, params = relay.frontend.from_onnx(model, freeze_params=True)
        function = relay.build_module.bind_params_by_name(module["main"], params)
        for variable in function.params:
            grid.inputs[variable] = self.values[variable.name_hint]
        return function.body


def bert(e):
    """transformers' BertSelfAttention: the mask is -10000 where there is none of the sequence."""
    x = e.input(BATCH, TOKENS, UNITS)
    mask = np.where(np.arange(TOKENS) < np.array([[TOKENS], [6]]), 1, 0).astype("float32")
    mask = e.Unsqueeze(e.input(values=mask), e.constant([1, 2], "int64"))
    mask = e.Mul(e.Sub(e.constant(1.0), mask), e.constant(-10000.0))
    q, v = e.heads(e.linear(x, UNITS, UNITS)), e.heads(e.linear(x, UNITS, UNITS))
    k = e.heads(e.linear(x, UNITS, UNITS), perm=(0, 2, 3, 1))
    scores = e.Add(e.Div(e.MatMul(q, k), e.constant(math.sqrt(SIZE))), mask)
    return e.joined(e.MatMul(e.Softmax(scores, axis=-1), v))


def gpt2(e):
    """transformers' GPT2Attention: query, key and value are parts of one product, the causal mask chooses."""
    x = e.input(BATCH, TOKENS, UNITS)
    parts = e.Split(e.linear(x, UNITS, 3 * UNITS), e.constant([UNITS] * 3, "int64"), axis=2, outputs=3)
    q, v = e.heads(parts[0]), e.heads(parts[2])
    k = e.heads(parts[1], perm=(0, 2, 3, 1))
    scores = e.Div(e.MatMul(q, k), e.constant(math.sqrt(SIZE)))
    seen = e.constant(below_diagonal(TOKENS, TOKENS)[None, None], "bool")
    scores = e.Where(seen, scores, e.constant(LOWEST))
    padding = np.where(np.arange(TOKENS) < np.array([[[[TOKENS]]], [[[7]]]]), 0, LOWEST).astype("float32")
    scores = e.Add(scores, e.input(values=padding))
    return e.joined(e.MatMul(e.Softmax(scores, axis=-1), v))


def t5(e):
    """transformers' T5Attention: nothing is scaled, a bias by distance is added; keys are those of another sequence."""
    q = e.heads(e.MatMul(e.input(BATCH, TOKENS, UNITS), e.weight(UNITS, UNITS)))
    other = e.input(BATCH, 14, UNITS)
    k = e.heads(e.MatMul(other, e.weight(UNITS, UNITS)), 14, perm=(0, 2, 3, 1))
    v = e.heads(e.MatMul(other, e.weight(UNITS, UNITS)), 14)
    bias = e.Add(e.weight(1, HEADS, TOKENS, 14), e.input(BATCH, 1, 1, 14))
    return e.joined(e.MatMul(e.Softmax(e.Add(e.MatMul(q, k), bias), axis=-1), v))


def llama(e):
    """transformers' LlamaAttention: two heads read the same key and value, expanded; a causal mask is added."""
    x, groups = e.input(BATCH, TOKENS, UNITS), HEADS // 2
    q = e.heads(e.MatMul(x, e.weight(UNITS, UNITS)))

    def shared():
        y = e.heads(e.MatMul(x, e.weight(UNITS, groups * SIZE)), heads=groups)
        y = e.Expand(e.Unsqueeze(y, e.constant([2], "int64")), e.constant([BATCH, groups, 2, TOKENS, SIZE], "int64"))
        return e.Reshape(y, e.constant([BATCH, HEADS, TOKENS, SIZE], "int64"))

    k, v = e.Transpose(shared(), perm=(0, 1, 3, 2)), shared()
    scores = e.Div(e.MatMul(q, k), e.constant(math.sqrt(SIZE)))
    causal = np.where(below_diagonal(TOKENS, TOKENS), 0, LOWEST)[None, None]
    return e.joined(e.MatMul(e.Softmax(e.Add(scores, e.constant(causal)), axis=-1), v))


def sdpa(e):
    """What torch.onnx writes for scaled_dot_product_attention: the root of the scale on both sides."""
    x = e.input(BATCH, TOKENS, UNITS)
    q, k, v = (e.heads(e.linear(x, UNITS, UNITS)) for _ in range(3))
    root = e.constant(SIZE**-0.25)
    q, k = e.Mul(q, root), e.Mul(e.Transpose(k, perm=(0, 1, 3, 2)), root)
    mask = np.random.RandomState(6).rand(BATCH, 1, TOKENS, TOKENS) < 0.8
    mask = e.Where(e.input(values=mask), e.constant(0.0), e.constant(-math.inf))
    return e.joined(e.MatMul(e.Softmax(e.Add(e.MatMul(q, k), mask), axis=-1), v))


def vit(e):
    """torchvision's ViT of old: no mask, heads in one axis with the batch."""
    x = e.input(BATCH, TOKENS, UNITS)

    def flat():
        y = e.heads(e.linear(x, UNITS, UNITS))
        return e.Reshape(y, e.constant([BATCH * HEADS, TOKENS, SIZE], "int64"))

    q, k, v = e.Mul(flat(), e.constant(SIZE**-0.5)), e.Transpose(flat(), perm=(0, 2, 1)), flat()
    mixed = e.MatMul(e.Softmax(e.MatMul(q, k), axis=2), v)
    mixed = e.Reshape(mixed, e.constant([BATCH, HEADS, TOKENS, SIZE], "int64"))
    return e.joined(mixed)


def timm(e):
    """timm's Attention: query, key and value are gathered from one tensor, whose axes were turned."""
    x = e.linear(e.input(BATCH, TOKENS, UNITS), UNITS, 3 * UNITS)
    x = e.Reshape(x, e.constant([BATCH, TOKENS, 3, HEADS, SIZE], "int64"))
    x = e.Transpose(x, perm=(2, 0, 3, 1, 4))
    q, k, v = (e.Gather(x, e.constant(i, "int64"), axis=0) for i in range(3))
    q = e.Mul(q, e.constant(SIZE**-0.5))
    return e.joined(e.MatMul(e.Softmax(e.MatMul(q, e.Transpose(k, perm=(0, 1, 3, 2))), axis=-1), v))


@pytest.mark.parametrize(
    "network", [sdpa, llama, *(pytest.param(one, marks=pytest.mark.long) for one in (bert, gpt2, t5, vit, timm))]
)
def test_exported(grid, partition, network):
    exported = Exported()
    name = network.__name__
    body = exported.add_to(grid, name, network(exported))
    leaves = {"bert": [], "sdpa": ["where"]}.get(name, [])
    grid.add(name, body, leaves=leaves, atol=1e-4)
    steps = Steps(grid, partition)
    assert steps["attention"] == 1
    assert steps["softmax"] == steps["matmul"] == steps["reorder"] == 0, steps


@pytest.mark.parametrize(("name", "count"), [("gpt2_block", 1), ("t5_block", 2)])
def test_blocks(grid, partition, name, count):
    """One block of a network: nothing is copied around its attentions."""
    from collage.workloads import decoder

    module, params = getattr(decoder, name)(batch=2, tokens=12, units=64, heads=4)
    function = relay.build_module.bind_params_by_name(module["main"], params)
    for variable in function.params:
        shape = [int(dim) for dim in variable.type_annotation.shape]
        values = grid.array(shape)
        if shape[1:3] == [1, 1]:  # the second sequence is padded on the left
            values = np.where(np.arange(12) < np.array([0, 5]).reshape(2, 1, 1, 1), LOWEST, 0).astype("float32")
        grid.inputs[variable] = values
    grid.add(name, function.body, rtol=1e-3, atol=1e-4)
    grid.offloaded = lambda placed: grid.taken  # which of the others are whose does not matter here
    steps = Steps(grid, partition)
    assert steps["attention"] == count and steps["softmax"] == steps["matmul"] == 0, steps


def dot_product_attention(query, key, value, mask=None, causal=False):
    """As tvm.relay.frontend.pytorch writes it (TVM 0.19), of tensors of four dimensions."""
    shapes = [[int(d) for d in relay.transform.InferTypeLocal(x).shape] for x in (query, key, value)]
    (batch, _, queries, size), keys = shapes[0], shapes[1][2]
    bias = relay.full(relay.const(0.0), (queries, keys))
    if causal:
        seen = relay.full(relay.const(True), [queries, keys], dtype="bool")
        seen = relay.cast(relay.trilu(seen, relay.const(0), upper=False), "bool")
        bias = relay.where(relay.logical_not(seen), relay.cast(relay.const(-math.inf), "float32"), bias)
        bias = relay.cast(bias, "float32")
    if mask is not None:
        if relay.transform.InferTypeLocal(mask).dtype == "bool":
            bias = relay.where(relay.logical_not(mask), relay.cast(relay.const(-math.inf), "float32"), bias)
        else:
            bias = relay.add(bias, mask)
    weight = nn.batch_matmul(relay.reshape(query, [-3, -2]), relay.reshape(key, [-3, -2]))
    weight = relay.squeeze(relay.reshape(weight, [-4, batch, -1, -2]), axis=[])
    weight = relay.multiply(weight, relay.const(1 / math.sqrt(size), "float32"))
    weight = nn.dropout(nn.softmax(relay.add(weight, bias)), rate=0.0)
    found = [int(d) for d in relay.transform.InferTypeLocal(weight).shape]
    if len(found) == 3:
        weight = relay.broadcast_to(weight, (batch, *found))
    mixed = nn.batch_matmul(relay.reshape(weight, [-3, -2]), relay.reshape(value, [-3, -2]), transpose_b=False)
    return relay.reshape(mixed, [-4, batch, -1, -2])


@pytest.mark.parametrize("batch", [1, 2])
def test_scaled_dot_product_attention(grid, partition, batch):
    def tensors(queries, keys):
        lengths = (queries, keys, keys)
        return [relay.transpose(grid.input(batch, n, 3, 16), (0, 2, 1, 3)) for n in lengths]

    grid.add("plain", dot_product_attention(*tensors(9, 9)))
    grid.add("causal", dot_product_attention(*tensors(9, 9), causal=True))
    grid.add("causal, more keys", dot_product_attention(*tensors(9, 14), causal=True))
    added = grid.input(batch, 1, 9, 14, low=-3.0, high=3.0)
    grid.add("added", dot_product_attention(*tensors(9, 14), mask=added))
    kept = given(grid, np.random.RandomState(7).rand(9, 14) < 0.8)
    grid.add("kept", dot_product_attention(*tensors(9, 14), mask=kept), leaves=["where", "logical_not"])
    steps = Steps(grid, partition)
    assert steps["attention"] == 5 and steps["softmax"] == steps["matmul"] == 0
