# SPDX-License-Identifier: Apache-2.0
"""Collage for TVM: place the operators of a network on the backends that run them fastest.

    import collage
    placed = collage.partition(module, params, backends=["tvm", "dnnl", "native"])
    executable = collage.compile(module, params, backends=["tvm", "dnnl", "native"])
    executable = collage.load("model.so")  # what compile wrote with out="model.so"
    pass_ = collage.transform.CollagePartition(backends=["tvm", "dnnl", "native"])
    @collage.backend(name="mylib", patterns=...)  # a library of one's own (docs/add-a-backend.md)

Importing the package loads nothing else. TVM comes when something of it is used, and libcollage as soon as the process
has TVM, whoever imports it and in whichever order: the packed functions and PassContext options ``collage.*`` are then
registered. Where libcollage has not been built yet, the parts that are plain TVM (workloads, front ends) work all the
same, and the others say what is missing when they are used; where it cannot be loaded, a warning says so as soon as
TVM is there.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:  # what _LAZY and _MODULES say below, for checkers of types and editors
    from . import api as api
    from . import costs as costs
    from . import errors as errors
    from . import export as export
    from . import frontends as frontends
    from . import library as library
    from . import progress as progress
    from . import pytorch as pytorch
    from . import target as target
    from . import transform as transform
    from . import tvmc as tvmc
    from . import workloads as workloads
    from .api import compile as compile
    from .api import load as load
    from .api import options as options
    from .api import partition as partition
    from .api import plan as plan
    from .api import replay as replay
    from .costs import declared_costs as declared_costs
    from .errors import CollageError as CollageError
    from .executable import Executable as Executable
    from .open_dimensions import Dim as Dim
    from .plans import Plan as Plan
    from .pytorch import from_torch as from_torch
    from .registration import Probe as Probe
    from .registration import RegistrationError as RegistrationError
    from .registration import backend as backend
    from .registration import backend_from_tvm as backend_from_tvm
    from .registration import register_backend as register_backend
    from .transform import CollagePartition as CollagePartition
    from .tvmc import partition_for_collage as partition_for_collage

_LAZY = {
    "CollageError": "errors",
    "CollagePartition": "transform",
    "Dim": "open_dimensions",
    "Executable": "executable",
    "Plan": "plans",
    "Probe": "registration",
    "RegistrationError": "registration",
    "backend": "registration",
    "backend_from_tvm": "registration",
    "compile": "api",
    "declared_costs": "costs",
    "load": "api",
    "options": "api",
    "from_torch": "pytorch",
    "partition_for_collage": "tvmc",
    "partition": "api",
    "plan": "api",
    "register_backend": "registration",
    "replay": "api",
}
_MODULES = (
    "api",
    "costs",
    "errors",
    "export",
    "frontends",
    "library",
    "progress",
    "pytorch",
    "target",
    "transform",
    "tvmc",
    "workloads",
)

__all__ = ["__version__", *_LAZY, *_MODULES]


def _starts_something_else() -> bool:
    """Whether this import only leads to a program that loads libcollage by itself, or has no use for it.

    That is the command (which replaces the process by the Go program), the host (which says in one line what is wrong
    with libcollage), the worker and the peers (which load it where a backend needs it), the witness and pt2.
    """
    arguments = sys.orig_argv
    if sys.argv[:1] == ["-m"] and "-m" in arguments:
        return arguments[arguments.index("-m") + 1] in (
            "collage",
            "collage.host",
            "collage.worker",
            "collage.peers",
            "collage.pt2",
            "collage.witness",
        )
    return os.path.basename(sys.argv[0] if sys.argv else "") == "collage"


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _spare_home() -> None:
    """Let TVM start where the home directory cannot be written: its import makes a folder there."""
    home = os.path.expanduser("~")
    if "TEST_DATA_ROOT_PATH" in os.environ or os.path.isdir(os.path.join(home, ".tvm_test_data")):
        return
    if not os.access(home, os.W_OK | os.X_OK):
        import tempfile

        folder = f"tvm_test_data-{os.getuid()}"
        os.environ["TEST_DATA_ROOT_PATH"] = os.path.join(tempfile.gettempdir(), folder)


def _join_tvm() -> None:
    """Load libcollage into a process that has TVM, where it has been built.

    What cannot be loaded is warned of and no error here: that would look as if TVM could not be imported. Whatever
    needs libcollage raises it.
    """
    from . import library

    library.keep_triton_out()
    if library.importing or not library.library_path().is_file():
        return
    try:
        library.load()
    except library.LibraryError as error:
        import warnings

        warnings.warn(str(error), RuntimeWarning, stacklevel=2)


class _WhenTvmComes:
    """A finder of modules that finds TVM as the others do, and has _join_tvm called once its import is through."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """What importlib asks of finders."""
        if name != "tvm":
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_join(module: Any) -> None:
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _join_tvm()

        loader.exec_module = execute_and_join
        return spec


_spare_home()
if not _starts_something_else():
    if "tvm" in sys.modules:
        _join_tvm()
    else:
        sys.meta_path.insert(0, _WhenTvmComes())
