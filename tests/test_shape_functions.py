# SPDX-License-Identifier: Apache-2.0
"""Operators whose shape functions are ours: with an open dimension they give what they give with a fixed one."""

import json

import numpy as np
import pytest
import tvm
from collage import export, shape_functions
from onnx_networks import hold, ran
from tvm import relay

pytestmark = pytest.mark.usefixtures("collage_library")

ANY = relay.Any()
nn = relay.nn


def items_of_computed_places(x):
    """What TVM's own shape functions of one operator each cannot be scheduled for."""
    first = relay.sum(x, [1, 2]) * relay.const(0.0)
    return relay.gather_nd(relay.exp(x), relay.cast(relay.stack([first, first], 0), "int32"))


NAMES = (
    "abs", "acosh", "asinh", "atan", "cos", "cosh", "erf", "isfinite", "isinf", "isnan", "sign", "sin",
    "sinh", "trunc", "ceil", "floor", "exp", "sqrt", "rsqrt", "log", "log2", "log10", "negative", "round",
    "sigmoid", "tan", "tanh", "zeros_like", "ones_like", "copy",
)  # fmt: skip
UNARY = {name: getattr(relay, name) for name in NAMES}
OTHERS = {
    "acos": lambda x: relay.acos(relay.tanh(x)),
    "asin": lambda x: relay.asin(relay.tanh(x)),
    "atanh": lambda x: relay.atanh(relay.tanh(x) * relay.const(0.5)),
    "cast": lambda x: relay.cast(x, "int32"),
    "clip": lambda x: relay.clip(x, 0.2, 0.7),
    "relu": nn.relu,
    "leaky_relu": nn.leaky_relu,
    "logical_not": lambda x: relay.logical_not(relay.greater(x, relay.const(1.0))),
    "bitwise_not": lambda x: relay.bitwise_not(relay.cast(x, "int32")),
    "full_like": lambda x: relay.full_like(x, relay.const(3.0)),
    "cast_like": lambda x: relay.cast_like(x, relay.const(1, "int32")),
    "upsampling": lambda x: nn.upsampling(relay.reshape(x, [-1, 2, 2, 2]), 2, 3),
    # A slice along the open dimension, of which a reshape is computed.
    "slice_and_reshape": lambda x: relay.reshape(relay.strided_slice(x, [0, 0, 1], [1, 2**62, 4]), [-1, 3]),
    "slices": lambda x: relay.strided_slice(x, [-1], [2**62], axes=[1]) + relay.const(1.0),
    "slice_by_two": lambda x: relay.exp(relay.strided_slice(x, [0], [2**62], [2], axes=[1])),
    "slice_of_a_size": lambda x: relay.strided_slice(x, [0, 0], [-1, 1], slice_mode="size") + relay.const(1.0),
    "slice_from_in_front": lambda x: relay.strided_slice(x, [-3], [2**62], axes=[1]),
    "slice_of_nothing_at_first": lambda x: relay.sum(relay.strided_slice(x, [0], [-3], axes=[1]), [1]),
    "slice_from_behind": lambda x: relay.sum(relay.strided_slice(x, [3], [5], axes=[1]), [1]),
    "slice_backwards": lambda x: relay.strided_slice(x, [-2], [-(2**62)], [-2], axes=[1]),
    "any": lambda x: relay.any(relay.greater(x, relay.const(1.0)), axis=1),
    "log_softmax": lambda x: nn.log_softmax(x, axis=-1),
    "reverse": lambda x: relay.reverse(x, 1),
    "sequence_mask": lambda x: relay.sequence_mask(
        relay.transpose(x, [1, 0, 2]), relay.const(np.array([1, 2], "int32")), mask_value=5.0
    ),
    "trilu": lambda x: relay.trilu(x, relay.const(0), True),
    "behind_what_is_computed": items_of_computed_places,
}
IMAGES = {
    "depth_to_space": lambda x: nn.depth_to_space(x, 2),
    "space_to_depth": lambda x: nn.space_to_depth(x, 2),
    "lrn": nn.lrn,
    "max_pool": lambda x: nn.max_pool2d(x, (2, 3), (1, 2), padding=(1, 1, 0, 2)),
    "avg_pool_of_what_is_left": lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), ceil_mode=True, padding=(1, 1)),
    "dilated_pool": lambda x: nn.max_pool2d(x, (2, 2), (1, 1), dilation=(1, 2), padding=(1, 1)),
    "pool_of_a_signal": lambda x: nn.max_pool1d(relay.reshape(x, [8, -1, 4]), 2, 2) + relay.const(1.0),
    "pool_of_a_volume": lambda x: nn.avg_pool3d(relay.expand_dims(x, 2), (1, 2, 2), (1, 1, 2)),
    "adaptive_pool": lambda x: nn.adaptive_avg_pool2d(x, (2, 2)),
    "padded_on_one_side": lambda x: nn.conv2d(
        x, relay.const(np.ones((4, 8, 3, 3), "float32")), channels=4, kernel_size=3, padding=(2, 1, 0, 1)
    ),
}


