# SPDX-License-Identifier: Apache-2.0
"""Regions on a device, of each kind: what TVM computes there is what it computes on the processor; which parts go there
is a matter of costs; what is copied is what the plan says. OpenCL is pocl's, by which the processor is a device; CUDA's
card is emulated (cuda_emulator).
"""

import contextlib
import json
import re
import subprocess
import sys

import device_operators
import emulated_card
import numpy as np
import opencl_driver
import placed
import pytest
import tvm
from conftest import environment
from device_networks import by_costs, convolution, mixed, network, runs_like_tvm, steps, typed
from random_programs import program, running
from tvm import relay


@pytest.fixture(scope="module", params=["opencl", "cuda"], autouse=True)
def kind(request, collage_library):
    if request.param == "opencl":
        opencl_driver.required()
    with emulated_card.present() if request.param == "cuda" else contextlib.nullcontext():
        yield request.param
        placed.forget()


@pytest.fixture
def backend(kind):
    """TVM's own for the kind of device."""
    return f"tvm_{kind}"


# What networks are made of above all is looked at each time, the rest with the long tests: each kernel is compiled.
KINDS = [
    pytest.param(name, marks=[] if name in ("convolutions", "products") else pytest.mark.long)
    for name in device_operators.OPERATORS
]


@pytest.mark.parametrize("operators", KINDS)
def test_operators(backend, operators, tmp_path):
    """Each operator is taken, and gives what it gives on the processor."""
    made = {name: make() for name, make in device_operators.OPERATORS[operators].items()}
    for name, expr in made.items():
        assert placed.regions(placed.place(typed(expr), backend)), f"{name} is not taken"
    module = typed(relay.Tuple(list(made.values())))
    inputs = placed.values(module, seed=5)
    split = placed.place(module, backend)
    got = placed.run(placed.load(placed.export_to(tmp_path / "model.tar", split)), *inputs)
    for name, one, wanted in zip(made, got, placed.expected(module, *inputs), strict=True):
        try:
            placed.same([one], [wanted])
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


# What each kind does not take, and why.
REFUSED = {
    "opencl": {
        "tan": (lambda: relay.tan(relay.var("x", shape=(4,))), "another name"),
        "float64": (lambda: relay.exp(relay.var("x", shape=(4,), dtype="float64")), "float64 is not computed with"),
        "empty": (lambda: relay.exp(relay.var("x", shape=(0, 4))), "without elements"),
    },
    "cuda": {
        "float16": (lambda: relay.exp(relay.var("x", shape=(4,), dtype="float16")), "float16 is not computed with"),
        "empty": (lambda: relay.exp(relay.var("x", shape=(0, 4))), "without elements"),
    },
}


def test_what_a_device_does_not_take_stays_on_the_processor(kind, backend):
    for name, (make, reason) in REFUSED[kind].items():
        split, plan = by_costs(kind, typed(make()), lambda key: 1.0)
        assert not placed.regions(split), name
        refused = [one for one in plan["candidates"]["refusals"] if one["backend"] == backend]
        assert any(reason in one["reason"] for one in refused), refused


def programs(seeds, backend):
    """Random programs as they are and with all that the device takes on it."""
    from collage import transform

    for seed in seeds:
        one = program.generate(seed)
        module = transform.Normalise()(one.module)
        split = placed.place(module, backend)
        if not one.scoped and placed.regions(split):
            yield seed, one, module, split


@pytest.mark.parametrize("seeds", [range(13, 15), pytest.param(range(40), marks=pytest.mark.long)], ids=str)
def test_random_programs(backend, seeds):
    """Of 13 and 14, one has come quantised, for which TVM's passes must have gone over the region."""
    found = 0
    for seed, one, module, split in programs(seeds, backend):
        (got,), _ = running.execute([split], [one.inputs])
        (wanted,), _ = running.execute([module], [one.inputs])
        assert running.excess(got, wanted) == "", seed
        found += 1
    assert found >= 0.7 * len(seeds)


