# SPDX-License-Identifier: Apache-2.0
"""What regions say about the time of their steps while a network is profiled."""

import json

import numpy as np
import pytest
from placed import export_to, place, usable

pytestmark = pytest.mark.skipif("dnnl" not in usable(), reason="the dnnl backend is not usable here")


def network():
    """Two convolutions, the second one with a residual addition, and a pool."""
    import tvm
    from tvm import relay

    rng = np.random.default_rng(0)

    def weight(*shape):
        return relay.const((rng.standard_normal(shape) * 0.1).astype("float32"))

    data = relay.var("data", shape=(1, 3, 24, 24))
    a = relay.nn.conv2d(data, weight(16, 3, 3, 3), padding=(1, 1), channels=16, kernel_size=(3, 3))
    a = relay.nn.relu(relay.nn.bias_add(a, weight(16)))
    b = relay.nn.conv2d(a, weight(16, 16, 1, 1), channels=16, kernel_size=(1, 1))
    c = relay.nn.max_pool2d(relay.add(b, a), (2, 2), (2, 2))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data], c)))


def test_the_lower_quartile_is_the_one_that_go_takes(collage_library):
    from collage import profile

    assert profile._estimate([5.0, 1.0, 2.0, 3.0, 4.0, 9.0]) == 2.25, "between the second and the third"
    assert profile._estimate([7.0]) == 7.0


@pytest.mark.parametrize(("backend", "runs"), [("dnnl", 4), (None, 3)])
def test_a_run_is_thrown_away_where_an_engine_sets_something_up(collage_library, monkeypatch, tmp_path, backend, runs):
    from collage import profile

    path = tmp_path / "network.so"
    export_to(path, place(network(), backend) if backend else network())
    made = []

    def counting(path, open_module=profile.debug_module):
        executor = open_module(path)
        run = executor["profile"]

        def profiled(names):
            made.append(run(names))
            return made[-1]

        return {"set_input": executor["set_input"], "profile": profiled}

    monkeypatch.setattr(profile, "debug_module", counting)
    found = profile.profile(path, {"data": np.ones((1, 3, 24, 24), "float32")}, rounds=3)
    assert len(made) == runs
    assert len(found["kernels_ms"]) == len(found["names"]) == len(made[0].calls)
    assert bool(found["regions"]) == bool(backend)


def test_steps_inside_a_region_are_timed(collage_library, tmp_path):
    import tvm
    from collage import profile

    path = tmp_path / "network.so"
    export_to(path, place(network(), "dnnl"))
    data = np.random.default_rng(1).standard_normal((1, 3, 24, 24), dtype=np.float32)
    found = profile.profile(path, {"data": data}, rounds=3)
    (region,) = found["regions"].values()
    assert set(found["regions"]) <= set(found["names"])
    groups = region["groups"]
    assert groups == ["dnnl.conv2d_bias_relu", "dnnl.conv2d_sum", "nn.max_pool2d"]
    done = {groups[one] for step in region["steps"] for one in step.get("of", []) if not step.get("reorder")}
    assert done == set(groups), "each operator is in some step, whatever it was fused with"
    assert all(step["ms"] > 0 for step in region["steps"] if "of" in step), "what computes takes time"
    taken = sum(step["ms"] for step in region["steps"])
    assert 0 < taken <= region["ms"] * 1.5, "steps are parts of the whole"
    # The result leaves the blocked layout: a reorder after which nobody in the region wants it.
    last = region["steps"][-1]
    assert last["reorder"]
    assert "of" not in last
    assert [groups[one] for one in last["from"]] == ["nn.max_pool2d"]

    # Nothing is noted while nobody profiles.
    take = tvm.get_global_func("collage.runtime.RegionProfile")
    profile.debug_module(path)["profile"]([])
    assert json.loads(str(take())) == {}
