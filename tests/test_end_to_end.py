# SPDX-License-Identifier: Apache-2.0
"""The five networks and a small one, from the command line to an executable that plain TVM runs, with what
went where counted.
"""

import json
import subprocess
import sys
import tarfile

import numpy as np
import placed
import pytest
from collage import workloads
from conftest import SAMPLES, environment, run_python

# Runs a package as tvmc does, in a process without Collage; with a second one, compares. Prints what it got
# mapped.
RUNNER = """
import json, sys
from pathlib import Path
import numpy as np
import tvm
from tvm.contrib import graph_executor
folder, inputs, outputs = sys.argv[1:]
lib = tvm.runtime.load_module(folder + "/mod.so")
executor = graph_executor.create(Path(folder, "mod.json").read_text(), lib, tvm.cpu())
executor.load_params(Path(folder, "mod.params").read_bytes())
executor.set_input(**dict(np.load(inputs)))
executor.run()
np.savez(outputs, *[executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
assert not any(name.partition(".")[0] == "collage" for name in sys.modules)
print(json.dumps(sorted({Path(line.split()[-1]).name for line in open("/proc/self/maps") if "/" in line})))
"""

# What is pinned where in executables that must mix both backends, whatever was measured, and how many
# operators that is.
PINNED = {
    "small": {"nn.dense=tvm": 1, "nn.conv2d=dnnl": 1},
    "dcgan": {"nn.dense=tvm": 2, "nn.conv2d=dnnl": 7},
    "resnext50_32x4d": {"add=tvm": 16, "nn.conv2d=dnnl": 52},
}

# The least number of operators; how many there are of which is said in test_workloads.
OPERATORS = {"small": 8, **dict.fromkeys(workloads.PAPER, 30)}


