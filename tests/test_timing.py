# SPDX-License-Identifier: Apache-2.0
"""What counts as a leak, told from pools that fill up and from what a busy machine only puts off."""

import pytest
from collage import timing

pytestmark = pytest.mark.fast

RUN_MS = 0.001  # 100,000 runs a block


class Memory:
    """Something that runs, and what the process's memory does meanwhile."""

    def __init__(self, monkeypatch, grow):
        self.runs, self.bytes, self.pauses = 0, 1 << 30, 0
        self.grow = grow
        monkeypatch.setattr(timing, "resident", lambda: self.bytes)
        monkeypatch.setattr(timing.time, "sleep", self.pause)

    def pause(self, _seconds):
        self.pauses += 1

    def seconds(self, number, _repeat):
        self.runs += number
        self.bytes += self.grow(self, number)
        return [number * RUN_MS / 1000]


@pytest.mark.parametrize("each", [1, 84, 1 << 16])
def test_what_grows_with_each_run_is_a_leak(monkeypatch, each):
    memory = Memory(monkeypatch, lambda _, number: each * number)
    lost = timing.leak(memory, RUN_MS)
    # 16 blocks of 100,000 bytes are no more than a pool may take.
    assert lost == (0 if each == 1 else each)


def test_a_leak_of_slow_runs(monkeypatch):
    """A few runs a block: what each leaves is told, and memory does not run out before."""
    memory = Memory(monkeypatch, lambda _, number: number << 20)
    assert timing.leak(memory, 20.0) == 1 << 20
    assert memory.bytes - (1 << 30) < 64 << 20


def test_a_pool_that_fills_up_is_none(monkeypatch):
    memory = Memory(monkeypatch, lambda self, number: 100 * number if self.runs < 300_000 else 0)
    assert timing.leak(memory, RUN_MS) == 0


def test_what_a_thread_without_a_processor_puts_off_is_none(monkeypatch):
    """As much as of a leak, until the thread comes to run: then what it freed is used again."""
    memory = Memory(monkeypatch, lambda self, number: 0 if self.pauses else 84 * number)
    assert timing.leak(memory, RUN_MS) == 0
    assert memory.runs > 300_000, "it looked like a leak for long enough to be taken for one"
