# SPDX-License-Identifier: Apache-2.0
"""A program that fails, made smaller: results are dropped, and operators become parameters that have the
values which they gave, for as long as the program still fails.
"""

import numpy as np
import tvm
from tvm import relay

from . import running, scopes
from .program import Program


class _Replaced(relay.ExprMutator):
    def __init__(self, old, new):
        super().__init__()
        self.memo_map[old] = new


def operators(module):
    """The calls of main, users before what they use."""
    calls = []
    relay.analysis.post_order_visit(
        module["main"], lambda node: calls.append(node) if isinstance(node, relay.Call) else None
    )
    return calls[::-1]


def shrunk(program, fails, tries=150):
    """A smaller program for which ``fails(program)`` holds, too; it must hold for the given one."""
    left = tries
    while left > 0:
        for smaller in candidates(program):
            left -= 1
            try:
                found = fails(smaller)
            except Exception:
                found = False
            if found:
                program = smaller
                break
            if left <= 0:
                return program
        else:
            return program
    return program


def candidates(program):
    """Programs that are a bit smaller, the boldest steps first."""
    main = program.module["main"]
    if isinstance(main.body, relay.Tuple) and len(main.body.fields) > 1:
        for field in main.body.fields:
            yield remade(program, field)
    calls = operators(program.module)
    if program.scoped:
        return
    values = evaluated(program, calls)
    # Half of the operators, then fewer: what is far from the results first.
    order = sorted(range(len(calls)), key=lambda i: abs(i - len(calls) // 2))
    for i in order:
        kind = calls[i].checked_type
        if i in values and calls[i] != main.body:
            stand_in = relay.var(f"v{i}", kind)
            yield remade(program, _Replaced(calls[i], stand_in).visit(main.body), {stand_in: values[i]})
    for call in calls:
        for argument in call.args:
            if tvm.ir.structural_equal(argument.checked_type, call.checked_type):
                yield remade(program, _Replaced(call, argument).visit(main.body))
                break


def evaluated(program, calls):
    """{index: array} of the calls that give a tensor; of none where TVM itself cannot build them."""
    main = program.module["main"]
    tensors = [i for i, call in enumerate(calls) if isinstance(call.checked_type, relay.TensorType)]
    if not tensors:
        return {}
    module = scopes.typed(relay.Function(main.params, relay.Tuple([calls[i] for i in tensors])))
    try:
        (outputs,), _ = running.execute([module], [program.inputs])
    except tvm.TVMError:
        return {}
    return dict(zip(tensors, outputs, strict=True))


def remade(program, body, new=None):
    """The program with another body; parameters that nobody reads are gone."""
    arrays = dict(zip(program.module["main"].params, program.inputs, strict=True)) | (new or {})
    params = list(relay.analysis.free_vars(body))
    function = relay.Function(params, body)
    return Program(program.seed, scopes.typed(function), [np.asarray(arrays[p]) for p in params], program.made)
