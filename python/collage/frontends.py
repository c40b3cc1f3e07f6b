# SPDX-License-Identifier: Apache-2.0
"""Read a model, whatever it comes as, into a typed Relay module with its parameters bound.

In: ``workload:NAME``, an ONNX file, a Relay program as text or JSON (with a parameter file), a TorchScript
file, what torch.export saved, or a TensorFlow Lite file. Out: an IRModule whose ``main`` takes only the inputs, of
fixed shape but for the dimensions that are to stay open. What cannot be read raises FileNotFoundError, ValueError or
ImportError with a text that names the file, the reason and the remedy.
"""

import contextlib
import difflib
import itertools
import math
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from . import (
    apart,
    errors,
    folding,
    log,
    onnx_inputs,
    open_dimensions,
    parameters,
    pt2,
    seeded,
    tflite_reader,
    witness,
    workloads,
)

FORMATS = ("onnx", "pt2", "relay", "tflite", "torchscript")
_SUFFIXES = {
    ".onnx": "onnx",
    ".json": "relay",
    ".relay": "relay",
    ".txt": "relay",
    ".tflite": "tflite",
    ".pt": "torchscript",
    ".pt2": "pt2",
    ".pth": "torchscript",
    ".ts": "torchscript",
}
WORKLOAD = "workload:"
# What is read in another form alone: by its suffix what it is, and how it is written as something that can be read.
_KERAS = "Keras", "write it as TensorFlow Lite (tf.lite.TFLiteConverter.from_keras_model) or as ONNX (Model.export)"
_PADDLE = "PaddlePaddle", "write it as ONNX (paddle2onnx)"
_TENSORFLOW = "TensorFlow", "write it as TensorFlow Lite (tf.lite.TFLiteConverter) or as ONNX (tf2onnx)"
_CORE_ML = "Core ML", "write the network that it was made of as ONNX"
_CAFFE = "Caffe", "write it as ONNX"
_IN_ANOTHER_FORM = {
    ".keras": _KERAS,
    ".h5": _KERAS,
    ".hdf5": _KERAS,
    ".pb": _TENSORFLOW,
    ".pdmodel": _PADDLE,
    ".mlmodel": _CORE_ML,
    ".caffemodel": _CAFFE,
    ".prototxt": _CAFFE,
}


class Model:
    """A model that was read: ``module``, ``name``, ``format``, ``inputs`` ({name: (shape, dtype)}) and ``open`` ({name:
    axes} of dimensions that are known only when it runs; ``inputs`` has the sizes at which these are tried). ``names``
    and ``domains`` are open_dimensions.Sizes', of inputs that have any, and ``points`` what points_of gives of these.
    """

    def __init__(self, module, name, form, path=None, fixed=None, sizes=None):
        self.module = module
        self.name = name
        self.format = form
        self._path = path
        self._fixed = fixed or {}
        self.inputs, self.open = {}, {}
        tried = sizes.tried if sizes else {}
        self.names = {key: names for key, names in (sizes.names if sizes else {}).items() if any(names)}
        self.domains = {key: domain for key, domain in (sizes.domains if sizes else {}).items() if any(domain)}
        self.points = {key: open_dimensions.points_of(sizes.points, key) for key in self.domains}
        for var in module["main"].params:
            kind, key = var.checked_type, var.name_hint
            self.inputs[key] = (tuple(tried.get(key) or open_dimensions.tried_shape(kind)), kind.dtype)
            if axes := [axis for axis, size in enumerate(open_dimensions.dims_of(kind)) if size is None]:
                self.open[key] = axes

    def info(self):
        """What there is to tell about the model, as plain data."""
        counts = workloads.count_operators(self.module)
        return {
            "name": self.name,
            "format": self.format,
            "inputs": {
                name: {
                    "shape": list(shape),
                    "dtype": dtype,
                    **{
                        key: told[name]
                        for key, told in (
                            ("open", self.open),
                            ("names", self.names),
                            ("domain", self.domains),
                            ("points", self.points),
                        )
                        if name in told
                    },
                }
                for name, (shape, dtype) in self.inputs.items()
            },
            "operators": sum(counts.values()),
            "operator_counts": dict(sorted(counts.items())),
        }

    def question(self, seed=0, ones=()):
        """What to ask a witness of the model (collage.witness), as plain data; None where TVM alone reads such.

        ``ones`` are inputs that are 1 everywhere; the others are drawn.
        """
        if self.format not in ("onnx", "pt2", "tflite", "torchscript"):
            return None
        return {
            "model": str(self._path.resolve()),
            "format": self.format,
            "inputs": [
                {"name": key, "shape": list(shape), "dtype": kind} for key, (shape, kind) in self.inputs.items()
            ],
            "values": {
                name: {"dtype": str(value.dtype), "shape": list(value.shape), "hex": value.tobytes().hex()}
                for name, value in self._fixed.items()
            },
            "ones": [name for name in ones if name in self.inputs],
            "seed": seed,
        }


