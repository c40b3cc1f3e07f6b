# SPDX-License-Identifier: Apache-2.0
"""Costs that a function gives in the place of measuring: the third argument of collage.partition."""

import json

import pytest
import tvm
from tvm import relay


@pytest.fixture
def place(collage_library):
    import collage

    collage.library.load()

    def placed(cost):
        x = relay.var("x", shape=(2, 8))
        module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.relu(x))))
        told = collage.transform.configuration(["tvm", "dnnl"], threads=2, store="/nowhere/costs.jsonl")
        _, plan = tvm.get_global_func("collage.partition")(module, told, lambda key: cost(json.loads(str(key))))
        return json.loads(str(plan))

    return placed


def backends(plan):
    return {
        one["nodes"][-1]["operator"]: region["backend"] for region in plan["regions"] for one in region["candidates"]
    }


def test_the_cheapest_is_chosen_and_nothing_is_measured(place):
    plan = place(lambda key: {"tvm": 2.0, "dnnl": 1.0}[key["backend"]])
    assert set(backends(plan).values()) == {"dnnl"}
    assert plan["estimate"]["total_ms"] == pytest.approx(2.0)
    assert plan["candidates"]["measured"] == 0
    assert set(backends(place(lambda key: {"tvm": 0.5, "dnnl": 1.0}[key["backend"]])).values()) == {"tvm"}


def test_infinity_rules_a_candidate_out(place):
    plan = place(lambda key: float("inf") if key["backend"] == "dnnl" else 5.0)
    assert set(backends(plan).values()) == {"tvm"}


def test_what_is_no_cost_is_refused(place):
    for wrong in (-1.0, float("nan"), float("-inf")):
        with pytest.raises(ValueError, match="a number from 0 on, or infinity"):
            place(lambda key, wrong=wrong: wrong)
    with pytest.raises(TypeError, match="cost of"):
        place(lambda key: "cheap")
