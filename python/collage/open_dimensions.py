# SPDX-License-Identifier: Apache-2.0
"""The sizes of a model's inputs: what it declares, what is given, and what stays open until it runs.

In: each input's dimensions (numbers; None or a name for one that the model leaves open), the shapes that are given,
and the axes that are to stay open. Out: Sizes. What does not fit raises ValueError with a text that names the input.
"""

import dataclasses
import json

import tvm

from . import errors, library

# At which sizes open dimensions are tried where nobody says: a batch; an image's sides, which pools make smaller; what
# else there is, as words.
_BATCH, _SIDE, _OTHER = 2, 64, 16


@dataclasses.dataclass(frozen=True)
class Sizes:
    """``shapes`` {name: sizes, None for what is open}; ``tried`` {name: sizes at which it is measured and checked};
    ``names`` {name: a text for each dimension}, which is what the model calls those that are open, else empty.
    """

    shapes: dict
    tried: dict
    names: dict

    def open_axes(self):
        """{name: axes that are open}, of inputs that have any."""
        found = {name: [axis for axis, size in enumerate(sizes) if size is None] for name, sizes in self.shapes.items()}
        return {name: axes for name, axes in found.items() if axes}


def settle(declared, given, open_axes, what):
    """The Sizes of inputs that are declared as ``declared`` {name: dimensions} by the model ``what``. ``given`` {name:
    shape} fixes what is open, and says at which size that is tried which ``open_axes`` {name: axes} leaves open.
    """
    refuse_unknown(given, declared, what)
    refuse_unknown(open_axes, declared, what)
    shapes, tried, names, unclear, named = {}, {}, {}, {}, {}
    for name, dims in declared.items():
        left = _axes(name, dims, open_axes.get(name, ()), what)
        require_fit(name, dims, given.get(name, dims), what)
        known = list(given.get(name, dims))
        if not all(isinstance(size, int) or axis in left for axis, size in enumerate(known)):
            unclear[name] = dims
            continue
        shapes[name] = [None if axis in left else size for axis, size in enumerate(known)]
        names[name] = [
            size if axis in left and isinstance(size, str) else "" for axis, size in enumerate(declared[name])
        ]
        tried[name] = [
            size if isinstance(size, int) else named.setdefault(size or (name, axis), _tried(axis, len(known)))
            for axis, size in enumerate(known)
        ]
    ask_for(unclear, what)
    return Sizes(shapes, tried, names)


def _axes(name, dims, axes, what):
    for axis in axes:
        if not 0 <= axis < len(dims):
            raise errors.ModelError(f"input {name} of {what} is {show(dims)}: it has no dimension {axis} to leave open")
        if isinstance(dims[axis], int):
            raise errors.ModelError(
                f"input {name} of {what} is {show(dims)}: its dimension {axis} is {dims[axis]} in the model, and can "
                "stay open only where the model leaves it open (export it with that dimension dynamic)"
            )
    return set(axes)


def _tried(axis, rank):
    if axis == 0:
        return _BATCH
    return _SIDE if rank >= 4 and axis >= rank - 2 else _OTHER


def tried_shape(kind):
    """A tensor type's sizes, those that are open as they are tried."""
    return [size if isinstance(size, int) else _tried(axis, len(kind.shape)) for axis, size in enumerate(dims_of(kind))]


def relay_shape(sizes):
    """Sizes as Relay has them."""
    return [tvm.relay.Any() if size is None else size for size in sizes]


def settled(module, sizes):
    """A typed module with what is computed of open dimensions settled, by their names (Go's symbolic.Settle)."""
    if not sizes.open_axes():
        return module
    library.load()
    change = tvm.get_global_func("collage.transform.OpenDimensions")(json.dumps(sizes.names))
    return tvm.relay.transform.InferType()(change(module))


def dims_of(kind):
    """The dimensions of a tensor type; None for one that is open."""
    return [None if isinstance(dim, tvm.tir.Any) else int(dim) for dim in kind.shape]


def show(dims):
    """Dimensions for people."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"


def fits(dims, given):
    """Whether a shape agrees with dimensions of which only the numbers are fixed."""
    return len(dims) == len(given) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(dims, given, strict=True)
    )


def require_fit(name, dims, given, what, thing=""):
    """Raise ValueError where a shape (that of ``thing``) does not agree with an input's dimensions."""
    if not fits(dims, given):
        raise errors.ModelError(f"input {name} of {what} is {show(dims)}; {thing}{show(given)} does not fit")


def refuse_unknown(given, names, what):
    """Raise ValueError where something is given for what is no input."""
    for name in given:
        if name not in names:
            raise errors.ModelError(f"{what} has no input {name!r}; its inputs are: {', '.join(names) or 'none'}")


def ask_for(unclear, what):
    """Raise ValueError where inputs, {name: dimensions}, have sizes that nobody knows."""
    if not unclear:
        return
    listed = "; ".join(f"{name} is {show(dims)}" for name, dims in unclear.items())
    name, dims = next(iter(unclear.items()))
    axes = ",".join(str(axis) for axis, dim in enumerate(dims) if not isinstance(dim, int))
    raise errors.ModelError(
        f"{what} leaves shapes open ({listed}); give them with input_shapes (on the command line "
        f"--input-shape {name}:1,...), or leave them open with dynamic (--dynamic {name}:{axes})"
    )
