# SPDX-License-Identifier: Apache-2.0
"""Networks of float32 that are computed in bytes by scales that were found on inputs of theirs (openvino_int8)."""

import json
from pathlib import Path

import numpy as np
import placed
import pytest
import tvm
from test_precision import compiled, conv, expected, kept, l2, network, operators_on, outputs
from tvm import relay

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    placed.needs("openvino_int8"),
]

BYTES = {"backends": ["tvm", "openvino"], "precision": "int8", "max_error": 0.1}
# All of it in bytes: whether that pays is not asked here.
PINNED = {**BYTES, "backends": ["tvm", "openvino", "openvino_int8"], "pin": ["nn.conv2d=openvino_int8"]}


def rounded(plan):
    """{value: (scale, zero)} of the plan's regions."""
    return {v["value"]: (v["scale"], v["zero"]) for region in plan["regions"] for v in region.get("rounded", [])}


def values(seed, shape=(1, 32, 28, 28), reach=1.0):
    return {"x": reach * np.random.default_rng(seed).standard_normal(shape).astype("float32")}


def test_a_network_is_computed_in_bytes(tmp_path):
    """What is kept is off by what the plan says, on inputs that nobody has seen; its weights are bytes."""
    module = network(False, channels=64)
    # The same placement of the rest in both files, whose sizes are compared.
    rest = ["nn.global_avg_pool2d=openvino", "nn.batch_flatten=openvino", "nn.dense=openvino"]
    path, plan = compiled(module, tmp_path, **{**PINNED, "pin": [*PINNED["pin"], *rest]})
    assert operators_on(plan, "openvino_int8").count("nn.conv2d") == 2
    assert len(rounded(plan)) >= 2
    assert 0 < kept(plan)["error"] < 0.05
    for seed in range(30, 33):
        given = values(seed, (1, 64, 28, 28))
        assert l2(outputs(path, given), expected(module, given)) == pytest.approx(kept(plan)["error"], rel=0.5)
    (tmp_path / "f32").mkdir()
    wide = {"backends": ["tvm", "openvino"], "pin": ["nn.conv2d=openvino", *rest]}
    plain, _ = compiled(module, tmp_path / "f32", **wide)
    weights = 2 * 64 * 64 * 9
    smaller = Path(plain).stat().st_size - Path(path).stat().st_size
    assert 2.5 * weights < smaller < 3.5 * weights


def test_without_its_engine_in_float32(tmp_path, caplog):
    """TVM runs what is watched where OpenVINO in float32 is not offered; that inputs were random is a warning, also for
    those who read no notes.
    """
    module = network(False)
    path, plan = compiled(module, tmp_path, **{**PINNED, "backends": ["tvm", "openvino_int8"]})
    assert operators_on(plan, "openvino_int8").count("nn.conv2d") == 2
    assert len(rounded(plan)) >= 2
    given = values(30)
    assert l2(outputs(path, given), expected(module, given)) < 0.05
    assert "The scales of bytes were found on random inputs" in caplog.text


def nearly_nothing():
    """Two convolutions, and the sum of two dense layers whose weights are nearly each other's negative: what is left of
    them in anything but float32 is noise. Their sum is no subtraction, which OpenVINO would fold into the weights.
    """
    rng = np.random.default_rng(5)
    y = conv(conv(relay.var("x", shape=(1, 32, 28, 28)), 32, rng), 32, rng)
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    weight = rng.standard_normal((64, 32)).astype("float32")
    other = 1e-3 * rng.standard_normal(weight.shape).astype("float32") - weight
    out = relay.nn.dense(y, relay.const(weight)) + relay.nn.dense(y, relay.const(other))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out)))


