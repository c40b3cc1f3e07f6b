# SPDX-License-Identifier: Apache-2.0
"""What engines take of networks with open dimensions gives TVM's answer at every size, and what they must refuse stays
with TVM.
"""

import numpy as np
import pytest
import tvm
from collage import export, frontends, transform
from onnx_networks import answers, hold, normal, ran
from placed import place, regions, usable
from test_open_dimensions import NETWORKS
from tvm import relay

ENGINES = ("onnxruntime", "openvino")
ANY = relay.Any()

pytestmark = pytest.mark.usefixtures("collage_library")


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param not in usable():
        pytest.skip(f"the {request.param} backend is not usable here")
    return request.param


def var(*shape, name="x", dtype="float32"):
    return relay.var(name, shape=[ANY if size is None else size for size in shape], dtype=dtype)


def const(*shape, seed=0):
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def sentence(compute):
    """A function of [1, open, 8]."""
    x = var(1, None, 8)
    return relay.Function([x], compute(x)), [{"x": normal(n, 1, n, 8)} for n in (1, 3, 20)]


def two_open(compute):
    """A function of [open, open, 8]."""
    x = var(None, None, 8)
    return relay.Function([x], compute(x)), [{"x": normal(n, b, n, 8)} for b, n in ((1, 1), (2, 3), (3, 9))]


def images(compute):
    """A function of [open, 4, 12, 12]."""
    x = var(None, 4, 12, 12)
    return relay.Function([x], compute(x)), [{"x": normal(n, n, 4, 12, 12)} for n in (1, 2, 5)]


def words(compute):
    ids = var(1, None, name="ids", dtype="int32")
    return relay.Function([ids], compute(ids)), [{"ids": (np.arange(n, dtype="int32") % 6)[None]} for n in (1, 4, 11)]


def attention(x):
    """Two heads of four, over a sequence of any length."""

    def heads(seed):
        rows = relay.nn.dense(relay.reshape(x, [-1, 8]), const(8, 8, seed=seed))
        return relay.reshape(relay.transpose(relay.reshape(rows, [1, -1, 2, 4]), [0, 2, 1, 3]), [2, -1, 4])

    scores = relay.nn.softmax(relay.nn.batch_matmul(heads(1), heads(2)) * relay.const(0.5))
    mixed = relay.nn.batch_matmul(scores, relay.transpose(heads(3), [0, 2, 1]))
    return relay.reshape(relay.transpose(relay.reshape(mixed, [1, 2, -1, 4]), [0, 2, 1, 3]), [1, -1, 8])


def two_heads(x):
    """A batch's heads, as many matrices as a product of them takes, and each sentence's again."""
    heads = relay.transpose(relay.reshape(x, [0, 0, 2, 4]), [0, 2, 1, 3])
    together = nn.relu(relay.reshape(heads, [-3, 0, 0]))
    return relay.transpose(relay.reshape(together, [-4, -1, 2, 0, 0]), [0, 2, 1, 3])


def gelu(x):
    half = relay.const(0.5) * x
    return half * (relay.const(1.0) + relay.erf(x * relay.const(0.70710678)))


def scaled_norm(x):
    return relay.nn.layer_norm(x, const(8, seed=1), const(8, seed=2))


