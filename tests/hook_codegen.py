# SPDX-License-Identifier: Apache-2.0
"""Code for the regions that TVM's CollagePartition makes for targets that nobody generates code for.

``executed`` gives the regions of a partitioned module to a backend of our own, which writes plain C for the
few operators that the tests' pattern tables know; the module is built, linked, loaded and run as users do.
"""

import collage
import numpy as np
import tvm
from collage import export, library, region

NAME = "t_hook"


def _at(tensor, result):
    """The index into a tensor of two dimensions at most where the result's element is (i, j)."""
    rows, columns = (1, 1, *tensor.shape)[-2:]
    if tensor.size == result.size:
        return f"i * {columns} + j"
    assert rows in (1, result.shape[0]) and columns in (1, result.shape[1]), (tensor, result)
    return f"{'i' if rows > 1 else '0'} * {columns} + {'j' if columns > 1 else '0'}"


def _each(operator, expression):
    (y,) = operator.results
    read = [f"{x}[{_at(x, y)}]" for x in operator.arguments]
    rows, columns = y.shape
    return (
        f"for (int i = 0; i < {rows}; ++i) for (int j = 0; j < {columns}; ++j) "
        f"{y}[i * {columns} + j] = {expression.format(*read)};"
    )


def _dense(operator):
    (x, w), (y,) = operator.arguments, operator.results
    rows, columns, inner = *y.shape, x.shape[1]
    return (
        f"for (int i = 0; i < {rows}; ++i) for (int j = 0; j < {columns}; ++j) {{ float s = 0; "
        f"for (int k = 0; k < {inner}; ++k) s += {x}[i * {inner} + k] * {w}[j * {inner} + k]; "
        f"{y}[i * {columns} + j] = s; }}"
    )


def _concatenate(operator):
    """Rows below rows."""
    (y,) = operator.results
    assert int(operator.attrs.get("axis", 0)) == 0
    lines, at = [], 0
    for x in operator.arguments:
        lines.append(f"for (int i = 0; i < {x.size}; ++i) {y}[{at} + i] = {x}[i];")
        at += x.size
    assert at == y.size
    return "\n".join(lines)


CODE = {
    "nn.relu": lambda operator: _each(operator, "{0} > 0 ? {0} : 0"),
    "exp": lambda operator: _each(operator, "__builtin_expf({0})"),
    "add": lambda operator: _each(operator, "{0} + {1}"),
    "multiply": lambda operator: _each(operator, "{0} * {1}"),
    "nn.dense": _dense,
    "concatenate": _concatenate,
}


def emit(program):
    """The C of a region."""
    return "\n".join(CODE[operator.name](operator) for operator in program.operators)


def executed(module, path, values):
    """Outputs of a module that the pass has made, for values in the order of main's parameters."""
    from tvm.relay.dataflow_pattern import is_op, wildcard

    collage.register_backend(NAME, emit=emit, patterns=[("relu", is_op("nn.relu")(wildcard()))], override=True)
    given = tvm.IRModule(dict(module.functions.items()))
    for var, function in module.functions.items():
        if function.attrs and "Compiler" in function.attrs:
            # TVM's form lacks Inline: its hooks take outlined functions, generators take those at a call.
            attributes = {"Compiler": tvm.runtime.String(NAME), "Inline": tvm.tir.IntImm("int32", 1)}
            given[var] = function.with_attr(attributes)
    plugins = region.plugins_for("")
    for plugin in plugins:
        library.load_plugin(plugin)
    export.link(export.build(given), path, plugins)
    executor = region.load_executor(path)
    for index, value in enumerate(values):
        executor.set_input(index, np.asarray(value))
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
