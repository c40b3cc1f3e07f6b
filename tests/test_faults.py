# SPDX-License-Identifier: Apache-2.0
"""Backends that crash, hang, lie, leak or vanish, and searches that are killed: a candidate may be lost, the
search and what was measured never.

The faults are real: in the workers ``relay.ext.collage_dnnl`` is one of ours, whose compiled code does harm
by the operator that it stands for.
"""

import collections
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import PACKAGE, environment, run_python

# What each operator's region does when it runs. The rest of dnnl's operators are computed as they should be.
FAULTS = """
import tvm
from tvm import relay

BODY = {
    "tanh": "*(volatile int*)0 = 1;",
    "sigmoid": "for (volatile int turn = 0;;) ++turn;",
    "exp": "for (int i = 0; i < n; ++i) y[i] = expf(x[i]) * 1.01f;",
    "abs": "memset(malloc(1 << 16), 1, 1 << 16); for (int i = 0; i < n; ++i) y[i] = fabsf(x[i]);",
    "sqrt": "for (;;) memset(malloc(1 << 26), 1, 1 << 26);",
    "log": "for (int i = 0; i < n; ++i) y[i] = i == 7 ? NAN : logf(x[i]);",
    "nn.relu": "for (int i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;",
}

def generate(function):
    name = str(function.attrs["global_symbol"])
    found = []
    relay.analysis.post_order_visit(
        function, lambda e: found.append(e.name) if isinstance(e, tvm.ir.Op) else None
    )
    size = 1
    for dim in function.params[0].checked_type.shape:
        size *= int(dim)
    code = '''
#include <tvm/runtime/c_runtime_api.h>
#include <dlpack/dlpack.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
extern "C" int32_t %s(TVMValue* args, int32_t* codes, int32_t count, TVMValue* rv, int32_t* rc, void* h) {
  const float* x = (const float*)((DLTensor*)args[0].v_handle)->data;
  float* y = (float*)((DLTensor*)args[count - 1].v_handle)->data;
  const int n = %d;
  %s
  return 0;
}
''' % (name, size, BODY[found[-1]])
    return tvm.get_global_func("runtime.CSourceModuleCreate")(code, "cc", [name], None)

tvm.register_func("relay.ext.collage_dnnl", generate)
"""

# A search over one operator of each kind; prints the plan. What it is told stands in argv[1], as JSON.
SEARCH = """
import json, sys
import numpy as np
import tvm, collage
from tvm import relay
from collage import transform

told = json.loads(sys.argv[1])
x = relay.var("x", shape=(1, 64, 28, 28), dtype="float32")
for name in told["operators"]:
    x = relay.Call(relay.op.get(name), [x])
if told.get("widths"):
    x = relay.var("x", shape=(16, 64), dtype="float32")
for before, after in zip([64, *told.get("widths", [])], told.get("widths", [])):
    weights = relay.const(np.full((after, before), 0.01, "float32"))
    x = relay.nn.relu(relay.nn.dense(x, weights))
module = relay.transform.InferType()(tvm.IRModule.from_expr(x))
text = transform.configuration(["tvm", "dnnl"], store=told["store"], threads=1, samples=3, level="operator")
options = json.loads(text)
options.update(told.get("options", {}))
placed, plan = tvm.get_global_func("collage.place")(module, json.dumps(options))
print(json.dumps(json.loads(str(plan))))
"""

OPERATORS = ["nn.relu", "tanh", "exp", "sigmoid", "abs", "sqrt", "log"]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """The environment of a search whose workers have the faulty backend."""
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "faulty_backend.py").write_text(FAULTS)
    return {
        "PYTHONPATH": os.pathsep.join([str(folder), environment()["PYTHONPATH"]]),
        "COLLAGE_IMPORT": "faulty_backend",
    }


def search(told, **extra):
    told = {**told, "store": str(told["store"])}
    return run_python(SEARCH, json.dumps(told), **extra)