def parameters(names):
    """Networks as parameters: the small one stands for all in `make test`."""
    return [name if name == "small" else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The small network's file."""
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    small_onnx(path)
    return path


@pytest.fixture(scope="module")
def source(small):
    """A function that gives what the command line takes for a network: [MODEL, options...]."""
    small_one = [small, "--input-shape", "x:1,3,16,16"]
    return lambda name: small_one if name == "small" else [f"workload:{name}"]


@pytest.fixture(scope="module")
def loaded(small):
    """A function that loads a network in this process."""
    from collage import frontends

    def load(name):
        if name == "small":
            return frontends.load(small, input_shapes={"x": (1, 3, 16, 16)})
        return frontends.load(f"workload:{name}")

    return load


def unpack(archive, folder):
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def compiled(command, source, store, models):
    """A function that compiles a network once and gives (path, report)."""
    done = {}

    def get(name):
        if name not in done:
            path = models / f"{name}.tar"
            result = command(
                "compile", *source(name), "--backends", "tvm,dnnl", "-o", path, "--db", store, "-q",
                "--level", "operator", "--repeat", SAMPLES, "--rounds", 3,
                "--plan-out", models / f"{name}.plan.json", "--json",
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            done[name] = (path, json.loads(result.stdout))
        return done[name]

    return get


@pytest.fixture(scope="module")
def reference(loaded):
    """A function that runs a network on plain TVM, in this process: (inputs, outputs)."""

    def get(name):
        model = loaded(name)
        rng = np.random.default_rng(11)
        inputs = {key: rng.standard_normal(shape, dtype=np.float32) for key, (shape, dtype) in model.inputs.items()}
        names = [var.name_hint for var in model.module["main"].params]
        return inputs, placed.expected(model.module, *(inputs[each] for each in names))

    return get


def finalists(report):
    return {finalist["name"]: finalist for finalist in report["report"]["finalists"]}


def operators_of(summary, backend):
    """The operators that a report says are on a backend."""
    return [operator for r in summary["regions"] if r["backend"] == backend for operator in r["operators"]]


def run_without_collage(path, reference, tmp_path):
    """Holds a package's result against plain TVM's, in a process that has neither Go nor Collage.

    Returns the names of the files that the process had mapped.
    """
    inputs, expected = reference
    np.savez(tmp_path / "x.npz", **inputs)
    folder = unpack(path, tmp_path / "model")
    mapped = run_python(RUNNER, folder, tmp_path / "x.npz", tmp_path / "y.npz", PYTHONPATH="")
    assert "libcollage.so" not in mapped
    assert "libcollage_runtime.so" in mapped
    with np.load(tmp_path / "y.npz") as outputs:
        for index, value in enumerate(expected):
            scale = float(np.abs(value).max())
            np.testing.assert_allclose(outputs[f"arr_{index}"], value, rtol=1e-4, atol=1e-5 * scale)
    return mapped


@pytest.mark.parametrize("name", parameters(["small", *workloads.PAPER]))
def test_network(name, compiled, reference, tmp_path):
    path, report = compiled(name)
    summary = report["report"]

    # Every operator is placed; oneDNN has some of them unless TVM alone was faster, which is the processor's to say.
    everywhere = [operator for region in summary["regions"] for operator in region["operators"]]
    assert len(everywhere) == summary["operators"] >= OPERATORS[name]
    shares = {backend["name"]: backend for backend in summary["backends"]}
    assert set(shares) == {"tvm", "dnnl"}
    assert shares["tvm"]["operators"] + shares["dnnl"]["operators"] == summary["operators"]
    assert (shares["dnnl"]["operators"] > 0) == (report["chosen"] != "tvm")
    assert len(operators_of(summary, "dnnl")) == shares["dnnl"]["operators"]

    # All that could be chosen has been run; what was kept was.
    runs = finalists(report)
    assert {"tvm", "dnnl", "collage"} <= set(runs)
    assert report["chosen"] in runs
    assert all(run["rounds"] == 3 and "failure" not in run for run in runs.values()), runs

    mapped = run_without_collage(path, reference(name), tmp_path)
    assert ("libcollage_dnnl.so" in mapped) == (report["chosen"] != "tvm")


@pytest.mark.parametrize("name", parameters(PINNED))
def test_mixed_network(name, command, source, store, reference, tmp_path):
    """A placement that is bound to mix backends is what is exported."""
    pins = [word for pin in PINNED[name] for word in ("--pin", pin)]
    result = command(
        "compile", *source(name), "--backends", "tvm,dnnl", "-o", tmp_path / "mixed.tar", "--db", store, "-q",
        "--level", "operator", "--repeat", SAMPLES, "--rounds", 3, "--json", *pins,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["chosen"] == "collage"
    for pin, count in PINNED[name].items():
        operator, backend = pin.split("=")
        assert operators_of(report["report"], backend).count(operator) == count
    assert "libcollage_dnnl.so" in run_without_collage(tmp_path / "mixed.tar", reference(name), tmp_path)


@pytest.mark.parametrize("name", parameters(["small", "resnext50_32x4d"]))
def test_the_placement_itself_computes_the_same(name, loaded, store, reference):
    """Whatever finalist was kept: the module with regions on both backends gives TVM's result."""
    import collage
    import tvm
    from tvm.contrib import graph_executor

    pins = ["nn.conv2d=dnnl", "nn.dense=tvm"] if name == "small" else []
    factory = collage.compile(loaded(name).module, backends=["tvm", "dnnl"], store=store, samples=SAMPLES, pin=pins)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    inputs, expected = reference(name)
    executor.set_input(**inputs)
    executor.run()
    scale = float(np.abs(expected[0]).max())
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected[0], rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("name", parameters(["small", *workloads.PAPER]))
def test_the_plan_is_that_of_the_winner_whichever_it_is(name, loaded, tmp_path):
    """TVM, a backend alone, a placement: what the plan says is what came out, and what it is replayed to.

    The search decides by what its store says of whole networks: where that says that one is the fastest, it is.
    """
    import collage
    import tvm

    module = loaded(name).module
    options = {"backends": ["tvm", "dnnl"], "samples": SAMPLES, "trials": 3, "search_time": 1200}
    first = tmp_path / "first.jsonl"
    collage.partition(module, store=first, plan_out=tmp_path / "first.json", **options)
    networks = json.loads((tmp_path / "first.json").read_text())["graph_level"]["networks"]
    assert [network["name"] for network in networks[:2]] == ["tvm", "dnnl"] and len(networks) == 3
    alone = collage.partition(module, only="dnnl", store=first)
    records = [json.loads(line) for line in first.read_text().splitlines()]
    seen = []
    for network, winner in zip(networks, ("tvm", "dnnl", "collage"), strict=True):
        store, out = tmp_path / f"{winner}.jsonl", tmp_path / f"{winner}.json"
        store.write_text("".join(json.dumps(faster(record, network)) + "\n" for record in records))
        made = collage.partition(module, store=store, plan_out=out, **options)
        plan = json.loads(out.read_text())
        (kept,) = (one for one in plan["finalists"] if one.get("chosen"))
        assert kept["name"] == winner
        planned = sorted(region["symbol"] for region in plan["regions"] if "symbol" in region)
        assert sorted(placed.regions(made)) == planned and len(planned) == kept["regions"]
        again = collage.replay(module, plan, store=store, verify=False)
        assert tvm.ir.structural_equal(again, made)
        if winner == "dnnl":
            assert str(made["main"]) == str(alone["main"]) and planned == sorted(placed.regions(alone))
        seen.append(str(made))
    assert len(set(seen)) == 3, "three networks, no two of them the same"


def faster(record, network):
    """A record of the store, a hundred times as fast where it is of this network."""
    if record["key"].get("kind") != "network" or record["key"]["composite"] != network["placement"]:
        return record
    return {**record, "samples_ms": [ms / 100 for ms in record["samples_ms"]]}


def test_collage_run_and_tvmc_run_agree(compiled, command, tmp_path):
    path, _ = compiled("small")
    x = np.random.default_rng(12).standard_normal((1, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    result = command(
        "run", path, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz", "--repeat", 3, "--json"
    )
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["latency"]["samples_ms"]) == 3
    arguments = ["run", "--inputs", "x.npz", "--outputs", "z.npz", str(path)]
    tvmc = subprocess.run(
        [sys.executable, "-m", "tvm.driver.tvmc", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(PYTHONPATH=""),
    )
    assert tvmc.returncode == 0, tvmc.stderr
    with np.load(tmp_path / "y.npz") as ours, np.load(tmp_path / "z.npz") as theirs:
        assert np.ptp(theirs["output_0"]) > 0
        np.testing.assert_array_equal(ours["output_0"], theirs["output_0"])


def test_collage_run_loads_the_runtime_alone(compiled, command, tmp_path):
    """Neither Python nor TVM's compiler is in the process that `collage run` is."""
    path, _ = compiled("small")
    trace = tmp_path / "libraries"
    result = command("run", path, "--repeat", 1, environment={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": trace})
    assert result.returncode == 0, result.stderr
    # One file for each process; Python may have been asked where TVM stands, in a process of its own.
    texts = [file.read_text(errors="replace") for file in tmp_path.glob("libraries.*")]
    (ours,) = [text for text in texts if "libtvm_runtime.so" in text]
    assert "libcollage_runtime.so" in ours
    for absent in ("/libtvm.so", "libpython", "libLLVM", "libcollage.so"):
        assert absent not in ours


def small_onnx(path):
    """A convolution, a pool and a classifier, as an exporter writes them."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(13)
    shapes = {"w": (8, 3, 3, 3), "b": (8,), "v": (10, 8 * 8 * 8), "c": (10,)}
    weights = {name: rng.standard_normal(shape, dtype=np.float32) * 0.1 for name, shape in shapes.items()}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["conv"], ["relu"]),
            helper.make_node("MaxPool", ["relu"], ["pool"], kernel_shape=[2, 2], strides=[2, 2]),
            helper.make_node("Flatten", ["pool"], ["flat"]),
            helper.make_node("Gemm", ["flat", "v", "c"], ["gemm"], transB=1),
            helper.make_node("Softmax", ["gemm"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


@pytest.mark.long
def test_same_input_same_store_same_plan(command, tmp_path):
    small_onnx(tmp_path / "small.onnx")
    store = tmp_path / "costs.jsonl"  # which nobody else writes to meanwhile
    plans, told, kept = [], [], []
    for number in range(2):
        plan = tmp_path / f"plan{number}.json"
        result = command(
            "compile", tmp_path / "small.onnx", "--input-shape", "x:1,3,16,16", "-o", tmp_path / "small.tar",
            "--db", store, "--level", "operator", "--repeat", SAMPLES, "--rounds", 3,
            "--plan-out", plan, "--json", "-q", "--pin", "nn.conv2d=dnnl",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        if number == 0:
            costs = store.read_bytes()
        # The whole networks were run anew, and where the costs came from is told; all else is the same.
        plans.append(json.loads(plan.read_text().replace('"measured"', '"stored"')))
        finalists = plans[-1].pop("finalists")
        del plans[-1]["candidates"]
        told.append({one["name"]: (one["regions"], one["estimate_ms"]) for one in finalists if one["name"] != "tvm"})
        kept.append(next(one["name"] for one in finalists if one.get("chosen")))
    assert json.loads(result.stdout)["report"]["candidates"]["measured"] == 0
    assert store.read_bytes() == costs
    assert told[0] == told[1]
    # Which finalist is the fastest is measured each time; only the placement keeps to the pin.
    assert kept == ["collage", "collage"]
    assert plans[0] == plans[1]


def test_onnx_model_to_so(command, store, tmp_path):
    """An ONNX file with an open batch, to a library for TVM's load_module."""
    import tvm
    from collage import frontends, library
    from tvm import relay
    from tvm.contrib import graph_executor

    small_onnx(tmp_path / "small.onnx")
    out = tmp_path / "small.so"
    result = command(
        "compile", tmp_path / "small.onnx", "--input-shape", "x:1,3,16,16", "--backends", "tvm,dnnl",
        "-o", out, "--db", store, "--repeat", SAMPLES, "--rounds", 3, "--trials", 3, "-v",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "dnnl" in result.stdout and "wrote" in result.stdout
    for name in ("runtime", "dnnl"):
        library.load_plugin(library.plugin_path(name))
    executor = graph_executor.GraphModule(tvm.runtime.load_module(str(out))["default"](tvm.cpu()))
    x = np.random.default_rng(14).standard_normal((1, 3, 16, 16), dtype=np.float32)
    executor.set_input("x", x)
    executor.run()
    model = frontends.load(tmp_path / "small.onnx", input_shapes={"x": (1, 3, 16, 16)})
    expected = relay.create_executor("graph", model.module).evaluate()(x).numpy()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-6)
