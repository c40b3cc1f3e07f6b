# SPDX-License-Identifier: Apache-2.0
"""--trace: what was done when, as a file that Perfetto opens."""

import json
import os
import signal
import subprocess
import time

import pytest
import schemas
from conftest import PACKAGE, SAMPLES, environment
from test_graph_level import networks_in
from test_json import small_network


def events(path):
    """The events of a trace, which is what its schema says."""
    return schemas.hold("files/trace", schemas.parsed(path.read_text()))["traceEvents"]


def spans(path):
    """The spans of a trace by their threads, each as (name, start, end, arguments); they nest."""
    threads = {}
    for event in events(path):
        if event["ph"] == "X":
            end = event["ts"] + event["dur"]
            told = (event["name"], event["ts"], end, event.get("args", {}))
            threads.setdefault((event["pid"], event["tid"]), []).append(told)
    for thread in threads.values():
        around = []
        for name, start, end, _ in thread:
            while around and around[-1] <= start:
                around.pop()
            assert not around or end <= around[-1] + 0.01, f"{name} ends after what it is a part of"
            around.append(end)
    return threads


def processes(path):
    """The processes' names by their numbers."""
    return {event["pid"]: event["args"]["name"] for event in events(path) if event["name"] == "process_name"}


@pytest.fixture(scope="module")
def traced(command, tmp_path_factory):
    """A search of a network that nothing was known of; what it left."""
    folder = tmp_path_factory.mktemp("trace")
    result = command(
        "compile", small_network(folder / "small.onnx"), "-o", folder / "model.tar", "--db", folder / "costs.jsonl",
        "--backends", "tvm,dnnl", "--search-time", "90s", "--trials", 3, "--repeat", SAMPLES, "--rounds", 3, "-q",
        "--trace", folder / "trace.json", "--plan-out", folder / "plan.json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder


def test_the_phases_make_the_whole(traced):
    path = traced / "trace.json"
    (number,) = [number for number, name in processes(path).items() if name == "collage"]
    whole, *parts = spans(path)[number, 1]
    assert whole[0] == "collage compile" and whole[1] == 0
    phases, last = [], 0
    for name, start, end, _ in parts:
        if start >= last:  # not a part of a phase
            phases.append(name)
            last = end
    names = " ".join(phases)
    for known in (
        "starting",
        "reading",
        "normalising",
        "looking for candidates",
        "search",
        "running",
        "writing the executable",
        "writing the plan",
    ):
        assert known in names, phases
    covered = sum(end - start for name, start, end, _ in parts if name in phases)
    assert 0.8 * whole[2] <= covered <= 1.001 * whole[2], (covered, whole[2], phases)


def test_workers_have_tracks_of_their_own(traced):
    path = traced / "trace.json"
    roles = processes(path)
    assert {"worker: builds networks", "worker: runs networks", "worker: runs finalists"} <= set(roles.values())
    done = {}
    for (number, _), thread in spans(path).items():
        done.setdefault(roles[number], []).extend(name for name, *_ in thread)
    assert any(name.startswith("round ") for name in done["worker: runs finalists"])
    known = {one["name"] for one in json.loads((traced / "plan.json").read_text())["graph_level"]["networks"]}
    built = {name.removeprefix("build ") for name in done["worker: builds networks"] if name.startswith("build ")}
    assert built & known and len(known - built) <= 1, (built, known)
    assert {f"run {name}" for name in built & known} & set(done["worker: runs networks"])
    told = events(path)
    assert {event["name"] for event in told if event["ph"] == "i"} >= known & built
    best = [event["args"]["value"] for event in told if event["ph"] == "C"]
    # It is what the best takes; a best that is run again may take longer than was thought.
    assert best and all(value > 0 for value in best)


def test_candidates_are_named(traced):
    roles, labels = processes(traced / "trace.json"), []
    for (number, thread), told in spans(traced / "trace.json").items():
        if roles[number] == "worker: measures candidates" and thread == 1:
            labels.extend(name for name, *_ in told)
    if labels:  # what was seen in place is not measured alone
        assert labels[0] == "starting"
        assert all(name.split()[0] in ("starting", "check", "time", "measure", "load", "see", "build", "run", "look")
                   for name in labels), labels  # fmt: skip


def test_python_writes_one_too(collage_library, store, tmp_path):
    import collage
    from test_graph_level import network

    path = tmp_path / "trace.json"
    options = {"backends": ["tvm", "dnnl"], "store": store, "samples": SAMPLES, "search_time": 20}
    collage.plan(network(), trace=path, **options)
    assert "collage.plan" in {name for thread in spans(path).values() for name, *_ in thread}
    with pytest.raises(ValueError, match="trace cannot be used"):
        collage.plan(network(), trace=tmp_path / "none" / "trace.json", **options)


def test_what_was_ended_is_written(collage_library, tmp_path):
    """SIGTERM ends the command without a result, and the trace has what was done until then."""
    costs, path = tmp_path / "costs.jsonl", tmp_path / "trace.json"
    binary = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
    given = ["compile", small_network(tmp_path / "small.onnx"), "-o", tmp_path / "a.tar", "--db", costs, "-q",
             "--search-time", "1h", "--trace", path]  # fmt: skip
    process = subprocess.Popen([binary, *map(str, given)], env=environment(), stderr=subprocess.PIPE, text=True)
    while len(networks_in(costs)) < 1 and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2 and "interrupted" in said, said
    assert any(told.get("unfinished") for thread in spans(path).values() for *_, told in thread)
    assert list(tmp_path.glob(".*partial*")) == []


def test_a_trace_that_cannot_be_written(command, tmp_path):
    model = small_network(tmp_path / "small.onnx")
    for where, said in ((tmp_path / "none" / "x.json", "--trace"), (model, "MODEL and --trace are the same file")):
        done = command("compile", model, "-o", tmp_path / "a.tar", "--trace", where)
        assert done.returncode == 2 and said in done.stderr, done.stderr
    assert not (tmp_path / "a.tar").exists()
