# SPDX-License-Identifier: Apache-2.0
"""Shows that backends work: python tests/demanded.py NAME... gives each a dense layer, runs it, compares.

Tests of a backend are made from those that can be used, so one that stopped loading would only make a test
run shorter. This says instead which of the backends named does not run a layer here, and why; exit code 1.
"""

import sys

import numpy as np


def dense():
    """A dense layer with bias and ReLU: every backend takes its product at least."""
    import tvm
    from tvm import relay

    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(4, 24), dtype="float32")
    weight = relay.const(rng.standard_normal((16, 24)).astype("float32"))
    bias = relay.const(rng.standard_normal(16).astype("float32"))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weight), bias))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    value = rng.standard_normal((4, 24)).astype("float32")
    return module, value, np.maximum(value @ weight.data.numpy().T + bias.data.numpy(), 0)


def fault(backend):
    """What is wrong with a backend, as text; empty if it gives the right answer."""
    import placed
    import tvm
    from collage import export, library, region
    from tvm.contrib import graph_executor

    module, value, wanted = dense()
    try:
        split = placed.place(module, backend)
        if not placed.offloaded(split):
            return "takes no dense layer"
        compilers = {str(function.attrs["Compiler"]) for function in split.functions.values()
                     if function.attrs and "Compiler" in function.attrs}  # fmt: skip
        for compiler in compilers:
            plugins = region.plugins_for(compiler)
            if len(plugins) < 2:
                return f"its plug-in for {compiler} is not built"
            for plugin in plugins:
                library.load_plugin(plugin)
        (got,) = placed.run(graph_executor.GraphModule(export.build(split)["default"](tvm.cpu())), value)
    except Exception as error:  # whatever it is, it is what we were asked for
        return (str(error).strip() or repr(error)).splitlines()[-1]
    return "" if np.allclose(got, wanted, rtol=1e-4, atol=1e-5) else "a dense layer's result is wrong"


def main(names):
    """Print what does not work, a line a backend. Returns the exit code."""
    lost = {name: why for name in names if (why := fault(name))}
    for name, why in lost.items():
        print(f"{name}: {why}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
