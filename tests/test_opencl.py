# SPDX-License-Identifier: Apache-2.0
"""Regions on an OpenCL device: what TVM computes there is what it computes on the processor; which parts go there is a
matter of costs; what is copied is what the plan says.
"""

import json
import re
import shutil
import threading
import time
from pathlib import Path

import documents
import numpy as np
import opencl_driver
import placed
import pytest
import tvm
from conftest import run_python
from device_networks import convolution, mixed, network, typed
from document_runner import Runner
from tvm import relay

BACKEND = "tvm_opencl"
SCRIPT = Path(__file__).parent.parent / "scripts" / "opencl.sh"


@pytest.fixture(scope="module", autouse=True)
def device(collage_library):
    opencl_driver.required()
    yield
    placed.forget()


def test_a_driver_without_a_device_can_be_declared(command, tmp_path):
    copies = [{"bytes": 4096, "to_ms": 1e-3, "from_ms": 1e-3}]
    there = {BACKEND: {"gflops": 1e5, "gigabytes_per_second": 1e4}}
    said = {"version": 1, "devices": {"opencl": {"copies": copies}}, "backends": there}
    (tmp_path / "costs.json").write_text(json.dumps(said))
    (tmp_path / "network.json").write_text(tvm.ir.save_json(network()))
    arguments = ["plan", "network.json", "--device", "opencl", "--backends", "tvm", "--db", "costs.jsonl", "-q"]
    none = {"POCL_DEVICES": ""}
    done = command(*arguments, cwd=tmp_path, environment=none)
    assert done.returncode == 2 and "knows no device on this machine" in done.stderr
    done = command(*arguments, "--costs", "costs.json", cwd=tmp_path, environment=none)
    assert done.returncode == 0 and f"what {BACKEND} takes is declared" in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["bert_full", "dcgan", "nasneta", "resnet50_3d", "resnext50_32x4d"])
def test_the_five_networks(name, tmp_path):
    """On the device alone, and with what multiplies there and the rest on the processor."""
    from collage import transform, workloads

    module, params = workloads.build(name)
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    module = transform.Normalise()(module)
    inputs = placed.values(module)
    wanted = placed.expected(module, *inputs)
    split = placed.place(module, BACKEND)
    placed.same(placed.run(placed.load(placed.export_to(tmp_path / "alone.tar", split)), *inputs), wanted)
    multiplies = [op for op in placed.counted(module["main"]) if re.search("conv|dense|matmul", op)]
    split, plan = mixed("opencl", module, multiplies)
    assert {region["backend"] for region in plan["regions"]} == {"tvm", BACKEND}
    placed.same(placed.run(placed.load(placed.export_to(tmp_path / "mixed.tar", split)), *inputs), wanted)


@pytest.mark.long
def test_the_document(tmp_path):
    """The commands of docs/devices.md, as they stand there."""
    runner = Runner(tmp_path)
    (block,) = [one for one in documents.read("docs/devices.md").blocks if one.run_by == "tests/test_opencl.py"]
    said = runner.run(block)
    assert said.count("wrote model.tar") == 3 and "on tvm_opencl" in said


def without_driver(folder):
    """An environment in which OpenCL finds no driver."""
    empty = folder / "vendors"
    empty.mkdir()
    return {"OCL_ICD_VENDORS": f"{empty}/"}


# Two devices of pocl's: "basic" computes on the calling thread, "pthread" on threads of its own.
SEVERAL = {"POCL_DEVICES": "pthread basic"}

# Runs a model and tells which share of the process's time passes on the calling thread.
SHARE = """
import json, sys, time
import numpy as np
import collage
executor = collage.load(sys.argv[1])
with np.load(sys.argv[2]) as arrays:
    executor.set_input(0, arrays["input"])
executor.run()
whole, own = time.process_time(), time.thread_time()
for _ in range(30): executor.run()
whole, own = time.process_time() - whole, time.thread_time() - own
print(json.dumps({"share": own / whole, "output": executor.get_output(0).numpy().tolist()}))
"""


def devices(command, **extra):
    done = command("doctor", "--json", environment={**SEVERAL, **extra})
    told = json.loads(done.stdout)
    return told["devices"], [one["problem"] for one in told["problems"]]