def test_a_network_on_the_device_alone(backend, tmp_path):
    module = network()
    split = placed.place(module, backend)
    (inside,) = placed.regions(split).values()
    assert inside["nn.conv2d"] == 2 and inside["nn.softmax"] == 1
    runs_like_tvm(module, split, tmp_path)


def test_costs_decide_what_goes_to_the_device(kind, backend, tmp_path):
    """Costs by hand: a device that is slow gets nothing, one that is quick gets all."""
    module = network()
    _, plan = by_costs(kind, module, lambda key: 5.0 if key["backend"] == backend else 1.0)
    assert {region["backend"] for region in plan["regions"]} == {"tvm"}
    split, plan = by_costs(kind, module, lambda key: 0.01 if key["backend"] == backend else 1.0)
    assert {region["backend"] for region in plan["regions"]} == {backend}
    runs_like_tvm(module, split, tmp_path)


def test_a_device_is_as_quick_as_a_file_says(kind, backend, tmp_path):
    """The same by a file of costs; what is placed by it runs."""
    import collage

    module = network()
    copies = [{"bytes": 4096, "to_ms": 1e-3, "from_ms": 1e-3}, {"bytes": 1 << 20, "to_ms": 1e-2, "from_ms": 1e-2}]
    file = tmp_path / "costs.json"
    for gflops, backends in ((1e-4, {"tvm"}), (1e5, {backend})):
        there = {backend: {"gflops": gflops, "gigabytes_per_second": 1e4}}
        file.write_text(json.dumps({"version": 1, "devices": {kind: {"copies": copies}}, "backends": there}))
        options = {"backends": ["tvm"], "devices": [kind], "threads": placed.THREADS, "samples": 3}
        with collage.declared_costs(file):
            split = collage.partition(
                module, store=tmp_path / "costs.jsonl", plan_out=tmp_path / "plan.json", **options
            )
        plan = json.loads((tmp_path / "plan.json").read_text())
        assert {region["backend"] for region in plan["regions"]} == backends, gflops
    runs_like_tvm(module, split, tmp_path)


def test_a_dry_run_measures_no_copies(kind, backend, command, tmp_path):
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    arguments = ["plan", model, "--format", "relay", "--device", kind, "--backends", "tvm", "--dry-run", "-q"]
    done = command(*arguments, "--db", "costs.jsonl", cwd=tmp_path)
    assert done.returncode == 0 and backend in done.stdout, done.stderr
    assert not (tmp_path / "costs.jsonl").exists()


def test_device_and_processor_together(kind, backend, tmp_path):
    module = network()
    split, plan = mixed(kind, module, ["nn.conv2d"])
    inside = placed.offloaded(split)
    assert inside["nn.conv2d"] == 2 and inside["nn.softmax"] == 0
    assert {region["backend"] for region in plan["regions"]} == {"tvm", backend}
    runs_like_tvm(module, split, tmp_path)


@pytest.mark.parametrize("pins", [["nn.conv2d"], ["nn.max_pool2d"], ["nn.conv2d", "nn.max_pool2d", "nn.relu"]])
def test_copies_are_counted(kind, backend, pins, tmp_path):
    """The plan says how many tensors a call copies, and so many are copied."""
    module = network()
    split, plan = mixed(kind, module, pins)
    copies = [region["copies"] for region in plan["regions"] if region["backend"] == backend]
    assert copies
    assert all("copies" not in region for region in plan["regions"] if region["backend"] == "tvm")
    done = [step["what"] for step in steps(split, tmp_path, *placed.values(module))]
    assert done.count("copy to the device") == sum(one["to_device"] for one in copies)
    assert done.count("copy from the device") == sum(one["from_device"] for one in copies)
    assert done.count("kernel") >= len(copies)


