# SPDX-License-Identifier: Apache-2.0
"""Latency samples of something that runs, and whether its runs leave memory behind.

In: functions that run it ``number`` times, ``repeat`` times over, and give seconds a run (what TVM's
time_evaluator gives). Out: milliseconds and bytes.
"""

import math
import os
import time

# A region leaks whose every further block of runs takes at least so much more memory.
LEAK_BYTES = 64 << 10
# What takes less in all may be a pool that fills up and stops: oneTBB's under OpenVINO was seen to take 10 MB
# in the first ten thousand runs.
_POOL_BYTES = 32 << 20
_LEAK_BLOCKS = 16
# For so long something runs before samples of it are taken: after a pause threads have to wake up and to
# come apart on the processors, clocks to rise and caches to fill, as they have in the middle of a network.
_WARM_MS = 8.0
# A block of runs takes about as long.
_LEAK_SECONDS = 0.1
# What still grows after a pause of so many seconds is a leak. On a busy machine oneTBB's notes to a worker
# that gets no processor pile up (80 bytes a run, 32 MB in a second were seen); it clears them away when it
# comes to run.
_LEAK_PAUSE = 0.2


def resident():
    """This process's memory in bytes; 0 where it cannot be known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def runs(seconds, min_sample_ms):
    """How many runs of so many seconds fill ``min_sample_ms``."""
    return max(1, math.ceil(min_sample_ms / 1000.0 / max(seconds, 1e-7)))


def sample(artefact, samples, min_sample_ms):
    """Latency samples in ms; each is the mean of as many runs as fill ``min_sample_ms``."""
    if artefact.number is None:
        artefact.number = runs(min(artefact.seconds(1, 2)), min_sample_ms)
    began = time.perf_counter()
    while 1000.0 * (time.perf_counter() - began) < _WARM_MS:
        artefact.seconds(artefact.number, 1)
    return [1000.0 * seconds for seconds in artefact.seconds(artefact.number, samples)]


def leak(artefact, run_ms):
    """Bytes that each run of a region leaves behind, as far as that is certain; 0 where it is not."""
    count = max(1, min(100_000, math.ceil(1000.0 * _LEAK_SECONDS / max(run_ms, 1e-6))))
    before = first = resident()
    for block in range(1, _LEAK_BLOCKS + 1):
        artefact.seconds(count, 1)
        now = resident()
        if now - before < LEAK_BYTES:
            return 0
        before = now
        if now - first >= _POOL_BYTES:
            lost = _confirmed(artefact, count, (now - first) // block)
            return lost and max(1, lost // count)
    return 0


def _confirmed(artefact, count, growth):
    """The growth of a block of runs, if one after a pause grows by half of that at least; else 0."""
    time.sleep(_LEAK_PAUSE)
    before = resident()
    artefact.seconds(count, 1)
    return growth if resident() - before >= max(LEAK_BYTES, growth // 2) else 0
