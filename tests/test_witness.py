# SPDX-License-Identifier: Apache-2.0
"""What TVM read of a file is what another engine makes of it, or compiling ends with the operator that is not."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import onnx
import onnx_networks
import pytest
import schemas
from collage import check, frontends, witness
from conftest import SAMPLES, environment
from onnx import TensorProto, helper, numpy_helper
from placed import usable

# A converter that is wrong, which a user's module brings in.
WRONG = """
from collage.onnx_reader import table
from tvm import relay

@table.converter("Elu")
def elu(inputs, attrs, params):
    return relay.nn.relu(inputs[0])
"""
LAYERS = 6


def network(path, activation="Elu", **attributes):
    """Convolutions, and behind the fourth of them another activation than behind the others."""
    rng = np.random.default_rng(13)
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        shape = (8, 8 if i else 3, 3, 3)
        weights.append(numpy_helper.from_array((0.2 * rng.standard_normal(shape)).astype("float32"), f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"conv{i}"], pads=[1, 1, 1, 1]))
        kind = {"op_type": activation, **attributes} if i == 3 else {"op_type": "Relu"}
        nodes.append(helper.make_node(inputs=[f"conv{i}"], outputs=[f"act{i}"], **kind))
        last = f"act{i}"
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, 8, 8, 8])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), str(path))


@pytest.fixture
def compiled(command, tmp_path):
    """A function that compiles a network of tmp_path with a few options, in the environment that it is given."""

    def run(*options, environment=None, level="graph", backends="tvm,dnnl"):
        limits = ("--search-time", "3s", "--trials", 2) if level == "graph" else ()
        return command(
            "compile", "net.onnx", "--backends", backends, "-o", "net.tar", "--db", tmp_path / "costs.jsonl", "-q",
            "--level", level, *limits, "--repeat", SAMPLES, "--rounds", 1, "--json", *options,
            cwd=tmp_path, environment=environment or {},
        )  # fmt: skip

    return run


def paths(folder):
    return os.pathsep.join((environment()["PYTHONPATH"], str(folder)))


def imported(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["import_check"]


def test_doubt_is_a_share_of_the_greatest_of_all_outputs():
    """So is what networks may be off by then: a large share of a small output is hardly anything of a large one."""
    large, small, words = np.array([100.0, -1000.0], "float32"), np.array([1.0, np.inf], "float32"), np.array([7])
    off = [large, small + np.float32(1e-3), words + 1]
    assert check.doubt(off, [large, small, words]) == pytest.approx(1e-6, rel=1e-3)
    assert check.witnessed(off[:2], [large, small], False)[0] == pytest.approx(1e-3, rel=1e-3)
    assert check.doubt([large + 1, small, words], [large, small, words]) == pytest.approx(1e-3)
    assert check.doubt([words + 1], [words]) == 0
    assert check.doubt([0 * large], [0 * large]) == 0


@pytest.mark.parametrize("checked", [True, False])
def test_networks_may_be_as_far_off_as_plain_tvm_is(compiled, command, tmp_path, checked):
    """TVM adds a million numbers one after the other: it is the one that is off, and another engine knows."""
    if "onnxruntime" not in usable():
        pytest.skip("the onnxruntime backend is not usable here")
    nodes = [
        onnx_networks.node("Add", ["x", "three"], ["y"]),
        onnx_networks.node("GlobalAveragePool", ["y"], ["mean"]),
        onnx_networks.node("Add", ["mean", "less"], ["out"]),
    ]
    inside = onnx_networks.weights(three=np.array([3], "float32"), less=np.array([-2.7], "float32"))
    sizes = onnx_networks.values(x=[1, 3, 1000, 1000]), onnx_networks.values(out=[1, 3, 1, 1])
    onnx_networks.write(tmp_path / "net.onnx", nodes, *sizes, inside)
    unchecked = () if checked else ("--no-check-import",)
    result = compiled(*unchecked, "--plan-out", "plan.json", backends="tvm,onnxruntime")
    networks = json.loads(result.stdout)["report"]["graph_level"]["networks"]
    failures = [one["failure"] for one in networks if "failure" in one]
    assert len(networks) == 2
    assert bool(failures) != checked, networks
    plan = schemas.parsed((tmp_path / "plan.json").read_text())
    schemas.hold("files/plan", plan)
    assert ("doubt" in plan) == checked
    if checked:
        assert 1e-5 < plan["doubt"] < 1e-3
        replayed = command("compile", "net.onnx", "--plan", "plan.json", "-o", "again.tar", "-q", cwd=tmp_path)
        assert replayed.returncode == 0, replayed.stderr


# A module that has the search for the operator fail.
FAILS = """
from collage import difference

