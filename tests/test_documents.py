# SPDX-License-Identifier: Apache-2.0
"""Each block of code in README.md, RATIONALE.md and docs/ is run, or says why not; figures are as taken."""

import json
import math
import re

import documents
import pytest
from conftest import TREE
from document_runner import BlockError, Runner, runnable
from documents import DocumentError

# The documents of examples/ are tests/test_examples.py's.
NAMES = [name for name in documents.names() if not name.startswith("examples/")]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name in NAMES if runnable(documents.read(name))])
def test_blocks_run_as_they_stand(name, tmp_path, collage_library):
    """In order, in one clean folder: what one writes the next may read."""
    runner = Runner(tmp_path)
    for block in runnable(documents.read(name)):
        runner.run(block)


@pytest.mark.fast
def test_there_are_blocks_of_each_kind():
    """So that a reader that finds nothing is seen."""
    assert {b.language for name in NAMES for b in runnable(documents.read(name))} == {"sh", "python", "go"}
    assert [b.language for b in runnable(documents.read("README.md"))] == ["sh", "python", "sh"]


@pytest.mark.fast
def test_readme_is_a_screen_and_a_half():
    assert len((TREE / "README.md").read_text().splitlines()) <= 120


@pytest.mark.fast
@pytest.mark.parametrize("name", documents.names())
def test_what_is_not_run_says_why(name):
    for block in documents.read(name).blocks:
        if block.not_run:
            print(f"{block.place}: not run: {block.not_run}")
            assert len(block.not_run.split()) > 4, f"{block.place}: {block.not_run!r} is no reason"
        if block.run_by:
            print(f"{block.place}: run by {block.run_by}")
            test = TREE / block.run_by
            assert test.is_file(), f"{block.place}: there is no {block.run_by}"
            assert name.rpartition("/")[2] in test.read_text(), f"{block.run_by} does not read {name}"
        if block.language in documents.SHOWN:
            commands = r"^(\$ )?(collage|make|python|pip|git|go) |^import |^package "
            hidden = block.language == "text" and re.search(commands, block.text, re.M)
            assert not hidden, f"{block.place}: `{hidden and hidden.group()}` in a block that is not run"


# The reader and the runner can say no.

REFUSED = {
    "indented": ("text\n\n    collage doctor\n", r"README.md:3: an indented block"),
    "no language": ("```\nx\n```\n", "README.md:1: the language '' is none of"),
    "unknown language": ("```bash\nx\n```\n", "the language 'bash' is none of"),
    "no end": ("\n```sh\nx\n", "README.md:2: the block has no end"),
    "fence within": ("```sh\nx\n```sh\n```\n", "README.md:3: a fence within a block"),
    "indented fence": ("- item\n\n  ```sh\n  x\n  ```\n", "README.md:3: a fence is ```"),
    "other fence": ("~~~sh\nx\n~~~\n", "README.md:1: a fence is ```"),
    "comment for nothing": ("<!-- not run: no need -->\n```text\nx\n```\n", "leave the comment out"),
}


@pytest.mark.fast
@pytest.mark.parametrize("case", REFUSED)
def test_what_the_reader_refuses(case):
    text, message = REFUSED[case]
    with pytest.raises(DocumentError, match=message):
        documents.read("README.md", text)


@pytest.mark.fast
def test_what_the_reader_reads():
    text = "a `b\nc` [d](e.md)\n\n- f\n\n    more of f\n\n<!-- not run: g h -->\n```sh\ni\n```\n"
    text += "| j | `k` |\n| --- | --: |\n| l | **m** |\n"
    document = documents.read("README.md", text)
    (block,) = document.blocks
    assert (block.line, block.language, block.text, block.not_run) == (10, "sh", "i\n", "g h")
    assert document.inline_code == [(1, "b c"), (12, "k")]
    assert document.links == [(2, "e.md")]
    assert document.tables == [[["j", "k"], ["l", "m"]]]


@pytest.mark.fast
@pytest.mark.parametrize(
    "block",
    [
        "```sh\ntrue\nfalse\ntrue\n```\n",
        "```sh\ncollage explain nowhere.json\n```\n",
        "```sh\ncollage --no-such-flag | cat\n```\n",
        "```python\nraise ValueError\n```\n",
        "```go\npackage main\nfunc main() {\n\tnothing()\n}\n```\n",
    ],
)
def test_a_block_that_fails_is_told_with_its_place(block, tmp_path, collage_library):
    (found,) = runnable(documents.read("README.md", "\n\n" + block))
    with pytest.raises(BlockError, match=r"README\.md:4: "):
        Runner(tmp_path).run(found)


@pytest.mark.fast
def test_python_blocks_are_one_program_at_their_lines(tmp_path, collage_library):
    text = "\n```python\na = 1\n```\nb\n```python\nassert a == 1\nraise ValueError\n```\n"
    (found,) = runnable(documents.read("README.md", text))
    with pytest.raises(BlockError, match=r'README.py", line 8, in'):
        Runner(tmp_path).run(found)


# Figures.

ENGINES = {
    "Collage": "collage",
    "TVM": "tvm",
    "ONNX Runtime": "onnxruntime",
    "OpenVINO": "openvino",
}


def measured(name):
    return json.loads((TREE / "docs" / "results" / f"{name}.json").read_text())


def figure(value):
    """Three digits, as the tables have them."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


@pytest.mark.fast
@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_the_table_of_networks_is_what_was_measured(name):
    head, *rows = documents.read(name).tables[0]
    assert head == ["network", *ENGINES, "what was kept"]
    networks = {network["name"]: network for network in measured("networks_b1")["networks"]}
    if name == "README.md":  # some of them
        assert len(rows) > 3
    else:
        assert [row[0] for row in rows] == list(networks)
    for row in rows:
        taken = {peer["peer"]: peer["median_ms"] for peer in networks[row[0]]["peers"]}
        assert row[1:-1] == [figure(taken[engine]) for engine in ENGINES.values()], row[0]


@pytest.mark.fast
def test_ratios_are_what_was_measured():
    text = " ".join((TREE / "docs" / "results.md").read_text().split())
    (best,) = re.findall(r"The best of TVM, ONNX Runtime and OpenVINO takes ([\d.]+) times as long", text)
    assert best == f"{measured('networks_b1')['summary']['best_peer_to_ours']['mean']:.2f}"
    readme = " ".join((TREE / "README.md").read_text().split())
    assert f"the best of TVM, ONNX Runtime and OpenVINO takes {best} times as long" in readme
    (eight,) = re.findall(r"the best peer takes ([\d.]+) times as long on ten networks", text)
    assert eight == f"{measured('networks_b8')['summary']['best_peer_to_ours']['mean']:.2f}"
    (one,) = re.findall(r"one thread .{,50} the best peer takes ([\d.]+) times as long", text)
    assert one == f"{measured('networks_t1')['summary']['best_peer_to_ours']['mean']:.2f}"
    (peer,) = re.findall(r"([\d.]+) times as fast as the best peer of each", text)
    (two,) = re.findall(r"\(([\d.]+) times the best of TVM and PyTorch\)", text)
    summary = measured("all")["summary"]
    assert peer == f"{summary['best_peer_to_ours']['mean']:.2f}"
    assert two == f"{summary['best_of_tvm_and_torch_to_ours']['mean']:.2f}"


def test_documents_say_which_backends_there_are(command):
    rows = documents.read("docs/backends.md").tables[0][1:]
    told = json.loads(command("backends", "--json").stdout)["backends"]
    assert {row[0] for row in rows} == {backend["name"] for backend in told} | {"yours"}
