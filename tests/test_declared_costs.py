# SPDX-License-Identifier: Apache-2.0
"""Plans for devices and libraries that a file describes (docs/devices.md), on machines that do not have them."""

import contextlib
import json

import documents
import numpy as np
import placed
import pytest
import schemas
import tvm
from document_runner import Runner
from test_json import small_network
from tvm import relay

NPU = {
    "version": 1,
    "devices": {
        "npu": {
            "copies": [
                {"bytes": 4096, "to_ms": 1e-3, "from_ms": 2e-3},
                {"bytes": 1 << 20, "to_ms": 1e-2, "from_ms": 2e-2},
            ]
        }
    },
    "backends": {
        "npu_kernels": {
            "device": "npu",
            "gflops": 1e5,
            "gigabytes_per_second": 1e4,
            "operators": {"nn.conv2d": {}, "nn.bias_add": {}, "nn.relu": {}, "add": {}},
        }
    },
}


def changed(**fields):
    """The file with other fields of the backend."""
    return {**NPU, "backends": {"npu_kernels": {**NPU["backends"]["npu_kernels"], **fields}}}


def write(path, said):
    path.write_text(json.dumps(said))
    return path


@pytest.fixture
def npu(tmp_path):
    """A device that is quicker than any processor."""
    return write(tmp_path / "npu.json", NPU)


@contextlib.contextmanager
def declared(folder, said):
    import collage

    with collage.declared_costs(write(folder / "costs.json", said)):
        yield


def network():
    """Two convolutions with what follows them, and a softmax."""
    rng = np.random.default_rng(0)
    data = relay.var("data", shape=(1, 16, 32, 32))
    for _ in range(2):
        weight = relay.const(rng.standard_normal((16, 16, 3, 3)).astype("float32") / 12)
        data = relay.nn.relu(relay.nn.conv2d(data, weight, kernel_size=(3, 3), channels=16, padding=(1, 1)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.batch_flatten(data))))


def planned(module, folder, said, **options):
    import collage

    options = {"backends": ["tvm"], "devices": ["npu"], "threads": 1, "samples": 3, **options}
    with declared(folder, said):
        return collage.plan(module, store=folder / "costs.jsonl", progress=False, **options)


def backends_of(plan):
    return {region["backend"] for region in plan.regions}


def test_the_file_decides_what_goes_there(collage_library, tmp_path):
    module = network()
    quick = planned(module, tmp_path, NPU)
    assert backends_of(quick) == {"tvm", "npu_kernels"}, "the softmax is not its to run"
    (there,) = [region for region in quick.regions if region["backend"] == "npu_kernels"]
    size = 16 * 32 * 32 * 4
    assert there["copies"] == {"to_device": 1, "to_bytes": size, "from_device": 1, "from_bytes": size}
    said = {one["name"]: one for one in json.loads(quick.text)["backends"]}
    assert said["npu_kernels"]["device"] == "npu" and "costs.json (SHA-256 " in said["npu_kernels"]["declared"]
    assert "declared" not in said["tvm"]
    # Two kernels of 2 * 9 * 16 operations for each of the values, and what the file says of both copies.
    flops = 2 * 2 * 9 * 16 * 16 * 32 * 32
    moved = 2 * (2 * size + 9 * 16 * 16 * 4)
    kernels = max(flops / 1e5, moved / 1e4) / 1e6 + 2 * quick.estimate["overhead_ms"]
    assert there["estimate_ms"] == pytest.approx(kernels, rel=1e-6)
    share = (size - 4096) / ((1 << 20) - 4096)
    assert quick.estimate["transfers_ms"] == pytest.approx(1e-3 + share * 9e-3 + 2e-3 + share * 18e-3, rel=1e-6)

    assert backends_of(planned(module, tmp_path, changed(gflops=1e-3))) == {"tvm"}, "it computes slowly"
    assert backends_of(planned(module, tmp_path, changed(launch_ms=100))) == {"tvm"}, "its kernels start slowly"
    far = {"npu": {"copies": [{"bytes": 1, "to_ms": 100, "from_ms": 0}]}}
    assert backends_of(planned(module, tmp_path, {**NPU, "devices": far})) == {"tvm"}, "copies take long"
    small = {"npu": {**NPU["devices"]["npu"], "memory_bytes": 1000}}
    refused = planned(module, tmp_path, {**NPU, "devices": small})
    assert backends_of(refused) == {"tvm"}
    assert "the device npu has 0.0 MB" in refused.text


