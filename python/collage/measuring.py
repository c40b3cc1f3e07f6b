# SPDX-License-Identifier: Apache-2.0
"""What the measuring worker does about one region: build it, run it, check it against plain TVM, time it."""

from . import check, library, precision, timing
from .region import RegionError, in_phase

_SAMPLES = 10
_MIN_SAMPLE_MS = 0.5


def measure(request, artefacts, built=None):
    """Do what one "measure" request asks; returns the fields of its result. Calls ``built(seconds)`` after
    the build.
    """
    compiler = request.get("compiler") or ""
    if compiler:
        # Not the candidate's fault: the phase "setup" says that the backend cannot be used.
        in_phase("setup", library.install, compiler)
    artefact = artefacts.get(request, compiler, built)
    largest = None
    if not request.get("again"):
        outputs = in_phase("run", artefact.outputs)
        if not compiler:
            artefacts.remember(request, outputs)
        if request.get("check"):
            expected = in_phase("check", artefacts.reference, request) if compiler else outputs
            largest = compare(outputs, expected, request)
    samples = request.get("samples")
    samples = _SAMPLES if samples is None else int(samples)
    if samples == 0:
        return {"samples_ms": [], "max_abs_error": largest, "mismatch": None}
    before = timing.resident()
    least = float(request.get("min_sample_ms") or _MIN_SAMPLE_MS)
    times = in_phase("run", timing.sample, artefact, samples, least)
    artefact.grown += timing.resident() - before
    # Caches and pools grow, too, but stop.
    if compiler and artefact.grown >= timing.LEAK_BYTES:
        artefact.grown = 0
        lost = in_phase("run", timing.leak, artefact, min(times))
        if lost:
            artefacts.drop(request, compiler)
            raise RegionError("run", "leak", f"each run leaves about {_size(lost)} behind that is not freed")
    return {"samples_ms": times, "max_abs_error": largest, "mismatch": None}


def compare(outputs, expected, request):
    """The largest absolute error; raises RegionError where the outputs are not the expected ones."""
    if check.has_new_nan(outputs, expected):
        raise RegionError("check", "not-a-number", "the result holds NaN where plain TVM's holds numbers")
    largest, mismatch = check.difference(outputs, expected, *check.tolerances(request, expected, 1e-3))
    if request.get("narrow"):
        mismatch = precision.something_else(outputs, expected)
    if mismatch:
        raise RegionError("check", "wrong-result", mismatch)
    return largest


def _size(count):
    return f"{count} bytes" if count < 10_000 else f"{count >> 10} KiB"
