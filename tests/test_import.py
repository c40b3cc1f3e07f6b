# SPDX-License-Identifier: Apache-2.0
"""What ``import collage`` costs and does: it loads nothing, and TVM, whenever it comes, has libcollage with it."""

import subprocess
import sys

import pytest
from conftest import environment, run_python

# What takes long to import, and what the package would pull in by itself.
HEAVY = ("tvm", "numpy", "onnx", "torch", "scipy")
LOADED = f"""
import json, sys
maps = open("/proc/self/maps").read()
print(json.dumps([[name for name in {HEAVY} if name in sys.modules], "libcollage" in maps, "libtvm" in maps]))
"""


@pytest.fixture(autouse=True)
def _needs_library(collage_library):
    """All of this is about libcollage."""


@pytest.mark.parametrize("use", ["", "collage.__version__", "dir(collage)", "help", "collage.library"])
def test_the_import_loads_nothing(use):
    assert run_python(f"import collage\n{use}\n{LOADED}") == [[], False, False]


def test_what_is_loaded_is_seen():
    """The test above can tell: the same program with TVM in it."""
    assert run_python(f"import collage, tvm\n{LOADED}") == [["tvm", "numpy"], True, True]


KNOWN = """
import json
with tvm.transform.PassContext(config={"collage.store": "costs.jsonl"}):
    print(json.dumps(tvm.get_global_func("collage.partition", allow_missing=True) is not None))
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import collage, tvm",
        "import tvm, collage",
        "import collage, tvm.relay",
        "import collage; from tvm import relay; import tvm",
        "import collage, importlib.util; importlib.util.find_spec('tvm'); import tvm",
        "import collage.library, tvm",
        "import collage; collage.partition; import tvm",
        "import collage, threading; t = threading.Thread(target=lambda: __import__('tvm')); t.start(); t.join(); "
        "import tvm",
    ],
)
def test_tvm_has_libcollage_with_it(imports):
    assert run_python(imports + KNOWN) is True


def test_nothing_is_left_behind():
    """Python finds modules as before once TVM is there."""
    finders = "print(json.dumps([getattr(finder, '__name__', type(finder).__name__) for finder in sys.meta_path]))"
    before = run_python(f"import json, sys, tvm; {finders}")
    assert run_python(f"import collage, json, sys, tvm; {finders}") == before


def test_what_cannot_be_loaded_is_told_once(tmp_path):
    """Whoever loads libcollage by name is told by an exception, and by no warning beside it."""
    (tmp_path / "bad.so").write_text("not a library")
    program = """
import collage
try:
    collage.library.load()
except collage.library.LibraryError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(COLLAGE_LIBRARY=tmp_path / "bad.so"),
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "bad.so cannot be loaded" in result.stdout


def test_without_tvm():
    """What needs TVM says what is missing, where TVM is not installed."""
    program = "import sys; sys.modules['tvm'] = None; import collage; collage.library.load()"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert result.returncode == 1
    assert "TVM cannot be imported" in result.stderr
