# SPDX-License-Identifier: Apache-2.0
"""CLBlast on an OpenCL device: each pattern computes what TVM does on the processor, in one region with TVM's kernels
there, on what lies in the device's memory.
"""

import json
import subprocess
from pathlib import Path

import documents
import numpy as np
import opencl_driver
import placed
import pytest
import tvm
from conftest import PACKAGE, environment
from device_networks import by_costs, convolution, network, runs_like_tvm, steps, threads_agree, typed
from document_runner import Runner
from tvm import relay

BACKEND, TVM = "clblast", "tvm_opencl"


@pytest.fixture(scope="module", autouse=True)
def library(collage_library):
    opencl_driver.required(BACKEND)
    yield
    placed.forget()


def weight(*shape):
    drawn = np.random.default_rng(sum(shape)).standard_normal(shape) / np.prod(shape[1:]) ** 0.5
    return relay.const(drawn.astype("float32"))


def x(*shape, name="x"):
    return relay.var(name, shape=shape)


def windows(channels, *kernel, **more):
    return relay.nn.conv2d(x(2, 6, 11, 9), weight(channels, 6, *kernel), channels=channels, kernel_size=kernel, **more)


# What CLBlast takes: by kernel, then what it is.
TAKEN = {
    "convgemm": {
        "window": lambda: windows(8, 3, 3, padding=(1, 1)),
        "not square, strides, dilation": lambda: windows(5, 3, 2, padding=(2, 1), strides=(2, 1), dilation=(1, 2)),
        "all of the image": lambda: windows(7, 11, 9),
        "one channel": lambda: windows(1, 1, 1),
        "weight that comes in": lambda: relay.nn.conv2d(x(1, 4, 6, 6), x(3, 4, 3, 3, name="w"), kernel_size=(3, 3)),
    },
    "gemm": {
        "pointwise": lambda: windows(8, 1, 1),
        "dense": lambda: relay.nn.dense(x(5, 24), weight(16, 24)),
        "one row": lambda: relay.nn.dense(x(1, 24), weight(16, 24)),
        "of itself": lambda: relay.nn.dense(y := x(5, 24), y),
        "batch": lambda: relay.nn.batch_matmul(x(3, 5, 24), x(3, 7, 24, name="y")),
        "batch of one right side": lambda: relay.nn.batch_matmul(x(3, 5, 24), weight(1, 7, 24)),
        "batch of one left side": lambda: relay.nn.batch_matmul(
            x(1, 24, 5), x(3, 24, 7, name="y"), transpose_a=True, transpose_b=False
        ),
        "matmul": lambda: relay.nn.matmul(x(24, 5), x(24, 7, name="y"), transpose_a=True),
        "matmul transposed": lambda: relay.nn.matmul(x(5, 24), weight(7, 24), transpose_b=True),
    },
    "gemv": {
        "dense": lambda: relay.nn.dense(x(1, 24), weight(16, 24)),
        "matmul": lambda: relay.nn.matmul(x(1, 24), weight(16, 24), transpose_b=True),
    },
}


def on(module, kernel, **options):
    """The module with that kernel for all that has one, and the plan; all else on the device, too."""
    (operator,) = {name for name in placed.counted(module["main"]) if name in PRODUCTS}
    return by_costs(
        "opencl",
        module,
        lambda key: 0.01 if key["backend"] == TVM else 1.0,
        pin=[f"{operator}={BACKEND}.{kernel}"],
        **options,
    )


PRODUCTS = {"nn.conv2d", "nn.dense", "nn.matmul", "nn.batch_matmul"}


@pytest.mark.parametrize("kernel", TAKEN)
def test_what_is_taken(kernel, tmp_path):
    """By itself, and between kernels of TVM's that read and write the same memory."""
    for what, make in TAKEN[kernel].items():
        for module in (typed(make()), typed(relay.tanh(relay.nn.relu(make())))):
            split, plan = on(module, kernel)
            (inside,) = plan["regions"]
            assert inside["backend"] == (BACKEND if len(inside["candidates"]) == 1 else f"{BACKEND}+{TVM}"), what
            (mine,) = [one for one in inside["candidates"] if one.get("kernel")]
            assert mine["kernel"] == kernel and mine["composite"].startswith(f"{BACKEND}.{kernel}_")
            runs_like_tvm(module, split, tmp_path)


