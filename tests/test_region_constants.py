# SPDX-License-Identifier: Apache-2.0
"""A region's weights are in memory once: an exported model's stay in its file, whoever else packs them.

Regions that were loaded, run and saved again give the same; so do those that were linked without us, whose
weights lie at odd addresses, and those that outlive their model.
"""

import gc
import itertools
import os

import numpy as np
import placed
import pytest
import tvm
from conftest import run_python
from test_border import apart, module_of, weight
from tvm import relay

# What has a runtime module of ours around it; dnnl_tvm's is TVM's own.
BACKENDS = [name for name in placed.with_regions_of_their_own() if name != "dnnl_tvm"]

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    pytest.mark.skipif(not BACKENDS, reason="no backend beside TVM can be used here"),
]

# What plain TVM may do, at worst: the modules of a library at an odd address.
ODD = "SECTIONS { .odd : { . = ALIGN(64); BYTE(0) *devc.o(.rodata) } } INSERT AFTER .rodata;"

# Loads two models, runs the second and tells by how many bytes the process has grown for it.
GROWTH = """
import json, sys
import numpy as np
from collage import region, timing
def run(path):
    executor = region.load_executor(path)
    executor.set_input(0, np.ones(executor.get_input(0).shape, "float32"))
    executor.run()
    executor.run()
    return executor
kept = [run(sys.argv[1])]
before = timing.resident()
kept.append(run(sys.argv[2]))
print(json.dumps(timing.resident() - before))
"""


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def layers(sizes, seed=1):
    """Dense layers with ReLU, each a region of its own."""
    x = y = relay.var("x", shape=(4, sizes[0]))
    for i, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        y = relay.nn.relu(relay.nn.dense(apart(y), weight(fan_out, fan_in, seed=seed + i)))
    return module_of(y, x)


def plugins_of(module):
    from collage import api, region

    return list(dict.fromkeys(p for c in ("", *api.compilers(module)) for p in region.plugins_for(c)))


def linked_plainly(path, module, *options):
    """Build a placed module and link it as TVM's users do."""
    from collage import export

    options = [*export.link_options(plugins_of(module)), *options]
    export.build(module).export_library(str(path), options=options)
    return path


def linked_oddly(path, module):
    script = path.with_suffix(".ld")
    script.write_text(ODD)
    return linked_plainly(path, module, f"-Wl,-T,{script}")


def engines(library):
    """The region modules that a library imports, at any depth, by their symbols' order."""
    found = []
    for module in library.imported_modules:
        if module.type_key.startswith("collage_") and module.type_key not in ("collage_needs", "collage_threads"):
            found.append(module)
        found += engines(module)
    return sorted(found, key=lambda region: region["get_symbol"]())


def call(region, module):
    """Runs a region module by itself, as a model would, on the same inputs each time."""
    symbol = region["get_symbol"]()
    function = module[symbol]
    arguments = [tvm.nd.array(value) for value in placed.values({"main": function})]
    kind = function.ret_type
    result = tvm.nd.array(np.full([int(dim) for dim in kind.shape], np.nan, kind.dtype))
    region[symbol](*arguments, result)
    return result.numpy()


def address_of_modules(path):
    """Where in a library its modules begin."""
    import ctypes

    library = ctypes.CDLL(str(path))
    return ctypes.addressof(ctypes.c_char.in_dll(library, "__tvm_dev_mblob"))


def test_weights_are_in_memory_once(backend, tmp_path):
    sizes = [2560] * 4
    small = placed.export_to(tmp_path / "small.so", placed.place(layers([32, 32]), backend))
    large = placed.export_to(tmp_path / "large.so", placed.place(layers(sizes), backend))
    weights = 3 * 4 * 2560**2
    assert os.path.getsize(large) > weights
    grown = run_python(GROWTH, small, large)
    assert grown < 1.5 * weights, f"{grown / 1e6:.0f} MB for {weights / 1e6:.0f} MB of weights"


@pytest.mark.parametrize("write", [placed.export_to, linked_plainly, linked_oddly])
def test_regions_that_are_saved_again(backend, write, tmp_path):
    from collage import export

    module = placed.place(layers([96, 64, 33]), backend)
    path = write(tmp_path / "model.so", module)
    if write is not linked_plainly:
        assert address_of_modules(path) % 64 == (1 if write is linked_oddly else 0)
    inputs = placed.values(module)
    executor = placed.load(path)
    first = placed.run(executor, *inputs)
    placed.same(first, placed.expected(layers([96, 64, 33]), *inputs))

    library = tvm.runtime.load_module(str(path))
    regions = engines(library)
    assert len(regions) == 2
    results = [call(region, module) for region in regions]
    # Once more through a file, and through memory.
    host = tvm.build(tvm.te.create_prim_func(_identity()), target="llvm")
    for region in regions:
        host.import_module(region)
    export.link(host, tmp_path / "again.so", plugins_of(module))
    again = engines(tvm.runtime.load_module(str(tmp_path / "again.so")))
    in_memory = tvm.ir.load_json(tvm.ir.save_json({"regions": regions}))["regions"]
    for one, other, third, result in zip(regions, again, in_memory, results, strict=True):
        assert one["get_symbol"]() == other["get_symbol"]() == third["get_symbol"]()
        for region in (other, third, one):
            np.testing.assert_array_equal(call(region, module), result)
    placed.same(placed.run(executor, *inputs), first, rtol=0, share=0)


def _identity():
    x = tvm.te.placeholder((1,), name="x")
    return [x, tvm.te.compute((1,), lambda i: x[i], name="y")]


@pytest.mark.parametrize("write", [placed.export_to, linked_oddly])
def test_a_region_outlives_its_model(backend, write, tmp_path):
    module = placed.place(layers([64, 48]), backend)
    path = write(tmp_path / "model.so", module)
    expected = placed.expected(layers([64, 48]), *placed.values(module))
    region = engines(tvm.runtime.load_module(str(path)))[0]
    gc.collect()
    os.remove(path)
    with open("/proc/self/maps") as file:
        assert str(path) in file.read(), "the region has let go of the file that its weights stand in"
    placed.same([call(region, module)], expected)
    again = tvm.ir.load_json(tvm.ir.save_json(region))
    np.testing.assert_array_equal(call(again, module), call(region, module))
    del region
    gc.collect()
    with open("/proc/self/maps") as file:
        assert str(path) not in file.read(), "the model's library stays for good"


def test_two_models_and_another_number_of_threads(backend, tmp_path):
    executors, expected = [], []
    for seed in (1, 7):
        module = placed.place(layers([128, 256, 64], seed), backend)
        executors.append(placed.load(placed.export_to(tmp_path / f"model{seed}.so", module)))
        inputs = placed.values(module)
        expected.append(placed.expected(layers([128, 256, 64], seed), *inputs))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    try:
        for threads in (placed.THREADS, 1, placed.THREADS):
            set_threads(threads)
            for executor, wanted in zip(executors, expected, strict=True):
                placed.same(placed.run(executor, *inputs), wanted)
    finally:
        set_threads(placed.THREADS)
