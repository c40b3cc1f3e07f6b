# SPDX-License-Identifier: Apache-2.0
"""Write a Program as an ONNX model (operator set 17), as exporters write one, or fix a model's shapes."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .program import UnsupportedError, pads, reduced_axes

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}

# Operators that differ in their names only.
_SAME = {
    "nn.relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "erf": "Erf",
    "negative": "Neg",
    "abs": "Abs",
    "floor": "Floor",
    "ceil": "Ceil",
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
    "where": "Where",
    "copy": "Identity",
    "nn.dropout": "Identity",
    "nn.global_avg_pool2d": "GlobalAveragePool",
    "nn.global_max_pool2d": "GlobalMaxPool",
}

_RESHAPES = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "contrib_reverse_reshape")
_REDUCTIONS = {"max": "ReduceMax", "min": "ReduceMin", "mean": "ReduceMean", "prod": "ReduceProd"}


class _Writer:
    def __init__(self, program):
        self.program = program
        self.nodes = []
        self.tensors = [numpy_helper.from_array(array, name) for name, array in program.constants.items()]
        self.count = 0

    def constant(self, array):
        self.count += 1
        name = f"c{self.count}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, inputs, output=None, **attributes):
        self.count += 1
        output = output or f"t{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def write(self, step):
        """Nodes for one step."""
        name = step.operator
        if name in _SAME:
            self.node(_SAME[name], step.arguments, step.result)
        elif name in _RESHAPES:
            self.node("Reshape", [step.arguments[0], self.constant(np.array(step.shape, "int64"))], step.result)
        elif name in _REDUCTIONS or name == "sum":
            self._reduce(step)
        else:
            method = getattr(self, "_" + name.replace(".", "_"), None)
            if method is None:
                raise UnsupportedError(f"the operator {name} has no ONNX form here")
            method(step)

    def _shape(self, name):
        return self.program.shapes[name]

    def _reduce(self, step):
        axes = reduced_axes(step, len(self._shape(step.arguments[0])))
        keep = int(bool(step.attributes.get("keepdims")))
        if step.operator == "sum":
            self.node(
                "ReduceSum",
                [step.arguments[0], self.constant(np.array(axes, "int64"))],
                step.result,
                keepdims=keep,
            )
        else:
            self.node(_REDUCTIONS[step.operator], step.arguments[:1], step.result, axes=axes, keepdims=keep)

    def _variance(self, step):
        data, mean = step.arguments
        shape = self._shape(data)
        axes = reduced_axes(step, len(shape))
        count = math.prod(shape[axis] for axis in axes) - int(bool(step.attributes.get("unbiased")))
        centred = self.node("Sub", [data, mean])
        squares = self.node("Mul", [centred, centred])
        keep = int(bool(step.attributes.get("keepdims")))
        total = self.node("ReduceSum", [squares, self.constant(np.array(axes, "int64"))], keepdims=keep)
        self.node("Div", [total, self.constant(np.array(count, step.dtype))], step.result)

    def _convolution(self, step):
        if step.attributes["data_layout"][:2] != "NC" or step.attributes["kernel_layout"][:2] != "OI":
            raise UnsupportedError(f"{step.operator} in the layout {step.attributes['data_layout']}")
        rank = len(step.shape) - 2
        self.node(
            "Conv",
            step.arguments,
            step.result,
            strides=step.attributes["strides"],
            pads=pads(step, rank),
            dilations=step.attributes["dilation"],
            group=step.attributes["groups"],
        )

    _nn_conv1d = _nn_conv2d = _nn_conv3d = _convolution

    def _adaptive_pool(self, step):
        kind = "Max" if "_max_" in step.operator else "Average"
        sizes, results = self._shape(step.arguments[0])[2:], step.shape[2:]
        if step.attributes.get("layout", "NC")[:2] != "NC" or any(n % m for n, m in zip(sizes, results, strict=True)):
            raise UnsupportedError(f"{step.operator} with windows that overlap, or with channels last")
        if math.prod(results) == 1:
            self.node(f"Global{kind}Pool", step.arguments, step.result)
        else:
            window = [n // m for n, m in zip(sizes, results, strict=True)]
            self.node(f"{kind}Pool", step.arguments, step.result, kernel_shape=window, strides=window)

    _nn_adaptive_avg_pool2d = _nn_adaptive_max_pool2d = _adaptive_pool

    def _nn_conv2d_transpose(self, step):
        if step.attributes["data_layout"] != "NCHW":
            raise UnsupportedError(f"{step.operator} in the layout {step.attributes['data_layout']}")
        self.node(
            "ConvTranspose",
            step.arguments,
            step.result,
            strides=step.attributes["strides"],
            pads=pads(step, 2),
            dilations=step.attributes["dilation"],
            group=step.attributes["groups"],
            output_padding=step.attributes["output_padding"],
        )

    def _nn_dense(self, step):
        if len(step.shape) == 2:
            self.node("Gemm", step.arguments, step.result, transB=1)
            return
        weight = self.node("Transpose", step.arguments[1:2], perm=[1, 0])
        product = self.node("MatMul", [step.arguments[0], weight], None if step.arguments[2:] else step.result)
        if step.arguments[2:]:
            self.node("Add", [product, step.arguments[2]], step.result)

    def _nn_batch_matmul(self, step):
        operands = list(step.arguments)
        for index, flag in enumerate(("transpose_a", "transpose_b")):
            if step.attributes[flag]:
                operands[index] = self.node("Transpose", [operands[index]], perm=[0, 2, 1])
        self.node("MatMul", operands, step.result)

    def _nn_bias_add(self, step):
        bias, axis = step.arguments[1], step.attributes["axis"] % len(step.shape)
        if axis != len(step.shape) - 1:
            shape = [-1] + [1] * (len(step.shape) - 1 - axis)
            bias = self.node("Reshape", [bias, self.constant(np.array(shape, "int64"))])
        self.node("Add", [step.arguments[0], bias], step.result)

    def _pool(self, step):
        rank = len(step.shape) - 2
        if step.attributes["layout"][:2] != "NC" or any(d != 1 for d in step.attributes.get("dilation") or []):
            raise UnsupportedError(f"{step.operator} in this layout or dilated")
        kind, extra = "MaxPool", {}
        if "avg" in step.operator:
            kind, extra = "AveragePool", {"count_include_pad": int(step.attributes["count_include_pad"])}
        self.node(
            kind,
            step.arguments,
            step.result,
            kernel_shape=step.attributes["pool_size"],
            pads=pads(step, rank),
            strides=step.attributes["strides"],
            ceil_mode=int(step.attributes["ceil_mode"]),
            **extra,
        )

    _nn_max_pool1d = _nn_max_pool2d = _nn_max_pool3d = _pool
    _nn_avg_pool1d = _nn_avg_pool2d = _nn_avg_pool3d = _pool

    def _nn_softmax(self, step):
        self.node("Softmax", step.arguments, step.result, axis=step.attributes["axis"])

    def _nn_leaky_relu(self, step):
        self.node("LeakyRelu", step.arguments, step.result, alpha=step.attributes["alpha"])

    def _clip(self, step):
        ends = [self.constant(np.array(step.attributes[end], step.dtype)) for end in ("a_min", "a_max")]
        self.node("Clip", [*step.arguments, *ends], step.result)

    def _rsqrt(self, step):
        self.node("Reciprocal", [self.node("Sqrt", step.arguments)], step.result)

    def _transpose(self, step):
        rank = len(step.shape)
        axes = step.attributes.get("axes") or list(range(rank))[::-1]
        self.node("Transpose", step.arguments, step.result, perm=[axis % rank for axis in axes])

    def _concatenate(self, step):
        self.node("Concat", step.arguments, step.result, axis=step.attributes["axis"])

    def _cast(self, step):
        self.node("Cast", step.arguments, step.result, to=_TYPES[step.dtype])

    def _take(self, step):
        data, indices = step.arguments
        if step.attributes["batch_dims"]:
            raise UnsupportedError(f"take with batch_dims {step.attributes['batch_dims']}")
        axis, shape = step.attributes["axis"], self._shape(data)
        if axis is None:  # of all elements in a row
            data = self.node("Reshape", [data, self.constant(np.array([-1], "int64"))])
            axis, shape = 0, (math.prod(shape),)
        indices = self._within(indices, shape[axis], step.attributes["mode"])
        self.node("Gather", [data, indices], step.result, axis=axis)

    def _within(self, indices, extent, mode):
        """Indices as Gather reads them: those that lie outside of ``extent`` as TVM's mode has them. ``fast`` promises
        that there are none.
        """
        if mode not in ("clip", "wrap", "fast"):
            raise UnsupportedError(f"take in the mode {mode}")
        if indices in self.program.constants:
            array = self.program.constants[indices].astype("int64")
            if mode != "fast":
                array = array % extent if mode == "wrap" else np.clip(array, 0, extent - 1)
            return self.constant(array)
        indices = self.node("Cast", [indices], to=TensorProto.INT64)
        if mode == "wrap":  # with the sign of what is divided by
            return self.node("Mod", [indices, self.constant(np.array(extent, "int64"))])
        if mode == "clip":
            ends = [self.constant(np.array(end, "int64")) for end in (0, extent - 1)]
            return self.node("Clip", [indices, *ends])
        return indices

    def _nn_upsampling(self, step):
        if step.attributes["layout"] != "NCHW" or step.attributes["method"] != "nearest_neighbor":
            raise UnsupportedError(f"nn.upsampling in {step.attributes['layout']} with {step.attributes['method']}")
        scales = np.array([1, 1, step.attributes["scale_h"], step.attributes["scale_w"]], "float32")
        self.node(
            "Resize",
            [step.arguments[0], "", self.constant(scales)],
            step.result,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def _nn_pad(self, step):
        if step.attributes["pad_mode"] != "constant":
            raise UnsupportedError(f"nn.pad in the mode {step.attributes['pad_mode']}")
        width = step.attributes["pad_width"]
        both = [before for before, _ in width] + [after for _, after in width]
        self.node("Pad", [step.arguments[0], self.constant(np.array(both, "int64")), step.arguments[1]], step.result)

    def _nn_batch_norm(self, step):
        self.node("BatchNormalization", step.arguments, step.result, epsilon=step.attributes["epsilon"])

    def _nn_layer_norm(self, step):
        self.node(
            "LayerNormalization",
            step.arguments,
            step.result,
            axis=step.attributes["axis"],
            epsilon=step.attributes["epsilon"],
        )

    def _nn_lrn(self, step):
        attributes = step.attributes
        self.node(
            "LRN",
            step.arguments,
            step.result,
            size=attributes["size"],
            alpha=attributes["alpha"],
            beta=attributes["beta"],
            bias=attributes["bias"],
        )


def write(program, path):
    """Write ``program`` to ``path``. Raises UnsupportedError for an operator that has no ONNX form here."""
    writer = _Writer(program)
    for step in program.steps:
        writer.write(step)

    def value(name, shape, dtype):
        return helper.make_tensor_value_info(name, _TYPES[dtype], shape)

    made = {step.result: step for step in program.steps}
    graph = helper.make_graph(
        writer.nodes,
        "network",
        [value(name, shape, dtype) for name, (shape, dtype) in program.inputs.items()],
        [value(name, made[name].shape, made[name].dtype) for name in program.outputs],
        writer.tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def fix_shapes(source, path, inputs):
    """Copy the ONNX model ``source`` to ``path`` with the shapes of ``inputs`` ({name: (shape, dtype)})."""
    model = onnx.load(str(source))
    for declared in model.graph.input:
        if declared.name in inputs:
            shape = declared.type.tensor_type.shape
            del shape.dim[:]
            for size in inputs[declared.name][0]:
                shape.dim.add().dim_value = size
    onnx.save(model, str(path))