def typed(function):
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def alike(compute, open_shape, shapes):
    """One model with an open dimension gives at each size what one of that size gives."""
    x = relay.var("x", shape=open_shape)
    model = export.runnable(typed(relay.Function([x], compute(x))))
    for shape in shapes:
        given = {"x": 1 + np.random.default_rng(sum(shape)).random(shape, "float32")}
        fixed = relay.var("x", shape=shape)
        other = export.runnable(typed(relay.Function([fixed], compute(fixed))))
        other.run(**given)
        hold(ran(model, given), [other.get_output(0).numpy()])


@pytest.mark.parametrize("operator", [*UNARY, *OTHERS])
def test_operators(operator):
    alike({**UNARY, **OTHERS}[operator], (2, ANY, 4), [(2, 1, 4), (2, 7, 4)])


@pytest.mark.parametrize("operator", IMAGES)
def test_operators_on_images(operator):
    alike(IMAGES[operator], (1, 8, ANY, 4), [(1, 8, 2, 4), (1, 8, 6, 4)])


def test_what_is_computed_of_a_slice_of_any_size(monkeypatch):
    """A reshape that is fused with it does not know the size: it gets a kernel of its own, and nothing else does."""

    def refuse(*_given):
        raise AssertionError("all products are apart")

    monkeypatch.setattr(export._ProductsApart, "visit_call", refuse)
    alike(
        lambda x: relay.reshape(relay.exp(relay.strided_slice(x, [-2], [2**62], axes=[1])), [-1, 2]),
        (2, ANY, 4), [(2, 1, 4), (2, 7, 4)],
    )  # fmt: skip


def test_slices_by_computed_bounds():
    """Bounds in front of the data and behind it are pulled in, as numpy does."""
    x, begin, end, by = (
        relay.var("x", shape=(2, ANY, 4)),
        *(relay.var(name, shape=(3,), dtype="int64") for name in "bes"),
    )
    cut = relay.op.dyn._make.strided_slice(x, begin, end, by, "end")  # relay's own is for bounds in it
    model = export.runnable(typed(relay.Function([x, begin, end, by], cut)))
    for size in (2, 7):
        data = np.arange(2.0 * size * 4, dtype="float32").reshape(2, size, 4)
        for first, last, step in (
            (-2, 99, 1), (1, 99, 1), (-3, -1, 1), (-3, 99, 2), (5, 99, 1), (3, 2, 1), (0, -3, 1), (99, -99, -1),
            (-1, 0, -3), (-3, -99, -1),
        ):  # fmt: skip
            bounds = {"b": [0, first, 0], "e": [2, last, 4], "s": [1, step, 1]}
            given = {"x": data, **{name: np.array(bound) for name, bound in bounds.items()}}
            hold(ran(model, given), [data[:, slice(first, last, step)]])


def test_what_engines_take_open_has_one(command):
    """Else TVM builds no region of it."""
    told = command("backends", "--json")
    assert told.returncode == 0, told.stderr
    known = {str(name) for name in tvm.get_global_func("ir.ListOpNames")()}
    shape_functions.register()
    open_ones = {
        operator
        for backend in json.loads(told.stdout)["backends"]
        for pattern in backend["patterns"]
        if "open dimensions" in pattern["limits"]
        for operator in known & {part + pattern["composite"].rsplit(".", 1)[-1] for part in ("", "nn.")}
    }
    assert {"nn.softmax", "nn.dense", "nn.conv2d", "reshape", "add"} <= open_ones
    lacking = [name for name in sorted(open_ones) if relay.op.get(name).get_attr("FShapeFunc") is None]
    # "hardswish" is a name of ours, and the others TVM writes otherwise before it builds.
    norms = ["nn.batch_norm", "nn.dropout", "nn.group_norm", "nn.instance_norm", "nn.layer_norm"]
    assert lacking == ["hardswish", *norms]