def compared(*_):
    raise RuntimeError("no room for the search")

difference._compared = compared
"""


def test_why_no_operator_is_named(compiled, tmp_path):
    network(tmp_path / "net.onnx")
    (tmp_path / "wrong_elu.py").write_text(WRONG)
    (tmp_path / "no_search.py").write_text(FAILS)
    result = compiled(environment={"COLLAGE_REGISTER": "wrong_elu,no_search", "PYTHONPATH": paths(tmp_path)})
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.count("\n") == 1
    assert "TVM computes something else than ONNX Runtime " in result.stderr
    assert "Which operator is the first that differs could not be found: " in result.stderr
    assert "no room for the search. --no-check-import" in result.stderr


def test_of_what_torch_export_saves_the_onnx_is_searched(tmp_path, monkeypatch):
    """PyTorch, which is not here, writes it as ONNX: for the test a copy of one."""
    import shutil

    from collage import apart, difference

    network(tmp_path / "net.onnx")
    (tmp_path / "net.pt2").write_bytes(b"")

    def run(name, source, target, **_):
        assert (name, source) == ("pt2", str(tmp_path / "net.pt2"))
        shutil.copy(tmp_path / "net.onnx", target)
        return subprocess.CompletedProcess([], 0, "", "")

    monkeypatch.setattr(apart, "run", run)
    assert difference.first(tmp_path / "net.pt2", None, None, form="pt2") is None
    from collage.onnx_reader import table

    monkeypatch.setitem(table._OURS, "Elu", [(1, lambda inputs, attrs, params: inputs[0])])
    found = difference.first(tmp_path / "net.pt2", None, None, form="pt2")
    assert (found["operator"], found["makes"]) == ("Elu", "act3")


LEVELS = ["graph", pytest.param("operator", marks=pytest.mark.long)]


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_read_right(compiled, tmp_path, level):
    network(tmp_path / "net.onnx")
    agreement = imported(compiled(level=level))
    assert agreement["engine"].startswith("ONNX Runtime ")
    assert 0 <= agreement["max_error_share"] < 1e-4 and "unchecked" not in agreement


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_read_wrong_is_not_compiled(compiled, tmp_path, level):
    network(tmp_path / "net.onnx")
    (tmp_path / "wrong_elu.py").write_text(WRONG)
    wrong = {"COLLAGE_REGISTER": "wrong_elu", "PYTHONPATH": paths(tmp_path)}
    result = compiled(environment=wrong, level=level)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.count("\n") == 1
    assert "net.onnx: TVM computes something else than ONNX Runtime " in result.stderr
    assert "The first operator that differs is the Elu that makes act3: it differs in " in result.stderr
    assert "--no-check-import" in result.stderr
    assert not (tmp_path / "net.tar").exists()

    assert imported(compiled("--no-check-import", environment=wrong, level=level)) is None
    assert (tmp_path / "net.tar").exists()


@pytest.mark.long
def test_a_plan_is_built_of_what_is_read_right(compiled, command, tmp_path):
    network(tmp_path / "net.onnx")
    imported(compiled("--plan-out", "plan.json", level="operator"))
    (tmp_path / "wrong_elu.py").write_text(WRONG)
    replay = ("compile", "net.onnx", "--plan", "plan.json", "-o", "again.tar", "--db", tmp_path / "costs.jsonl", "-q")
    agreement = imported(command(*replay, "--no-verify", "--json", cwd=tmp_path))
    assert agreement["engine"].startswith("ONNX Runtime ") and agreement["max_error_share"] < 1e-4
    network(tmp_path / "net.onnx", "ThresholdedRelu", alpha=5.0)  # a plan holds for a network's shapes and operators
    other = command(*replay, cwd=tmp_path)
    assert other.returncode == 2 and "TVM computes" not in other.stderr


def test_without_onnxruntime_the_reference_evaluator_answers(compiled, tmp_path):
    network(tmp_path / "net.onnx")
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('not here')\n")
    first = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    agreement = imported(compiled(environment={"PYTHONPATH": first}))
    assert agreement["engine"] == f"onnx {onnx.__version__}'s reference evaluator"
    assert agreement["max_error_share"] < 1e-4


# An engine that is wrong.
ERRS = """
import enum
import numpy as np
__version__ = "0.1"
GraphOptimizationLevel = enum.Enum("GraphOptimizationLevel", ["ORT_DISABLE_ALL"])
class SessionOptions: pass
class InferenceSession:
    def __init__(self, *arguments, **named): pass
    def get_inputs(self): return []
    def run(self, names, values): return [np.ones((1, 8, 8, 8), "float32")]
