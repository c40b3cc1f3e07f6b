# SPDX-License-Identifier: Apache-2.0
"""Backends that were registered from Python, in the measuring workers.

A worker is another process. It gets references to functions (module, file, name) through its environment,
imports them when a candidate of the backend is to be built, and registers relay.ext.<compiler> by itself.
"""

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

from . import errors

# Set by pass/workers/environment.go.
_MARK = "COLLAGE_WORKER"
_BACKENDS = "COLLAGE_WORKER_BACKENDS"
# A variable of the environment holds 128 KiB.
_MOST_PRELUDE = 64 << 10

# The name under which a script is imported that was run as the main program.
MAIN = "__collage_main__"


class Unguarded(BaseException):
    """A module that a worker imports for its backends goes on to use Collage: what follows is not for
    workers.
    """


def active():
    """Whether this process is a worker, in which registrations say nothing new."""
    return _MARK in os.environ


def refuse():
    """End the import of a user's module where it begins to place or compile; elsewhere nothing."""
    if active() and _importing:
        raise Unguarded


_importing = []


def reference(function):
    """How another process finds a function: {"module", "path", "name"}; None for None.

    Raises ValueError, with what to do, for one that cannot be found: lambdas, functions inside functions,
    functions of a notebook or the prompt.
    """
    if function is None:
        return None
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if name is None or module is None:
        raise errors.InputError(
            f"a {type(function).__name__} cannot be imported by the measuring workers; wrap it in a function at the "
            "top of a module"
        )
    if "<lambda>" in name:
        raise errors.InputError("a lambda cannot be imported by the measuring workers; write it as a function (def)")
    if "<locals>" in name:
        raise errors.InputError(
            f"{name} is defined inside a function, where the measuring workers cannot import it; define it at the top "
            "of its module"
        )
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or not os.path.isfile(path):
        raise errors.InputError(
            f"{name} is defined in a notebook or at the prompt, where the measuring workers cannot import it; put it "
            "into a file and import it from there"
        )
    return {"module": module, "path": os.path.abspath(path), "name": name}


def setup(fields):
    """What a worker must know of a backend: a dictionary for JSON."""
    prelude = fields["prelude"]
    if isinstance(prelude, str) and len(prelude.encode()) > _MOST_PRELUDE:
        raise errors.InputError(
            f"backend {fields['name']!r}: prelude: is longer than {_MOST_PRELUDE >> 10} KiB; put it into a file and "
            "pass its pathlib.Path"
        )
    return {
        "name": fields["name"],
        "compiler": fields["compiler"],
        "emit": reference(fields["emit"]),
        "pack": reference(fields["pack"]),
        "prelude": {"path": str(prelude.resolve())} if isinstance(prelude, Path) else {"text": prelude},
        "libraries": fields["libraries"],
        "imports": fields["imports"],
        "folders": [os.path.abspath(folder) for folder in sys.path],
    }


def _setups():
    return {one["compiler"]: one for one in json.loads(os.environ.get(_BACKENDS) or "[]")}


def libraries(compiler):
    """The shared libraries that regions of a backend are linked with; None where it is not one of these."""
    found = _setups().get(compiler)
    return None if found is None else found["libraries"]


def install(compiler):
    """Register relay.ext.<compiler> for a backend that was registered in the process that drives this worker.

    Returns whether there is one. Raises ImportError, with what to do, where its functions cannot be imported.
    """
    import tvm

    found = _setups().get(compiler)
    if found is None:
        return False
    for folder in found["folders"]:
        if folder not in sys.path:
            sys.path.append(folder)
    for name in found["imports"]:
        _import(name, None)
    if found["emit"] is None:
        if tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True) is None:
            raise errors.MissingPackageError(
                f"relay.ext.{compiler} is not registered in the measuring workers; pass the module that registers it "
                "as imports= when the backend is registered"
            )
        return True
    prelude = found["prelude"]
    prelude = Path(prelude["path"]) if "path" in prelude else prelude["text"]
    generator = code_generator(found["name"], compiler, _function(found["emit"]), _function(found["pack"]), prelude)
    tvm.register_func(f"relay.ext.{compiler}", generator, override=True)
    return True


def _function(where):
    if where is None:
        return None
    found = _import(where["module"], where["path"])
    for name in where["name"].split("."):
        found = getattr(found, name)
    return found


def _import(name, path):
    """A module by its name, or by its file; one that was the main program under the name MAIN."""
    known = MAIN if name == "__main__" else name
    if known in sys.modules:
        return sys.modules[known]
    _importing.append(known)
    try:
        if name != "__main__":
            try:
                return importlib.import_module(name)
            except ModuleNotFoundError as error:
                if path is None or error.name != name:
                    raise
        spec = importlib.util.spec_from_file_location(known, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[known] = module
        try:
            spec.loader.exec_module(module)
        except Unguarded:
            pass
        except BaseException:
            del sys.modules[known]
            raise
        return module
    finally:
        _importing.pop()


def code_generator(name, compiler, emit, pack, prelude):
    """relay.ext.<compiler> of the backend ``name``: a region function in, a runtime module out."""
    import tvm

    from . import generators, program

    def generate(function):
        with generators.failures(name, function):
            return made_of(function)

    def made_of(function):
        region = program.Program(function, compiler)
        packed = region.pack(pack) if pack is not None else {}
        made = emit(region)
        if isinstance(made, tvm.runtime.Module):
            return made
        if not isinstance(made, str):
            raise errors.CallError(
                f"the emitter gave a {type(made).__name__}; a region becomes a tvm.runtime.Module or C statements (str)"
            )
        text = prelude.read_text() if isinstance(prelude, Path) else prelude
        arrays = [tvm.nd.array(array) for array in packed.values()]
        return tvm.get_global_func("collage.csource.module")(function, name, text, made, list(packed), arrays)

    return generate