def test_a_device_among_several(command, tmp_path):
    """The one that is named runs the model, and its costs are its own."""
    found, _ = devices(command)
    kinds = [one["name"].split("-")[0] for one in found]
    assert sorted(kinds) == ["basic", "pthread"] and [one["used"] for one in found] == [True, False]
    assert [one["number"] for one in found] == [0, 1]
    data = relay.var("data", shape=(1, 16, 48, 48))
    module = typed(convolution(convolution(data, 16, 32), 32, 32, 1))
    (value,) = placed.values(module, seed=5)
    (wanted,) = placed.expected(module, value)
    np.savez(tmp_path / "input.npz", input=value)
    path = placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND))
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(module))
    store, hardware = tmp_path / "costs.jsonl", []
    for number, kind in enumerate(kinds):
        chosen = {**SEVERAL, "COLLAGE_OPENCL_DEVICE": str(number)}
        told = run_python(SHARE, path, tmp_path / "input.npz", **chosen)
        placed.same([np.array(told["output"], "float32")], [wanted])
        assert (told["share"] > 0.5) == (kind == "basic"), (kind, told["share"])
        arguments = ["plan", model, "--device", "opencl", "--backends", "tvm", "--db", store, "--repeat", 3, "-q"]
        plan = tmp_path / f"{number}.json"
        done = command(*arguments, "--plan-out", plan, environment=chosen)
        assert done.returncode == 0, done.stderr
        (there,) = [one for one in json.loads(plan.read_text())["backends"] if one["name"] == BACKEND]
        hardware.append(there["hardware"])
        assert there["hardware"].startswith(f"{kind}-") and found[number]["driver"] in there["hardware"]
    for one in hardware:
        assert one in store.read_text(), "costs are kept by the device"


@pytest.mark.parametrize("number", ["2", " 1", "99999999999999999999"])
def test_a_device_that_is_not_there(command, number, tmp_path):
    said = f"COLLAGE_OPENCL_DEVICE={number} names no OpenCL device: 2 are here, numbered from 0"
    found, problems = devices(command, COLLAGE_OPENCL_DEVICE=number)
    assert not any(one["used"] for one in found) and any(one.startswith(said) for one in problems)
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    arguments = ["compile", model, "-o", tmp_path / "model.tar", "--device", "opencl", "--db", tmp_path / "costs.jsonl"]
    done = command(*arguments, environment={**SEVERAL, "COLLAGE_OPENCL_DEVICE": number})
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "model.tar").exists()


def test_no_driver(command, tmp_path):
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    lacking = without_driver(tmp_path)
    out, store = tmp_path / "model.tar", tmp_path / "costs.jsonl"
    done = command("compile", model, "-o", out, "--device", "opencl", "--db", store, environment=lacking)
    assert done.returncode == 2
    assert "tvm_opencl cannot be used: OpenCL" in done.stderr and "names none" in done.stderr
    assert "pocl-opencl-icd" in done.stderr
    assert not (tmp_path / "model.tar").exists()


def networks_of(plan):
    """The whole networks that were measured, by their names."""
    return {one["name"]: one for one in json.loads(plan.read_text())["graph_level"]["networks"]}


@pytest.mark.long
def test_a_driver_that_disappears_while_it_is_searched(command, tmp_path):
    """What needs the device is left out and said, what is written is right, and nothing of it is held against the
    device when that is back.
    """
    vendors, model, store = tmp_path / "vendors", tmp_path / "network.json", tmp_path / "costs.jsonl"
    shutil.copytree("/etc/OpenCL/vendors", vendors)
    module = network()
    model.write_text(tvm.ir.save_json(module))
    gone, back = threading.Event(), threading.Event()

    def remove():
        # The first lines are what copies take, before any network is built.
        while not back.is_set() and not (store.exists() and store.read_text().count("\n") >= 8):
            time.sleep(0.02)
        for file in vendors.iterdir():
            file.unlink()
        gone.set()

    remover = threading.Thread(target=remove)
    remover.start()
    arguments = ["compile", model, "-o", tmp_path / "model.tar", "--device", "opencl", "--backends", "tvm,dnnl"]
    arguments += ["--db", store, "--search-time", "40s", "--repeat", 5, "--plan-out", tmp_path / "plan.json"]
    environment = {"OCL_ICD_VENDORS": f"{vendors}/"}
    done = command(*arguments, environment=environment)
    back.set()
    remover.join()
    assert done.returncode == 0, done.stderr
    assert gone.is_set() and "tvm_opencl alone was left out" in done.stderr and "names none" in done.stderr
    inputs = placed.values(module, seed=5)
    placed.same(placed.run(placed.load(tmp_path / "model.tar"), *inputs), placed.expected(module, *inputs), rtol=1e-4)
    assert "in setup" in networks_of(tmp_path / "plan.json")[BACKEND]["failure"]

    shutil.copytree("/etc/OpenCL/vendors", vendors, dirs_exist_ok=True)
    done = command(*arguments, environment=environment)
    assert done.returncode == 0 and "left out" not in done.stderr, done.stderr
    assert not networks_of(tmp_path / "plan.json")[BACKEND].get("failure")