def test_one_region_of_three_precisions(tmp_path):
    """Layers in bytes, in bfloat16 and in float32 stand in one model of OpenVINO's, each computed as it is to be."""
    usable = {b["name"] for b in placed.listed() if b["probe"]["usable"]}
    module = nearly_nothing()
    half = "openvino_bf16" if "openvino_bf16" in usable else "openvino"
    _, plan = compiled(module, tmp_path, backends=["tvm", "openvino"], trials=2)
    nodes = [node for region in plan["regions"] for c in region["candidates"] for node in c["nodes"]]
    convs = sorted(node["index"] for node in nodes if node["operator"] == "nn.conv2d")
    others = {node["operator"] for node in nodes if node["operator"] not in ("nn.conv2d", "nn.dense")}
    backends = ["tvm", "openvino", "openvino_bf16", "openvino_int8"]
    options = {**BYTES, "backends": [b for b in backends if b in usable], "precision": "auto"}

    def pinned(first, second, dense, most):
        pins = [f"%{convs[0]}={first}", f"%{convs[1]}={second}", f"nn.dense={dense}"]
        pins += [f"{operator}=openvino" for operator in sorted(others)]
        return compiled(module, tmp_path, **{**options, "max_error": most}, pin=pins)

    path, plan = pinned("openvino_int8", half, "openvino", 0.1)
    (region,) = [r for r in plan["regions"] if r["backend"] != "tvm"]
    assert set(region["backend"].split("+")) == {"openvino_int8", half, "openvino"}
    given = values(50)
    assert 1e-3 < l2(outputs(path, given), expected(module, given)) < 0.05
    with pytest.raises(Exception, match=r"no network that may be chosen can be run: .*where 0\.3 is allowed"):
        pinned("openvino", "openvino", half if half != "openvino" else "openvino_int8", 0.3)


def test_what_is_seen_of_values(tmp_path):
    """What differs in each element averages out in a mean over an image; what is the same in a channel does not."""
    from collage.network import Networks

    x, by_element, by_channel = (relay.var(n, shape=(1, 4, 8, 8)) for n in ("x", "collage_noise_0", "collage_noise_10"))
    wide = x + by_element
    mean = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(wide + by_channel))
    noise = relay.var("collage_noise_2", shape=(1, 4))
    narrow = mean + noise
    out = relay.Tuple([relay.const(3.0) * narrow, wide, narrow, wide])
    module = tvm.IRModule.from_expr(relay.Function([x, by_element, by_channel, noise], out))
    path = placed.export_to(tmp_path / "model.so", relay.transform.InferType()(module))
    data = tmp_path / "x.npz"
    drawn = 2 + 0.1 * np.random.default_rng(1).standard_normal((3, 1, 4, 8, 8)).astype("float32")
    drawn[1, 0, 0, 0, 0] = -5.0
    drawn[2, 0, 0, 0, 1] = 0.0
    np.savez(data, x=drawn)
    request = {"model": path, "results": 1, "channels": [1, -1, 1], "inputs": [[str(data), i] for i in range(3)]}
    request.update(least=1, input_seconds=60.0, noise_seconds=60.0)
    watched = Networks().watch(request)
    assert watched["inputs"] == 3
    wide, narrow, again = watched["seen"]
    assert (wide["low"], wide["high"]) == (-5.0, drawn.max())
    assert sum(wide["counts"]) == drawn.size - 1 and wide["counts"][0] == 1
    assert wide["squares"] == pytest.approx(np.square(drawn, dtype="float64").sum(), rel=1e-6)
    assert wide["gain"] == pytest.approx(1 / 64, rel=0.9) and wide["channel_gain"] == pytest.approx(1, rel=0.02)
    assert narrow["gain"] == pytest.approx(1, rel=0.02) and narrow["channel_gain"] == pytest.approx(1, rel=0.02)
    assert again["gain"] == pytest.approx(1 / 64, rel=0.9)
    watched = Networks().watch({**request, "input_seconds": 1e-9, "noise_seconds": 1e-9})
    assert watched["inputs"] == 1 and sum(watched["seen"][0]["counts"]) == 4 * 8 * 8
    assert watched["seen"][0]["low"] > -5.0, "there was time for the one that must be looked at"
    watched = Networks().watch({**request, "least": 2, "input_seconds": 1e-9, "noise_seconds": 1e-9})
    assert watched["inputs"] == 2 and watched["seen"][0]["low"] == -5.0
    wide, narrow, again = watched["seen"]
    assert narrow["gain"] == again["gain"] == wide["gain"], "there was time for the first"


def test_scales_are_those_of_the_data(tmp_path):
    """Inputs that reach ten times as far have steps ten times as long; what is rectified has all of them above 0."""
    module = network(False)
    for reach in (1.0, 10.0):
        data = tmp_path / f"{reach}.npz"
        np.savez(data, x=np.stack([values(seed, reach=reach)["x"] for seed in range(6)]))
        folder = tmp_path / str(reach)
        folder.mkdir()
        _, plan = compiled(module, folder, **PINNED, calibration=str(data))
        found = rounded(plan)
        scale, zero = found[0]  # the network's input
        assert 4.5 * reach < 255 * scale < 10 * reach  # of normal numbers some are 4 deviations away, few 5
        assert 100 < zero < 156
        (inner,) = [zero for value, (_, zero) in found.items() if value != 0][:1]
        assert inner == 0


