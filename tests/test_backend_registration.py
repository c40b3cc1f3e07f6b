# SPDX-License-Identifier: Apache-2.0
"""Backends registered from Python: the tutorial as written, each field, each mistake, the workers' side."""

import importlib.util
import json
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import TREE, environment, run_python

tvm = pytest.importorskip("tvm")

import collage  # noqa: E402
from collage import errors, export, library, region, transform, workerside  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.contrib import graph_executor  # noqa: E402
from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard  # noqa: E402

pytestmark = pytest.mark.usefixtures("collage_library")

RELU = [("relu", is_op("nn.relu")(wildcard()))]
LOOP = "for (int i = 0; i < {y.size}; ++i) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;"


def relu(part):
    return LOOP.format(x=part.arguments[0], y=part.results[0])


def emit_relu(region):
    """The emitter of most backends here."""
    return "\n".join(relu(part) for part in region.parts)


def typed(*body_of, shape=(4, 8)):
    x = relay.var("x", shape=shape)
    for make in body_of:
        x = make(x)
    return relay.transform.InferType()(tvm.IRModule.from_expr(x))


def plan_of(module, backends, store, **options):
    text = transform.configuration(backends, store=store, samples=3, threads=1, level="operator", **options)
    placed, plan = tvm.get_global_func("collage.partition")(module, text)
    return placed, json.loads(str(plan))


def run(module, x, tmp_path):
    """The module's result through an exported library."""
    factory = export.build(module)
    plugins = [p for name in ("", *collage.api.compilers(module)) for p in region.plugins_for(name)]
    for plugin in plugins:
        library.load_plugin(plugin)
    path = tmp_path / "model.so"
    export.link(factory, path, list(dict.fromkeys(plugins)))
    executor = region.load_executor(path)
    executor.set_input("x", x)
    executor.run()
    return executor.get_output(0).numpy()


def regions(module):
    return {
        str(function.attrs["Compiler"]): function
        for function in module.functions.values()
        if function.attrs and "Compiler" in function.attrs
    }


# The tutorial.


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """A clean folder with the tutorial's code as it is written there."""
    page = (TREE / "docs" / "add-a-backend.md").read_text()
    code = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    assert code.count("\n") < 60
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "mylib.py").write_text(code)
    return folder


def test_the_tutorial_runs_as_written(tutorial):
    done = subprocess.run(
        [sys.executable, "mylib.py"],
        cwd=tutorial,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(XDG_CACHE_HOME=tutorial / "cache", HOME=tutorial),
    )
    assert done.returncode == 0, done.stderr
    assert 'Composite="mylib.dense_relu"' in done.stdout


def test_the_tutorials_candidates_are_right(tutorial, store):
    """Each pattern's kernel is built and compared with TVM by the workers, which import the module."""
    program = """
import sys, json
sys.path.insert(0, sys.argv[1])
import numpy as np, tvm, collage, mylib
from tvm import relay
x = relay.var("x", shape=(5, 24))
dense = relay.nn.dense(x, relay.const(np.ones((16, 24), "float32")))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(relay.exp(relay.nn.relu(dense)))))
options = {"store": sys.argv[2], "samples": 3, "exhaustive": True, "level": "operator"}
text = collage.transform.configuration(["tvm", "mylib"], **options)
print(json.dumps(json.loads(str(tvm.get_global_func("collage.partition")(module, text)[1]))))
"""
    plan = run_python(program, tutorial, store)
    assert not plan["candidates"].get("failures"), plan["candidates"]["failures"]
    mine = [r.get("composite") for r in plan["candidates"]["rejected"] if r["backend"] == "mylib"]
    mine += [r["candidates"][0]["composite"] for r in plan["regions"] if r["backend"] == "mylib"]
    assert {"mylib.dense", "mylib.dense_relu", "mylib.relu"} <= set(mine)


