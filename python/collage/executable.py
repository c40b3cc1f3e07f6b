# SPDX-License-Identifier: Apache-2.0
"""A compiled network as one uses it: run it, time it, keep it.

In: what ``collage.compile`` built or ``collage.load`` opened. Out: an Executable, in the place of TVM's object, whose
methods it has as well (RATIONALE.md, "Why an Executable stands in front of TVM's object").
"""

import difflib
import errno
import functools
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.runtime.module import BenchmarkResult

from . import errors, export, plans, ragged, region, seeded, virtual_machine
from .transform import File

# What a file was when it was opened: its device, number, bytes and time.
_Stamp = tuple[int, int, int, int]

# The seed of the inputs that a benchmark makes by itself.
_SEED = 0


class Executable:
    """A network that runs in this process, on the processor.

    ``path`` is the file or the folder that it is in (a Path), None where it is in none; ``os.fspath`` gives it, so that
    an Executable goes where a path does. All else that TVM's own object has (the graph executor factory where it is in
    no file, else the GraphModule, or virtual_machine.Model) can be called on the Executable: ``set_input``,
    ``get_output``, ``["default"]``. It is opened when it is first needed. One Executable is for one thread at a time.
    """

    def __init__(
        self,
        path: File | None = None,
        *,
        factory: Any = None,
        plan: plans.Plan | None = None,
        write: Callable[[Path], object] | None = None,
    ):
        """Either what is at ``path``, or a ``factory`` of this process, for which ``write`` builds the file of save."""
        self.path = None if path is None else Path(path)
        self._factory, self._plan, self._write = factory, plan, write
        self._stamp = _stamp(self.path) if self.path is not None else None
        self._executor: Any = None
        self._inputs: dict[str, tuple[tuple[int, ...], str]] | None = None
        self._given: set[str] = set()

    def open(self) -> "Executable":
        """Open it now, so that what it needs and is not here is told now. Gives itself.

        Raises ValueError for what is no model, and RuntimeError (TVM's) or ImportError for one that is damaged, or with
        the name of what it needs and this machine has not: a processor's feature, a library, a plug-in.
        """
        if self._executor is None:
            if self._factory is not None:
                self._executor = tvm.contrib.graph_executor.GraphModule(self._factory["default"](tvm.cpu()))
            else:
                self._refuse_changed()
                self._executor = region.load_executor(self.path)
        return self

    @property
    def executor(self) -> Any:
        """What runs it: TVM's GraphModule, or a virtual_machine.Model."""
        return self.open()._executor

    @property
    def inputs(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """{name: (shape, dtype)} of what it takes; a dimension that is open is -1."""
        if self._inputs is None:
            told = self.executor
            if isinstance(told, virtual_machine.Model):
                listed = told.signature["inputs"]
                self._inputs = {one["name"]: (tuple(one["shape"]), one["dtype"]) for one in listed}
            else:
                listed = region.model_inputs(told)
                # As a graph's types are written, a bool is a whole number of one bit.
                self._inputs = {
                    name: (shape, "bool" if kind == "uint1" else kind) for name, (shape, kind) in listed.items()
                }
        return dict(self._inputs)

    def run(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> list[np.ndarray]:
        """Run it once and give its outputs, which are the caller's, in their order.

        The inputs are arrays of numpy's, TVM's, or of anything that numpy makes one of, by name, as a dictionary, by
        keyword, or both: all of them, of the shapes and element types of ``inputs``; nothing is converted. Without any
        it runs on those of the run before, or that ``set_input`` set; where sizes are open on what large ones hold by
        then, which it reads where they are. Raises ValueError for inputs that are missing,
        that it does not have, or that do not fit; TypeError where ``inputs`` is no dictionary.
        """
        self._set(inputs, named)
        self._require_inputs()
        self.executor.run()
        return list(region.outputs_of(self.executor))

    def run_packed(self, inputs: Mapping[str, Any], splits: Any, *, mask: str) -> list[np.ndarray]:
        """Run it once on sequences of different lengths, given as their tokens, one behind the other.

        ``splits`` says where each sequence begins, and behind them how many tokens there are (collage.ragged: jagged
        tensors of PyTorch's, ragged ones of TensorFlow's and lists of Arrow's have such offsets). ``mask`` names the
        input that says which places are tokens, which is made of them. Inputs that have a row for each place are given
        as rows of tokens, [tokens, ...], all others as for ``run``. Outputs that have such rows come back so, those
        with a row for each sequence without rows of sequences that there are none of. There may be fewer sequences,
        and shorter ones, than the model was compiled for (``ragged=`` keeps them from being computed); where batch or
        length is open, it is that of these sequences, or the least that there may be. Raises ValueError for splits that
        do not ascend, or contradict an input, before anything runs, and as ``run`` does.
        """
        shapes = self.inputs
        if mask not in shapes or len(shapes[mask][0]) != 2:
            raise errors.InputError(
                f"mask names {mask!r}, which is no input of batch and length; the model has "
                + ", ".join(f"{name} {list(shape)}" for name, (shape, _) in shapes.items())
            )
        if mask in inputs:
            raise errors.InputError(f"the mask {mask} is made of splits, and was given, too")
        told = {name: self._dimensions(name) for name in shapes}
        rows = ragged.Splits(splits, *(dimension["sizes"] for dimension in told[mask]))
        given = {mask: rows.mask.astype(shapes[mask][1])}
        for name, value in inputs.items():
            has_rows = name in told and told[name][:2] == told[mask]
            given[name] = rows.padded(name, value, shapes[name][0]) if has_rows else value
        return [rows.packed(out) for out in self.run(given)]

    def _dimensions(self, name: str) -> list[dict[str, Any]]:
        """[{"sizes": (least, most), "name"}] of an input: the most is None where there is no bound."""
        shape = self.inputs[name][0]
        model = self.executor
        listed = model.signature["inputs"] if isinstance(model, virtual_machine.Model) else []
        told: dict[str, Any] = next((one for one in listed if one["name"] == name), {})
        names, domain = (told.get(key) or [None] * len(shape) for key in ("names", "domain"))
        return [
            {"sizes": tuple(domain[axis] or (1, None)) if size < 0 else (size, size), "name": names[axis] or ""}
            for axis, size in enumerate(shape)
        ]

    def benchmark(
        self,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        repeat: int = 10,
        number: int = 1,
        min_repeat_ms: int = 10,
    ) -> BenchmarkResult:
        """How long a run takes, without setting inputs and copying outputs: TVM's BenchmarkResult, whose ``mean``,
        ``median``, ``std``, ``min``, ``max`` and ``results`` (one for each of ``repeat`` samples) are in seconds.

        A sample is the mean of ``number`` runs, or more where these take less than ``min_repeat_ms`` milliseconds; one
        run goes before, untimed. The inputs are as for ``run``; where none were ever given, they are random ones,
        always the same. Raises ValueError as ``run`` does, and for ``repeat`` or ``number`` below 1.
        """
        for name, value, least in (("repeat", repeat, 1), ("number", number, 1), ("min_repeat_ms", min_repeat_ms, 0)):
            if value < least:
                raise errors.InputError(f"{name} is {value}; it is {least} or more")
        if inputs is None and not self._given:
            inputs = seeded.inputs(_SEED, region.model_inputs(self.executor))
        self._set(inputs, {})
        self._require_inputs()
        timer = self.executor.module.time_evaluator(
            "run", tvm.cpu(), number=number, repeat=repeat, min_repeat_ms=min_repeat_ms
        )
        return BenchmarkResult(list(timer().results))

    @property
    def plan(self) -> plans.Plan:
        """What was decided about it. Raises ValueError where it was loaded: a model's file does not hold its plan."""
        if self._plan is None:
            raise errors.InputError(
                f"{self.path} was loaded, and a model's file does not hold its plan; collage.Plan(FILE) reads the one "
                "that plan_out (--plan-out) wrote"
            )
        return self._plan

    def save(self, path: File) -> "Executable":
        """Write it to a file (.so or .tar), in one step; gives the Executable of that file.

        What is in a file is copied, under a name that ends alike; what is in none is built once more, with the plug-ins
        that it needs. Raises ValueError for another ending, for a package (a folder: copy it), and where the file is
        another one by now; OSError where it cannot be written.
        """
        path = Path(path)
        export.check_output(path)
        if self.path is None:
            assert self._write is not None, "what is in no file has something that writes it"
            self._write(path)
            return Executable(path, plan=self._plan)
        if self.path.is_dir():
            raise errors.InputError(f"{self.path} is a package: copy the folder (cp -r)")
        if path.suffix != self.path.suffix:
            raise errors.InputError(
                f"{self.path} cannot be saved as {path}: a {self.path.suffix} stays one; compile it with "
                f"out={path.name!r}"
            )
        self._refuse_changed()
        if not (path.exists() and os.path.samefile(path, self.path)):
            _copy(self.path, path)
        return Executable(path, plan=self._plan)

    def set_input(self, key: str | int | None = None, value: Any = None, **named: Any) -> None:
        """As TVM's GraphModule: set inputs one by one, for a ``run`` without any. What does not fit is refused as in
        ``run``. A weight, which is none of ``inputs``, may be set too.
        """
        given = dict(named)
        if isinstance(key, int):
            name = self._name_of(key)
            if name is None:
                self.executor.set_input(key, value)
                return
            given[name] = value
        elif key is not None:
            given[key] = value
        for name in given:
            if name not in self.inputs and not self._is_weight(name):
                raise errors.InputError(self._no_such_input(name))
        self._set({name: given[name] for name in given if name in self.inputs}, {})
        for name in given.keys() - self.inputs.keys():
            self.executor.set_input(name, given[name])

    def _is_weight(self, name: str) -> bool:
        if isinstance(self.executor, virtual_machine.Model):
            return False
        return int(self.executor.module["get_input_index"](name)) >= 0

    def _name_of(self, number: int) -> str | None:
        """The name of the input with TVM's number; None where that is a weight's."""
        names = list(self.inputs)
        if isinstance(self.executor, virtual_machine.Model):
            numbers = list(range(len(names)))
        else:
            numbers = [int(self.executor.module["get_input_index"](name)) for name in names]
        if number in numbers:
            return names[numbers.index(number)]
        if not 0 <= number < int(self.executor.get_num_inputs()):
            raise errors.InputError(f"the model has no input {number} (it takes: {self._listed()})")
        return None

    def _set(self, inputs: Mapping[str, Any] | None, named: Mapping[str, Any]) -> None:
        if inputs is not None and not isinstance(inputs, Mapping):
            raise errors.CallError(
                f"the inputs are a {type(inputs).__name__}; give them by name, as {{name: array}}: {self._listed()}"
            )
        both = sorted(set(inputs or {}) & set(named))
        if both:
            raise errors.InputError(f"the input {both[0]!r} is given twice")
        given = {**(inputs or {}), **named}
        # First all are looked at, then all are set: what is refused changes nothing.
        arrays = {name: self._fitting(name, value) for name, value in given.items()}
        executor = self.executor
        # The virtual machine need not copy what it may read where it is; TVM's graph executor has a copy of its own.
        take = executor.lend_input if isinstance(executor, virtual_machine.Model) else executor.set_input
        for name, array in arrays.items():
            take(name, array)
        self._given.update(arrays)

    def _fitting(self, name: str, value: Any) -> np.ndarray:
        if name not in self.inputs:
            raise errors.InputError(self._no_such_input(name))
        shape, dtype = self.inputs[name]
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        if _type_name(array.dtype) != dtype:
            raise errors.InputError(
                f"the input {name!r} is {array.dtype}, the model takes {dtype} (convert it with .astype({dtype!r}))"
            )
        fits = len(shape) == array.ndim and all(size in (-1, had) for size, had in zip(shape, array.shape, strict=True))
        if not fits:
            raise errors.InputError(
                f"the input {name!r} has the shape {_shown(array.shape)}, the model takes {_shown(shape)}"
            )
        return array

    def _no_such_input(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.inputs, 1)
        said = f": did you mean {near[0]!r}?" if near else f" (it takes: {self._listed()})"
        return f"the model has no input {name!r}{said}"

    def _require_inputs(self) -> None:
        missing = [name for name in self.inputs if name not in self._given]
        if missing:
            raise errors.InputError(f"the input {missing[0]!r} is missing (the model takes: {self._listed()})")

    def _listed(self) -> str:
        told = [f"{name} {dtype} {_shown(shape)}" for name, (shape, dtype) in self.inputs.items()]
        return "; ".join(told) or "nothing"

    def _refuse_changed(self) -> None:
        if self.path is not None and _stamp(self.path) != self._stamp:
            raise errors.InputError(
                f"{self.path} is another file now than the one that this executable was made of", file=self.path
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        owner = self.executor if self._factory is None else self._factory
        try:
            return getattr(owner, name)
        except AttributeError:
            if self._factory is None:
                raise AttributeError(
                    f"neither collage.Executable nor TVM's {type(owner).__name__} has {name}"
                ) from None
        return getattr(self.executor, name)

    def __getitem__(self, name: str) -> Any:
        return (self.executor if self._factory is None else self._factory)[name]

    __iter__ = None  # TVM's factory can be taken apart so, which it has long given up

    def __fspath__(self) -> str:
        if self.path is None:
            raise errors.CallError("this executable is in no file: save(path) writes one")
        return str(self.path)

    def __str__(self) -> str:
        return repr(self) if self.path is None else str(self.path)

    def __repr__(self) -> str:
        return f"<collage.Executable: {self.path or 'in this process'}>"


@functools.cache
def _type_name(kind: np.dtype) -> str:
    return str(kind)  # which numpy works out anew each time


def _shown(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join("?" if size < 0 else str(size) for size in shape) + "]"


def _stamp(path: Path) -> _Stamp | None:
    """What tells the file from another one at its place; None for a folder. Raises FileNotFoundError."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise errors.MissingFileError(
            errno.ENOENT, "there is no model (a .so, a .tar, or a folder of collage package)", str(path), file=path
        ) from None
    if path.is_dir():
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _copy(source: Path, target: Path) -> None:
    """Copy a file in one step: on an error nothing stands at ``target`` that did not before."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        shutil.copyfile(source, partial)
        shutil.copymode(source, partial)
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
