# SPDX-License-Identifier: Apache-2.0
"""``collage package``: the folder runs where nothing of this installation is, and so do the programs in it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]

NETWORK = """#[version = "0.0.5"]
def @main(%x: Tensor[(1, 8, 16, 16), float32], %y: Tensor[(1, 8, 16, 16), float32]) {
  %0 = nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0]);
  %1 = nn.relu(add(%0, 1.5f));
  (%1, nn.softmax(%y, axis=1))
}
"""


@pytest.fixture(scope="module")
def models(command, tmp_path_factory):
    """The same network as .so and as .tar, dnnl in both."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "net.relay").write_text(NETWORK)
    made = {}
    for suffix in ("so", "tar"):
        made[suffix] = folder / f"model.{suffix}"
        done = command(
            "compile", folder / "net.relay", "--backends", "tvm,dnnl", "--pin", "nn.softmax=dnnl",
            "--search-time", "5s", "--level", "operator", "-q", "-o", made[suffix],
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module", params=["so", "tar"])
def packed(request, command, models, tmp_path_factory):
    """(package, what the model gives on the random inputs of a seed)."""
    folder = tmp_path_factory.mktemp("package")
    done = command("package", models[request.param], "-o", folder / "model")
    assert done.returncode == 0, done.stderr
    assert "run it with" in done.stdout
    assert [path.name for path in folder.iterdir()] == ["model"]
    outputs = folder / "before.npz"
    assert command("run", models[request.param], "--outputs", outputs, "--repeat", 1).returncode == 0
    return folder / "model", outputs.read_bytes()


def test_the_manifest_has_what_is_there(packed):
    package, _ = packed
    manifest = json.loads((package / "manifest.json").read_text())
    files = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file() and not path.is_symlink()}
    assert {one["path"] for one in manifest["files"]} == files - {"manifest.json"}
    for one in manifest["files"]:
        content = (package / one["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (one["bytes"], one["sha256"])
    assert "libcollage_dnnl.so" in manifest["plugins"] and "libc.so.6" in manifest["system"]
    assert [one["name"] for one in manifest["inputs"]] == ["x", "y"]


def test_it_runs_where_this_installation_is_not(packed, tmp_path):
    package, before = packed
    there = tmp_path / "there"
    shutil.copytree(package, there, symlinks=True)
    hide = (
        'mount -t tmpfs none "$0" && mount -t tmpfs none "$1" && cd "$2" && '
        'exec env -i PATH=/usr/bin:/bin ./collage run . --outputs "$3" --repeat 1'
    )
    outputs = tmp_path / "y.npz"
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, sys.prefix, TREE, there, outputs], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert outputs.read_bytes() == before
    assert f"{there}/lib/libtvm_runtime.so" in done.stdout


@pytest.mark.parametrize("program", ["c", "cc", "go", "py"])
def test_programs_in_it(packed, program, tmp_path):
    package, _ = packed
    there = tmp_path / "there"
    shutil.copytree(package, there, symlinks=True)
    readme = (there / "README.md").read_text()
    (line,) = (line for line in readme.splitlines() if f"run.{program} " in line)
    if program == "go" and not (shutil.which("go") or Path("/usr/local/go/bin/go").exists()):
        pytest.skip("there is no Go")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/local/go/bin"
    line = line.replace("gcc -O2", "gcc -O2 -Wall -Wextra -Werror").replace("g++ -O2", "g++ -O2 -Wall -Wextra -Werror")
    environment = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "GOFLAGS": "-mod=mod"}
    done = subprocess.run(line, shell=True, cwd=there / "examples", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # Zeros: 1.5 behind the sum; one of eight channels.
    assert [float(each.split()[-1].strip("[]")) for each in done.stdout.splitlines()] == [1.5, 0.125]


@pytest.mark.long
def test_the_container_is_built_and_runs(packed):
    package, _ = packed
    if not shutil.which("docker"):
        pytest.skip("no container can be built here: there is no docker")
    # Whoever has the program need not have its server, or a registry that has the base image.
    for needed in (["docker", "info"], ["docker", "pull", "debian:stable-slim"]):
        asked = subprocess.run(needed, capture_output=True, text=True, timeout=300)
        if asked.returncode:
            pytest.skip(f"no container can be built here: {' '.join(needed)}: {asked.stderr.strip()[-200:]}")
    built = subprocess.run(["docker", "build", "-q", package], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    image = built.stdout.strip()
    try:
        done = subprocess.run(["docker", "run", "--rm", "--network", "none", image], capture_output=True, text=True)
        assert done.returncode == 0 and "output" in done.stdout, done.stderr
    finally:
        subprocess.run(["docker", "rmi", "-f", image], capture_output=True)


def test_packages_that_are_not_whole(packed, command, tmp_path):
    package, _ = packed
    there = tmp_path / "there"
    shutil.copytree(package, there, symlinks=True)
    (there / "model" / "mod.so").unlink()
    done = command("run", there)
    assert done.returncode == 2 and "is not whole" in done.stderr and done.stdout == ""


def test_failures_leave_nothing(command, models, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, said in (
        ((models["so"], "-o", tmp_path / "full"), "is not empty"),
        ((models["so"], "-o", tmp_path / "no" / "where"), "does not exist"),
        ((tmp_path / "none.so", "-o", tmp_path / "new"), "no such file"),
        ((models["so"],), "where to write the package is missing"),
        ((__file__, "-o", tmp_path / "new"), "is neither a .tar nor a .so"),
    ):
        done = command("package", *arguments)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
