# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_check.py and the bundle in which it travels, without a card."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import schemas
from conftest import environment

SCRIPTS = Path(__file__).parent.parent / "scripts"


def check(folder, *arguments, script=SCRIPTS / "gpu_check.py", **extra):
    """What gpu_check.py says, its exit code, and the report."""
    command = [sys.executable, str(script), "--dry-run", "--json", "gpu.json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment(**extra), timeout=800)
    report = folder / "gpu.json"
    if not report.exists():
        return done, None
    schemas.hold("files/gpu-check", told := json.loads(report.read_text()))
    return done, told


def test_parts(tmp_path):
    done, report = check(tmp_path, "--part", "machine", "--part", "operators: products")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" ok") == 2 and "2 of 2 parts passed" in done.stdout
    machine, operators = report["parts"]
    assert machine["result"]["card"]["architecture"] == "sm_90"
    assert set(machine["result"]["backends"]) == {"tvm_cuda", "cublas"}
    assert operators["result"]["operators"] >= 3 and operators["result"]["error"] < 1e-5


def test_parts_that_fail(tmp_path):
    """Each has its turn; the report says why, and the exit code that one did."""
    done, report = check(tmp_path, "--part", "machine", "--part", "operators: products", EMULATED_CUDA_COUNT=0)
    assert done.returncode == 1 and "0 of 2 parts passed" in done.stdout
    assert done.stdout.count("FAILED: ") == 2 and "knows no device on this machine" in done.stdout
    assert [one["ok"] for one in report["parts"]] == [False, False]


def test_the_time_is_kept(tmp_path):
    done, report = check(tmp_path, "--minutes", "0")
    assert done.returncode == 1
    assert all("0 minutes were over" in one["error"] for one in report["parts"])


def test_a_part_that_nobody_knows(tmp_path):
    done, _ = check(tmp_path, "--part", "cudnn")
    assert done.returncode == 2 and "there is no part 'cudnn' (known: machine, " in done.stderr


@pytest.mark.long
def test_the_bundle(tmp_path):
    """It is what it says it may be, and checks itself where nothing else of the tree is."""
    file = tmp_path / "bundle.tar.xz"
    packed = subprocess.run([SCRIPTS / "gpu_bundle.sh", file], capture_output=True, text=True, timeout=850)
    assert packed.returncode == 0, packed.stderr
    assert file.stat().st_size <= 60e6
    subprocess.run(["tar", "-C", tmp_path, "-xf", file], check=True)
    script = tmp_path / "gpu-bundle" / "scripts" / "gpu_check.py"
    done, report = check(
        tmp_path, "--part", "machine", "--part", "search: a small network", script=script, PYTHONPATH=""
    )
    assert done.returncode == 0, done.stdout
    assert "tvm_cuda" in report["parts"][1]["result"]["tried"]