def test_each_kernel_says_what_it_does(backend, tmp_path):
    """Every operator of a region is done by one kernel."""
    split = placed.place(network(), backend)
    told = steps(split, tmp_path, *placed.values(network()))
    done = [group for step in told if step["what"] == "kernel" for group in step["of"]]
    assert sorted(done) == list(range(sum(placed.offloaded(split).values())))
    assert all(step["ms"] > 0 for step in told)
    (there,) = [step for step in told if step["what"] == "copy to the device"]
    (back,) = [step for step in told if step["what"] == "copy from the device"]
    assert there["reorder"] and there["of"] == [0] and back["reorder"] and back["from"] == [max(done)]


def test_kernels_are_timed_without_copies(kind, tmp_path):
    """What workers time computes on what was copied before, and gives nothing back."""
    from collage import artefact, library

    library.install(f"collage_{kind}")
    function = relay.Function([x := relay.var("x", shape=(4,))], relay.nn.relu(x))
    symbol = f"tvmgen_default_collage_{kind}_main_0"
    for name, value in (("Compiler", f"collage_{kind}"), ("global_symbol", symbol)):
        function = function.with_attr(name, value)
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))[symbol]
    module = tvm.get_global_func(f"relay.ext.collage_{kind}")(function)
    first, second = np.array([1, -1, 2, -2], "float32"), np.array([-3, 3, -4, 4], "float32")
    region = artefact.OnDevice(module, symbol, [first], [((4,), "float32")], kind)
    np.testing.assert_array_equal(region.outputs(), [[1, 0, 2, 0]])
    assert all(seconds > 0 for seconds in region.seconds(2, 3))
    switch, run = tvm.get_global_func(f"collage.runtime.{kind}.LeaveOutCopies"), module.get_function(symbol)
    given, got = tvm.nd.array(second), tvm.nd.array(np.zeros(4, "float32"))
    switch(True)
    try:
        run(given, got)
        np.testing.assert_array_equal(got.numpy(), 0)
    finally:
        switch(False)
    run(given, got)
    np.testing.assert_array_equal(got.numpy(), [0, 3, 0, 4])


def test_copies_of_values_that_are_read_twice(kind, backend, tmp_path):
    """A value that a region reads at two places is copied once, as is a result that is read twice; their bytes."""
    data = relay.var("data", shape=(1, 8, 16, 16))
    first = convolution(data, 8, 8)
    both = relay.nn.relu(first) + relay.tanh(first)
    module = typed(relay.exp(both) + relay.sqrt(relay.abs(both)))
    split, plan = mixed(kind, module, ["nn.relu", "tanh", "add"])
    copies = [region["copies"] for region in plan["regions"] if region["backend"] == backend]
    done = [step["what"] for step in steps(split, tmp_path, *placed.values(module))]
    assert done.count("copy to the device") == sum(one["to_device"] for one in copies)
    assert done.count("copy from the device") == sum(one["from_device"] for one in copies)
    bytes_of_one = 8 * 16 * 16 * 4
    for one in copies:
        assert one["to_bytes"] == one["to_device"] * bytes_of_one
        assert one["from_bytes"] == one["from_device"] * bytes_of_one
    assert copies[0] == {"to_device": 1, "to_bytes": bytes_of_one, "from_device": 1, "from_bytes": bytes_of_one}


def test_a_plan_is_replayed(kind, tmp_path):
    import collage

    module = network()
    split, plan = mixed(kind, module, ["nn.conv2d"])
    again = collage.replay(module, json.dumps(plan))
    assert tvm.ir.structural_equal(split, again)


