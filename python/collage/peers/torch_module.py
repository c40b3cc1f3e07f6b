# SPDX-License-Identifier: Apache-2.0
"""A Program as a PyTorch module: a torch.fx graph of the functions that a PyTorch user would call."""

import operator

import torch
from torch import fx
from torch.nn import functional

from .program import UnsupportedError, pads, reduced_axes

# Operators that are functions of their arguments alone.
_SAME = {
    "nn.relu": functional.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "negative": torch.neg,
    "abs": torch.abs,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "power": torch.pow,
    "where": torch.where,
}


class _Builder:
    def __init__(self, program):
        self.program = program
        self.graph = fx.Graph()
        self.root = torch.nn.Module()
        self.values = {}

    def argument(self, name):
        if name not in self.values:
            array = self.program.constants[name]
            self.root.register_buffer(name, torch.from_numpy(array.copy()))
            self.values[name] = self.graph.get_attr(name)
        return self.values[name]

    def call(self, function, *arguments, **options):
        return self.graph.call_function(function, arguments, options)

    def add(self, step):
        name = step.operator
        arguments = [self.argument(one) for one in step.arguments]
        if name in _SAME:
            made = self.call(_SAME[name], *arguments)
        else:
            method = getattr(self, "_" + name.replace(".", "_"), None)
            if method is None:
                raise UnsupportedError(f"the operator {name} has no PyTorch form here")
            made = method(step, *arguments)
        self.values[step.result] = made

    def _identity(self, _step, value, *_):
        return value

    _copy = _nn_dropout = _identity

    def _reshape(self, step, value, *_):
        return self.call(torch.reshape, value, step.shape)

    _squeeze = _expand_dims = _nn_batch_flatten = _reshape

    def _padded(self, step, value, rank, number=0.0):
        """(value, padding that PyTorch can take): where the two sides differ, the value is padded before."""
        both = pads(step, rank)
        before, after = both[:rank], both[rank:]
        if before == after:
            return value, before
        order = [size for pair in zip(reversed(before), reversed(after), strict=True) for size in pair]
        return self.call(functional.pad, value, order, value=number), [0] * rank

    def _convolution(self, step, value, weight, bias=None):
        if step.attributes["data_layout"][:2] != "NC" or step.attributes["kernel_layout"][:2] != "OI":
            raise UnsupportedError(f"{step.operator} in the layout {step.attributes['data_layout']}")
        rank = len(step.shape) - 2
        function = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}[rank]
        value, padding = self._padded(step, value, rank)
        return self.call(
            function,
            value,
            weight,
            bias,
            stride=step.attributes["strides"],
            padding=padding,
            dilation=step.attributes["dilation"],
            groups=step.attributes["groups"],
        )

    _nn_conv1d = _nn_conv2d = _nn_conv3d = _convolution

    def _nn_dense(self, _step, value, weight, bias=None):
        return self.call(functional.linear, value, weight, bias)

    def _nn_batch_matmul(self, step, a, b):
        if step.attributes["transpose_a"]:
            a = self.call(torch.transpose, a, 1, 2)
        if step.attributes["transpose_b"]:
            b = self.call(torch.transpose, b, 1, 2)
        return self.call(torch.matmul, a, b)

    def _nn_bias_add(self, step, value, bias):
        after = len(step.shape) - 1 - step.attributes["axis"] % len(step.shape)
        return self.call(operator.add, value, self.call(torch.reshape, bias, (-1, *[1] * after)) if after else bias)

    def _pool(self, step, value):
        rank = len(step.shape) - 2
        attributes = step.attributes
        if attributes["layout"][:2] != "NC" or any(d != 1 for d in attributes.get("dilation") or []):
            raise UnsupportedError(f"{step.operator} in this layout or dilated")
        options = {"stride": attributes["strides"], "ceil_mode": bool(attributes["ceil_mode"])}
        if "avg" in step.operator:
            both = pads(step, rank)
            if both[:rank] != both[rank:]:
                raise UnsupportedError(f"{step.operator} with another padding before than after")
            function = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}[rank]
            options |= {"padding": both[:rank], "count_include_pad": bool(attributes["count_include_pad"])}
        else:
            function = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}[rank]
            value, options["padding"] = self._padded(step, value, rank, float("-inf"))
        return self.call(function, value, attributes["pool_size"], **options)

    _nn_max_pool1d = _nn_max_pool2d = _nn_max_pool3d = _pool
    _nn_avg_pool1d = _nn_avg_pool2d = _nn_avg_pool3d = _pool

    def _nn_global_avg_pool2d(self, _step, value):
        return self.call(functional.adaptive_avg_pool2d, value, 1)

    def _nn_global_max_pool2d(self, _step, value):
        return self.call(functional.adaptive_max_pool2d, value, 1)

    def _nn_softmax(self, step, value):
        return self.call(functional.softmax, value, dim=step.attributes["axis"])

    def _nn_leaky_relu(self, step, value):
        return self.call(functional.leaky_relu, value, step.attributes["alpha"])

    def _clip(self, step, value):
        return self.call(torch.clamp, value, step.attributes["a_min"], step.attributes["a_max"])

    def _transpose(self, step, value):
        rank = len(step.shape)
        return self.call(
            torch.permute, value, tuple(a % rank for a in step.attributes.get("axes") or range(rank)[::-1])
        )

    def _concatenate(self, step, *values):
        return self.call(torch.cat, list(values), dim=step.attributes["axis"])

    def _cast(self, step, value):
        return self.call(torch.Tensor.to, value, getattr(torch, step.dtype))

    def _reduction(self, step, value):
        function = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}[step.operator]
        axes = reduced_axes(step, len(self.program.shapes[step.arguments[0]]))
        return self.call(function, value, dim=axes, keepdim=bool(step.attributes.get("keepdims")))

    _mean = _sum = _max = _min = _reduction

    def _variance(self, step, value, _mean):
        axes = reduced_axes(step, len(self.program.shapes[step.arguments[0]]))
        return self.call(
            torch.var,
            value,
            dim=axes,
            correction=int(bool(step.attributes.get("unbiased"))),
            keepdim=bool(step.attributes.get("keepdims")),
        )

    def _nn_upsampling(self, step, value):
        if step.attributes["layout"] != "NCHW" or step.attributes["method"] != "nearest_neighbor":
            raise UnsupportedError(f"nn.upsampling in {step.attributes['layout']} with {step.attributes['method']}")
        scales = (step.attributes["scale_h"], step.attributes["scale_w"])
        return self.call(functional.interpolate, value, scale_factor=scales, mode="nearest")

    def _nn_pad(self, step, value, number):
        if step.attributes["pad_mode"] != "constant":
            raise UnsupportedError(f"nn.pad in the mode {step.attributes['pad_mode']}")
        order = [size for pair in reversed(step.attributes["pad_width"]) for size in pair]
        return self.call(functional.pad, value, order, value=float(self.program.constants[step.arguments[1]]))

    def _nn_batch_norm(self, step, value, gamma, beta, mean, variance):
        return self.call(functional.batch_norm, value, mean, variance, gamma, beta, eps=step.attributes["epsilon"])

    def _nn_layer_norm(self, step, value, gamma, beta):
        if step.attributes["axis"] % len(step.shape) != len(step.shape) - 1:
            raise UnsupportedError("nn.layer_norm over another axis than the last")
        return self.call(functional.layer_norm, value, step.shape[-1:], gamma, beta, eps=step.attributes["epsilon"])

    def _nn_lrn(self, step, value):
        attributes = step.attributes
        return self.call(
            functional.local_response_norm,
            value,
            attributes["size"],
            alpha=attributes["alpha"],
            beta=attributes["beta"],
            k=attributes["bias"],
        )


def build(program):
    """The module, in evaluation mode: takes the inputs in the Program's order, gives a tuple of outputs."""
    builder = _Builder(program)
    for name in program.inputs:
        builder.values[name] = builder.graph.placeholder(name)
    for step in program.steps:
        builder.add(step)
    builder.graph.output(tuple(builder.argument(name) for name in program.outputs))
    builder.graph.eliminate_dead_code()
    return fx.GraphModule(builder.root, builder.graph).eval()
