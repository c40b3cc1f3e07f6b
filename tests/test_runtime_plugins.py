# SPDX-License-Identifier: Apache-2.0
"""The runtime plug-ins by themselves: no Go, no Collage, only TVM and the two libraries.

What is loaded into a process stays there, so each test that depends on what is loaded runs its
program in a fresh Python.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PLUGINS = Path(
    os.environ.get("COLLAGE_PLUGIN_DIR") or Path(__file__).resolve().parents[1] / "python" / "collage" / "lib"
)
RUNTIME = PLUGINS / "libcollage_runtime.so"
DNNL = PLUGINS / "libcollage_dnnl_tvm.so"

# Code in the form that TVM generates: context pointers that TVM fills, packed functions.
KERNELS = r"""
#include <tvm/runtime/c_backend_api.h>
#include <stdint.h>
#include <stdio.h>
extern "C" {
typedef int (*Launch)(FTVMParallelLambda, void*, int);
Launch __TVMBackendParallelLaunch;
void (*__TVMAPISetLastError)(const char*);
#ifdef WITH_BARRIER
int (*__TVMBackendParallelBarrier)(int, TVMParallelGroupEnv*);
#endif
#define PACKED(name) int32_t name(void* a, int32_t* c, int32_t n, void* rv, int32_t* rc, void* h)
#define RETURN_INT(v) do { *(int64_t*)rv = (v); *rc = 0; return 0; } while (0)

static int count_task(int id, TVMParallelGroupEnv* env, void* data) {
  __atomic_fetch_add((int64_t*)data, 1 + 1000 * env->num_task, __ATOMIC_SEQ_CST);
#ifdef WITH_BARRIER
  return __TVMBackendParallelBarrier(id, env);
#else
  return 0;
#endif
}
// Tasks that ran, plus 1000 times the tasks that each of them was told of.
PACKED(count) {
  int64_t total = 0;
  int code = __TVMBackendParallelLaunch(count_task, &total, (int)((TVMValue*)a)[0].v_int64);
  if (code != 0) return code;
  RETURN_INT(total);
}

static int nest_task(int id, TVMParallelGroupEnv* env, void* data) {
  return __TVMBackendParallelLaunch(count_task, data, 5);
}
PACKED(nest) {
  int64_t total = 0;
  int code = __TVMBackendParallelLaunch(nest_task, &total, 7);
  if (code != 0) return code;
  RETURN_INT(total);
}

static int fail_task(int id, TVMParallelGroupEnv* env, void* data) {
  char text[32];
  if (id % 2 == 0) return 0;
  snprintf(text, sizeof text, "task %d gave up", id);
  __TVMAPISetLastError(text);
  return -1;
}
PACKED(fail) { return __TVMBackendParallelLaunch(fail_task, 0, 4); }
}
"""

# What the programs in the fresh processes begin with.
PRELUDE = """
import json, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
packed = lambda name: tvm.get_global_func(name, allow_missing=True)
launches = lambda: packed("collage.runtime.ParallelLaunchCount")()
threads = lambda: packed("collage.runtime.NumThreads")()
"""


def run(program, *args, **environment):
    """Runs a program in a fresh Python; what it prints last is JSON, and is returned."""
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TOPHUB_LOCATION": "NONE", **environment},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def linked(*plugins):
    """Options for export_library with which the exported file brings the plug-ins in by itself."""
    return ["-Wl,--no-as-needed", *map(str, plugins), f"-Wl,-rpath,{PLUGINS}"]


@pytest.fixture(scope="module")
def tvm():
    """TVM with the plug-ins in this process, for making modules."""
    import ctypes

    tvm = pytest.importorskip("tvm")
    for library in (RUNTIME, DNNL):
        if not library.exists():
            pytest.fail(f"{library} is not there; build it with `make build`")
        ctypes.CDLL(str(library))
    return tvm


@pytest.fixture(scope="module")
def export(tvm, tmp_path_factory):
    """A function that exports KERNELS, with a threads module where threads is a number."""
    folder = tmp_path_factory.mktemp("kernels")

    def export_kernels(name, threads=None, defines=()):
        code = "".join(f"#define {d}\n" for d in defines) + KERNELS
        module = tvm.get_global_func("runtime.CSourceModuleCreate")(code, "c", ["count", "nest", "fail"], None)
        options = [f"-I{Path(tvm.__file__).parent}/{d}" for d in ("include", "3rdparty/dlpack/include")]
        if threads is not None:
            module.import_module(tvm.get_global_func("collage.runtime.ThreadsModuleCreate")(threads))
            options += linked(RUNTIME)
        path = folder / f"{name}.so"
        module.export_library(str(path), options=options)
        return path

    return export_kernels


COUNT = """
module = tvm.runtime.load_module(sys.argv[1])
before = launches()
print(json.dumps([module["count"](0), module["count"](6), launches() - before, threads()]))
"""


@pytest.mark.parametrize("runtime_only", ["", "1"])
def test_loops_run_on_the_arena(export, runtime_only):
    path = export(f"three_{runtime_only}", threads=3)
    assert run(COUNT, path, TVM_USE_RUNTIME_LIB=runtime_only) == [3 * 3001, 6 * 6001, 2, 3]


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"COLLAGE_NUM_THREADS": "2", "TVM_NUM_THREADS": "5"}, 2),
        ({"TVM_NUM_THREADS": "5"}, 5),
        ({"COLLAGE_NUM_THREADS": "many"}, 3),
        ({"COLLAGE_NUM_THREADS": "1"}, 1),
    ],
)
def test_the_environment_sets_the_number_of_threads(export, environment, expected):
    path = export(f"environment_{expected}", threads=3)
    count, _, _, threads = run(COUNT, path, **environment)
    assert (count, threads) == (expected * (1000 * expected + 1), expected)


def test_later_models_are_adopted_and_others_left_alone(export):
    """Models with and without a threads module, loaded in turn: each keeps its own launcher."""
    plain, first, second, other = (
        export("plain"), export("first", threads=2), export("second", threads=2), export("other")
    )  # fmt: skip
    program = """
    out = []
    models = [tvm.runtime.load_module(path) for path in sys.argv[1:]]
    for model in models:
        before = launches()
        model["count"](2)
        out.append(launches() - before)
    print(json.dumps(out))
    """
    assert run(program, plain, first, second, other, TVM_NUM_THREADS="2") == [0, 1, 1, 0]


def test_a_model_that_waits_at_barriers_keeps_tvms_launcher(export):
    path = export("barrier", threads=2, defines=["WITH_BARRIER"])
    program = """
    module = tvm.runtime.load_module(sys.argv[1])
    print(json.dumps([module["count"](2), launches()]))
    """
    # TVM reads the number of its own threads from here.
    assert run(program, path, TVM_NUM_THREADS="2") == [2 * 2001, 0]


def test_launches_inside_tasks(export):
    path = export("nest", threads=3)
    program = """
    module = tvm.runtime.load_module(sys.argv[1])
    print(json.dumps([module["nest"](), launches()]))
    """
    assert run(program, path) == [7 * 5 * 5001, 8]


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_of_tasks_reach_the_caller(export, threads):
    path = export(f"fail_{threads}", threads=threads)
    program = """
    module = tvm.runtime.load_module(sys.argv[1])
    try:
        module["fail"]()
    except tvm.error.TVMError as error:
        print(json.dumps([str(error), module["count"](1)]))
    """
    message, after = run(program, path)
    assert "Task 1 error: task 1 gave up" in message and "Task 3 error: task 3 gave up" in message
    assert "Task 0" not in message
    assert after == 1001, "the launcher works on after an error"


def test_launches_from_many_threads(export):
    path = export("crowd", threads=2)
    program = """
    from concurrent.futures import ThreadPoolExecutor
    module = tvm.runtime.load_module(sys.argv[1])
    count = module["count"]
    with ThreadPoolExecutor(8) as pool:
        print(json.dumps(sorted(set(pool.map(lambda _: count(16), range(800))))))
    """
    assert run(program, path) == [16 * 16001]


def test_a_compiled_network_gives_the_same_output(tvm, tmp_path):
    """TVM's own loops, with TVM's launcher and with ours, bit for bit."""
    import numpy as np
    from tvm import relay

    x = relay.var("x", shape=(1, 16, 28, 28))
    w = relay.const(np.random.default_rng(0).random((32, 16, 3, 3), "float32"))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=32, kernel_size=(3, 3))
    y = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.relu(y)))
    module = tvm.IRModule.from_expr(relay.Function([x], y))
    with tvm.transform.PassContext(opt_level=3):
        plain, ours = (relay.build(module, target="llvm") for _ in range(2))
    ours.get_lib().import_module(tvm.get_global_func("collage.runtime.ThreadsModuleCreate")(2))
    plain.export_library(str(tmp_path / "plain.so"))
    ours.export_library(str(tmp_path / "ours.so"), options=linked(RUNTIME))
    program = """
    x = np.random.default_rng(1).random((1, 16, 28, 28), "float32")
    outputs, counts = [], []
    for path in sys.argv[1:]:
        network = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
        before = launches() if packed("collage.runtime.ParallelLaunchCount") else 0
        network.run(x=x)
        counts.append(launches() - before if packed("collage.runtime.ParallelLaunchCount") else 0)
        outputs.append(network.get_output(0).numpy())
    print(json.dumps([counts, bool(np.array_equal(*outputs)), bool(np.isfinite(outputs[0]).all())]))
    """
    (plain_count, our_count), equal, finite = run(program, tmp_path / "plain.so", tmp_path / "ours.so")
    assert plain_count == 0 and our_count > 0 and equal and finite


def dense_relu_graph(rows, columns, units):
    """The graph JSON of relu(dense(x, w)), as TVM's oneDNN runtime reads it."""

    def attributes(shape, **more):
        return {"shape": [[shape]], "dtype": [["float32"]], **more}

    nodes = [
        {"op": "input", "name": "x", "attrs": attributes([rows, columns])},
        {"op": "const", "name": "w", "attrs": attributes([units, columns])},
        {
            "op": "kernel",
            "name": "dnnl.dense_relu",
            "inputs": [[0, 0, 0], [1, 0, 0]],
            "attrs": attributes(
                [rows, units], num_inputs="2", num_outputs="1", units=[[str(units)]], out_dtype=[["float32"]]
            ),
        },
    ]
    return json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "node_row_ptr": [0, 1, 2, 3]})


