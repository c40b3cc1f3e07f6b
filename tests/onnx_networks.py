# SPDX-License-Identifier: Apache-2.0
"""ONNX networks with branches, loops and open dimensions, and what another engine answers."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
INT32, UINT8 = TensorProto.INT32, TensorProto.UINT8
node = helper.make_node


def values(**shapes):
    """Declared values: {name: shape}, or {name: (type, shape)}."""
    return [
        helper.make_tensor_value_info(name, *(one if isinstance(one, tuple) else (FLOAT, one)))
        for name, one in shapes.items()
    ]


def weights(**arrays):
    """Weights by name: an array, or the shape of one that is drawn, so scaled that products keep their size."""
    rng = np.random.default_rng(7)
    made = []
    for name, one in arrays.items():
        if isinstance(one, tuple):
            one = (rng.standard_normal(one) / np.sqrt(np.prod(one[1:]))).astype("float32")
        made.append(numpy_helper.from_array(np.asarray(one), name))
    return made


def graph(name, nodes, inputs, outputs, inside=()):
    return helper.make_graph(nodes, name, inputs, outputs, list(inside))


def write(path, nodes, inputs, outputs, inside=(), opset=17):
    made = helper.make_model(
        graph("network", nodes, inputs, outputs, inside), opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    )
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def answers(path, given):
    """ONNX Runtime's outputs; those of onnx's reference evaluator where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return onnx.reference.ReferenceEvaluator(str(path)).run(None, given)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, given)


def hold(got, wanted, steps=0):
    """Outputs must be those, their shapes and types too; bytes may be so many ``steps`` off."""
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        near = steps if steps and one.dtype == "uint8" else 1e-5
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=near)


def ran(model, given):
    """The outputs of a loaded model."""
    model.run(**given)
    return [np.array(model.get_output(i).numpy()) for i in range(model.get_num_outputs())]


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")
