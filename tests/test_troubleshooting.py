# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md: each message that it explains is one that the product prints."""

import re

import documents
import pytest
import source_tree
from conftest import TREE

pytestmark = pytest.mark.fast

# What stands in a heading for a name or a number.
PLACEHOLDERS = (
    "ADVICE", "COMMAND", "ENGINE", "FEATURES", "FILE", "FOLDER", "FOLDERS", "HASH", "INPUTS", "LEVEL",
    "LIBRARY", "LINE", "MACHINE", "MISMATCH", "N", "NAME", "NAMES", "NOTHING", "OTHER", "PLACE", "PROCESSOR",
    "PYTHON", "REASON", "SHAPE", "TIME", "TYPE", "VALUE", "VERSION", "WHAT", "WHOSE's", "WHOSE", "WHY",
)  # fmt: skip
_SPLIT = re.compile(rf"(?<![\w])(?:{'|'.join(PLACEHOLDERS)})(?![\w])")
_HEADING = re.compile(r"^### `(.*)`$", re.M)


def headings():
    return _HEADING.findall((TREE / "docs" / "troubleshooting.md").read_text())


def literals():
    """The product's sources with strings that go on in the next line as one, and without marks of quotes in them."""
    text = source_tree.source()
    # "..." + "..." of Go, and "..." f"..." of Python, over the ends of lines.
    text = re.sub(r'"\s*\+?\s*\n\s*f?"|"\s*\+\s*"', "", text)
    text = re.sub(r"\+\s*\n\s*", "+ ", text)
    # What a loaded model refuses begins so (byoc/runtime/needs.cc).
    text = text.replace('Refuse("', 'Refuse("this model ')
    return text.replace('\\"', "").replace("`", "").replace("%%", "%")


def printed(message, text):
    """Whether a message is in the text: what stands between its placeholders, in this order, near each other."""
    pieces = [re.escape(piece.strip()) for piece in _SPLIT.split(message)]
    return re.search(r"[^\n]{0,90}?".join(piece for piece in pieces if piece), text) is not None


def test_messages_are_those_of_the_product():
    text, found = literals(), headings()
    assert len(found) > 40
    assert [message for message in found if not printed(message, text)] == []


def test_a_message_that_nobody_prints_is_seen():
    assert printed("there is no model file FILE", literals())
    assert not printed("there is no model called FILE", literals())


def test_each_has_a_placeholder_or_words_enough():
    """So that no heading is so short that it is found by chance."""
    for message in headings():
        assert max(len(piece.strip()) for piece in _SPLIT.split(message)) >= 12, message


def test_messages_are_explained():
    """Each heading is followed by prose."""
    document = documents.read("docs/troubleshooting.md")
    lines = [line for _, line in document.prose if line.strip()]
    for this, following in zip(lines, [*lines[1:], "#"], strict=True):
        assert not (this.startswith("### ") and following.startswith("#")), this
