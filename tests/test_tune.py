# SPDX-License-Identifier: Apache-2.0
"""What TVM's tuners found out is used, in measuring and in the executable; `collage tune` finds it out.

Budgets are of a few trials: whether tuning helps is not tested, only that it is done right.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tvm
from interrupts import REACHED_BY_CTRL_C
from tvm import relay

TREE = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A cost store to which nobody else writes while it is read."""
    return tmp_path_factory.mktemp("store") / "costs.jsonl"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A small network as files: its program and its parameters."""
    folder = tmp_path_factory.mktemp("network")
    program = folder / "net.relay"
    program.write_text(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(1, 16, 14, 14), float32], %w: Tensor[(32, 16, 3, 3), float32],\n"
        "          %d: Tensor[(10, 6272), float32]) {\n"
        "  %0 = nn.relu(nn.conv2d(%x, %w, padding=[1, 1, 1, 1], channels=32, kernel_size=[3, 3]));\n"
        "  nn.dense(nn.batch_flatten(%0), %d, units=10)\n"
        "}\n"
    )
    random = np.random.RandomState(0)
    arrays = {"w": (32, 16, 3, 3), "d": (10, 6272)}
    values = {name: tvm.nd.array(random.randn(*shape).astype("float32") * 0.1) for name, shape in arrays.items()}
    parameters = folder / "net.params"
    parameters.write_bytes(relay.save_param_dict(values))
    return [str(program), "--params", str(parameters)]


@pytest.fixture(scope="module")
def tuned(network, command, store, tmp_path_factory):
    """A log with all trials of the operator that matters most, and the report of `collage tune`."""
    log = tmp_path_factory.mktemp("tuned") / "log.json"
    arguments = ["tune", *network, "--backends", "tvm", "--db", store, "--trials", 3, "--top", 1]
    done = command(*arguments, "--tuner", "random", "-o", log, "--json")
    assert done.returncode == 0, done.stderr
    return log, json.loads(done.stdout)


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_operator_that_matters_is_tuned(tuned):
    log, report = tuned
    (operator,) = report["operators"]
    assert operator["operator"] in ("nn.conv2d", "nn.dense")
    assert operator["placed_on_tvm"] and operator["hoped_gain_ms"] > 0
    assert operator["result"]["trials"] == 3
    trials = lines(f"{log}.trials")
    assert len(trials) == 3
    assert len({json.dumps(trial["config"]["entity"]) for trial in trials}) == 3, "nothing is tried twice"
    # The log has the best trial, or nothing where none is better than what TVM does by itself.
    assert log.is_file()
    assert operator["result"]["default_ms"] > 0 and operator["result"]["tuned_ms"] > 0
    assert len(lines(log)) == (1 if operator["result"]["kept"] else 0)


def test_a_search_goes_on_where_it_was(tuned, network, command, store, tmp_path):
    # A copy: the tests come in any order, and the log is all of theirs.
    log = shutil.copytree(tuned[0].parent, tmp_path / "tuned") / tuned[0].name
    arguments = ["tune", *network, "--backends", "tvm", "--db", store, "--trials", 5, "--top", 1]
    done = command(*arguments, "--tuner", "random", "-o", log, "--json")
    assert done.returncode == 0, done.stderr
    (operator,) = json.loads(done.stdout)["operators"]
    trials = lines(f"{log}.trials")
    # What the log has now may have changed what promises most.
    assert operator["result"]["trials"] == 5
    assert len(trials) in (5, 8)


def test_strict_ends_where_an_operator_cannot_be_tuned(tuned, network, command, store, tmp_path):
    log = tmp_path / "log.json"
    Path(f"{log}.trials").mkdir()  # where a file should be
    arguments = ["tune", *network, "--backends", "tvm", "--db", store, "--trials", 1, "--top", 1, "--tuner", "random"]
    done = command(*arguments, "-o", log, "--json")
    assert done.returncode == 0 and "failure" in json.loads(done.stdout)["operators"][0], done.stderr
    done = command(*arguments, "-o", log, "--strict")
    assert done.returncode == 3 and "strict: " in done.stderr and "could not be tuned" in done.stderr, done.stderr


def test_an_interrupt_keeps_the_trials(network, store, tmp_path):
    binary = os.environ.get("COLLAGE_BINARY") or TREE / "python" / "collage" / "bin" / "collage"
    log = tmp_path / "log.json"
    environment = {**os.environ, "COLLAGE_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join([str(TREE / "python"), os.environ.get("PYTHONPATH", "")])
    arguments = ["tune", *network, "--backends", "tvm", "--db", store, "--trials", 200, "--tuner", "random"]
    process = subprocess.Popen(
        list(map(str, [*REACHED_BY_CTRL_C, binary, *arguments, "-o", log])),
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    trials = Path(f"{log}.trials")
    deadline = time.monotonic() + 600
    while not (trials.exists() and trials.read_text().count("\n") >= 2):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no trial in ten minutes"
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "interrupted" in stderr and "trials so far are kept" in stderr
    assert len(lines(trials)) >= 2


def test_a_log_is_used_in_measuring_and_in_the_executable(tuned, network, command, store, tmp_path):
    log = Path(f"{tuned[0]}.trials")  # every trial is a record; the best is used, however slow it is
    plan_file = tmp_path / "plan.json"
    arguments = ["plan", *network, "--backends", "tvm,dnnl", "--db", store, "--repeat", 3]
    done = command(*arguments, "--tuning-log", log, "--plan-out", plan_file)
    assert done.returncode == 0, done.stderr
    options = json.loads(plan_file.read_text())["environment"]["options"]
    assert options.startswith("O3 -EliminateCommonSubexpr -SimplifyExpr tuned:")
    # TVM's costs hold with this log; the others' do not depend on it.
    keys = [entry["key"] for entry in lines(store) if "key" in entry]
    tuned_for = [key for key in keys if "tuned:" in key.get("options", "") and key.get("kind") != "network"]
    assert {key["backend"] for key in tuned_for} == {"tvm"}
    assert "dnnl" in {key["backend"] for key in keys}

    # The plan can be built again only with the log that it was made with.
    arguments = ["compile", *network, "--plan", plan_file, "-o", tmp_path / "b.so"]
    done = command(*arguments)
    assert done.returncode == 2
    assert "the plan was made with a tuning log" in done.stderr
    other = tmp_path / "other.json"
    other.write_text("\n".join(log.read_text().splitlines()[:1]) + "\n")
    done = command(*arguments, "--tuning-log", other)
    assert done.returncode == 2
    assert "the plan was made with another tuning log" in done.stderr
    done = command(*arguments, "--tuning-log", log)
    assert done.returncode == 0, done.stderr


def convolution():
    x = relay.var("x", shape=(1, 16, 14, 14))
    weight = relay.const(np.random.RandomState(0).randn(32, 16, 3, 3).astype("float32"))
    one = relay.nn.conv2d(x, weight, padding=(1, 1), channels=32, kernel_size=(3, 3))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(one))))


def code(module, **options):
    """The module as LLVM's text, without the addresses in the names of its alias information."""
    from collage import export

    return re.sub(r"0x[0-9a-f]+", "", export.build(module, "llvm", **options).get_lib().get_source())


