# SPDX-License-Identifier: Apache-2.0
"""Regions built many at once give what each gives that is built by itself: the same kernels and numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from collage import artefact, batch, export, graph_cut, region
from test_worker import conv_function, relu_function, saved
from tvm import relay


def request(key, function, constants=()):
    return {"function": saved(function), "constants": list(constants), "key": key, "threads": 2}


def depthwise():
    x, w = relay.var("i0", shape=(1, 16, 9, 9)), relay.var("c0", shape=(16, 1, 3, 3))
    y = relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=16, groups=16)
    y = relay.sqrt(relay.add(relay.abs(y), relay.const(np.float32(0.5))))
    return relay.Function([x, w], y), [{"name": "c0", "shape": [16, 1, 3, 3], "dtype": "float32"}]


def shared_weight():
    """A constant that is a weight and an operand, too: it must be inside."""
    x, w = relay.var("i0", shape=(8, 24)), relay.var("c0", shape=(8, 24))
    return relay.Function([x, w], relay.add(relay.nn.dense(x, w), relay.sum(w, axis=[1]))), [
        {"name": "c0", "shape": [8, 24], "dtype": "float32"}
    ]


def transposed_weight():
    """A weight behind an operator: computed from constants alone."""
    x, w = relay.var("i0", shape=(8, 24)), relay.var("c0", shape=(24, 16))
    y = relay.nn.dense(x, relay.transpose(w, axes=[1, 0]))
    return relay.Function([x, w], relay.nn.relu(y)), [{"name": "c0", "shape": [24, 16], "dtype": "float32"}]


def several_results():
    x, y = relay.var("i0", shape=(4, 6)), relay.var("i1", shape=(4, 6))
    pieces = relay.split(relay.add(x, y), 2, axis=1)
    return relay.Function([x, y], relay.Tuple([pieces[0], relay.exp(pieces[1]), relay.reshape(x, (24,))])), []


def unused_input():
    x, y = relay.var("i0", shape=(3, 3)), relay.var("i1", shape=(3, 3))
    return relay.Function([x, y], relay.tanh(y)), []


def composite():
    x = relay.var("i0", shape=(4, 32))
    inner = relay.var("a", shape=(4, 32))
    function = relay.Function([inner], relay.nn.relu(relay.negative(inner)))
    function = function.with_attr("Composite", tvm.runtime.String("some.relu"))
    region = relay.Function([x], relay.Call(function, [x]))
    return region.with_attr("Compiler", tvm.runtime.String("some")), []


def scatter(indices=(2, 40, 30)):
    """A constant that says where something is written, within a composite function."""
    into, updates = (50, 60, 3), (40, 30, 3)
    x, y, at = relay.var("a", shape=into), relay.var("b", shape=updates), relay.var("c", shape=indices, dtype="int32")
    inner = relay.Function([x, y, at], relay.scatter_nd(x, at, y, "update"))
    inner = inner.with_attr("Composite", tvm.runtime.String("some.scatter"))
    x, y, at = (
        relay.var("i0", shape=into),
        relay.var("i1", shape=updates),
        relay.var("c0", shape=indices, dtype="int32"),
    )
    constants = [{"name": "c0", "shape": list(indices), "dtype": "int32"}]
    return relay.Function([x, y, at], relay.Call(inner, [x, y, at])), constants


CASES = [
    conv_function,
    lambda: conv_function(32),
    lambda: (relu_function(), []),
    depthwise,
    shared_weight,
    transposed_weight,
    several_results,
    unused_input,
    composite,
    scatter,
]


def test_where_something_is_written_no_place_stands_twice():
    function, constants = scatter()
    array = region.large_constants(function, constants, "key", False)["c0"].numpy()
    places = set(zip(*array.reshape(2, -1).tolist(), strict=True))
    assert array.dtype == "int32" and len(places) == 40 * 30
    assert array.min() >= 0 and array[0].max() < 50 and array[1].max() < 60
    again = region.large_constants(function, constants, "key", False)["c0"].numpy()
    assert (array == again).all(), "the same for the same key"
    assert region.places((1, 4), "int32", np.random.default_rng(0), (3, 9)) is None, "four of three"


@pytest.fixture(scope="module")
def requests():
    return [request(f"k{index}", *case()) for index, case in enumerate(CASES)]


def test_a_batch_gives_what_each_gives_alone(requests, tmp_path):
    manifest = batch.build({"items": requests, "folder": str(tmp_path), "name": "b"})["manifest"]
    kept = artefact.Artefacts()
    kept.add(batch.load(manifest))
    for told in requests:
        together = kept.get(told, "")
        alone = artefact.build(told, "")()
        for _ in range(2):  # nothing is used up by a run
            got, want = together.outputs(), alone.outputs()
            assert len(got) == len(want)
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)


def test_answers_with_constants_of_ones_own_are_not_those_with_random_ones():
    """Both have the same key: native's causal attention keeps its mask, an engine's candidate is given one."""
    function, constants = conv_function()
    x, weight = function.params
    own = relay.bind(function.body, {weight: relay.const(np.ones([16, 16, 3, 3], "float32"))})
    kept = artefact.Artefacts()
    mine = kept.reference(request("same", relay.Function([x], own)))
    told = request("same", function, constants)
    for _ in range(2):
        (theirs,) = kept.reference(told)
        np.testing.assert_array_equal(theirs, artefact.build(told, "")().outputs()[0])
    assert not np.array_equal(mine[0], theirs)


def test_a_batch_is_loaded_by_a_process_that_built_nothing(requests, tmp_path):
    """Nor has it loaded the plug-in that the batch's library names, or been told where that is (conftest tells)."""
    manifest = batch.build({"items": requests[:1], "folder": str(tmp_path), "name": "b"})["manifest"]
    program = "import sys; from collage import batch; batch.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, manifest], check=True, env={**os.environ, "LD_LIBRARY_PATH": ""})


