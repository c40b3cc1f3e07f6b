# SPDX-License-Identifier: Apache-2.0
"""A driver for OpenCL, on every machine on which one can be had: the processor by way of pocl."""

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "opencl.sh"


def required(*arguments):
    """Skips the test where there is none; arguments are the script's."""
    done = subprocess.run([str(SCRIPT), *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode == 3:
        pytest.skip(f"OpenCL cannot be had here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
