# SPDX-License-Identifier: Apache-2.0
"""Places a perceptron on TVM and oneDNN by a pass, and runs it beside plain TVM."""

import collage
import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay import testing
from tvm.relay.build_module import bind_params_by_name

module, params = testing.mlp.get_workload(batch_size=4)
module["main"] = bind_params_by_name(module["main"], params)

passes = tvm.transform.Sequential(
    [
        relay.transform.DynamicToStatic(),
        collage.transform.Normalise(),
        collage.transform.CollagePartition(backends=["tvm", "dnnl"], pin=["nn.softmax=tvm"]),
    ]
)
with tvm.transform.PassContext(opt_level=3, config={"collage.store": "costs.jsonl", "collage.samples": 5}):
    placed = passes(module)

for function in placed.functions.values():
    if function.attrs and "Compiler" in function.attrs:
        print(f"{function.attrs['global_symbol']} is for {function.attrs['Compiler']}")


def run(module, data):
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm")
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("data", data)
    executor.run()
    return executor.get_output(0).numpy()


data = np.random.default_rng(0).standard_normal((4, 1, 28, 28), dtype="float32")
difference = np.abs(run(placed, data) - run(module, data)).max()
print(f"largest difference to plain TVM: {difference:.1e}")
assert difference < 1e-5
