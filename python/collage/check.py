# SPDX-License-Identifier: Apache-2.0
"""Whether two results are the same: a backend's and plain TVM's.

In: lists of numpy arrays and tolerances. Out: where and by how much they differ. Whether a backend's result will do
is said in Go (pass/measure/verdict.go).
"""

import math

import numpy as np

from . import precision


def difference(got, expected, rtol, atol):
    """Compare lists of arrays: (largest absolute error, None or a text that says where they differ).

    An element differs where |got - expected| > atol + rtol * |expected|. Equal infinities and NaN in the
    same place count as equal.
    """
    if unlike := misfit(got, expected):
        return math.inf, unlike
    largest = 0.0
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        told = _told(one, other, rtol, atol)
        largest = max(largest, math.inf if told["greatest"] is None else told["greatest"])
        if told["wrong"]:
            return largest, (
                f"output {number} differs in {told['wrong']} of {told['elements']} elements, "
                f"most at {told['at']}: {told['got']} instead of {told['expected']}"
            )
    return largest, None


def seen(got, expected, request):
    """What outputs are like beside the expected ones, for Go, which says what comes of it (measure.outputsSeen).

    {"unlike", "each"}: which output has another shape or type, "" for none; else of each output how many of its
    "elements" are "wrong" (difference, within the request's tolerances), the "greatest" error (None where it has no
    bounds), "at" which place, what was "got" and "expected" there, and "new_nan": that it holds NaN where there are
    numbers alone. Of what is "narrow" there is "l2", too (precision.errors).
    """
    if unlike := misfit(got, expected):
        return {"unlike": unlike, "each": []}
    each = []
    for one, other, atol in zip(got, expected, _absolute(request, expected), strict=True):
        told = _told(one, other, request.get("rtol") or 0.0, atol)
        each.append({**told, "new_nan": has_new_nan([one], [other])})
        if request.get("narrow"):
            each[-1]["l2"] = precision.errors([[one]], [[other]])["l2"]
    return {"unlike": "", "each": each}


def _told(one, other, rtol, atol):
    """What ``seen`` tells of an output, but for "new_nan" and "l2"."""
    told = {"elements": one.size, "wrong": 0, "greatest": 0.0, "at": [], "got": "", "expected": ""}
    if not one.size:
        return told
    a, b = one.astype("float64"), other.astype("float64")
    with np.errstate(invalid="ignore"):
        greatest = float(np.abs(a - b).max())
    if greatest <= atol:  # as nearly always; False where there is a NaN, or two infinities
        told["greatest"] = greatest
        return told
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    greatest = float(error.max())
    told["greatest"] = greatest if math.isfinite(greatest) else None
    wrong = error > atol + rtol * np.where(np.isfinite(b), np.abs(b), 0.0)
    if wrong.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), a.shape))
        told.update(wrong=int(wrong.sum()), at=list(place), got=str(one[place]), expected=str(other[place]))
    return told


def misfit(got, expected):
    """Which output has another shape or type than is expected; "" for none."""
    if len(got) != len(expected):
        return f"{len(got)} outputs where {len(expected)} were expected"
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {number} is {one.dtype}{one.shape} and not {other.dtype}{other.shape}"
    return ""


def _absolute(request, expected):
    """How far each output may be off whatever is expected there.

    "atol_of_greatest" is a share of the greatest value of all outputs, "atol_of_each" one of the greatest of the
    output itself: sums of both signs cancel, and what is small beside the greatest value has no digits of its own.
    """
    greatest = [_greatest([output]) for output in expected]
    of_all = (request.get("atol_of_greatest") or 0.0) * max(greatest, default=0.0)
    of_each = request.get("atol_of_each") or 0.0
    return [max(of_all, of_each * one) for one in greatest]


def _greatest(arrays):
    """The greatest absolute value of some arrays that is a number and no infinity."""
    return max((float(np.abs(_finite(o.astype("float64"))).max()) for o in arrays if o.size), default=0.0)


# How far a network as TVM read it may be from what another engine makes of the same file, as a share of an output's
# greatest value: sums are taken in another order, layer after layer. A wrong reading is wrong by more.
_WITNESSED = {"float16": 2e-2, "float32": 1e-3, "float64": 1e-3}
_LOOSE = 0.1
# The share of whole numbers (places of greatest values, of what was sorted) that rounding may decide otherwise.
_DECIDED_OTHERWISE = 0.01


def witnessed(got, answers, loose):
    """Compare a network's outputs with another engine's: (largest error as a share of the greatest value of its
    output, None or a text that says where they differ).
    """
    if unlike := misfit(got, answers):
        return math.inf, unlike
    largest = 0.0
    for number, (one, other) in enumerate(zip(got, answers, strict=True)):
        if not one.size:
            continue
        if other.dtype.kind != "f":
            steps = np.abs(one.astype("float64") - other.astype("float64"))
            near = 2 if loose else 0
            if np.count_nonzero(steps > near) > _DECIDED_OTHERWISE * one.size:
                return math.inf, _named(difference([one], [other], 0.0, near)[1], number)
            continue
        finite = np.abs(other[np.isfinite(other)].astype("float64"))
        scale = float(finite.max()) if finite.size else 0.0
        share = _LOOSE if loose else _WITNESSED[str(other.dtype)]
        error, mismatch = difference([one], [other], share, share * scale)
        if mismatch:
            return math.inf, _named(mismatch, number)
        largest = max(largest, error / scale if scale else 0.0)
    return largest, None


def doubt(got, answers):
    """How far outputs are off another engine's as a share of the greatest of all of them; of outputs of floating point
    alone.
    """
    pairs = [(one, other) for one, other in zip(got, answers, strict=True) if other.dtype.kind == "f"]
    with np.errstate(invalid="ignore"):
        apart = [one.astype("float64") - other.astype("float64") for one, other in pairs]
    scale = _greatest(answers)
    return _greatest(apart) / scale if scale else 0.0


def _finite(array):
    return np.where(np.isfinite(array), array, 0)


def _named(mismatch, number):
    return mismatch.replace("output 0", f"output {number}", 1)


def has_new_nan(got, expected):
    return any(
        np.issubdtype(one.dtype, np.floating) and np.isnan(one).any() and not np.isnan(other).any()
        for one, other in zip(got, expected, strict=False)
    )
