# SPDX-License-Identifier: Apache-2.0
"""collage.plan and collage.Plan: what the command line says of a plan file, in Python."""

import inspect
import re

import pytest
from conftest import SAMPLES


@pytest.fixture(scope="module")
def made(collage_library, store):
    """collage, a module, its plan and another one."""
    import collage
    import numpy as np
    import tvm
    from tvm import relay

    x, w = relay.var("x", shape=(1, 8, 14, 14)), relay.var("w", shape=(8, 8, 3, 3))
    out = relay.nn.softmax(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=8, kernel_size=(3, 3))))
    module = tvm.IRModule.from_expr(relay.Function([x, w], out))
    params = {"w": np.ones((8, 8, 3, 3), "float32")}
    options = {"store": store, "samples": SAMPLES, "threads": 1}
    plan = collage.plan(module, params, backends=["tvm", "dnnl"], search_time=20, **options)
    return collage, module, params, plan, collage.plan(module, params, only="tvm", **options)


def test_a_plan_is_what_the_command_line_reads(made, command, tmp_path):
    collage, _, _, plan, other = made
    for name, one in (("plan.json", plan), ("other.json", other)):
        one.save(tmp_path / name)
    again = collage.Plan(tmp_path / "plan.json")
    assert again.text == plan.text
    assert sum(len(region["candidates"]) for region in plan.regions) >= 1
    told = command("explain", tmp_path / "plan.json", "--verbose").stdout
    assert plan.table() and plan.table() in told
    assert plan.explain("nn.conv2d") == command("explain", tmp_path / "plan.json", "nn.conv2d").stdout
    told = command("diff", "plan.json", "other.json", cwd=tmp_path).stdout
    # Names are of other lengths there, and columns and the lines below them as wide.
    words = re.sub("-+", "-", told.replace("plan.json", "this plan").replace("other.json", "the other")).split()
    assert re.sub("-+", "-", plan.diff(other)).split() == words
    assert "alike" in plan.diff(again)
    assert plan._repr_html_().startswith("<pre>") and "<script" not in plan._repr_html_()


def test_a_plan_is_a_page(made, command, tmp_path):
    plan = made[3]
    page = plan.to_html(tmp_path / "page")
    assert page == tmp_path / "page" / "index.html"
    plan.save(tmp_path / "plan.json")
    result = command("explain", tmp_path / "plan.json", "--report", tmp_path / "told")
    assert result.returncode == 0, result.stderr
    # The command line says how to build it, too.
    told = re.sub(
        "<p>This builds the placement again:</p>.*?</pre>", "", (tmp_path / "told" / "index.html").read_text()
    )
    assert told == page.read_text()


def test_a_plan_is_a_picture(made, command, tmp_path):
    plan = made[3]
    plan.save(tmp_path / "plan.json")
    svg, png = tmp_path / "told.svg", tmp_path / "told.png"
    result = command("explain", tmp_path / "plan.json", "--svg", svg, "--png", png)
    assert result.returncode == 0, result.stderr
    assert plan.to_svg(tmp_path / "made.svg").read_bytes() == svg.read_bytes()
    assert plan.to_png(tmp_path / "made.png").read_bytes() == png.read_bytes()
    with pytest.raises(ValueError, match=r"must end in \.svg"):
        plan.to_svg(tmp_path / "made.pdf")
    with pytest.raises(OSError, match="cannot be written"):
        plan.to_png(tmp_path / "nowhere" / "made.png")


def test_a_number_is_a_node(made):
    plan = made[3]
    node = plan.regions[0]["candidates"][0]["nodes"][0]["index"]
    assert plan.explain(node) == plan.explain(f"%{node}")


def test_a_plan_can_be_replayed(made):
    collage, module, params, plan, _ = made
    assert collage.replay(module, plan.text, params, verify=False) is not None


def test_what_is_no_plan_is_refused(made, tmp_path):
    collage, module, _, plan, _ = made
    with pytest.raises(ValueError, match="not readable"):
        collage.Plan("{}")
    with pytest.raises(FileNotFoundError):
        collage.Plan(tmp_path / "nowhere.json")
    with pytest.raises(ValueError, match=r"nn\.lstm"):
        plan.explain("nn.lstm")
    with pytest.raises(ValueError, match="threads"):
        collage.plan(module, threads=-1)


def test_it_has_the_options_of_placing(made):
    collage = made[0]
    known = [
        name
        for name, option in collage.options().items()
        if name != "python" and (option["part"] == "placing" or name == "search_time")
    ]
    assert list(inspect.signature(collage.plan).parameters)[2:] == [*known, "progress"]


def test_it_says_what_the_file_does(made):
    import json

    _, _, _, plan, other = made
    file = json.loads(plan.text)
    assert plan.estimate == file["estimate"] and plan.estimate["total_ms"] > 0
    assert plan.finalists == [] == other.finalists, "nothing was run of what is only decided"


def test_its_proof_is_checked(made):
    import json

    collage, _, _, plan, other = made
    proof = plan.verify()
    assert set(proof) == {"ms", "bound_ms", "gap_ms"}
    assert proof["ms"] == pytest.approx(plan.estimate["total_ms"])
    assert proof["gap_ms"] == pytest.approx(proof["ms"] - proof["bound_ms"])
    with pytest.raises(ValueError):
        other.verify()  # all on one backend: nothing was compared
    damaged = json.loads(plan.text)
    damaged["estimate"]["bound_ms"] = damaged["estimate"]["total_ms"] = 2 * damaged["estimate"]["total_ms"]
    with pytest.raises(ValueError):
        collage.Plan(damaged).verify()
