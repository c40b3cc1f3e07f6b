# SPDX-License-Identifier: Apache-2.0
"""Lazy measuring on real costs: bounds are true, the optimum is that of measuring everything, and a second
search measures nothing and says the same.
"""

import json

import numpy as np
import pytest
import tvm
from conftest import SAMPLES
from test_faults import records
from tvm import relay


def conv(x, channels, kernel, inputs):
    weights = relay.const(np.full((channels, inputs, kernel, kernel), 0.01, "float32"))
    padding = (kernel // 2, kernel // 2)
    return relay.nn.conv2d(x, weights, padding=padding, kernel_size=(kernel, kernel), channels=channels)


def network():
    """A residual block and a head: convolutions, epilogues, an addition, pooling, a product."""
    x = relay.var("x", shape=(1, 64, 56, 56), dtype="float32")
    y = relay.nn.relu(conv(x, 64, 1, 64))
    y = relay.nn.relu(relay.add(conv(y, 64, 3, 64), x))
    y = relay.nn.max_pool2d(y, (2, 2), (2, 2))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(conv(y, 128, 1, 64))))
    y = relay.nn.softmax(relay.nn.dense(y, relay.const(np.full((10, 128), 0.1, "float32"))))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


def place(module, store, **options):
    """Place a module by its parts' costs; gives (plan as text, plan)."""
    import collage

    told = json.loads(
        collage.transform.configuration(["tvm", "dnnl"], store=store, samples=SAMPLES, threads=2, level="operator")
    )
    plan = str(tvm.get_global_func("collage.place")(module, json.dumps({**told, **options}))[1])
    return plan, json.loads(plan)


@pytest.fixture(scope="module")
def lazily(collage_library, tmp_path_factory):
    """A store that a lazy search of the network has filled, and its plan."""
    store = tmp_path_factory.mktemp("lazy") / "costs.jsonl"
    return store, place(network(), store)[1]


def test_the_same_plan_twenty_times(lazily):
    store, _ = lazily
    before = store.read_bytes()
    first, plan = place(network(), store)
    assert plan["candidates"]["measured"] == 0
    for _ in range(20):
        assert place(network(), store)[0] == first
    assert store.read_bytes() == before


def test_everything_measured_gives_the_same_optimum(lazily, tmp_path):
    store, plan = lazily
    counts = plan["candidates"]
    assert counts["measured"] + counts["bounded"] == counts["distinct"]
    everything = tmp_path / "everything.jsonl"
    everything.write_bytes(store.read_bytes())
    # So often that no further samples are taken of what competes: they would change the costs.
    _, exhaustive = place(network(), everything, exhaustive=True, samples=1)
    assert exhaustive["candidates"]["bounded"] == 0
    assert exhaustive["candidates"]["measured"] == counts["bounded"]
    assert exhaustive["estimate"]["optimal"] and plan["estimate"]["optimal"]
    assert exhaustive["estimate"]["total_ms"] == pytest.approx(plan["estimate"]["total_ms"], abs=1e-8)

    # Every bound that was believed was one.
    measured = records(everything)
    bounded = [entry for entry in plan["candidates"]["rejected"] if entry["origin"] == "bounded"]
    for entry in bounded:
        (record,) = measured[entry["key"], entry["backend"], entry.get("composite")]
        assert min(record["samples_ms"]) + 0.01 >= entry["estimate_ms"]


def test_a_calibration_is_kept(lazily):
    store, _ = lazily
    calibrations = [json.loads(line) for line in store.read_text().splitlines() if '"machine"' in line]
    assert len({record["key"]["structure"] for record in calibrations}) == len(calibrations) >= 5
    assert all(record["key"]["threads"] == 2 for record in calibrations)
