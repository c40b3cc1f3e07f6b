# SPDX-License-Identifier: Apache-2.0
"""Where operators stand in the model, for modules that TVM's passes have made anew.

In: a module before and after passes. Out: the one after, in which calls have the spans of before. Passes that fold
scales into weights make convolutions anew and leave their spans out, by which tvmc tells which operators went where.
"""

from typing import Any

import tvm
from tvm import relay


def kept(before: tvm.IRModule, after: tvm.IRModule) -> tvm.IRModule:
    """``after``, typed, with a span for each call of main that lost it, where the call of before can be told: the n-th
    of its operator, if there are as many of that operator as before, and if its result has the same type.
    """
    known, now = _calls(before["main"]), _calls(after["main"])
    spans: dict[int, Any] = {}
    for name, calls in now.items():
        old = known.get(name, [])
        if len(old) != len(calls):
            continue
        for was, call in zip(old, calls, strict=True):
            if call.span is None and was.span is not None and _type_of(call) == _type_of(was):
                spans[call.handle.value] = was.span
    if not spans:
        return after
    restored = tvm.IRModule(after.functions, after.type_definitions, attrs=after.attrs)
    restored["main"] = _Restored(spans).visit(after["main"])
    return relay.transform.InferType()(restored)


def _type_of(call: Any) -> str:
    try:
        return str(call.checked_type)
    except ValueError:  # not typed yet
        return ""


def _calls(function: Any) -> dict[str, list[Any]]:
    """The calls of operators in a function, in post order, by the operator's name."""
    found: dict[str, list[Any]] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            found.setdefault(expr.op.name, []).append(expr)

    relay.analysis.post_order_visit(function, visit)
    return found


class _Restored(relay.ExprMutator):
    def __init__(self, spans: dict[int, Any]):
        super().__init__()
        self._spans = spans

    def visit_call(self, call: Any) -> Any:
        new = super().visit_call(call)
        span = self._spans.get(call.handle.value)
        return new if span is None else relay.Call(new.op, new.args, new.attrs, new.type_args, span)
