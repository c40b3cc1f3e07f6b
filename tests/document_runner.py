# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of a document in a clean folder, as a reader would who copies them one after the other.

What readers have is provided: ``collage`` and ``python`` in PATH, a home of their own, and the files that
documents take as given (``PROVIDED``), each written in front of the first block that names it. One thing
differs from what is written: searches are short (``_SHORT``), by the flags that are there for it.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import documents
from conftest import PACKAGE, SAMPLES, TREE, environment

# `collage compile` that searches gets flags that make it short; results and file names are the same.
_SHORT = f"""#!/bin/sh
case "$1 $*" in
  "compile "*" --plan "*) ;;
  "compile "*) set -- "$@" --search-time 3s --trials 1 --rounds 3 --repeat {SAMPLES} ;;
  "plan "*) set -- "$@" --repeat {SAMPLES} ;;
esac
exec "$COLLAGE_UNDER_TEST" "$@"
"""


# Where Go lies if it is not in PATH, as in scripts/setup.sh.
_GO = "/usr/local/go/bin"


class BlockError(AssertionError):
    """A block did not run; the text says which, and what it printed."""


def network(path):
    """A small ONNX network: three convolutions, one of them beside another way, a dense layer, a softmax."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {
        "w1": (8, 3, 3, 3),
        "w2": (8, 8, 3, 3),
        "w3": (8, 8, 3, 3),
        "fc": (10, 8 * 4 * 4),
        "b1": (8,),
        "b2": (8,),
        "b3": (8,),
        "fb": (10,),
    }
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["data", "w1", "b1"], ["c1"], **same),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], **same),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], **same),
        helper.make_node("Add", ["c3", "r1"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r3"]),
        helper.make_node("MaxPool", ["r3"], ["pool"], kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc", "fb"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 10])],
        [
            numpy_helper.from_array((rng.standard_normal(shape) / 8).astype("float32"), name)
            for name, shape in weights.items()
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def _inputs(path):
    import numpy as np

    np.savez(path, data=np.random.default_rng(1).standard_normal((1, 3, 16, 16), dtype="float32"))


def _store(path):
    """A copy of what the blocks before have measured."""
    shutil.copy(path.parent / ".home" / "cache" / "collage" / "costs.jsonl", path)


def _relay(path):
    path.write_text(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(8, 64), float32], %w: Tensor[(32, 64), float32]) {\n"
        "  nn.relu(nn.dense(%x, %w, units=None))\n}\n"
    )


# What the documents take as given.
PROVIDED = {
    "model.onnx": network,
    "x.npz": _inputs,
    "a.jsonl": _store,
    "b.jsonl": _store,
    "net.relay": _relay,
}


def _go_env(name, path):
    asked = subprocess.run(["go", "env", name], capture_output=True, text=True, env={**os.environ, "PATH": path})
    return asked.stdout.strip()


class Runner:
    """Runs blocks in ``folder``, which holds nothing but what they write."""

    def __init__(self, folder):
        self.folder = folder
        home = folder / ".home"
        tools = home / "bin"
        tools.mkdir(parents=True)
        (tools / "collage").write_text(_SHORT)
        (tools / "collage").chmod(0o755)
        binary = os.environ.get("COLLAGE_BINARY") or PACKAGE / "bin" / "collage"
        self.environment = environment(
            PATH=os.pathsep.join([str(tools), os.path.dirname(sys.executable), os.environ["PATH"], _GO]),
            HOME=home,
            # What documents say must be enough for plain TVM to find the plug-ins.
            LD_LIBRARY_PATH="",
            XDG_CACHE_HOME=home / "cache",
            COLLAGE_UNDER_TEST=binary,
        )
        self.environment.setdefault("COLLAGE_PLUGIN_DIR", str(PACKAGE / "lib"))
        # Go keeps its caches: the home is another one.
        for name in ("GOCACHE", "GOMODCACHE"):
            self.environment[name] = _go_env(name, self.environment["PATH"])

    def run(self, block, timeout=900):
        """Run a block; gives what it printed. Raises BlockError."""
        for name, provide in PROVIDED.items():
            if re.search(rf"(?<![\w.-]){re.escape(name)}\b", block.text) and not (self.folder / name).exists():
                provide(self.folder / name)
        done = getattr(self, f"_{block.language}")(block, timeout)
        if done.returncode != 0:
            raise BlockError(f"{block.place}: exit code {done.returncode}\n{block.text}\n{done.stdout}{done.stderr}")
        return done.stdout

    def _started(self, command, timeout, **options):
        return subprocess.run(
            list(map(str, command)),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            **options,
        )

    def _sh(self, block, timeout):
        return self._started(["bash", "-euxo", "pipefail", "-c", block.text], timeout)

    def _python(self, block, timeout):
        # At the lines where it stands in the document, so that a traceback says where.
        program = self.folder / f"{Path(block.document).stem}.py"
        program.write_text("\n" * (block.line - 1) + block.text)
        return self._started(["python", program.name], timeout)

    def _go(self, block, timeout):
        """Builds a program in a package that is nowhere but in an overlay, and runs it on libtvm."""
        source, overlay = self.folder / ".home" / "main.go", self.folder / ".home" / "overlay.json"
        source.write_text(block.text)
        package = "internal/documents_block"
        overlay.write_text(json.dumps({"Replace": {str(TREE / package / "main.go"): str(source)}}))
        program = self.folder / ".home" / "program"
        formatted = self._started(["gofmt", "-l", source], timeout)
        if formatted.stdout:
            raise BlockError(f"{block.place}: is not as gofmt would have it")
        build = ["go", "build", "-C", TREE, "-overlay", overlay, "-o", program, f"./{package}"]
        done = self._started(build, timeout)
        if done.returncode != 0:
            return done
        libtvm = Path(importlib.util.find_spec("tvm").origin).parent / "libtvm.so"
        return self._started([program, libtvm], timeout)


def runnable(document):
    """The blocks of a document that are run here; Python blocks that follow one another are one program."""
    blocks = [b for b in document.blocks if b.language in documents.RUN and not b.not_run and not b.run_by]
    joined = []
    for block in blocks:
        if joined and block.language == joined[-1].language == "python":
            before = joined.pop()
            gap = block.line - before.line - before.text.count("\n")
            block = replace(before, text=before.text + "\n" * gap + block.text)
        joined.append(block)
    return joined
