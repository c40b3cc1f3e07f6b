# SPDX-License-Identifier: Apache-2.0
"""scripts/trained: trained models are asked what they were trained for, and what is wrong is told."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import placed
import pytest
import schemas
from conftest import TREE, environment

SCRIPTS = str(TREE / "scripts")


def trained(python, folder, *arguments, **extra):
    """Run the script; gives what ended and the rows that it wrote."""
    paths = [SCRIPTS, environment()["PYTHONPATH"]]
    if "PYTHONPATH" in extra:
        paths.insert(0, extra.pop("PYTHONPATH"))
    result = subprocess.run(
        [str(python), "-m", "trained", "--json", "told.json", "--out", str(folder / "made"), *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(PYTHONPATH=os.pathsep.join(paths), **extra),
        timeout=5000,
    )
    told = folder / "told.json"
    return result, schemas.hold("files/trained", json.loads(told.read_text()))["models"] if told.exists() else []


@pytest.fixture
def digits(tmp_path):
    """A folder to put on Python's path: a package with digits like those of scikit-learn, for the script alone."""
    data = tmp_path / "site" / "sklearn" / "datasets" / "data"
    data.mkdir(parents=True)
    (tmp_path / "site" / "sklearn" / "__init__.py").touch()
    rng = np.random.default_rng(7)
    shapes = rng.integers(0, 17, (10, 64))
    which = rng.integers(0, 10, 1797)
    images = np.clip(shapes[which] + rng.integers(-3, 4, (1797, 64)), 0, 16)
    with gzip.open(data / "digits.csv.gz", "wt") as file:
        np.savetxt(file, np.column_stack([images, which]), fmt="%d", delimiter=",")
    return tmp_path / "site"


OPTIONS = ("--only", "^digits$", "--backends", "tvm,dnnl", "--search-time", "2")


def test_nets_that_may_be_computed_narrowly_answer_as_well(tmp_path, digits):
    """One of dense layers and one of convolutions, trained here, at the default limit of error."""
    options = ("--only", "^digits", "--backends", "tvm,dnnl,openvino", "--search-time", "4", "--precision", "auto")
    result, rows = trained(sys.executable, tmp_path, *options, PYTHONPATH=str(digits))
    assert result.returncode == 0, result.stdout + result.stderr
    assert [row["model"] for row in rows] == ["digits", "digits-conv"]
    for row in rows:
        assert row["verdict"] == "right" and row["l2_error"] <= 0.02 and row["calibration"] == 3, row
        (question,) = row["questions"]
        assert question["score"] >= question["runtime_score"] - 0.01 and question["runtime_score"] >= 0.9


@placed.needs("dnnl_bf16")
def test_a_net_that_is_computed_narrowly_answers_as_well(tmp_path, digits):
    """Its convolutions, whatever they gain, within the default limit of error."""
    options = ("--only", "^digits-conv", "--backends", "tvm,dnnl", "--search-time", "4", "--precision", "auto")
    pinned = (*options, "--pin", "nn.conv2d=dnnl_bf16")
    result, (row,) = trained(sys.executable, tmp_path, *pinned, PYTHONPATH=str(digits))
    assert result.returncode == 0, result.stdout + result.stderr
    assert row["verdict"] == "right" and row["narrow"] >= 2 and 0 < row["l2_error"] <= 0.02, row
    (question,) = row["questions"]
    assert question["score"] >= question["runtime_score"] - 0.01 and question["runtime_score"] >= 0.9
    assert f"{row['narrow']} narrow, by 3 real inputs" in result.stdout


@placed.needs("openvino_int8")
@pytest.mark.parametrize("method", ["auto", "mse", "min-max", "percentile:99.9", "entropy"])
def test_a_net_in_bytes_answers_as_well_by_each_method(tmp_path, digits, method):
    """All its convolutions in bytes, by scales that were made of digits that it learnt from."""
    options = ("--only", "^digits-conv", "--backends", "tvm,openvino", "--search-time", "4", "--precision", "int8")
    pinned = (*options, "--pin", "nn.conv2d=openvino_int8", "--calibration-method", method)
    result, (row,) = trained(sys.executable, tmp_path, *pinned, PYTHONPATH=str(digits))
    assert result.returncode == 0, result.stdout + result.stderr
    assert row["verdict"] == "right" and row["narrow"] >= 2 and 0 < row["l2_error"] <= 0.02, row
    (question,) = row["questions"]
    assert question["score"] >= question["runtime_score"] - 0.01 and question["runtime_score"] >= 0.9


def test_a_net_is_trained_and_asked(tmp_path, digits):
    result, (row,) = trained(sys.executable, tmp_path, *OPTIONS, PYTHONPATH=str(digits))
    assert result.returncode == 0, result.stdout + result.stderr
    assert row["verdict"] == "right" and row["package"] == "trained here" and row["max_error_share"] < 1e-4
    (question,) = row["questions"]
    assert question["got"] == question["expected"] == "at least 357 right"
    assert result.stdout.rstrip().endswith("1 right")


def test_a_net_that_answers_wrong_is_wrong(tmp_path, digits):
    """Another network under the same name: its outputs are read right, but its answers are none."""
    sys.path.insert(0, SCRIPTS)
    try:
        import onnx
        from onnx import numpy_helper
        from trained import digits as module
    finally:
        sys.path.remove(SCRIPTS)
    made = tmp_path / "made"
    made.mkdir()
    subprocess.run(
        [sys.executable, "-m", module.__name__, str(made / "digits.onnx")],
        check=True,
        env=environment(PYTHONPATH=os.pathsep.join((str(digits), SCRIPTS, environment()["PYTHONPATH"]))),
    )
    proto = onnx.load(made / "digits.onnx")
    (last,) = [one for one in proto.graph.initializer if one.name == "w2"]
    last.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(last), "w2"))
    onnx.save(proto, made / "digits.onnx")
    result, (row,) = trained(sys.executable, tmp_path, *OPTIONS, PYTHONPATH=str(digits))
    assert result.returncode == 1
    assert row["verdict"] == "wrong" and "and it is 'at least 357 right'" in row["why"]


def test_what_is_asked_for_must_be_there(tmp_path):
    result, rows = trained(sys.executable, tmp_path, "--only", "^nothing$")
    assert result.returncode == 1 and not rows
    assert result.stderr.startswith("trained: error: no model is named ^nothing$: magika, text-detection,")


@pytest.mark.long
def test_trained_models_do_what_they_were_trained_for(tmp_path):
    fetched = subprocess.run(
        [str(TREE / "scripts" / "trained.sh")],
        capture_output=True,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    if "no package index could be reached" in fetched.stderr:
        pytest.skip(f"packages with trained models cannot be had here: {fetched.stderr.strip()}")
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    result, rows = trained(TREE / ".venv-trained" / "bin" / "python", tmp_path, "--search-time", "10")
    assert result.returncode == 0, result.stdout + result.stderr
    right = {row["model"] for row in rows if row["verdict"] == "right"}
    assert {"magika", "text-recognition", "speech-step", "notes-onnx", "notes-tflite"} <= right
    assert {"face-near", "face-far", "digits", "digits-conv"} <= right
    narrow = ("--search-time", "10", "--precision", "auto", "--only", "digits|text-direction|magika|face-near")
    result, rows = trained(TREE / ".venv-trained" / "bin" / "python", tmp_path, *narrow)
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(row["verdict"] == "right" for row in rows) and len(rows) == 5
