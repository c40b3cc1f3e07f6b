# SPDX-License-Identifier: Apache-2.0
"""What OpenVINO and ONNX Runtime say about the time of each operator inside a region that they run as one model."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import environment
from placed import export_to, place, regions, usable

ENGINES = ("openvino", "onnxruntime")

pytestmark = pytest.mark.usefixtures("collage_library")


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param not in usable():
        pytest.skip(f"the {request.param} backend is not usable here")
    return request.param


class _Maker:
    """Weights and inputs of the small networks."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def weight(self, *shape):
        from tvm import relay

        return relay.const((self.rng.standard_normal(shape) * 0.1).astype("float32"))

    def conv(self, data, inputs, outputs, size=3, **options):
        from tvm import relay

        half = size // 2
        weight = self.weight(outputs, inputs // options.get("groups", 1), size, size)
        return relay.nn.conv2d(
            data, weight, padding=(half, half), channels=outputs, kernel_size=(size, size), **options
        )


def residual():
    """Convolutions with bias and activation, a depthwise one, a residual sum, a pool: what engines fuse."""
    from tvm import relay

    make = _Maker()
    data = relay.var("data", shape=(1, 3, 32, 32))
    a = relay.nn.relu(relay.nn.bias_add(make.conv(data, 3, 16), make.weight(16)))
    b = relay.clip(make.conv(a, 16, 16, groups=16), 0, 6)
    c = relay.nn.relu(relay.add(relay.add(make.conv(b, 16, 16, 1), make.weight(16, 1, 1)), a))
    d = relay.nn.max_pool2d(relay.sigmoid(c) * c, (2, 2), (2, 2))
    return relay.Function([data], relay.nn.dense(relay.nn.batch_flatten(d), make.weight(10, 16 * 16 * 16)))


def attention():
    """A head of attention with a normalisation written out, and a GELU."""
    from tvm import relay

    make = _Maker()
    data = relay.var("data", shape=(32, 64))
    mean = relay.mean(data, -1, keepdims=True)
    centred = relay.subtract(data, mean)
    spread = relay.sqrt(relay.add(relay.mean(centred * centred, -1, keepdims=True), relay.const(1e-5)))
    normal = relay.add(relay.multiply(relay.divide(centred, spread), make.weight(64)), make.weight(64))
    query, key, value = (
        relay.reshape(relay.add(relay.nn.dense(normal, make.weight(64, 64)), make.weight(64)), (1, 32, 64))
        for _ in range(3)
    )
    scores = relay.nn.softmax(relay.multiply(relay.nn.batch_matmul(query, key), relay.const(0.125)))
    mixed = relay.reshape(relay.nn.batch_matmul(scores, relay.transpose(value, (0, 2, 1))), (32, 64))
    wide = relay.add(relay.nn.dense(mixed, make.weight(128, 64)), make.weight(128))
    halved = relay.multiply(wide, relay.const(0.5))
    gelu = relay.multiply(halved, relay.add(relay.erf(relay.multiply(wide, relay.const(0.70710678))), relay.const(1.0)))
    return relay.Function([data], relay.nn.dense(gelu, make.weight(64, 128)))


def shuffled():
    """Channels that change their places, parts that are joined, two results in two layouts."""
    from tvm import relay

    make = _Maker()
    data = relay.var("data", shape=(1, 8, 24, 24))
    a = relay.nn.relu(make.conv(data, 8, 16, 1, groups=4))
    turned = relay.transpose(relay.reshape(a, (1, 4, 4, 24, 24)), (0, 2, 1, 3, 4))
    b = make.conv(relay.reshape(turned, (1, 16, 24, 24)), 16, 16, groups=16)
    c = relay.concatenate([relay.nn.avg_pool2d(b, (2, 2), (2, 2)), make.conv(b, 16, 8, strides=(2, 2))], 1)
    return relay.Function([data], relay.Tuple([c, relay.nn.relu(make.conv(b, 16, 4))]))


NETWORKS = {network.__name__: network for network in (residual, attention, shuffled)}


def profiled(tmp_path, engine, network, rounds=3):
    """The profile of a network that is one region of ``engine``, and that region of it."""
    import tvm
    from collage import profile
    from tvm import relay

    module = relay.transform.InferType()(tvm.IRModule.from_expr(network()))
    placed = place(module, engine)
    assert len(regions(placed)) == 1
    path = export_to(tmp_path / "network.so", placed)
    shape = [int(extent) for extent in module["main"].params[0].checked_type.shape]
    data = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    found = profile.profile(path, {"data": data}, rounds=rounds)
    (symbol,) = found["regions"]
    assert symbol in found["names"]
    return found, found["regions"][symbol], regions(placed)[symbol]


@pytest.mark.parametrize("network", NETWORKS)
def test_layers_are_the_regions_operators(tmp_path, engine, network):
    found, region, operators = profiled(tmp_path, engine, NETWORKS[network])
    assert region["layers"]
    assert "why" not in region
    groups = region["groups"]
    assert len(groups) <= sum(operators.values())
    work = [step for step in region["steps"] if not step.get("reorder")]
    named = {group for step in work for group in step.get("of", [])}
    assert named <= set(range(len(groups)))
    # Each product is some layer's, or was worked into the one of the operator behind it; pools never go anywhere.
    assert any("conv" in groups[group] or "dense" in groups[group] for group in named)
    assert {i for i, name in enumerate(groups) if "pool" in name} <= named
    # A third at the least: engines fuse, but not everything into one.
    assert len(named) >= len(groups) / 3, (groups, region["steps"])
    taken = sum(step["ms"] for step in region["steps"])
    unnamed = sum(step["ms"] for step in region["steps"] if not step.get("of") and not step.get("from"))
    assert taken > 0
    assert unnamed <= taken / 10, region["steps"]
    assert region["call_ms"] >= 0
    # One unit, in the steps and around them: the wide bounds are for a machine on which others run, and a unit is
    # wrong by a thousand. What the call takes beside its steps is reckoned in layer_steps_test.cc.
    assert region["ms"] / 100 <= taken <= region["ms"] * 100
    assert len(found["kernels_ms"]) == len(found["names"])


def test_results_are_the_same_while_a_region_is_timed(tmp_path, engine):
    import tvm
    from collage import profile
    from tvm import relay

    module = relay.transform.InferType()(tvm.IRModule.from_expr(shuffled()))
    executor = profile.debug_module(export_to(tmp_path / "network.so", place(module, engine)))
    data = np.random.default_rng(2).standard_normal((1, 8, 24, 24), dtype=np.float32)
    switch = tvm.get_global_func("collage.runtime.ProfileRegions")
    take = tvm.get_global_func("collage.runtime.RegionProfile")

    def results(value, timed):
        executor["set_input"]("data", tvm.nd.array(value))
        switch(timed)
        executor["run"]()
        told = json.loads(str(take()))
        switch(False)
        return [executor["get_output"](i).numpy() for i in range(2)], told

    for value in (data, data[:, ::-1].copy()):  # and back, so that neither keeps the other's
        plain, nothing = results(value, False)
        timed, told = results(value, True)
        assert nothing == {}
        assert all(region["steps"]["steps"] for region in told.values())
        for one, other in zip(plain, timed, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


PROFILED = """
import json, sys
import numpy as np
import collage.library
from collage import profile
collage.library.load()
found = profile.profile(sys.argv[1], {"data": np.zeros((1, 8, 24, 24), "float32")}, rounds=2)
print(json.dumps(found))
"""


def test_a_profile_that_cannot_be_written_is_said(tmp_path):
    """ONNX Runtime writes its profile into a file; without a place for one the region is told as a whole."""
    if "onnxruntime" not in usable():
        pytest.skip("the onnxruntime backend is not usable here")
    import tvm
    from tvm import relay

    module = relay.transform.InferType()(tvm.IRModule.from_expr(shuffled()))
    path = export_to(tmp_path / "network.so", place(module, "onnxruntime"))
    told = subprocess.run(
        [sys.executable, "-c", PROFILED, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(TMPDIR=tmp_path / "nowhere"),
    )
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])
    ((symbol, region),) = found["regions"].items()
    assert region["steps"] == []
    assert region["why"] == "no folder can be made for ONNX Runtime's profile (TMPDIR)"
    assert region["ms"] > 0
    kernels = dict(zip(found["names"], found["kernels_ms"], strict=True))
    assert kernels[symbol] > 0, "the whole of it is known all the same"


def searched(command, folder, engine, network, **environment):
    """The records of the networks that a short search with ``engine`` has measured: those in which it told
    what its regions do, and all.
    """
    import tvm
    from tvm import relay

    module = relay.transform.InferType()(tvm.IRModule.from_expr(network()))
    model, costs = folder / "network.json", folder / "costs.jsonl"
    model.write_text(tvm.ir.save_json(module))
    options = ("--backends", f"tvm,{engine}", "--trials", 3, "--repeat", 3, "--rounds", 3, "-q")
    result = command("compile", model, "-o", folder / "network.so", "--db", costs, *options, environment=environment)
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in costs.read_text().splitlines()]
    found = [record["network"] for record in records if record["key"].get("kind") == "network"]
    return [one for one in found if any(border["backend"] == engine for border in one.get("borders", []))], found