def test_records_change_the_code(collage_library, tmp_path):
    """AutoTVM's record is applied; a record of another operator changes nothing."""
    from tvm import autotvm

    module = convolution()
    task, *_ = autotvm.task.extract_from_program(module["main"], target=tvm.target.Target("llvm"), params={})
    log = tmp_path / "log.json"

    def write(index):
        measured = autotvm.MeasureInput(task.target, task, task.config_space.get(index))
        result = autotvm.MeasureResult((1e-9,), 0, 0.1, 0)
        log.write_text(autotvm.record.encode(measured, result) + "\n")

    plain = code(module)
    assert plain == code(module, tuning_log="")
    variants = set()
    for index in (0, len(task.config_space) // 2, len(task.config_space) - 1):
        write(index)
        variants.add(code(module, tuning_log=log))
    assert len(variants) > 1
    x = relay.var("x", shape=(3, 5))
    other = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.tanh(x))))
    assert code(other) == code(other, tuning_log=log)


def test_from_python(collage_library, tuned, store, tmp_path):
    """The pass and collage.compile take the log; a wrong one is refused before anything is measured."""
    import collage
    from tvm.contrib import graph_executor

    module = convolution()
    options = {"backends": ["tvm"], "store": str(store), "tuning_log": f"{tuned[0]}.trials"}
    factory = collage.compile(module, only="tvm", **options)
    value = np.random.RandomState(1).randn(1, 16, 14, 14).astype("float32")

    def run(factory):
        executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
        executor.set_input("x", value)
        executor.run()
        return executor.get_output(0).numpy()

    with tvm.transform.PassContext(opt_level=3):
        want = run(relay.build(module, "llvm"))
    np.testing.assert_allclose(run(factory), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="tuning_log cannot be used: no such file or folder"):
        collage.partition(module, backends=["tvm"], tuning_log=str(tmp_path / "absent.json"))


