# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while Python searches: once keeps the fastest found so far, twice is a KeyboardInterrupt."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment
from interrupts import REACHED_BY_CTRL_C
from test_graph_level import networks_in

# Its arguments: what it calls, how it takes Ctrl-C, the cost store, a folder. What it prints last is what came of it.
PROGRAM = """
import json, os, signal, sys
from pathlib import Path

import collage, tvm
from test_graph_level import BACKENDS, network

call, how, store, folder = sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])
options = {"backends": BACKENDS.split(","), "store": store, "samples": 3, "rounds": 3, "search_time": 3600}


class Stop(Exception):
    pass


class Twice:
    # Whoever reads the message presses Ctrl-C again.
    def write(self, text):
        sys.__stderr__.write(text)
        if "Ctrl-C again quits" in text:
            os.kill(os.getpid(), signal.SIGINT)

    def flush(self):
        sys.__stderr__.flush()


def stop(number, frame):
    raise Stop


if how == "twice":
    sys.stderr = Twice()
if how == "own":
    signal.signal(signal.SIGINT, stop)
before = signal.getsignal(signal.SIGINT)
module = network()
told = {"regions": None}
try:
    if call == "partition":
        placed = collage.partition(module, plan_out=folder / "plan.json", **options)
    elif call == "pass":
        passes = [collage.transform.Normalise(), collage.transform.CollagePartition(**options)]
        placed = tvm.transform.Sequential(passes)(module)
    else:
        collage.compile(module, out=folder / "a.so", plan_out=folder / "plan.json", **options)
        placed = None
    if placed is not None:
        told["regions"] = sorted(name.name_hint for name in placed.get_global_vars() if name.name_hint != "main")
    told["came"] = "a result"
except BaseException as error:
    told["came"] = type(error).__name__
told["restored"] = signal.getsignal(signal.SIGINT) is before
print(json.dumps(told))
"""


def interrupted(call, how, folder, networks=2):
    """Run a search from Python, send it SIGINT as soon as so many networks are known; what it said, and its
    standard error.
    """
    costs = folder / "costs.jsonl"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [*REACHED_BY_CTRL_C, sys.executable, "-c", PROGRAM, call, how, str(costs), str(folder)],
        env=environment(PYTHONPATH=os.pathsep.join([environment()["PYTHONPATH"], paths]), TMPDIR=folder),
        # As in a terminal: the workers are in the same session.
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(networks_in(costs)) < networks and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()
    os.killpg(process.pid, signal.SIGINT)
    out, complaints = process.communicate(timeout=300)
    assert process.returncode == 0, complaints
    assert not list(folder.glob("collage-*")), "nothing stays in the folder for temporary files"
    return json.loads(out.splitlines()[-1]), complaints


@pytest.mark.parametrize("call", ["partition", "pass", "compile"])
def test_ctrl_c_ends_the_search_and_keeps_the_fastest(collage_library, tmp_path, call):
    told, complaints = interrupted(call, "once", tmp_path)
    assert told["came"] == "a result", complaints
    assert told["restored"], "Ctrl-C is Python's again"
    assert complaints.count("the fastest so far is kept") == 1
    known = {record["key"]["composite"] for record in networks_in(tmp_path / "costs.jsonl")}
    if call == "pass":
        return
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["graph_level"]["why"] == "it was interrupted"
    assert {one["placement"] for one in plan["graph_level"]["networks"]} == known
    (kept,) = (one for one in plan["finalists"] if one.get("chosen"))
    regions = sorted(region["symbol"] for region in plan["regions"] if "symbol" in region)
    assert kept["regions"] == len(regions)
    if call == "partition":
        assert told["regions"] == regions
        fastest = min(plan["graph_level"]["networks"], key=lambda one: one.get("ratio", 1e9))
        assert fastest["regions"] == len(regions)
    else:
        assert (tmp_path / "a.so").exists()


def test_ctrl_c_twice_quits(collage_library, tmp_path):
    told, complaints = interrupted("compile", "twice", tmp_path)
    assert told == {"regions": None, "came": "KeyboardInterrupt", "restored": True}
    assert complaints.count("the fastest so far is kept") <= 1
    assert not (tmp_path / "a.so").exists()
    assert not (tmp_path / "plan.json").exists()


def test_a_programs_own_handler_stays(collage_library, tmp_path):
    told, complaints = interrupted("partition", "own", tmp_path)
    assert told == {"regions": None, "came": "Stop", "restored": True}
    assert "Ctrl-C again" not in complaints