def test_the_tutorials_backend_computes_what_tvm_does(tutorial, tmp_path):
    program = """
import sys, json
sys.path.insert(0, sys.argv[1])
import numpy as np, tvm, collage, mylib
from collage import export, region, library
from tvm import relay
rng = np.random.default_rng(1)
x = relay.var("x", shape=(5, 24))
w, v = rng.standard_normal((16, 24), dtype="float32"), rng.standard_normal((8, 16), dtype="float32")
body = relay.nn.dense(relay.nn.relu(relay.nn.dense(x, relay.const(w))), relay.const(v))
module = tvm.IRModule.from_expr(relay.nn.relu(relay.exp(body)))
path = collage.compile(module, backends=["tvm", "mylib"], only="mylib", out=sys.argv[2])
executor = region.load_executor(path)
data = rng.standard_normal((5, 24), dtype="float32")
executor.set_input("x", data)
executor.run()
want = np.exp(np.maximum(data @ w.T, 0) @ v.T)
print(json.dumps(float(np.max(np.abs(executor.get_output(0).numpy() - want) / want))))
"""
    assert run_python(program, tutorial, tmp_path / "model.so") < 1e-4


def test_the_command_line_imports_backends(tutorial, command, tmp_path):
    model = tmp_path / "model.relay"
    x = relay.var("x", shape=(4, 8))
    model.write_text(tvm.IRModule.from_expr(relay.nn.relu(x)).astext())
    arguments = [
        "plan",
        model,
        "--backends",
        "tvm,mylib",
        "--pin",
        "nn.relu=mylib",
        "--db",
        tmp_path / "db.jsonl",
    ]
    arguments += ["--plan-out", tmp_path / "plan.json"]
    done = command(*arguments, cwd=tutorial, environment={"COLLAGE_REGISTER": "mylib"})
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [r["backend"] for r in plan["regions"]] == ["mylib"]
    assert plan["regions"][0]["candidates"][0]["cost"]["origin"] != "bounded", "it was run"
    done = command(*arguments, cwd=tutorial)
    assert done.returncode != 0 and 'unknown backend "mylib"' in done.stderr
    done = command(*arguments, cwd=tutorial, environment={"COLLAGE_REGISTER": "no_such_module"})
    assert done.returncode == 2 and "COLLAGE_REGISTER=no_such_module" in done.stderr


# What can be said of a backend.


def test_registered_backends_are_measured_and_placed(store, tmp_path):
    collage.register_backend("t-plain", emit=emit_relu, patterns=RELU, probe=probe_plain, override=True)
    module = typed(relay.nn.relu, relay.exp, relay.nn.relu)
    _, plan = plan_of(module, ["tvm", "t-plain"], store, exhaustive=True)
    listed = {backend["name"]: backend for backend in plan["backends"]}
    assert (listed["t-plain"]["compiler"], listed["t-plain"]["version"]) == ("t_plain", "1.2")
    assert not plan["candidates"].get("failures")
    assert any(r["backend"] == "t-plain" and r["origin"] != "bounded" for r in plan["candidates"]["rejected"]) or any(
        r["backend"] == "t-plain" for r in plan["regions"]
    )
    placed, _ = plan_of(module, ["tvm", "t-plain"], store, pin=["nn.relu=t-plain"])
    assert set(regions(placed)) == {"t_plain"}
    x = np.random.default_rng(1).standard_normal((4, 8), dtype="float32")
    np.testing.assert_allclose(run(placed, x, tmp_path), np.exp(np.maximum(x, 0)), rtol=1e-5)


def probe_plain():
    return collage.Probe(library="plain", version="1.2")


def test_a_wrong_result_is_found(store):
    collage.register_backend("t_wrong", emit=emit_wrong, patterns=RELU, override=True)
    _, plan = plan_of(typed(relay.nn.relu), ["tvm", "t_wrong"], store, exhaustive=True)
    (failure,) = plan["candidates"]["failures"]
    assert failure["failure"]["kind"] == "wrong-result" and failure["backend"] == "t_wrong"


