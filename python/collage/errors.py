# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Collage: one base class, CollageError, with the fields that one wants.

    try:
        executable = collage.compile(module, params, backends=["tvm", "dnnl"])
    except collage.CollageError as error:
        print(error.backend, error.operator, error.span)

Each is an exception of Python's or of TVM's as well, so that who catches ValueError, OSError or tvm.TVMError catches
these too. Go's errors are made here (``raised``), by the class and the fields that Go gives.
"""

import builtins
import contextlib
from collections.abc import Iterator
from typing import Any

_FIELDS = ("option", "operator", "span", "backend", "file")


class CollageError(Exception):
    """What Collage raises. A field that has nothing to do with the matter, or is not known, is None.

    ``option``: the option that makes no sense, as Python spells it. ``operator``: the operator in question, as Relay or
    the model's format calls it; of several the first. ``span``: where that operator comes from, as reports show it.
    ``backend``: the backend's name. ``file``: the path of the file that cannot be read, written or understood.
    """

    option: str | None = None
    operator: str | None = None
    span: str | None = None
    backend: str | None = None
    file: str | None = None

    # What Go calls it in texts: the exception of Python's or TVM's that it is, too.
    _python_name = "CollageError"

    def __init__(self, *arguments: Any, **fields: Any):
        super().__init__(*arguments)
        for name, value in fields.items():
            if name not in _FIELDS:
                raise TypeError(f"{type(self).__name__} has no field {name}")
            setattr(self, name, None if value is None else str(value))

    def __init_subclass__(cls, **rest: Any):
        super().__init_subclass__(**rest)
        known = next((c for c in cls.__mro__ if not issubclass(c, CollageError)), Exception)
        cls._python_name = cls.__name__ if known is Exception else known.__name__

    @property
    def fields(self) -> dict[str, str]:
        """Those of the fields that are known, by name."""
        return {name: getattr(self, name) for name in _FIELDS if getattr(self, name) is not None}


class InputError(CollageError, ValueError):
    """What was given makes no sense, or does not go with the rest."""


class OptionError(InputError):
    """An option makes no sense: ``option`` is its name."""


class ModelError(InputError):
    """A model cannot be read: ``file`` is its path, ``operator`` what stands in the way where it is an operator."""


class BackendError(InputError):
    """A backend is not known, cannot be used here, or does not take what it has to take."""


class PlanError(InputError):
    """A plan cannot be read, or not be replayed on this network."""


class StrictError(InputError):
    """A warning, where ``strict`` lets none pass."""


class CallError(CollageError, TypeError):
    """A function was called otherwise than it can be."""


class MachineError(CollageError, RuntimeError):
    """This process or this machine has not what is needed."""


class MissingPackageError(CollageError, ImportError):
    """A package of Python's is needed for this, and is not installed."""


class MissingFileError(CollageError, FileNotFoundError):
    """There is no such file or folder: ``file``."""


# What errors of Go's become that name no class of ours.
_BY_KIND: dict[type[BaseException], type[CollageError]] = {
    ValueError: InputError,
    TypeError: CallError,
    RuntimeError: MachineError,
    FileNotFoundError: MissingFileError,
    ImportError: MissingPackageError,
}


def of(kind: type[Exception]) -> type[CollageError]:
    """The class that is a CollageError and a ``kind``; FailedError for ``tvm.TVMError``."""
    if issubclass(kind, CollageError):
        return kind
    if kind not in _BY_KIND:
        name = "FailedError" if kind.__name__ == "TVMError" else f"Collage{kind.__name__}"
        said = "What was tried has failed." if name == "FailedError" else f"A {kind.__name__} of Collage's."
        _BY_KIND[kind] = type(name, (CollageError, kind), {"__doc__": said, "__module__": __name__})
    return _BY_KIND[kind]


def __getattr__(name: str) -> Any:
    """FailedError, which is a tvm.TVMError, and what else ``of`` made: Pickle asks by name."""
    if name != "FailedError" and not name.startswith("Collage"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = _kind("TVMError" if name == "FailedError" else name.removeprefix("Collage"))
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return of(kind)


def _kind(name: str) -> type[Exception] | None:
    """The exception of Python's or of TVM's with that name."""
    found = getattr(builtins, name, None)
    if found is None:
        import tvm

        found = getattr(tvm.error, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def raised(kind: str, name: str, message: str, *values: str) -> BaseException | None:
    """The exception for an error of Go's, which asks for it: ``kind`` is an exception of Python's or TVM's, ``name``
    one of the classes above ("" for none), ``values`` are the fields in their order, "" for what is not known. None
    where there is no such kind, or where it is none that programs catch (KeyboardInterrupt).
    """
    base = _kind(kind)
    if base is None:
        return None
    named = globals().get(name)
    made = named if isinstance(named, type) and issubclass(named, base) else of(base)
    return made(message, **{field: value for field, value in zip(_FIELDS, values, strict=True) if value})


@contextlib.contextmanager
def about(**fields: Any) -> Iterator[None]:
    """Gives the CollageErrors that pass through what they do not say themselves: ``with about(file=path):``."""
    try:
        yield
    except CollageError as error:
        for name, value in fields.items():
            if getattr(error, name) is None and value is not None:
                setattr(error, name, str(value))
        raise


def failed(error: BaseException, text: str, **fields: Any) -> CollageError:
    """What is raised from an exception that is none of ours: a CollageError that is of the nearest of Python's or
    TVM's classes that ``error`` is one of, FailedError where that is only Exception.
    """
    for kind in type(error).__mro__:
        if kind is Exception or not issubclass(kind, Exception) or kind is not _kind(kind.__name__):
            continue
        try:
            return of(kind)(text, **fields)
        except TypeError:  # it takes more than a text, as UnicodeDecodeError does
            continue
    return of(_tvm_error())(text, **fields)


def _tvm_error() -> type[Exception]:
    import tvm

    return tvm.TVMError


def python_name(error: BaseException) -> str:
    """What an exception is called in texts: by the exception of Python's or TVM's that it is."""
    return error._python_name if isinstance(error, CollageError) else type(error).__name__
