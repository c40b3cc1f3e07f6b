# SPDX-License-Identifier: Apache-2.0
"""How fast this machine is at best: what pass/bound makes lower bounds from.

In: a number of threads and sizes of working sets, in bytes for all threads together. Out: samples of what 10^9 float32
operations take, and of what reading 2^30 bytes takes, in milliseconds with all threads at work. Whoever uses them
takes the best sample: whatever else runs on the machine only adds time.
"""

import ctypes
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path

# Vectors of GCC's, so that the compiler takes the widest registers there are; sums that do not wait for each
# other, more of them than the units are deep. The compiler must not see through either.
_SOURCE = r"""
typedef float vector __attribute__((vector_size(64)));
enum { LANES = 16, SUMS = 12 };

double collage_multiply(long rounds, float seed) {
  vector a[SUMS], x = {0}, y = {0};
  for (int lane = 0; lane < LANES; ++lane) { x[lane] = seed; y[lane] = 1.0f - seed; }
  for (int i = 0; i < SUMS; ++i) a[i] = x * (float)i;
  for (long r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < SUMS; ++i) a[i] = a[i] * x + y;
  }
  vector sum = a[0];
  for (int i = 1; i < SUMS; ++i) sum += a[i];
  double out = 0;
  for (int lane = 0; lane < LANES; ++lane) out += sum[lane];
  return out;
}

long collage_multiply_flops(void) { return 2L * LANES * SUMS; }

double collage_read(const char* data, long bytes, long rounds) {
  typedef int words __attribute__((vector_size(64), aligned(64)));
  const words* from = (const words*)data;
  long count = bytes / 64;
  words a = {0}, b = {0}, c = {0}, d = {0};
  for (long r = 0; r < rounds; ++r) {
    for (long i = 0; i + 3 < count; i += 4) {
      a |= from[i]; b |= from[i + 1]; c |= from[i + 2]; d |= from[i + 3];
    }
    __asm__ volatile("" ::: "memory");
  }
  a |= b; c |= d; a |= c;
  int out = 0;
  for (int lane = 0; lane < 16; ++lane) out |= a[lane];
  return out;
}
"""

# One burst is short, so that now and then one goes through undisturbed.
_BURST_SECONDS = 0.002
_BURSTS = 16
# Best times that are kept.
_KEPT = 5


def _compile(folder):
    source, path = Path(folder, "calibrate.c"), Path(folder, "calibrate.so")
    source.write_text(_SOURCE)
    compiler = os.environ.get("CC", "gcc")
    command = [compiler, "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC", "-w"]
    result = subprocess.run([*command, str(source), "-o", str(path)], capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{compiler} does not compile the calibration: {result.stderr.strip()[-500:]}")
    library = ctypes.CDLL(str(path))
    library.collage_multiply.restype = ctypes.c_double
    library.collage_multiply.argtypes = [ctypes.c_long, ctypes.c_float]
    library.collage_multiply_flops.restype = ctypes.c_long
    library.collage_read.restype = ctypes.c_double
    library.collage_read.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return library


def _together(works):
    """Run each on a thread of its own, many bursts; for each thread the seconds of its bursts."""
    times = [[] for _ in works]
    gate = threading.Barrier(len(works))

    def run(index):
        for _ in range(_BURSTS):
            gate.wait()
            started = time.perf_counter()
            works[index]()
            times[index].append(time.perf_counter() - started)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def _samples(times, amount):
    """Milliseconds for ``amount`` work, had all threads had their best bursts at once; best first."""
    ranked = [sorted(each)[:_KEPT] for each in times]
    return [1000.0 * amount / sum(1.0 / each[rank] for each in ranked) for rank in range(_KEPT)]


def _once(work):
    work()
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return max(best, 1e-7)


class Calibration:
    """What is made ready while others are at work, so that they stand still for the bursts alone: the loops, compiled,
    and memory for each thread.
    """

    def __init__(self, threads, sizes):
        self._threads, self._sizes = max(1, threads), sizes
        with tempfile.TemporaryDirectory(prefix="collage-calibrate-") as folder:
            self._library = _compile(folder)
        # One buffer a thread, of which smaller working sets are the beginning; a page's line more than is asked for, so
        # that the beginning can be aligned.
        most = max((self._share(size) for size in sizes), default=0)
        self._buffers = [ctypes.create_string_buffer(most + 64) for _ in range(self._threads)]
        self._starts = [(ctypes.addressof(buffer) + 63) // 64 * 64 for buffer in self._buffers]
        for start in self._starts:
            ctypes.memset(start, 1, most)

    def _share(self, size):
        return max(256, size // self._threads // 256 * 256)

    def samples(self):
        """{"gflop_ms": samples, "read_gib_ms": [samples for each size]}."""
        library = self._library
        flops = library.collage_multiply_flops()
        probe = 2000
        rounds = max(1, int(probe * _BURST_SECONDS / _once(lambda: library.collage_multiply(probe, 0.5))))
        times = _together([lambda: library.collage_multiply(rounds, 0.5)] * self._threads)
        result = {"gflop_ms": _samples(times, 1e9 / (rounds * flops)), "read_gib_ms": []}
        for size in self._sizes:
            share = self._share(size)
            seconds = _once(lambda share=share: library.collage_read(self._starts[0], share, 1))
            rounds = max(1, int(_BURST_SECONDS / seconds))
            times = _together(
                [
                    lambda start=start, share=share, rounds=rounds: library.collage_read(start, share, rounds)
                    for start in self._starts
                ]
            )
            result["read_gib_ms"].append(_samples(times, 2.0**30 / (share * rounds)))
        return result
