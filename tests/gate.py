# SPDX-License-Identifier: Apache-2.0
"""What pytest needs to be a gate: backends that are demanded, slices of the long tests, and what takes long first.

conftest.py takes the hooks from here. `COLLAGE_REQUIRE_BACKENDS=dnnl,openvino` ends the run where one of them
cannot be used: tests of a backend are made from those that work, so a plug-in that does not load would else
only make the run shorter. `--slice K/N` keeps every N-th share of the tests, the same ones each time. Those
marked `heavy` come first.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--slice", metavar="K/N", help="only the K-th of N shares of the tests, K from 1")


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        return  # a worker of pytest-xdist: its parent has looked
    demanded = {name.strip() for name in os.environ.get("COLLAGE_REQUIRE_BACKENDS", "").split(",")} - {
        "",
        "tvm",
    }
    if not demanded:
        return
    # In a process of its own: a library that ends the process ends only that.
    shown = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("demanded.py")), *sorted(demanded)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if shown.returncode != 0:
        said = shown.stdout.strip() or f"exit code {shown.returncode}: {shown.stderr.strip()[-2000:]}"
        raise pytest.UsageError(f"a backend that COLLAGE_REQUIRE_BACKENDS demands does not work here.\n{said}")


def pytest_collection_modifyitems(config, items):
    # At the end all processes should have something to do.
    items.sort(key=lambda item: item.get_closest_marker("heavy") is None)
    wanted = config.getoption("--slice")
    if not wanted:
        return
    try:
        share, shares = map(int, wanted.split("/"))
    except ValueError:
        share = shares = 0
    if not 1 <= share <= shares:
        raise pytest.UsageError(f"--slice {wanted}: wants K/N with K from 1 to N")
    kept, left = [], []
    for item in items:
        at = int.from_bytes(hashlib.sha256(item.nodeid.encode()).digest()[:4], "big") % shares
        (kept if at == share - 1 else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
