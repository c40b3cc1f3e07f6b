# SPDX-License-Identifier: Apache-2.0
"""Regions with several exits: an encoder all of whose levels are read later, as one candidate of an engine, from
declared costs to an executable that gives TVM's outputs.
"""

import json

import numpy as np
import placed
import pytest
import tvm
from tvm import relay

# Engines that run whole regions and propose them.
ENGINES = [name for name in placed.usable() if name in ("openvino", "onnxruntime")]

EACH = ENGINES or ["none"]  # an empty list of parameters is an error

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    pytest.mark.skipif(not ENGINES, reason="no engine that runs whole regions can be used here"),
]


def conv(x, channels_in, channels, rng):
    weight = relay.const(rng.standard_normal((channels, channels_in, 3, 3)).astype("float32") / channels_in)
    bias = relay.const(rng.standard_normal((channels, 1, 1)).astype("float32"))
    return relay.nn.relu(relay.nn.conv2d(x, weight, channels=channels, kernel_size=(3, 3), padding=(1, 1)) + bias)


def unet(levels=3, size=32):
    """A small U-Net: each level of the encoder goes to the pooling below it and to the way up."""
    rng = np.random.default_rng(3)
    x, channels, skips = relay.var("x", shape=(1, 3, size, size)), 3, []
    for level in range(levels):
        x = conv(conv(x, channels, 8 << level, rng), 8 << level, 8 << level, rng)
        channels = 8 << level
        skips.append(x)
        x = relay.nn.max_pool2d(x, pool_size=(2, 2), strides=(2, 2))
    x = conv(x, channels, channels, rng)
    for level in reversed(range(levels)):
        x = relay.concatenate([relay.nn.upsampling(x, scale_h=2, scale_w=2), skips[level]], axis=1)
        x = conv(x, channels + (8 << level), 8 << level, rng)
        channels = 8 << level
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.sigmoid(x)))


def pyramid(size=32):
    """A small feature pyramid: a backbone of three levels, each added to what comes from above, three results."""
    rng = np.random.default_rng(4)
    x, channels, levels = relay.var("x", shape=(1, 3, size, size)), 3, []
    for _ in range(3):
        x = relay.nn.max_pool2d(conv(x, channels, 8, rng), pool_size=(2, 2), strides=(2, 2))
        channels = 8
        levels.append(x)
    above, results = None, []
    for level in reversed(levels):
        lateral = conv(level, 8, 8, rng)
        above = lateral if above is None else lateral + relay.nn.upsampling(above, scale_h=2, scale_w=2)
        results.append(conv(above, 8, 8, rng))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Tuple(results)))


@pytest.fixture(scope="module")
def network(collage_library):
    from collage import transform

    yield transform.Normalise()(unet())
    placed.forget()


def placed_by(network, engine, estimator=None, forbid=("nn.upsampling",), **options):
    """The network on few candidates; what is forbidden goes to TVM. Without the ways up, no region with one exit holds
    more than one level of an encoder.
    """
    from collage import transform

    options["forbid"] = [f"{operator}={engine}" for operator in forbid] or None
    told = json.loads(transform.configuration(["tvm", engine], threads=placed.THREADS, level="operator", **options))
    # So much for each candidate that the fewest win, whatever they cost.
    told["overhead_ms"] = 1e5
    ask = tvm.get_global_func("collage.partition")
    split, plan = ask(network, json.dumps(told), *filter(None, [estimator]))
    return split, json.loads(str(plan))


def exits(plan, nodes):
    """Those of some nodes whose values others read, or whose value is the network's."""
    inside = set(nodes)
    read = {
        value
        for region in plan["regions"]
        for other in region["candidates"]
        for node in other["nodes"]
        if node["index"] not in inside
        for value in node.get("reads", [])
        if value in inside
    }
    last = max(node["index"] for region in plan["regions"] for one in region["candidates"] for node in one["nodes"])
    return read | ({last} & inside)


def indices(candidate):
    return [node["index"] for node in candidate["nodes"]]


