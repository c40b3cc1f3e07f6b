# SPDX-License-Identifier: Apache-2.0
"""How scales of bytes are made of what is seen on inputs: the methods, and that what is measured chooses among them."""

import numpy as np
import placed
import pytest
import tvm
from test_precision import compiled, conv, kept, network
from test_static_int8 import PINNED, rounded
from test_static_int8 import pytestmark as int8_marks
from tvm import relay

pytestmark = int8_marks

METHODS = ["mse", "min-max", "percentile", "entropy"]


def test_what_rounding_is_off_by(tmp_path):
    """Each list of steps is tried on all inputs that there is time for, and nothing of one is left for the next."""
    from collage.network import Networks

    x, first, second = (relay.var(n, shape=(4, 8)) for n in ("x", "collage_noise_0", "collage_noise_1"))
    one = x + first
    two = relay.const(3.0) * one + second
    out = relay.Tuple([two + one, one, two])
    module = tvm.IRModule.from_expr(relay.Function([x, first, second], out))
    path = placed.export_to(tmp_path / "model.so", relay.transform.InferType()(module))
    drawn = np.random.default_rng(1).standard_normal((3, 4, 8)).astype("float32")
    np.savez(tmp_path / "x.npz", x=drawn)
    fine, coarse = {"scale": 1 / 16, "zero": 128}, {"scale": 0.5, "zero": 2}

    def off(values, scale, zero):
        return scale * (np.clip(np.rint(values / scale) + zero, 0, 255) - zero) - values

    request = {"model": path, "results": 1, "inputs": [[str(tmp_path / "x.npz"), i] for i in range(3)], "seconds": 60.0}
    request["steps"] = [[fine, coarse], [coarse, fine], [fine, coarse]]
    result = Networks().round(request)
    assert result["inputs"] == 3
    for steps, errors in zip(request["steps"], result["errors"], strict=True):
        # What the first is off by reaches the second, and what that is off by is taken from what it is exactly.
        wrong = 4 * off(drawn.astype("float64"), **steps[0]) + off(3 * drawn.astype("float64"), **steps[1])
        assert errors["l2"] == pytest.approx(np.linalg.norm(wrong) / np.linalg.norm(4 * drawn), rel=1e-3)
    assert result["errors"][0] == result["errors"][2] != result["errors"][1]
    assert Networks().round({**request, "seconds": 1e-9})["inputs"] == 1


def squashed():
    """Convolutions behind a function that makes the same of all that is far away."""
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(1, 32, 28, 28))
    weight = np.zeros((32, 32, 1, 1), "float32")
    weight[range(32), range(32)] = 1.0
    y = relay.tanh(relay.nn.conv2d(x, relay.const(weight), channels=32, kernel_size=(1, 1)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], conv(y, 32, rng))))


def far_away(folder):
    """Data with a few numbers that are 40 times as far as all others."""
    rng = np.random.default_rng(9)
    values = rng.standard_normal((24, 1, 32, 28, 28)).astype("float32")
    values[rng.random(values.shape) < 1e-5] *= 40
    np.savez(folder / "data.npz", x=values)
    return str(folder / "data.npz")


def test_what_is_measured_chooses(tmp_path):
    """Where it does not matter what is cut off, whoever reaches it is off by the most, and so is what comes of it."""
    module, data = squashed(), far_away(tmp_path)
    (tmp_path / "whole").mkdir()
    options = {**PINNED, "max_error": 0.9, "calibration": data}
    _, plan = compiled(module, tmp_path, **options)
    precision = plan["precision"]
    tried = {one["method"]: one["error"] for one in precision["methods"]}
    assert list(tried) == METHODS
    assert precision["calibration_method"] == min(tried, key=tried.get) != "min-max"
    assert precision["compared_inputs"] >= 1
    assert tried[precision["calibration_method"]] < 0.6 * tried["min-max"]
    _, whole = compiled(module, tmp_path / "whole", **options, calibration_method="min-max")
    assert whole["precision"]["calibration_method"] == "min-max" and "methods" not in whole["precision"]
    assert rounded(plan)[0][0] < 0.5 * rounded(whole)[0][0], "steps of the network's input"
    assert kept(plan)["error"] < 0.7 * kept(whole)["error"], "on inputs that nobody has seen"
    # What was believed is what came of it.
    assert kept(whole)["error"] == pytest.approx(tried["min-max"], rel=0.5)


def test_a_method_that_is_named(tmp_path):
    """The same store has what each of two made; steps are the longer the more they reach."""
    module, scales = network(False), {}
    for method in ("percentile:90", "min-max"):
        _, plan = compiled(module, tmp_path, **{**PINNED, "max_error": 0.3}, calibration_method=method)
        assert plan["precision"]["calibration_method"] == method
        scales[method] = rounded(plan)[0][0]
    # 1.64 deviations, and about 4.2: so far one of 50,000 normal numbers is away.
    assert scales["percentile:90"] == pytest.approx(2 * 1.645 / 255, rel=0.1)
    assert 7 / 255 < scales["min-max"] < 12 / 255


def test_methods_that_there_are_not(command, tmp_path):
    import collage

    module = network(False)
    options = {"store": str(tmp_path / "costs.jsonl"), "backends": ["tvm", "openvino"]}
    with pytest.raises(ValueError, match=r'calibration_method is "percentile:101"; .* more than 50 and at most 100'):
        collage.partition(module, precision="int8", calibration_method="percentile:101", **options)
    with pytest.raises(ValueError, match="calibration_method goes with the precision int8 or auto"):
        collage.partition(module, precision="bf16", calibration_method="mse", **options)
    within = {"collage.precision": "int8", "collage.calibration_method": "kl"}
    with tvm.transform.PassContext(config=within), pytest.raises(ValueError, match=r"it is mse, min-max, .* or auto"):
        collage.partition(module, **options)
    model = tmp_path / "model.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n')
    for arguments, says in (
        (["--precision", "int8", "--calibration-method", "percentile:50"], '--calibration-method is "percentile:50"; '),
        (["--calibration-method", "entropy"], "--calibration-method goes with the precision int8 or auto"),
    ):
        run = command("compile", model, "-o", tmp_path / "model.tar", "--backends", "tvm,openvino", *arguments)
        assert run.returncode == 2 and says in run.stderr, run.stderr
