# SPDX-License-Identifier: Apache-2.0
"""`make demo` from nothing, as somebody does who has just cloned the tree."""

import os
import re
import subprocess

import pytest
from package_trials import copy_of_the_tree

# Of the tests' own environment nothing may help.
KEPT = ("HOME", "LANG", "http_proxy", "https_proxy")


def make(tree, *arguments):
    """Run make there; returns what it prints."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or name.startswith(("PIP_", "SSL_", "GO", "PYENV_"))
    }
    ran = subprocess.run(
        ["make", *arguments],
        cwd=tree,
        env={**environment, "PATH": os.environ["PATH"], "XDG_CACHE_HOME": str(tree.parent / "cache")}
        | {"PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", os.path.expanduser("~/.cache/pip"))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-8000:]
    return ran.stdout


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_demo_from_nothing(tmp_path):
    tree = copy_of_the_tree(tmp_path / "a clone")
    assert not (tree / ".venv").exists() and not (tree / "python" / "collage" / "lib").exists()
    out = make(tree, "demo")
    # What was placed where, what was kept and why.
    assert re.search(r"^workload:unet: \d+ operators in \d+ regions?, for llvm", out, re.M), out
    assert re.search(r"^\S.* is kept: ", out, re.M), out
    assert "wrote build/demo/model.tar (" in out
    assert (tree / "build" / "demo" / "model.tar").stat().st_size > 20_000_000
    # And that it runs.
    assert re.search(r"^latency +median [\d.]+ ms, .*\(20 calls after \d+ untimed\)$", out, re.M), out
    # All is there, so that nothing is done a second time.
    again = make(tree, "setup")
    assert ".venv is up to date" in again and "installing" not in again
