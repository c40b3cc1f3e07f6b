# SPDX-License-Identifier: Apache-2.0
"""Networks that TVM's graph executor does not take: with branches and loops, or with shapes that are known only when
they run. TVM's virtual machine runs them.

In: a module, with regions or without. Out: an Executable, which export.write writes. In: what was written. Out: a
Model, which is used like TVM's GraphModule. The library says in an ELF note which inputs and results it has, as JSON:

    {"inputs": [{"name", "dtype", "shape": sizes, -1 for what is open, "tried": sizes,
                 "names": what the model calls its dimensions, "domain": [[least, most] or null, ...],
                 "regions": true where nothing but regions reads it}, ...],
     "outputs": [{"dtype", "shape", "computed": whether it is computed of inputs' elements}, ...]}

"tried" are the sizes at which it was measured and checked. Dimensions of one name are of one size; "names" and "domain"
may be missing.
"""

import json
import math

import numpy as np
import tvm
from tvm import relay

from . import errors, needs, open_dimensions

# The module that TVM calls so is a library's first.
TYPE = "VMExecutable"
# The library's name in a .tar, as tvmc has it.
MEMBER = "lib.so"
SECTION = ".note.collage.signature"


class Executable:
    """What the virtual machine runs, built; ``signature`` is the note's. ``tried`` is signature's."""

    def __init__(self, executable, module, build_for, tried):
        self.target = build_for
        self.signature = signature(module, tried or {})
        self.module = executable.mod
        self._params = {str(number): value for number, value in enumerate(_constants(module))}

    def get_lib(self):
        """The kernels, into which other modules are imported: the virtual machine knows one module beside itself."""
        imported = self.module.imported_modules
        return imported[0] if imported else self.module

    def get_params(self):
        """The weights, as a graph executor factory gives them."""
        return self._params

    def export_library(self, path, **options):
        """As a graph executor factory's."""
        self.module.export_library(path, **options)

    def note(self):
        """Assembler source of the note with the signature."""
        return needs.note(SECTION, json.dumps(self.signature))


def _constants(module):
    """The constants of all functions, each once."""
    found = {}

    def visit(expr):
        if isinstance(expr, relay.Constant):
            found[expr.handle.value] = expr.data

    for function in module.functions.values():
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, visit)
    return list(found.values())


def signature(module, tried):
    """What a typed module's main takes and gives. ``tried`` {name: {"shape": sizes, "names", "domain", "points"}}, of
    which any may be missing, is what is known of inputs' open dimensions. A result that is no tensor raises ValueError.
    """
    main = module["main"]
    inputs, others = [], _read_by_others(module, main)
    for var in main.params:
        kind, name = var.checked_type, var.name_hint
        told = tried.get(name) or {}
        sizes = list(told.get("shape") or open_dimensions.tried_shape(kind))
        known = {key: told[key] for key in ("names", "domain", "points") if any(told.get(key) or ())}
        if var not in others:
            known["regions"] = True
        inputs.append({"name": name, **_tensor(kind), "tried": sizes, **known})
    kind = main.ret_type
    fields = kind.fields if isinstance(kind, tvm.ir.TupleType) else [kind]
    for number, field in enumerate(fields):
        if not isinstance(field, relay.TensorType):
            raise errors.InputError(f"its result {number} is no tensor but {field}")
    outputs = [_tensor(field) for field in fields]
    results = main.body.fields if isinstance(main.body, relay.Tuple) else [main.body]
    if len(results) == len(outputs):
        computed = _computed(module, main)
        for output, result in zip(outputs, results, strict=True):
            output["computed"] = result in computed
    return {"inputs": inputs, "outputs": outputs}


