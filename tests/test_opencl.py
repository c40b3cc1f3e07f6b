# SPDX-License-Identifier: Apache-2.0
"""Regions on an OpenCL device: what TVM computes there is what it computes on the processor; which parts go there is a
matter of costs; what is copied is what the plan says.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import documents
import numpy as np
import opencl_operators
import placed
import pytest
import tvm
from conftest import environment, run_python
from document_runner import Runner
from opencl_networks import by_costs, convolution, network, runs_like_tvm, steps, typed
from random_programs import program, running
from tvm import relay

BACKEND = "tvm_opencl"
SCRIPT = Path(__file__).parent.parent / "scripts" / "opencl.sh"


@pytest.fixture(scope="module", autouse=True)
def device(collage_library):
    """A driver, on every machine on which one can be had: the processor by way of pocl."""
    done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, timeout=600)
    if done.returncode == 3:
        pytest.skip(f"OpenCL cannot be had here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    yield
    placed.forget()


# What networks are made of above all is looked at each time, the rest with the long tests: each kernel is compiled.
KINDS = [
    pytest.param(kind, marks=[] if kind in ("convolutions", "products") else pytest.mark.long)
    for kind in opencl_operators.OPERATORS
]


@pytest.mark.parametrize("kind", KINDS)
def test_operators(kind, tmp_path):
    """Each operator is taken, and gives what it gives on the processor."""
    made = {name: make() for name, make in opencl_operators.OPERATORS[kind].items()}
    for name, expr in made.items():
        assert placed.regions(placed.place(typed(expr), BACKEND)), f"{name} is not taken"
    module = typed(relay.Tuple(list(made.values())))
    inputs = placed.values(module, seed=5)
    split = placed.place(module, BACKEND)
    got = placed.run(placed.load(placed.export_to(tmp_path / "model.tar", split)), *inputs)
    for name, one, wanted in zip(made, got, placed.expected(module, *inputs), strict=True):
        try:
            placed.same([one], [wanted])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize(
    ("name", "reason"),
    [("tan", "another name"), ("float64", "float64 is not computed with"), ("empty", "without elements")],
)
def test_what_a_device_does_not_take_stays_on_the_processor(name, reason):
    made = {
        "tan": lambda: relay.tan(relay.var("x", shape=(4,))),
        "float64": lambda: relay.exp(relay.var("x", shape=(4,), dtype="float64")),
        "empty": lambda: relay.exp(relay.var("x", shape=(0, 4))),
    }
    split, plan = by_costs(typed(made[name]()), lambda key: 1.0)
    assert not placed.regions(split)
    refused = [one for one in plan["candidates"]["refusals"] if one["backend"] == BACKEND]
    assert any(reason in one["reason"] for one in refused), refused


def programs(seeds):
    """Random programs as they are and with all that the device takes on it."""
    from collage import transform

    for seed in seeds:
        one = program.generate(seed)
        module = transform.Normalise()(one.module)
        split = placed.place(module, BACKEND)
        if not one.scoped and placed.regions(split):
            yield seed, one, module, split


@pytest.mark.parametrize("seeds", [range(13, 15), pytest.param(range(40), marks=pytest.mark.long)], ids=str)
def test_random_programs(seeds):
    """Of 13 and 14, one has come quantised, for which TVM's passes must have gone over the region."""
    found = 0
    for seed, one, module, split in programs(seeds):
        (got,), _ = running.execute([split], [one.inputs])
        (wanted,), _ = running.execute([module], [one.inputs])
        assert running.excess(got, wanted) == "", seed
        found += 1
    assert found >= 0.7 * len(seeds)


def test_a_network_on_the_device_alone(tmp_path):
    module = network()
    split = placed.place(module, BACKEND)
    (inside,) = placed.regions(split).values()
    assert inside["nn.conv2d"] == 2 and inside["nn.softmax"] == 1
    runs_like_tvm(module, split, tmp_path)


