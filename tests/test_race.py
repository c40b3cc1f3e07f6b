# SPDX-License-Identifier: Apache-2.0
"""libcollage under Go's race detector, in a Python that holds TVM and a backend: what `go test -race` cannot
see, since there no callback comes from TVM's threads, and nothing is measured.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

# A race of two goroutines that nobody could overlook, called once libcollage is there.
DELIBERATE = """// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

import "C"

var unguarded int

//export collageGoRace
func collageGoRace() {
	var group sync.WaitGroup
	for range 2 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 1000 {
				unguarded++
			}
		}()
	}
	group.Wait()
}
"""

# The detector has shadow memory for low addresses only, where executables lie; the loader puts a library
# where it asks to be, if that is free.
LOW = "-ldflags=-extldflags=-Wl,-Ttext-segment=0x20000000"

PROGRAM = """
import ctypes, json, os, sys, threading
import numpy as np
import collage, tvm
from collage import library
from tvm import relay

library.load()
if sys.argv[1] == "race":
    ctypes.CDLL(os.environ["COLLAGE_LIBRARY"]).collageGoRace()

def network(channels):
    data = out = relay.var("x", shape=(1, 8, 14, 14), dtype="float32")
    for _ in range(3):
        weight = relay.const(np.random.default_rng(1).random((8, 8, 3, 3), "float32"))
        out = relay.nn.relu(relay.nn.conv2d(out, weight, padding=(1, 1), channels=8, kernel_size=(3, 3)))
    weight = relay.const(np.ones((channels, 8 * 14 * 14), "float32"))
    out = relay.nn.dense(relay.nn.batch_flatten(out), weight)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data], out)))

# Costs are measured in worker processes, and the same store is written by two threads at a time.
store = os.path.join(sys.argv[2], "costs.jsonl")
errors = []
def place(channels):
    try:
        collage.partition(network(channels), backends=["tvm", "dnnl"], store=store, level="operator")
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")

threads = [threading.Thread(target=place, args=(channels,)) for channels in (10, 12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
out = os.path.join(sys.argv[2], "model.tar")
collage.compile(network(10), backends=["tvm", "dnnl"], store=store, out=out, search_time=5)
print(json.dumps([errors, os.path.getsize(out) > 0]))
"""


def go():
    found = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if found is None:
        pytest.fail("Go was not found")
    return found


@pytest.fixture(scope="module")
def racing_library(tmp_path_factory):
    """libcollage with the race detector, and one export more, by which a test can see that it is on."""
    folder = tmp_path_factory.mktemp("race")
    extra, overlay = folder / "race.go", folder / "overlay.json"
    extra.write_text(DELIBERATE)
    target = ROOT / "cmd" / "libcollage" / "deliberate_race.go"  # only Go's compiler sees it there
    overlay.write_text(f'{{"Replace": {{"{target}": "{extra}"}}}}')
    library = folder / "libcollage.so"
    subprocess.run(
        [go(), "build", "-race", "-buildmode=c-shared", f"-overlay={overlay}", LOW, "-o", library,
         "./cmd/libcollage"],
        cwd=ROOT, check=True, env={**os.environ, "CGO_ENABLED": "1"},
    )  # fmt: skip
    return library


def run(library, what, folder):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, what, str(folder)],
        capture_output=True,
        text=True,
        timeout=1500,
        env=environment(
            COLLAGE_LIBRARY=library,
            GORACE="halt_on_error=1 exitcode=66",
            TVM_NUM_THREADS=2,
            TOPHUB_LOCATION="NONE",
        ),
    )


def test_the_detector_is_on(racing_library, tmp_path):
    result = run(racing_library, "race", tmp_path)
    assert result.returncode == 66, result.stderr[-3000:]
    assert "WARNING: DATA RACE" in result.stderr


def test_no_race_from_python_to_the_executable(racing_library, tmp_path):
    result = run(racing_library, "search", tmp_path)
    assert "DATA RACE" not in result.stderr, result.stderr[-6000:]
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1] == "[[], true]"
