# SPDX-License-Identifier: Apache-2.0
"""Keeps from the standard error what TVM notes there for its own developers while it builds for its virtual machine.

In: what this process writes to its standard error, from C++ too. Out: the same, but for lines about stages of
schedules, each as soon as it is whole.
"""

import contextlib
import os
import re
import sys
import threading

# TVM 0.19 says this of shape functions whenever a constant is put into one, and goes on (src/te/schedule/bound.cc).
_NOTE = re.compile(rb"\[\d\d:\d\d:\d\d\] \S*bound\.cc:\d+: not in feed graph consumer = .*\n?")
_PIECE = 1 << 16
_PATIENCE = 0.5  # seconds


@contextlib.contextmanager
def without_notes():
    """While this is entered, such notes are left out."""
    sys.stderr.flush()
    kept = os.dup(2)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    passing = threading.Thread(target=_passed, args=(reading, kept), daemon=True)
    passing.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        # That was the last end for writing, unless a process was started meanwhile: what it says goes on through here.
        passing.join(_PATIENCE)


def _passed(reading, out):
    rest = b""
    while piece := os.read(reading, _PIECE):
        *lines, rest = (rest + piece).splitlines(keepends=True)
        if rest.endswith((b"\n", b"\r")) or not rest.startswith(b"["):
            lines.append(rest)
            rest = b""
        _write(out, b"".join(line for line in lines if not _NOTE.fullmatch(line)))
    _write(out, rest if not _NOTE.fullmatch(rest) else b"")
    os.close(reading)
    os.close(out)


def _write(out, data):
    while data:
        data = data[os.write(out, data) :]
