# SPDX-License-Identifier: Apache-2.0
"""The sizes of a model's inputs: what it declares, what is given, and what stays open until it runs.

In: each input's dimensions (numbers; None or a name for one that the model leaves open), the shapes that are given,
and the axes that are to stay open, with the sizes from and up to which they may be (their domains). Out: Sizes, and the
points of the domains at which networks are measured. What does not fit raises ValueError with a text that names the
input.
"""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import tvm

from . import errors, library

# At which sizes open dimensions are tried where nobody says: a batch; an image's sides, which pools make smaller; what
# else there is, as words.
_BATCH, _SIDE, _OTHER = 2, 64, 16


@dataclasses.dataclass(frozen=True)
class Dim:
    """An open dimension: what it is called, its least size, and its greatest one (None for any). Dimensions of one name
    are of one size. ``weights`` says how often a size comes, {size: how often} or all sizes that were seen, one after
    the other; None where all come alike.
    """

    name: str
    least: int = 1
    most: int | None = None
    weights: Mapping[int, float] | Iterable[int] | None = None

    def __post_init__(self):
        # Once: what gives the sizes may give them once only, and one Dim may stand for dimensions of several inputs.
        if self.weights is not None and not isinstance(self.weights, Mapping):
            object.__setattr__(self, "weights", Counter(np.asarray(list(self.weights)).tolist()))


def _told(domain):
    """(name, domain, weights) of what is told of a dimension: a Dim, a torch.export.Dim, (least, most), None, or what
    the command line says, {"least", "most", "weights": [[size, how often]]}.
    """
    if isinstance(domain, dict):
        domain = Dim("", domain["least"], domain["most"], dict(domain.get("weights") or ()) or None)
    if isinstance(domain, Dim):
        return domain.name, None if domain.most is None else (domain.least, domain.most), domain.weights
    if hasattr(domain, "min") and hasattr(domain, "max") and hasattr(domain, "__name__"):
        # What has no bound there has the greatest number of Python's or of C's int.
        bounded = domain.max is not None and domain.max < 2**31 - 1
        return domain.__name__, (domain.min, domain.max) if bounded else None, None
    return "", domain, None


@dataclasses.dataclass(frozen=True)
class Sizes:
    """``shapes`` {name: sizes, None for what is open}; ``tried`` {name: sizes at which it is measured and checked};
    ``names`` {name: a text for each dimension}, which is what the model calls those that are open, else empty;
    ``domains`` {name: (least, most) or None for each dimension}; ``points`` is what the function of that name gives.
    """

    shapes: dict
    tried: dict
    names: dict
    domains: dict
    points: list

    def open_axes(self):
        """{name: axes that are open}, of inputs that have any."""
        found = {name: [axis for axis, size in enumerate(sizes) if size is None] for name, sizes in self.shapes.items()}
        return {name: axes for name, axes in found.items() if axes}


def settle(declared, given, open_axes, what):
    """The Sizes of inputs that are declared as ``declared`` {name: dimensions} by the model ``what``. ``given`` {name:
    shape} fixes what is open, and says at which size that is tried which ``open_axes`` leaves open: {name: axes}, or
    {name: {axis: (least, most), a Dim or torch.export.Dim, or None}}. What the model, or a Dim, calls by one name has
    one size and one domain.
    """
    refuse_unknown(given, declared, what)
    refuse_unknown(open_axes, declared, what)
    declared, open_axes, weights = _named(declared, open_axes)
    domains = _domains(declared, open_axes, what)
    weighed = _weighed(declared, domains, weights, what)
    shapes, tried, names, unclear, named = {}, {}, {}, {}, {}
    for name, dims in declared.items():
        left = _axes(name, dims, [int(axis) for axis in open_axes.get(name, ())], what)
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
            size
            if isinstance(size, int)
            else named.setdefault(
                size or (name, axis), _tried_in(domains[name][axis], axis, len(known), weighed.get((name, axis)))
            )
            for axis, size in enumerate(known)
        ]
    ask_for(unclear, what)
    for name, sizes in tried.items():
        require_within(name, sizes, domains[name], what, "--input-shape")
    return Sizes(shapes, tried, names, domains, points(tried, domains, weighed))