def test_plans_are_replayed_where_the_device_is_not(collage_library, tmp_path):
    import collage

    module = network()
    plan = planned(module, tmp_path, NPU)
    with pytest.raises(collage.errors.BackendError, match="npu_kernels"):
        collage.replay(module, plan.text)
    with declared(tmp_path, NPU):
        split = collage.replay(module, plan.text, verify=False)
    assert placed.offloaded(split) == {"nn.conv2d": 2, "nn.relu": 2}
    with pytest.raises(collage.errors.BackendError, match="npu_kernels: it is declared in a file of costs: nothing"):
        relay.build(split, "llvm")


def test_what_is_compiled_is_measured(collage_library, tmp_path):
    import collage

    options = {"backends": ["tvm"], "devices": ["npu"], "threads": 1, "samples": 3, "store": tmp_path / "costs.jsonl"}
    with declared(tmp_path, NPU):
        for out in ({}, {"out": tmp_path / "model.so"}):
            with pytest.raises(collage.errors.OptionError, match="npu_kernels, whose costs are declared"):
                collage.compile(network(), progress=False, **out, **options)
        assert not (tmp_path / "model.so").exists()
        with pytest.raises(collage.errors.OptionError, match="the costs of npu_kernels are declared"):
            collage.partition(network(), level="graph", progress=False, **options)
        split = collage.partition(network(), progress=False, **options)
        assert placed.offloaded(split)["nn.conv2d"] == 2
    with pytest.raises(collage.errors.OptionError, match="npu"):
        collage.plan(network(), progress=False, **options)


def test_a_library_for_the_processor(collage_library, tmp_path):
    library = {"gflops": 1e6, "gigabytes_per_second": 1e5, "operators": {"nn.softmax": {}}}
    said = {"version": 1, "backends": {"future": library}}
    plan = planned(network(), tmp_path, said, backends=["tvm", "future"], devices=["cpu"])
    assert [region["backend"] for region in plan.regions][-1] == "future"
    assert "copies" not in plan.regions[-1] and not plan.estimate.get("transfers_ms")


def test_costs_of_everything_measure_nothing(collage_library, tmp_path):
    """A plan for another machine: all speeds are declared, OpenCL's driver need not be here."""
    speed = {"gflops": 10, "gigabytes_per_second": 10}
    said = {
        "version": 1,
        "devices": {"opencl": NPU["devices"]["npu"]},
        "backends": {"tvm": speed, "tvm_opencl": {"gflops": 1e5, "gigabytes_per_second": 1e4}},
    }
    plan = planned(network(), tmp_path, said, devices=["opencl"])
    assert backends_of(plan) == {"tvm_opencl"}
    assert json.loads(plan.text)["candidates"]["measured"] == 0
    said["devices"]["opencl"] = {**NPU["devices"]["npu"], "memory_bytes": 1000}
    assert backends_of(planned(network(), tmp_path, said, devices=["opencl"])) == {"tvm"}, "it holds nothing"


