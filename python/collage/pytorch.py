# SPDX-License-Identifier: Apache-2.0
"""PyTorch's modules and graphs as executables: ``collage.from_torch``, and ``torch.compile(model, backend="collage")``.

    executable = collage.from_torch(module.eval(), torch.rand(1, 3, 224, 224), backends=["tvm", "dnnl", "native"])
    fast = torch.compile(module.eval(), backend="collage", options={"search_time": 30})
    with torch.no_grad():
        fast(image)

torch.compile knows the name by itself where the package is installed, else once this module is imported. What torch
takes apart is read as TorchScript, or where TVM's importer lacks an operator as ``torch.export`` has it.
"""

import importlib
import itertools
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm

from . import api, errors, export, frontends, library, transform
from .executable import Executable
from .log import logger

# How far outputs may be off PyTorch's: within each number, and of the greatest of the output.
_RTOL, _ATOL = 1e-3, 1e-4

# How many shapes of its inputs a graph is compiled for; others are PyTorch's.
_SHAPES = 8

_numbers = itertools.count()


def from_torch(module: torch.nn.Module, example_inputs: Any, /, **options: Any) -> Executable:
    """Compile a module for inputs of the shapes and types of ``example_inputs``: a tensor, or a tuple of them in the
    order of ``forward``. Gives an Executable, whose inputs have the names that they have in ``forward``.

    The module must be in evaluation mode and on the processor; it is traced, and stays as it is. Its parameters become
    constants. ``options`` are those of ``collage.compile``. What comes out is held against what the module gives for
    the example, before a file is written (``out``). Raises errors.InputError for a module that is training, and
    errors.ModelError where it cannot be read, or computes something else then.
    """
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    if module.training:
        raise errors.InputError("the module is training: call its eval() first")
    _require_processor([*inputs, *module.parameters(), *module.buffers()])
    out = options.pop("out", None)
    if out is not None:
        export.check_output(out)
    with torch.no_grad(), tempfile.TemporaryDirectory(prefix="collage-") as folder:
        read = _read(module, inputs, type(module).__name__)
        # Nothing is at `out` that was not compared.
        first: dict[str, Any] = {} if out is None else {"out": Path(folder) / Path(out).name}
        executable = api.compile(read, **first, **options)
        made = executable.run(dict(zip(_names(read), (array_of(one) for one in inputs), strict=True)))
        if why := _difference([torch.from_numpy(one) for one in made], _flat(module(*inputs))):
            raise errors.ModelError(f"{type(module).__name__} compiled computes something else than PyTorch: {why}")
        return executable if out is None else executable.save(out)


def backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None, options: Any = None
) -> Callable[..., Any]:
    """What ``torch.compile(backend="collage")`` calls for each graph; ``options`` are those of ``collage.compile``.

    The graph is compiled when it first runs, for the shapes that its inputs have then, and again for each new shape.
    Weights become constants. Where that cannot be, a warning says why, and the graph stays with PyTorch; with
    ``strict`` it is an error.
    """
    given = dict(options or {})
    if mode is not None:
        raise errors.CallError(f"the backend collage has no mode {mode!r}; say options= instead", option="mode")
    transform.configuration(**{name: value for name, value in given.items() if name not in _OF_COMPILE})
    return _Graph(graph, given)


_OF_COMPILE = ("progress", "memory_limit_executable", "level")