"""


def test_engines_err_too(compiled, tmp_path):
    """Where one does not agree with what TVM read, another one is asked."""
    network(tmp_path / "net.onnx")
    (tmp_path / "onnxruntime.py").write_text(ERRS)
    first = os.pathsep.join((str(tmp_path), environment()["PYTHONPATH"]))
    agreement = imported(compiled(environment={"PYTHONPATH": first}))
    assert agreement["engine"].endswith("reference evaluator") and agreement["max_error_share"] < 1e-4
    assert agreement["otherwise"].startswith("ONNX Runtime 0.1 answers otherwise: output 0 differs in ")


def test_what_is_drawn_is_not_compared(compiled, command, tmp_path):
    network(tmp_path / "net.onnx", "Bernoulli", seed=1.0)
    question = {"model": str(tmp_path / "net.onnx"), "format": "onnx", "inputs": []}
    with pytest.raises(witness.UncheckedError, match=r"draws random numbers \(Bernoulli\)"):
        witness.answer(question)
    asked = subprocess.run(
        [sys.executable, "-m", "collage.witness"],
        input=json.dumps({**question, "out": str(tmp_path / "out.npz")}),
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert json.loads(asked.stdout) == {"unchecked": "it draws random numbers (Bernoulli)"}
    assert not (tmp_path / "out.npz").exists()


def test_who_takes_too_long_does_not_answer(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    weight = numpy_helper.from_array((rng.standard_normal((600, 600)) / 25).astype("float32"), "w")
    nodes = [helper.make_node("MatMul", [f"x{i}" if i else "x", "w"], [f"x{i + 1}"]) for i in range(3000)]
    graph = helper.make_graph(
        nodes,
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [600, 600])],
        [helper.make_tensor_value_info("x3000", TensorProto.FLOAT, [600, 600])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "l.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    types = [{"name": "x", "shape": [600, 600], "dtype": "float32"}]
    question = {"model": str(tmp_path / "l.onnx"), "format": "onnx", "inputs": types, "seconds": 1}
    with pytest.raises(witness.UncheckedError, match=r"not installed; onnx's reference evaluator: .* longer than 1 s"):
        witness.answer(question)


def test_the_question_has_the_values_that_became_constants(tmp_path):
    """Reshape's new shape is an input of the file, and a constant of what TVM read."""
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "sizes"], ["y"])],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6]),
            helper.make_tensor_value_info("sizes", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "r.onnx")
    question = frontends.load(tmp_path / "r.onnx", input_values={"sizes": [3, 4]}).question(seed=5)
    assert json.loads(json.dumps(question)) == question  # plain data
    assert question["inputs"] == [{"name": "x", "shape": [2, 6], "dtype": "float32"}] and question["seed"] == 5
    engine, loose, (answer,) = witness.answer(question)
    assert engine.startswith("ONNX Runtime") and not loose
    assert answer.shape == (3, 4)
    assert frontends.load("workload:dcgan").question() is None


@pytest.mark.parametrize(
    "got, other, loose, agrees",
    [
        ([1.0, 2.0], [1.0, 2.0005], False, True),
        ([1.0, 2.0], [1.0, 2.1], False, False),
        ([1.0, 2.0], [1.0, 2.1], True, True),
        ([1e-5, 1000.0], [-1e-5, 1000.0], False, True),  # small beside the greatest
        ([math.nan, 1.0], [math.nan, 1.0], False, True),
        ([math.nan, 1.0], [0.5, 1.0], False, False),
        ([math.inf, 1.0], [math.inf, 1.0], False, True),
        ([0.0, 0.0], [0.0, 0.0], False, True),
        ([0.0, 0.0], [0.0, 1e-9], False, False),
    ],
)
def test_how_far_numbers_may_be_apart(got, other, loose, agrees):
    share, mismatch = check.witnessed([np.array(got, "float32")], [np.array(other, "float32")], loose)
    assert (mismatch is None) == agrees
    assert not agrees or share <= (0.1 if loose else 1e-3)


def test_how_many_whole_numbers_may_be_others():
    places = np.arange(400)
    one, many = places.copy(), places.copy()
    one[:4] += 7
    many[:5] += 7
    assert check.witnessed([one], [places], False)[1] is None
    assert "output 0 differs in 5 of 400" in check.witnessed([many], [places], False)[1]
    assert check.witnessed([places + 2], [places], True)[1] is None
    assert check.witnessed([places + 3], [places], True)[1]
    assert "output 1 is int32" in check.witnessed([places, places.astype("int32")], [places, places], False)[1]
    assert "2 were expected" in check.witnessed([places], [places, places], False)[1]