def test_a_plan_whose_outputs_are_not_tvms_is_refused(store, tmp_path):
    """Where nothing was measured nobody has seen it."""
    collage.register_backend("t_wrong", emit=emit_wrong, patterns=RELU, override=True)
    module, plan = typed(relay.nn.relu, relay.exp), tmp_path / "plan.json"
    placed = collage.partition(module, only="t_wrong", plan_out=plan, store=store)
    for replay in (collage.replay, lambda module, plan, **more: transform.Replay(plan, **more)(module)):
        with pytest.raises(ValueError, match="is not kept: wrong-result in check: its outputs differ from TVM's"):
            replay(module, plan)
        assert tvm.ir.structural_equal(replay(module, plan, verify=False), placed)
    collage.register_backend("t_right", emit=emit_relu, patterns=RELU, override=True)
    placed = collage.partition(module, only="t_right", plan_out=plan, store=store)
    assert tvm.ir.structural_equal(collage.replay(module, plan), placed)


def emit_wrong(region):
    (part,) = region.parts
    return f"for (int i = 0; i < {part.results[0].size}; ++i) {part.results[0]}[i] = 7;"


def test_elements_that_are_never_written_are_seen(store):
    """Where memory happens to hold what is wanted, too: zeros, or what ran there before."""
    collage.register_backend("t_lazy", emit=emit_what_is_positive, patterns=RELU, override=True)
    for shape in ((4, 8), (3, 5, 7)):
        module = typed(relay.nn.relu, shape=shape)
        _, plan = plan_of(module, ["tvm", "t_lazy"], store, exhaustive=True)
        (failure,) = plan["candidates"]["failures"]
        assert failure["backend"] == "t_lazy"
        assert failure["failure"]["kind"] == "not-a-number", failure


def emit_what_is_positive(region):
    (part,) = region.parts
    x, y = part.arguments[0], part.results[0]
    return f"for (int i = 0; i < {y.size}; ++i) if ({x}[i] > 0) {y}[i] = {x}[i];"


def test_an_emitters_exception_is_a_failed_build(store):
    collage.register_backend("t_raises", emit=emit_raises, patterns=RELU, override=True)
    _, plan = plan_of(typed(relay.nn.relu), ["tvm", "t_raises"], store, exhaustive=True)
    (failure,) = plan["candidates"]["failures"]
    assert failure["failure"]["phase"] == "build" and "no such kernel" in failure["failure"]["detail"]


def emit_raises(region):
    raise LookupError("no such kernel")


class OddError(Exception):
    """A class of the user's own that takes more than a text."""

    def __init__(self, text, number):
        super().__init__(text)
        self.number = number


def emit_raises_odd(region):
    raise OddError("an odd one", 2)


def emit_number(region):
    return 7


@pytest.mark.parametrize(
    ("emit", "kind", "said"),
    [
        (emit_raises, LookupError, "no such kernel"),
        (emit_raises_odd, tvm.TVMError, "an odd one"),
        (emit_number, TypeError, "the emitter gave a int"),
    ],
)
def test_an_emitters_exception_has_backend_operator_and_span(emit, kind, said):
    collage.register_backend("t_raises", emit=emit, patterns=RELU, override=True)
    x = relay.var("x", shape=(4, 8))
    span = relay.Span(relay.SourceName("the_layer"), 3, 3, 5, 6)
    call = relay.Call(tvm.ir.Op.get("nn.relu"), [x], span=span)
    module = tvm.IRModule.from_expr(relay.Function([x], call))
    with pytest.raises(collage.CollageError) as caught:
        collage.compile(module, only="t_raises", store="")
    error = caught.value
    assert isinstance(error, kind)
    assert error.fields == {"backend": "t_raises", "operator": "nn.relu", "span": "the_layer:3:5"}
    assert str(error).startswith("the code generator of the backend t_raises, at nn.relu (the_layer:3:5): " + said)
    assert said in str(error.__cause__)


def emit_broken(region):
    part = region.parts[0]
    return f"for (int i = 0; i < 32; ++i)\n  {part.results[0]}[i] = twice({part.arguments[0]}[i];"


