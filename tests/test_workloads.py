# SPDX-License-Identifier: Apache-2.0
"""The benchmark networks have the operators, the shapes and the weights that they are said to have."""

import hashlib

import numpy as np
import pytest
from collage import workloads
from conftest import run_python
from tvm import relay

# What shared notes and the paper's code say: all operators, and how many of some of them.
EXPECTED = {
    "bert_full": (528, {"nn.dense": 48, "nn.batch_matmul": 16}, (1, 64, 256)),
    "dcgan": (30, {"nn.dense": 2, "nn.conv2d": 7, "nn.upsampling": 2}, (1, 1)),
    "nasneta": (427, {"nn.conv2d": 204, "nn.avg_pool2d": 49, "add": 85}, (1, 1280, 14, 14)),
    "resnet50_3d": (116, {"nn.conv3d": 52, "add": 16, "nn.relu": 48}, (1, 2048, 1, 7, 7)),
    "resnext50_32x4d": (116, {"nn.conv2d": 52, "add": 16, "nn.relu": 48}, (1, 2048, 7, 7)),
}


@pytest.mark.parametrize("name", workloads.PAPER)
def test_operators(name):
    module, _ = workloads.build(name)
    total, some, shape = EXPECTED[name]
    counts = workloads.count_operators(module)
    assert sum(counts.values()) == total
    assert {operator: counts[operator] for operator in some} == some
    assert tuple(module["main"].ret_type.shape) == shape


@pytest.mark.parametrize("name", [name for name in workloads.WORKLOADS if name not in workloads.PAPER])
def test_others_are_typed(name):
    module, values = workloads.build(name)
    assert module["main"].ret_type is not None
    names = {var.name_hint for var in module["main"].params} - set(values)
    assert names == {f"input{index}" for index in range(len(names))}


@pytest.mark.parametrize("name", [name for name in workloads.WORKLOADS if name not in ("bert", "kernels")])
def test_batches(name):
    one, values = workloads.build(name)
    many, same = workloads.build(f"{name}@3")
    assert workloads.count_operators(one) == workloads.count_operators(many)
    assert values.keys() == same.keys()
    results = [module["main"].ret_type for module in (one, many)]
    alone, together = (r.fields if hasattr(r, "fields") else [r] for r in results)
    assert [[3 * int(a.shape[0]), *map(int, a.shape[1:])] for a in alone] == [
        [int(d) for d in t.shape] for t in together
    ]


@pytest.mark.parametrize(
    "name, error", [("unet@0", "is no batch"), ("unet@", "is no batch"), ("bert@2", "rows and no batch")]
)
def test_bad_batches(name, error):
    with pytest.raises(ValueError, match=error):
        workloads.build(name)


def parameters(name):
    """How many parameters are learnt: without the statistics of normalisations."""
    _, values = workloads.build(name)
    return sum(value.size for key, value in values.items() if ".running_" not in key)


def test_parameter_counts():
    assert round(parameters("dcgan") / 1e6) == 53
    # What torchvision says of its networks of these names.
    assert parameters("efficientnet_b0") == 5_288_548
    assert parameters("mobilenet_v3") == 5_483_032


def test_mobilenet_v3():
    """The paper's table: 5x5 windows, eight squeezes, hard-swish from the seventh block on, at each end, and behind
    the classifier's first layer."""
    module, _ = workloads.build("mobilenet_v3")
    counts = workloads.count_operators(module)
    assert counts["nn.conv2d"] == 1 + 3 * 15 - 1 + 2 * 8 + 1
    assert counts["nn.adaptive_avg_pool2d"] == 8 + 1
    assert counts["clip"] == 1 + 2 * 9 + 1 + 1 + 8
    assert [int(d) for d in module["main"].ret_type.shape] == [1, 1000]
    windows = []

    def visit(expr):
        if isinstance(expr, relay.Call) and expr.op.name == "nn.conv2d" and expr.attrs.groups > 1:
            windows.append((int(expr.attrs.kernel_size[0]), int(expr.attrs.strides[0])))

    relay.analysis.post_order_visit(module["main"], visit)
    assert windows == [
        (3, 1), (3, 2), (3, 1), (5, 2), (5, 1), (5, 1), (3, 2), (3, 1), (3, 1), (3, 1), (3, 1), (3, 1),
        (5, 2), (5, 1), (5, 1),
    ]  # fmt: skip


def test_groups_and_strides():
    module, _ = workloads.build("resnext50_32x4d")
    grouped = []

    def visit(expr):
        if isinstance(expr, relay.Call) and expr.op.name == "nn.conv2d" and expr.attrs.groups > 1:
            grouped.append((int(expr.attrs.groups), int(expr.attrs.strides[0])))

    relay.analysis.post_order_visit(module["main"], visit)
    assert len(grouped) == 16
    assert {groups for groups, _ in grouped} == {32}
    assert sum(stride == 2 for _, stride in grouped) == 3


def test_weights_follow_from_their_names():
    _, here = workloads.build("bert_full")
    digest = hashlib.sha256(here["transformer_blocks.3.feed_forward.w_1.weight"].tobytes()).hexdigest()
    there = run_python(
        "import hashlib, json\n"
        "from collage import workloads\n"
        "w = workloads.build('bert_full')[1]['transformer_blocks.3.feed_forward.w_1.weight']\n"
        "print(json.dumps(hashlib.sha256(w.tobytes()).hexdigest()))"
    )
    assert digest == there


def test_weights_differ_between_names():
    _, values = workloads.build("resnext50_32x4d")
    one, other = values["layer1.1.conv2.weight"], values["layer1.2.conv2.weight"]
    assert one.shape == other.shape
    assert not np.allclose(one, other)


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"did you mean resnext50_32x4d\?"):
        workloads.build("resnext50_32x4")
