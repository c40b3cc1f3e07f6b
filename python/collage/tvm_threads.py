# SPDX-License-Identifier: Apache-2.0
"""TVM's own pool of threads, in processes in which nothing that is timed runs on it.

A thread of the pool that has nothing to do looks for work 300,000 times, with sched_yield in between, before
it sleeps, and does not hear before that it is to end. On a machine that is idle that is a tenth of a second;
where other programs want the processors each of the looks costs a turn of theirs: minutes, for which
whoever ends the pool waits. TVM's profiler ends it before each run, and the process's exit does once more.
"""

import os
from contextlib import contextmanager

# TVM reads it when the first thread of its first pool begins, and never again.
_SPIN_COUNT = "TVM_THREAD_POOL_SPIN_COUNT"


@contextmanager
def sleeping():
    """Threads of a pool that TVM makes meanwhile sleep as soon as they have nothing to do.

    For processes that time nothing that runs on the pool; the environment is as before afterwards.
    """
    before = os.environ.get(_SPIN_COUNT)
    os.environ[_SPIN_COUNT] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SPIN_COUNT]
        else:
            os.environ[_SPIN_COUNT] = before