nn = relay.nn
# By name a function, all of which both engines take, with what it is asked.
OPERATORS = {
    "unary": sentence(lambda x: relay.tanh(relay.sigmoid(nn.relu(relay.sqrt(relay.abs(x)))))),
    "exp": sentence(lambda x: relay.exp(relay.negative(relay.abs(x)))),
    "clip": sentence(lambda x: nn.leaky_relu(relay.clip(x, -0.5, 0.5), 0.1)),
    "binary": sentence(lambda x: (x + const(8)) * x - relay.maximum(x, const(1, 8, seed=1)) / relay.const(3.0)),
    "where": sentence(lambda x: relay.where(relay.greater(x, relay.const(0.0)), x, x * x)),
    "cast": sentence(lambda x: relay.cast(relay.cast(x, "int32"), "float32") + x),
    "gelu": sentence(gelu),
    # OpenVINO 2026.4 forgets to divide by the sum here, where it makes one kernel of it all (byoc/runtime).
    "softmax_and_product": sentence(
        lambda x: nn.batch_matmul(nn.softmax(nn.batch_matmul(x, x)), relay.transpose(x, [0, 2, 1]))
    ),
    "softmax": sentence(lambda x: nn.softmax(x, axis=-1)),
    "softmax_along_the_open_one": sentence(lambda x: nn.softmax(x, axis=1)),
    "log_softmax": sentence(lambda x: nn.log_softmax(x, axis=-1)),
    "layer_norm": sentence(scaled_norm),
    "reductions": sentence(lambda x: relay.sum(x, -1, keepdims=True) + relay.max(x, [1], keepdims=True) - relay.min(x)),
    "mean_over_the_open_one": sentence(lambda x: relay.mean(x, 1)),
    "variance": sentence(lambda x: relay.variance(x, -1, keepdims=True)),
    "flat": sentence(lambda x: nn.relu(relay.reshape(x, [-1, 8]))),
    "heads": two_open(lambda x: nn.relu(relay.reshape(x, [0, -1, 2, 4]))),
    "two_open_ones_into_one": two_open(lambda x: nn.relu(relay.reshape(x, [-1, 8]))),
    "reshapes_behind_each_other": two_open(lambda x: nn.relu(relay.reshape(relay.reshape(x, [0, 0, 4, 2]), [0, 0, 8]))),
    "expand_and_squeeze": sentence(lambda x: relay.squeeze(relay.expand_dims(nn.relu(x), 1), [0])),
    "expand_two_open": two_open(lambda x: relay.expand_dims(nn.relu(x), 2)),
    "in_front_of_two_open": two_open(lambda x: relay.expand_dims(nn.relu(x), 0)),
    "two_heads_apart_and_together": two_open(two_heads),
    "rows_like_what_they_were": two_open(
        lambda x: nn.relu(relay.reshape_like(nn.dense(relay.reshape(x, [-1, 8]), const(16, 8)), x, 0, 1, 0, 2))
    ),
    "flatten": images(lambda x: nn.batch_flatten(nn.relu(x))),
    "flatten_two_open": two_open(lambda x: nn.batch_flatten(nn.relu(x))),
    "transpose": two_open(lambda x: relay.transpose(nn.relu(x), [2, 1, 0])),
    "concatenate": sentence(lambda x: relay.concatenate([x, nn.relu(x)], -1)),
    "concatenate_along_the_open_one": sentence(lambda x: relay.concatenate([x, nn.relu(x), const(1, 2, 8)], 1)),
    "dense": sentence(lambda x: nn.relu(nn.dense(relay.reshape(x, [-1, 8]), const(16, 8)) + const(16))),
    "batch_matmul": sentence(lambda x: nn.batch_matmul(x, nn.relu(x))),
    "attention": sentence(attention),
    "take": words(lambda ids: nn.relu(relay.take(const(6, 8), ids, axis=0))),
    "slice": sentence(lambda x: relay.strided_slice(nn.relu(x), [1], [5], axes=[2])),
    "convolution": images(
        lambda x: nn.relu(
            nn.conv2d(x, const(6, 4, 3, 3), padding=(1, 1), channels=6, kernel_size=3) + const(6, 1, 1)
        )
    ),
    "depthwise": images(lambda x: nn.conv2d(x, const(4, 1, 3, 3), groups=4, strides=2, channels=4, kernel_size=3)),
    "pools": images(lambda x: nn.global_avg_pool2d(nn.avg_pool2d(nn.max_pool2d(x, (2, 2), (2, 2)), (2, 2), (2, 2)))),
}  # fmt: skip


def placed_and_plain(function, engine):
    module = transform.Normalise()(tvm.IRModule.from_expr(function))
    return place(module, engine), module


def runs_alike(placed, plain, asked):
    one, other = export.runnable(placed), export.runnable(plain)
    for given in asked:
        hold(ran(one, given), ran(other, given))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operators(operator, engine):
    function, asked = OPERATORS[operator]
    placed, plain = placed_and_plain(function, engine)
    assert len(regions(placed)) == 1, placed
    main = placed["main"].astext(show_meta_data=False)
    assert "nn." not in main and "reshape(" not in main, main
    runs_alike(placed, plain, asked)


REFUSED = {
    "cut_along_the_open_one": sentence(lambda x: nn.relu(relay.strided_slice(x, [0], [1], axes=[1]))),
    "variance_over_the_open_one": sentence(lambda x: nn.relu(relay.variance(x, 1))),
    "taken_of_an_open_one": words(lambda ids: nn.relu(relay.take(relay.cast(ids, "float32"), relay.const(0), axis=1))),
}


@pytest.mark.parametrize("operator", REFUSED)
def test_what_is_written_with_sizes_stays(operator, engine):
    """TVM has it, and the answer is the same."""
    function, asked = REFUSED[operator]
    placed, plain = placed_and_plain(function, engine)
    main = placed["main"].astext(show_meta_data=False)
    assert any(name in main for name in ("strided_slice(", "variance(", "take(")), main
    runs_alike(placed, plain, asked)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.__name__)
def test_networks(network, engine, tmp_path):
    path, (dynamic, inputs) = network(tmp_path / "network.onnx"), NETWORKS[network]
    module = transform.Normalise()(frontends.load(path, dynamic=dynamic).module)
    placed = place(module, engine)
    assert regions(placed)
    model = export.runnable(placed)
    for given in [*inputs, *reversed(inputs)]:
        hold(ran(model, given), answers(path, given))


@pytest.mark.parametrize("operator", ["dense", "convolution"])
def test_what_costs_decide_is_right_at_every_size(operator):
    """Where costs decide, a search with fixed sizes says whose parts with open dimensions are: TVM's or an engine's."""
    function, asked = OPERATORS[operator]
    module = transform.Normalise()(tvm.IRModule.from_expr(function))
    backends = ["tvm", "dnnl", *(name for name in ENGINES if name in usable())]
    runs_alike(transform.CollagePartition(backends=backends)(module), module, asked)
