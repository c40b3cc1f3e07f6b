# SPDX-License-Identifier: Apache-2.0
"""--dry-run says what would be done, and does none of it."""

import json

import pytest
from conftest import SAMPLES
from test_json import small_network


@pytest.fixture
def dry(command, tmp_path):
    """dry("compile", ...): what a command says that it would do, as JSON, in a folder that stays as it was."""
    folder = tmp_path / "work"
    folder.mkdir()
    small_network(folder / "small.onnx")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def ask(name, *arguments, code=0, **options):
        out = ("-o", "model.tar") if name == "compile" else ()
        done = command(name, "small.onnx", *out, *arguments, "--dry-run", "--json", "-q", cwd=folder, **options)
        assert done.returncode == code, done.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        return json.loads(done.stdout) if code == 0 else done.stderr

    return ask


def test_it_says_what_there_is_to_decide(dry, tmp_path):
    told = dry("compile", "--backends", "tvm,dnnl", "--db", "costs.jsonl", "--threads", 1, "--search-time", "90s",
               "--plan-out", "plan.json", "--target", "x86-64-v3")  # fmt: skip
    assert told["dry_run"] is True and told["model_info"]["format"] == "onnx"
    assert told["would_write"] == ["model.tar", "plan.json"]
    assert (told["level"], told["search_time_s"], told["threads"]) == ("graph", 90, 1)
    assert "-mcpu=x86-64-v3" in told["target"] and told["import_check"] is True
    tvm, dnnl = told["backends"]
    assert (tvm["name"], dnnl["name"]) == ("tvm", "dnnl") and dnnl["library"].startswith("oneDNN")
    assert tvm["operators"] == told["operators_to_place"] > dnnl["operators"] >= 2
    assert told["computations"] == tvm["computations"] + dnnl["computations"] > 3
    assert told["store"] == {"path": "costs.jsonl", "found": False} and told["computations_known"] == 0
    assert dry("compile", "--no-check-import", "--level", "operator", "--db", "costs.jsonl")["import_check"] is False


def test_it_says_what_the_store_knows(dry, command, tmp_path):
    store = tmp_path / "costs.jsonl"
    model = small_network(tmp_path / "small.onnx")
    done = command("plan", model, "--backends", "tvm,dnnl", "--exhaustive", "--db", store,
                   "--repeat", SAMPLES, "--threads", 1, "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    content = store.read_bytes()
    known = dry("compile", "--backends", "tvm,dnnl", "--db", store, "--threads", 1)
    assert 0 < known["computations_known"] <= known["computations"]
    other = dry("compile", "--backends", "tvm,dnnl", "--db", store, "--threads", 2)
    assert other["computations_known"] == 0, "costs are those of one number of threads"
    assert store.read_bytes() == content


def test_what_would_fail_fails(dry):
    assert "selects nothing in this network" in dry("compile", "--pin", "nn.lstm=dnnl", code=2)
    assert "cannot write nowhere/p" in dry("compile", "--plan-out", "nowhere/p", code=2)
    assert "TVM does not know the target" in dry("compile", "--target", "abacus", code=2)


def test_a_plan_that_would_be_decided(dry):
    told = dry("plan", "--plan-out", "plan.json", "--db", "costs.jsonl")
    assert told["level"] == "operator" and told["would_write"] == ["plan.json"]
    assert dry("plan", "--frontier", "--db", "costs.jsonl")["level"] == "graph"


def test_a_plan_that_would_be_built(dry, command, tmp_path):
    model = small_network(tmp_path / "small.onnx")
    done = command("plan", model, "--plan-out", tmp_path / "plan.json", "--repeat", SAMPLES, "--pin", "nn.conv2d=dnnl",
                   "--db", tmp_path / "costs.jsonl", "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = dry("compile", "--plan", tmp_path / "plan.json")
    assert told["plan"] == str(tmp_path / "plan.json") and told["level"] == "" and told["search_time_s"] == 0
    assert sum(one["operators"] for one in told["backends"]) == told["operators_to_place"]
    assert "dnnl" in {one["name"] for one in told["backends"]}
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["module"]["hash"] = "0" * len(plan["module"]["hash"])
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert "the plan cannot be replayed" in dry("compile", "--plan", tmp_path / "plan.json", code=2)


def test_as_text(command, tmp_path):
    model = small_network(tmp_path / "small.onnx")
    done = command("compile", model, "-o", tmp_path / "model.so", "--backends", "tvm,dnnl", "--dry-run", "-q",
                   "--db", tmp_path / "costs.jsonl")  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    assert "input x float32 [1, 3, 16, 16]" in done.stdout
    assert f"none is known: there is no store yet at {tmp_path / 'costs.jsonl'}" in done.stdout
    assert done.stdout.endswith(
        f"Would write {tmp_path / 'model.so'}. This was a dry run: nothing was measured or written.\n"
    )
