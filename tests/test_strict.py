# SPDX-License-Identifier: Apache-2.0
"""--strict: what is a warning otherwise ends a command with an exit code of its own, and nothing is written."""

import json
import shutil

import numpy as np
import pytest
from conftest import PACKAGE, SAMPLES
from test_json import small_network
from test_witness import network

STRICT = 3


@pytest.fixture
def model(tmp_path):
    return small_network(tmp_path / "small.onnx")


@pytest.fixture
def refused(command, model, tmp_path, store):
    """refused(*arguments): what compile says of the small network with --strict, which ends it."""

    def ask(*arguments, network=model, **options):
        out = tmp_path / "model.tar"
        fixed = ("-o", out, "--strict", "-q", "--repeat", SAMPLES, "--rounds", 2)
        if "--db" not in arguments:
            fixed += ("--db", store)
        done = command("compile", network, *arguments, *fixed, **options)
        assert done.returncode == STRICT, (done.stdout, done.stderr)
        assert not out.exists() and done.stdout == ""
        assert done.stderr.startswith("collage: error: ") and "strict: " in done.stderr
        return done.stderr

    return ask


@pytest.fixture
def without_dnnl(tmp_path):
    """An environment in which oneDNN's plug-in is not there."""
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    shutil.copy(PACKAGE / "lib" / "libcollage_runtime.so", plugins)
    return {"COLLAGE_PLUGIN_DIR": plugins}


def test_a_backend_is_not_left_out(refused, command, model, without_dnnl, tmp_path):
    asked = ("--backends", "tvm,dnnl", "--skip-unusable", "--db", tmp_path / "costs.jsonl")
    said = refused(*asked, environment=without_dnnl)
    assert "dnnl cannot be used: runtime plug-in libcollage_dnnl.so not found" in said
    dry = command("compile", model, *asked, "-o", tmp_path / "x.tar", "--dry-run", environment=without_dnnl)
    assert dry.returncode == 0 and "dnnl would be left out: runtime plug-in" in dry.stdout, dry.stderr


def test_tuning_leaves_no_backend_out(command, model, without_dnnl, tmp_path):
    asked = ("tune", model, "-o", tmp_path / "log.json", "--backends", "tvm,dnnl", "--skip-unusable", "--trials", 1)
    done = command(*asked, "--strict", "--db", tmp_path / "costs.jsonl", environment=without_dnnl)
    assert done.returncode == STRICT and "strict: --backends: dnnl cannot be used" in done.stderr, done.stderr
    assert not (tmp_path / "log.json").exists()


def test_an_option_without_effect(refused, command, model, tmp_path):
    said = refused("--level", "operator", "--trials", "3", "--backends", "tvm")
    assert "strict: trials: no effect, since the operator level places once" in said
    told = command("compile", model, "--level", "operator", "--trials", "3", "-o", tmp_path / "x.tar", "--dry-run")
    assert told.returncode == 0, told.stderr


def test_what_the_configuration_says_is_no_wish(command, model, tmp_path):
    """collage.yaml is for many commands: what has no effect in one of them was not asked for."""
    (tmp_path / "collage.yaml").write_text("trials: 3\nstrict: true\n")
    told = command("compile", model, "--level", "operator", "-o", "x.tar", "--dry-run", cwd=tmp_path)
    assert told.returncode == 0, told.stderr


def test_errors_on_random_inputs(refused, model, tmp_path):
    assert "strict: how far the outputs are off would be found on random inputs" in refused("--max-error", "0.01")
    np.savez(tmp_path / "inputs.npz", x=np.zeros((4, 1, 3, 16, 16), "float32"))
    again = refused(
        "--max-error", "0.01", "--calibration", tmp_path / "inputs.npz", "--level", "operator", "--trials", 1
    )
    assert "random inputs" not in again and "trials" in again


def test_an_import_that_nothing_was_held_against(refused, tmp_path):
    network(tmp_path / "drawn.onnx", "Bernoulli", seed=1.0)
    said = refused("--backends", "tvm,dnnl", "--search-time", "20s", network=tmp_path / "drawn.onnx")
    assert "strict: whether TVM read the model right was not checked: it draws random numbers (Bernoulli)" in said


def test_a_plan_of_another_machine(refused, command, model, store, tmp_path):
    done = command("plan", model, "--plan-out", tmp_path / "plan.json", "--db", store, "--repeat", SAMPLES, "-q")
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["environment"]["device"] = "another processor"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    out = tmp_path / "model.tar"
    done = command("compile", model, "--plan", tmp_path / "plan.json", "-o", out, "--strict", "-q")
    assert done.returncode == STRICT and "strict: " in done.stderr and "another processor" in done.stderr
    assert not out.exists()
    done = command("compile", model, "--plan", tmp_path / "plan.json", "-o", out, "--no-verify", "-q")
    assert done.returncode == 0 and out.exists(), done.stderr


def test_what_is_as_asked_for_is_compiled(command, model, store, tmp_path):
    done = command("compile", model, "-o", tmp_path / "model.tar", "--strict", "--db", store, "--level", "operator",
                   "--repeat", SAMPLES, "--rounds", 2, "-q")  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = command("plan", model, "--strict", "--db", store, "--repeat", SAMPLES, "-q")
    assert done.returncode == 0, done.stderr


def test_from_python(collage_library, store):
    import collage
    import tvm
    from tvm import relay

    x = relay.var("x", shape=(4, 8))
    module = tvm.IRModule.from_expr(relay.nn.relu(relay.exp(x)))
    with pytest.raises(ValueError, match="strict: trials: no effect, since the operator level places once"):
        collage.partition(module, level="operator", trials=2, strict=True, store=store)
    with pytest.raises(ValueError, match="strict: backends: no effect"):
        collage.compile(module, backends=["tvm", "dnnl"], only="dnnl", strict=True)
    with pytest.raises(ValueError, match="found on random inputs"):
        collage.compile(module, out="never.so", max_error=0.1, strict=True)
    with (
        tvm.transform.PassContext(config={"collage.strict": True}),
        pytest.raises(ValueError, match="strict: trials"),
    ):
        collage.partition(module, level="operator", trials=2, store=store)
    assert collage.partition(module, only="dnnl", strict=True) is not None
    plan = json.loads(collage.compile(module, only="dnnl").plan.text)
    plan["environment"]["device"] = "another processor"
    assert collage.replay(module, plan, verify=False) is not None
    with pytest.raises(ValueError, match=r"strict: .*another processor"):
        collage.replay(module, plan, verify=False, strict=True)
