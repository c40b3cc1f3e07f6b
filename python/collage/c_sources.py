# SPDX-License-Identifier: Apache-2.0
"""What a C compiler says of a backend's code, said with the backend, the operator and the line.

In: the error of TVM's export, and the module that was exported. Out: a CollageError with these fields, whose cause is
the whole text.
"""

import contextlib
import re
from collections.abc import Iterator

import tvm

from . import errors

# "FILE:LINE:COLUMN: error: WHAT", as gcc and clang write it ("error" in the user's language).
_MESSAGE = re.compile(r"^(?P<file>[^\n]+?):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<what>[^\n]*)$", re.MULTILINE)

# What byoc/csource calls the parts of a region's source that come from a backend.
_PART = re.compile(r"(?:statements|prelude) of (?P<backend>\S+?)(?:, at (?P<operator>\S+)(?: \((?P<span>.*)\))?)?")


@contextlib.contextmanager
def failures(module: tvm.runtime.Module) -> Iterator[None]:
    """What the C compiler refuses of the sources in ``module`` becomes a BackendError where it is of a backend's, else
    a MachineError with its first message.
    """
    try:
        yield
    except RuntimeError as error:
        text = str(error)
        if isinstance(error, errors.CollageError) or not text.startswith("Compilation error:"):
            raise
        messages = [m for m in _MESSAGE.finditer(text) if "error" in m["what"].partition(": ")[0]]
        messages = messages or list(_MESSAGE.finditer(text))
        for message in messages:
            if part := _PART.fullmatch(message["file"]):
                fields = {name: part[name] for name in ("backend", "operator", "span")}
                raise errors.BackendError(_said(module, message), **fields) from error
        first = messages[0][0].strip() if messages else text.partition("\n")[2].strip().partition("\n")[0]
        raise errors.MachineError(f"the C compiler that links the model fails: {first}") from error


def _said(module: tvm.runtime.Module, message: re.Match[str]) -> str:
    number = int(message["line"])
    line = _line(module, message["file"], number)
    code = f" in `{line}`" if line else ""
    return f"the C compiler refuses line {number} of the {message['file']}: {message['what']}{code}"


def _line(module: tvm.runtime.Module, part: str, number: int) -> str:
    """A line of one of the parts that byoc/csource writes; "" where it is not found."""
    for each in _sources(module):
        _, found, rest = each.partition(f'#line 1 "{part}"\n')
        lines = rest.split("\n#line ")[0].splitlines()
        if found and number <= len(lines):
            return lines[number - 1].strip()
    return ""


def _sources(module: tvm.runtime.Module) -> Iterator[str]:
    if module.type_key == "c":
        yield module.get_source()
    for each in module.imported_modules:
        yield from _sources(each)
