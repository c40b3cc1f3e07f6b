# SPDX-License-Identifier: Apache-2.0
"""Networks that TVM's graph executor does not take: with branches and loops, or with shapes that are known only when
they run. TVM's virtual machine runs them.

In: a module, with regions or without. Out: an Executable, which export.write writes. In: what was written. Out: a
Model, which is used like TVM's GraphModule. The library says in an ELF note which inputs and results it has, as JSON:

    {"inputs": [{"name", "dtype", "shape": sizes, -1 for what is open, "tried": sizes,
                 "names": what the model calls its dimensions, "domain": [[least, most] or null, ...]}, ...],
     "outputs": [{"dtype", "shape", "computed": whether it is computed of inputs' elements}, ...]}

"tried" are the sizes at which it was measured and checked. Dimensions of one name are of one size; "names" and "domain"
may be missing.
"""

import json

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
    inputs = []
    for var in main.params:
        kind, name = var.checked_type, var.name_hint
        told = tried.get(name) or {}
        sizes = list(told.get("shape") or open_dimensions.tried_shape(kind))
        known = {key: told[key] for key in ("names", "domain", "points") if any(told.get(key) or ())}
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


def _bytes(array):
    """How large it is; 0 where numpy lacks the type, so that it is converted."""
    try:
        return int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize
    except TypeError:
        return 0


class _Shared:
    """The elements of an NDArray for numpy, which holds on to it as long as the array is there."""

    def __init__(self, array):
        self._array, tensor = array, array.handle.contents
        self.__array_interface__ = {
            "shape": tuple(array.shape), "typestr": np.dtype(array.dtype).str, "version": 3,
            "data": (tensor.data + tensor.byte_offset, False),
        }  # fmt: skip


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
        self._values = [None] * len(self.signature["inputs"])
        self._set = False
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
        names = [one["name"] for one in self.signature["inputs"]]
        if key not in names:
            raise errors.InputError(f"the model has no input {key!r}; its inputs are: {', '.join(names) or 'none'}")
        return names.index(key)

    def set_input(self, key, value):
        """Set an input, by its name or place; a type or shape that does not fit raises ValueError."""
        place = self._place(key)
        told = self.signature["inputs"][place]
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        dims = [None if size < 0 else size for size in told["shape"]]
        if str(array.dtype) != told["dtype"] or not open_dimensions.fits(dims, array.shape):
            raise errors.InputError(
                f"the input {told['name']} is {told['dtype']}{open_dimensions.show(dims)}; "
                f"{array.dtype}{open_dimensions.show(array.shape)} does not fit"
            )
        outside = open_dimensions.outside(told["name"], dims, array.shape, told.get("domain"))
        if outside:
            raise errors.InputError(outside)
        self._values[place] = tvm.nd.array(array)
        self._set = False

    def _ready(self):
        if not self._set:
            missing = [
                one["name"] for one, value in zip(self.signature["inputs"], self._values, strict=True) if value is None
            ]
            if missing:
                raise errors.InputError(f"the input {missing[0]} is not set")
            shapes = {
                one["name"]: value.shape for one, value in zip(self.signature["inputs"], self._values, strict=True)
            }
            if disagreeing := open_dimensions.disagreeing(self.signature["inputs"], shapes):
                raise errors.InputError(disagreeing)
            self._machine.set_input("main", *self._values)
            self._set = True

    def run(self, **inputs):
        """Run the network, on the inputs that were set and on those that are given."""
        for name, value in inputs.items():
            self.set_input(name, value)
        self._ready()
        self._machine.invoke_stateful("main")

    def get_num_inputs(self):
        return len(self._values)

    def get_num_outputs(self):
        return len(self.signature["outputs"])

    def get_output(self, index):
        """What the last run computed, an NDArray of the shape that came out."""
        return self._machine._get_output(index)

    def outputs(self):
        """What the last run computed, as numpy arrays that are the caller's. Large ones are not copied: the machine
        makes them anew in each run.
        """
        arrays = [self.get_output(index) for index in range(self.get_num_outputs())]
        taken = {array.handle.contents.data for array in self._values}
        outputs = []
        for array, told in zip(arrays, self.signature["outputs"], strict=True):
            tensor = array.handle.contents
            # One that is an input, or another output, by another name is copied, as is what may be a constant.
            shared = told.get("computed") and tensor.data not in taken and _bytes(array) >= _COPIED
            taken.add(tensor.data)
            outputs.append(np.asarray(_Shared(array)) if shared else array.numpy())
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