@pytest.mark.parametrize(
    ("prelude", "emit", "said"),
    [
        ("", emit_broken, "line 2 of the statements of t_c, at nn.relu (the_layer:3:5): "),
        ("static int a;\nstatic flot b;", emit_relu, "line 2 of the prelude of t_c, at nn.relu (the_layer:3:5): "),
    ],
)
def test_what_the_c_compiler_refuses_has_backend_operator_and_line(prelude, emit, said, tmp_path, caplog):
    store = tmp_path / "costs.jsonl"
    collage.register_backend("t_c", emit=emit, prelude=prelude, patterns=RELU, override=True)
    span = relay.Span(relay.SourceName("the_layer"), 3, 3, 5, 6)
    x = relay.var("x", shape=(4, 8))
    call = relay.Call(tvm.ir.Op.get("nn.relu"), [x], span=span)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], call)))
    code = "`static flot b;`" if prelude else "`v1[i] = twice(v0[i];`"
    with pytest.raises(collage.CollageError) as caught:
        collage.compile(module, only="t_c", store="", out=str(store.parent / "model.so"))
    error = caught.value
    assert isinstance(error, errors.BackendError)
    assert error.fields == {"backend": "t_c", "operator": "nn.relu", "span": "the_layer:3:5"}
    assert said in str(error) and str(error).endswith(code)
    assert "Command line:" in str(error.__cause__), "all that it said"
    # In a search the candidate has failed, and why is told in a line, to those who read no plan, too.
    caplog.clear()
    collage.partition(module, backends=["tvm", "t_c"], store=store, samples=3, plan_out=store.parent / "plan.json")
    plan = json.loads((store.parent / "plan.json").read_text())
    assert plan["graph_level"]["why"] == "there is no other network"
    (failure,) = plan["candidates"]["failures"]
    assert failure["failure"]["phase"] == "build" and said in failure["failure"]["detail"]
    assert "Nothing of t_c works: each of its candidates (1) failed, the first (nn.relu): error" in caplog.text
    assert said in caplog.text


def test_what_failed_is_tried_again_when_the_emitter_has_changed(tmp_path):
    """Whoever mends a backend needs no new version of it, and no new store."""
    store = tmp_path / "costs.jsonl"
    failures = []
    for zero in ("zero", "0"):
        (tmp_path / "t_edited.py").write_text(
            "def emit(region):\n    part = region.parts[0]\n    x, y = part.arguments[0], part.results[0]\n"
            f"    return f'for (int i = 0; i < {{y.size}}; ++i) {{y}}[i] = {{x}}[i] > 0 ? {{x}}[i] : {zero};'\n"
        )
        spec = importlib.util.spec_from_file_location("t_edited", tmp_path / "t_edited.py")
        sys.modules["t_edited"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["t_edited"])
        collage.register_backend("t_edited", emit=sys.modules["t_edited"].emit, patterns=RELU, override=True)
        for _ in range(2):
            _, plan = plan_of(typed(relay.nn.relu), ["tvm", "t_edited"], store, exhaustive=True)
            failures.append(len(plan["candidates"].get("failures") or []))
    assert failures == [1, 1, 0, 0]
    del sys.modules["t_edited"]
    composites = [json.loads(line)["key"].get("composite") for line in store.read_text().splitlines()]
    assert composites.count("t_edited.relu") == 2, "once for each text"


