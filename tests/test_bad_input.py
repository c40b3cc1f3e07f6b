# SPDX-License-Identifier: Apache-2.0
"""What users get wrong, and what machines do: exit code 2, one message that says what to do, no output
file.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tvm
from conftest import PACKAGE, environment
from interrupts import REACHED_BY_CTRL_C
from onnx import TensorProto, helper, save
from tvm import relay


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A Relay program of two operators, one of which oneDNN takes."""
    x = relay.var("x", shape=(4, 32), dtype="float32")
    weight = relay.const(np.ones((16, 32), "float32"))
    path = tmp_path_factory.mktemp("tiny") / "tiny.relay"
    path.write_text(tvm.IRModule.from_expr(relay.Function([x], relay.erf(relay.nn.dense(x, weight)))).astext())
    return path


def onnx_with(path, operator, shape=(1, 8), domain="com.example"):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name in ("x", "y")]
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.example", 1)]
    graph = helper.make_graph([node], "graph", value[:1], value[1:])
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def refused(result, *said):
    """Exit code 2, a message with all that is named in it, and nothing that looks like a traceback or a C++
    stack.
    """
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert "collage: error: " in result.stderr
    for text in said:
        assert text in result.stderr, result.stderr
    for noise in ("Traceback", "Stack trace", "goroutine", ".cc:", "src/relay"):
        assert noise not in result.stderr, result.stderr
    assert result.stdout == ""


@pytest.fixture
def compile_(command, store, tmp_path):
    """A function that compiles into an empty folder, and checks that nothing was written there."""
    folder = tmp_path / "out"
    folder.mkdir()

    def run(model, *arguments, **options):
        arguments = ["compile", model, *arguments, "-q", "--level", "operator", "--repeat", 2, "--rounds", 2]
        if "-o" not in arguments:
            arguments += ["-o", folder / "model.tar"]
        if "--db" not in arguments:
            arguments += ["--db", store]
        result = command(*arguments, **options)
        assert os.listdir(folder) == []
        return result

    return run


def test_missing_file(compile_, tmp_path):
    refused(compile_(tmp_path / "nothing.onnx"), "nothing.onnx")


@pytest.mark.parametrize("suffix", ["onnx", "json", "relay", "bin"])
def test_not_a_model(compile_, tmp_path, suffix):
    path = tmp_path / f"noise.{suffix}"
    path.write_bytes(np.random.default_rng(0).bytes(2000))
    refused(compile_(path), f"noise.{suffix} is not a")


def test_a_folder(compile_, tmp_path):
    (tmp_path / "folder.onnx").mkdir()
    refused(compile_(tmp_path / "folder.onnx"), "folder.onnx")


def test_operator_that_the_importer_lacks(compile_, tmp_path):
    path = onnx_with(tmp_path / "odd.onnx", "FlyToTheMoon")
    refused(compile_(path), "odd.onnx", "ONNX importer lacks", "FlyToTheMoon")


def test_shape_that_is_open(compile_, tmp_path):
    path = onnx_with(tmp_path / "open.onnx", "Relu", ("batch", 8), "")
    refused(compile_(path), "x is [batch, 8]", "--input-shape x:")
    refused(compile_(path, "--input-shape", "z:1,8"), "no input 'z'")
    refused(compile_(path, "--input-shape", "x:1,9"), "does not fit")


def test_parameters_that_do_not_fit(compile_, tmp_path, tiny):
    np.savez(tmp_path / "params.npz", nothing=np.zeros(3, "float32"))
    refused(compile_(tiny, "--params", tmp_path / "params.npz"), "params.npz", "'nothing'")
    refused(compile_(tiny, "--params", tmp_path / "absent.npz"), "absent.npz")


def test_unknown_workload(compile_):
    refused(compile_("workload:resnext50"), "workload", "resnext50_32x4d")


def test_unknown_backend(compile_, tiny):
    refused(compile_(tiny, "--backends", "tvm,dnll"), "dnll", "dnnl")
    refused(compile_(tiny, "--backends", "tvm,abacus"), "abacus", "tvm")


def test_backend_whose_library_is_absent(compile_, tiny, tmp_path):
    """The plug-in is not there: said with how to get it."""
    empty = tmp_path / "plugins"
    empty.mkdir()
    shutil.copy(PACKAGE / "lib" / "libcollage_runtime.so", empty)
    # In a store that it was measured in before it would be left out with a warning instead.
    fresh = ("--db", tmp_path / "costs.jsonl")
    result = compile_(tiny, "--backends", "tvm,dnnl", *fresh, environment={"COLLAGE_PLUGIN_DIR": empty})
    refused(result, "dnnl", "cannot be used")


def test_backends_that_cannot_cover_the_network(compile_, tiny):
    refused(compile_(tiny, "--backends", "dnnl"), "erf", "tvm")