def test_onednn_region_in_this_process(tvm):
    import numpy as np

    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((4, 8), "float32"), rng.standard_normal((16, 8), "float32")
    create = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")
    region = create("region", dense_relu_graph(4, 8, 16), ["w"])
    assert region["__init_region"]([tvm.nd.array(w)]) == 0
    out = tvm.nd.empty((4, 16))
    region["region"](tvm.nd.array(x), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w.T, 0), rtol=1e-5, atol=1e-6)
    assert tvm.get_global_func("collage.runtime.DNNLVersion")().startswith("2.")


@pytest.mark.parametrize("runtime_only", ["", "1"])
def test_an_exported_onednn_region_loads_by_itself(tvm, export, tmp_path, runtime_only):
    """The file brings its plug-ins in: the loading program knows of TVM only."""
    region = tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")("region", dense_relu_graph(4, 8, 16), ["w"])
    module = tvm.get_global_func("runtime.CSourceModuleCreate")("int unused;", "c", [], None)
    module.import_module(region)
    module.import_module(tvm.get_global_func("collage.runtime.ThreadsModuleCreate")(2))
    path = tmp_path / "region.so"
    module.export_library(str(path), options=linked(DNNL, RUNTIME))
    program = """
    x, w = np.ones((4, 8), "float32"), np.arange(128, dtype="float32").reshape(16, 8)
    module = tvm.runtime.load_module(sys.argv[1])
    assert module.get_function("__init_region", query_imports=True)([tvm.nd.array(w)]) == 0
    out = tvm.nd.empty((4, 16))
    module.get_function("region", query_imports=True)(tvm.nd.array(x), out)
    print(json.dumps([out.numpy()[3].tolist(), threads()]))
    """
    values, threads = run(program, path, TVM_USE_RUNTIME_LIB=runtime_only)
    assert values == [28.0 + 64.0 * i for i in range(16)] and threads == 2


