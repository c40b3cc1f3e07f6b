# SPDX-License-Identifier: Apache-2.0
"""The five networks, from the command line to an executable that plain TVM runs, with what went where
counted.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
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

# How many operators of a kind must have gone to oneDNN at least, whatever was measured: where it is
# much faster than TVM's own code on every machine that was tried.
OFFLOADED = {
    "bert_full": ("nn.dense", 1),
    "dcgan": ("nn.dense", 1),
    "nasneta": ("nn.conv2d", 10),
    "resnet50_3d": ("nn.conv3d", 10),
    "resnext50_32x4d": ("nn.conv2d", 10),
}


def unpack(archive, folder):
    folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def compiled(command, store, models):
    """A function that compiles a workload once and gives (path, report)."""
    done = {}

    def get(name):
        if name not in done:
            path = models / f"{name}.tar"
            result = command(
                "compile", f"workload:{name}", "--backends", "tvm,dnnl", "-o", path, "--db", store, "-q",
                "--repeat", SAMPLES, "--rounds", 3, "--plan-out", models / f"{name}.plan.json", "--json",
            )  # fmt: skip
            assert result.returncode == 0, result.stderr
            done[name] = (path, json.loads(result.stdout))
        return done[name]

    return get


@pytest.fixture(scope="module")
def reference():
    """A function that runs a workload on plain TVM, in this process: (inputs, outputs)."""
    import tvm
    from collage import export, frontends
    from tvm.contrib import graph_executor

    def get(name):
        model = frontends.load(f"workload:{name}")
        rng = np.random.default_rng(11)
        inputs = {
            key: rng.standard_normal(shape, dtype=np.float32) for key, (shape, dtype) in model.inputs.items()
        }
        executor = graph_executor.GraphModule(export.build(model.module)["default"](tvm.cpu()))
        executor.set_input(**inputs)
        executor.run()
        return inputs, [executor.get_output(index).numpy() for index in range(executor.get_num_outputs())]

    return get


def finalists(report):
    return {finalist["name"]: finalist for finalist in report["report"]["finalists"]}


@pytest.mark.parametrize("name", workloads.PAPER)
def test_network(name, compiled, reference, tmp_path):
    path, report = compiled(name)
    summary = report["report"]

    # Every operator is placed, and where both backends apply both have some.
    placed = [operator for region in summary["regions"] for operator in region["operators"]]
    assert len(placed) == summary["operators"] >= 30
    shares = {backend["name"]: backend for backend in summary["backends"]}
    assert set(shares) == {"tvm", "dnnl"}
    assert shares["tvm"]["operators"] + shares["dnnl"]["operators"] == summary["operators"]
    assert shares["tvm"]["operators"] > 0 and shares["dnnl"]["operators"] > 0
    kind, least = OFFLOADED[name]
    given = [operator for r in summary["regions"] if r["backend"] == "dnnl" for operator in r["operators"]]
    assert given.count(kind) >= least
    assert len(given) == shares["dnnl"]["operators"]

    # All that could be chosen has been run; what was kept was.
    runs = finalists(report)
    assert {"tvm", "dnnl", "collage"} <= set(runs)
    assert report["chosen"] in runs
    assert all(run["rounds"] == 3 and "failure" not in run for run in runs.values()), runs

    # Its result is plain TVM's, in a process that has neither Go nor Collage.
    inputs, expected = reference(name)
    np.savez(tmp_path / "x.npz", **inputs)
    folder = unpack(path, tmp_path / "model")
    mapped = run_python(RUNNER, folder, tmp_path / "x.npz", tmp_path / "y.npz", PYTHONPATH="")
    assert "libcollage.so" not in mapped
    assert "libcollage_runtime.so" in mapped
    assert ("libcollage_dnnl.so" in mapped) == (report["chosen"] != "tvm")
    with np.load(tmp_path / "y.npz") as outputs:
        for index, value in enumerate(expected):
            scale = float(np.abs(value).max())
            np.testing.assert_allclose(outputs[f"arr_{index}"], value, rtol=1e-4, atol=1e-5 * scale)


def test_the_placement_itself_computes_the_same(store, reference):
    """Whatever finalist was kept: the module with regions on both backends gives TVM's result."""
    import collage
    import tvm
    from collage import frontends
    from tvm.contrib import graph_executor

    name = "resnext50_32x4d"
    model = frontends.load(f"workload:{name}")
    factory = collage.compile(model.module, backends=["tvm", "dnnl"], store=store, samples=SAMPLES)
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    inputs, expected = reference(name)
    executor.set_input(**inputs)
    executor.run()
    scale = float(np.abs(expected[0]).max())
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected[0], rtol=1e-4, atol=1e-5 * scale)


def test_same_input_same_store_same_plan(compiled, command, store, models, tmp_path):
    compiled("dcgan")
    before = store.read_bytes()
    result = command(
        "compile", "workload:dcgan", "--backends", "tvm,dnnl", "-o", tmp_path / "again.tar", "--db", store,
        "--repeat", SAMPLES, "--rounds", 3, "--plan-out", tmp_path / "plan.json", "--json", "-q",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["report"]["candidates"]["measured"] == 0
    assert store.read_bytes() == before
    one = json.loads((models / "dcgan.plan.json").read_text())
    other = json.loads((tmp_path / "plan.json").read_text())
    # The whole networks were run anew, and where the costs came from is told; all else is the same.
    for plan in (one, other):
        del plan["finalists"], plan["candidates"]
    assert one == other


def test_collage_run_and_tvmc_run_agree(compiled, command, tmp_path):
    path, _ = compiled("dcgan")
    np.savez(tmp_path / "x.npz", input0=np.random.default_rng(12).standard_normal((1, 100), dtype=np.float32))
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
        np.testing.assert_array_equal(ours["output_0"], theirs["output_0"])


def test_collage_run_loads_the_runtime_alone(compiled, command, tmp_path):
    """Neither Python nor TVM's compiler is in the process that `collage run` is."""
    path, _ = compiled("dcgan")
    trace = tmp_path / "libraries"
    result = command("run", path, "--repeat", 1, environment={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": trace})
    assert result.returncode == 0, result.stderr
    # One file for each process; Python may have been asked where TVM stands, in a process of its own.
    texts = [file.read_text(errors="replace") for file in tmp_path.glob("libraries.*")]
    (ours,) = [text for text in texts if "libtvm_runtime.so" in text]
    assert "libcollage_runtime.so" in ours
    for absent in ("/libtvm.so", "libpython", "libLLVM", "libcollage.so"):
        assert absent not in ours


def test_onnx_model_to_so(command, store, tmp_path):
    """A network from the wild, as a library for TVM's load_module."""
    import onnx
    import tvm
    from collage import library
    from tvm.contrib import graph_executor

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    out = tmp_path / "squeezenet.so"
    result = command(
        "compile", light / "light_squeezenet.onnx", "--backends", "tvm,dnnl", "-o", out, "--db", store, "-q",
        "--repeat", SAMPLES, "--rounds", 3,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "dnnl" in result.stdout and "wrote" in result.stdout
    for name in ("runtime", "dnnl"):
        library.load_plugin(library.plugin_path(name))
    executor = graph_executor.GraphModule(tvm.runtime.load_module(str(out))["default"](tvm.cpu()))
    name = next(key for key in executor.get_input_info()[0] if key.startswith("data"))
    proto = onnx.load(str(light / "light_squeezenet.onnx"))
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    executor.set_input(name, np.zeros(shape, "float32"))
    executor.run()
    assert np.isfinite(executor.get_output(0).numpy()).all()
