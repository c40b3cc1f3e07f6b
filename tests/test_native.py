# SPDX-License-Identifier: Apache-2.0
"""The backend native: each of its kernels runs where the program says so, and gives TVM's answer on all levels of
vector instructions; dnnl runs none of them; both stand in one region.
"""

from pathlib import Path

import numpy as np
import placed
import pytest
import tvm
from conftest import run_python
from dnnl_grid import Grid, WholeGrid, channel_bias, region
from dnnl_steps import profile
from native_placement import KERNELS, prefer
from tvm import relay

nn = relay.nn
pytestmark = pytest.mark.skipif("native" not in placed.usable(), reason="native cannot be used here")

# How the steps of each kernel begin, in DNNLDescribe and in profiles.
STEPS = {
    "winograd": "conv winograd", "narrow": "narrow_conv",
    "upsampled": "upsampled_conv", "product": "product", "strips": "strips",
    "expansion": "strips", "attention": "attention", "norm": "norm",
    "grid": "grid", "ragged": "clear padding", "recurrent": "recurrent",
}  # fmt: skip
LEVELS = ("plain", "avx2", "avx512")


def relu_of(operator, **attributes):
    """The body of a composite: an operator with a bias and relu."""
    return lambda x, w, b: nn.relu(operator(x, w, **attributes) + b)


def attend(q, k, v):
    scores = nn.batch_matmul(q, k, transpose_b=True) / relay.const(4.0)
    return nn.batch_matmul(nn.softmax(scores), v, transpose_b=False)


def standardise(x, gain, shift):
    mean = relay.mean(x, axis=-1, keepdims=True)
    deviation = relay.sqrt(relay.variance(x, axis=-1, keepdims=True, with_mean=mean)) + relay.const(1e-3)
    return gain * (x - mean) / deviation + shift


def layer_norm(x, gain, shift, axes=(-1,)):
    mean = relay.mean(x, axis=list(axes), keepdims=True)
    variance = relay.variance(x, axis=list(axes), keepdims=True, with_mean=mean)
    return (x - mean) / relay.sqrt(variance + relay.const(1e-3)) * gain + shift


def rms_norm(x, gain):
    square = relay.mean(x * x, axis=[-1], keepdims=True)
    return gain * (x * relay.rsqrt(square + relay.const(1e-3)))