def records(path):
    """What a store holds but for the calibration: {(structure, backend, composite): [records]}."""
    found = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        record = json.loads(line)
        key = record["key"]
        if key["backend"] != "machine":
            found[key["structure"], key["backend"], key.get("composite")].append(record)
    return found


def placed_on(plan, backend):
    return sorted(
        node["operator"]
        for region in plan["regions"]
        if region["backend"] == backend
        for part in region["candidates"]
        for node in part["nodes"]
    )


@pytest.mark.alone  # gigabytes of memory, and a time limit
def test_each_fault_loses_its_candidate_and_says_why(collage_library, faulty, tmp_path):
    store = tmp_path / "costs.jsonl"
    options = {"run_timeout_ns": 8 * 10**9, "memory_limit_bytes": 2 << 30, "exhaustive": True}
    told = {"operators": OPERATORS, "store": store, "options": options}
    plan = search(told, **faulty)
    reasons = {
        failure["operators"][-1]: (failure["failure"]["phase"], failure["failure"]["kind"])
        for failure in plan["candidates"]["failures"]
    }
    assert reasons == {
        "tanh": ("run", "crash"),
        "sigmoid": ("run", "timeout"),
        "exp": ("check", "wrong-result"),
        "abs": ("run", "leak"),
        "sqrt": ("run", "out-of-memory"),
        "log": ("check", "not-a-number"),
    }
    assert all(failure["backend"] == "dnnl" for failure in plan["candidates"]["failures"])
    assert set(placed_on(plan, "dnnl")) <= {"nn.relu"}
    assert set(OPERATORS) - {"nn.relu"} <= set(placed_on(plan, "tvm"))
    details = {f["operators"][-1]: f["failure"]["detail"] for f in plan["candidates"]["failures"]}
    assert "SIGSEGV" in details["tanh"] or "segmentation fault" in details["tanh"]
    assert "no answer within 8s" in details["sigmoid"]
    assert "output 0 differs in" in details["exp"]
    assert "each run leaves about 6" in details["abs"]
    assert "more than 2048 MiB" in details["sqrt"]

    # All of it is in the store: the next search asks no worker, and its plan is the same each time.
    before = store.read_bytes()
    again = [search(told, **faulty) for _ in range(2)]
    assert store.read_bytes() == before
    assert again[0] == again[1]
    assert again[0]["candidates"]["measured"] == 0
    assert again[0]["candidates"]["failures"] == plan["candidates"]["failures"]

    # Asked for, failures are tried again; the others stay as they are.
    options["retry_failures"] = True
    search({**told, "operators": ["nn.relu", "tanh", "exp"]}, **faulty)
    added = store.read_bytes()[len(before) :].decode().splitlines()
    assert store.read_bytes().startswith(before)
    failures = [json.loads(line)["failure"]["kind"] for line in added if "failure" in json.loads(line)]
    assert sorted(failures) == ["crash", "wrong-result"]


def test_a_library_that_vanishes_between_two_runs(collage_library, tmp_path):
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    for name in ("runtime", "dnnl"):
        os.symlink(PACKAGE / "lib" / f"libcollage_{name}.so", plugins / f"libcollage_{name}.so")
    store = tmp_path / "costs.jsonl"
    told = {"operators": ["nn.relu", "tanh"], "store": store, "options": {"skip_unusable": True}}
    there = {"COLLAGE_PLUGIN_DIR": plugins}
    first = search(told, **there)
    assert [backend["name"] for backend in first["backends"]] == ["tvm", "dnnl"]
    measured = store.read_text()
    os.unlink(plugins / "libcollage_dnnl.so")
    gone = search(told, **there)
    left_out = next(backend for backend in gone["backends"] if backend["name"] == "dnnl")
    assert "libcollage_dnnl.so" in left_out["unusable"]
    assert placed_on(gone, "tvm") == ["nn.relu", "tanh"] and placed_on(gone, "dnnl") == []
    assert store.read_text().startswith(measured), "what was measured is not lost"
    os.symlink(PACKAGE / "lib" / "libcollage_dnnl.so", plugins / "libcollage_dnnl.so")
    back = search(told, **there)
    assert back["candidates"]["measured"] == 0
    assert placed_on(back, "dnnl") == placed_on(first, "dnnl")


