# SPDX-License-Identifier: Apache-2.0
"""What the measuring worker does about one region: build it, run it, hold it beside plain TVM's, time it. What comes
of that is said in Go (pass/measure/verdict.go).
"""

from . import check, library, timing
from .region import in_phase

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
    seen = None
    if not request.get("again"):
        outputs = in_phase("run", artefact.outputs)
        if not compiler:
            artefacts.remember(request, outputs)
        if request.get("check"):
            expected = in_phase("check", artefacts.reference, request) if compiler else outputs
            seen = check.seen(outputs, expected, request)
    samples = request.get("samples")
    samples = _SAMPLES if samples is None else int(samples)
    if samples == 0:
        return {"samples_ms": [], "outputs": seen, "grown_bytes": 0}
    least = float(request.get("min_sample_ms") or _MIN_SAMPLE_MS)
    times = in_phase("run", timing.sample, artefact, samples, least, float(request.get("warm_ms") or 0))
    return {"samples_ms": times, "outputs": seen, "grown_bytes": artefact.grown}


def soak(request, artefacts):
    """Run a region that was measured "runs" times after "pause_s" seconds: {"before_bytes", "after_bytes"}, the
    process's memory. What it grew by while it was timed is forgotten.
    """
    artefact = artefacts.get(request, request.get("compiler") or "")
    artefact.grown = 0
    before, after = in_phase("run", timing.soak, artefact, request["runs"], request.get("pause_s") or 0)
    return {"before_bytes": before, "after_bytes": after}
