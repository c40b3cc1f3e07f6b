# SPDX-License-Identifier: Apache-2.0
"""Concatenations inside regions of dnnl: of parts that lie in blocks, by pixels or row by row, along each axis."""

import subprocess
import sys

import numpy as np
import placed
import pytest
import tvm
from conftest import environment
from tvm import relay


def layers(*widths, side=5, batch=1):
    """Convolutions of so many channels of one image, each 0 an input that is taken as it is; (parts, inputs)."""
    image = relay.var("image", shape=(batch, 16, side, side))
    inputs, parts = [image], []
    for number, width in enumerate(widths):
        if not width:
            inputs.append(relay.var(f"x{number}", shape=(batch, 3, side, side)))
            parts.append(inputs[-1])
            continue
        weight = relay.const(np.random.default_rng(number).standard_normal((width, 16, 3, 3)).astype("float32") / 12)
        parts.append(relay.nn.conv2d(image, weight, padding=(1, 1), channels=width, kernel_size=(3, 3)))
    return parts, inputs


def joined(parts, axis, behind):
    whole = relay.concatenate(parts, axis=axis)
    return relay.nn.relu(whole) if behind else whole


CASES = {
    "blocks": ((16, 32), 1),
    "many": ((16, 16, 48, 32, 16), 1),
    "no_whole_blocks": ((16, 20), 1),
    "the_largest_alone_fills_its_blocks": ((48, 20), 1),
    "an_input_between": ((32, 0, 16), 1),
    "inputs_alone": ((0, 0), 1),
    "one_number_each": ((1, 1, 1), 1),
    "rows": ((16, 16), 2),
    "columns": ((24, 24), 3),
    "images": ((16, 16), 0),
    "the_same_twice": ((32,), 1),
}


@pytest.mark.parametrize("behind", [False, True], ids=["result", "read"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_concatenations(case, batch, behind, tmp_path):
    widths, axis = CASES[case]
    parts, inputs = layers(*widths, batch=batch)
    if case == "the_same_twice":
        parts = parts * 2
    module = tvm.IRModule.from_expr(relay.Function(inputs, joined(parts, axis, behind)))
    module = relay.transform.InferType()(module)
    made = placed.place(module, "dnnl")
    (operators,) = placed.regions(made).values()
    assert operators["concatenate"] == 1
    hold(module, made, tmp_path)


@pytest.mark.parametrize("level", [pytest.param("plain", marks=pytest.mark.long), "avx2"])
def test_where_convolutions_give_blocks(level):
    """With AVX-512 oneDNN's convolutions here give pixels; less of a processor gives blocks of channels."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "test_concatenations"]
    done = subprocess.run(command, env=environment(COLLAGE_MAX_CPU_ISA=level), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_large_one_is_divided_among_threads(tmp_path):
    """Parts of several pieces of work, in rows that pieces cut through."""
    x, y = relay.var("x", shape=(2, 70, 61, 59)), relay.var("y", shape=(2, 33, 61, 59))
    module = tvm.IRModule.from_expr(relay.Function([x, y], relay.concatenate([x, y, x], axis=1)))
    module = relay.transform.InferType()(module)
    made = placed.place(module, "dnnl")
    assert placed.offloaded(made)["concatenate"] == 1
    hold(module, made, tmp_path)


def test_behind_pixels_and_transposed(tmp_path):
    """What lies with channels innermost, and what a transpose shows otherwise."""
    x, y = relay.var("x", shape=(1, 6, 7, 32)), relay.var("y", shape=(1, 24, 6, 7))
    turned = relay.transpose(x, (0, 3, 1, 2))
    whole = relay.nn.relu(relay.concatenate([turned, relay.nn.relu(y)], axis=1))
    module = tvm.IRModule.from_expr(relay.Function([x, y], whole))
    module = relay.transform.InferType()(module)
    made = placed.place(module, "dnnl")
    assert placed.offloaded(made)["concatenate"] == 1
    hold(module, made, tmp_path)


def hold(module, made, folder):
    inputs = placed.values(module)
    want = placed.expected(module, *inputs)
    executor = placed.load(placed.export_to(folder / "model.so", made))
    for _ in range(2):
        placed.same(placed.run(executor, *inputs), want)