def test_a_command_says_whose_code_generator_failed(tmp_path, command):
    (tmp_path / "t_fails.py").write_text(
        "import collage\nfrom tvm.relay.dataflow_pattern import is_op, wildcard\n"
        "@collage.backend(name='t_fails', patterns=[('relu', is_op('nn.relu')(wildcard()))])\n"
        "def emit(region):\n    raise LookupError('no such kernel')\n"
    )
    (tmp_path / "net.relay").write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(4, 8), float32]) { nn.relu(%x) }\n'
    )
    collage.register_backend("t_fails", emit=emit_raises, patterns=RELU, override=True)
    module = tvm.relay.fromtext((tmp_path / "net.relay").read_text())
    collage.partition(module, only="t_fails", plan_out=tmp_path / "plan.json", store="")
    done = command(
        "compile", tmp_path / "net.relay", "--plan", tmp_path / "plan.json", "-q", "-o", tmp_path / "net.so",
        environment={"PYTHONPATH": str(tmp_path), "COLLAGE_REGISTER": "t_fails"},
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "the code generator of the backend t_fails, at nn.relu" in line and "no such kernel" in line


def test_predicates_refuse_matches_and_their_exceptions_come_back(store):
    def wide(expression):
        return int(expression.checked_type.shape[1]) > 8

    patterns = [(*RELU[0], wide)]
    collage.register_backend("t_wide", emit=emit_relu, patterns=patterns, override=True)
    for shape, count in (((4, 8), 0), ((4, 16), 1)):
        placed = transform.CollagePartition(["tvm", "t_wide"], only="t_wide")(typed(relay.nn.relu, shape=shape))
        assert len(regions(placed)) == count

    class PredicateError(Exception):
        pass

    def broken(expression):
        raise PredicateError("what is this")

    collage.register_backend("t_broken", emit=emit_relu, patterns=[(*RELU[0], broken)], override=True)
    with pytest.raises(PredicateError, match="what is this"):
        transform.CollagePartition(["tvm", "t_broken"], only="t_broken")(typed(relay.nn.relu))


def test_costs_of_a_backends_own(store):
    seen = []

    def cost(part):
        seen.append((part.parts[0].name, [t.shape for t in part.inputs], part.inputs[-1].is_constant))
        return {"relu": 1e-6, "dense": float("inf")}.get(part.parts[0].name)

    dense = is_op("nn.dense")(wildcard(), is_constant())
    collage.register_backend("t_cost", emit=emit_relu, patterns=[*RELU, ("dense", dense)], cost=cost, override=True)
    weight = relay.const(np.ones((64, 64), "float32"))
    module = typed(lambda x: relay.nn.dense(x, weight), relay.nn.relu, shape=(4, 64))
    _, plan = plan_of(module, ["tvm", "t_cost"], store, exhaustive=True)
    parts = [r for r in plan["regions"] if r["backend"] == "t_cost"] + [
        r for r in plan["candidates"]["rejected"] if r["backend"] == "t_cost"
    ]
    assert len(parts) == 1
    origin = parts[0].get("origin") or parts[0]["candidates"][0]["cost"]["origin"]
    assert origin == "backend"
    (failure,) = plan["candidates"]["failures"]
    assert failure["failure"]["phase"] == "cost"
    assert ("dense", [(4, 64), (64, 64)], True) in seen
    assert '"backend":"t_cost"' not in store.read_text().replace(" ", "")

    def nonsense(_):
        return -1.0

    collage.register_backend("t_cost", emit=emit_relu, patterns=RELU, cost=nonsense, override=True)
    with pytest.raises(tvm.TVMError, match=r"cost function of the backend t_cost gives -1 ms"):
        plan_of(module, ["tvm", "t_cost"], store)


def pack_columns(operator, argument, array):
    return array.T.copy() if (operator, argument) == ("nn.dense", 1) else array


def emit_packed_dense(region):
    (part,) = region.parts
    (x, w), y = part.arguments, part.results[0]
    (m, k), n = x.shape, y.shape[1]
    assert w.value.shape == (k, n)  # as it was packed
    return (
        f"for (int i = 0; i < {m}; ++i) for (int j = 0; j < {n}; ++j) {{ float s = 0;"
        f"for (int l = 0; l < {k}; ++l) s += {x}[i * {k} + l] * {w}[l * {n} + j]; {y}[i * {n} + j] = s; }}"
    )


def test_parameters_are_packed_when_compiled(store, tmp_path):
    dense = [("dense", is_op("nn.dense")(wildcard(), is_constant()))]
    collage.register_backend("t_pack", emit=emit_packed_dense, patterns=dense, pack=pack_columns, override=True)
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((5, 64), dtype="float32")
    module = typed(lambda x: relay.nn.dense(x, relay.const(weight)), shape=(3, 64))
    placed, plan = plan_of(module, ["tvm", "t_pack"], store, pin=["nn.dense=t_pack"])
    assert not plan["candidates"].get("failures")
    x = rng.standard_normal((3, 64), dtype="float32")
    np.testing.assert_allclose(run(placed, x, tmp_path), x @ weight.T, rtol=1e-4, atol=1e-5)


@pytest.mark.fast
def test_rules_generate_candidates():
    def region_of(**rules):
        collage.register_backend("t_rules", emit=emit_relu, rules=rules, kind=kind, override=True)
        module = typed(relay.nn.relu, relay.exp, relay.nn.relu)
        placed = transform.CollagePartition(["tvm", "t_rules"], only="t_rules")(module)
        found = [f for f in placed.functions.values() if f.attrs and "Compiler" in f.attrs]
        names = []
        for function in found:
            ops = []
            relay.analysis.post_order_visit(
                function, lambda e, ops=ops: ops.append(e.name) if isinstance(e, tvm.ir.Op) else None
            )
            names.append(ops)
        return names

    kind = "operator"
    both = ["nn.relu", "exp"]
    assert region_of(operators=both, style="ArbitraryFusion") == [["nn.relu", "exp"]]  # each operator once
    assert sorted(region_of(operators=both, style="NoFusion")) == [["exp"], ["nn.relu"], ["nn.relu"]]
    assert region_of(operators=["exp"], style="TVMFusion") == [["exp"]]
    kind = "graph"
    assert region_of(operators=both) == [["nn.relu", "exp"]]


def test_a_proposer_is_asked_again_with_what_was_learnt(store):
    asked = []

    def propose(question):
        asked.append(len(question["learnt"]))
        return [[n["index"] for n in question["nodes"] if n["operator"] == "nn.relu"][:1]]

    collage.register_backend("t_propose", emit=emit_relu, propose=propose, override=True)
    _, plan = plan_of(typed(relay.nn.relu), ["tvm", "t_propose"], store, exhaustive=True)
    assert asked[0] == 0 and max(asked) > 0
    assert not plan["candidates"].get("failures")
    assert plan["candidates"]["proposed"] == 2


def emit_module(region):
    """What a Python function may give beside C: a runtime module."""
    (part,) = region.parts
    code = tvm.get_global_func("collage.csource.module")(region._function, "mine", "", relu(part), [], [])
    return code


def test_an_emitter_may_give_a_runtime_module(tmp_path):
    collage.register_backend("t_module", emit=emit_module, patterns=RELU, override=True)
    placed = transform.CollagePartition(["tvm", "t_module"], only="t_module")(typed(relay.nn.relu))
    x = np.random.default_rng(1).standard_normal((4, 8), dtype="float32")
    np.testing.assert_allclose(run(placed, x, tmp_path), np.maximum(x, 0))


def test_without_out_the_factory_runs_in_this_process():
    """What the backend wrote as C is compiled, two regions of it and TVM's code between them."""
    collage.register_backend("t_here", emit=emit_relu, patterns=RELU, override=True)
    module = typed(relay.nn.relu, relay.exp, relay.nn.relu)
    factory = collage.compile(module, backends=["tvm", "t_here"], only="t_here")
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    x = np.random.default_rng(1).standard_normal((4, 8), dtype="float32")
    executor.set_input("x", x)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), np.exp(np.maximum(x, 0)), rtol=1e-5)