def test_output_that_cannot_be(compile_, tiny, tmp_path):
    refused(compile_(tiny, "-o", tmp_path / "model.onnx"), ".tar", ".so")
    refused(compile_(tiny, "-o", tmp_path / "nowhere" / "model.tar"), "nowhere")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_where_one_may_not_write(compile_, tiny, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    refused(compile_(tiny, "-o", locked / "model.tar"), "locked")


def fill(folder):
    """Leave no byte free."""
    with open(folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def test_full_disk(command, store, tiny, full_disk):
    before = full_disk / "model.tar"
    before.write_bytes(b"what stood here before")
    fill(full_disk)
    arguments = ("compile", tiny, "-o", before, "--db", store, "-q", "--repeat", 2, "--rounds", 2)
    refused(command(*arguments), "no space left on device", "model.tar")
    assert sorted(os.listdir(full_disk)) == ["filler", "model.tar"]
    assert before.read_bytes() == b"what stood here before"


def test_full_disk_for_the_store(compile_, tiny, full_disk):
    fill(full_disk)
    refused(compile_(tiny, "--db", full_disk / "costs.jsonl"), "no space left on device", "costs.jsonl")


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def costs_in(path):
    """The costs that stand in a store, by computation and backend, in the order in which they came."""
    found = {}
    for line in lines(path):
        record = json.loads(line)
        # Neither what the machine itself can do, nor whole networks.
        if record["key"]["backend"] != "machine" and record["key"].get("kind") != "network":
            found.setdefault(json.dumps(record["key"], sort_keys=True), []).append(record)
    return found


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """A Relay program of layers that are all different, so that there is something to measure for a while."""
    x = relay.var("x", shape=(16, 64), dtype="float32")
    widths = range(64, 74)
    y = x
    for before, after in itertools.pairwise(widths):
        y = relay.nn.relu(relay.nn.dense(y, relay.const(np.full((after, before), 0.01, "float32"))))
    path = tmp_path_factory.mktemp("layers") / "layers.json"
    path.write_text(tvm.ir.save_json(relay.transform.InferType()(tvm.IRModule.from_expr(y))))
    return path


@pytest.mark.parametrize("sent", ["once", "twice", pytest.param("SIGTERM", marks=pytest.mark.long)])
def test_interrupt_keeps_what_was_measured(collage_library, command, layers, tmp_path, sent):
    """In the middle of measuring: the process ends, the store holds what it had, and the next search takes
    that and measures the rest only. Ctrl-C once ends the search with the best so far, twice the process.
    """
    costs = tmp_path / "costs.jsonl"
    out = tmp_path / "out"
    out.mkdir()
    binary = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    search = [str(layers), "--db", str(costs), "--repeat", "2", "--exhaustive"]
    process = subprocess.Popen(
        [*REACHED_BY_CTRL_C, binary, "compile", *search, "--level", "operator", "-o", str(out / "model.tar")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=temporary),
        # As in a terminal: the workers are in the same group and get Ctrl-C too.
        start_new_session=True,
    )
    while len(costs_in(costs)) < 4 and process.poll() is None:
        time.sleep(0.02)
    if sent == "SIGTERM":
        process.terminate()
    else:
        os.killpg(process.pid, signal.SIGINT)
    if sent == "twice":
        time.sleep(0.02)  # what is sent while the first one waits is the same one
        os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
    if sent == "once" or (sent == "twice" and (out / "model.tar").exists()):  # there was little left to do
        assert process.returncode in ((0,) if sent == "once" else (130, -signal.SIGINT, 0)), stderr
        assert os.listdir(out) == ["model.tar"]
    else:
        assert process.returncode == (130 if sent == "twice" else 2), stderr
        assert "costs.jsonl" in stderr
        assert stdout == ""
        assert os.listdir(out) == []
    assert os.listdir(temporary) == []
    # The kernel ends the workers with the process, which takes it a moment.
    deadline = time.monotonic() + 60
    while survivors(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert survivors(process.pid) == []
    before, text = costs_in(costs), costs.read_text()
    assert before

    # The product's own count: what stands there is taken, and only the rest is measured.
    result = command("plan", *search, "-q", "--json")
    assert result.returncode == 0, result.stderr
    counts = json.loads(result.stdout)["report"]["candidates"]
    after = costs_in(costs)
    assert costs.read_text().startswith(text), "nothing that was measured is lost"
    assert len(before) < len(after) == counts["distinct"] == counts["stored"] + counts["measured"]
    # A known cost of which the contest wanted further samples counts as measured, too.
    refined = sum(len(after[key]) > len(records) for key, records in before.items())
    assert counts["stored"] == len(before) - refined > 0
    for key, records in after.items():
        taken = [record.get("samples_ms", []) for record in records]
        assert all(later[: len(one)] == one for one, later in itertools.pairwise(taken)), f"{key} is measured twice"


def survivors(session):
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compile"], ["MODEL"]),
        (["compile", "x.onnx"], ["x.onnx"]),
        (["compil", "x.onnx"], ["compile"]),
        (["compile", "workload:dcgan"], ["-o"]),
        (["compile", "workload:dcgan", "-o", "x.tar", "--backend", "tvm"], ["--backends"]),
        (["compile", "workload:dcgan", "-o", "x.tar", "--threads", "many"], ["--threads"]),
        (["run", "nothing.tar"], ["nothing.tar"]),
        (["run"], ["MODEL"]),
    ],
)
def test_command_lines(command, tmp_path, arguments, said):
    result = command(*arguments, cwd=tmp_path)
    refused(result, *said)
    assert os.listdir(tmp_path) == []


@pytest.mark.fast
def test_run_of_what_is_no_model(command, tmp_path):
    for name in ("noise.tar", "noise.so"):
        (tmp_path / name).write_bytes(b"not a model" * 100)
        refused(command("run", tmp_path / name), name)


def test_python_without_tvm_says_so(command, tmp_path):
    """The interpreter named has no TVM: no traceback, but what to install."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    result = command(
        "compile", "workload:dcgan", "-o", tmp_path / "x.tar",
        environment={"COLLAGE_PYTHON": folder / "bin" / "python", "PYTHONPATH": ""},
    )  # fmt: skip
    refused(result, "tvm")
