# SPDX-License-Identifier: Apache-2.0
"""The project's documents as data: fenced blocks, inline code, links and tables of a Markdown file.

The documents keep to a small part of Markdown so that this reader is enough: code stands between fences of
three backquotes at the beginning of a line, each with its language. ``read`` refuses everything else that
Markdown would take for code, so that no block is passed over.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from conftest import TREE

# Languages of what is run, and of what is only shown.
RUN = ("sh", "python", "go")
SHOWN = ("text", "console", "cmake", "cpp", "yaml")

_COMMENT = re.compile(r"<!-- (not run|run by): (.+?) -->")
_LIST = re.compile(r"\s*([-*+]|\d+\.) ")


class DocumentError(Exception):
    """A document that this reader does not understand; the text says where and what to write."""


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands from ``line`` (1 is the first of the document) in ``language``."""

    document: str
    line: int
    language: str
    text: str
    not_run: str = ""  # why it is not run
    run_by: str = ""  # the test that runs it

    @property
    def place(self):
        return f"{self.document}:{self.line}"


@dataclass
class Document:
    """A Markdown file of the tree. ``prose`` is what is no block, as (line number, text)."""

    name: str
    blocks: list = field(default_factory=list)
    prose: list = field(default_factory=list)

    @cached_property
    def text(self):
        """The prose with a blank line for each line of a block, so that line numbers hold."""
        lines = dict(self.prose)
        return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))

    def _found(self, pattern):
        return [(self.text.count("\n", 0, m.start()) + 1, m.group(1)) for m in pattern.finditer(self.text)]

    @cached_property
    def inline_code(self):
        """(line, code) of what stands between single backquotes; it may go over the end of a line."""
        return [(line, " ".join(code.split())) for line, code in self._found(re.compile(r"`([^`]+)`"))]

    @cached_property
    def links(self):
        """(line, target) of the links, as written."""
        return self._found(re.compile(r"\]\(([^)\s]+)\)"))

    @cached_property
    def tables(self):
        """The tables: lists of rows, each a list of cells without their marks; the first row is the head."""
        tables, last = [], 0
        for number, line in self.prose:
            if not line.startswith("|"):
                continue
            cells = [cell.strip().strip("*`") for cell in line.strip().strip("|").split("|")]
            if number != last + 1:
                tables.append([])
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                tables[-1].append(cells)
            last = number
        return tables


def names():
    """The documents, as paths in the tree."""
    found = [*TREE.glob("*.md"), *TREE.glob("docs/**/*.md"), *TREE.glob("examples/**/*.md")]
    return sorted(str(path.relative_to(TREE)) for path in found)


def read(name, text=None):
    """Read a document (or ``text``, as if it were that document)."""
    document = Document(name)
    lines = (Path(TREE / name).read_text(encoding="utf-8") if text is None else text).split("\n")
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("```"):
            number = _read_block(document, lines, number)
            continue
        before = lines[number - 2] if number > 1 else ""
        if re.match(r"\s+(```|~~~)|~~~", line):
            raise DocumentError(f"{name}:{number}: a fence is ``` at the beginning of a line")
        if line.startswith(("    ", "\t")) and not before.strip() and not _in_list(lines, number - 1):
            raise DocumentError(f"{name}:{number}: an indented block; write a fence with a language")
        document.prose.append((number, line))
    return document


def _read_block(document, lines, first):
    """Read the block whose fence is the line ``first`` (from 1); gives the number of its last line."""
    where, language = f"{document.name}:{first}", lines[first - 1][3:]
    if language not in RUN + SHOWN:
        raise DocumentError(f"{where}: the language {language!r} is none of {', '.join(RUN + SHOWN)}")
    last = first
    while last < len(lines) and lines[last] != "```":
        if lines[last].startswith("```"):
            raise DocumentError(f"{document.name}:{last + 1}: a fence within a block")
        last += 1
    if last == len(lines):
        raise DocumentError(f"{where}: the block has no end")
    mark = _COMMENT.fullmatch(lines[first - 2]) if first > 1 else None
    if mark and language in SHOWN:
        raise DocumentError(f"{where}: a block of {language} is not run anyway; leave the comment out")
    document.blocks.append(
        Block(
            document.name,
            first + 1,
            language,
            "".join(f"{line}\n" for line in lines[first:last]),
            not_run=mark.group(2) if mark and mark.group(1) == "not run" else "",
            run_by=mark.group(2) if mark and mark.group(1) == "run by" else "",
        )
    )
    return last + 1


def _in_list(lines, index):
    """Whether the indented line at ``index`` goes on with an item of a list."""
    for line in reversed(lines[:index]):
        if line.strip() and not line.startswith(" "):
            return bool(_LIST.match(line))
    return False
