# SPDX-License-Identifier: Apache-2.0
"""The measuring worker, spoken to as pass/measure does: a process, lines of JSON on its pipes."""

import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import tvm
from collage import export
from conftest import PACKAGE, environment
from interrupts import REACHED_BY_CTRL_C
from tvm import relay

# A backend that a test brings along: C code for whatever region it gets, computing {expression} of each
# element.
BACKEND = """
import tvm
from tvm import relay

def generate(function):
    name = str(function.attrs["global_symbol"])
    size = 1
    for dim in function.params[0].checked_type.shape:
        size *= int(dim)
    code = '''
#include <tvm/runtime/c_runtime_api.h>
#include <dlpack/dlpack.h>
#include <math.h>
extern "C" int32_t %(name)s(TVMValue* args, int32_t* codes, int32_t n, TVMValue* rv, int32_t* rc, void* h) {
  const float* x = (const float*)((DLTensor*)args[0].v_handle)->data;
  float* y = (float*)((DLTensor*)args[n - 1].v_handle)->data;
  for (int i = 0; i < %(size)d; ++i) y[i] = %(expression)s;
  return 0;
}
''' % {"name": name, "size": size, "expression": %(expression)r}
    return tvm.get_global_func("runtime.CSourceModuleCreate")(code, "cc", [name], None)

tvm.register_func("relay.ext.%(compiler)s", generate)
"""