def _named(declared, open_axes):
    """What is declared, with the names of Dims for what is open; what is told of it without these; and how often sizes
    come, {(name, axis): what a Dim says of that}.
    """
    declared = {name: list(dims) for name, dims in declared.items()}
    told, weights = {}, {}
    for name, axes in open_axes.items():
        if not isinstance(axes, dict):
            told[name] = axes
            continue
        told[name] = {}
        for axis, domain in axes.items():
            called, told[name][axis], often = _told(domain)
            if often is not None:
                weights[name, int(axis)] = often
            if called and 0 <= int(axis) < len(declared[name]) and not isinstance(declared[name][int(axis)], int):
                declared[name][int(axis)] = called
    return declared, told, weights


def _weighed(declared, domains, weights, what):
    """{(name, axis): {size: its share of all}}, of all dimensions with the name of the one that has weights."""
    found, of = {}, None
    for (name, axis), often in weights.items():
        where = f"the sizes of dimension {axis} of the input {name} of {what}"
        domain = domains[name][axis] if axis < len(domains[name]) else None
        if domain is None:
            raise errors.ModelError(f"{where} are weighed: say which there may be, the least and the greatest one")
        for size, count in often.items():
            if int(size) != size or not domain[0] <= size <= domain[1]:
                raise errors.ModelError(f"{where} are to be {domain[0]} to {domain[1]}; {size} is weighed")
            if not (math.isfinite(count) and count >= 0):
                raise errors.ModelError(f"{where}: {size} cannot come {count} times")
        total = sum(often.values())
        if not total > 0:
            raise errors.ModelError(f"{where} are weighed, but none ever comes")
        shares = {int(size): count / total for size, count in sorted(often.items()) if count}
        called = declared[name][axis]
        alike = {(name, axis)}
        if isinstance(called, str):
            alike |= {(other, at) for other, dims in declared.items() for at, dim in enumerate(dims) if dim == called}
        if of is not None and ((name, axis) not in of or shares != found[name, axis]):
            raise errors.ModelError(f"{where} are weighed, and so are others: one dimension's sizes can be")
        of = alike
        found.update(dict.fromkeys(alike, shares))
    return found


def of_module(module, dynamic):
    """The Sizes of a typed module's main, all of whose open dimensions stay open. ``dynamic`` {name: {axis: (least,
    most), a Dim, or None}} is what is known of them. Raises ValueError for what is not open, or no input.
    """
    declared = {var.name_hint: dims_of(var.checked_type) for var in module["main"].params
                if isinstance(var.checked_type, tvm.relay.TensorType)}  # fmt: skip
    refuse_unknown(dynamic, declared, "the module")
    told = {}
    for name, dims in declared.items():
        given = dynamic.get(name) or {}
        given = {int(axis): of for axis, of in (given if isinstance(given, dict) else dict.fromkeys(given)).items()}
        told[name] = {**{axis: None for axis, size in enumerate(dims) if size is None}, **given}
    return settle(declared, {}, told, "the module")


def tried(sizes):
    """What Go and export.build_for_machine take of Sizes: {name: {"shape", "names", "domain", "points"}}."""
    return {
        name: {
            "shape": shape,
            "names": sizes.names[name],
            "domain": sizes.domains[name],
            "points": points_of(sizes.points, name),
        }
        for name, shape in sizes.tried.items()
    }


def points_of(points, name):
    """The points as they are told of one input: [{"sizes": its sizes, "weight"}]."""
    return [{"sizes": point["sizes"][name], "weight": point["weight"]} for point in points]