@pytest.mark.parametrize("threads", [1, 3])
def test_onednn_keeps_to_the_arena(tvm, threads):
    """oneDNN's own parallel loops start as many threads as the arena has, also beyond the processors."""
    program = f"""
    import ctypes, os, time
    ctypes.CDLL({str(DNNL)!r})
    packed("collage.runtime.SetNumThreads")({threads})
    def working():
        # Without the thread that moves others to processors of their own (apart.cc), which some machines need.
        names = [open("/proc/self/task/" + task + "/comm").read().strip() for task in os.listdir("/proc/self/task")]
        return len([name for name in names if name != "collage-apart"])
    before = working()
    region = packed("runtime.DNNLJSONRuntimeCreate")("region", sys.argv[1], ["w"])
    region["__init_region"]([tvm.nd.array(np.ones((1024, 1024), "float32"))])
    x, out = tvm.nd.array(np.ones((512, 1024), "float32")), tvm.nd.empty((512, 1024))
    run = region["region"]
    for _ in range(20):
        run(x, out)
        time.sleep(0.01)
    started = working() - before
    print(json.dumps([started, bool((out.numpy() == 1024).all())]))
    """
    assert run(program, dense_relu_graph(512, 1024, 1024)) == [threads - 1, True]


def test_a_onednn_region_keeps_its_models_threads(tvm, tmp_path):
    """Kernels of TVM's oneDNN runtime are made and run in the arena of their own model, whatever else is loaded and
    asked for between: they write beyond their memory on more threads than they were made for.
    """
    paths = []
    for threads in (1, 3):
        module = tvm.get_global_func("runtime.CSourceModuleCreate")("int unused;", "c", [], None)
        graph = dense_relu_graph(512, 1024, 1024)
        module.import_module(tvm.get_global_func("runtime.DNNLJSONRuntimeCreate")("region", graph, ["w"]))
        module.import_module(tvm.get_global_func("collage.runtime.ThreadsModuleCreate")(threads))
        paths.append(tmp_path / f"region-{threads}.so")
        module.export_library(str(paths[-1]), options=linked(DNNL, RUNTIME))
    program = """
    import os, time
    def working():
        names = [open("/proc/self/task/" + task + "/comm").read().strip() for task in os.listdir("/proc/self/task")]
        return len([name for name in names if name != "collage-apart"])
    modules = [tvm.runtime.load_module(path) for path in sys.argv[1:]]
    w = tvm.nd.array(np.ones((1024, 1024), "float32"))
    make = lambda module: module.get_function("__init_region", query_imports=True)([w])
    x, out = tvm.nd.array(np.ones((512, 1024), "float32")), tvm.nd.empty((512, 1024))
    told = []
    before = working()
    def run(module):
        function = module.get_function("region", query_imports=True)
        for _ in range(20):
            function(x, out)
            time.sleep(0.01)
        told.append(working() - before)
        assert (out.numpy() == 1024).all()
    make(modules[0])
    run(modules[0])
    packed("collage.runtime.SetNumThreads")(2)
    run(modules[0])
    make(modules[1])
    run(modules[1])
    print(json.dumps(told))
    """
    # What was made for one thread stays on it; what is made after SetNumThreads runs on as many as that says.
    assert run(program, *paths) == [0, 0, 1]


def test_unloading_a_model_leaves_the_runtime_usable(export):
    """The functions that a model's plug-in registered must outlive the model."""
    first, second = export("gone", threads=2), export("stays", threads=2)
    program = """
    import gc
    module = tvm.runtime.load_module(sys.argv[1])
    module["count"](2)
    del module
    gc.collect()
    module = tvm.runtime.load_module(sys.argv[2])
    print(json.dumps([module["count"](2), launches()]))
    """
    assert run(program, first, second) == [2 * 2001, 2]


def test_a_negative_number_of_threads_is_refused(tvm):
    with pytest.raises((ValueError, tvm.error.TVMError), match="cannot run on -1 threads"):
        tvm.get_global_func("collage.runtime.ThreadsModuleCreate")(-1)