CALLS = {
    "gemm 64 48 32 1 0 1 0 1 0 0": ((64, 32), (48, 32)),
    "gemm 5 16 24 1 1 0 0 1 0 0": ((24, 5), (24, 16)),
    "gemm 197 768 64 1 0 1 0 1 0 0": ((197, 64), (768, 64)),
    "gemm 300 256 128 2 0 0 0 1 38400 32768": ((2, 300, 128), (2, 128, 256)),
    "gemv 40 24 1 0": ((1, 24), (40, 24)),
    "convgemm 1 8 12 12 16 3 3 1 1 1 1 1 1 0 1": ((1, 8, 12, 12), (16, 8, 3, 3)),
}


@pytest.mark.parametrize("line", CALLS)
def test_what_the_results_memory_holds_is_nobodys(line):
    """TVM gives memory that others have written to; what is no number there must not come through."""
    from collage import library

    library.install("collage_opencl")
    call = tvm.get_global_func("collage.runtime.opencl.ClblastCreate")("call", line)["call"]
    device = tvm.device("opencl", 0)
    inputs = [np.random.default_rng(1).standard_normal(shape).astype("float32") for shape in CALLS[line]]
    word, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    if word == "convgemm":
        extents = (1, 16, 12, 12)
    else:
        extents = (numbers[3], numbers[0], numbers[1]) if word == "gemm" else (1, numbers[0])
    given = [tvm.nd.array(value, device) for value in inputs]
    answers = []
    for left in (0.0, np.nan, np.inf):
        result = tvm.nd.array(np.full(extents, left, "float32"), device)
        call(*given, result)
        answers.append(result.numpy())
    assert np.abs(answers[0]).max() > 1 and np.isfinite(answers[0]).all()
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])