def test_a_model_where_there_is_no_device(command, tmp_path):
    """Before anything of it runs, a model says which device it lacks."""
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    done = command("run", archive, "--repeat", 1)
    assert done.returncode == 0, done.stderr
    done = command("run", archive, environment=without_driver(tmp_path))
    assert done.returncode == 2
    assert "knows no device on this machine" in done.stderr, done.stderr
    done = command("run", archive, environment={"COLLAGE_OPENCL_LIBRARY": "/nowhere/libOpenCL.so"})
    assert done.returncode == 2
    assert "OpenCL cannot be opened where COLLAGE_OPENCL_LIBRARY says" in done.stderr, done.stderr


# pocl's device of 1 GiB, and an exponential that it has room for, but not in one piece.
SMALL, LARGE = {"POCL_MEMORY_LIMIT": "1"}, (80 << 20,)
OUT_OF_MEMORY = "the device is out of memory: its 1024 MiB do not hold it"


def test_a_model_that_the_device_has_no_room_for(command, tmp_path):
    module = typed(relay.exp(relay.var("x", shape=LARGE)))
    archive = placed.export_to(tmp_path / "model.tar", placed.place(module, BACKEND))
    done = command("run", archive, environment=SMALL)
    assert done.returncode == 2 and "the model does not start: " in done.stderr and OUT_OF_MEMORY in done.stderr


@pytest.mark.long
def test_a_search_where_the_device_is_short_of_memory(command, tmp_path):
    """What its memory cannot hold by size is no candidate, the rest fails there and is tried again soon."""
    for extents, tried in ((LARGE, True), ((140 << 20,), False)):
        model, store = tmp_path / "network.json", tmp_path / f"{extents[0]}.jsonl"
        model.write_text(tvm.ir.save_json(typed(relay.exp(relay.var("x", shape=extents)))))
        arguments = ["compile", model, "-o", tmp_path / "model.tar", "--device", "opencl", "--backends", "tvm", "-v"]
        arguments += ["--search-time", "20s", "--repeat", 3, "--db", store]
        done = command(*arguments, environment=SMALL)
        assert done.returncode == 0, done.stderr
        failures = [one["failure"] for line in store.read_text().splitlines() if "failure" in (one := json.loads(line))]
        assert bool(failures) == tried
        assert all(one["kind"] == "out-of-memory" and OUT_OF_MEMORY in one["detail"] for one in failures), failures
        assert (OUT_OF_MEMORY in done.stdout) == tried


@pytest.mark.parametrize("cache", ["", "POCL_CACHE_DIR"])
def test_a_package_of_a_model_on_a_device(command, tmp_path, cache):
    """It has the model and the plug-ins; the driver and the kernels that it compiles are the machine's."""
    archive = placed.export_to(tmp_path / "model.tar", placed.place(network(), BACKEND))
    where = {cache: str(tmp_path / "kernels")} if cache else {}
    (tmp_path / "kernels").mkdir()
    done = command("package", archive, "-o", tmp_path / "package", environment=where)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "package" / "manifest.json").read_text())
    assert "libcollage_opencl.so" in manifest["plugins"] and "libOpenCL.so.1" in manifest["system"]
    packed = [path.name for path in (tmp_path / "package").rglob("*.so*")]
    assert "libcollage_opencl.so" in packed
    assert not [name for name in packed if "kernel" in name or "fused" in name or "pocl" in name]
    done = command("run", tmp_path / "package", "--repeat", 1, environment=where)
    assert done.returncode == 0, done.stderr


def test_a_device_that_nobody_knows(command, tmp_path):
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    done = command("compile", model, "-o", tmp_path / "model.tar", "--device", "abacus")
    assert done.returncode == 2
    assert '--device has "abacus", on which no backend runs (known: cpu, cuda, opencl)' in done.stderr


def test_doctor_names_the_device(command):
    report = json.loads(command("doctor", "--json").stdout)
    (device,) = [one for one in report["devices"] if one["kind"] == "opencl"][:1]
    assert device["name"] and device["driver"] and device["units"] > 0 and device["memory_bytes"] > 0
    assert set(device["backends"]) - {"clblast"} == {BACKEND}
    assert device["name"] in command("doctor").stdout