def encoder(plan, engine):
    """The engine's candidate that holds most, and how many exits it has."""
    largest = max(
        (one for region in plan["regions"] if region["backend"] == engine for one in region["candidates"]),
        key=lambda one: len(one["nodes"]),
    )
    return [node["operator"] for node in largest["nodes"]], len(exits(plan, indices(largest)))


def runs_like_tvm(network, split, folder, seed):
    inputs = placed.values(network, seed=seed)
    archive = placed.export_to(folder / "model.tar", split)
    placed.same(placed.run(placed.load(archive), *inputs), placed.expected(network, *inputs))


@pytest.mark.parametrize("engine", EACH)
def test_an_encoder_is_placed_and_run_as_one(network, engine, tmp_path):
    """A candidate with all levels of the encoder, which the way up reads, is placed, proven, replayed, and gives TVM's
    outputs.
    """
    import collage

    split, plan = placed_by(network, engine, lambda key: 1.0)
    operators, count = encoder(plan, engine)
    assert operators.count("nn.conv2d") >= 6
    assert operators.count("nn.max_pool2d") == 3
    assert count >= 4, "three levels and what goes on to the bottom"
    tvm.get_global_func("collage.plan.verify")(json.dumps(plan))

    taken = [symbol for symbol, inside in placed.regions(split).items() if inside["nn.max_pool2d"]]
    assert len(taken) == 1
    result = split[taken[0]].ret_type
    assert isinstance(result, tvm.ir.TupleType)
    assert len(result.fields) >= count
    again = collage.replay(network, plan)
    assert tvm.ir.structural_equal(split, again)
    runs_like_tvm(network, split, tmp_path, seed=5)


@pytest.mark.long
@pytest.mark.parametrize("engine", EACH)
def test_an_encoder_is_measured_by_itself(network, engine, store):
    """A worker builds what has several exits, compares its results with TVM's, and times it: the store has its cost."""
    _, plan = placed_by(network, engine, lambda key: 1.0)
    rejected = [one for one in plan["candidates"]["rejected"] if one["backend"] == engine]
    several = several_exits(plan, engine) | {one["key"] for one in rejected if len(exits(plan, one["nodes"])) > 1}
    # Whatever it costs in place: what the network's own runs tell is not measured alone otherwise.
    placed_by(network, engine, store=store, samples=1, rounds=1, exhaustive=True)
    known = [json.loads(line) for line in store.read_text().splitlines()]
    measured = [one for one in known if one["key"]["structure"] in several and one["key"]["backend"] == engine]
    assert measured
    for record in measured:
        assert "failure" not in record
        assert record["samples_ms"]


def several_exits(plan, engine):
    """The keys of the engine's candidates in a plan that have several exits."""
    chosen = (one for region in plan["regions"] if region["backend"] == engine for one in region["candidates"])
    return {one["key"] for one in chosen if len(exits(plan, indices(one))) > 1}


@pytest.mark.parametrize("engine", EACH)
def test_costs_decide_about_what_has_several_exits(network, engine):
    """Where costs are declared by hand, the same network is cut where the region with several exits is too dear."""
    _, plan = placed_by(network, engine, lambda key: 1.0)
    operators, count = encoder(plan, engine)
    assert operators.count("nn.conv2d") >= 6
    assert count >= 4
    structures = several_exits(plan, engine)
    assert structures

    _, plan = placed_by(network, engine, lambda key: 1e7 if json.loads(str(key))["structure"] in structures else 1.0)
    keys = {one["key"] for region in plan["regions"] for one in region["candidates"] if "key" in one}
    assert not keys & structures


@pytest.mark.parametrize("engine", EACH)
def test_a_network_with_several_results_is_one_region(collage_library, engine, tmp_path):
    """No region with one exit holds more than one of the heads of a feature pyramid; with several, one holds all."""
    from collage import transform

    network = transform.Normalise()(pyramid())
    split, plan = placed_by(network, engine, lambda key: 1.0, forbid=())
    operators, count = encoder(plan, engine)
    assert operators.count("nn.conv2d") == 9
    assert count == 3
    (inside,) = placed.regions(split).values()
    assert inside["nn.conv2d"] == 9
    runs_like_tvm(network, split, tmp_path, seed=6)