class Driver:
    """A worker process and the lines it answers."""

    def __init__(self, **extra):
        self.process = subprocess.Popen(
            [*REACHED_BY_CTRL_C, sys.executable, "-m", "collage.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**extra),
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.errors = []
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def receive(self, timeout=120):
        line = self.lines.get(timeout=timeout)
        return None if line is None else json.loads(line)

    def ask(self, **request):
        """Send a request; the messages up to the one that ends it."""
        self.send(id=7, **request)
        answers = []
        while not answers or answers[-1]["event"] in ("built", "progress"):
            answers.append(self.receive())
            assert answers[-1] is not None, "".join(self.errors)
            assert answers[-1]["id"] == 7
        return answers

    def close(self):
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            return self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@pytest.fixture(scope="module")
def worker():
    driver = Driver()
    yield driver
    assert driver.close() == 0


def saved(function):
    """A function as pass/annotate sends it: typed, as JSON."""
    module = tvm.IRModule({relay.GlobalVar("main"): function})
    return tvm.ir.save_json(relay.transform.InferType()(module)["main"])


def relu_function():
    x = relay.var("x", shape=(4, 32), dtype="float32")
    return relay.Function([x], relay.nn.relu(x))


def conv_function(channels=16):
    x = relay.var("x", shape=(1, channels, 14, 14), dtype="float32")
    w = relay.var("c0", shape=(channels, channels, 3, 3), dtype="float32")
    b = relay.const(np.linspace(-1, 1, channels, dtype="float32"))
    out = relay.nn.bias_add(relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=channels), b)
    constants = [{"name": "c0", "shape": [channels, channels, 3, 3], "dtype": "float32"}]
    return relay.Function([x, w], relay.nn.relu(out)), constants


def backend(folder, compiler, expression):
    """Write a module that registers relay.ext.COMPILER; gives the environment of a worker that imports it."""
    (folder / f"{compiler}_backend.py").write_text(
        BACKEND.replace("%(compiler)s", compiler).replace("%(expression)r", repr(expression))
    )
    return {
        "PYTHONPATH": os.pathsep.join([str(folder), environment()["PYTHONPATH"]]),
        "COLLAGE_IMPORT": f"{compiler}_backend",
    }


def test_hello(worker):
    (answer,) = worker.ask(op="hello")
    assert answer["event"] == "hello"
    assert answer["tvm"] == tvm.__version__
    assert answer["pid"] == worker.process.pid


def test_measures_what_tvm_runs(worker):
    function, constants = conv_function()
    built, result = worker.ask(
        op="measure",
        function=saved(function),
        constants=constants,
        compiler="",
        key="conv",
        threads=2,
        samples=4,
        min_sample_ms=0.5,
        check=True,
    )
    assert built["event"] == "built" and built["seconds"] > 0
    assert result["event"] == "result" and result["outputs"]["each"][0]["wrong"] == 0
    assert len(result["samples_ms"]) == 4
    assert all(0 < sample < 1000 for sample in result["samples_ms"])


NO_COMPILER = """
from collage import export

def build(*_arguments, **_options):
    raise RuntimeError("this worker has no compiler")

export.build = build
"""


def test_one_worker_builds_for_another(tmp_path):
    """Two regions in one build; the other worker loads, checks and times them without TVM's compiler."""
    (tmp_path / "no_compiler.py").write_text(NO_COMPILER)
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    measuring = Driver(COLLAGE_IMPORT="no_compiler", PYTHONPATH=path)
    function, constants = conv_function(24)
    items = [
        {"function": saved(function), "constants": constants, "key": "ahead", "threads": 2},
        {"function": saved(relu_function()), "constants": [], "key": "ahead too", "threads": 2},
    ]
    builder = Driver()
    (made,) = builder.ask(op="build", items=items, folder=str(tmp_path), name="batch")
    assert made["event"] == "result", made
    bad = [items[0], {**items[1], "function": "{}"}]
    assert builder.ask(op="build", items=bad, folder=str(tmp_path), name="bad")[-1]["phase"] == "build"
    builder.close()
    refused = measuring.ask(op="measure", compiler="", check=True, samples=0, **items[0])[-1]
    assert (refused["phase"], "no compiler" in refused["detail"]) == ("build", True)
    assert measuring.ask(op="load", manifest=made["manifest"])[-1]["event"] == "result"
    assert measuring.ask(op="load", manifest=str(tmp_path / "none"))[-1]["phase"] == "load"
    for item in items:
        _, prepared = measuring.ask(op="measure", compiler="", check=True, samples=0, **item)
        assert prepared["samples_ms"] == [] and prepared["outputs"]["each"][0]["greatest"] == 0
        result = measuring.ask(op="measure", compiler="", samples=3, again=True, **item)[-1]
        assert len(result["samples_ms"]) == 3
    measuring.close()


def test_failures_are_answers(worker):
    for request, phase in (
        ({"function": "{}"}, "build"),
        ({"function": "not json"}, "build"),
        (
            {
                "function": saved(relu_function()),
                "constants": [{"name": "c9", "shape": [2], "dtype": "float32"}],
            },
            "build",
        ),
        ({"function": saved(relu_function()), "target": "llvm -mcpu=abacus9000 -nonsense=1"}, "build"),
    ):
        answer = worker.ask(op="measure", compiler="", key="k", samples=1, **request)[-1]
        assert answer["event"] == "error", answer
        assert answer["phase"] == phase
        assert answer["kind"] == "error"
        assert answer["detail"]
    assert worker.ask(op="dance")[-1]["detail"] == "unknown operation 'dance'"
    assert worker.ask(op="hello")[-1]["event"] == "hello"


def test_open_shapes_are_refused(worker):
    x = relay.var("x", shape=(relay.Any(), 32), dtype="float32")
    answer = worker.ask(op="measure", function=saved(relay.Function([x], relay.nn.relu(x))), compiler="", key="any")[-1]
    assert answer["event"] == "error"
    assert "not fixed" in answer["detail"]


def test_a_backend_of_the_users(tmp_path):
    driver = Driver(**backend(tmp_path, "right", "x[i] > 0 ? x[i] : 0"))
    result = driver.ask(
        op="measure", function=saved(relu_function()), compiler="right", key="k", samples=2, check=True
    )[-1]
    assert result["event"] == "result", result
    assert [one["greatest"] for one in result["outputs"]["each"]] == [0]
    driver.close()


@pytest.mark.parametrize(
    ("expression", "nan"), [("x[i]", False), ("x[i] > 0 ? x[i] : sqrtf(x[i])", True), ("1.5f", False)]
)
def test_wrong_results_are_seen(tmp_path, expression, nan):
    driver = Driver(**backend(tmp_path, "wrong", expression))
    built, answer = driver.ask(
        op="measure", function=saved(relu_function()), compiler="wrong", key="k", samples=2, check=True, narrow=True
    )
    assert built["event"] == "built"
    seen = answer["outputs"]["each"][0]
    assert 0 < seen["wrong"] <= seen["elements"] and seen["l2"] > 0.25 and seen["new_nan"] == nan
    assert (seen["greatest"] is None) == nan and seen["got"] != seen["expected"] and len(seen["at"]) == 2
    # The worker is as good as before.
    assert driver.ask(op="hello")[-1]["event"] == "hello"
    driver.close()


def test_memory_around_runs_is_told(worker):
    """What is soaked was measured before; what is forgotten is built again."""
    request = {"function": saved(relu_function()), "compiler": "", "key": "soaked", "samples": 1}
    assert worker.ask(op="measure", **request)[-1]["grown_bytes"] is not None
    told = worker.ask(op="soak", runs=3, pause_s=0.01, **request)[-1]
    assert told["event"] == "result" and told["before_bytes"] > 1 << 20 and told["after_bytes"] > 1 << 20
    kept = worker.ask(op="measure", **request)[0]["seconds"]
    assert worker.ask(op="forget", **request)[-1]["event"] == "result"
    assert worker.ask(op="measure", **request)[0]["seconds"] > 10 * kept


def test_a_crash_is_the_end_of_the_pipe(tmp_path):
    driver = Driver(**backend(tmp_path, "crashing", "*(volatile float*)0"))
    driver.send(id=1, op="measure", function=saved(relu_function()), compiler="crashing", key="k", samples=2)
    assert driver.receive()["event"] == "built"
    assert driver.receive() is None
    assert driver.process.wait(timeout=120) == -signal.SIGSEGV


def test_end_of_input_ends_a_measurement_that_hangs(tmp_path):
    driver = Driver(**backend(tmp_path, "hanging", "(__builtin_ia32_pause(), --i, 0)"))
    driver.send(id=1, op="measure", function=saved(relu_function()), compiler="hanging", key="k", samples=2)
    assert driver.receive()["event"] == "built"
    assert driver.close() == 0


def test_interrupt_is_not_for_the_worker(worker):
    worker.ask(op="hello")  # one that is still starting has not said yet that it is not
    worker.process.send_signal(signal.SIGINT)
    assert worker.ask(op="hello")[-1]["event"] == "hello"


def test_stdout_is_for_the_protocol_alone(tmp_path):
    (tmp_path / "chatty.py").write_text(
        textwrap.dedent(
            """
            import os, sys
            print("hello from Python")
            os.write(1, b"hello from below\\n")
            os.system("echo hello from a child")
            """
        )
    )
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    driver = Driver(COLLAGE_IMPORT="chatty", PYTHONPATH=path)
    assert driver.ask(op="hello")[-1]["event"] == "hello"
    driver.close()
    assert {"hello from Python\n", "hello from below\n", "hello from a child\n"} <= set(driver.errors)


@pytest.fixture(scope="module")
def small_models(tmp_path_factory):
    """Two exports of one function, and one of another that takes the same input."""
    folder = tmp_path_factory.mktemp("small")
    function, constants = conv_function()
    weights = {"c0": np.random.default_rng(0).standard_normal(constants[0]["shape"], dtype=np.float32) * 0.1}
    plugin = PACKAGE / "lib" / "libcollage_runtime.so"
    plugins = [plugin] if plugin.exists() else []
    paths = {}
    for name, scale, suffix in (("one", 1.0, ".so"), ("same", 1.0, ".tar"), ("other", 1.1, ".so")):
        bound = relay.build_module.bind_params_by_name(
            function, {"c0": tvm.nd.array(weights["c0"] * np.float32(scale))}
        )
        paths[name] = folder / f"{name}{suffix}"
        export.write(export.build(tvm.IRModule.from_expr(bound)), paths[name], plugins, 2)
    return paths


def test_compares_models_in_turn(worker, small_models):
    request = {"op": "compare", "rounds": 3, "threads": 2, "seed": 1, "min_sample_ms": 0.1}
    request["models"] = [{"name": name, "path": str(path)} for name, path in small_models.items()]
    *progress, result = worker.ask(**request)
    assert [message["round"] for message in progress] == [1, 2, 3]
    assert {name: len(samples) for name, samples in result["samples_ms"].items()} == dict.fromkeys(small_models, 3)
    (same,), (other,) = (result["outputs"][name]["each"] for name in ("same", "other"))
    assert (same["wrong"], same["greatest"]) == (0, 0.0) and "one" not in result["outputs"]
    assert other["wrong"] > 0 and other["greatest"] > 0


def test_compare_without_a_model(worker, small_models, tmp_path):
    models = [
        {"name": "one", "path": str(small_models["one"])},
        {"name": "gone", "path": str(tmp_path / "gone.so")},
    ]
    answer = worker.ask(op="compare", models=models, rounds=1)[-1]
    assert (answer["event"], answer["phase"]) == ("error", "load")


def test_dnnl_region(collage_library):
    """A region of oneDNN: Go's code generator, TVM's runtime, the weights inside the region."""
    function, constants = conv_function(32)
    x, w = function.params
    conv = function.body.args[0].args[0]
    bias = function.body.args[0].args[1]
    inner_x, inner_w = relay.var("a", shape=(1, 32, 14, 14)), relay.var("b", shape=(32, 32, 3, 3))
    inner_b = relay.var("c", shape=(32,))
    inner = relay.nn.conv2d(inner_x, inner_w, padding=(1, 1), kernel_size=(3, 3), channels=32)
    composite = relay.Function([inner_x, inner_w, inner_b], relay.nn.relu(relay.nn.bias_add(inner, inner_b)))
    composite = composite.with_attr("Composite", tvm.runtime.String("dnnl.conv2d_bias_relu"))
    composite = composite.with_attr("PartitionedFromPattern", tvm.runtime.String("nn.conv2d_nn.bias_add_nn.relu_"))
    assert conv.op.name == "nn.conv2d"
    region = relay.Function([x, w], relay.Call(composite, [x, w, bias]))
    region = region.with_attr("Compiler", tvm.runtime.String("collage_dnnl"))
    region = region.with_attr("global_symbol", tvm.runtime.String("tvmgen_default_collage_dnnl_main_0"))
    driver = Driver()
    request = {"constants": constants, "key": "k", "threads": 2, "samples": 3, "check": True}
    result = driver.ask(op="measure", function=saved(region), compiler="collage_dnnl", **request)[-1]
    assert result["event"] == "result", (result, "".join(driver.errors))
    # oneDNN sums in another order than TVM: a result without any difference would be TVM's own.
    assert 0 < result["outputs"]["each"][0]["greatest"] < 1e-3
    driver.close()
