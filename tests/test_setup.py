# SPDX-License-Identifier: Apache-2.0
"""The optional backends: what set-up installs is what the package's extras name, and mistakes are told."""

import re
import subprocess
import sys
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


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_extras_name_the_versions_that_set_up_installs():
    import tomllib

    extras = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {*EXTRAS, "all", "peers"}
    for name in EXTRAS:
        lines = (TREE / "scripts" / f"requirements-{name}.txt").read_text().splitlines()
        pinned = {re.sub(r"[\s'\"]", "", line) for line in lines if line and not line.startswith("#")}
        wanted = {re.sub(r"[\s'\"]", "", line) for line in extras[name]}
        assert wanted <= pinned, name
