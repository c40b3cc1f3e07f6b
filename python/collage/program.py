# SPDX-License-Identifier: Apache-2.0
"""A region as the emitter of a backend sees it: a flat list of operators on tensors.

In: a region function of TVM's. Out: a Program. Go reads it (byoc/region): composite functions are inlined,
tuples and projections are gone, operators stand in an order in which they can run.
"""

import json
import math

import tvm


class Tensor:
    """One tensor of a region. As text it is its name, which is also what C source calls it ("v3")."""

    def __init__(self, program, number, shape, dtype, constant):
        self._program = program
        self.number = number
        self.shape = tuple(shape)
        self.dtype = dtype
        # Whether its elements are known when the region is compiled.
        self.is_constant = constant

    @property
    def name(self):
        """The pointer's name in C source."""
        return f"v{self.number}"

    @property
    def size(self):
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def value(self):
        """A constant's elements as a numpy array (as they were packed); None for any other tensor."""
        return self._program.constant(self)

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Operator:
    """One call of a primitive operator: ``name`` ("nn.dense"), ``attrs`` ({name: value}), ``arguments`` and
    ``results`` (Tensors), and ``composite``, the index of the pattern's match that it belongs to, or -1.
    """

    def __init__(self, name, attrs, arguments, results, composite):
        self.name, self.attrs = name, attrs
        self.arguments, self.results = arguments, results
        self.composite = composite

    def __repr__(self):
        return f"{self.results} = {self.name}{self.arguments}"


class Part:
    """One match of a pattern, or an operator that stands by itself: what one kernel computes.

    ``name`` is the pattern's as it was registered, or the operator's; ``operators`` are those inside;
    ``arguments`` are the Tensors that they read from outside, in the order of first use; ``results`` those
    that are used outside.
    """

    def __init__(self, name, operators, arguments, results):
        self.name, self.operators = name, operators
        self.arguments, self.results = arguments, results

    def __repr__(self):
        return f"{self.results} = {self.name}{self.arguments}"


class Program:
    """A region: ``symbol`` (what TVM calls it), ``inputs``, ``outputs``, ``operators`` and ``parts``."""

    def __init__(self, function, compiler="", constants=()):
        self._function = function
        self._values = {}
        read = json.loads(tvm.get_global_func("collage.region.describe")(function))
        tensors = [
            Tensor(self, number, value["shape"], value["dtype"], value["constant"])
            for number, value in enumerate(read["values"])
        ]

        def pick(numbers):
            return [tensors[number] for number in numbers or []]

        self.symbol = read["symbol"]
        self.inputs, self.outputs = pick(read["inputs"]), pick(read["outputs"])
        # While candidates are priced, large constants are parameters by these names.
        for tensor, name in zip(self.inputs, read["input_names"] or [], strict=True):
            tensor.is_constant = name in constants
        self.operators = [
            Operator(o["name"], o["attrs"], pick(o["arguments"]), pick(o["results"]), o["composite"])
            for o in read["operators"]
        ]
        self.parts = self._parts([name.removeprefix(f"{compiler}.") for name in read["composites"] or []])

    def _parts(self, names):
        groups = {}
        for place, operator in enumerate(self.operators):
            groups.setdefault(operator.composite if operator.composite >= 0 else ("bare", place), []).append(operator)
        parts = []
        for which, group in groups.items():
            made = [tensor for operator in group for tensor in operator.results]
            read = dict.fromkeys(t for operator in group for t in operator.arguments if t not in made)
            others = [o for o in self.operators if o not in group]
            used = {t for o in others for t in o.arguments} | set(self.outputs)
            name = names[which] if isinstance(which, int) else group[0].name
            parts.append(Part(name, group, list(read), [t for t in made if t in used]))
        return parts

    def constant(self, tensor):
        """The elements of a constant; None for a tensor that is none, and while candidates are priced."""
        if not tensor.is_constant or tensor in self.inputs:
            return None
        if tensor.number not in self._values:
            array = tvm.get_global_func("collage.region.constant")(self._function, tensor.number)
            self._values[tensor.number] = array.numpy()
        return self._values[tensor.number]

    def pack(self, function):
        """Replace constant arguments by ``function(operator name, argument, array)``; returns {number: array}
        of those that changed.
        """
        packed = {}
        for operator in self.operators:
            for place, tensor in enumerate(operator.arguments):
                if not tensor.is_constant:
                    continue
                before = self.constant(tensor) if tensor.number not in packed else packed[tensor.number][0]
                after = function(operator.name, place, before)
                if tensor.number in packed:
                    if not _same(packed[tensor.number][1], after):
                        raise ValueError(f"{tensor!r} is read by two operators that pack it differently")
                    continue
                packed[tensor.number] = (before, after)
        self._values.update({number: after for number, (_, after) in packed.items()})
        return {number: after for number, (before, after) in packed.items() if after is not before}


def _same(one, other):
    return one.shape == other.shape and one.dtype == other.dtype and (one == other).all()