class _Graph:
    """A graph of torch.compile's: for each shape of its inputs an executable, or PyTorch."""

    def __init__(self, graph: torch.fx.GraphModule, options: dict[str, Any]):
        self._graph, self._options = graph, options
        self._name = f"graph {next(_numbers)} of torch.compile"
        places = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self._weights = [at for at, node in enumerate(places) if _is_weight(node)]
        self._known: dict[Any, _Program | None] = {}
        self._turn = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        with self._turn:
            key = (torch.is_grad_enabled(), *map(_kind, self._others(arguments)))
            if key not in self._known:
                return self._first(key, arguments)
            program = self._known[key]
            if program is None or not program.holds([arguments[at] for at in self._weights]):
                if program is not None:
                    self._leave(key, "its weights are not those any more that it was compiled with")
                return self._graph(*arguments)
            return program.run(self._tensors(arguments))

    def _others(self, arguments: Sequence[Any]) -> list[Any]:
        return [one for at, one in enumerate(arguments) if at not in self._weights]

    def _tensors(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        return [one for one in self._others(arguments) if isinstance(one, torch.Tensor)]

    def _first(self, key: Any, arguments: Sequence[Any]) -> Any:
        """What PyTorch computes, which what is compiled is held against."""
        program = None
        given = [one.clone() for one in self._tensors(arguments)]
        try:
            program = self._compiled(arguments)
        except (errors.OptionError, errors.CallError, library.LibraryError):
            raise
        except Exception as error:
            if self._options.get("strict") or (isinstance(error, errors.BackendError) and not error.operator):
                raise
            self._leave(key, str(error).strip().splitlines()[0])
        weights = [(arguments[at], _version(arguments[at])) for at in self._weights]
        right = self._graph(*arguments)
        if program is not None:
            # What it writes into its inputs no result shows.
            if not all(map(_same, given, self._tensors(arguments))) or any(
                _version(one) != was for one, was in weights
            ):
                why = "it changes its inputs in their place, which what is compiled does not"
            elif why := _difference(list(program.run(given)), _flat(right)):
                why = f"compiled it computes something else: {why}"
            if why and self._options.get("strict"):
                raise errors.StrictError(f"strict: {self._name} cannot be compiled: {why}")
            if why:
                self._leave(key, why)
            else:
                self._known[key] = program
        return right

    def _compiled(self, arguments: Sequence[Any]) -> "_Program":
        if len(self._known) >= _SHAPES:
            raise errors.InputError(f"it was compiled for {_SHAPES} shapes of its inputs already")
        tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
        if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
            raise errors.InputError("gradients are asked for: call it within torch.no_grad() or torch.inference_mode()")
        _require_processor(tensors)
        weights = [arguments[at] for at in self._weights]
        bound = _Bound(self._graph, arguments, self._weights)
        with torch.no_grad():
            read = _read(bound, tuple(self._tensors(arguments)), self._name)
        return _Program(api.compile(read, **self._options), _names(read), weights)

    def _leave(self, key: Any, why: str) -> None:
        """Leave the graph to PyTorch, for these shapes."""
        self._known[key] = None
        logger.warning("%s stays with PyTorch: %s", self._name, why)


class _Bound(torch.nn.Module):
    """A graph of which all but the tensors that are no weights is settled. The weights are copies: who reads the graph
    runs it, and it may change them.
    """

    def __init__(self, graph: torch.fx.GraphModule, arguments: Sequence[Any], weights: Sequence[int]):
        super().__init__()
        self._graph, self._arguments = graph, list(arguments)
        self._open = [
            at for at, one in enumerate(arguments) if isinstance(one, torch.Tensor) and at not in set(weights)
        ]
        for at in weights:
            self.register_buffer(f"weight{at}", arguments[at].detach().clone())
        self._weights = list(weights)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The graph's results, as a tuple."""
        given = list(self._arguments)
        for at in self._weights:
            given[at] = getattr(self, f"weight{at}")
        for at, one in zip(self._open, tensors, strict=True):
            given[at] = one
        return tuple(_flat(self._graph(*given)))


class _Program:
    """An executable that takes PyTorch's tensors, for weights that stay as they are."""

    def __init__(self, executable: Executable, names: Sequence[str], weights: Sequence[torch.Tensor]):
        self._executor, self._names = executable.executor, list(names)
        self._executable = executable
        self._weights = [(one, _version(one)) for one in weights]

    def holds(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether the weights are the ones that it was compiled with."""
        known = self._weights
        return all(one is had and _version(one) == was for one, (had, was) in zip(weights, known, strict=True))

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results, in memory of their own; inputs are read where they are, if that can be."""
        kept = []  # until it has run
        for name, tensor in zip(self._names, tensors, strict=True):
            tensor = tensor.detach().contiguous()
            kept.append(tensor)
            if tensor.data_ptr() % 64 == 0 and tensor.dtype is not torch.bool and tensor.numel():
                self._executor.set_input_zero_copy(name, tvm.nd.from_dlpack(torch.utils.dlpack.to_dlpack(tensor)))
            else:
                self._executor.set_input(name, array_of(tensor))
        self._executor.run()
        outputs = (self._executor.get_output(at) for at in range(self._executor.get_num_outputs()))
        return tuple(torch.from_numpy(one.numpy()) for one in outputs)


def _version(tensor: torch.Tensor) -> int:
    """How often it was changed in its place; tensors of torch.inference_mode do not count that."""
    return 0 if tensor.is_inference() else tensor._version


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether all numbers are equal, no number to no number."""
    return bool(((one == other) | ((one != one) & (other != other))).all())


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as numpy's array, which may share its memory."""
    return np.asarray(tensor.detach().cpu().numpy())


def _is_weight(node: torch.fx.Node) -> bool:
    """Whether dynamo made an input of a module's parameter or buffer."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _kind(one: Any) -> Any:
    return (tuple(one.shape), one.dtype, one.device) if isinstance(one, torch.Tensor) else one


def _require_processor(tensors: Sequence[torch.Tensor]) -> None:
    for one in tensors:
        if one.device.type != "cpu":
            raise errors.InputError(f"it has tensors on {one.device}; Collage is for processors (cpu)")


def _flat(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    flat = list(itertools.chain.from_iterable(map(_flat, outputs))) if isinstance(outputs, (list, tuple)) else [outputs]
    for one in flat:
        if not isinstance(one, torch.Tensor):
            raise errors.ModelError(f"one of its results is a {type(one).__name__} and no tensor")
    return flat


def _difference(made: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> str:
    """Where the results differ; "" where they do not."""
    if len(made) != len(right):
        return f"it gives {len(made)} results, and not {len(right)}"
    for number, (one, other) in enumerate(zip(made, right, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {number} is {one.dtype} {list(one.shape)}, and not {other.dtype} {list(other.shape)}"
        if not one.numel():
            continue
        wide, other = one.double(), other.detach().double()
        off = (wide - other).abs()
        allowed = _RTOL * other.abs() + _ATOL * max(1.0, float(other.abs().max()))
        if not bool((off <= allowed).all()):
            return f"result {number} is off by {float(off.max()):.3g}, of numbers up to {float(other.abs().max()):.3g}"
    return ""


def _names(module: tvm.IRModule) -> list[str]:
    return [str(one.name_hint) for one in module["main"].params]


def _read(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], called: str) -> tvm.IRModule:
    """The module as Relay, weights bound. Raises errors.ModelError."""
    try:
        # To read it is to run it, and it may change its inputs.
        copies = tuple(one.clone() for one in inputs)
        script = torch.jit.trace(module, copies, check_trace=False, strict=False)
    except Exception as error:
        raise errors.ModelError(f"{called} cannot be traced: {frontends.said_by(error)}") from error
    try:
        return frontends.of_torchscript(script, [(tuple(one.shape), _dtype(one)) for one in inputs], called)
    except errors.ModelError as error:
        try:
            return _by_export(module, inputs, called)
        except errors.CollageError as other:
            raise errors.ModelError(f"{error}; by way of torch.export: {other}", **error.fields) from error


def _by_export(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], called: str) -> tvm.IRModule:
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        path = Path(folder) / "module.pt2"
        try:
            torch.export.save(torch.export.export(module, tuple(one.clone() for one in inputs)), path)
        except Exception as error:
            raise errors.ModelError(f"{called} cannot be exported: {frontends.said_by(error)}") from error
        return frontends.load(path).module


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _register() -> None:
    try:
        dynamo = importlib.import_module("torch._dynamo")
    except ImportError:  # before PyTorch 2
        return
    if "collage" not in dynamo.list_backends(exclude_tags=()):
        dynamo.register_backend(backend, name="collage")


_register()
