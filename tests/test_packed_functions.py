# SPDX-License-Identifier: Apache-2.0
"""docs/packed-functions.md names every packed function collage.* and is what the code says."""

import re
import sys

import pytest
from conftest import PLUGINS, TREE, run_python

pytestmark = pytest.mark.fast

REGISTERED = """
import json, pathlib, sys
import collage, tvm
collage.library.load()
from collage import host, patterns
host.register()
patterns.register()
for plugin in sys.argv[1:]:
    collage.library.load_plugin(plugin)
names = map(str, tvm._ffi.registry.list_global_func_names())
print(json.dumps(sorted(name for name in names if name.startswith("collage."))))
"""


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(TREE / "scripts"))
    try:
        import packed_functions
    finally:
        sys.path.pop(0)
    return packed_functions


def listed():
    page = (TREE / "docs" / "packed-functions.md").read_text()
    return re.findall(r"^- `(collage\.[\w.]+)`: (\S.*)$", page, re.M)


def test_the_page_is_of_this_code(script):
    assert (TREE / "docs" / "packed-functions.md").read_text() == script.page(), "run scripts/packed_functions.py"


def test_all_that_is_registered_is_there(collage_library):
    """But for the makers of each engine's regions, which are called by its code generator alone."""
    plugins = [str(PLUGINS / f"libcollage_{name}.so") for name in ("runtime", "dnnl")]
    names = {name for name in run_python(REGISTERED, *plugins) if not re.search(r"\.runtime\.\w+ModuleCreate$", name)}
    known = [name for name, _ in listed()]
    assert len(known) == len(set(known))
    assert names - set(known) == set()
    gone = {name for name in known if not name.startswith("collage.runtime.")} - names
    assert gone == set(), "documented, and not registered"


def test_each_says_what_it_does():
    assert len(listed()) > 50
    for name, said in listed():
        assert len(said.split()) >= 4, f"{name}: {said}"
