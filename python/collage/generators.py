# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a backend's code generator, said with the backend, the operator and where that comes from.

In: exceptions of an emitter (or of what an emitter calls) and the region that it was given. Out: CollageErrors with
these fields.
"""

import contextlib
from collections.abc import Iterator

import tvm
from tvm import relay

from . import errors


@contextlib.contextmanager
def failures(backend: str, function: relay.Function) -> Iterator[None]:
    """What passes through is a CollageError that knows the backend and the region's first operator, unless it knows
    another; an exception of Python's or of the user's becomes one that is of its kind, and is its cause.
    """
    try:
        yield
    except errors.CollageError as error:
        if error.backend is None:
            raise _told(error, backend, function) from error
        raise
    except Exception as error:
        raise _told(error, backend, function) from error


def _told(error: Exception, backend: str, function: relay.Function) -> errors.CollageError:
    operator, span = _first(function)
    fields = {"backend": backend, "operator": operator, "span": span}
    if isinstance(error, errors.CollageError):
        fields |= error.fields
    at = f", at {fields['operator']}" if fields["operator"] else ""
    where = f" ({fields['span']})" if fields["span"] else ""
    said = str(error) or type(error).__name__
    text = f"the code generator of the backend {backend}{at}{where}: {said}"
    if isinstance(error, errors.CollageError):
        return type(error)(text, **fields)
    return errors.failed(error, text, **fields)


def _first(function: relay.Function) -> tuple[str | None, str | None]:
    """The first operator of a region, and its span as reports show it; None for what is not known."""
    calls: list[relay.Call] = []

    def visit(expression: relay.Expr) -> None:
        if isinstance(expression, relay.Call) and isinstance(expression.op, tvm.ir.Op):
            calls.append(expression)

    relay.analysis.post_order_visit(function, visit)
    if not calls:
        return None, None
    return calls[0].op.name, _text(calls[0].span)


def _text(span: relay.Span | relay.SequentialSpan | None) -> str | None:
    if isinstance(span, relay.SequentialSpan):
        span = span.spans[0] if span.spans else None
    if span is None:
        return None
    name, line, column = span.source_name.name, int(span.line), int(span.column)
    return f"{name}:{line}:{column}" if line or column else str(name) or None
