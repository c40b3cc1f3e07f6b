# SPDX-License-Identifier: Apache-2.0
"""The examples do what their READMEs say: each is copied to a clean folder, and its blocks are run there."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import documents
import numpy as np
import pytest
from conftest import PACKAGE, TREE
from document_runner import Runner, runnable

EXAMPLES = TREE / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if (path / "README.md").is_file())
# What a screen holds.
SCREEN = 45


@pytest.fixture
def example(tmp_path, collage_library):
    """example("name"): a Runner in a copy of the example's folder."""

    def copied(name):
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return Runner(folder)

    return copied


def run_blocks(runner, name):
    """Runs the README's blocks; gives what they printed, in one text."""
    blocks = runnable(documents.read(f"examples/{name}/README.md"))
    assert blocks
    return "".join(runner.run(block) for block in blocks)


def difference(printed):
    """The largest difference that an example says it found."""
    (value,) = re.findall(r"largest difference to .*: (\S+)$", printed, re.M)
    return float(value)


def numbers(line):
    return np.array([float(word) for word in line.split()])


@pytest.mark.fast
def test_the_list_names_every_example():
    (table,) = documents.read("examples/README.md").tables
    assert sorted(re.match(r"\[(\w+)\]", row[0]).group(1) for row in table[1:]) == FOLDERS
    assert len(FOLDERS) == 5


@pytest.mark.fast
@pytest.mark.parametrize("name", FOLDERS)
def test_an_example_is_a_screen_and_uses_what_is_public(name):
    assert (EXAMPLES / name / "README.md").read_text().count("\n") <= SCREEN
    for path in (EXAMPLES / name).glob("*.py"):
        used = set(re.findall(r"\bcollage\.(\w+)", path.read_text()))
        assert used <= {"compile", "partition", "backend", "transform", "samples", "store"}, path
        assert not re.search(r"^from collage|import collage\.", path.read_text(), re.M), path
    for path in (EXAMPLES / name).glob("*.go"):
        imported = re.findall(r'"github.com/collage-tvm/collage/([\w/]+)"', path.read_text())
        assert not [package for package in imported if "internal" in package], path


@pytest.mark.timeout(900)
def test_onnx_to_tar(example):
    runner = example("onnx_to_tar")
    assert difference(run_blocks(runner, "onnx_to_tar")) < 1e-5
    with np.load(runner.folder / "y.npz") as outputs:
        assert outputs["output_0"].shape == (1, 10)
        assert np.ptp(outputs["output_0"]) > 1e-3
    assert json.loads((runner.folder / "plan.json").read_text())["finalists"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_as_a_pass(example):
    runner = example("as_a_pass")
    first = run_blocks(runner, "as_a_pass")
    assert difference(first) < 1e-5
    measured = (runner.folder / "costs.jsonl").read_bytes()
    assert b'"dnnl"' in measured
    # "the second run measures nothing and gives the same module"
    assert run_blocks(runner, "as_a_pass").splitlines()[:-1] == first.splitlines()[:-1]
    assert (runner.folder / "costs.jsonl").read_bytes() == measured


@pytest.mark.long
@pytest.mark.timeout(600)
def test_backend_in_python(example):
    runner = example("backend_in_python")
    assert difference(run_blocks(runner, "backend_in_python")) < 1e-5
    # The program searches whole networks, the command line measures parts, too; each writes into a store of its own.
    stores = [runner.folder / "costs.jsonl", *Path(runner.environment["XDG_CACHE_HOME"]).rglob("costs.jsonl")]
    assert len(stores) == 2
    records = [json.loads(line) for store in stores for line in store.read_text().splitlines()]
    mine = [record for record in records if "rows" in record.get("key", {}).get("backend", "").split(",")]
    assert {record["key"].get("composite") for record in mine} & {"rows.masked", "rows.plain"}, "parts by themselves"
    assert any(record["key"]["backend"] == "tvm,rows" for record in mine), "whole networks"
    assert not [record["failure"] for record in mine if "failure" in record]
    assert (runner.folder / "attention.tar").stat().st_size > 0


@pytest.mark.timeout(600)
def test_run_from_cpp(example):
    runner = example("run_from_cpp")
    from_python, from_cpp = run_blocks(runner, "run_from_cpp").splitlines()[-2:]
    assert len(numbers(from_cpp)) == 10
    np.testing.assert_allclose(numbers(from_cpp), numbers(from_python), atol=2e-6)
    assert numbers(from_cpp).sum() == pytest.approx(1, abs=1e-4)
    assert b"collage_dnnl" in (runner.folder / "model.so").read_bytes()


def apply(patch, folder):
    """Apply a patch to a copy in ``folder`` of what it changes, and give that file's path."""
    builtin = "byoc/builtin/builtin.go"
    (folder / builtin).parent.mkdir(parents=True)
    shutil.copy(TREE / builtin, folder / builtin)
    how = ["patch", "--batch", "--strip=1", "--fuzz=0", "--input", patch]
    done = subprocess.run(how, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / builtin


@pytest.mark.fast
def test_the_patch_of_backend_in_go_applies(tmp_path):
    patched = apply(TREE / "examples/backend_in_go/register.patch", tmp_path)
    assert "loops.New()," in patched.read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_backend_in_go(example):
    """What register.patch and `make build` do to a tree is done by an overlay here, beside the tree."""
    runner = example("backend_in_go")
    folder = runner.folder

    def started(*command, cwd=folder):
        done = subprocess.run(list(map(str, command)), cwd=cwd, env=runner.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    patched = apply("register.patch", folder)
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": {str(TREE / patched.relative_to(folder)): str(patched)}}))
    library, program = folder / "libcollage.so", folder / "collage"
    build = ["go", "build", "-overlay", overlay]
    name = "-ldflags=-extldflags=-Wl,-soname,libcollage.so"
    started(*build, "-buildmode=c-shared", name, "-o", library, "./cmd/libcollage", cwd=TREE)
    started(*build, "-o", program, "./cmd/collage", cwd=TREE)

    runner.environment.update(
        COLLAGE_LIBRARY=str(library),
        COLLAGE_UNDER_TEST=str(program),
        COLLAGE_PLUGIN_DIR=os.environ.get("COLLAGE_PLUGIN_DIR") or str(PACKAGE / "lib"),
    )
    (block,) = documents.read("examples/backend_in_go/README.md").blocks
    commands = [line for line in block.text.splitlines() if line.startswith(("python ", "collage "))]
    assert len(commands) == 4
    script = "\n".join(commands).replace("examples/backend_in_go/", "")
    script += "\ncollage compile residual.relay --backends tvm,loops --pin nn.relu=loops --level operator"
    script += " -o pinned.tar --plan-out pinned.json"
    printed = started("bash", "-euc", script)
    assert re.search(r"^loops\b", printed, re.M), printed
    plan = json.loads((folder / "pinned.json").read_text())
    assert [r["candidates"][0]["composite"] for r in plan["regions"] if r["backend"] == "loops"] == ["loops.add_relu"]
    assert not plan["candidates"].get("failures")
