# SPDX-License-Identifier: Apache-2.0
"""Regions and whole networks on OpenVINO: outputs, exported models, threads, a library that is not there."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tvm
from conftest import environment
from openvino_grid import Grid, regions, run, why_not
from tvm import relay
from tvm.contrib import graph_executor

nn = relay.nn

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def partition(collage_library):
    import collage

    return lambda module: collage.partition(module, backends=["tvm", "openvino"], only="openvino")


@pytest.fixture
def grid():
    return Grid()


def test_regions_with_several_results(grid, partition):
    """One region with many outputs: inner values, a value twice, an input's own reshaping."""
    x = grid.input(1, 8, 10, 10)
    a = nn.relu(nn.conv2d(x, grid.constant(8, 8, 3, 3), channels=8, kernel_size=(3, 3), padding=(1, 1)))
    b = nn.max_pool2d(a, (2, 2), (2, 2))
    c = nn.conv2d(a, grid.constant(4, 8, 1, 1), channels=4, kernel_size=(1, 1))
    grid.add("a", a, "nn.conv2d", "nn.relu")
    grid.add("b", b, "nn.max_pool2d")
    grid.add("b again", b)
    grid.add("c", relay.transpose(c, (0, 2, 3, 1)), "nn.conv2d", "transpose")
    grid.add("x", relay.reshape(x, (8, 100)), "reshape")
    grid.check(partition)


def test_one_tbb(partition):
    """OpenVINO runs on the oneTBB that the model's own loops run on."""
    grid = Grid()
    grid.add("relu", nn.relu(grid.input(2, 8)), "nn.relu")
    grid.check(partition)
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "/libtbb.so" in line}
    assert len(loaded) == 1, loaded


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d"])
def test_networks(partition, name):
    """Each network as one region, nothing left to TVM, the same answer."""
    import collage
    from collage import export, frontends, workloads

    module, params = workloads.build(name)
    typed = relay.transform.InferType()(module)
    bound = frontends.bind(typed, params, "the module", "params")
    placed = collage.partition(module, params, backends=["tvm", "openvino"], only="openvino")
    assert len(regions(placed)) == 1
    left = []
    relay.analysis.post_order_visit(
        placed["main"],
        lambda e: left.append(e.op.name) if isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op) else None,
    )
    assert not left
    names = set(params)
    inputs = {
        v.name_hint: np.random.RandomState(1).standard_normal([int(d) for d in v.checked_type.shape]).astype("float32")
        for v in typed["main"].params
        if v.name_hint not in names
    }
    got, want = (execute(export.build(m), inputs) for m in (placed, bound))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4 * np.abs(other).max())


def execute(factory, inputs):
    """Run a built model once."""
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    for name, value in inputs.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


LOAD = """
import sys
import numpy as np
import tvm
from tvm.contrib import graph_executor

executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
for _ in range(3):  # with inputs that lie elsewhere each time
    value = np.random.RandomState(3).rand(2, 8, 16).astype("float32")
    executor.set_input("x0", value)
    executor.run()
np.save(sys.argv[2], executor.get_output(0).numpy())
"""


@pytest.fixture(scope="module")
def exported(collage_library, tmp_path_factory):
    """A small model on OpenVINO as a file, and its answer by TVM."""
    import collage

    grid = Grid()
    one = nn.softmax(nn.dense(relay.reshape(grid.input(2, 8, 16), (16, 16)), grid.constant(9, 16)) + grid.constant(9))
    grid.add("model", one)
    module = grid.module()
    path = tmp_path_factory.mktemp("exported") / "model.so"
    collage.compile(module, backends=["tvm", "openvino"], only="openvino", out=path)
    return path, run(module, {"x0": np.random.RandomState(3).rand(2, 8, 16).astype("float32")})[0]


def load_elsewhere(path, result, **environment):
    """Run an exported model in a process that knows only TVM's own loader."""
    variables = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", LOAD, str(path), str(result)],
        capture_output=True,
        text=True,
        timeout=300,
        env=variables,
    )


