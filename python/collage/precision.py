# SPDX-License-Identifier: Apache-2.0
"""How far off results are that were computed in a narrower type than the network's.

In: what a network gives on some samples, and what plain TVM gives on the same. Out: the error in each measure that a
user may state a budget in (settings.Config.ErrorMeasure), the worst of the network's outputs: "l2", the length of the
difference over that of what is expected, all samples together; "max", the greatest difference over the greatest
expected value; "cosine", one less the cosine of the angle between the two; "top1", the share of rows (of the last
axis) whose greatest element is another one. It takes no TVM: benchmark peers ask it, too.
"""

import math

import numpy as np

from . import error_measure

MEASURES = ("l2", "max", "cosine", "top1")

# What stands for an error that has no bounds, which JSON cannot say.
_BOUNDLESS = 1e9


def errors(got, expected, own=None, inputs=None):
    """{measure: error}; ``got`` and ``expected`` are lists of arrays, one list for each sample.

    ``own`` is a measure of the user's own as measure.OwnMeasure writes it; then there is "own", its name
    ("measure") and what it gives ("error") for these samples, whose ``inputs`` are {name: array} each. Raises
    error_measure.MeasureError where it gives nothing.
    """
    worst = dict.fromkeys(MEASURES, 0.0)
    for ours, theirs in zip(zip(*got, strict=True), zip(*expected, strict=True), strict=True):
        for measure, error in _of_output(ours, theirs).items():
            worst[measure] = max(worst[measure], error)
    if own:
        error = error_measure.error(own["file"], own["function"], got, expected, inputs)
        return {**worst, "own": {"measure": own["name"], "error": error}}
    return worst


def _of_output(got, expected):
    """The errors of one output on all samples."""
    square, length, other_length, product, most, greatest, moved, rows = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0
    for one, other in zip(got, expected, strict=True):
        if not one.size:
            continue
        a, b = one.astype("float64"), other.astype("float64")
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        a, b = np.where(same & ~np.isfinite(b), 0.0, a), np.where(same & ~np.isfinite(b), 0.0, b)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = a - b
            square += float(np.square(apart).sum())
            length += float(np.square(b).sum())
            other_length += float(np.square(a).sum())
            product += float((a * b).sum())
            most, greatest = max(most, float(np.abs(apart).max())), max(greatest, float(np.abs(b).max()))
        if one.ndim and one.shape[-1] > 1:
            rows += one.size // one.shape[-1]
            moved += int(np.count_nonzero(a.argmax(axis=-1) != b.argmax(axis=-1)))
    angle = math.sqrt(length) * math.sqrt(other_length)
    return {
        "l2": _share(math.sqrt(square), math.sqrt(length)),
        "max": _share(most, greatest),
        "cosine": _bounded(1.0 - product / angle) if angle else (0.0 if length == other_length else 1.0),
        "top1": moved / rows if rows else 0.0,
    }


def _share(error, of):
    if error == 0:
        return 0.0
    return _bounded(error / of) if of else _BOUNDLESS


def _bounded(error):
    return max(0.0, error) if error < _BOUNDLESS else _BOUNDLESS  # NaN is not below anything
