# SPDX-License-Identifier: Apache-2.0
"""Plans from Python: written, replayed, refused; the options that say how they are searched for."""

import json
import os

import numpy as np
import pytest
from conftest import PACKAGE, SAMPLES, run_python

tvm = pytest.importorskip("tvm")

import collage  # noqa: E402
from collage import transform  # noqa: E402
from tvm import relay  # noqa: E402

pytestmark = pytest.mark.usefixtures("collage_library")


def network(width=16):
    x = relay.var("x", shape=(4, 32))
    w = relay.var("w", shape=(width, 32))
    params = {"w": np.random.default_rng(width).standard_normal((width, 32), dtype="float32")}
    return tvm.IRModule.from_expr(relay.exp(relay.nn.relu(relay.nn.dense(x, w)))), params


def test_a_plan_is_written_and_replayed_without_measuring(tmp_path_factory, tmp_path):
    module, params = network()
    path = tmp_path / "plan.json"
    # To which nobody else writes meanwhile.
    store = tmp_path_factory.mktemp("store") / "costs.jsonl"
    placed = collage.partition(
        module,
        params,
        plan_out=path,
        backends=["tvm", "dnnl"],
        store=store,
        samples=SAMPLES,
        pin="nn.dense=dnnl",
        level="operator",
    )
    plan = json.loads(path.read_text())
    assert plan["collage_plan"] and plan["constraints"] == {"pin": ["nn.dense=dnnl"]}
    measured = store.read_text()
    for given, verify in ((path, True), (str(path), False), (path.read_text(), False), (plan, False)):
        again = collage.replay(module, given, params, verify=verify)
        assert tvm.ir.structural_equal(placed, again)
    assert store.read_text() == measured
    out = collage.compile(module, params, plan=path, out=str(tmp_path / "model.so"), store=store)
    assert os.path.getsize(out) > 0
    assert store.read_text() == measured
    x = np.random.default_rng(3).standard_normal((4, 32), dtype="float32")
    executor = collage.load(out)
    executor.run(x=x)
    expected = np.exp(np.maximum(x @ params["w"].T, 0))
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4)
    with pytest.raises(ValueError, match="it is for another network"):
        collage.compile(module, {"w": params["w"] + 1}, plan=path, out=out)
    with pytest.raises(ValueError, match="it is not readable"):
        collage.compile(module, params, plan="{}", out=out, verify=False)
    assert sorted(os.listdir(tmp_path)) == ["model.so", "plan.json"]


def test_the_level_is_said(store, tmp_path, caplog):
    module, params = network()
    path = tmp_path / "plan.json"
    options = {"backends": ["tvm", "dnnl"], "store": store, "samples": SAMPLES, "rounds": 1, "pin": "nn.dense=dnnl"}
    for level in ("operator", "graph"):
        with caplog.at_level("INFO", logger="collage"):
            placed = collage.partition(module, params, plan_out=path, level=level, trials=3, **options)
        assert f"collage.partition placed at the {level} level" in caplog.text
        assert str(placed.attrs["collage.level"]) == level
        plan = json.loads(path.read_text())
        assert plan["level"] == level
        assert plan.get("notes") or level == "operator", "how many networks were measured"
        again = collage.replay(module, plan, params, verify=False)
        assert str(again.attrs["collage.level"]) == level
        assert tvm.ir.structural_equal(placed, again)
        with tvm.transform.PassContext(opt_level=3):
            assert relay.build(placed, "llvm").get_lib() is not None
    # Who makes the pass gets it, too; plans that are older say nothing of it, and are read as before.
    given = transform.CollagePartition(level="operator", **options)(transform.Normalise()(bound(module, params)))
    assert str(given.attrs["collage.level"]) == "operator"
    del plan["level"]
    old = collage.replay(module, plan, params, verify=False)
    assert not old.attrs or "collage.level" not in old.attrs
    assert str(old["main"]) == str(placed["main"])


def test_a_context_may_leave_the_pass_out(store):
    module, params = network()
    with tvm.transform.PassContext(disabled_pass=["CollagePartition"]):
        placed = collage.partition(module, params, backends=["tvm", "dnnl"], store=store)
    assert not collage.api.compilers(placed)


def bound(module, params):
    return tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(module["main"], params))


def test_what_a_plan_was_made_for_is_looked_at_wherever_it_is_replayed(store, tmp_path, caplog):
    module, params = network()
    path = tmp_path / "plan.json"
    placed = collage.partition(module, params, plan_out=path, only="dnnl", store=store)
    collage.replay(module, path, params, verify=False)
    assert not caplog.records
    plan = json.loads(path.read_text())
    plan["environment"]["device"] = "an abacus"
    for replay in (collage.replay, again_by_pass):
        assert tvm.ir.structural_equal(replay(module, plan, params, verify=False), placed)
        said = caplog.text
        assert "Another placement than the plan's may be faster here: its costs are from an abacus" in said
        caplog.clear()
    plan = json.loads(path.read_text())
    options = plan["environment"]["options"]
    for environment, log, why in (
        (options + " tuned:0123456789abcdef", None, "the plan was made with a tuning log"),
        (options, tmp_path / "nowhere.log", "tuning_log .* cannot be used"),
        ("none", None, "does not say for which optimisation level"),
    ):
        plan["environment"]["options"] = environment
        for replay in (collage.replay, again_by_pass):
            with pytest.raises(ValueError, match=why):
                replay(module, plan, params, verify=False, tuning_log=log)


