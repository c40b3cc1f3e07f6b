# SPDX-License-Identifier: Apache-2.0
"""What is left out of TVM's builds, or done before a pass of theirs, since it is done already or faster so.

In: the passes that TVM is about to run, by tvm.instrument. Out: whether it runs them. TVM infers the types of a module
before each pass that wants some, whether anything has changed or not: 30 of 48 times for DenseNet-121. And what it
folds it compiles, each expression anew: its virtual machine's memory has several for each tensor of an open size.
"""

import tvm
from tvm import relay

from . import library

_INFERRED = "InferType"
_FOLDED = "FoldConstant"


@tvm.instrument.pass_instrument
class KnownTypes:
    """Lets types be inferred of modules alone that have a function which has not been typed by the last time."""

    def __init__(self):
        self._typed = None

    def should_run(self, module, info):
        return info.name != _INFERRED or self._typed is None or not _same(self._typed, module)

    def run_after_pass(self, module, info):
        # They are kept, so that no pass changes one in place, which it does where it alone has one.
        if info.name == _INFERRED:
            self._typed = dict(_functions(module))

    def exit_pass_ctx(self):
        self._typed = None


@tvm.instrument.pass_instrument
class FoldedInGo:
    """Folds what Go can before TVM folds constants. The module is changed in place: the pass is given the same one."""

    def __init__(self):
        library.load()
        self._fold = tvm.get_global_func("collage.transform.FoldConstant")()

    def run_before_pass(self, module, info):
        if info.name != _FOLDED:
            return
        for name, function in _functions(self._fold(module)):
            var = module.get_global_var(name)
            if isinstance(function, relay.Function) and not module[var].same_as(function):
                module.update_func(var, function)


def _functions(module):
    return ((var.name_hint, function) for var, function in module.functions_items())


def _same(typed, module):
    count = 0
    for name, function in _functions(module):
        known = typed.get(name)
        if known is None or not known.same_as(function):
            return False
        count += 1
    return count == len(typed)