def _domains(declared, open_axes, what):
    """{name: (least, most) or None for each dimension}; a name that has a domain in one place has it everywhere."""
    found, by_name = {name: [None] * len(dims) for name, dims in declared.items()}, {}
    for name, axes in open_axes.items():
        for axis, domain in axes.items() if isinstance(axes, dict) else ():
            axis = int(axis)
            if domain is None or not 0 <= axis < len(declared[name]):
                continue  # _axes says of the second what is wrong
            least, most = map(int, domain)
            if not 1 <= least <= most:
                raise errors.ModelError(
                    f"the sizes of dimension {axis} of the input {name} of {what} cannot be {least} to {most}: give "
                    "whole numbers from 1 up, the smaller one first"
                )
            found[name][axis] = (least, most)
            called = declared[name][axis]
            if isinstance(called, str) and by_name.setdefault(called, (least, most)) != (least, most):
                other = by_name[called]
                raise errors.ModelError(
                    f"{what} calls dimension {axis} of its input {name} {called!r}, of which the sizes {other[0]} to "
                    f"{other[1]} were given elsewhere, and {least} to {most} here"
                )
    for name, dims in declared.items():
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and found[name][axis] is None:
                found[name][axis] = by_name.get(dim)
    return found


def require_within(name, sizes, domain, what, given):
    """Raise ValueError where a size, given by ``given``, is outside of its domain."""
    for axis, (size, bounds) in enumerate(zip(sizes, domain, strict=True)):
        if bounds is not None and not bounds[0] <= size <= bounds[1]:
            raise errors.ModelError(
                f"input {name} of {what}: {given} has the size {size} for dimension {axis}, which is to be {bounds[0]} "
                f"to {bounds[1]}"
            )


# The points, between -1 and 1, and weights of Gauss's and Legendre's rule: a polynomial of the size, of degree five at
# most, has exactly the mean over all sizes that it has over these. (Costs are nearly linear, attention is square.)
_RULE = (-math.sqrt(0.6), 5 / 18), (0.0, 8 / 18), (math.sqrt(0.6), 5 / 18)


def points(tried, domains, weighed=None):
    """At which sizes a network with domains is measured: [{"sizes": {name: sizes}, "weight"}], the weights adding up to
    1; every size of a domain counts alike, or as ``weighed`` has them, {(name, axis): {size: share}}, of dimensions
    that are of one size. All domains go from their least to their most together: where one has weights, the others
    have the size than which as large a share of theirs is smaller. Without domains nothing.
    """
    spans = [bounds for domain in domains.values() for bounds in domain if bounds is not None]
    if not spans:
        return []
    if weighed:
        shares = next(iter(weighed.values()))
        rule = _gauss(shares)
        below = {size: sum(share for other, share in shares.items() if other < size) for size, _ in rule}
        return [
            {
                "sizes": {
                    name: [size if (name, axis) in weighed else one for axis, one in enumerate(sizes)]
                    for name, sizes in _at(2 * (below[size] + shares.get(size, 0.0) / 2) - 1, tried, domains).items()
                },
                "weight": weight,
            }
            for size, weight in rule
        ]
    widest = max(most - least for least, most in spans)
    if widest < len(_RULE):
        rule = [(2 * step / widest - 1 if widest else 0.0, 1 / (widest + 1)) for step in range(widest + 1)]
    else:
        rule = _RULE
    return [{"sizes": _at(place, tried, domains), "weight": weight} for place, weight in rule]