def load(model, params=None, input_shapes=None, form=None, input_values=None, dynamic=None):
    """Read ``model`` (a path, or workload:NAME) and return a Model.

    ``params`` is a parameter file (.params or .npz) for a Relay program, ``input_shapes`` {name: shape}
    fixes what the model leaves open, ``form`` is one of FORMATS where the file name does not tell.
    ``input_values`` {name: array} makes constants of inputs of an ONNX model: of those that say of which shape
    something is (the sizes of a Resize), which must be known when it is read. ``dynamic`` {name: axes} are dimensions
    of what the model leaves open that stay open, or {name: {axis: (least, most), a collage.Dim or None}} with the sizes
    that they may have; ``input_shapes`` then says at which sizes they are tried.
    Raises errors.ModelError, MissingFileError and others of collage.errors, which have the model's file.
    """
    with errors.about(file=None if str(model).startswith(WORKLOAD) else model):
        return _load(model, params, input_shapes or {}, form, input_values, dynamic or {})


def _load(model, params, input_shapes, form, input_values, dynamic):
    input_shapes = {name: tuple(shape) for name, shape in input_shapes.items()}
    if str(model).startswith(WORKLOAD):
        name = str(model)[len(WORKLOAD) :]
        module, values = workloads.build(name)
        if params:
            raise errors.ModelError(f"{model} brings its own parameters; a parameter file cannot be given with it")
        if input_values:
            raise errors.ModelError(f"{model} is no ONNX model; values of inputs can be given for ONNX models only")
        if dynamic:
            raise errors.ModelError(f"{model} has no dimension that could stay open; its shapes are fixed")
        _require_sizes(input_shapes, model)
        module = _with_shapes(module, input_shapes, str(model))
        return Model(bind(module, values, name), name, "workload")

    path = Path(model)
    if not path.exists():
        raise errors.MissingFileError(f"there is no model file {path}{_workload_hint(path.name)}")
    if not form and path.suffix.lower() in _IN_ANOTHER_FORM:
        whose, advice = _IN_ANOTHER_FORM[path.suffix.lower()]
        raise errors.ModelError(f"{path} is a model of {whose}'s, which is not read as it is: {advice}, and give that")
    if path.is_dir():
        raise errors.ModelError(f"{path} is a directory, not a model file")
    if not os.access(path, os.R_OK):
        raise errors.of(PermissionError)(f"no permission to read {path}")
    form = form or _guess_format(path)
    if form not in FORMATS:
        raise errors.ModelError(f"unknown model format {form!r}; known are: {', '.join(FORMATS)}")
    if params and form != "relay":
        raise errors.ModelError(
            f"{path} is {form} and brings its own parameters; a parameter file goes with Relay programs"
        )

    if input_values and form not in _BY_ONNX:
        raise errors.ModelError(f"{path} is {form}; values of inputs can be given for ONNX models only")
    if dynamic and form in ("tflite", "torchscript"):
        raise errors.ModelError(f"{path} is {form}; dimensions can stay open in ONNX models and Relay programs only")
    if form not in _BY_ONNX:  # 0 is how many tensors a sequence of ONNX's may have
        _require_sizes(input_shapes, path)
    fixed, sizes = {}, None
    if form in _BY_ONNX:
        module, fixed, sizes = _BY_ONNX[form](path, input_shapes, input_values or {}, dynamic)
    elif form == "tflite":
        module = _tflite(path, input_shapes)
    elif form == "torchscript":
        module = _torchscript(path, input_shapes)
    else:
        module, sizes = _relay(path, input_shapes, params, dynamic)
    return Model(module, path.stem, form, path, fixed, sizes)


def _require_sizes(shapes, what, allowed=()):
    """Raise ValueError where a shape that is given for an input has a size of 0 that is none of the (name, axis)
    ``allowed``.
    """
    for name, shape in shapes.items():
        if any(size == 0 and (name, axis) not in allowed for axis, size in enumerate(shape)):
            shown = open_dimensions.show(shape)
            raise errors.ModelError(f"input {name} of {what} cannot be {shown}: a size is a whole number from 1 up")