def test_a_plan_has_the_scales(tmp_path):
    """Replayed, it gives the same results to the last bit, without the inputs that they were found on."""
    import collage

    module = network(False)
    path, _ = compiled(module, tmp_path, **PINNED)
    again = collage.compile(
        module, out=str(tmp_path / "again.so"), plan=str(tmp_path / "plan.json"), store=str(tmp_path / "costs.jsonl")
    )
    given = values(40)
    np.testing.assert_array_equal(outputs(path, given), outputs(again, given))
    other = json.loads((tmp_path / "plan.json").read_text())
    region = next(r for r in other["regions"] if r.get("rounded"))
    last = region["candidates"][-1]["nodes"][-1]["index"]
    region["rounded"].append({"value": last, "scale": 0.5, "zero": 0})
    (tmp_path / "plan.json").write_text(json.dumps(other))
    with pytest.raises(Exception, match="does not have rounded"):
        collage.compile(module, out=str(tmp_path / "third.so"), plan=str(tmp_path / "plan.json"))


def test_what_the_store_knows_has_its_scales(tmp_path):
    """Where nothing needs to be built since the store has it all, the scales are found all the same."""
    import collage

    module = network(False)
    options = {**PINNED, "threads": 2, "store": str(tmp_path / "costs.jsonl"), "search_time": 60, "trials": 6}
    for _ in range(2):
        result = collage.partition(module, samples=3, **options)
        (region,) = [f for f in result.functions.values() if "Compiler" in (f.attrs or {})]
        assert placed.counted(region)["qnn.quantize"] >= 2
        assert "int8" in region.attrs["Precisions"]
    assert len(rounded(compiled(module, tmp_path, **PINNED)[1])) >= 2


def test_a_warm_store_gives_the_same_plan(tmp_path):
    """What was seen of values is in the store: nobody looks again, and plans are the same but for their timeline."""
    import collage

    module, store = network(False), tmp_path / "costs.jsonl"
    options = {**BYTES, "max_error": 0.02, "threads": 2, "search_time": 60, "trials": 6, "samples": 3}

    def planned(data=None):
        plan = tmp_path / "plan.json"
        collage.partition(module, plan_out=str(plan), store=str(store), calibration=data, **options)
        return {key: value for key, value in json.loads(plan.read_text()).items() if key != "timeline"}

    def looked():
        records = [json.loads(line) for line in store.read_text().splitlines()]
        return [r for r in records if r["key"].get("kind") == "scales"]

    for _ in range(2):
        planned()  # candidates are measured as long as there is time
    (record,) = looked()
    assert record["scales"]["inputs"] == 2
    assert all(v["gain"] + v["channel_gain"] > 0 for v in record["scales"]["values"])
    first, second = planned(), planned()
    assert first == second
    assert len(looked()) == 1, "nothing was looked at a second time"
    np.savez(tmp_path / "x.npz", x=np.stack([values(seed)["x"] for seed in range(40)]))
    planned(str(tmp_path / "x.npz"))
    assert len(looked()) == 2 and looked()[1]["scales"]["inputs"] > 4, "other data, and more of it than errors take"


def test_nobody_finds_scales_where_nothing_is_run(tmp_path):
    """By costs alone nothing is placed that would need scales: there would be none."""
    operators = [name for of in placed.regions(placed.place(network(False), "openvino_int8")).values() for name in of]
    assert "nn.relu" in operators
    assert not {"nn.conv2d", "nn.dense"} & set(operators)


def test_values_that_are_not_finite(tmp_path):
    """A network that overflows on the inputs that it is looked at with is not computed in bytes; the plan says why."""
    x = relay.var("x", shape=(1, 8, 12, 12))
    huge = relay.exp(relay.multiply(x, relay.const(1e4)))
    weight = relay.const(np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype("float32"))
    body = relay.nn.conv2d(huge, weight, channels=8, kernel_size=(3, 3))
    body = relay.clip(body, -1.0, 1.0)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    _, plan = compiled(module, tmp_path, **BYTES)
    assert "nn.conv2d" not in operators_on(plan, "openvino_int8")
    failed = [f for f in plan["finalists"] if f["name"] == "openvino_int8"] or plan["graph_level"]["networks"]
    assert "not finite" in json.dumps(failed)
