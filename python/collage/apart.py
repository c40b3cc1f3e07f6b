# SPDX-License-Identifier: Apache-2.0
"""Parts of the package that run in a process of their own, since what they import must not be where TVM is."""

import os
import subprocess
import sys
from pathlib import Path


def in_short(error):
    """The first line of what an exception says; its class where it says nothing."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def run(name, *arguments, given=None):
    """``python -m collage.NAME ARGUMENTS`` with the text ``given`` on its standard input: a CompletedProcess."""
    here = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", f"collage.{name}", *arguments],
        input=given,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