def test_a_search_learns_what_each_operator_takes(command, tmp_path, engine):
    """The region of a whole network falls into parts, which together are all operators and all of its time."""
    # Some 20 microseconds of work: where another process takes the processor in the middle of it, the time around the
    # operators is longer than theirs. So one search of a few must have been undisturbed.
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        told, found = searched(command, folder, engine, residual)
        assert told, found
        for network in told:
            assert "whole" not in network
            nodes = [node for part in network["parts"] for node in part["nodes"]]
            assert len(nodes) == len(set(nodes))
        # The one with the fewest regions: the engine alone, or nearly.
        alone = min(told, key=lambda network: sum(border.get("calls", 0) for border in network["borders"]))
        # Three convolutions, the sigmoid's product, the pool, the product at the end: no engine does two at once.
        assert len(alone["parts"]) >= 5, alone
        assert sum(part["ms"] > 0 for part in alone["parts"]) >= 5, alone
        assert len({node for part in alone["parts"] for node in part["nodes"]}) >= 14
        call = sum(border.get("call_ms", 0) for border in alone["borders"])
        assert call >= 0
        if call < sum(part["ms"] for part in alone["parts"]):
            return
    pytest.fail(f"the call took longer than the operators in each of the searches, last: {alone}")


def test_a_region_that_cannot_be_told_apart_is_one_part_and_says_why(command, tmp_path):
    """Its time is that of the kernel as before; the reason stands in the record."""
    if "onnxruntime" not in usable():
        pytest.skip("the onnxruntime backend is not usable here")
    python = tmp_path / "python"
    nowhere = f'case "$*" in *collage.worker*) export TMPDIR="{tmp_path}/nowhere" ;; esac'
    python.write_text(f'#!/bin/sh\n{nowhere}\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    library = find_spec("onnxruntime").submodule_search_locations[0]
    (library,) = Path(library, "capi").glob("libonnxruntime.so*")
    places = {"COLLAGE_PYTHON": python, "COLLAGE_ONNXRUNTIME_LIBRARY": library}
    told, found = searched(command, tmp_path, "onnxruntime", residual, **places)
    assert not told, "nothing was learnt of borders"
    without = [network for network in found if "whole" in network]
    assert without
    for network in without:
        assert {one["backend"] for one in network["whole"]} == {"onnxruntime"}
        assert {one["why"] for one in network["whole"]} == {"no folder can be made for ONNX Runtime's profile (TMPDIR)"}
        assert any(len(part["nodes"]) >= 10 and part["ms"] > 0 for part in network["parts"]), "the region is one part"