def _read_by_others(module, main):
    """The parameters of a function that anything but regions reads, or gives back."""
    found = set()

    def visit(expr):
        parts = ()
        if isinstance(expr, relay.Call):
            called = module[expr.op] if isinstance(expr.op, tvm.ir.GlobalVar) else expr.op
            is_region = isinstance(called, relay.Function) and called.attrs is not None and "Compiler" in called.attrs
            parts = () if is_region else expr.args
        elif isinstance(expr, relay.Tuple):
            parts = expr.fields
        elif isinstance(expr, relay.TupleGetItem):
            parts = (expr.tuple_value,)
        elif isinstance(expr, relay.Function):
            parts = (expr.body,)
        elif isinstance(expr, relay.Let):
            parts = (expr.value, expr.body)
        elif isinstance(expr, relay.If):
            parts = (expr.cond, expr.true_branch, expr.false_branch)
        elif isinstance(expr, relay.Match):
            parts = (expr.data, *(clause.rhs for clause in expr.clauses))
        elif isinstance(expr, (relay.RefCreate, relay.RefWrite)):
            parts = (expr.value,)
        found.update(part for part in parts if isinstance(part, relay.Var))

    relay.analysis.post_order_visit(main, visit)
    return found


# Operators that read how large an argument is, and not its elements.
_OF_SIZES = {"shape_of", "ndarray_size", "zeros_like", "ones_like", "full_like"}


def _computed(module, main):
    """The expressions of a function that are computed of what its parameters hold: no optimisation makes constants of
    them. What is behind a branch, or made by another function than an operator or a region, is none of them.
    """
    found = set(main.params)

    def visit(expr):
        if isinstance(expr, relay.Call):
            op = module[expr.op] if isinstance(expr.op, tvm.ir.GlobalVar) else expr.op
            if isinstance(op, tvm.ir.Op):
                computes = op.name not in _OF_SIZES
            else:
                computes = isinstance(op, relay.Function) and any(
                    op.attrs is not None and name in op.attrs for name in ("Compiler", "Composite", "Primitive")
                )
            parts = expr.args if computes else ()
        elif isinstance(expr, relay.Tuple):
            parts = expr.fields
        elif isinstance(expr, relay.TupleGetItem):
            parts = (expr.tuple_value,)
        else:
            return
        if any(part in found for part in parts):
            found.add(expr)

    relay.analysis.post_order_visit(main, visit)
    return found


def _tensor(kind):
    return {"dtype": kind.dtype, "shape": [-1 if size is None else size for size in open_dimensions.dims_of(kind)]}


# Smaller outputs are copied: that takes some microseconds, and who keeps them keeps no memory of the machine's.
_COPIED = 64 * 1024


def _numpys(name):
    """Numpy's type of that name; None where it lacks it, or has it of another package's (bfloat16), as raw bytes."""
    try:
        kind = np.dtype(name)
    except TypeError:
        return None
    return None if kind.kind == "V" else kind


class _Shared:
    """The elements of an NDArray of a shape for numpy, which holds on to it as long as the array is there."""

    def __init__(self, array, shape, kind):
        self._array, tensor = array, array.handle.contents
        self.__array_interface__ = {
            "shape": shape, "typestr": kind.str, "version": 3, "data": (tensor.data + tensor.byte_offset, False),
        }  # fmt: skip


# Smaller inputs are copied: that takes less time than to say where they lie.
_LENT = 64 * 1024
# How TVM's kernels want memory to lie; kAllocAlignment of theirs.
_ALIGNED = 64

# How many shapes of an input are remembered: as many as the runtime of regions has plans for (dnnl_kept_plans.h).
_SHAPES = 128


