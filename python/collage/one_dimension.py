# SPDX-License-Identifier: Apache-2.0
"""Convolutions along one axis, built as those along two of which the first is 1 long.

In: a typed module, as TVM is to build it. Out: the module with nn.conv2d in the place of its own nn.conv1d, and what
follows these element by element computed with that axis, too. TVM 0.19 makes one vector of all places of a convolution
along one axis on processors: 200 places of 32 channels take LLVM seconds, 400 half a minute, 1,600 of 64 had taken it
more than seven minutes. What it has for two axes takes less than a second, and runs faster for most (RATIONALE).
Small depthwise ones stay: of them TVM's vector is the fastest there is, as long as it stays in registers.
"""

import math

import tvm
from tvm import relay
from tvm.target import codegen

from . import own_functions

_CONVOLUTION = tvm.ir.Op.get("nn.conv1d")
# Layouts of data and weights with the new axis, and how many axes come behind it in the data's.
_LAYOUTS = {("NCW", "OIW"): ("NCHW", "OIHW", 1), ("NWC", "WIO"): ("NHWC", "HWIO", 2)}
# What has attributes that say nothing of axes. (What has none says nothing of axes.)
_OF_ELEMENTS = {"clip", "cast", "fast_erf", "fast_exp", "fast_tanh"}
# TVM's pattern of what is computed element by element, or with smaller tensors for all of a larger one.
_BROADCAST = 1


# The most vectors of places times taps of a depthwise convolution for which LLVM keeps what it sums in registers.
_IN_REGISTERS = 96


def as_two(module, build_for):
    """The module, typed anew, with nn.conv2d for nn.conv1d; itself where it has none, or none of its functions is a
    plain graph. What regions compute stays as it is. ``build_for`` is the target (of kind llvm) that it is built for.
    """
    lanes = _lanes(build_for)
    return own_functions.changed(module, lambda function: _Function(function, lanes).made())


class _Function:
    """One function. It is walked along in order, without recursion: networks are deep."""

    def __init__(self, function, lanes):
        self._function = function
        self._lanes = lanes
        self._new = {}  # expression -> what stands in its place
        self._wide = {}  # what stands in an expression's place -> (that with the new axis, axes behind that one)

    def made(self):
        """The function with what it becomes; None where that is itself."""
        order = []
        relay.analysis.post_order_visit(self._function.body, order.append)
        plain = (relay.Var, relay.Constant, relay.Call, relay.Tuple, relay.TupleGetItem, relay.GlobalVar, tvm.ir.Op)
        if not any(self._is_ours(one) for one in order) or not all(isinstance(one, plain) for one in order):
            return None
        for one in order:
            self._new[one] = self._placed(one)
        return relay.Function(
            self._function.params, self._new[self._function.body], self._function.ret_type,
            self._function.type_params, self._function.attrs, self._function.span,
        )  # fmt: skip

    def _placed(self, one):
        if isinstance(one, relay.Tuple):
            return relay.Tuple([self._new[field] for field in one.fields], one.span)
        if isinstance(one, relay.TupleGetItem):
            return relay.TupleGetItem(self._new[one.tuple_value], one.index, one.span)
        if not isinstance(one, relay.Call):
            return one
        args = [self._new[arg] for arg in one.args]
        if self._is_ours(one):
            return self._convolution(one, args)
        behind = self._behind(one, args)
        if behind:
            wide = [
                self._wide[new][0] if new in self._wide else _widened(new, len(old.checked_type.shape), behind)
                for old, new in zip(one.args, args, strict=True)
            ]
            return self._narrowed(relay.Call(one.op, wide, one.attrs, one.type_args, one.span), behind, one)
        return relay.Call(one.op, args, one.attrs, one.type_args, one.span)

    def _convolution(self, call, args):
        attrs = call.attrs
        data_layout, kernel_layout, behind = _LAYOUTS[attrs.data_layout, attrs.kernel_layout]
        data, weight = args
        if data in self._wide and self._wide[data][1] == behind:
            data = self._wide[data][0]
        else:
            data = relay.expand_dims(data, 3 - behind)
        padding = [int(one) for one in attrs.padding]
        left, right = padding if len(padding) == 2 else padding * 2
        sizes = dict(zip(str(attrs.kernel_layout), map(int, call.args[1].checked_type.shape), strict=True))
        wide = relay.nn.conv2d(
            data, relay.expand_dims(weight, kernel_layout.index("H")), strides=(1, int(attrs.strides[0])),
            padding=(0, left, 0, right), dilation=(1, int(attrs.dilation[0])), groups=attrs.groups,
            channels=sizes["O"], kernel_size=(1, sizes["W"]),
            data_layout=data_layout, kernel_layout=kernel_layout, out_dtype=attrs.out_dtype,
        )  # fmt: skip
        return self._narrowed(wide, behind, call)

    def _behind(self, call, args):
        """How many axes are behind the new one in what a call computes with it; 0 for one that goes without."""
        places = {self._wide[new][1] for new in args if new in self._wide}
        if len(places) != 1 or not isinstance(call.op, tvm.ir.Op) or not _by_element(call):
            return 0
        shape = call.checked_type.shape
        like = [old for old, new in zip(call.args, args, strict=True) if new in self._wide]
        same = all(tvm.ir.structural_equal(old.checked_type.shape, shape) for old in like)
        small = all(isinstance(old.checked_type, relay.TensorType) for old in call.args)
        return places.pop() if same and small else 0

    def _is_ours(self, one):
        return _is_convolution(one) and not _stays_in_registers(one, self._lanes)

    def _narrowed(self, wide, behind, call):
        new = relay.squeeze(wide, [3 - behind])
        self._wide[new] = wide, behind
        return new


def _is_convolution(one):
    return (
        isinstance(one, relay.Call)
        and one.op == _CONVOLUTION
        and (one.attrs.data_layout, one.attrs.kernel_layout) in _LAYOUTS
        and one.attrs.out_layout in ("", one.attrs.data_layout)
        # With an open width it is built in a second as it is.
        and all(
            isinstance(size, tvm.tir.IntImm)
            for size in (*one.args[0].checked_type.shape[1:], *one.args[1].checked_type.shape)
        )
    )


def _stays_in_registers(call, lanes):
    """Whether it is depthwise, and so small that TVM's one vector of all places is what is fastest."""
    attrs, weight = call.attrs, call.args[1].checked_type
    outputs, inputs, taps = (int(size) for size in weight.shape)
    if attrs.kernel_layout != "OIW" or weight.dtype != "float32" or inputs != 1 or outputs != attrs.groups:
        return False
    if outputs == 1 or int(attrs.strides[0]) != 1 or int(attrs.dilation[0]) != 1:
        return False
    # LLVM makes vectors of powers of two of them.
    places = 1 << (int(call.checked_type.shape[2]) - 1).bit_length()
    return math.ceil(places / lanes) * taps <= _IN_REGISTERS


def _lanes(build_for):
    """How many float32 the target's vectors hold."""
    for feature, lanes in (("avx512f", 16), ("avx", 8)):
        if codegen.target_has_features(feature, build_for):
            return lanes
    return 4


def _by_element(call):
    if call.attrs is not None and call.op.name not in _OF_ELEMENTS:
        return False
    pattern = call.op.get_attr("TOpPattern")
    return pattern is not None and int(pattern) <= _BROADCAST


def _widened(value, rank, behind):
    """A value of another rank than the one with the new axis, so that it broadcasts to the same elements."""
    return relay.expand_dims(value, rank - behind) if rank > behind else value