def test_a_library_that_vanishes_from_the_workers(collage_library, tmp_path):
    """The host has it, the workers do not: it is left out, and is tried again the next time."""
    (tmp_path / "absent_backend.py").write_text(
        "from collage import library\n"
        "def install(compiler):\n"
        "    raise library.LibraryError(f'libdnnl.so.2, which {compiler} needs, has gone')\n"
        "library.install = install\n"
    )
    absent = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]]),
        "COLLAGE_IMPORT": "absent_backend",
    }
    store = tmp_path / "costs.jsonl"
    told = {"operators": ["nn.relu", "tanh"], "store": store, "options": {"exhaustive": True}}
    plan = search(told, **absent)
    assert {f["failure"]["phase"] for f in plan["candidates"]["failures"]} == {"load"}
    assert all("has gone" in f["failure"]["detail"] for f in plan["candidates"]["failures"])
    assert placed_on(plan, "tvm") == ["nn.relu", "tanh"]
    assert {key[1] for key in records(store)} == {"tvm"}
    again = search(told)
    assert again["candidates"]["failed"] == 0
    assert {key[1] for key in records(store)} == {"tvm", "dnnl"}


def written(store):
    """How many lines stand in a store."""
    return store.read_bytes().count(b"\n") if store.exists() else 0


def alive(folder):
    """Workers that work in a folder below ``folder``."""
    found = []
    for process in os.listdir("/proc"):
        try:
            if process.isdigit() and os.readlink(f"/proc/{process}/cwd").startswith(str(folder)):
                found.append(int(process))
        except OSError:
            continue
    return found


# How often, and how many layers the network has: each is a computation of its own, some six candidates, so
# that none of the searches comes to its end.
@pytest.mark.parametrize(
    ("times", "layers"), [(2, 30), pytest.param(20, 60, marks=pytest.mark.long)], ids=["two", "twenty"]
)
def test_killed_searches_go_on_from_the_store(times, layers, collage_library, tmp_path):
    """kill -9 at random moments: nothing that was measured is lost or measured again."""
    store, temporary = tmp_path / "costs.jsonl", tmp_path / "tmp"
    temporary.mkdir()
    rng = random.Random(4)
    network = {"operators": [], "widths": list(range(65, 65 + layers))}
    told = json.dumps({**network, "store": str(store), "options": {"exhaustive": True}})
    lines = 0
    kills = 0
    finished = 0
    while kills < times:
        process = subprocess.Popen(
            [sys.executable, "-c", SEARCH, told],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(TMPDIR=temporary),
        )
        # Now and then while it starts, mostly a moment after some more costs came in.
        wanted = lines + rng.randrange(2, 10) if kills % 5 else 0
        while written(store) < wanted and process.poll() is None:
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.5) if kills % 5 else rng.uniform(0.5, 3.0))
        if process.poll() is not None:
            finished += 1
            store.unlink()  # it was faster than the killer: from the beginning
            lines = 0
            assert finished <= 2 * times, "no search is killed in the middle"
            continue
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert written(store) >= lines, "nothing is lost"
        lines = written(store)
    deadline = time.monotonic() + 60
    while alive(temporary) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(temporary), "workers die with the search"

    before = records(store)
    plan = run_python(SEARCH, told, TMPDIR=temporary)
    after = records(store)
    counts = plan["candidates"]
    assert len(before) > times
    assert len(after) == counts["distinct"] == counts["stored"] + counts["measured"]
    # Those among the known ones that another sample was taken of count as measured.
    assert counts["stored"] <= len(before) and counts["measured"] >= len(after) - len(before)
    for key, list_of_records in after.items():
        first = [record for record in list_of_records if len(record.get("samples_ms", [])) <= 3]
        assert len(first) == 1, f"{key} was measured again"
        samples = [record["samples_ms"] for record in list_of_records]
        assert all(b[: len(a)] == a for a, b in itertools.pairwise(samples))
    shutil.rmtree(temporary, ignore_errors=True)
