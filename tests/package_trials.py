# SPDX-License-Identifier: Apache-2.0
"""The wheel of this tree, built once for each state of the tree, and environments to try it in that know
nothing of the tree.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

TREE = Path(__file__).resolve().parents[1]
KEPT = TREE / "build" / "test-packages"

# What is built, and what builds it.
SOURCES = [
    "CMakeLists.txt", "LICENSE", "NOTICE", "README.md", "go.mod", "go.sum", "pyproject.toml",
    "bridge", "byoc", "cmd", "internal", "pass", "python", "relay", "scripts/cmake", "scripts/notices",
    "scripts/requirements.txt", "scripts/requirements-package.txt",
    "scripts/offline.sh", "scripts/steps.sh", "scripts/wheel.sh",
    ":!*_test.go", ":!*/testdata/*",
]  # fmt: skip

# Writes an ONNX file and an input for it: a convolution with a ReLU, a pooling and a dense layer.
MODEL = """
import sys
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

random = np.random.default_rng(31)
def weight(name, *shape):
    return numpy_helper.from_array(random.standard_normal(shape, dtype=np.float32) / 8, name)
def tensor(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
nodes = [
    helper.make_node("Conv", ["x", "w"], ["conv"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
    helper.make_node("Relu", ["conv"], ["relu"]),
    helper.make_node("GlobalAveragePool", ["relu"], ["pool"]),
    helper.make_node("Flatten", ["pool"], ["flat"]),
    helper.make_node("Gemm", ["flat", "v"], ["y"], transB=1),
]
weights = [weight("w", 16, 8, 3, 3), weight("v", 24, 16)]
graph = helper.make_graph(nodes, "small", [tensor("x", 4, 8, 12, 12)], [tensor("y", 4, 24)], weights)
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), sys.argv[1])
np.savez(sys.argv[2], x=random.standard_normal((4, 8, 12, 12), dtype=np.float32))
"""

# The same by TVM alone.
PLAIN = """
import sys
import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.contrib import graph_executor

module, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]), freeze_params=True)
executor = graph_executor.GraphModule(relay.build(module, "llvm", params=params)["default"](tvm.cpu()))
executor.run(**np.load(sys.argv[2]))
np.savez(sys.argv[3], output_0=executor.get_output(0).numpy())
assert "collage" not in sys.modules
"""


def tracked(*patterns):
    """What git knows of the tree, as far as it is there."""
    command = ["git", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if (TREE / name).is_file()]


def copy_of_the_tree(folder):
    """The tree as somebody gets it who clones it: nothing that was built, nothing that was downloaded."""
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / name, folder / name)
    return folder


def packages():
    """(wheel, source archive), built by scripts/wheel.sh unless the same sources were built before."""
    sources = tracked(*SOURCES)
    digest = hashlib.sha256()
    for name in sources:
        digest.update(name.encode() + b"\0" + hashlib.sha256((TREE / name).read_bytes()).digest())
    folder = KEPT / digest.hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    # Another worker of pytest-xdist may be at it.
    with open(KEPT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in KEPT.glob("*/"):
                shutil.rmtree(old)
            making = KEPT / "making"
            subprocess.run([TREE / "scripts" / "wheel.sh", making], check=True, stdin=subprocess.DEVNULL)
            making.rename(folder)
    (wheel,) = folder.glob("*.whl")
    (archive,) = folder.glob("*.tar.gz")
    return wheel, archive


@functools.cache
def interpreter(version):
    """The Python of this version: one in PATH that runs, or one of pyenv's; None where there is neither."""
    found = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True).stdout.strip()
        found += sorted(Path(root, "versions").glob(f"{version}.*/bin/python{version}"))
    for path in filter(None, found):
        says = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        ran = subprocess.run([path, "-c", says], capture_output=True, text=True)
        if ran.stdout.strip() == version:
            return Path(path)
    return None


class Trial:
    """A virtual environment in a folder of its own, without anything of this tree in it."""

    def __init__(self, folder, version):
        python = interpreter(version)
        if python is None:
            pytest.skip(f"there is no Python {version} on this machine")
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(("PIP_", "SSL_")) or name.lower() in ("home", "lang", "http_proxy", "https_proxy")
        }
        self.environment = {
            **kept,
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            # The cost store; pip's cache stays the user's.
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
            "TOPHUB_LOCATION": "NONE",
        }
        self.run(python, "-m", "venv", folder / "venv")

    def run(self, *command, timeout=1800, **extra):
        """Run a command there; returns what it says."""
        ran = subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-8000:]}\n{ran.stderr[-8000:]}"
        return ran.stdout

    def python(self, *arguments, **extra):
        return self.run(self.bin / "python", *arguments, **extra)

    def pip(self, *arguments):
        return self.python("-m", "pip", "--disable-pip-version-check", "--no-input", *arguments)

    def collage(self, *arguments):
        return self.run(self.bin / "collage", *arguments)

    def installed(self):
        """The version of each package."""
        lines = self.pip("list", "--format", "freeze").splitlines()
        return dict(line.split("==") for line in lines if "==" in line)

    def outputs(self, *pins, backends="tvm,dnnl"):
        """Compiles the model with these pins and runs it; returns what collage run, TVM's own driver and a
        build by TVM alone give, and the shared library that the model is.
        """
        self.python("-c", MODEL, "small.onnx", "x.npz")
        self.collage(
            "compile", "small.onnx", "--backends", backends, *[f"--pin={pin}" for pin in pins],
            "--level", "operator", "--repeat", 3, "--rounds", 3, "-o", "model.tar",
        )  # fmt: skip
        self.collage("run", "model.tar", "--inputs", "x.npz", "--outputs", "run.npz")
        driver = ["-m", "tvm.driver.tvmc", "run", "--inputs", "x.npz", "--outputs", "tvmc.npz", "model.tar"]
        plugins = self.python("-c", "import collage.library as l; print(l.PACKAGE / 'lib')").splitlines()[-1]
        self.python(*driver, LD_LIBRARY_PATH=plugins)
        self.python("-c", PLAIN, "small.onnx", "x.npz", "plain.npz")
        found = [np.load(self.folder / f"{name}.npz") for name in ("run", "tvmc", "plain")]
        with tarfile.open(self.folder / "model.tar") as tar:
            code = tar.extractfile("mod.so").read()
        return [each["output_0"] for each in found], code
