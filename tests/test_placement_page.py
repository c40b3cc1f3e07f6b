# SPDX-License-Identifier: Apache-2.0
"""docs/how-placement-works.md: its pictures are those of the plan that stands beside it, and so is each number."""

import json
import re
import sys

import documents
import pytest
from conftest import TREE

sys.path.insert(0, str(TREE / "scripts"))
import placement_pictures

pytestmark = pytest.mark.fast

PAGE, FOLDER = "docs/how-placement-works.md", TREE / "docs" / "placement"


@pytest.fixture(scope="module")
def placed():
    return placement_pictures.Placed(json.loads((FOLDER / "plan.json").read_text()))


def test_pictures_are_drawn_from_the_plan(tmp_path):
    placement_pictures.draw(FOLDER / "plan.json", tmp_path)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in FOLDER.glob("*.svg")}
    assert len(drawn) == 3


def test_what_the_page_says_of_prices_holds(placed):
    """No candidate costs less than its operators' prices, and these sum to the bound."""
    assert len(placed.candidates) == placed.plan["candidates"]["proposed"]
    assert {index for one in placed.candidates for index in one["nodes"]} == set(placed.nodes)
    for candidate in placed.candidates:
        assert candidate["estimate_ms"] - placed.prices(candidate) > -1e-9, candidate
    assert sum(node["price_ms"] for node in placed.nodes.values()) == pytest.approx(
        placed.plan["estimate"]["bound_ms"], abs=1e-9
    )


def numbers(value):
    """Each number of a JSON document."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_numbers_of_the_page_are_the_plans(placed):
    known = {f"{abs(number):.4f}" for number in numbers(placed.plan)}
    for candidate in placed.candidates:
        prices = placed.prices(candidate)
        known |= {f"{prices:.4f}", f"{candidate['estimate_ms'] - prices:.4f}"}
    document = documents.read(PAGE)
    assert [n for n in re.findall(r"\d+\.\d{3,}", document.text) if n not in known] == []
    text = " ".join(document.text.split())
    for backend in placement_pictures.COLOURS:
        (told,) = re.findall(rf"\b{backend} (?:has )?(\d+)\b(?! ms)", text)
        assert int(told) == sum(one["backend"] == backend for one in placed.candidates)
    assert f"native {told}: {len(placed.candidates)} together" in text


def test_the_proof_checks_and_is_quoted(command):
    done = command("explain", "--verify", FOLDER / "plan.json")
    assert done.returncode == 0, done.stderr
    quoted = [b.text for b in documents.read(PAGE).blocks if b.text.startswith("docs/placement/plan.json")]
    assert quoted == [done.stdout.replace(str(FOLDER), "docs/placement")]
