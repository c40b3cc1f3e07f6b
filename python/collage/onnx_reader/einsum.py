# SPDX-License-Identifier: Apache-2.0
"""Einsum as transposes, reshapes and matrix products, which every backend has something for.

TVM's operator of that name is a loop over everything, and nobody else's.
"""

import math
from collections import Counter

from tvm.relay import op as _op
from tvm.relay.frontend import onnx as importer

from .table import converter, dtype_of, sizes_of


@converter("Einsum", since=12)
def _einsum(inputs, attrs, params):
    shapes = [sizes_of(one) for one in inputs]
    terms, result = _parsed(attrs["equation"].decode(), [len(shape) for shape in shapes])
    known = all(None not in shape and 0 not in shape for shape in shapes)
    diagonal = any(len(set(term)) < len(term) for term in (*terms, result))
    if not known or diagonal or not dtype_of(inputs[0]).startswith("float"):
        return importer.Einsum.get_converter(12)(inputs, attrs, params)
    parts = [_Part(*one) for one in zip(inputs, terms, shapes, strict=True)]
    whole = parts.pop(0)
    while parts:
        wanted = {*result, *(label for part in parts[1:] for label in part.labels)}
        whole = _joined(whole, parts.pop(0), wanted)
    return whole.summed(set(result)).ordered(result).value


def _parsed(equation, ranks):
    """The labels of each operand's axes, and of the result's. What ``...`` stands for is counted from the last."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"its equation {equation} has {len(terms)} operands, it has {len(ranks)}")
    hidden = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)
    ]
    labels = [_labels(term, count) for term, count in zip(terms, hidden, strict=True)]
    if any(len(term) != rank for term, rank in zip(labels, ranks, strict=True)):
        raise ValueError(f"its equation {equation} does not fit operands of {', '.join(map(str, ranks))} dimensions")
    if arrow:
        return labels, _labels(right, max(hidden))
    counts = Counter(label for term in terms for label in term.replace("...", ""))
    once = sorted(label for label, count in counts.items() if count == 1)
    return labels, _labels("...", max(hidden)) + once


def _labels(term, hidden):
    before, dots, after = term.partition("...")
    return [*before, *(range(hidden - 1, -1, -1) if dots else ()), *after]


class _Part:
    """A tensor with a label for each axis."""

    def __init__(self, value, labels, shape):
        self.value, self.labels, self.sizes = value, list(labels), dict(zip(labels, shape, strict=True))

    def summed(self, kept):
        """Without the axes that are not to be kept."""
        axes = [axis for axis, label in enumerate(self.labels) if label not in kept]
        labels = [label for label in self.labels if label in kept]
        value = _op.sum(self.value, axis=axes) if axes else self.value
        return _Part(value, labels, [self.sizes[label] for label in labels])

    def without(self, labels):
        """Without axes of one element."""
        axes = [axis for axis, label in enumerate(self.labels) if label in labels]
        kept = [label for label in self.labels if label not in labels]
        value = _op.squeeze(self.value, axes) if axes else self.value
        return _Part(value, kept, [self.sizes[label] for label in kept])

    def ordered(self, labels):
        """With the axes in that order."""
        order = [self.labels.index(label) for label in labels]
        value = self.value if order == sorted(order) else _op.transpose(self.value, order)
        return _Part(value, labels, [self.sizes[label] for label in labels])

    def as_rows(self, *groups):
        """With the axes in the order of the groups, those of a group as one."""
        ordered = self.ordered([label for group in groups for label in group])
        shape = tuple(math.prod(self.sizes[label] for label in group) for group in groups)
        same = shape == tuple(self.sizes[label] for label in ordered.labels)
        return ordered.value if same else _op.reshape(ordered.value, shape)

    def spread(self, labels):
        """With an axis for each of the labels, of one element where it has none."""
        kept = [label for label in labels if label in self.labels]
        shape = tuple(self.sizes.get(label, 1) for label in labels)
        value = self.ordered(kept).value
        return value if len(kept) == len(labels) else _op.reshape(value, shape)


def _joined(one, two, wanted):
    """The product of two, summed over what is in both and not ``wanted``."""
    shared = [label for label in one.labels if label in two.sizes]
    # One element goes with all of the other's.
    single = {label for label in shared if one.sizes[label] != two.sizes[label]}
    one, two = (part.without({label for label in single if part.sizes[label] == 1}) for part in (one, two))
    one, two = one.summed(wanted | set(two.labels)), two.summed(wanted | set(one.labels))
    both = [label for label in one.labels if label in two.sizes]
    batch, inner = ([label for label in both if (label in wanted) is kept] for kept in (True, False))
    left, right = ([label for label in part.labels if label not in both] for part in (one, two))
    labels = [*batch, *left, *right]
    sizes = {**two.sizes, **one.sizes}
    shape = tuple(sizes[label] for label in labels)
    if not inner:
        return _Part(one.spread(labels) * two.spread(labels), labels, shape)
    if batch:
        product = _op.nn.batch_matmul(one.as_rows(batch, left, inner), two.as_rows(batch, right, inner))
    else:
        product = _op.nn.dense(one.as_rows(left, inner), two.as_rows(right, inner))
    return _Part(_op.reshape(product, shape), labels, shape)
