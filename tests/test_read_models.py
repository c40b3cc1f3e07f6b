# SPDX-License-Identifier: Apache-2.0
"""scripts/read_models.py: what is right, wrong and refused among files is told, each in a process of its own."""

import json
import os
import subprocess
import sys

import schemas
from conftest import TREE, environment
from test_witness import WRONG, network


def read_models(folder, **extra):
    result = subprocess.run(
        [sys.executable, str(TREE / "scripts" / "read_models.py"), str(folder), "--json", str(folder / "told.json")],
        capture_output=True,
        text=True,
        env=environment(**extra),
        timeout=600,
    )
    if not (folder / "told.json").exists():
        return result, []
    told = json.loads((folder / "told.json").read_text())
    schemas.hold("files/models", told)
    return result, told["models"]


def test_what_becomes_of_each_file(tmp_path):
    network(tmp_path / "good.new.onnx", "Relu")
    network(tmp_path / "drawn.old.onnx", "Bernoulli", seed=1.0)
    (tmp_path / "bad.new.onnx").write_bytes(b"nothing")
    result, rows = read_models(tmp_path)
    assert result.returncode == 1, result.stderr  # one is refused
    assert [(row["network"], row["exporter"], row["verdict"]) for row in rows] == [
        ("bad", "new", "refused"),
        ("drawn", "old", "unchecked"),
        ("good", "new", "right"),
    ]
    assert rows[2]["max_error_share"] < 1e-4 and rows[2]["operators"] == 12
    assert rows[1]["why"] == "it draws random numbers (Bernoulli)"
    assert "the model is not an ONNX model" in rows[0]["why"]
    assert result.stdout.rstrip().endswith("1 refused, 1 right, 1 unchecked")


def test_what_is_read_wrong_is_wrong(tmp_path):
    network(tmp_path / "net.new.onnx")
    site = tmp_path / "site"
    site.mkdir()
    # Brought in before anything is read, as a user's module would be.
    (site / "wrong_elu.py").write_text(WRONG)
    (site / "sitecustomize.py").write_text(
        "import sys\nif 'read_models.py' in ' '.join(sys.argv) or '--one' in sys.orig_argv: import wrong_elu\n"
    )
    result, (row,) = read_models(tmp_path, PYTHONPATH=os.pathsep.join((str(site), environment()["PYTHONPATH"])))
    assert result.returncode == 1
    assert row["verdict"] == "wrong" and "output 0 differs" in row["why"]


def test_there_must_be_something(tmp_path):
    result, _ = read_models(tmp_path)
    assert result.returncode == 1 and "make models writes some" in result.stderr
