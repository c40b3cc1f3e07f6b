# SPDX-License-Identifier: Apache-2.0
"""The functions of a module that TVM itself builds: all but regions, which are their backends'."""

import tvm
from tvm import relay


def changed(module, change):
    """The module, typed anew, with what ``change(function)`` makes of each of its own functions; None for one that
    stays. The module itself where all do.
    """
    made = {}
    for var, function in module.functions_items():
        if isinstance(function, relay.Function) and not (function.attrs and "Compiler" in function.attrs):
            made[var] = change(function)
    if not any(made.values()):
        return module
    new = tvm.IRModule(module.functions, module.type_definitions, attrs=module.attrs)
    for var, function in made.items():
        if function is not None:
            new[var] = function
    return relay.transform.InferType()(new)
