# SPDX-License-Identifier: Apache-2.0
"""The variables that TVM makes of common subexpressions, where what comes after it refuses them.

TVM 0.19 describes the variables of lowered functions to debuggers in a way that LLVM 22 refuses where they
are floats or vectors. And it lowers what it folds constants with twice, where its own analysis stumbles over a
variable that stands in two places with other values. A build can do without these variables
(``tir.disable_cse_tir``); TVM folds constants under a context of its own, out of reach, so what it has
lowered for that is mended on its way to the code generator.
"""

import tvm
from tvm import tir
from tvm.relay.backend import _backend

_NOT_DESCRIBED = "location of #dbg_declare must be a pointer or int"
_TWO_VALUES = "conflicts with memorization"


def refused(error):
    """Whether that is why a build failed."""
    return any(text in str(error) for text in (_NOT_DESCRIBED, _TWO_VALUES))


def without_variables(module):
    """Lowered functions with the values of such variables in the variables' places; LLVM finds what is common
    by itself."""

    def inlined(node):
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