def again_by_pass(module, plan, params, **options):
    return transform.Replay(plan, **options)(transform.Normalise()(bound(module, params)))


def test_a_plan_for_another_network_is_refused(store, tmp_path):
    module, params = network()
    path = tmp_path / "plan.json"
    collage.partition(module, params, plan_out=path, only="dnnl")
    with pytest.raises(ValueError, match="it is for another network"):
        collage.replay(module, path, {"w": params["w"] + 1})
    with pytest.raises(ValueError, match="cannot be replayed: it is not readable"):
        collage.replay(module, {"collage_plan": 999}, params)
    with pytest.raises(FileNotFoundError):
        collage.replay(module, tmp_path / "nowhere.json", params)


@pytest.mark.fast
def test_unknown_options_are_said():
    with pytest.raises(TypeError, match=r"no option exhaustiv; did you mean exhaustive\?"):
        transform.configuration(exhaustiv=True)
    with pytest.raises(TypeError, match=r"no option zzz \(options: backends, devices, pin,"):
        transform.configuration(zzz=1)
    for function in (transform.CollagePartition, collage.partition, collage.compile):
        with pytest.raises(TypeError, match="exhaustiv"):
            function(network()[0], exhaustiv=True)


def plan_of(module, store, **options):
    text = transform.configuration(
        ["tvm", "dnnl"], store=store, samples=SAMPLES, threads=1, level="operator", **options
    )
    return json.loads(str(tvm.get_global_func("collage.partition")(module, text)[1]))


def test_exhaustive_measures_everything(tmp_path):
    module, params = network(17)
    bound = transform.Normalise()(
        tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(module["main"], params))
    )
    lazy = plan_of(bound, tmp_path / "lazy.jsonl")["candidates"]
    everything = plan_of(bound, tmp_path / "everything.jsonl", exhaustive=True)["candidates"]
    assert everything["bounded"] == 0 and lazy["distinct"] == everything["distinct"] == everything["measured"]
    # With a store that knows nothing: what is known is not bounded anyway.
    with tvm.transform.PassContext(config={"collage.exhaustive": True}):
        asked = plan_of(bound, tmp_path / "asked.jsonl")["candidates"]
    assert asked["bounded"] == 0 and asked["measured"] == asked["distinct"]


VANISHED = """
import json, os, sys
import tvm, collage
from collage import transform
from tvm import relay
x = relay.var("x", shape=(1, 8, 14, 14))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(x)))
text = transform.configuration(["tvm", "dnnl"], store=sys.argv[1], samples=3, threads=1, exhaustive=True)
config = {"collage.skip_unusable": True} if len(sys.argv) > 2 else {}
try:
    with tvm.transform.PassContext(config=config):
        plan = json.loads(str(tvm.get_global_func("collage.partition")(module, text)[1]))
    print(json.dumps([[b["name"], b.get("unusable", "")] for b in plan["backends"]]))
except ValueError as error:
    print(json.dumps(str(error).splitlines()[-1]))
"""


def test_a_library_that_was_here_is_left_out_and_one_that_never_was_is_an_error(tmp_path):
    plugins, bare = tmp_path / "plugins", tmp_path / "bare"
    real = os.environ.get("COLLAGE_PLUGIN_DIR") or PACKAGE / "lib"
    for folder in (plugins, bare):
        folder.mkdir()
        for file in os.listdir(real):
            if folder is plugins or file == "libcollage_runtime.so":
                os.symlink(os.path.join(real, file), folder / file)
    store, empty = tmp_path / "costs.jsonl", tmp_path / "empty.jsonl"
    assert run_python(VANISHED, store, COLLAGE_PLUGIN_DIR=plugins) == [["tvm", ""], ["dnnl", ""]]
    told = run_python(VANISHED, empty, COLLAGE_PLUGIN_DIR=bare)
    assert 'backend "dnnl" cannot be used here' in told
    left = dict(run_python(VANISHED, store, COLLAGE_PLUGIN_DIR=bare))
    assert "dnnl" in left["dnnl"] and left["tvm"] == ""
    left = dict(run_python(VANISHED, empty, "skip", COLLAGE_PLUGIN_DIR=bare))
    assert left["dnnl"]


def test_the_warning_of_a_vanished_library_is_loud(tmp_path, command):
    """On the command line too the search goes on; the warning names the backend."""
    model = tmp_path / "model.relay"
    model.write_text(tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4, 8)))).astext())
    real = os.environ.get("COLLAGE_PLUGIN_DIR") or PACKAGE / "lib"
    bare = tmp_path / "bare"
    bare.mkdir()
    os.symlink(os.path.join(real, "libcollage_runtime.so"), bare / "libcollage_runtime.so")
    plan = ["plan", model, "--backends", "tvm,dnnl", "--db", tmp_path / "db.jsonl", "--exhaustive"]
    done = command(*plan)
    assert done.returncode == 0, done.stderr
    done = command(*plan, environment={"COLLAGE_PLUGIN_DIR": bare})
    assert done.returncode == 0, done.stderr
    assert 'warning: the backend "dnnl" was measured before' in done.stderr
    assert "dnnl was left out" in done.stdout
    done = command(*plan[:-3], "--db", tmp_path / "new.jsonl", environment={"COLLAGE_PLUGIN_DIR": bare})
    assert done.returncode != 0 and "--skip-unusable" in done.stderr
