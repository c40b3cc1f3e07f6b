# SPDX-License-Identifier: Apache-2.0
"""Collage for TVM: place the operators of a network on the backends that run them fastest.

    import collage
    placed = collage.partition(module, params, backends=["tvm", "dnnl", "native"])
    factory = collage.compile(module, params, backends=["tvm", "dnnl", "native"])
    executor = collage.load("model.so")  # what compile wrote with out="model.so"
    pass_ = collage.transform.CollagePartition(backends=["tvm", "dnnl", "native"])
    @collage.backend(name="mylib", patterns=...)  # a library of one's own (docs/add-a-backend.md)

Importing the package loads TVM and libcollage into the process and registers the packed functions and
PassContext options under ``collage.*``. Where libcollage has not been built yet, the parts that are plain
TVM (workloads, front ends) work all the same, and the others say what is missing when they are used.
"""

import importlib
import os
import sys
import tempfile

from ._version import __version__

_LAZY = {
    "CollagePartition": "transform",
    "Probe": "registration",
    "RegistrationError": "registration",
    "backend": "registration",
    "backend_from_tvm": "registration",
    "compile": "api",
    "load": "api",
    "partition": "api",
    "register_backend": "registration",
    "replay": "api",
}
_MODULES = ("api", "export", "frontends", "library", "target", "transform", "tvmc", "workloads")

__all__ = ["__version__", *_LAZY, *_MODULES]


def _starts_something_else():
    """Whether this import only leads to a program that must begin before TVM is loaded.

    That is the command (which replaces the process by the Go program), the worker and the peers (which first take
    their standard output away from everybody else), the witness and pt2, which have no use for TVM.
    """
    arguments = sys.orig_argv
    if sys.argv[:1] == ["-m"] and "-m" in arguments:
        return arguments[arguments.index("-m") + 1] in (
            "collage",
            "collage.worker",
            "collage.peers",
            "collage.pt2",
            "collage.witness",
        )
    return os.path.basename(sys.argv[0] if sys.argv else "") == "collage"


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)


def _spare_home():
    """Let TVM start where the home directory cannot be written: its import makes a folder there."""
    home = os.path.expanduser("~")
    if "TEST_DATA_ROOT_PATH" in os.environ or os.path.isdir(os.path.join(home, ".tvm_test_data")):
        return
    if not os.access(home, os.W_OK | os.X_OK):
        folder = f"tvm_test_data-{os.getuid()}"
        os.environ["TEST_DATA_ROOT_PATH"] = os.path.join(tempfile.gettempdir(), folder)


_spare_home()
if not _starts_something_else():
    from . import library

    if library.library_path().is_file():
        library.load()
