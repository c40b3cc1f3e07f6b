# SPDX-License-Identifier: Apache-2.0
"""What rounded weights are off by in the mean is taken off biases, where it is said or the outputs are better so."""

import json

import numpy as np
import placed
import pytest
import tvm
from test_precision import compiled, kept, l2, network, outputs
from tvm import relay

pytestmark = pytest.mark.usefixtures("collage_library")

BACKENDS = {
    "openvino_int8": "openvino", "onnxruntime_int8": "onnxruntime", "native_int8": "native", "dnnl_int8": "dnnl",
}  # fmt: skip
FIRST, *OTHERS = BACKENDS
SIZE = 12


def one_sided(size=SIZE):
    """Convolutions whose weights are all rounded to one side, but for one that sets their scale: each is 0.4 of a step
    more than a whole number of steps, and what it multiplies is above 0. Of images of one pixel padding is most of
    what is multiplied, and the weights that are not are rounded to the other side.
    """
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(1, 16, size, size))
    y = relay.abs(x)
    for _ in range(2):
        weight = (rng.integers(-20, 20, (16, 16, 3, 3)) + 0.4).astype("float32")
        if size == 1:
            weight[:, :, 1, 1] -= 0.8
        weight[:, 0, 0, 0] = 127.0
        bias = rng.standard_normal(16).astype("float32")
        y = relay.nn.conv2d(y, relay.const(weight / 127), channels=16, kernel_size=(3, 3), padding=(1, 1))
        y = relay.nn.relu(relay.nn.bias_add(y, relay.const(bias)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.global_avg_pool2d(y))))


def options(backend, **more):
    wide = BACKENDS[backend]
    backends = ["tvm", *(["dnnl"] if wide == "native" else []), wide, backend]
    return {"backends": backends, "precision": "int8", "max_error": 0.5, "pin": [f"nn.conv2d={backend}"], **more}


# One of them each time, the others with the long tests.
@pytest.mark.parametrize("backend", [FIRST, *(pytest.param(one, marks=pytest.mark.long) for one in OTHERS)])
def test_corrected_biases_lower_the_error(backend, tmp_path):
    """On inputs that nobody has seen, by most of it; the plan has what is taken off, and gives the same again."""
    if lacking := placed.missing(backend):
        pytest.skip(lacking)
    import collage

    module, off, plans = one_sided(), {}, {}
    given = {"x": np.random.default_rng(70).standard_normal((1, 16, SIZE, SIZE)).astype("float32")}
    right = placed.expected(module, *given.values())[0]
    for when in ("off", "on"):
        (tmp_path / when).mkdir()
        path, plans[when] = compiled(module, tmp_path / when, **options(backend, bias_correction=when))
        off[when] = l2(outputs(path, given), right)
    assert off["on"] < 0.5 * off["off"], off
    assert kept(plans["on"])["error"] < 0.5 * kept(plans["off"])["error"]
    corrected = {when: [c for r in plan["regions"] for c in r.get("corrected", [])] for when, plan in plans.items()}
    assert not corrected["off"] and [len(c["shift"]) for c in corrected["on"]] == [16, 16]
    assert plans["on"]["precision"]["biases"] == {"corrected": True} and "biases" not in plans["off"]["precision"]
    again = collage.compile(module, out=str(tmp_path / "again.so"), plan=str(tmp_path / "on" / "plan.json"))
    np.testing.assert_array_equal(outputs(again, given), outputs(path, given))
    damaged = plans["on"]
    next(c for r in damaged["regions"] for c in r.get("corrected", []))["shift"].pop()
    (tmp_path / "damaged.json").write_text(json.dumps(damaged))
    with pytest.raises(Exception, match="corrects 15 channels of the bias behind %"):
        collage.compile(module, out=str(tmp_path / "damaged.so"), plan=str(tmp_path / "damaged.json"))


@pytest.mark.parametrize("backend", ["openvino_int8", pytest.param("onnxruntime_int8", marks=pytest.mark.long)])
def test_the_outputs_decide(backend, tmp_path):
    """Left alone, it is done where the outputs were off by less; the plan has both errors, and so has a warm store."""
    if lacking := placed.missing(backend):
        pytest.skip(lacking)
    module = one_sided()
    for _ in range(2):
        _, plan = compiled(module, tmp_path, **options(backend))
        biases = plan["precision"]["biases"]
        assert biases["corrected"] and biases["error_with"] < 0.5 * biases["error_without"], biases
        assert sum(len(r.get("corrected", [])) for r in plan["regions"]) == 2
        assert kept(plan)["error"] == pytest.approx(biases["error_with"], rel=1)


@placed.needs("openvino_int8")
def test_what_makes_it_worse_is_not_done(tmp_path):
    """The mean of a channel says nothing of what padding leaves of it."""
    module = one_sided(1)
    (tmp_path / "on").mkdir()
    _, plan = compiled(module, tmp_path, **options("openvino_int8"))
    biases = plan["precision"]["biases"]
    assert not biases["corrected"] and biases["error_with"] > biases["error_without"], biases
    assert not any(r.get("corrected") for r in plan["regions"])
    _, on = compiled(module, tmp_path / "on", **options("openvino_int8", bias_correction="on", max_error=0.9))
    assert kept(on)["error"] > kept(plan)["error"]


def test_what_it_may_be(command, tmp_path):
    import collage

    module = network(False)
    arguments = {"store": str(tmp_path / "costs.jsonl"), "backends": ["tvm", "openvino"]}
    with pytest.raises(ValueError, match=r'bias_correction is "yes"; it is on, off or auto'):
        collage.partition(module, precision="int8", bias_correction="yes", **arguments)
    with pytest.raises(ValueError, match="bias_correction goes with the precision int8 or auto"):
        collage.partition(module, bias_correction="on", **arguments)
    within = {"collage.precision": "int8", "collage.bias_correction": "no"}
    with tvm.transform.PassContext(config=within), pytest.raises(ValueError, match="it is on, off or auto"):
        collage.partition(module, **arguments)
    model = tmp_path / "model.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n')
    run = command("compile", model, "-o", tmp_path / "model.tar", "--backends", "tvm", "--bias-correction", "on")
    assert run.returncode == 2 and "--bias-correction goes with the precision int8 or auto" in run.stderr, run.stderr