REFUSED = {
    "groups": (lambda: relay.nn.conv2d(x(1, 4, 6, 6), weight(8, 2, 3, 3), groups=2, kernel_size=(3, 3)), "groups"),
    "padding": (lambda: windows(8, 3, 3, padding=(0, 0, 1, 1)), "not the same on both sides"),
    "layout": (
        lambda: relay.nn.conv2d(
            x(1, 6, 6, 4), weight(3, 3, 4, 8), data_layout="NHWC", kernel_layout="HWIO", kernel_size=(3, 3)
        ),
        "data_layout NHWC",
    ),
    "float64": (
        lambda: relay.nn.dense(relay.var("x", shape=(2, 4), dtype="float64"), relay.const(np.ones((3, 4)))),
        "float64",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    make, reason = REFUSED[what]
    _, plan = by_costs("opencl", typed(make()), lambda key: 1.0)
    refused = [one["reason"] for one in plan["candidates"]["refusals"] if one["backend"] == BACKEND]
    assert any(reason in one for one in refused), refused


def test_a_network_in_one_region(tmp_path):
    """Convolutions by CLBlast, all else by TVM, with one copy there and one back; each step is somebody's."""
    module = network()
    split, plan = on(module, "convgemm")
    (inside,) = plan["regions"]
    assert inside["backend"] == f"{BACKEND}+{TVM}"
    assert [one["kernel"] for one in inside["candidates"] if one.get("kernel")] == ["convgemm"] * 2
    assert inside["copies"]["to_device"] == inside["copies"]["from_device"] == 1
    runs_like_tvm(module, split, tmp_path)
    told = steps(split, tmp_path, *placed.values(module))
    assert [step["what"] for step in told].count("copy to the device") == 1
    done = [group for step in told if step["what"] == "kernel" for group in step["of"]]
    assert sorted(done) == list(range(max(done) + 1)) and len(done) == sum(placed.offloaded(split).values())


def test_regions_that_share_a_weight(tmp_path):
    """Two calls that read one constant, and a result that the region gives beside what is made of it."""
    shared = weight(8, 8, 3, 3)
    first = relay.nn.conv2d(x(1, 8, 9, 9), shared, kernel_size=(3, 3), padding=(1, 1))
    second = relay.nn.conv2d(relay.nn.relu(first), shared, kernel_size=(3, 3), padding=(1, 1))
    module = typed(relay.Tuple([second, first, relay.exp(second)]))
    split, plan = on(module, "convgemm")
    (inside,) = [region for region in plan["regions"] if region["backend"] != "tvm"]
    assert [one["kernel"] for one in inside["candidates"] if one.get("kernel")] == ["convgemm"] * 2
    runs_like_tvm(module, split, tmp_path)


def test_what_is_split_elsewhere(tmp_path):
    """A region that is given a tuple."""
    parts = relay.split(x(4, 48), 3, axis=1).astuple()
    module = typed(relay.nn.relu(relay.nn.dense(relay.concatenate(parts, axis=0), weight(8, 16))))
    pins = [f"nn.dense={BACKEND}.gemm", f"concatenate={TVM}", "split=tvm"]
    split, plan = by_costs("opencl", module, lambda key: 0.01 if key["backend"] == TVM else 1.0, pin=pins)
    assert f"{BACKEND}+{TVM}" in {region["backend"] for region in plan["regions"]}
    runs_like_tvm(module, split, tmp_path)


def test_calls_that_cannot_be_made():
    from collage import library

    library.install("collage_opencl")
    create = tvm.get_global_func("collage.runtime.opencl.ClblastCreate")
    for line in ("", "gemm 1 2", "gemv 40 24 1 0 7", "syrk 1 2 3 4", "gemv 40 24 1 x"):
        with pytest.raises(Exception, match="written by another version of Collage, or the file is damaged"):
            create("call", line)
    here = [tvm.nd.array(np.ones(shape, "float32")) for shape in ((1, 24), (40, 24), (1, 40))]
    with pytest.raises(Exception, match="not in a device's memory"):
        create("call", "gemv 40 24 1 0")["call"](*here)
    there = [tvm.nd.array(np.ones(shape, "float64"), tvm.device("opencl", 0)) for shape in ((1, 24), (40, 24), (1, 40))]
    with pytest.raises(Exception, match="of another type than it was compiled for"):
        create("call", "gemv 40 24 1 0")["call"](*there)


def test_the_processor_between(tmp_path):
    """Without TVM's kernels on the device, each region of CLBlast's stands by itself."""
    module = network()
    split, plan = by_costs("cpu", module, lambda key: 1.0, backends=["tvm", BACKEND], pin=[f"nn.conv2d={BACKEND}"])
    assert [region["backend"] for region in plan["regions"]].count(BACKEND) == 2
    assert {region["backend"] for region in plan["regions"]} == {"tvm", BACKEND}
    runs_like_tvm(module, split, tmp_path)


def test_several_callers_at_once(tmp_path):
    """Threads with an executor each, on one device and its queue."""
    module = network()
    threads_agree(module, placed.export_to(tmp_path / "model.tar", on(module, "convgemm")[0]), turns=40)


def test_a_program_in_cpp(tmp_path):
    """That of examples/run_from_cpp: no Python, no compiler, the device by way of the plug-in alone."""
    hidden = relay.nn.relu(relay.nn.dense(x(1, 64), weight(128, 64)))
    module = typed(relay.nn.softmax(relay.nn.dense(hidden, weight(10, 128))))
    split, plan = on(module, "gemv")
    assert {region["backend"] for region in plan["regions"]} == {f"{BACKEND}+{TVM}"}
    model = placed.export_to(tmp_path / "model.so", split)
    tvm_folder = Path(tvm.__file__).parent
    third = [f"-I{tvm_folder / '3rdparty' / name / 'include'}" for name in ("dlpack", "dmlc-core")]
    source = Path(__file__).parent.parent / "examples" / "run_from_cpp" / "main.cc"
    built = ["g++", "-std=c++17", source, "-o", tmp_path / "main", f"-I{tvm_folder / 'include'}", *third]
    built += ["-DDMLC_USE_LOGGING_LIBRARY=<tvm/runtime/logging.h>", f"-L{tvm_folder}", "-ltvm_runtime"]
    subprocess.run([*map(str, built), f"-Wl,-rpath,{tvm_folder}"], check=True, timeout=300)
    where = environment(LD_LIBRARY_PATH=str(PACKAGE / "lib"))
    done = subprocess.run([tmp_path / "main", model], capture_output=True, text=True, env=where, timeout=300)
    assert done.returncode == 0, done.stderr
    (wanted,) = placed.expected(module, np.ones((1, 64), "float32"))
    np.testing.assert_allclose([float(word) for word in done.stdout.split()], wanted[0], atol=2e-6)


def test_a_plan_is_replayed():
    import collage

    module = network()
    split, plan = on(module, "convgemm")
    assert tvm.ir.structural_equal(split, collage.replay(module, json.dumps(plan)))


def test_a_model_where_there_is_no_clblast(command, tmp_path):
    """It says so before anything of the region runs; a model that only TVM's kernels run on the device needs none."""
    module = network()
    lacking = {"COLLAGE_CLBLAST_LIBRARY": "/nowhere/libclblast.so.1"}
    archive = placed.export_to(tmp_path / "model.tar", on(module, "convgemm")[0])
    done = command("run", archive, "--repeat", 1)
    assert done.returncode == 0, done.stderr
    done = command("run", archive, environment=lacking)
    assert done.returncode == 2
    assert "CLBlast cannot be opened where COLLAGE_CLBLAST_LIBRARY says" in done.stderr, done.stderr
    archive = placed.export_to(tmp_path / "other.tar", placed.place(module, TVM))
    done = command("run", archive, "--repeat", 1, environment=lacking)
    assert done.returncode == 0, done.stderr


def test_no_clblast(command, tmp_path):
    """Who names it is told how to get it; --device goes without it."""
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    lacking = {"COLLAGE_CLBLAST_LIBRARY": "/nowhere/libclblast.so.1"}
    arguments = ["plan", model, "--dry-run", "-q", "--db", tmp_path / "costs.jsonl"]
    done = command(*arguments, "--backends", "tvm,clblast", environment=lacking)
    assert done.returncode == 2 and "clblast cannot be used: COLLAGE_CLBLAST_LIBRARY is" in done.stderr, done.stderr
    assert "make backends BACKENDS=clblast" in done.stderr
    done = command(*arguments, "--device", "opencl", "--backends", "tvm", environment=lacking)
    assert done.returncode == 0 and TVM in done.stdout and f"\n{BACKEND} " not in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert_full", "nasneta"])
def test_networks(name, tmp_path):
    """All that CLBlast takes of them, the rest by TVM beside it."""
    from collage import transform, workloads

    module, params = workloads.build(name)
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    module = transform.Normalise()(module)
    kept = [f"{name}={TVM}" for name in placed.counted(module["main"]) if name in PRODUCTS]
    split, plan = by_costs(
        "opencl", module, lambda key: {BACKEND: 0.01, TVM: 0.02}.get(key["backend"], 100.0), forbid=kept
    )
    assert f"{BACKEND}+{TVM}" in {region["backend"] for region in plan["regions"]}
    inputs = placed.values(module)
    executor = placed.load(placed.export_to(tmp_path / "model.tar", split))
    placed.same(placed.run(executor, *inputs), placed.expected(module, *inputs))


@pytest.mark.long
def test_measured(command, tmp_path):
    """Its kernels are measured as others are, and what is written gives TVM's answer."""
    data = relay.nn.relu(convolution(x(1, 16, 24, 24), 16, 32))
    module = typed(relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(data), weight(10, 32 * 24 * 24))))
    model, out, plan, store = (tmp_path / name for name in ("n.json", "model.tar", "plan.json", "costs.jsonl"))
    model.write_text(tvm.ir.save_json(module))
    arguments = ["compile", model, "-o", out, "--plan-out", plan, "--backends", "tvm", "--device", "opencl"]
    pins = [argument for name in ("nn.conv2d", "nn.dense") for argument in ("--pin", f"{name}={BACKEND}")]
    done = command(*arguments, *pins, "--search-time", "60s", "--db", store, "--repeat", 5)
    assert done.returncode == 0, done.stderr
    parts = [one for region in json.loads(plan.read_text())["regions"] for one in region["candidates"]]
    kernels = {one["composite"]: one for one in parts if one.get("kernel")}
    assert "clblast.convgemm_conv2d" in kernels and kernels.keys() & {"clblast.gemv_dense", "clblast.gemm_dense"}
    assert all(one["estimate_ms"] > 0 for one in kernels.values())
    records = [json.loads(line) for line in store.read_text().splitlines()]
    assert not [one["failure"] for one in records if "failure" in one]
    inputs = placed.values(module)
    placed.same(placed.run(placed.load(out), *inputs), placed.expected(module, *inputs))


@pytest.mark.long
def test_the_document(tmp_path):
    """The commands of docs/devices.md, as they stand there."""
    (block,) = [one for one in documents.read("docs/devices.md").blocks if one.run_by == "tests/test_clblast.py"]
    assert "wrote model.tar" in Runner(tmp_path).run(block)
