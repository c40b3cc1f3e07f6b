# SPDX-License-Identifier: Apache-2.0
"""Plans on the command line: decided, repeated, explained, compared, tampered with, built again.

And the store of costs that they come from.
"""

import hashlib
import json
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import tvm
from conftest import run_python
from onnx import TensorProto, helper, numpy_helper
from tvm import relay

# The same plan so many times.
RUNS = 20

# Decides the plan of one file RUNS times in one process, writes one, and prints how many different ones came out.
REPEATED = """
import json, sys
from pathlib import Path
import tvm
from collage import frontends, library, transform
model, store, runs, written = sys.argv[1:]
library.load()
module = transform.Normalise()(frontends.load(model).module)
configuration = transform.configuration(backends=["tvm", "dnnl", "native"], store=store, samples=3)
decide = tvm.get_global_func("collage.place")
decide(module, configuration)  # by parts alone, of which the command has not measured all
plans = {str(decide(module, configuration)[1]) for _ in range(int(runs))}
Path(written).write_text(min(plans))
measured = [json.loads(plan)["candidates"]["measured"] for plan in plans]
print(json.dumps({"plans": len(plans), "measured": sum(measured)}))
"""


def network(path):
    """Two convolutions with a residual sum, and a classifier."""
    rng = np.random.default_rng(4)
    shapes = {"w": (8, 8, 3, 3), "b": (8,), "v": (10, 8 * 16 * 16), "c": (10,)}
    values = {name: rng.standard_normal(shape, dtype=np.float32) * 0.1 for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv1"], ["relu1"]),
        helper.make_node("Conv", ["relu1", "w", "b"], ["conv2"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["conv2", "relu1"], ["sum"]),
        helper.make_node("Flatten", ["sum"], ["flat"]),
        helper.make_node("Gemm", ["flat", "v", "c"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def decided(command, tmp_path_factory):
    """A folder with net.onnx, its store and its plan: first.json was measured for, plan.json was not."""
    folder = tmp_path_factory.mktemp("plan")
    network(folder / "net.onnx")
    reports = []
    for name in ("first.json", "plan.json"):
        result = command(
            "plan", folder / "net.onnx", "--db", folder / "store.jsonl", "--repeat", 3, "-q", "--json",
            "--plan-out", folder / name,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        reports.append(json.loads(result.stdout))
    return SimpleNamespace(folder=folder, plan=folder / "plan.json", reports=reports)


@pytest.fixture(scope="module")
def by_parts(decided):
    """The plan that is decided by parts alone, and what REPEATED said."""
    plan, store = (decided.folder / f"by_parts.{kind}" for kind in ("json", "jsonl"))
    shutil.copy(decided.folder / "store.jsonl", store)
    return SimpleNamespace(plan=plan, said=run_python(REPEATED, decided.folder / "net.onnx", store, RUNS, plan))


def ok(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_second_plan_measures_nothing(decided):
    first, second = (report["report"]["candidates"] for report in decided.reports)
    assert first["measured"] > 0
    assert second["measured"] == 0
    assert second["stored"] >= first["measured"]
    # One computation stands at many places and is counted once.
    origins = ("measured", "stored", "given", "in_place", "bounded", "unknown")
    assert sum(first.get(origin, 0) for origin in origins) == first["distinct"]
    plan = json.loads(decided.plan.read_text())
    assert "finalists" not in plan
    # It is the cheapest by what parts took in place in plain TVM and in every backend alone.
    assert {"tvm", "dnnl", "native"} <= {network["name"] for network in plan["graph_level"]["networks"]}
    believed = plan["graph_level"]["believed"]
    assert believed["gap_ms"] <= 0.01 * believed["total_ms"]
    assert decided.reports[1]["report"]["placed_by"]["in_place"] > 0


def test_the_same_plan_every_time(decided, by_parts, command):
    again = decided.folder / "again.json"
    model, store = decided.folder / "net.onnx", decided.folder / "store.jsonl"
    ok(command("plan", model, "--db", store, "--repeat", 3, "-q", "--plan-out", again))
    assert again.read_bytes() == decided.plan.read_bytes()
    assert by_parts.said == {"plans": 1, "measured": 0}


def test_explain_and_diff_need_neither_tvm_nor_python(decided, by_parts, command):
    def alone(*arguments):
        return command(*arguments, environment={"COLLAGE_PYTHON": "/nowhere/python", "PYTHONPATH": ""})

    assert "the proof checks" in ok(alone("explain", "--verify", decided.plan))
    # By parts alone something always is; where borders decided, nobody says by how much.
    assert "closest to being taken" in ok(alone("explain", by_parts.plan))
    convolutions = json.loads(ok(alone("explain", decided.plan, "nn.conv2d", "--json")))["explanations"]
    assert sum(len(e["selected"]) for e in convolutions) == 2
    assert all(e["others"] for e in convolutions)
    node = convolutions[0]["selected"][0]
    assert f"nn.conv2d %{node} of main is on " in ok(alone("explain", decided.plan, f"%{node}"))
    difference = json.loads(ok(alone("diff", decided.folder / "first.json", decided.plan, "--json")))
    assert difference["identical_placement"]
    assert difference["moves"] == difference["costs"] == []

    tampered = json.loads(decided.plan.read_text())
    loser = max(tampered["candidates"]["rejected"], key=lambda r: r["estimate_ms"] - r["slack_ms"])
    assert loser["estimate_ms"] - loser["slack_ms"] > 0, "its nodes cost something"
    loser["estimate_ms"] = 0
    changed = decided.folder / "tampered.json"
    changed.write_text(json.dumps(tampered))
    result = alone("explain", "--verify", changed)
    assert result.returncode == 2
    assert "the proof does not check" in result.stderr


def test_where_nothing_stands_against_it_compile_decides_what_plan_does(decided, command, tmp_path):
    model, store = decided.folder / "net.onnx", shutil.copy(decided.folder / "store.jsonl", tmp_path / "store.jsonl")
    bound = ("--db", store, "--repeat", 3, "-q", "--pin", "nn.dense=tvm", "--plan-out")
    ok(command("plan", model, *bound, tmp_path / "first.json"))
    ok(command("plan", model, *bound, tmp_path / "plan.json"))
    ok(
        command(
            "compile",
            model,
            "--level",
            "operator",
            "--rounds",
            1,
            "-o",
            tmp_path / "a.tar",
            *bound,
            tmp_path / "b.json",
        )
    )
    compiled = json.loads((tmp_path / "b.json").read_text())
    assert [finalist["name"] for finalist in compiled["finalists"]] == ["tvm", "collage"]
    planned = json.loads((tmp_path / "plan.json").read_text())
    assert placed_last(compiled)["regions"] == outlined(planned)
    assert compiled["level"] == planned["level"] == "operator"


def placed_last(compiled):
    """What the operator level placed and ran; what was kept may be another network."""
    return compiled["graph_level"]["steps"][-1]


def outlined(plan):
    """How many regions a plan has outside of TVM."""
    return sum("symbol" in region for region in plan["regions"])


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_plan_is_built_without_measuring(decided, command, tmp_path):
    """What collage compile writes down is what it kept; --plan builds it again, and computes the same."""
    model, store = decided.folder / "net.onnx", decided.folder / "store.jsonl"
    ok(command("compile", model, "--db", store, "--repeat", 3, "--rounds", 2, "-q", "-o", tmp_path / "a.tar",
               "--level", "operator", "--plan-out", tmp_path / "compiled.json"))  # fmt: skip
    compiled = json.loads((tmp_path / "compiled.json").read_text())
    finalists = {finalist["name"]: finalist for finalist in compiled["finalists"]}
    chosen = [name for name, finalist in finalists.items() if finalist.get("chosen")]
    assert placed_last(compiled)["regions"] == outlined(json.loads(decided.plan.read_text()))
    assert finalists[chosen[0]]["regions"] == outlined(compiled)

    before = digest(store)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(5).standard_normal((1, 8, 16, 16), dtype=np.float32))
    built = [tmp_path / "a.tar"]
    for plan, kept in ((decided.plan, "collage"), (tmp_path / "compiled.json", chosen[0])):
        out, copy = tmp_path / f"{plan.stem}.tar", tmp_path / f"{plan.stem}.copy.json"
        given = ("--plan", plan, "--db", store, "-o", out, "--plan-out", copy, "--json")
        result = command("compile", model, *given)
        report = json.loads(ok(result))
        assert ("to compare with" in result.stderr) == (outlined(json.loads(plan.read_text())) > 0)
        assert report["chosen"] == kept
        assert copy.read_bytes() == plan.read_bytes()
        built.append(out)
    assert digest(store) == before
    results = []
    for number, path in enumerate(built):
        outputs = tmp_path / f"{number}.npz"
        ok(command("run", path, "--inputs", tmp_path / "x.npz", "--outputs", outputs, "--repeat", 1))
        with np.load(outputs) as arrays:
            results.append(arrays["output_0"])
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-4, atol=1e-5)


def test_a_plan_with_a_candidate_that_fails_here_is_refused(decided, command, tmp_path):
    model, made, costs = decided.folder / "net.onnx", tmp_path / "plan.json", tmp_path / "costs.jsonl"
    ok(command("plan", model, "--db", costs, "--repeat", 3, "-q", "--exhaustive", "--pin", "nn.conv2d=dnnl",
               "--plan-out", made))  # fmt: skip
    plan = json.loads(made.read_text())
    outside = [region for region in plan["regions"] if "symbol" in region]
    parts = {(part["key"], part["composite"]): part for region in outside for part in region["candidates"]}
    records = [json.loads(line) for line in costs.read_text().splitlines()]
    named = {(one["key"]["structure"], one["key"].get("composite")): one for one in records}
    found = sorted(parts.keys() & named.keys())
    assert found, "what was placed was measured"
    part, record = parts[found[0]], named[found[0]]
    record.pop("samples_ms", None)
    record["failure"] = {"phase": "check", "kind": "wrong-result", "detail": "by 3"}
    store = tmp_path / "failed.jsonl"
    store.write_text(json.dumps(record) + "\n")
    given = ("compile", model, "--plan", made, "--db", store, "-q", "-o", tmp_path / "a.tar")
    result = command(*given)
    assert result.returncode == 2
    assert f"{part['composite']} on {record['key']['backend']} at %" in result.stderr
    assert "is known to fail here: wrong-result in check: by 3" in result.stderr
    assert not (tmp_path / "a.tar").exists()
    quickly = command(*[each for each in given if each != "-q"], "--retry-failures", "--no-verify")
    ok(quickly)
    assert "to compare with" not in quickly.stderr
    assert command("compile", model, "--no-verify", "-o", tmp_path / "b.tar").returncode == 2


def test_a_plan_of_another_network_is_refused(decided, command, tmp_path):
    result = command("compile", "workload:dcgan", "--plan", decided.plan, "-o", tmp_path / "x.tar", "-q")
    assert result.returncode == 2
    assert "it is for another network" in result.stderr
    assert not (tmp_path / "x.tar").exists()


def test_pins_and_prohibitions(decided, command):
    store = shutil.copy(decided.folder / "store.jsonl", decided.folder / "pinned.jsonl")

    def plan(*flags, name="pinned.json"):
        return command("plan", decided.folder / "net.onnx", "--db", store, "--repeat", 3, "-q",
                       "--plan-out", decided.folder / name, *flags)  # fmt: skip

    ok(plan("--pin", "nn.dense=tvm", "--forbid", "nn.conv2d=tvm"))
    written = json.loads((decided.folder / "pinned.json").read_text())
    assert written["constraints"] == {"pin": ["nn.dense=tvm"], "forbid": ["nn.conv2d=tvm"]}
    where = {
        node["operator"]: region["backend"]
        for region in written["regions"]
        for part in region["candidates"]
        for node in part["nodes"]
    }
    assert where["nn.dense"] == "tvm"
    # Costs say whether oneDNN has it, one of our kernels, or both what stands there.
    assert set(where["nn.conv2d"].split("+")) <= {"dnnl", "native"}
    assert "the proof checks" in ok(command("explain", "--verify", decided.folder / "pinned.json"))

    for flags, want in (
        (("--pin", "nn.lstm=dnnl"), "selects nothing in this network: its operators are "),
        (
            ("--backends", "tvm,dnnl_tvm", "--pin", "nn.batch_flatten=dnnl_tvm"),
            "no candidate on dnnl_tvm covers %",
        ),
        (("--pin", "nn.dense=dnnl", "--pin", "nn.dense=tvm"), "contradicts another pin"),
    ):
        result = plan(*flags, name="none.json")
        assert result.returncode == 2
        assert want in result.stderr
        assert "Traceback" not in result.stderr
        assert not (decided.folder / "none.json").exists()


def test_the_store_is_looked_after(decided, command, tmp_path):
    store = decided.folder / "store.jsonl"
    costs = json.loads(ok(command("db", "ls", "--db", store, "--json")))["costs"]
    assert any("nn.conv2d" in entry.get("computation", "") for entry in costs)
    merged = tmp_path / "merged.jsonl"
    ok(command("db", "merge", store, store, "-o", merged))
    assert json.loads(ok(command("db", "verify", "--db", merged, "--json")))["costs"] == len(costs)
    ok(command("db", "prune", "--db", merged, "--backend", "dnnl"))
    left = json.loads(ok(command("db", "ls", "--db", merged, "--json")))["costs"]
    assert 0 < len(left) < len(costs)
    assert all(entry["backend"] != "dnnl" for entry in left)
    with merged.open("ab") as file:
        file.write(merged.read_bytes()[:50])
    assert command("db", "verify", "--db", merged).returncode == 2
    ok(command("db", "verify", "--repair", "--db", merged))
    ok(command("db", "verify", "--db", merged))
    rows = ok(command("db", "export", "--db", merged)).splitlines()
    assert len(rows) == len(left) + 1


def test_explain_with_an_empty_environment(decided, command):
    """The standalone program reads plans wherever it stands."""
    binary = command("version").args[0]
    result = subprocess.run(
        [binary, "explain", "--verify", str(decided.plan)], capture_output=True, text=True, env={}, cwd="/"
    )
    assert result.returncode == 0, result.stderr


def test_a_plan_of_what_tvm_cannot_build_is_made_of_its_parts(command, tmp_path):
    """Plain TVM is not built, so no whole network runs; by its parts it is known which operator is in the way."""
    x = relay.var("x", shape=(1, 4, 8, 8))
    weights = relay.const(np.ones((4, 2, 3, 3), "float32"))
    dilated = relay.nn.conv2d_transpose(x, weights, channels=2, kernel_size=(3, 3), dilation=(2, 2))
    model = tmp_path / "dilated.relay"
    model.write_text(relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(dilated))).astext())
    found = command("plan", model, "--backends", "tvm,dnnl", "--db", tmp_path / "costs.jsonl", "--repeat", 1, "-q")
    assert found.returncode == 2
    assert "nobody takes 1 of its operators:\n  nn.conv2d_transpose" in found.stderr
