# SPDX-License-Identifier: Apache-2.0
"""Latency samples of something that runs, and the memory that its runs leave behind.

In: functions that run it ``number`` times, ``repeat`` times over, and give seconds a run (what TVM's
time_evaluator gives). Out: milliseconds and bytes.
"""

import math
import os
import time


def resident():
    """This process's memory in bytes; 0 where it cannot be known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


# Of a run that takes so many seconds caches that are cold are not noticed: 32 MB are read in a hundredth of it.
LONG_SECONDS = 0.3


def runs(seconds, min_sample_ms):
    """How many runs of so many seconds fill ``min_sample_ms``."""
    return max(1, math.ceil(min_sample_ms / 1000.0 / max(seconds, 1e-7)))


def sample(artefact, samples, min_sample_ms, warm_ms):
    """Latency samples in ms, after ``warm_ms`` of runs; each is the mean of as many as fill ``min_sample_ms``. What the
    process grew by meanwhile is added to artefact.grown, but for the first runs, in which caches and pools are filled.
    """
    began = time.perf_counter()
    if artefact.number is None:
        seconds = artefact.seconds(1, 1)
        if runs(seconds[0], min_sample_ms) > 1:  # what is short may have been disturbed for most of the time
            seconds = [*seconds, *artefact.seconds(1, 2)]
        artefact.number = runs(min(seconds), min_sample_ms)
    while 1000.0 * (time.perf_counter() - began) < warm_ms:
        artefact.seconds(artefact.number, 1)
    before = resident()
    times = [1000.0 * seconds for seconds in artefact.seconds(artefact.number, samples)]
    artefact.grown += resident() - before
    return times


def soak(artefact, runs, pause):
    """(before, after): this process's memory around so many runs of a region, after a pause of so many seconds."""
    time.sleep(pause)
    before = resident()
    artefact.seconds(runs, 1)
    return before, resident()