def test_costs_decide_what_goes_to_the_device(tmp_path):
    """Costs by hand: a device that is slow gets nothing, one that is quick gets all."""
    module = network()
    _, plan = by_costs(module, lambda key: 5.0 if key["backend"] == BACKEND else 1.0)
    assert {region["backend"] for region in plan["regions"]} == {"tvm"}
    split, plan = by_costs(module, lambda key: 0.01 if key["backend"] == BACKEND else 1.0)
    assert {region["backend"] for region in plan["regions"]} == {BACKEND}
    runs_like_tvm(module, split, tmp_path)


def test_a_device_is_as_quick_as_a_file_says(tmp_path):
    """The same by a file of costs; what is placed by it runs."""
    import collage

    module = network()
    copies = [{"bytes": 4096, "to_ms": 1e-3, "from_ms": 1e-3}, {"bytes": 1 << 20, "to_ms": 1e-2, "from_ms": 1e-2}]
    file = tmp_path / "costs.json"
    for gflops, backends in ((1e-4, {"tvm"}), (1e5, {BACKEND})):
        there = {BACKEND: {"gflops": gflops, "gigabytes_per_second": 1e4}}
        file.write_text(json.dumps({"version": 1, "devices": {"opencl": {"copies": copies}}, "backends": there}))
        options = {"backends": ["tvm"], "devices": ["opencl"], "threads": placed.THREADS, "samples": 3}
        with collage.declared_costs(file):
            split = collage.partition(
                module, store=tmp_path / "costs.jsonl", plan_out=tmp_path / "plan.json", **options
            )
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert {region["backend"] for region in plan["regions"]} == backends, gflops
    runs_like_tvm(module, split, tmp_path)


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


def test_a_dry_run_measures_no_copies(command, tmp_path):
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    arguments = ["plan", model, "--format", "relay", "--device", "opencl", "--backends", "tvm", "--dry-run", "-q"]
    done = command(*arguments, "--db", "costs.jsonl", cwd=tmp_path)
    assert done.returncode == 0 and BACKEND in done.stdout, done.stderr
    assert not (tmp_path / "costs.jsonl").exists()


def mixed(module, pins):
    """The module with some operators on the device, the rest on the processor, and the plan."""
    there = {name: BACKEND if name in pins else "tvm" for name in placed.counted(module["main"])}
    return by_costs(module, lambda key: 1.0, pin=[f"{name}={backend}" for name, backend in there.items()])


def test_device_and_processor_together(tmp_path):
    module = network()
    split, plan = mixed(module, ["nn.conv2d"])
    inside = placed.offloaded(split)
    assert inside["nn.conv2d"] == 2 and inside["nn.softmax"] == 0
    assert {region["backend"] for region in plan["regions"]} == {"tvm", BACKEND}
    runs_like_tvm(module, split, tmp_path)


@pytest.mark.parametrize("pins", [["nn.conv2d"], ["nn.max_pool2d"], ["nn.conv2d", "nn.max_pool2d", "nn.relu"]])
def test_copies_are_counted(pins, tmp_path):
    """The plan says how many tensors a call copies, and so many are copied."""
    module = network()
    split, plan = mixed(module, pins)
    copies = [region["copies"] for region in plan["regions"] if region["backend"] == BACKEND]
    assert copies
    assert all("copies" not in region for region in plan["regions"] if region["backend"] == "tvm")
    done = [step["what"] for step in steps(split, tmp_path, *placed.values(module))]
    assert done.count("copy to the device") == sum(one["to_device"] for one in copies)
    assert done.count("copy from the device") == sum(one["from_device"] for one in copies)
    assert done.count("kernel") >= len(copies)


def test_each_kernel_says_what_it_does(tmp_path):
    """Every operator of a region is done by one kernel."""
    split = placed.place(network(), BACKEND)
    told = steps(split, tmp_path, *placed.values(network()))
    done = [group for step in told if step["what"] == "kernel" for group in step["of"]]
    assert sorted(done) == list(range(sum(placed.offloaded(split).values())))
    assert all(step["ms"] > 0 for step in told)
    (there,) = [step for step in told if step["what"] == "copy to the device"]
    (back,) = [step for step in told if step["what"] == "copy from the device"]
    assert there["reorder"] and there["of"] == [0] and back["reorder"] and back["from"] == [max(done)]


