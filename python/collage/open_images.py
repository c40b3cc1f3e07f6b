# SPDX-License-Identifier: Apache-2.0
"""What TVM lacks for images whose sides are known only when they run, where its virtual machine is to run them.

Where nothing was tuned TVM takes a schedule by the sizes of the image. Of one that is open it means to take the
least there is, but knows only sizes that are variables so, not those of types (``tir.Any``): a convolution with
windows of one place, which ResNets are full of, cannot be built.
"""

import contextlib
import functools
from typing import ClassVar

import tvm
from tvm import autotvm, relay, te, topi
from tvm.autotvm.task.space import ConfigSpace
from tvm.topi.x86 import conv2d, conv2d_alter_op

from . import own_functions


def _with_sizes(choose):
    """A choice of a schedule by the sizes of the data."""

    @functools.wraps(choose)
    def chosen(cfg, data, *rest, **named):
        if not _known(data.shape):
            sizes = [size if isinstance(size, (int, tvm.tir.IntImm)) else 1 for size in data.shape]
            data = te.placeholder(sizes, dtype=data.dtype)
        return choose(cfg, data, *rest, **named)

    return chosen


def _known(sizes):
    return all(isinstance(size, (int, tvm.tir.IntImm)) for size in sizes)


def _split_of_sizes(define_split):
    """A choice of how to split an axis that may be of any length is one of an axis of one place."""

    @functools.wraps(define_split)
    def defined(space, name, axis, *rest, **named):
        if isinstance(axis, tvm.tir.PrimExpr) and not isinstance(axis, tvm.tir.IntImm):
            axis = 1
        return define_split(space, name, axis, *rest, **named)

    return defined


def _in_groups(compute):
    """TVM's way to convolve in groups cuts rows into pieces of one length; with open sides each place is a sum."""

    @functools.wraps(compute)
    def convolved(data, *rest, **named):
        return (compute if _known(data.shape[2:]) else topi.nn.group_conv2d_nchw)(data, *rest, **named)

    return convolved


def _scheduled_in_groups(schedule):
    @functools.wraps(schedule)
    def scheduled(outs):
        outs = [outs] if isinstance(outs, te.tensor.Tensor) else outs
        if autotvm.task.get_workload(outs) is not None:  # it was computed in TVM's way
            return schedule(outs)
        made = te.create_schedule([out.op for out in outs])

        def apart(op):
            if len(op.axis) > 1:
                made[op].parallel(made[op].fuse(*op.axis[:2]))

        def visit(op):
            if op.reduce_axis:
                padded = op.input_tensors[0].op
                if isinstance(padded, te.ComputeOp) and "pad" in padded.tag:
                    apart(padded)
                if op not in [out.op for out in outs]:
                    apart(op)

        topi.utils.traverse_inline(made, outs[0].op, visit)
        apart(outs[0].op)
        return made

    return scheduled


@contextlib.contextmanager
def schedules():
    """While this is entered, TVM has a schedule for each image, whatever is known of its sizes."""
    changes = [
        (conv2d, "_get_default_config", _with_sizes),
        (conv2d_alter_op, "_get_default_config", _with_sizes),
        (ConfigSpace, "define_split", _split_of_sizes),
        (topi.x86, "group_conv2d_nchw", _in_groups),
        (topi.x86, "schedule_group_conv2d_nchw", _scheduled_in_groups),
    ]
    theirs = [getattr(module, name) for module, name, _ in changes]
    try:
        for (module, name, change), one in zip(changes, theirs, strict=True):
            setattr(module, name, change(one))
        yield
    finally:
        for (module, name, _), one in zip(changes, theirs, strict=True):
            setattr(module, name, one)


def plain(module):
    """The module with what TVM cannot build over open sides written otherwise, in its own functions: a transposed
    convolution as one over what is spread out, and what enlarges an image or spreads its channels as it is done with
    sizes of which TVM's types know that they are open (of these operators they keep an expression that none of TVM's
    kernels takes).
    """
    frequent = relay.analysis.list_op_freqs(module)
    if not any(name in frequent for name in _Plain.writers):
        return module
    return own_functions.changed(relay.transform.InferType()(module), lambda function: _Plain().visit(function))