def group_norm(x, gain, shift, groups=4):
    batch, channels, *space = (int(dim) for dim in relay.transform.InferTypeLocal(x).shape)
    parts = relay.reshape(x, (batch, groups, channels // groups, *space))
    axes = list(range(2, len(space) + 3))
    mean = relay.mean(parts, axis=axes, keepdims=True)
    variance = relay.variance(parts, axis=axes, keepdims=True, with_mean=mean)
    normal = (parts - mean) / relay.sqrt(variance + relay.const(1e-3))
    return relay.reshape(normal, (batch, channels, *space)) * gain + shift


def instance_norm(x, gain, shift):
    return layer_norm(x, gain, shift, axes=(2, 3))


def instance_norm_nhwc(x, gain, shift):
    return layer_norm(x, gain, shift, axes=(1, 2))


def group_norm_nhwc(x, gain, shift, groups=4):
    batch, *space, channels = (int(dim) for dim in relay.transform.InferTypeLocal(x).shape)
    parts = relay.reshape(x, (batch, *space, groups, channels // groups))
    axes = [*range(1, len(space) + 1), len(space) + 2]
    mean = relay.mean(parts, axis=axes, keepdims=True)
    variance = relay.variance(parts, axis=axes, keepdims=True, with_mean=mean)
    normal = (parts - mean) / relay.sqrt(variance + relay.const(1e-3))
    return relay.reshape(normal, (batch, *space, channels)) * gain + shift


def swish(x):
    return x * relay.sigmoid(x)


def on_grid(scale, zero, dtype="uint8"):
    """The body of a composite: to the steps of a scale, and back."""

    def body(x):
        by = (relay.const(scale), relay.const(zero))
        return relay.qnn.op.dequantize(relay.qnn.op.quantize(x, *by, out_dtype=dtype), *by)

    return body


def lstm(x, h, c, weights, bias):
    """Three steps, as front ends write them."""
    states = []
    for step in relay.split(x, 3, 0):
        both = relay.concatenate([relay.squeeze(step, [0]), h], 1)
        i, f, g, o = relay.split(nn.dense(both, weights) + bias, 4, 1)
        c = relay.sigmoid(f) * c + relay.sigmoid(i) * relay.tanh(g)
        h = relay.sigmoid(o) * relay.tanh(c)
        states.append(h)
    return relay.stack(states, 0)


def compositions(grid):
    """(composite, body, arguments) for each kernel."""
    image = grid.input(1, 16, 9, 11)

    def weight(*shape):
        return grid.constant(*shape, low=-0.3, high=0.3)

    def convolution(channels, inputs, size, **attributes):
        return relu_of(nn.conv2d, channels=channels, kernel_size=(size, size), **attributes), (
            image, weight(channels, inputs, size, size), channel_bias(grid, 2, channels),
        )  # fmt: skip

    def up(x, w, b):
        return nn.relu(nn.conv2d(nn.upsampling(x, 2, 2), w, channels=5, kernel_size=(3, 3), padding=(1, 1)) + b)

    heads = [grid.input(3, 7, 16) for _ in range(3)]
    rows = grid.input(24, 40)
    gain = (grid.input(6, 40), grid.constant(40), grid.constant(40))
    channels = (image, channel_bias(grid, 2, 16), channel_bias(grid, 2, 16))
    last = (grid.input(2, 9, 11, 20), grid.constant(20), grid.constant(20))
    return [
        ("winograd_conv2d_bias_relu", *convolution(32, 16, 3, padding=(1, 1))),
        ("narrow_conv2d_bias_relu", *convolution(3, 16, 5)),
        ("upsampled_conv2d_bias_relu", up, (image, weight(5, 16, 3, 3), channel_bias(grid, 2, 5))),
        ("product_dense_bias_relu", relu_of(nn.dense), (rows, weight(32, 40), grid.constant(32))),
        ("product_batch_matmul", nn.batch_matmul, (grid.input(3, 7, 19), grid.input(3, 23, 19))),
        ("strip_conv2d_bias_relu", *convolution(20, 16, 1)),
        ("expansion_conv2d_bias_relu", *convolution(20, 16, 1)),  # by itself as any 1x1 convolution in strips
        ("strip_depthwise_conv2d_bias_relu", *convolution(16, 1, 3, groups=16, padding=(1, 1))),
        ("strip_add", lambda a, b: a + b, (image, grid.input(1, 16, 9, 11))),
        ("strip_multiply", lambda a, b: a * b, (image, grid.input(1, 16, 1, 1))),
        ("strip_relu", nn.relu, (image,)),
        ("strip_clip", lambda x: relay.clip(x, -0.3, 0.4), (image,)),
        ("strip_sigmoid", relay.sigmoid, (image,)),
        ("strip_hardsigmoid", lambda x: relay.clip(x * relay.const(0.2) + relay.const(0.5), 0.0, 1.0), (image,)),
        ("strip_hardswish", lambda x: x * relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0), (image,)),
        ("strip_max_pool2d", lambda x: nn.max_pool2d(x, (3, 3), (2, 2)), (image,)),
        ("strip_avg_pool2d", lambda x: nn.avg_pool2d(x, (2, 2)), (image,)),
        ("strip_concatenate", lambda a, b: relay.concatenate([a, b], 1), (image, grid.input(1, 3, 9, 11))),
        ("attention", attend, heads),
        ("standardise", standardise, gain),
        ("layer_norm", layer_norm, gain),
        ("sum_layer_norm", lambda x, y, gain, shift: layer_norm(x + y, gain, shift), (grid.input(6, 40), *gain)),
        ("sum_standardise", lambda x, y, gain, shift: standardise(y + x, gain, shift), (grid.constant(40), *gain)),
        ("rms_norm", rms_norm, gain[:2]),
        ("sum_rms_norm", lambda x, y, gain: rms_norm(x + y, gain), (grid.input(6, 40), *gain[:2])),
        ("group_norm", group_norm, channels),
        ("group_norm_swish", lambda *given: swish(group_norm(*given)), channels),
        ("instance_norm_relu", lambda *given: nn.relu(instance_norm(*given)), channels),
        ("group_norm_relu", lambda *given: nn.relu(group_norm_nhwc(*given)), last),
        ("instance_norm_swish", lambda *given: swish(instance_norm_nhwc(*given)), last),
        ("sum_group_norm", lambda x, y, *given: group_norm(x + y, *given), (grid.input(1, 16, 9, 11), *channels)),
        ("sum_group_norm_swish", lambda t, *given: swish(group_norm_nhwc(given[0] + t, *given[1:])),
         (grid.input(2, 1, 1, 20), *last)),
        ("sum_instance_norm", lambda t, *given: instance_norm(given[0] + t, *given[1:]),
         (grid.input(1, 16, 1, 1), *channels)),
        ("sum_instance_norm_relu", lambda x, *given: nn.relu(instance_norm_nhwc(x + given[0], *given[1:])),
         (grid.input(2, 9, 11, 20), *last)),
        ("sum_channel_scale_relu", lambda x, y, gain, shift: nn.relu((x + y) * gain + shift),
         (grid.input(1, 16, 9, 11), *channels)),
        ("ragged", lambda valid, x: relay.where(valid, x, relay.const(0.0)),
         (relay.greater(grid.input(2, 3, 1), relay.const(0.0)), grid.input(2, 3, 20))),
        ("lstm", lstm, (grid.input(3, 5, 9), grid.input(5, 21), grid.input(5, 21), weight(84, 30), grid.constant(84))),
        ("channel_scale", lambda x, gain, shift: x * gain + shift, channels),
        ("channel_scale_relu", lambda x, gain, shift: nn.relu(x * gain + shift), channels),
    ]  # fmt: skip


def run_each():
    """{composite: steps that its region took}; each gives TVM's answer."""
    from dnnl_steps import profiled_regions
    from test_dnnl_operators import install

    install()
    grid, regions, names = Grid(), [], []
    for name, body, arguments in compositions(grid):
        names.append(name)
        grid.add(name, body(*arguments), rtol=1e-3, atol=1e-4)
        regions.append(region(f"r_{name}", f"native.{name}", body, *arguments))
    function = relay.Function(list(grid.inputs), relay.Tuple(regions))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    taken = {}
    run = grid.run

    def profiled(module):
        given, told = profiled_regions(lambda: run(module))
        for symbol, steps in told.items():
            name = next(name for name in names if symbol.endswith(f"r_{name}"))
            taken[name] = [step["what"] for step in steps if not step.get("reorder")]
        return given

    grid.run = profiled
    grid.check(lambda _: module)
    return taken


EACH = """
import json, sys
sys.path.insert(0, sys.argv[1])
import test_native
print(json.dumps(test_native.run_each()))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_each_kernel_at_each_level(collage_library, level):
    taken = run_python(EACH, Path(__file__).parent, COLLAGE_MAX_CPU_ISA=level, timeout=600)
    assert {kernel_of(name) for name in taken} == set(STEPS) - {"grid"}  # which TVM takes apart unless it is placed
    for name, steps in taken.items():
        kernel = kernel_of(name)
        own = [step for step in steps if step.startswith(STEPS[kernel])]
        assert own and own == steps[: 1 if kernel != "recurrent" else 2], f"{name}: {steps}"
        assert kernel not in ("norm", "recurrent") or own == steps, f"{name}: {steps}"


def kernel_of(name):
    return KERNELS[name.split("_")[0]]


def network(grid, first=lambda x: x):
    """Something for each kernel, with what only oneDNN has in between; something else is done first."""
    x = first(grid.input(1, 16, 16, 16))

    def convolve(y, inputs, channels, size, **attributes):
        weight = grid.constant(channels, inputs // attributes.get("groups", 1), size, size, low=-0.3, high=0.3)
        y = nn.conv2d(y, weight, channels=channels, kernel_size=(size, size), padding=(size // 2,) * 2, **attributes)
        return y + channel_bias(grid, 2, channels)

    y = nn.relu(convolve(x, 16, 32, 3))
    y = nn.relu(convolve(y, 32, 32, 1) + y)
    y = relay.tanh(convolve(y, 32, 32, 3, groups=32))
    y = convolve(nn.upsampling(y, 2, 2), 32, 4, 3)
    picture = relay.sigmoid(y)
    flat = relay.reshape(nn.avg_pool2d(picture, (2, 2), (2, 2)), (16, 64))
    flat = nn.relu(nn.dense(flat, grid.constant(48, 64, low=-0.3, high=0.3)) + grid.constant(48))
    heads = relay.transpose(relay.reshape(flat, (1, 16, 3, 16)), (0, 2, 1, 3))
    heads = relay.reshape(heads, (3, 16, 16))
    mixed = relay.reshape(relay.transpose(attend(heads, heads, heads), (1, 0, 2)), (16, 48))
    mixed = standardise(mixed, grid.constant(48), grid.constant(48))
    row = relay.reshape(nn.softmax(mixed), (1, 768))
    return [picture, nn.dense(row, grid.constant(10, 768, low=-0.1, high=0.1))]


def steps_of(partition, *first):
    """What the network's regions did, and the placed module; it gives TVM's answer."""
    grid, told, found = WholeGrid(3), [], []
    for i, result in enumerate(network(grid, *first)):
        grid.add(f"result {i}", result, rtol=1e-3, atol=1e-4)
    run = grid.run

    def profiled(module):
        given, steps = profile(lambda: run(module))
        told.extend(step["what"] for step in steps)
        found.append(module)
        return given

    grid.run = profiled
    grid.check(partition)
    return told, found[0]


def test_dnnl_runs_none_of_them(collage_library):
    import collage

    told, module = steps_of(lambda module: collage.partition(module, only="dnnl"))
    assert len(told) > 10
    for step in told:
        assert not step.startswith(tuple(STEPS.values())), step
    assert {function.attrs["Compiler"] for function in regions(module)} == {"collage_dnnl"}


def regions(module):
    return [f for f in module.functions.values() if f.attrs and "Compiler" in f.attrs]


def test_both_stand_in_one_region(collage_library):
    """The kernels are those that were wanted, oneDNN does the rest, and it is one region."""
    wanted = ["winograd", "strips", "expansion", "upsampled", "product", "attention", "norm", "grid"]
    told, module = steps_of(prefer(*wanted), on_grid(0.5, 100))
    assert len(regions(module)) == 1
    for kernel, begin in STEPS.items():
        there = any(step.startswith(begin) for step in told)
        assert there == (kernel in wanted), f"{kernel}: {told}"
    assert any(step.startswith("softmax") for step in told), "what oneDNN has and native does not"


# Two models of one file, run and let go of: what all models hold together after each of these, and what they answer.
TWO_COPIES = """
import gc, json, sys
import numpy as np, tvm
import collage

def shared():  # of the runtime that comes with the first model
    return tvm.get_global_func("collage.runtime.SharedBytes")()

values, models, held = np.load(sys.argv[2]), [], []
for _ in range(2):
    models.append(collage.load(sys.argv[1]))
    models[-1].set_input("x", values)
    models[-1].run()
    held.append(shared())
np.savez(sys.argv[3], *[model.get_output(0).numpy() for model in models])
models.clear()
gc.collect()
print(json.dumps([*held, shared()]))
"""


def test_weights_of_one_row_lie_in_huge_pages(collage_library, tmp_path):
    """A dense layer of one row whose weights fill huge pages: TVM's answer, and memory that two copies share."""
    rng = np.random.default_rng(4)
    x = relay.var("x", shape=(1, 1024))
    weights = relay.const(rng.uniform(-0.1, 0.1, (1088, 1024)).astype("float32"))
    bias = relay.const(rng.uniform(-1, 1, 1088).astype("float32"))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.dense(x, weights) + bias)))
    placed.export_to(str(tmp_path / "model.so"), placed.place(module, "native"))
    values = rng.uniform(-1, 1, (1, 1024)).astype("float32")
    np.save(tmp_path / "x.npy", values)
    # A process of its own: nothing of other tests' is held there, nor given back meanwhile.
    held = run_python(TWO_COPIES, *(tmp_path / name for name in ("model.so", "x.npy", "y.npz")))
    matrix = 1088 * 1024 * 4
    assert held == [matrix, matrix, 0]
    with np.load(tmp_path / "y.npz") as answers:
        for answer in answers.values():
            placed.same([answer], placed.expected(module, values))
