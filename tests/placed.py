# SPDX-License-Identifier: Apache-2.0
"""Networks on one backend without measuring: what every backend's tests of its border do.

``usable()`` are the backends that can be used here; ``place`` gives one of them all that it can take,
``export_to`` and ``load`` make an executable of it as users do, ``expected`` is what plain TVM computes.
"""

import functools
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import content_cache
import numpy as np
import pytest
from conftest import PACKAGE, environment

THREADS = 2
# Executables of plain TVM that are kept.
KEPT = 100


@functools.cache
def listed():
    """What ``collage backends --json`` says of each backend; nothing where nothing is built."""
    binary = Path(os.environ.get("COLLAGE_BINARY") or PACKAGE / "bin" / "collage")
    if not binary.exists():
        return []
    told = subprocess.run(
        [str(binary), "backends", "--json"], capture_output=True, text=True, timeout=120, env=environment()
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["backends"]


def probe_where(command, backend, variable):
    """What the command says of a backend in an environment with one variable more ("NAME=VALUE")."""
    name, value = variable.split("=")
    told = command("backends", "--json", environment={name: value})
    assert told.returncode == 0, told.stderr
    return next(b["probe"] for b in json.loads(told.stdout)["backends"] if b["name"] == backend)


def usable():
    """Names of the backends beside TVM that can be used here, but for those that compute narrowly or on another device
    than the processor.
    """
    return [
        backend["name"]
        for backend in listed()
        if backend["probe"]["usable"]
        and not backend["takes_anything"]
        and backend["precision"] == "f32"
        and backend["device"] == "cpu"
    ]


def missing(backend):
    """Why ``backend`` cannot be used here, as the reason of a skip: what the processor lacks is no fault of a run
    (tests/expected_skips.txt). None where it can be used, and where nothing is built.
    """
    probe = next((b["probe"] for b in listed() if b["name"] == backend), {"usable": True})
    return None if probe["usable"] else f"{backend} cannot be used here: {probe['reason']}"


def needs(backend):
    """A mark that skips a test where ``backend`` cannot be used."""
    return pytest.mark.skipif(missing(backend) is not None, reason=missing(backend) or "it can be used")


def has(*features):
    """Whether this processor has all of these (/proc/cpuinfo's words)."""
    return set(features) <= set(Path("/proc/cpuinfo").read_text().split())


def multiplies_bytes():
    """Whether this processor has VNNI. Without it, TVM's and ONNX Runtime's products of bytes go by instructions whose
    sums of two products saturate at 16 bits: with weights of eight bits they are wrong then, by design.
    """
    return has("avx512_vnni") or has("avx_vnni")


def with_regions_of_their_own():
    """``usable()`` without native, whose regions, code generator and engine are dnnl's, and which takes what its
    kernels can do on this processor: tests/test_native_*.py are its tests.
    """
    return [name for name in usable() if name != "native"]


def place(module, backend, **options):
    """The module with all that ``backend`` can take given to it."""
    import collage

    return collage.partition(module, only=backend, threads=THREADS, **options)


def regions(module):
    """{symbol: names of the operators in it} of the regions of a partitioned module."""
    from collage import region

    return {
        var.name_hint: counted(function)
        for var, function in module.functions.items()
        if getattr(function, "attrs", None) and "Compiler" in function.attrs
        and region.operators(function) is not None
    }  # fmt: skip


def counted(function):
    """How often each primitive operator is called in a function, composites included."""
    import tvm
    from tvm import relay

    counts = Counter()

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            counts[expr.op.name] += 1

    relay.analysis.post_order_visit(function, visit)
    return counts


def offloaded(module):
    """How many operators stand in regions of other backends, by name."""
    return sum(regions(module).values(), Counter())


def export_to(path, placed, threads=THREADS):
    """Build a placed module and write it as users get it."""
    from collage import api, export, region

    plugins = dict.fromkeys(
        plugin for compiler in ("", *api.compilers(placed)) for plugin in region.plugins_for(compiler)
    )
    export.write(export.build(placed), path, list(plugins), threads)
    return path


def load(path):
    """An exported model as a GraphModule."""
    from collage import region

    return region.load_executor(path)


def run(executor, *inputs):
    """Outputs of a model for inputs in the order of main's parameters."""
    for index, value in enumerate(inputs):
        executor.set_input(index, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


_plain = {}


def expected(module, *inputs):
    """Outputs of the module under plain TVM: built once for all inputs and backends, and run once for each
    set of inputs (content_cache keeps the outputs, for other processes and later runs, too).
    """
    key = content_cache.module_key(module)
    return content_cache.remembered(content_cache.answer_key(key, inputs), lambda: run(_executor(key, module), *inputs))


def _executor(key, module):
    """Plain TVM's executable of a module, of which the last few are kept."""
    import tvm
    from collage import export
    from tvm.contrib import graph_executor

    if key not in _plain:
        if len(_plain) >= KEPT:
            del _plain[next(iter(_plain))]
        _plain[key] = graph_executor.GraphModule(export.build(module)["default"](tvm.cpu()))
    return _plain[key]


def forget():
    """Let go of plain TVM's executables."""
    _plain.clear()


def values(module, seed=0):
    """Inputs of ``main``, always the same for a seed."""
    rng = np.random.default_rng(seed)
    made = []
    for var in module["main"].params:
        kind = var.checked_type
        shape = [int(dim) for dim in kind.shape]
        if kind.dtype.startswith("float"):
            made.append(rng.standard_normal(shape).astype(kind.dtype))
        else:
            made.append(rng.integers(-4, 5, shape).astype(kind.dtype))
    return made


def same(got, wanted, rtol=1e-4, share=1e-5):
    """Hold outputs against TVM's: relative to each value, and to the greatest."""
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        greatest = float(np.abs(other.astype("float64")).max()) if other.size else 0.0
        np.testing.assert_allclose(one, other, rtol=rtol, atol=share * greatest)
