# SPDX-License-Identifier: Apache-2.0
"""Convolutions along one axis are built as along two."""

import numpy as np
import placed
import pytest
import tvm
from collage import batch, export, one_dimension, region, tune
from onnx_networks import answers, hold, node, normal, ran, values, weights, write
from tvm import relay

_WIDE = tvm.target.Target("llvm -mcpu=skylake-avx512")
_NARROW = tvm.target.Target("llvm -mcpu=haswell")


def _typed(function):
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def reference(data, weight, stride, padding, dilation, groups):
    """What numpy makes of a convolution along the last axis."""
    data = np.pad(data.astype("float64"), ((0, 0), (0, 0), padding))
    taps = (weight.shape[2] - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(data, taps, axis=2)[:, :, ::stride, ::dilation]
    parts = zip(np.split(windows, groups, 1), np.split(weight.astype("float64"), groups), strict=True)
    return np.concatenate([np.einsum("ncwt,oct->now", part, own) for part, own in parts], axis=1)


def network(layout, stride, padding, dilation, groups, batch=2):
    """(module, values, what comes out) of a convolution between functions of elements, a bias, and a sum."""
    rng = np.random.default_rng(7)
    data = rng.standard_normal((2, 8, 31)).astype("float32")
    weight = rng.standard_normal((12, 8 // groups, 4)).astype("float32")
    bias = rng.standard_normal(12).astype("float32")
    wanted = np.maximum(reference(np.tanh(data), weight, stride, padding, dilation, groups) + bias[:, None], 0)
    wanted = np.clip(wanted * 0.5 + bias[:, None] * wanted, -1, 3)
    wanted = np.concatenate([wanted, wanted[:, ::-1]], axis=1)
    last = layout == "NWC"
    turn = (lambda array: np.ascontiguousarray(array.transpose(0, 2, 1))) if last else np.asarray
    x = relay.var("x", shape=(batch, *turn(data).shape[1:]))
    kernel = relay.const(np.ascontiguousarray(weight.transpose(2, 1, 0)) if last else weight)
    by_channel = relay.const(bias if last else bias[:, None])
    y = relay.nn.conv1d(
        relay.tanh(x), kernel, strides=stride, padding=padding, dilation=dilation, groups=groups, channels=12,
        kernel_size=4, data_layout=layout, kernel_layout="WIO" if last else "OIW",
    )  # fmt: skip
    y = relay.nn.relu(relay.add(y, by_channel))
    y = relay.clip(relay.add(relay.multiply(y, relay.const(0.5)), relay.multiply(by_channel, y)), -1.0, 3.0)
    y = relay.concatenate([y, relay.reverse(y, axis=2 if last else 1)], axis=2 if last else 1)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    return module, turn(data), turn(wanted.astype("float32"))


@pytest.mark.parametrize("batch", [2, relay.Any()])
@pytest.mark.parametrize(
    ("layout", "stride", "padding", "dilation", "groups"),
    [
        ("NCW", 1, (0, 0), 1, 1),
        ("NCW", 2, (3, 1), 1, 1),
        ("NCW", 3, (1, 1), 2, 4),
        ("NCW", 1, (2, 0), 1, 4),
        ("NWC", 1, (1, 2), 1, 1),
        ("NWC", 2, (0, 0), 3, 1),
    ],
)
def test_it_computes_the_same(collage_library, layout, stride, padding, dilation, groups, batch):
    module, data, wanted = network(layout, stride, padding, dilation, groups, batch)
    changed = one_dimension.as_two(module, _WIDE)
    text = str(changed)
    assert "nn.conv1d" not in text and text.count("nn.conv2d") == 1
    # What follows is computed with the new axis: it goes once, before the concatenation and the turned half of it.
    assert text.index("clip") < text.index("squeeze") and text.count("expand_dims") == (4 if layout == "NCW" else 2)
    executor = export.runnable(module)
    executor.set_input("x", data)
    executor.run()
    placed.same([executor.get_output(0).numpy()], [wanted])


def test_one_behind_the_other_keep_the_axis():
    x = relay.var("x", shape=(1, 4, 16))
    y = x
    for _ in range(3):
        y = relay.nn.relu(relay.nn.conv1d(y, relay.const(np.ones((4, 4, 3), "float32")), padding=1, kernel_size=3))
    y = relay.nn.softmax(y, axis=2)
    text = str(one_dimension.as_two(_typed(relay.Function([x], y)), _WIDE))
    before = text[: text.index("nn.softmax")]
    assert before.count("nn.conv2d") == 3 and before.count("squeeze") == 1
    assert before.count("expand_dims(%x") == 1


def test_what_is_not_plain_stays():
    """A region is its backend's; so does a convolution whose width is open."""
    weight = relay.const(np.ones((4, 4, 3), "float32"))
    x = relay.var("x", shape=(1, 4, relay.Any()))
    opened = relay.Function([x], relay.nn.conv1d(x, weight, kernel_size=3))
    z = relay.var("z", shape=(1, 4, 16))
    theirs = relay.Function([z], relay.nn.conv1d(z, weight, kernel_size=3)).with_attr("Compiler", "other")
    for function in (opened, theirs):
        module = relay.transform.InferType()(tvm.IRModule.from_expr(function))
        assert one_dimension.as_two(module, _WIDE).same_as(module)


@pytest.mark.parametrize(
    ("channels", "multiplier", "places", "taps", "options", "stays_on"),
    [
        (8, 1, 200, 3, {}, (_WIDE, _NARROW)),  # for each tap 16 vectors or 32
        (8, 1, 200, 6, {}, (_WIDE,)),
        (8, 1, 200, 7, {}, ()),
        (8, 1, 257, 3, {}, (_WIDE,)),  # as 512 are
        (8, 1, 200, 3, {"strides": 2}, ()),
        (8, 1, 200, 3, {"dilation": 2}, ()),
        (8, 2, 200, 3, {}, ()),
        (1, 1, 200, 3, {}, ()),
        (1, 4, 200, 3, {}, ()),
    ],
)
def test_small_depthwise_ones_stay(channels, multiplier, places, taps, options, stays_on):
    """In registers TVM's vector of all places is faster than what it has for two axes."""
    x = relay.var("x", shape=(1, channels, places + taps - 1))
    weight = relay.const(np.ones((channels * multiplier, 1, taps), "float32"))
    module = _typed(
        relay.Function(
            [x],
            relay.nn.conv1d(x, weight, groups=channels, channels=channels * multiplier, kernel_size=taps, **options),
        )
    )
    kept = [one for one in (_WIDE, _NARROW) if one_dimension.as_two(module, one).same_as(module)]
    assert kept == list(stays_on)


def test_a_deep_network():
    """It is walked along without recursion."""
    y = x = relay.var("x", shape=(1, 1, 8))
    weight = relay.const(np.ones((1, 1, 1), "float32"))
    for _ in range(400):
        y = relay.tanh(relay.add(relay.nn.conv1d(y, weight, kernel_size=1), x))
    changed = one_dimension.as_two(_typed(relay.Function([x], y)), _WIDE)
    assert str(changed).count("nn.conv2d") == 400


def test_a_second_of_sound_is_built(command, store, tmp_path):
    """Of 399 places, an eighth, TVM alone makes a kernel in half a minute."""
    path, made = tmp_path / "sound.onnx", tmp_path / "sound.so"
    write(
        path, [node("Conv", ["x", "w"], ["a"], strides=[5]), node("Relu", ["a"], ["out"])],
        values(x=[1, 1, 16000]), values(out=[1, 32, 3199]), weights(w=(32, 1, 10)),
    )  # fmt: skip
    told = command("compile", path, "-o", made, "--backends", "tvm", "--db", store, "--rounds", "2")
    assert told.returncode == 0, told.stderr
    sound = {"x": normal(3, 1, 1, 16000)}
    hold(ran(region.load_executor(made), sound), answers(path, sound))


def test_its_weights_are_constants_where_it_is_measured_alone():
    """With an axis more they would be computed in each run."""
    x, w = relay.var("x", shape=(1, 4, 16)), relay.var("w", shape=(4, 4, 3))
    for convolution, free in (
        (relay.nn.conv1d(x, w, kernel_size=3), set()),
        (relay.nn.conv1d_transpose(x, w, kernel_size=(3,), channels=4), {"w"}),
    ):
        assert batch.weights(relay.Function([x, w], convolution), [{"name": "w"}]) == free


def test_it_is_tuned_as_it_is_built(collage_library, tmp_path):
    """TVM's schedule for one axis leaves nothing to tune."""
    x, w = relay.var("x", shape=(1, 8, 20)), relay.var("w", shape=(16, 8, 3))
    function = relay.Function([x, w], relay.nn.conv1d(x, w, channels=16, kernel_size=3, padding=1))
    spec = {
        "function": tvm.ir.save_json(function),
        "constants": [{"name": "w", "shape": [16, 8, 3], "dtype": "float32"}],
        "tuner": "random",
        "trials": 1,
        "log": str(tmp_path / "log"),
        "trials_log": str(tmp_path / "log.trials"),
    }
    told = tune.tune(spec, lambda *_: None, lambda *_: False)
    assert told["trials"] == 1 and "conv2d" in told["tasks"][0]