class _Input:
    """An input: what it takes, and the NDArray that it has. Its memory stays as long as there is room in it: pages that
    are new to the process cost as much as what is computed of a small input. So do NDArrays of shapes that come again.
    """

    def __init__(self, told):
        self._name, self._dtype, self._domain = told["name"], told["dtype"], told.get("domain")
        self._dims = [None if size < 0 else size for size in told["shape"]]
        self._kind = _numpys(self._dtype)
        self._room = self.array = self.shape = None
        self._views = {}  # by shape: the NDArray, and numpy's view of it
        self._any_place = told.get("regions", False)
        # None where no region needs the runtime, which then may not be there.
        self._new_lent = tvm.get_global_func("collage.runtime.Lent", allow_missing=True)
        self._lent, self._lender = {}, None  # by shape: the NDArray of what is lent; whose array that is now

    def set(self, array):
        """Take its elements, and say whether they are in another NDArray now. What does not fit raises ValueError."""
        self._lender = None
        if (known := self._views.get(array.shape)) and array.dtype == self._kind:
            before, (self.array, elements) = self.array, known
            self.shape = array.shape
            elements[...] = array
            return self.array is not before
        self._look_at(array)
        self.shape = array.shape
        if self._kind is None or not array.size:
            self.array = tvm.nd.array(array)
            return True
        if self._room is None or self._room.shape[0] < array.size:
            self._room = tvm.nd.empty((array.size,), self._dtype)
            self._views.clear()
        elif len(self._views) == _SHAPES:
            self._views.clear()
        self.array = self._room._create_view(array.shape)
        elements = np.asarray(_Shared(self.array, array.shape, self._kind))
        elements[...] = array
        self._views[array.shape] = self.array, elements
        return True

    def borrow(self, array):
        """As ``set``, but elements that can be read where they are are not copied: they are read there until others are
        set.
        """
        may_be = self._new_lent is not None and self._kind is not None
        if not may_be or array.nbytes < _LENT or not array.flags.c_contiguous:
            return self.set(array)
        address = array.__array_interface__["data"][0]
        if address % _ALIGNED and not self._any_place:
            return self.set(array)
        before, known = self.array, self._lent.get(array.shape)
        if known is None or array.dtype != self._kind:
            self._look_at(array)
            if len(self._lent) == _SHAPES:
                self._lent.clear()
            known = self._lent[array.shape] = self._new_lent(self._dtype, tvm.runtime.ShapeTuple(array.shape))
        known.handle.contents.data = address
        self.array, self.shape, self._lender = known, array.shape, array
        return known is not before

    def _look_at(self, array):
        if str(array.dtype) != self._dtype or not open_dimensions.fits(self._dims, array.shape):
            raise errors.InputError(
                f"the input {self._name} is {self._dtype}{open_dimensions.show(self._dims)}; "
                f"{array.dtype}{open_dimensions.show(array.shape)} does not fit"
            )
        if outside := open_dimensions.outside(self._name, self._dims, array.shape, self._domain):
            raise errors.InputError(outside)


