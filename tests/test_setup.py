# SPDX-License-Identifier: Apache-2.0
"""The optional backends: mistakes are told."""

import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]
EXTRAS = ("mkl", "onnxruntime", "openblas", "openvino", "tune")


def backends(*arguments):
    script = ["bash", str(TREE / "scripts" / "backends.sh"), *arguments]
    return subprocess.run(script, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("names", ["opencv", "openvino,opencv", "dev"])
def test_an_unknown_backend_is_told_with_the_known_ones(names):
    done = backends(names)
    assert done.returncode == 2
    assert f"there is no backend {names.split(',')[-1]} to install" in done.stderr
    assert f"known: {', '.join(EXTRAS)}, all" in done.stderr
    assert "installing" not in done.stdout


def test_no_name_at_all():
    done = backends("")
    assert done.returncode == 2
    assert "name what to install" in done.stderr