def test_tvms_virtual_machine_runs_regions_on_the_device(backend, tmp_path):
    """What branches is run by TVM's virtual machine, and parts of it on the device."""
    from collage import export

    data = relay.var("data", shape=(1, 8, 12, 12))
    flag = relay.var("flag", shape=(), dtype="bool")
    taken = relay.nn.relu(convolution(data, 8, 8))
    module = typed(
        relay.Function([data, flag], relay.If(flag, convolution(taken, 8, 8, 1), convolution(taken, 8, 8, 2)))
    )
    split = placed.place(module, backend)
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
def test_measured(kind, backend, command, store, tmp_path):
    """Nothing is said about costs: they are measured, on the device too, and what is written gives TVM's answer."""
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(network()))
    out, plan = tmp_path / "model.tar", tmp_path / "plan.json"
    done = command(
        "compile", model, "-o", out, "--plan-out", plan, "--backends", "tvm", "--device", kind,
        "--search-time", "60s", "--db", store, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(plan.read_text())
    seen = {one["name"]: one for one in told["finalists"]}
    assert backend in {one["name"] for one in told["backends"]}
    assert len(seen) > 1 and all(one.get("max_error", 0) <= 1e-4 for one in seen.values())
    ran = command("run", out, "--repeat", 3)
    assert ran.returncode == 0, ran.stderr


def test_an_encoder(kind, backend, tmp_path):
    """On the device alone, and with what multiplies there and the rest on the processor."""
    from collage import transform
    from collage.workloads.bert import bert_full

    module, params = bert_full(layers=1, tokens=16, units=32, heads=4)
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    module = transform.Normalise()(module)
    runs_like_tvm(module, placed.place(module, backend), tmp_path)
    split, plan = mixed(kind, module, [op for op in placed.counted(module["main"]) if re.search("dense|matmul", op)])
    assert {region["backend"] for region in plan["regions"]} == {"tvm", backend}
    runs_like_tvm(module, split, tmp_path)


def test_the_processors_users_pay_nothing(kind, backend, command, tmp_path):
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
    assert backend not in names
    assert mapped == []


def test_copies_are_measured_and_counted_by_the_solver(kind, backend, store, tmp_path):
    """What copies take is in the store, and what the plan says about borders is that; costs of parts are without it."""
    import collage

    module = network()
    told = collage.transform.configuration(
        ["tvm"], devices=[kind], threads=placed.THREADS, level="operator", store=str(tmp_path / "costs.jsonl"),
        samples=2, rounds=1, search_time=60, pin=[f"nn.conv2d={backend}", f"nn.relu={backend}", "nn.max_pool2d=tvm"],
    )  # fmt: skip
    _, plan = tvm.get_global_func("collage.partition")(module, told)
    plan = json.loads(str(plan))
    took = {}
    for record in map(json.loads, (tmp_path / "costs.jsonl").read_text().splitlines()):
        name = record["key"]["structure"]
        if name.startswith("copy/"):
            assert record["key"]["backend"] == kind, "whichever backend's regions are there"
            took[name.removeprefix("copy/")] = min(record["samples_ms"]), max(record["samples_ms"])
    sizes = {int(name.rpartition("-")[2]) for name in took}
    assert {f"{way}-{size}" for way in ("to", "from") for size in sizes} == set(took) and len(sizes) == 4
    # Whose regions they are counts: those of a device are of all its backends together.
    borders = {one["value"]: one for one in plan["borders"] if one["backend"] in (backend, "clblast", "cublas")}
    copied = [region for region in plan["regions"] if region["backend"] == backend]
    assert copied and plan["estimate"]["transfers_ms"] > 0
    # What is smaller than the smallest that was measured takes what that takes.
    assert module["main"].params[0].checked_type.shape[2] == 16
    low, high = took[f"to-{min(sizes)}"]
    assert low <= borders[0]["in_ms"] <= high
    # What the processor takes at least says nothing of another device.
    bounded = [one for one in plan["candidates"]["rejected"] if one["origin"] == "bounded"]
    assert all(one["estimate_ms"] == 0 for one in bounded if one["backend"] == backend)
    tvm.get_global_func("collage.plan.verify")(json.dumps(plan))