class Model:
    """A model on TVM's virtual machine, to be used like TVM's GraphModule: set_input, run, get_output."""

    def __init__(self, module, signature):
        self.signature = signature
        # What TVM keeps is for tensors of one size: where sizes are open there would be more with each. What it gives
        # back then stays with the process, or each large tensor's pages would come one by one again.
        is_open = any(-1 in one["shape"] for one in signature["inputs"])
        if is_open and (keep := tvm.get_global_func("collage.runtime.KeepFreedMemory", allow_missing=True)):
            keep()
        self._machine = tvm.runtime.vm.VirtualMachine(module, tvm.cpu(), "naive" if is_open else "pooled")
        self._inputs = [_Input(told) for told in self.signature["inputs"]]
        self._places = {told["name"]: place for place, told in enumerate(self.signature["inputs"])}
        self._outputs = [(told.get("computed"), _numpys(told["dtype"])) for told in self.signature["outputs"]]
        self._set = False  # the machine has the inputs' NDArrays
        self._agreed = set()  # shapes of all inputs that go together
        self.module = self

    @staticmethod
    def loaded(module, path):
        """What export.write wrote, a library at ``path``, which TVM has loaded as ``module``."""
        text = str(tvm.get_global_func("collage.model_signature")(str(path)))
        if not text:
            raise errors.InputError(f"{path} is for TVM's virtual machine, and does not say which inputs it takes")
        return Model(module, json.loads(text))

    def _place(self, key):
        if isinstance(key, int):
            return key
        if key not in self._places:
            raise errors.InputError(
                f"the model has no input {key!r}; its inputs are: {', '.join(self._places) or 'none'}"
            )
        return self._places[key]

    def set_input(self, key, value):
        """Set an input, by its name or place; a type or shape that does not fit raises ValueError."""
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        if self._inputs[self._place(key)].set(array):
            self._set = False

    def lend_input(self, key, array):
        """As set_input, of a numpy array whose elements may be read where they are, in this run and all others until
        the input is set again. Raises ValueError.
        """
        if self._inputs[self._place(key)].borrow(array):
            self._set = False

    def _ready(self):
        if self._set:
            return
        told, arrays = self.signature["inputs"], [one.array for one in self._inputs]
        missing = [one["name"] for one, array in zip(told, arrays, strict=True) if array is None]
        if missing:
            raise errors.InputError(f"the input {missing[0]} is not set")
        shapes = tuple(one.shape for one in self._inputs)
        if shapes not in self._agreed:
            named = {one["name"]: shape for one, shape in zip(told, shapes, strict=True)}
            if disagreeing := open_dimensions.disagreeing(told, named):
                raise errors.InputError(disagreeing)
            if len(self._agreed) == _SHAPES:
                self._agreed.clear()
            self._agreed.add(shapes)
        self._machine.set_input("main", *arrays)
        self._set = True

    def run(self, **inputs):
        """Run the network, on the inputs that were set and on those that are given."""
        for name, value in inputs.items():
            self.set_input(name, value)
        self._ready()
        self._machine.invoke_stateful("main")

    def get_num_inputs(self):
        return len(self._inputs)

    def get_num_outputs(self):
        return len(self.signature["outputs"])

    def get_output(self, index):
        """What the last run computed, an NDArray of the shape that came out. One that is an input by another name has
        its elements until that is set again.
        """
        return self._machine._get_output(index)

    def outputs(self):
        """What the last run computed, as numpy arrays that are the caller's. Large ones are not copied: the machine
        makes them anew in each run.
        """
        taken = {one.array.handle.contents.data for one in self._inputs}
        outputs = []
        for index, (computed, kind) in enumerate(self._outputs):
            array = self.get_output(index)
            tensor = array.handle.contents
            shape = tuple(tensor.shape[: tensor.ndim])
            size = math.prod(shape)
            if kind is None or not size:
                outputs.append(array.numpy())
                continue
            # One that is an input, or another output, by another name is copied, as is what may be a constant.
            shared = computed and tensor.data not in taken and size * kind.itemsize >= _COPIED
            taken.add(tensor.data)
            elements = np.asarray(_Shared(array, shape, kind))
            outputs.append(elements if shared else elements.copy())
        return outputs

    def get_input_info(self):
        """({name: sizes}, {name: dtype}) as GraphModule's; open dimensions as they are tried."""
        told = self.signature["inputs"]
        return {one["name"]: one["tried"] for one in told}, {one["name"]: one["dtype"] for one in told}

    def points(self):
        """open_dimensions.points of the model."""
        told = self.signature["inputs"]
        first = next((one["points"] for one in told if one.get("points")), [])
        return [
            {
                "sizes": {
                    one["name"]: one["points"][at]["sizes"] if one.get("points") else one["tried"] for one in told
                },
                "weight": point["weight"],
            }
            for at, point in enumerate(first)
        ]

    def corners(self):
        """open_dimensions.corners of the model."""
        told = self.signature["inputs"]
        tried = {one["name"]: one["tried"] for one in told}
        return open_dimensions.corners(
            tried, {one["name"]: one.get("domain") or [None] * len(one["tried"]) for one in told}
        )

    def time_evaluator(self, _name, device, number=1, repeat=1, min_repeat_ms=0):
        """What times "run", as that of a module of TVM's."""
        self._ready()
        timer = self._machine.module.time_evaluator(
            "invoke", device, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms
        )
        return lambda: timer("main")
