# SPDX-License-Identifier: Apache-2.0
"""The card of the tests that need one of NVIDIA's (cuda_emulator/emulator.cc)."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "cuda_emulator"
# Not libcuda.so.1: NVIDIA's compiler would take it for the driver, and ask it for more than it has.
FILE = Path(tempfile.gettempdir()) / f"emulated-card-{os.getpid()}" / "libnvidia-emulated.so.12"

# Which variables name the libraries. Collage reads the environment when it is imported:
# conftest.py sets them before, and there is a card while the file is there.
VARIABLES = "COLLAGE_CUDA_DRIVER", "COLLAGE_NVRTC_LIBRARY", "COLLAGE_CUBLASLT_LIBRARY"
ENVIRONMENT = dict.fromkeys(VARIABLES, str(FILE))


@contextlib.contextmanager
def present():
    """Has this process and those that it starts find a card."""
    FILE.parent.mkdir()
    files = sorted(str(file) for file in SOURCES.glob("*.cc"))
    command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", f'-DEMULATOR_SOURCES="{SOURCES}"', *files]
    try:
        subprocess.run([*command, f"-Wl,-soname,{FILE.name}", "-o", str(FILE), "-ldl"], check=True, timeout=300)
        yield
    finally:
        shutil.rmtree(FILE.parent)


def told(**what):
    """An environment that tells the emulator something: capability="8.0", mib=64."""
    return {f"EMULATED_CUDA_{name.upper()}": str(value) for name, value in what.items()}