def test_kernels_are_timed_without_copies(tmp_path):
    """What workers time computes on what was copied before, and gives nothing back."""
    from collage import artefact, library

    library.install("collage_opencl")
    function = relay.Function([x := relay.var("x", shape=(4,))], relay.nn.relu(x))
    symbol = "tvmgen_default_collage_opencl_main_0"
    for name, value in (("Compiler", "collage_opencl"), ("global_symbol", symbol)):
        function = function.with_attr(name, value)
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))[symbol]
    module = tvm.get_global_func("relay.ext.collage_opencl")(function)
    first, second = np.array([1, -1, 2, -2], "float32"), np.array([-3, 3, -4, 4], "float32")
    region = artefact.OnDevice(module, symbol, [first], [((4,), "float32")], "opencl")
    np.testing.assert_array_equal(region.outputs(), [[1, 0, 2, 0]])
    assert all(seconds > 0 for seconds in region.seconds(2, 3))
    switch, run = tvm.get_global_func("collage.runtime.opencl.LeaveOutCopies"), module.get_function(symbol)
    given, got = tvm.nd.array(second), tvm.nd.array(np.zeros(4, "float32"))
    switch(True)
    try:
        run(given, got)
        np.testing.assert_array_equal(got.numpy(), 0)
    finally:
        switch(False)
    run(given, got)
    np.testing.assert_array_equal(got.numpy(), [0, 3, 0, 4])


def test_copies_of_values_that_are_read_twice(tmp_path):
    """A value that a region reads at two places is copied once, as is a result that is read twice; their bytes."""
    data = relay.var("data", shape=(1, 8, 16, 16))
    first = convolution(data, 8, 8)
    both = relay.nn.relu(first) + relay.tanh(first)
    module = typed(relay.exp(both) + relay.sqrt(relay.abs(both)))
    split, plan = mixed(module, ["nn.relu", "tanh", "add"])
    copies = [region["copies"] for region in plan["regions"] if region["backend"] == BACKEND]
    done = [step["what"] for step in steps(split, tmp_path, *placed.values(module))]
    assert done.count("copy to the device") == sum(one["to_device"] for one in copies)
    assert done.count("copy from the device") == sum(one["from_device"] for one in copies)
    bytes_of_one = 8 * 16 * 16 * 4
    for one in copies:
        assert one["to_bytes"] == one["to_device"] * bytes_of_one
        assert one["from_bytes"] == one["from_device"] * bytes_of_one
    assert copies[0] == {"to_device": 1, "to_bytes": bytes_of_one, "from_device": 1, "from_bytes": bytes_of_one}


def test_a_plan_is_replayed(tmp_path):
    import collage

    module = network()
    split, plan = mixed(module, ["nn.conv2d"])
    again = collage.replay(module, json.dumps(plan))
    assert tvm.ir.structural_equal(split, again)


def test_tvms_virtual_machine_runs_regions_on_the_device(tmp_path):
    """What branches is run by TVM's virtual machine, and parts of it on the device."""
    from collage import export

    data = relay.var("data", shape=(1, 8, 12, 12))
    flag = relay.var("flag", shape=(), dtype="bool")
    taken = relay.nn.relu(convolution(data, 8, 8))
    module = typed(
        relay.Function([data, flag], relay.If(flag, convolution(taken, 8, 8, 1), convolution(taken, 8, 8, 2)))
    )
    split = placed.place(module, BACKEND)
    assert placed.offloaded(split)["nn.conv2d"] == 3
    for truth in (True, False):
        inputs = placed.values(module)[0], np.array(truth)
        answers = []
        for each in (split, module):
            machine = export.runnable(each)
            for place, value in enumerate(inputs):
                machine.set_input(place, value)
            machine.run()
            answers.append([machine.get_output(0).numpy()])
        placed.same(*answers)


