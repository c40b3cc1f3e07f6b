# SPDX-License-Identifier: Apache-2.0
"""RATIONALE.md: its list of contents is that of its headings."""

import re

import pytest
from conftest import TREE

pytestmark = pytest.mark.fast


def address(heading):
    """What a heading is called in an address, by GitHub and by the site of the documents."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())


def test_the_contents_are_the_headings():
    text = (TREE / "RATIONALE.md").read_text()
    _, contents, body = re.split(r"^## Contents$|^(?=## The whole$)", text, flags=re.M)
    listed = [
        (len(indent) // 4, " ".join(title.split()), link)
        for indent, title, link in re.findall(r"^( *)- \[(.*?)\]\(#(.*?)\)$", contents, re.M | re.S)
    ]
    headings = [(len(marks) - 2, title) for marks, title in re.findall(r"^(##+) (.*)$", body, re.M)]
    assert listed == [(depth, title, address(title)) for depth, title in headings]
    assert len({link for *_, link in listed}) == len(listed), "two headings have one address"
    # Each part has questions, and each question an answer.
    assert not re.search(r"^#+ .*\n+(##? |\Z)", body, re.M)
    assert all(depth in (0, 1) for depth, _ in headings)


def test_answers_are_found_by_their_questions():
    """What is quoted of it elsewhere, and in it, is a heading of it."""
    headings = set(re.findall(r"^### (.*)$", (TREE / "RATIONALE.md").read_text(), re.M))
    for path in [*TREE.glob("*.md"), *TREE.glob("docs/*.md")]:
        for quoted in re.findall(r'"((?:Why|Where|When|What)\b[^"]*\?)"', " ".join(path.read_text().split())):
            if path.name != "CHANGELOG.md":
                assert quoted in headings, f"{path.name}: {quoted}"
