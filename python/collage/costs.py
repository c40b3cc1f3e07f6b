# SPDX-License-Identifier: Apache-2.0
"""Costs that are declared in a file and not measured, of backends and devices that need not be there."""

import contextlib
import os
from collections.abc import Iterator

import tvm

from . import library
from .transform import File


@contextlib.contextmanager
def declared_costs(path: File) -> Iterator[None]:
    """Have what a file of costs says (``docs/devices.md``) hold within a ``with``, in all threads of this process:

        with collage.declared_costs("npu.json"):
            plan = collage.plan(module, params, devices=["npu"])

    Backends that the file describes and that nobody has registered are registered meanwhile. ``collage.plan``,
    ``partition`` and ``replay`` (with ``verify=False``) take them; what is compiled is measured, so that
    ``collage.compile`` does not.

    Raises InputError for what is no file of costs, and where another one says something of the same backend already;
    MissingFileError where there is no such file.
    """
    library.load()
    number = tvm.get_global_func("collage.costs.declare")(os.fspath(path))
    try:
        yield
    finally:
        tvm.get_global_func("collage.costs.withdraw")(number)