@pytest.mark.fast
def test_a_probe_decides_whether_a_backend_can_be_used(store):
    answer = False
    collage.register_backend("t_probe", emit=emit_relu, patterns=RELU, probe=lambda: answer, override=True)
    make = transform.CollagePartition(["tvm", "t_probe"], only="t_probe")
    with pytest.raises(ValueError, match=r"t_probe.*its probe says no"):
        make(typed(relay.nn.relu))
    answer = True  # the library has been installed meanwhile
    assert regions(make(typed(relay.nn.relu)))
    answer = collage.Probe(usable=False, reason="no licence", remedy="buy one")
    with pytest.raises(ValueError, match=r"no licence: buy one"):
        make(typed(relay.nn.relu))
    answer = 3
    with pytest.raises(ValueError, match=r"probe: gave a int and not a collage.Probe"):
        make(typed(relay.nn.relu))


# What the TVM in the process has.


def test_backend_from_tvm(store, tmp_path):
    (tmp_path / "their_table.py").write_text(
        textwrap.dedent(
            """
            import tvm
            from collage.program import Program
            from tvm.relay.dataflow_pattern import is_op, wildcard

            def accept(expression):
                return True

            @tvm.relay.op.contrib.register_pattern_table("their_lib")
            def table():
                return [("their_lib.relu", is_op("nn.relu")(wildcard()), accept)]

            @tvm.register_func("relay.ext.their_lib", override=True)
            def generate(function):
                part = Program(function).parts[0]
                x, y = part.arguments[0], part.results[0]
                code = f"for (int i = 0; i < {y.size}; ++i) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;"
                return tvm.get_global_func("collage.csource.module")(function, "mine", "", code, [], [])
            """
        )
    )
    program = """
import sys, json
sys.path.insert(0, sys.argv[1])
import tvm, collage, their_table
from collage import transform
from tvm import relay
collage.backend_from_tvm("their_lib")
x = relay.var("x", shape=(4, 8))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.relu(x)))
options = {"store": sys.argv[2], "samples": 3, "threads": 1, "exhaustive": True, "level": "operator"}
text = transform.configuration(["tvm", "their_lib"], **options)
placed, plan = tvm.get_global_func("collage.partition")(module, text)
print(json.dumps(json.loads(str(plan))))
"""
    plan = run_python(program, tmp_path, store)
    assert not plan["candidates"].get("failures"), plan["candidates"]["failures"]
    assert plan["candidates"]["proposed"] == 2


