# SPDX-License-Identifier: Apache-2.0
"""--svg and --png: what runs where as a picture, without a browser."""

import json
import re
from xml.etree import ElementTree

import pytest
from conftest import TREE
from large_plan import large_plan

PLAN = TREE / "pass" / "plan" / "testdata" / "plan.json"


@pytest.mark.fast
def test_a_plan_is_drawn(command, tmp_path):
    svg, png = tmp_path / "placement.svg", tmp_path / "placement.png"
    done = command("explain", PLAN, "--svg", svg, "--png", png)
    assert done.returncode == 0 and f"wrote the picture {svg}\nwrote the picture {png}" in done.stdout, done.stderr
    assert svg.read_text() == (TREE / "pass" / "report" / "picture" / "testdata" / "placement.svg").read_text()
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    size = [int.from_bytes(png.read_bytes()[at : at + 4], "big") for at in (16, 20)]
    assert size == [int(n) for n in re.search(r'width="(\d+)" height="(\d+)"', svg.read_text()).groups()]


@pytest.mark.fast
@pytest.mark.parametrize("operators", [300, 2000])
def test_every_operator_is_there(command, operators, tmp_path):
    plan, svg = tmp_path / "plan.json", tmp_path / "placement.svg"
    plan.write_text(json.dumps(large_plan(operators)))
    assert command("explain", plan, "--svg", svg).returncode == 0
    titles = [e.text for e in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}title")]
    assert [t.split()[0] for t in titles if t.startswith("%")] == [f"%{k + 1}" for k in range(operators)]


@pytest.mark.fast
def test_what_cannot_be_drawn_is_told(command, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN.read_text())
    for arguments, said in (
        (("--svg", tmp_path / "none" / "x.svg"), "--svg: "),
        (("--png", plan), "PLAN and --png are the same file"),
        (("--svg", tmp_path / "x", "--png", tmp_path / "x"), "--svg and --png are the same file"),
        (("%2", "--svg", tmp_path / "x.svg"), "--svg is about the whole plan"),
        (("--verify", "--png", tmp_path / "x.png"), "--png is about the whole plan"),
    ):
        done = command("explain", plan, *arguments)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
