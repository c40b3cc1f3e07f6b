# SPDX-License-Identifier: Apache-2.0
"""Writes model.onnx, an input x.npz, and the output wanted.npz that ONNX's own reference computes."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

rng = np.random.default_rng(0)


def weight(name, *shape):
    return numpy_helper.from_array((rng.standard_normal(shape) / 8).astype("float32"), name)


same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "w1", "b1"], ["conv1"], **same),
        helper.make_node("Relu", ["conv1"], ["relu1"]),
        helper.make_node("Conv", ["relu1", "w2", "b2"], ["conv2"], **same),
        helper.make_node("Add", ["conv2", "relu1"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["relu2"]),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["classes"]),
    ],
    "small",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 32, 32])],
    [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 10])],
    [
        weight("w1", 16, 3, 3, 3),
        weight("b1", 16),
        weight("w2", 16, 16, 3, 3),
        weight("b2", 16),
        weight("w3", 10, 16),
        weight("b3", 10),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, "model.onnx")

image = rng.standard_normal((1, 3, 32, 32), dtype="float32")
np.savez("x.npz", image=image)
np.savez("wanted.npz", *ReferenceEvaluator(model).run(None, {"image": image}))
