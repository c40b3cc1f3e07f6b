# SPDX-License-Identifier: Apache-2.0
"""Kernels of a backend by name: in plans, pins, prohibitions, and without those that reassociate sums (exact).

The kernels are those of `native` that run on any processor. Costs are given, so that nothing is measured.
"""

import json

import numpy as np
import placed
import pytest
import schemas
import tvm
from tvm import relay

BACKENDS = ["tvm", "dnnl", "native"]


@pytest.fixture(scope="module")
def module(collage_library):
    """A convolution and its relu for oneDNN, an upsampled one, one with few channels, a dense layer of one row."""
    import collage

    collage.library.load()
    rng = np.random.default_rng(5)

    def constant(*shape):
        return relay.const(rng.standard_normal(shape, dtype=np.float32) * 0.2)

    def convolution(x, outputs, inputs):
        return relay.nn.conv2d(x, constant(outputs, inputs, 3, 3), padding=1, channels=outputs, kernel_size=(3, 3))

    x = relay.var("x", shape=(1, 8, 6, 6))
    y = relay.nn.relu(convolution(x, 8, 8))
    y = relay.nn.relu(convolution(relay.nn.upsampling(y, 2, 2), 8, 8))
    y = relay.nn.relu(convolution(y, 3, 8))
    y = relay.nn.dense(relay.nn.batch_flatten(y), constant(5, 432))
    return collage.transform.Normalise()(relay.transform.InferType()(tvm.IRModule.from_expr(y)))


def ask(module, **options):
    """A placement where native is cheapest wherever it takes something, and dnnl next."""
    from collage import transform

    def cost(key):
        key = json.loads(str(key))
        return {"native": 1.0, "dnnl": 10.0, "tvm": 1e4}[key["backend"]]

    told = transform.configuration(BACKENDS, threads=2, store="/nowhere/costs.jsonl", **options)
    hybrid, text = tvm.get_global_func("collage.partition")(module, told, cost)
    return hybrid, json.loads(str(text))


def kernels(plan):
    """[backend.kernel] of what has a kernel with a name."""
    return sorted(
        f"{one.get('backend', region['backend'])}.{one['kernel']}"
        for region in plan["regions"]
        for one in region["candidates"]
        if "kernel" in one
    )


def test_kernels_and_the_library_share_a_region(module, tmp_path):
    hybrid, plan = ask(module)
    assert kernels(plan) == ["native.narrow", "native.product", "native.upsampled"]
    (region,) = (r for r in plan["regions"] if "symbol" in r)
    assert region["backend"] == "dnnl+native" and region["symbol"].startswith("tvmgen_default_collage_dnnl_")
    assert {one["backend"] for one in region["candidates"]} == {"dnnl", "native"}
    schemas.hold("files/plan", plan)
    inputs = placed.values(module)
    got = placed.run(placed.load(placed.export_to(tmp_path / "model.so", hybrid)), *inputs)
    placed.same(got, placed.expected(module, *inputs))


def test_rules_reach_kernels(module):
    _, plan = ask(module, forbid="nn.conv2d=native.upsampled")
    assert kernels(plan) == ["native.narrow", "native.product"]
    (excluded,) = {(one["kernel"], one["constraint"]) for one in plan["candidates"]["excluded"]}
    assert excluded == ("upsampled", "forbid nn.conv2d=native.upsampled")
    _, plan = ask(module, forbid="nn.conv2d=native")
    assert kernels(plan) == ["native.product"]
    _, plan = ask(module, forbid=["nn.conv2d=native", "nn.dense=native"])
    assert kernels(plan) == []
    narrow = next(
        one["nodes"][0]["index"]
        for r in plan["regions"]
        for one in r["candidates"]
        if "(1, 3, 12, 12)" in one["nodes"][0]["type"]
    )
    _, plan = ask(module, pin=f"%{narrow}=native.narrow", forbid="nn.dense=native")
    assert "native.narrow" in kernels(plan)

    for rule, told in (
        ("nn.conv2d=native.upsampeld", 'unknown kernel of native, "upsampeld": did you mean "upsampled"'),
        ("nn.conv2d=openvino.x", "names a backend that is not offered"),
        ("nn.conv2d=native.", "is not SELECTOR=BACKEND.KERNEL"),
        ("nn.relu=native.product", "cannot be kept: no candidate on native.product covers"),
    ):
        with pytest.raises(ValueError, match=told):
            ask(module, pin=rule)


def test_exact_does_without_what_reassociates(module):
    from collage import transform

    _, free = ask(module)
    hybrid, plan = ask(module, exact=True)
    assert kernels(plan) == ["native.narrow", "native.product"]
    assert plan["constraints"] == {"exact": True}
    assert {one["kernel"] for one in plan["candidates"]["excluded"] if one["constraint"] == "exact"} >= {"upsampled"}
    schemas.hold("files/plan", plan)
    tvm.get_global_func("collage.plan.verify")(json.dumps(plan))
    with tvm.transform.PassContext(config={"collage.exact": True}):
        _, asked = ask(module)
    assert asked == plan

    assert tvm.ir.structural_equal(transform.Replay(plan, exact=True)(module), hybrid)
    transform.Replay(free)(module)
    with pytest.raises(ValueError, match=r"the kernel upsampled\) at %.*exact"):
        transform.Replay(free, exact=True)(module)
    with tvm.transform.PassContext(config={"collage.exact": True}), pytest.raises(ValueError, match="exact"):
        transform.Replay(free)(module)


def test_the_command_line_says_it(module, command, tmp_path):
    model = tmp_path / "model.relay"
    model.write_text(module.astext())
    common = ("--backends", ",".join(BACKENDS), "--db", tmp_path / "costs.jsonl", "--repeat", 1, "-q")
    found = command(
        "plan", model, "--exact", "--forbid", "nn.dense=native.product", "--plan-out", tmp_path / "plan.json", *common
    )
    assert found.returncode == 0, found.stderr
    assert "exact: kernels that associate sums otherwise" in found.stdout
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert not {"native.upsampled", "native.product"} & set(kernels(plan))
    wrong = command("plan", model, "--pin", "nn.dense=native.prodcut", *common)
    assert wrong.returncode == 2 and 'did you mean "product"?' in wrong.stderr
    told = schemas.parsed(command("backends", "--json").stdout)
    (native,) = (b for b in told["backends"] if b["name"] == "native")
    assert {"product", "narrow", "upsampled", "attention"} <= set(native["kernels"])
    assert {p["kernel"] for p in native["patterns"] if p.get("reassociates")} >= {"upsampled", "winograd"}