def test_exported_model_runs_under_plain_tvm(exported, tmp_path):
    path, want = exported
    result = load_elsewhere(path, tmp_path / "out.npy")
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), want, rtol=1e-4, atol=1e-5)


def test_loading_without_the_library_says_so(exported, tmp_path):
    path, _ = exported
    result = load_elsewhere(path, tmp_path / "out.npy", COLLAGE_OPENVINO_LIBRARY="/nowhere/libopenvino_c.so")
    assert result.returncode != 0
    assert "this model needs OpenVINO 2026.4 or later: " in result.stderr
    assert "OpenVINO cannot be opened where COLLAGE_OPENVINO_LIBRARY says" in result.stderr


THREADS = """
import json
import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import tvm
from tvm.contrib import graph_executor

executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
executor.run()
masks = set()
for task in os.listdir("/proc/self/task"):
    masks.add(tuple(sorted(os.sched_getaffinity(int(task)))))
began, used = time.perf_counter(), time.process_time()
for _ in range(200):
    executor.run()
print(json.dumps({
    "masks": sorted(masks),
    "mine": sorted(os.sched_getaffinity(0)),
    "threads": (time.process_time() - used) / (time.perf_counter() - began),
}))
"""


def test_pinning_is_respected(exported):
    """A process that may run on one core does, with any number of threads; nothing is pinned anew."""
    path, _ = exported
    for threads in (1, 2):
        variables = {**os.environ, "COLLAGE_NUM_THREADS": str(threads)}
        result = subprocess.run(
            [sys.executable, "-c", THREADS, str(path)],
            capture_output=True,
            text=True,
            timeout=300,
            env=variables,
        )
        assert result.returncode == 0, result.stderr
        said = json.loads(result.stdout.splitlines()[-1])
        assert said["masks"] == [said["mine"]]
        # One core: more than its time cannot be used.
        assert said["threads"] < 1.2


def test_one_thread_is_one_thread(exported):
    """With COLLAGE_NUM_THREADS=1 nothing of OpenVINO runs beside the calling thread."""
    path, _ = exported
    program = THREADS.replace("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n", "")
    variables = {**os.environ, "COLLAGE_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=300, env=variables
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["threads"] < 1.2


def test_searching_without_the_library_says_so(collage_library):
    program = """
import collage, tvm
from tvm import relay
x = relay.var("x", shape=(2, 3))
module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
try:
    collage.partition(module, backends=["tvm", "openvino"], only="openvino")
except Exception as error:
    print(error)
"""
    variables = environment(COLLAGE_OPENVINO_LIBRARY="/nowhere/libopenvino_c.so")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, env=variables)
    assert result.returncode == 0, result.stderr
    assert "/nowhere/libopenvino_c.so" in result.stdout
    assert "make backends BACKENDS=openvino" in result.stdout


def test_the_search_measures_it(collage_library, tmp_path):
    """Measured candidates: OpenVINO's single operators, fused ones and whole regions against TVM's."""
    import collage

    store = tmp_path / "costs.jsonl"
    grid = Grid()
    one = grid.input(1, 8, 16, 16)
    for _ in range(2):
        weight = grid.constant(8, 8, 3, 3)
        one = nn.relu(nn.conv2d(one, weight, channels=8, kernel_size=(3, 3), padding=(1, 1)) + grid.constant(8, 1, 1))
    grid.add("two layers", one)
    module = grid.module()
    placed = collage.partition(
        module, backends=["tvm", "openvino"], store=str(store), samples=3, exhaustive=True, level="operator"
    )
    got, want = run(placed, grid.inputs), run(module, grid.inputs)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)
    costs = [json.loads(line) for line in store.read_text().splitlines()]
    taken = [c for c in costs if c.get("key", {}).get("backend") == "openvino"]
    assert taken, "no candidate of OpenVINO's was measured"
    assert not [c for c in taken if c.get("failure")]