@pytest.mark.fast
def test_backend_from_tvm_says_what_is_missing():
    with pytest.raises(collage.RegistrationError, match=r"'nobody': patterns: TVM has no pattern table 'nobody'"):
        collage.backend_from_tvm("nobody")
    with pytest.raises(
        collage.RegistrationError,
        match=r"'arm_compute_lib': emit: .*no code generator relay.ext.arm_compute_lib",
    ):
        collage.backend_from_tvm("arm_compute_lib")


# Mistakes.


class NotAFunction:
    def __call__(self, region):
        return ""


MISTAKES = {
    "name": ({"name": "My Lib"}, "name: is lower case letters"),
    "kind": ({"kind": "operators"}, "kind: 'operators' is neither"),
    "compiler": ({"compiler": "a-b"}, "compiler: 'a-b' cannot be part"),
    "nothing to take": ({"patterns": []}, "patterns: there are none"),
    "a pattern alone": ({"patterns": RELU[0][1]}, r"patterns: is a list of \(name, pattern\)"),
    "no tuple": ({"patterns": [RELU[0][1]]}, r"patterns\[0\]: is \(name, pattern\)"),
    "pattern of the wrong type": (
        {"patterns": [("relu", "nn.relu")]},
        r"patterns\[0\]: a str is no pattern of tvm.relay.dataflow_pattern",
    ),
    "name of a pattern": ({"patterns": [("re lu", RELU[0][1])]}, r"patterns\[0\]: the name 're lu'"),
    "predicate": ({"patterns": [(*RELU[0], True)]}, r"patterns\[0\]: the predicate is a bool"),
    "pattern table": ({"patterns": "nobody"}, "patterns: TVM has no pattern table 'nobody'"),
    "missing emitter": ({"emit": None}, "emit: is missing"),
    "emitter": ({"emit": "code"}, "emit: is a str and not a function"),
    "lambda": ({"emit": lambda region: ""}, "emit: a lambda cannot be imported"),
    "object": ({"emit": NotAFunction()}, "emit: a NotAFunction cannot be imported"),
    "probe": ({"probe": "1.0"}, "probe: is a str"),
    "cost": ({"cost": 1.0}, "cost: is a float"),
    "pack": ({"pack": 1}, "pack: is a int"),
    "libraries": ({"libraries": ["/nowhere/lib.so"]}, "libraries: there is no file /nowhere/lib.so"),
    "rules": ({"rules": {"operator": []}}, "rules: 'operator' is none of"),
    "operators of rules": ({"rules": {"operators": ["nn.rely"]}}, "rules: TVM has no operator 'nn.rely'"),
    "no operators": ({"rules": {"operators": [], "style": "NoFusion"}}, "rules: operators is empty"),
    "style": ({"rules": {"operators": ["exp"], "style": "Wild"}}, 'rules: the style "Wild" is none of'),
    "name taken by Collage": ({"name": "tvm"}, 'a backend named "tvm" is already registered'),
    "compiler taken": ({"compiler": "t_taken"}, "compiler: .*relay.ext.t_taken already"),
}


