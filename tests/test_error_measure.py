# SPDX-License-Identifier: Apache-2.0
"""Errors in a measure of the user's own: a Python function that other processes call."""

import shutil

import numpy as np
import pytest
import tvm
from test_precision import compiled, kept, needs_bf16, network, operators_on

pytestmark = pytest.mark.usefixtures("collage_library")

SHARE = 0.02


def share_of(ours, right, inputs):
    """SHARE where anything was computed narrowly, 0 where not."""
    assert [sample["x"].shape for sample in inputs] == [(1, 32, 28, 28)] * len(ours)
    apart = max(np.abs(a - b).max() / np.abs(b).max() for a, b in zip(ours[0], right[0], strict=True))
    return SHARE if apart > 1e-5 else 0.0


def failing(ours, right):
    """What a user may get wrong."""
    return len(ours) + len(wright)  # noqa: F821 - that is what is tested


def negative(ours, right):
    """No error."""
    return -1


@needs_bf16
@pytest.mark.parametrize("most", [0.01, 0.05])
def test_a_function_decides_what_may_be_kept(most, tmp_path):
    module = network(sensitive=False)
    _, plan = compiled(
        module, tmp_path, backends=["tvm", "openvino"], precision="bf16", max_error=most, error_measure=share_of
    )
    assert plan["precision"]["measure"] == f"{__file__}:share_of" and plan["precision"]["measure_sha256"]
    narrow = next(f for f in plan["finalists"] if f["name"] == "openvino_bf16")
    if most < SHARE:
        assert "its outputs are off by 0.02 (test_error_measure.py:share_of)" in narrow["failure"]["detail"]
        assert not operators_on(plan, "openvino_bf16") and kept(plan).get("error", 0) == 0
    else:
        assert not narrow.get("failure") and narrow["error"] == SHARE


@pytest.mark.parametrize(("function", "told"), [
    (failing, r"error_measure gives no error: test_error_measure.py:failing: NameError: .*'wright'.*, line \d+"),
    (negative, "error_measure gives no error: test_error_measure.py:negative gives -1.0; an error is a finite number"),
])  # fmt: skip
def test_a_function_that_gives_no_error_ends_the_search(function, told, tmp_path):
    module = network(sensitive=False)
    with pytest.raises(Exception, match=told):
        compiled(module, tmp_path, backends=["tvm", "dnnl"], max_error=0.1, error_measure=function)
    assert not (tmp_path / "model.so").exists()


def test_functions_that_other_processes_cannot_find(tmp_path):
    def inside(ours, right):
        return 0

    module = network(sensitive=False)
    for function in (inside, lambda ours, right: 0, len):
        with pytest.raises(ValueError, match="error_measure: other processes call it, and cannot find"):
            compiled(module, tmp_path, backends=["tvm", "dnnl"], max_error=0.1, error_measure=function)


def test_a_plan_wants_the_function_as_it_was(tmp_path):
    import collage

    module = network(sensitive=False)
    file = tmp_path / "scores.py"
    file.write_text("def lost(ours, right):\n    return 0\n")
    _, plan = compiled(module, tmp_path, backends=["tvm", "dnnl"], max_error=0.1, error_measure=f"{file}:lost")
    collage.compile(module, plan=plan, out=str(tmp_path / "again.so"))
    file.write_text("def lost(ours, right):\n    return 1\n")
    with pytest.raises(Exception, match=r"is not what the plan's errors were taken in: .*scores.py has changed since"):
        collage.compile(module, plan=plan, out=str(tmp_path / "other.so"))
    file.unlink()
    with pytest.raises(Exception, match=r"error_measure cannot be used: open .*scores.py"):
        collage.compile(module, plan=plan, out=str(tmp_path / "other.so"))
    assert not (tmp_path / "other.so").exists()


def test_of_a_file_runs_what_a_function_needs(tmp_path):
    from collage import error_measure

    (tmp_path / "beside.py").write_text("FACTOR = 3\n")
    script = tmp_path / "script.py"
    script.write_text("""
import no_such_module
from beside import FACTOR
import numpy as np
LABELS = np.arange(4)
with open(__file__) as file:
    LENGTH = len(file.read())
def twice(values, by=LABELS[2]):
    return by * values
class Scale:
    def of(self, x):
        return x * FACTOR
result = no_such_module.compile()
def measure(ours, right):
    result = Scale().of(sum(abs(a - b).sum() for x, y in zip(ours, right) for a, b in zip(x, y)))
    return twice(result) + (LENGTH < 0)
if __name__ == "script":
    twice = None
raise SystemExit("a script began anew")
""")
    ours, right = [[np.array([1.0, 2.0])]], [[np.array([1.5, 2.0])]]
    assert error_measure.error(str(script), "measure", ours, right, None) == 3.0


@pytest.mark.parametrize(("parameters", "inputs"), [
    ("ours, right", False),
    ("ours, right, inputs", True),
    ("ours, right, scale=1.0", False),
    ("ours, right, inputs, scale=1.0", True),
    ("ours, right, *, scale=1.0", False),
    ("ours, *others", True),
])  # fmt: skip
def test_inputs_are_given_to_what_needs_a_third_argument(parameters, inputs, tmp_path):
    from collage import error_measure

    file = tmp_path / f"measure_{abs(hash(parameters))}.py"
    last = parameters.split(",")[2:][:1] or parameters.split(",")[1:]
    seen = last[0].split("=")[0].strip(" *") if inputs else "None"
    file.write_text(f"def measure({parameters}):\n    return 'sample' in str({seen})\n")
    assert error_measure.error(str(file), "measure", [], [], {"x": "sample"}) == inputs


def test_functions_that_are_not_there(command, tmp_path):
    model = tmp_path / "model.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n')
    file = tmp_path / "scores.py"
    file.write_text("def lost(ours, right):\n    return 0\n\ndef broken(ours, right:\n    return 0\n")

    def refused(measure):
        run = command("compile", model, "-o", tmp_path / "model.tar", "--max-error", "0.1", "--error-measure", measure)
        assert run.returncode == 2 and not (tmp_path / "model.tar").exists(), run.stderr
        return run.stderr

    assert "--error-measure cannot be used: open" in refused(tmp_path / "none.py:lost")
    assert "has no function of that name at its top (def found(ours, right): ...)" in refused(f"{file}:found")
    assert "has no function of that name" in refused(f"{file}:x y")
    assert "SyntaxError" in refused(f"{file}:broken")


def test_what_is_no_number_is_not_measured(tmp_path):
    """A network that gives NaN where plain TVM gives numbers is lost by itself: the user's function is not asked."""
    from collage import export, network, region
    from tvm import relay

    x = relay.var("x", shape=(2, 3))
    for name, made in {"right": relay.abs(x), "wrong": relay.sqrt(relay.negative(relay.abs(x)))}.items():
        module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], made)))
        export.write(export.build(module), tmp_path / f"{name}.so")
    right, wrong = (str(tmp_path / f"{name}.so") for name in ("right", "wrong"))
    request = {"against": right, "reference": right, "check": True, "inputs": [1], "held_out": [2], "rounds": 1}
    request["measure"] = {"file": __file__, "function": "negative"}
    with pytest.raises(region.RegionError, match="NaN where TVM's hold numbers") as raised:
        network.Networks().run({**request, "model": wrong})
    assert raised.value.kind == "not-a-number"
    shutil.copy(right, tmp_path / "other.so")
    with pytest.raises(Exception, match=r"negative gives -1.0"):
        network.Networks().run({**request, "model": str(tmp_path / "other.so")})
