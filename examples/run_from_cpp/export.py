# SPDX-License-Identifier: Apache-2.0
"""Compiles a small network for TVM and oneDNN into model.so; prints its output for an input of ones."""

import collage
import numpy as np
import tvm
from tvm import relay

rng = np.random.default_rng(0)
x = relay.var("x", shape=(1, 64))
hidden = relay.nn.relu(relay.nn.dense(x, relay.const(rng.standard_normal((128, 64), dtype="float32") / 8)))
logits = relay.nn.dense(hidden, relay.const(rng.standard_normal((10, 128), dtype="float32") / 8))
network = tvm.IRModule.from_expr(relay.nn.softmax(logits))

# Without searching: all that oneDNN takes is oneDNN's.
collage.compile(network, backends=["tvm", "dnnl"], only="dnnl", out="model.so")

model = relay.create_executor("graph", mod=relay.transform.InferType()(network)).evaluate()
print(" ".join(f"{value:.6f}" for value in model(np.ones((1, 64), "float32")).numpy().ravel()))