@pytest.mark.fast
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_reported_at_registration(mistake):
    if mistake == "compiler taken":
        tvm.register_func("relay.ext.t_taken", lambda function: None, override=True)
    fields, text = MISTAKES[mistake]
    fields = {"name": "t_mistake", "emit": emit_relu, "patterns": RELU, **fields}
    with pytest.raises(collage.RegistrationError, match=text):
        collage.register_backend(fields.pop("name"), **fields)
    assert tvm.get_global_func("relay.ext.t_mistake", allow_missing=True) is None
    with pytest.raises(ValueError, match="t_mistake"):
        transform.CollagePartition(["tvm", "t_mistake"])


@pytest.mark.fast
def test_a_name_is_taken_until_it_is_overridden():
    collage.register_backend("t_twice", emit=emit_relu, patterns=RELU, override=True)
    with pytest.raises(collage.RegistrationError, match=r'"t_twice" is already registered \(override=True'):
        collage.register_backend("t_twice", emit=emit_wrong, patterns=RELU)
    x = np.array([[-1.0, 2.0]], "float32")
    make = transform.CollagePartition(["tvm", "t_twice"], only="t_twice")
    assert regions(make(typed(relay.nn.relu, shape=x.shape)))
    with pytest.raises(collage.RegistrationError, match="neither"):
        collage.register_backend("t_twice", emit=emit_wrong, patterns=RELU, kind="?", override=True)
    assert regions(make(typed(relay.nn.relu, shape=x.shape)))


def test_functions_that_workers_cannot_import():
    def inside(region):
        return ""

    with pytest.raises(collage.RegistrationError, match=r"inside a function.*at the top of its module"):
        collage.register_backend("t_inside", emit=inside, patterns=RELU)
    with pytest.raises(TypeError, match="takes the backend's name"):
        collage.backend(emit_relu)
    program = """
import json, collage
from tvm.relay.dataflow_pattern import is_op, wildcard
try:
    @collage.backend(name="prompt", patterns=[("relu", is_op("nn.relu")(wildcard()))])
    def emit(region):
        return ""
except collage.RegistrationError as error:
    print(json.dumps(str(error)))
"""
    assert "notebook or at the prompt" in run_python(program)


def test_workers_import_a_script_only_up_to_where_it_uses_collage(tmp_path):
    """Scripts need no guard: what would start the search anew inside a worker is where the import ends."""
    script = tmp_path / "unguarded script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys
            import collage
            from tvm import relay, IRModule
            from tvm.relay.dataflow_pattern import is_op, wildcard

            @collage.backend(name="script", patterns=[("relu", is_op("nn.relu")(wildcard()))])
            def emit(region):
                (part,) = region.parts
                x, y = part.arguments[0], part.results[0]
                return f"for (int i = 0; i < {y.size}; ++i) {y}[i] = {x}[i] > 0 ? {x}[i] : 0;"

            with open(sys.argv[1] if len(sys.argv) > 1 else os.environ["RUNS"], "a") as runs:
                runs.write("x")
            module = IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4, 8))))
            options = {"backends": ["tvm", "script"], "pin": ["nn.relu=script"], "samples": 3, "level": "operator"}
            placed = collage.partition(module, store=os.environ["STORE"], **options)
            assert any(f.attrs and "Compiler" in f.attrs for f in placed.functions.values())
            with open(os.environ["RUNS"], "a") as runs:
                runs.write("y")
            """
        )
    )
    runs = tmp_path / "runs"
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(RUNS=runs, STORE=tmp_path / "costs.jsonl"),
    )
    assert done.returncode == 0, done.stderr
    # Once in this process, and once in each worker.
    assert runs.read_text().strip("x") == "y" and runs.read_text().startswith("xx")


@pytest.mark.fast
def test_references():
    found = workerside.reference(emit_relu)
    assert found["name"] == "emit_relu" and found["path"] == __file__
    assert workerside.reference(None) is None
