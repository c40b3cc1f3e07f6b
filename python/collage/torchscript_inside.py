# SPDX-License-Identifier: Apache-2.0
"""Values inside a TorchScript network, by PyTorch and by TVM.

In: a file, and the names of values in its graph as TVM's importer inlines it. Out: what makes them, PyTorch's arrays,
or an untyped module that gives them. PyTorch is needed, in the same process.
"""

from tvm import relay
from tvm.relay.frontend import pytorch as importer

from . import folding

# What makes tensors of no computation: weights, and numbers.
_GIVEN = {"prim::Constant", "prim::GetAttr", "prim::NumToTensor", "aten::ScalarImplicit"}

# What makes tensors that hold anything, until something is written into them.
_EMPTY = {"aten::empty", "aten::empty_like", "aten::new_empty"}

# Of what these make TVM's importer has the first alone, no places.
_WITHOUT_PLACES = {"aten::adaptive_max_pool1d", "aten::adaptive_max_pool2d", "aten::adaptive_max_pool3d",
                   "aten::max_pool1d_with_indices", "aten::max_pool2d_with_indices", "aten::max_pool3d_with_indices",
                   "aten::max", "aten::min"}  # fmt: skip


def made(path):
    """What the operators of the network make that are tensors, in its order: [(operator, value's name), ...]. What a
    branch or a loop makes comes of that as a whole.
    """
    return [(node.kind(), value.debugName()) for node in _inlined(path).graph.nodes() for value in _tensors(node)]


def _tensors(node):
    if node.kind() in _GIVEN | _EMPTY:
        return []
    outputs = list(node.outputs())
    if node.kind() in _WITHOUT_PLACES:
        outputs = outputs[:1]
    return [value for value in outputs if value.type().kind() == "TensorType"]


def _inlined(path):
    """The network, its graph as TVM's importer looks at it."""
    import torch

    script = torch.jit.load(str(path), map_location="cpu").eval()
    importer._run_jit_passes(script.graph)
    return script


def _giving(script, names, copies):
    """The network with other results: the values of these names, or ``copies`` of them as they are when they are made:
    operators in place change them later.
    """
    import torch

    graph = script.graph
    values = {value.debugName(): value for node in graph.nodes() for value in node.outputs()}
    results = []
    for name in names:
        value = values[name]
        if copies:
            nothing = graph.create("prim::Constant")
            nothing.output().setType(torch._C.NoneType.get())
            nothing.insertAfter(value.node())
            clone = graph.create("aten::clone", [value, nothing.output()])
            clone.insertAfter(nothing)
            value = clone.output()
        results.append(value)
    for _ in list(graph.outputs()):
        graph.eraseOutput(0)
    both = graph.create("prim::TupleConstruct", results)
    both.output().setType(torch._C.TupleType([value.type() for value in results]))
    graph.appendNode(both)
    graph.registerOutput(both.output())
    return script


def answers(path, values, names):
    """PyTorch's arrays for these values inside the network, of the arrays ``values`` as its inputs, in their order."""
    import numpy as np
    import torch

    script = _giving(_inlined(path), names, True)
    with torch.no_grad():
        return [one.numpy() for one in script(*(torch.from_numpy(np.ascontiguousarray(value)) for value in values))]


def module(path, inputs, names):
    """The untyped module that gives these values, as TVM reads them, and its weights; ``inputs`` are the network's, as
    [(name, (shape, dtype)), ...].
    """
    script = _giving(_inlined(path), names, False)
    floats = "float16" if any(dtype == "float16" for _, (_, dtype) in inputs) else "float32"
    with folding.here("pytorch"):
        read, values = relay.frontend.from_pytorch(script, inputs, default_dtype=floats)
    return read, {name: value.numpy() for name, value in values.items()}