def test_no_kernel_is_compiled_that_lays_a_weight_out(requests, tmp_path):
    manifest = batch.build({"items": requests[:2], "folder": str(tmp_path), "name": "b"})["manifest"]
    for told in json.loads(Path(manifest).read_text())["regions"]:
        assert told["once"] is None
        ((weight, layout, _),) = told["laid"].values()
        assert weight in told["weights"] and layout == "OIHW"


def test_the_same_kernels(requests, tmp_path):
    """What is run at each call is what relay.build with all constants inside makes of the region."""
    manifest = batch.build({"items": requests, "folder": str(tmp_path), "name": "b"})["manifest"]
    described = json.loads(Path(manifest).read_text())["regions"]

    def kernels(graph):
        return sorted(node["attrs"].get("hash", "") for node in graph["nodes"] if node["op"] != "null")

    for told, part in zip(requests, described, strict=True):
        alone = region.Region(tvm.ir.load_json(told["function"]), told["constants"], told["key"])
        factory = export.build(alone.module(""))
        assert kernels(part["each"]) == kernels(json.loads(factory.get_graph_json())), told["key"]


@pytest.mark.fast
def test_weights_that_may_stay_outside():
    for case, expected in ((conv_function, {"c0"}), (shared_weight, set()), (transposed_weight, set())):
        function, constants = case()
        assert batch.weights(region.plain(function), constants) == expected, case.__name__


def test_printing_works_after_a_build_that_fails(requests, tmp_path):
    bad = request("bad", relu_function())
    bad["function"] = "not json"
    with pytest.raises(ValueError):
        batch.build({"items": [*requests[:1], bad], "folder": str(tmp_path), "name": "b"})
    with pytest.raises(Exception, match="target"):
        batch.build({"items": [{**requests[0], "target": "llvm -mcpu=no -q=1"}], "folder": "/", "name": "b"})
    assert str(tvm.tir.Var("x", "int32") + 1) == "x + 1"


@pytest.mark.fast
def test_what_constants_alone_decide_is_cut_off():
    """x, w -> f(x, pack(w)): pack is run once; storage that the plan shares stays apart where it must."""
    graph = {
        "nodes": [
            {"op": "null", "name": "x", "inputs": []},
            {"op": "null", "name": "w", "inputs": []},
            {"op": "tvm_op", "name": "pack", "attrs": {"func_name": "pack"}, "inputs": [[1, 0, 0]]},
            {"op": "tvm_op", "name": "f", "attrs": {"func_name": "f"}, "inputs": [[0, 0, 0], [2, 0, 0]]},
            {"op": "tvm_op", "name": "flat", "attrs": {"func_name": "__nop"}, "inputs": [[3, 0, 0]]},
        ],
        "arg_nodes": [0, 1],
        "heads": [[4, 0, 0]],
        "attrs": {
            "dltype": ["list_str", ["float32"] * 5],
            "device_index": ["list_int", [1] * 5],
            "storage_id": ["list_int", [0, 1, 2, 3, 3]],
            "shape": ["list_shape", [[2], [3], [4], [5], [5, 1]]],
        },
        "node_row_ptr": [0, 1, 2, 3, 4, 5],
    }
    cut = graph_cut.cut(graph, [0], lambda name: name == "w")
    assert (cut.inputs, cut.once_inputs, cut.folded) == (["x"], ["w"], ["folded0"])
    assert [node["name"] for node in cut.once["nodes"]] == ["w", "pack"]
    assert [node["name"] for node in cut.each["nodes"]] == ["x", "folded0", "f", "flat"]
    assert cut.each["attrs"]["shape"][1] == [[2], [4], [5], [5, 1]]
    assert cut.each["attrs"]["storage_id"][1] == [0, 1, 2, 2]
    assert cut.each["heads"] == [[3, 0, 0]] and cut.once["heads"] == [[1, 0, 0]]
    assert cut.each["nodes"][2]["inputs"] == [[0, 0, 0], [1, 0, 0]]
