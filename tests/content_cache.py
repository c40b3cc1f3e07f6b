# SPDX-License-Identifier: Apache-2.0
"""What plain TVM computed, kept by content: between tests, between the processes of one run, between runs.

``remembered(key, compute)`` gives what ``compute`` gave for the same key before. A key is a digest of all
that the answer depends on. The files lie in ``COLLAGE_TEST_CACHE``, else in build/test-cache of the tree
(`make clean` removes it); one is written whole or not at all, so that processes may share the folder.
"""

import functools
import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

TREE = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("COLLAGE_TEST_CACHE") or TREE / "build" / "test-cache")


@functools.cache
def environment():
    """What every answer of TVM's depends on: its version, the processor it compiles for, how we build."""
    import tvm
    from collage import target

    library = Path(tvm.__file__).with_name("libtvm.so").stat()
    settings = [Path(target.__file__).with_name(name).read_text() for name in ("export.py", "target.py")]
    return repr((tvm.__version__, library.st_size, library.st_mtime_ns, target.default_target(), settings))


def module_key(module, *settings):
    """A key for a module as it is built with ``settings``."""
    import tvm

    content = hashlib.sha256(repr((environment(), settings)).encode())
    content.update(tvm.ir.save_json(module).encode())
    return content.hexdigest()


def answer_key(module, inputs):
    """A key for what the module with the key ``module`` gives for the arrays ``inputs``."""
    content = hashlib.sha256(module.encode())
    for value in map(np.asarray, inputs):
        content.update(repr((value.dtype, value.shape)).encode())
        content.update(value.tobytes())
    return content.hexdigest()


def remembered(key, compute):
    """The arrays that ``compute()`` gives, or gave under this key before."""
    path = FOLDER / f"{key}.npz"
    try:
        with np.load(path) as archive:
            return [archive[name] for name in archive.files]
    except (FileNotFoundError, zipfile.BadZipFile):
        pass
    arrays = compute()
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=FOLDER, suffix=".part", delete=False) as partial:
        np.savez(partial, *arrays)
    os.replace(partial.name, path)
    return arrays