def _gauss(shares):
    """[(size, weight)], as many as the rule has: what is a square of the size has the same mean over these as over
    ``shares`` {size: share}. The sizes are those of Gauss's rule for these shares, the eigenvalues of the matrix of
    Golub and Welsch ("Calculation of Gauss Quadrature Rules", 1969), rounded; weights are right for the rounded ones.
    """
    sizes, weights = np.array(list(shares), float), np.array(list(shares.values()))
    if len(sizes) <= len(_RULE):
        return [(int(size), float(weight)) for size, weight in zip(sizes, weights, strict=True)]
    middle, spread = weights @ sizes, max(np.ptp(sizes), 1.0)
    x = (sizes - middle) / spread
    before, now, norm_before = np.zeros_like(x), np.ones_like(x), 1.0
    diagonal, beside = [], []
    for degree in range(len(_RULE)):  # Stieltjes: polynomials that are orthogonal for these weights
        norm = weights @ now**2
        step = weights @ (x * now**2) / norm
        if degree:
            beside.append(math.sqrt(norm / norm_before))
        diagonal.append(step)
        turn = norm / norm_before if degree else 0.0
        before, now, norm_before = now, (x - step) * now - turn * before, norm
    places, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    rule = Counter()
    for place, weight in zip(places, vectors[0] ** 2, strict=True):
        rule[round(middle + spread * place)] += float(weight)
    at = (np.array(list(rule), float) - middle) / spread
    powers = np.arange(len(rule))[:, None]
    right = np.linalg.solve(at**powers, (x**powers) @ weights)
    return [
        (size, float(weight)) for size, weight in zip(rule, right if min(right) > 0 else rule.values(), strict=True)
    ]


def corners(tried, domains):
    """The least and the greatest sizes, [{name: sizes}], at which outputs are compared too; without domains nothing."""
    if not any(bounds for domain in domains.values() for bounds in domain):
        return []
    return [_at(-1.0, tried, domains), _at(1.0, tried, domains)]


def _at(place, tried, domains):
    """Sizes with those of all domains at a place between -1 and 1."""
    return {
        name: [
            size if bounds is None else round((bounds[0] + bounds[1]) / 2 + place * (bounds[1] - bounds[0]) / 2)
            for size, bounds in zip(sizes, domains[name], strict=True)
        ]
        for name, sizes in tried.items()
    }


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


def _tried_in(domain, axis, rank, shares):
    """The size at which what is open is tried: the mean of all there may be."""
    if shares:
        return round(sum(size * share for size, share in shares.items()))
    return _tried(axis, rank) if domain is None else (domain[0] + domain[1]) // 2


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
    named = {
        name: [
            {"name": called, **({} if bounds is None else {"least": bounds[0], "most": bounds[1]})}
            for called, bounds in zip(names, sizes.domains[name], strict=True)
        ]
        for name, names in sizes.names.items()
    }
    change = tvm.get_global_func("collage.transform.OpenDimensions")(json.dumps(named))
    return tvm.relay.transform.InferType()(change(module))


def dims_of(kind):
    """The dimensions of a tensor type; None for one that is open (TVM has expressions of open ones, too)."""
    return [int(dim) if isinstance(dim, (int, tvm.tir.IntImm)) else None for dim in kind.shape]


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


def outside(name, dims, given, domain):
    """Why an input may not be of a shape that fits: an open dimension is at least 1, and within its domain."""
    for axis, (dim, size) in enumerate(zip(dims, given, strict=True)):
        least, most = (domain[axis] if domain else None) or (1, None)
        if dim is None and (size < least or (most is not None and size > most)):
            allowed = "at least 1" if most is None else f"from {least} to {most}"
            return f"the input {name} has the size {size} in dimension {axis}; the model was compiled for {allowed}"
    return ""


def disagreeing(inputs, shapes):
    """Which dimensions of one name have two sizes, of inputs as a signature has them; "" for none."""
    seen = {}
    for one in inputs:
        for axis, called in enumerate(one.get("names") or ()):
            if not called:
                continue
            size = shapes[one["name"]][axis]
            where = f"dimension {axis} of {one['name']}"
            other, before = seen.setdefault(called, (where, size))
            if before != size:
                return f"{called} is {before} in {other}, and {size} in {where}: it is one size for the model"
    return ""


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
