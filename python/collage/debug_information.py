# SPDX-License-Identifier: Apache-2.0
"""TVM's debug information, where LLVM refuses it.

TVM 0.19 describes the variables of lowered functions to debuggers in a way that LLVM 22 refuses where they
are floats or vectors. Common subexpressions become such variables. A build can do without them
(``tir.disable_cse_tir``); TVM folds constants under a context of its own, out of reach, so what it has
lowered for that is mended on its way to the code generator.
"""

import tvm
from tvm import tir
from tvm.relay.backend import _backend

_COMPLAINT = "location of #dbg_declare must be a pointer or int"


def refused(error):
    """Whether that is why a build failed."""
    return _COMPLAINT in str(error)


def without_variables(module):
    """Lowered functions with the values of such variables in the variables' places; LLVM finds what is common
    by itself."""

    def inlined(node):
        dtype = tvm.DataType(node.var.dtype)
        if dtype.lanes == 1 and dtype.type_code != tvm.DataTypeCode.FLOAT:
            return None  # stays
        return tir.stmt_functor.substitute(node.body, {node.var: node.value})

    kinds = ["tir.LetStmt", "tir.Let"]
    functions = {
        name: function.with_body(tir.stmt_functor.ir_transform(function.body, None, inlined, kinds))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


@tvm.register_func("relay.backend.build", override=True)
def build(module, target, target_host=None):
    """What TVM compiles with to fold constants: the function of that name, which survives the refusal."""
    try:
        return _backend.build(module, target, target_host)
    except tvm.TVMError as error:
        if not refused(error):
            raise
    with tvm.transform.PassContext(config={"tir.disable_cse_tir": True}):  # it is lowered once more
        return _backend.build(without_variables(module), target, target_host)