def test_without_a_driver(command, tmp_path):
    said = {
        "version": 1,
        "devices": {"opencl": NPU["devices"]["npu"]},
        "backends": {"tvm_opencl": {"gflops": 1e5, "gigabytes_per_second": 1e4}},
    }
    small_network(tmp_path / "small.onnx")
    write(tmp_path / "costs.json", said)
    (tmp_path / "vendors").mkdir()
    arguments = ["plan", "small.onnx", "--device", "opencl", "--backends", "tvm", "--db", "costs.jsonl", "-q"]
    without = {"OCL_ICD_VENDORS": f"{tmp_path}/vendors/", "COLLAGE_OPENCL_LIBRARY": f"{tmp_path}/libOpenCL.so.1"}
    done = command(*arguments, cwd=tmp_path, environment=without)
    assert done.returncode == 2 and "tvm_opencl cannot be used" in done.stderr
    done = command(*arguments, "--costs", "costs.json", cwd=tmp_path, environment=without)
    assert done.returncode == 0, done.stderr
    assert "not measured: what tvm_opencl takes is declared in costs.json (SHA-256 " in done.stdout


def test_a_dry_run_says_what_is_declared(command, npu, tmp_path):
    small_network(tmp_path / "small.onnx")
    arguments = ["plan", "small.onnx", "--costs", npu, "--device", "npu", "--backends", "tvm", "--dry-run", "-q"]
    done = command(*arguments, "--json", "--db", "costs.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = schemas.hold("plan", schemas.parsed(done.stdout))
    by_name = {one["name"]: one for one in told["backends"]}
    assert "npu.json" in by_name["npu_kernels"]["declared"] and "declared" not in by_name["tvm"]
    assert told["computations"] == by_name["tvm"]["computations"] and told["computations_known"] == 0
    assert not (tmp_path / "costs.jsonl").exists()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (None, "no such file"),
        ("{", "npu.json is no file of costs: unexpected EOF"),
        (json.dumps(changed(gflops=-1)), "npu.json is no file of costs: backends.npu_kernels.gflops: is -1"),
        (json.dumps(changed(operators={})), "backends.npu_kernels.operators: there are none"),
        (json.dumps(changed(device="gpu")), 'backends.npu_kernels.device: "gpu" is none of the file\'s devices'),
    ],
)
def test_bad_files(command, tmp_path, said, reason):
    import collage

    path = tmp_path / "npu.json"
    if said is not None:
        path.write_text(said)
    small_network(tmp_path / "small.onnx")
    done = command("plan", "small.onnx", "--costs", path, "--device", "npu", "--plan-out", "plan.json", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("collage: error: --costs: ")
    assert reason in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "plan.json").exists()
    with pytest.raises((collage.errors.InputError, FileNotFoundError), match=r"npu\.json") as raised:
        collage.declared_costs(path).__enter__()
    assert reason in str(raised.value) and isinstance(raised.value, collage.CollageError)


def test_one_file_at_a_time_speaks_of_a_backend(collage_library, tmp_path):
    import collage

    with declared(tmp_path, NPU):
        again = declared(tmp_path, NPU)
        with pytest.raises(collage.errors.InputError, match=r"declared already: costs\.json"):
            again.__enter__()
    with declared(tmp_path, NPU):  # nothing was left behind
        pass


def test_the_frontier_runs_networks(command, npu, tmp_path):
    small_network(tmp_path / "small.onnx")
    done = command(
        "plan", "small.onnx", "--costs", npu, "--device", "npu", "--frontier", "--max-error", 0.1, cwd=tmp_path
    )
    assert done.returncode == 2 and "--costs does not go with --frontier" in done.stderr


def test_the_document(collage_library, tmp_path):
    """The commands of docs/devices.md, as they stand there; the file is one that the schema knows."""
    runner = Runner(tmp_path)
    (block,) = [one for one in documents.read("docs/devices.md").blocks if one.run_by == "tests/test_declared_costs.py"]
    said = runner.run(block)
    assert "wrote the plan plan.json" in said
    (plan,) = tmp_path.rglob("plan.json")
    made = schemas.hold("files/plan", schemas.parsed(plan.read_text()))
    assert "graph_level" not in made, "nothing is run as a whole"
    assert made["candidates"]["given"] and made["candidates"]["measured"] + made["candidates"]["stored"]
    (file,) = tmp_path.rglob("npu.json")
    schemas.hold("files/costs", schemas.parsed(file.read_text()))
    schemas.hold("files/costs", NPU)