def test_a_database_is_never_lost(tmp_path, monkeypatch):
    """Whatever ends its being replaced: an error, or a kill while it stands aside."""
    from collage import tune

    class Stored:
        def get_all_tuning_records(self):
            return []

    folder = tmp_path / "[log]"
    folder.mkdir()
    (folder / "records").write_text("found out")
    monkeypatch.setattr(tune, "_database", lambda _ms, _folder: Stored())
    rename = Path.rename

    def refusing(path, to):
        if path.name.endswith(".partial"):
            raise OSError("the disk is gone")
        return rename(path, to)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refusing)
        with pytest.raises(OSError, match="the disk is gone"):
            tune._replace_in_database(None, folder, [], [])
    assert os.listdir(tmp_path) == ["[log]"] and (folder / "records").read_text() == "found out"
    folder.rename(tmp_path / ".[log].123.old")
    tune._take_back(folder)
    assert os.listdir(tmp_path) == ["[log]"] and (folder / "records").read_text() == "found out"
    (tmp_path / ".[log].123.old").mkdir()
    tune._take_back(folder)
    assert (folder / "records").read_text() == "found out"
    tune._replace_in_database(None, folder, [], [])
    assert not (folder / "records").exists()


@pytest.mark.long
def test_metaschedule(network, command, store, tmp_path):
    """A database is made, used, and not written to by builds."""
    folder = tmp_path / "database"
    arguments = ["tune", *network, "--backends", "tvm", "--db", store, "--trials", 2, "--top", 1]
    done = command(*arguments, "--tuner", "metaschedule", "-o", folder, "--json")
    assert done.returncode == 0, done.stderr
    (operator,) = json.loads(done.stdout)["operators"]
    assert operator["result"]["tuner"] == "metaschedule"
    assert operator["result"]["trials"] >= 2
    # All trials stand beside the database, which has the best of them, or nothing where none is better.
    record = "database_tuning_record.json"
    assert len(lines(Path(f"{folder}.trials") / record)) >= 2
    kept = operator["result"]["kept"]
    assert len(lines(folder / record)) == (len(operator["result"]["tasks"]) if kept else 0)
    # Either way: a record comes in, and goes again with its task; others stay.
    from collage import tune
    from tvm import meta_schedule

    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    count = len(lines(copy / record))
    one = tune._database(meta_schedule, Path(f"{folder}.trials")).get_all_tuning_records()[0]
    tune._replace_in_database(meta_schedule, copy, [], [one])
    assert len(lines(copy / record)) == count + 1
    tune._replace_in_database(meta_schedule, copy, [SimpleNamespace(mod=one.workload.mod)], [])
    assert len(lines(copy / record)) == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert sorted(before) == ["database_tuning_record.json", "database_workload.json"]
    plan_file = tmp_path / "plan.json"
    arguments = ["plan", *network, "--backends", "tvm", "--db", store, "--repeat", 3]
    done = command(*arguments, "--tuning-log", folder, "--plan-out", plan_file)
    assert done.returncode == 0, done.stderr
    done = command("compile", *network, "--plan", plan_file, "--tuning-log", folder, "-o", tmp_path / "a.so")
    assert done.returncode == 0, done.stderr
    assert before == {file.name: file.read_bytes() for file in folder.iterdir()}