def _workload_hint(name):
    near = difflib.get_close_matches(name, workloads.WORKLOADS, n=1, cutoff=0.8)
    return f" (did you mean {WORKLOAD}{near[0]}?)" if near else ""


def _guess_format(path):
    form = _SUFFIXES.get(path.suffix.lower())
    if form:
        return form
    with open(path, "rb") as file:
        start = file.read(512)
    if start.startswith(b"PK\x03\x04"):
        return "torchscript"
    if tflite_reader.is_tflite(start):
        return "tflite"
    if start.lstrip().startswith((b"#[version", b"def @", b"fn (", b"fn(", b"{")):
        return "relay"
    return "onnx"


def typed(module, what):
    """A module with types; ValueError where it has none, for ``what``."""
    try:
        return relay.transform.InferType()(module)
    except tvm.TVMError as error:
        raise errors.ModelError(f"{what} does not type-check: {said_by(error)}") from None


# What a failed check of TVM's says before it says what is wrong.
_CHECK = re.compile(r"^InternalError: Check failed: (\(.*\) is false: )?")


def said_by(error):
    """TVM's errors carry a C++ stack; what they say stands at the end."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return _CHECK.sub("", lines[-1]) if lines else type(error).__name__


# ONNX


# Operators of which what they compute says how large their results are.
_SIZED_BY_DATA = {"Compress", "If", "Loop", "NonMaxSuppression", "NonZero", "Scan", "Unique"}


def _onnx(path, input_shapes, input_values, dynamic=None, called=None):
    """What onnx_module gives, of a file. ``called`` is what errors call it."""
    called = called or path
    return onnx_module(_onnx_proto(path, called), called, input_shapes, input_values, dynamic, path.parent)


def _onnx_proto(path, called):
    """The model in a file, which its large weights in other files are no part of yet."""
    try:
        from .onnx_reader import form, weights
    except ImportError:
        raise errors.MissingPackageError(f"reading {path} needs the onnx package: pip install onnx==1.18.0") from None
    try:
        proto = weights.load(path)
    except FileNotFoundError as error:
        raise errors.ModelError(f"{path} keeps its weights in another file, which is missing: {error}") from None
    except Exception as error:
        raise errors.ModelError(f"{path} is not an ONNX model: {said_by(error)}") from None
    if not proto.HasField("graph") or not proto.graph.node:
        raise errors.ModelError(f"{path} is not an ONNX model: it holds no graph")
    try:
        form.require_opset(proto)
        _widen(proto, called)
        form.require_types(proto.graph)
        form.require_scales(proto.graph)
    except ValueError as error:
        raise errors.ModelError(f"{path} cannot be read: {error}") from None
    return proto


def _widen(proto, path):
    from . import onnx_narrow

    if onnx_narrow.widen(proto):
        log.logger.warning(
            "%s computes in bfloat16, of which TVM has no tensors: it is computed in float32, without the roundings in "
            "between, and inputs and outputs of bfloat16 are float32 (the precision bf16 allows bfloat16 again, where "
            "that is quicker).",
            path,
        )


def onnx_module(proto, path, input_shapes, input_values, dynamic=None, folder=None):
    """The module of an ONNX model (a ModelProto, which is used up), the values of those inputs that became constants,
    and the open_dimensions.Sizes of the others. ``path`` stands in errors; ``folder`` is where weights are that were
    left in their files.
    """
    from .onnx_reader import form, table

    try:
        input_shapes = onnx_inputs.as_tensors(proto.graph, input_shapes, _arrays(input_values))
    except ValueError as error:
        raise errors.ModelError(f"{path} cannot be read: {error}") from None
    _widen(proto, path)
    fixed = _fix_inputs(proto.graph, input_values, path)
    sizes = open_dimensions.settle(_declared(proto.graph), input_shapes, dynamic or {}, path)
    _require_sizes(input_shapes, path, _said_zero(proto.graph))
    shapes = {name: open_dimensions.relay_shape(dims) for name, dims in sizes.shapes.items()}
    by_data = bool(dynamic) or not _SIZED_BY_DATA.isdisjoint(witness.operators(proto))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            proto, weights = form.formed(proto, table.names(form.opset_of(proto)), folder)
            with table.in_place(weights), folding.here("onnx"):
                module, _ = relay.frontend.from_onnx(proto, shape=shapes, freeze_params=True)
    except table.RefusedError as error:
        raise errors.ModelError(f"{path} cannot be read: {error}", **error.fields) from None
    except tvm.error.OpNotImplemented as error:
        lacking = str(error).strip().splitlines()[-1].rsplit(":", 1)[-1].strip()
        raise errors.ModelError(
            f"{path} uses operators that TVM's ONNX importer lacks: {lacking}", operator=lacking
        ) from None
    except Exception as error:
        raise errors.ModelError(
            f"TVM's ONNX importer cannot read {path}: {errors.python_name(error)}: {said_by(error)}"
        ) from None
    module = open_dimensions.settled(typed(module, path), sizes)
    _require_tensors(module, path, by_data)
    return module, fixed, sizes


def _require_tensors(module, path, by_data):
    """Raise ValueError where the network has results that are no tensors, or whose shapes are known only when it runs,
    though neither open dimensions nor data (``by_data``) say of which shape they are.
    """
    kind = module["main"].ret_type
    for number, field in enumerate(kind.fields if isinstance(kind, tvm.ir.TupleType) else [kind]):
        if not isinstance(field, relay.TensorType):
            raise errors.ModelError(f"{path} cannot be read: its result {number} is no tensor but {field}")
        if None in open_dimensions.dims_of(field) and not by_data:
            raise errors.ModelError(
                f"{path} cannot be read: the shape of its result {number} is known only when it runs. Where that is so "
                "because of an input that says of which shape something is, give its value with input_values (on the "
                "command line --input-value NAME:2,2)"
            )


def _arrays(values):
    return {name: np.asarray(value) for name, value in values.items()}


def _fix_inputs(graph, values, path):
    """Make weights of the inputs whose values are given; a list of numbers takes the shape that is declared. Gives the
    arrays by name.
    """
    from onnx import helper, numpy_helper

    weights = {tensor.name for tensor in graph.initializer}
    given = {value.name: value for value in graph.input if value.name not in weights}
    open_dimensions.refuse_unknown(values, list(given), path)
    fixed = {}
    for name, array in values.items():
        kind = given[name].type.tensor_type
        dims = [dim.dim_value or None for dim in kind.shape.dim]
        typed = np.asarray(array).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if None not in dims and typed.size == math.prod(dims):
            typed = typed.reshape(dims)
        open_dimensions.require_fit(name, dims, typed.shape, path, "a value of ")
        graph.initializer.append(numpy_helper.from_array(typed, name))
        graph.input.remove(given[name])
        fixed[name] = typed
    return fixed


def _declared(graph):
    """{name: dimensions} of a model's inputs that are no weights, names or None for those that it leaves open."""
    weights = {tensor.name for tensor in graph.initializer}
    return {
        value.name: [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else (dim.dim_param or None)
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in graph.input
        if value.name not in weights
    }


def _said_zero(graph):
    """The (name, axis) of a model's inputs of which the model itself says that the size is 0."""
    return {
        (value.name, axis)
        for value in graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.HasField("dim_value") and dim.dim_value == 0
    }


# Relay


def _relay(path, input_shapes, params, dynamic):
    """The module with its parameters, and the Sizes of its inputs."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise errors.ModelError(f"{path} is not a Relay program: it is neither text nor JSON") from None
    if text.lstrip().startswith("{"):
        try:
            node = tvm.ir.load_json(text)
        except Exception as error:
            raise errors.ModelError(f"{path} is not a Relay program in JSON: {said_by(error)}") from None
    else:
        try:
            node = tvm.relay.fromtext(text) if text.lstrip().startswith("#[version") else tvm.relay.parse(text)
        except Exception as error:
            raise errors.ModelError(f"{path} is not a Relay program: {said_by(error)}") from None
    if isinstance(node, relay.Function):
        node = tvm.IRModule.from_expr(node)
    if not isinstance(node, tvm.IRModule) or "main" not in [var.name_hint for var in node.get_global_vars()]:
        raise errors.ModelError(f"{path} is not a Relay program: it holds no function main")
    module = typed(node, path)
    if params:
        module = bind(module, read_params(params), str(path), str(params))
    declared = {}
    for var in module["main"].params:
        if not isinstance(var.checked_type, relay.TensorType):
            raise errors.ModelError(f"input {var.name_hint} of {path} is not a tensor but {var.checked_type}")
        declared[var.name_hint] = open_dimensions.dims_of(var.checked_type)
    sizes = open_dimensions.settle(declared, input_shapes, dynamic, str(path))
    given = {name: open_dimensions.relay_shape(sizes.shapes[name]) for name in input_shapes}
    return _with_shapes(module, given, str(path)), sizes


def _with_shapes(module, input_shapes, what):
    """The module with the named inputs of ``main`` in the given shapes."""
    if not input_shapes:
        return module
    function = module["main"]
    open_dimensions.refuse_unknown(input_shapes, [var.name_hint for var in function.params], what)
    replaced, params = {}, []
    for var in function.params:
        if var.name_hint in input_shapes:
            given = input_shapes[var.name_hint]
            open_dimensions.require_fit(var.name_hint, open_dimensions.dims_of(var.checked_type), given, what)
            replaced[var] = relay.var(var.name_hint, shape=given, dtype=var.checked_type.dtype)
        params.append(replaced.get(var, var))
    changed = tvm.IRModule.from_expr(relay.Function(params, relay.bind(function.body, replaced)))
    for var, other in module.functions.items():
        if var.name_hint != "main":
            changed[var] = other
    return typed(changed, what)


def read_params(path):
    """Read a parameter file, .npz or TVM's own format, as {name: numpy array}."""
    path = Path(path)
    if not path.is_file():
        raise errors.MissingFileError(f"there is no parameter file {path}", file=path)
    try:
        if path.suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        return {name: value.numpy() for name, value in parameters.read(path).items()}
    except Exception as error:
        raise errors.ModelError(f"{path} is not a parameter file (.npz or TVM's .params): {said_by(error)}") from None


def bind(module, values, what, source="its parameters"):
    """Make ``values`` constants of ``main``. Raises ValueError where a name, a shape or a type does not
    fit.
    """
    variables = {var.name_hint: var for var in module["main"].params}
    for name, array in values.items():
        if name not in variables:
            raise errors.ModelError(
                f"{source} holds {name!r}, which {what} does not take; it takes: {_some(variables)}"
            )
        declared = variables[name].checked_type
        shape = open_dimensions.dims_of(declared)
        if not open_dimensions.fits(shape, array.shape) or str(array.dtype) != declared.dtype:
            raise errors.ModelError(
                f"{source} holds {name} as {array.dtype}{open_dimensions.show(array.shape)}, "
                f"but {what} takes {declared.dtype}{open_dimensions.show(shape)}"
            )
    bound = relay.build_module.bind_params_by_name(
        module["main"], {name: tvm.nd.array(array) for name, array in values.items()}
    )
    module = tvm.IRModule(module.functions, module.type_definitions)
    module["main"] = bound
    return typed(module, what)


def _some(names, limit=8):
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


# TensorFlow Lite


def _tflite(path, input_shapes):
    model, graph = tflite_reader.graph_of(path)
    inputs = tflite_reader.inputs(path, graph)
    open_dimensions.refuse_unknown(input_shapes, list(inputs), path)
    shapes = {name: tuple(default) for name, (_, default, _) in inputs.items()}
    for name, given in input_shapes.items():
        open_dimensions.require_fit(name, inputs[name][0], given, path)
        shapes[name] = given
    try:
        module, values = tflite_reader.module(path, model, shapes)
    except tflite_reader.RefusedError:
        raise
    except Exception as error:
        raise errors.ModelError(
            f"TVM's TensorFlow Lite importer cannot read {path}: {errors.python_name(error)}: {said_by(error)}"
        ) from None
    return bind(typed(module, path), values, str(path))


# TorchScript


def _torchscript(path, input_shapes):
    try:
        import torch
    except ImportError:
        raise errors.MissingPackageError(
            f"reading {path} needs torch, which is not installed here: install it, or export the model to ONNX"
        ) from None
    try:
        script = torch.jit.load(str(path), map_location="cpu").eval()
    except Exception as error:
        raise errors.ModelError(f"{path} is not a TorchScript model: {said_by(error)}") from None
    names = _input_names([value.debugName() for value in list(script.graph.inputs())[1:]])
    open_dimensions.refuse_unknown(input_shapes, names, path)
    open_dimensions.ask_for({name: [None] for name in names if name not in input_shapes}, path)
    shapes = {name: input_shapes[name] for name in names}
    kinds = _input_types(script, shapes)
    return _of_script(script, [(name, (shape, kinds[name])) for name, shape in shapes.items()], path)


def of_torchscript(script, kinds, called):
    """The module of a traced network, weights bound; ``kinds`` are (shape, type) of its inputs, in order, and
    ``called`` is what errors call it. Raises errors.ModelError.
    """
    names = _input_names([value.debugName() for value in list(script.graph.inputs())[1:]])
    return _of_script(script, list(zip(names, kinds, strict=True)), called)


def _of_script(script, inputs, path):
    floats = "float16" if any(kind == "float16" for _, (_, kind) in inputs) else "float32"
    try:
        with folding.here("pytorch"):
            module, values = relay.frontend.from_pytorch(script, inputs, default_dtype=floats)
    except NotImplementedError as error:
        raise errors.ModelError(f"{path} uses operators that TVM's PyTorch importer lacks: {said_by(error)}") from None
    except Exception as error:
        raise errors.ModelError(f"TVM's PyTorch importer cannot read {path}: {said_by(error)}") from None
    return bind(typed(module, path), {name: value.numpy() for name, value in values.items()}, str(path))


def _input_names(values):
    """The inputs' names, of those of the values that they are in the graph: without what PyTorch puts behind a dot, but
    where two would be called the same then.
    """
    short = [value.split(".")[0] for value in values]
    return [value if short.count(name) > 1 else name for value, name in zip(values, short, strict=True)]


# How often a TorchScript network is run to see of which types its inputs are: of up to six inputs all mixtures of
# float32, bool and int64 are tried, of more those in which few are no float32.
_TRIES = 1000


def _input_types(script, shapes):
    """{name: type} of the inputs, which the file does not say: those with which the network runs on what the import
    check gives it. As many as can be are float32 (float16 where the network computes in that); of the others those are
    bool that can be (a mask, which PyTorch takes as whole numbers, too), then int64 (the words of an embedding), then
    int32. Where it never runs, they are of its parameters' type: PyTorch cannot run all of float16 on a processor.
    """
    import torch

    halves = any(one.dtype == torch.float16 for one in script.parameters())
    bases = ("float16", "float32") if halves else ("float32", "float16")

    def tried():
        for base in bases:
            for whole in (("bool", "int64"), ("bool", "int64", "int32")):
                for others in range(len(shapes) + 1):
                    for which in itertools.combinations(shapes, others):
                        for kinds in itertools.product(whole, repeat=others):
                            if "int32" in kinds or "int32" not in whole:
                                yield dict.fromkeys(shapes, base) | dict(zip(which, kinds, strict=True))

    for kinds in itertools.islice(tried(), _TRIES):
        values = seeded.inputs(0, {name: (shape, kinds[name]) for name, shape in shapes.items()})
        try:
            with torch.no_grad():
                script(*(torch.from_numpy(np.asarray(value)) for value in values.values()))
        except Exception:
            continue
        return kinds
    return dict.fromkeys(shapes, bases[0])


@contextlib.contextmanager
def written_as_onnx(path):
    """What torch.export saved, as an ONNX file that PyTorch writes: its path, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="collage-") as folder:
        written = Path(folder) / "model.onnx"
        ran = apart.run("pt2", str(path), str(written))
        why = (ran.stderr.strip().splitlines() or [""])[-1]
        if ran.returncode == pt2.MISSING:
            raise errors.MissingPackageError(
                f"reading {path} needs torch and onnxscript, which are not installed here: install them, or export the "
                "model to ONNX"
            )
        if ran.returncode == pt2.NOT_EXPORTED:
            raise errors.ModelError(f"{path} is not what torch.export saves: {why}")
        if ran.returncode != 0:
            raise errors.ModelError(f"PyTorch cannot write {path} as ONNX, by way of which it is read: {why}")
        yield written


def _exported(path, input_shapes, input_values, dynamic):
    """What torch.export saved: TVM 0.19 reads no such file into Relay."""
    with written_as_onnx(path) as written:
        return _onnx(written, input_shapes, input_values, dynamic, path)


# Formats that are read as ONNX.
_BY_ONNX = {"onnx": _onnx, "pt2": _exported}


def parameter_bytes(module):
    """How many bytes the constants of ``main`` take, each counted once."""
    seen = set()
    total = 0

    def visit(expr):
        nonlocal total
        if isinstance(expr, relay.Constant) and expr.handle.value not in seen:
            seen.add(expr.handle.value)
            total += math.prod(expr.data.shape) * np.dtype(expr.data.dtype).itemsize

    relay.analysis.post_order_visit(module["main"], visit)
    return total