class _Plain(relay.ExprMutator):
    def visit_call(self, call):
        new = super().visit_call(call)
        write = self.writers.get(call.op.name) if isinstance(call.op, tvm.ir.Op) else None
        if write is None or _known(call.checked_type.shape[1:]):
            return new
        return write(self, call, *new.args) or new

    def _repeated(self, call, data):
        """nn.upsampling by nearest neighbours and whole factors."""
        attrs = call.attrs
        scales = [float(attrs.scale_h), float(attrs.scale_w)]
        if attrs.method != "nearest_neighbor" or any(scale != int(scale) for scale in scales):
            return None
        for side, scale in zip("HW", scales, strict=True):
            data = relay.repeat(data, int(scale), str(attrs.layout).index(side))
        return data

    def _spread(self, call, data):
        """nn.depth_to_space: blocks of channels become places."""
        attrs, size = call.attrs, int(call.attrs.block_size)
        if attrs.layout != "NCHW":
            return None
        blocks_first = attrs.mode == "DCR"
        split = relay.reshape(data, (0, -4, size * size, -1, 0, 0) if blocks_first else (0, -4, -1, size * size, 0, 0))
        split = relay.reshape(split, (0, -4, size, size, 0, 0, 0) if blocks_first else (0, 0, -4, size, size, 0, 0))
        order = (0, 3, 4, 1, 5, 2) if blocks_first else (0, 1, 4, 2, 5, 3)
        return relay.reshape(relay.transpose(split, order), (0, 0, -3, -3))

    def _convolved(self, call, data, weight):
        """nn.conv2d_transpose: zeros between the places, and the window turned around."""
        attrs, groups = call.attrs, int(call.attrs.groups)
        kernel = [int(size) for size in call.args[1].checked_type.shape]
        if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) != ("NCHW", "IOHW", ""):
            return None
        top, left, bottom, right = _padding(attrs.padding)
        strides, dilation, more = (list(map(int, of)) for of in (attrs.strides, attrs.dilation, attrs.output_padding))
        reach = [dilation[i] * (kernel[2 + i] - 1) for i in range(2)]
        before = reach[0] - top, reach[1] - left
        # What is spread out has zeros behind its last places, too: so many less are put there.
        behind = [reach[i] - (bottom, right)[i] + more[i] - (strides[i] - 1) for i in range(2)]
        if min(before) < 0:
            return None
        turned = relay.reverse(relay.reverse(weight, 2), 3)
        parts = relay.reshape(turned, (groups, kernel[0] // groups, *kernel[1:]))
        turned = relay.reshape(
            relay.transpose(parts, (0, 2, 1, 3, 4)), (groups * kernel[1], kernel[0] // groups, *kernel[2:])
        )
        spread = relay.expand_dims(relay.expand_dims(data, 4), 3)
        spread = relay.nn.pad(spread, [(0, 0)] * 3 + [(0, strides[0] - 1), (0, 0), (0, strides[1] - 1)], 0)
        spread = relay.reshape(spread, (0, 0, -3, -3))
        for axis, size in enumerate(behind):
            if size < 0:
                spread = relay.strided_slice(spread, [0], [size], axes=[2 + axis])
        return relay.nn.conv2d(
            spread,
            turned,
            padding=(*before, *(max(0, size) for size in behind)),
            dilation=dilation,
            groups=groups,
            channels=groups * kernel[1],
            kernel_size=kernel[2:],
            out_dtype=attrs.out_dtype,
        )

    writers: ClassVar[dict] = {
        "nn.upsampling": _repeated, "nn.depth_to_space": _spread, "nn.conv2d_transpose": _convolved,
    }  # fmt: skip


def _padding(padding):
    """A padding's numbers: in front of rows and columns, and behind them."""
    sizes = [int(size) for size in padding]
    return sizes * (4 // len(sizes))