@pytest.mark.long
def test_measured(command, store, tmp_path):
    """Nothing is said about costs: they are measured, on the device too, and what is written gives TVM's answer."""
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    out, plan = tmp_path / "model.tar", tmp_path / "plan.json"
    done = command(
        "compile", model, "-o", out, "--plan-out", plan, "--backends", "tvm", "--device", "opencl",
        "--search-time", "60s", "--db", store, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(plan.read_text())
    seen = {one["name"]: one for one in told["finalists"]}
    assert BACKEND in {one["name"] for one in told["backends"]}
    assert len(seen) > 1 and all(one.get("max_error", 0) <= 1e-4 for one in seen.values())
    ran = command("run", out, "--repeat", 3)
    assert ran.returncode == 0, ran.stderr


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
    split, plan = mixed(module, [op for op in placed.counted(module["main"]) if re.search("conv|dense|matmul", op)])
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
    assert '--device has "abacus", on which no backend runs (known: cpu, opencl)' in done.stderr


def test_doctor_names_the_device(command):
    report = json.loads(command("doctor", "--json").stdout)
    (device,) = [one for one in report["devices"] if one["kind"] == "opencl"][:1]
    assert device["name"] and device["driver"] and device["units"] > 0 and device["memory_bytes"] > 0
    assert set(device["backends"]) - {"clblast"} == {BACKEND}
    assert device["name"] in command("doctor").stdout


def test_the_processors_users_pay_nothing(command, tmp_path):
    """Without --device no backend of one is offered, and nothing of OpenCL is loaded."""
    program = (
        "import collage, tvm, json; from tvm import relay\n"
        "x = relay.var('x', shape=(1, 4)); m = relay.transform.InferType()(tvm.IRModule.from_expr(relay.exp(x)))\n"
        "_, plan = tvm.get_global_func('collage.partition')(m, '{}', lambda key: 1.0)\n"
        "names = [one['name'] for one in json.loads(str(plan))['backends']]\n"
        "print(json.dumps([names, [line for line in open('/proc/self/maps') if 'opencl' in line.lower()]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    names, mapped = json.loads(done.stdout.splitlines()[-1])
    assert BACKEND not in names
    assert mapped == []


def test_copies_are_measured_and_counted_by_the_solver(store, tmp_path):
    """What copies take is in the store, and what the plan says about borders is that; costs of parts are without it."""
    import collage

    module = network()
    told = collage.transform.configuration(
        ["tvm"], devices=["opencl"], threads=placed.THREADS, level="operator", store=str(tmp_path / "costs.jsonl"),
        samples=2, rounds=1, search_time=60, pin=[f"nn.conv2d={BACKEND}", f"nn.relu={BACKEND}", "nn.max_pool2d=tvm"],
    )  # fmt: skip
    _, plan = tvm.get_global_func("collage.partition")(module, told)
    plan = json.loads(str(plan))
    took = {}
    for record in map(json.loads, (tmp_path / "costs.jsonl").read_text().splitlines()):
        name = record["key"]["structure"]
        if name.startswith("copy/"):
            assert record["key"]["backend"] == "opencl", "whichever backend's regions are there"
            took[name.removeprefix("copy/")] = min(record["samples_ms"]), max(record["samples_ms"])
    sizes = {int(name.rpartition("-")[2]) for name in took}
    assert {f"{way}-{size}" for way in ("to", "from") for size in sizes} == set(took) and len(sizes) == 4
    # Whose regions they are counts: those of a device are of all its backends together.
    borders = {one["value"]: one for one in plan["borders"] if one["backend"] in (BACKEND, "clblast")}
    copied = [region for region in plan["regions"] if region["backend"] == BACKEND]
    assert copied and plan["estimate"]["transfers_ms"] > 0
    # What is smaller than the smallest that was measured takes what that takes.
    assert module["main"].params[0].checked_type.shape[2] == 16
    low, high = took[f"to-{min(sizes)}"]
    assert low <= borders[0]["in_ms"] <= high
    # What the processor takes at least says nothing of another device.
    bounded = [one for one in plan["candidates"]["rejected"] if one["origin"] == "bounded"]
    assert all(one["estimate_ms"] == 0 for one in bounded if one["backend"] == BACKEND)
    tvm.get_global_func("collage.plan.verify")(json.dumps(plan))
