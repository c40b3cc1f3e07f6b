# SPDX-License-Identifier: Apache-2.0
"""Regions on OpenVINO that many threads run for the first time at the same moment, with more threads than there are
processors.

OpenVINO makes a oneTBB arena for each of these threads. Where libhwloc is installed it binds the arena to processors,
and oneTBB up to 2021.13.2 then took the thread's place in the model's arena for one in its own: in six of ten runs the
process ended by a segmentation fault.
"""

import numpy as np
import placed
import pytest
from conftest import run_python
from openvino_grid import why_not
from test_soak import network

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

CALLERS, ROUNDS, THREADS = 8, 12, 8

MEET = """
import json, sys, threading
import numpy as np
from collage import region
path, callers, rounds = sys.argv[1], *map(int, sys.argv[3:])
with np.load(sys.argv[2]) as arrays:
    inputs, wanted = arrays["inputs"], arrays["wanted"]
# Sums of hundreds of terms: a small one is as wrong as the greatest.
atol = 1e-5 * float(np.abs(wanted).max())
wrong, right = [], []
for _ in range(rounds):
    executors = [region.load_executor(path) for _ in range(callers)]
    start = threading.Barrier(callers)
    def call(executor):
        start.wait(60)
        executor.set_input(0, inputs)
        executor.run()
        result = executor.get_output(0).numpy()
        (right if np.allclose(result, wanted, rtol=1e-4, atol=atol) else wrong).append(result.tolist())
    threads = [threading.Thread(target=call, args=(executor,)) for executor in executors]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print(json.dumps({"wrong": wrong, "right": len(right)}))
"""


def test_first_runs_at_the_same_moment(collage_library, tmp_path):
    module = network()
    (value,) = placed.values(module, 0)
    (wanted,) = placed.expected(module, value)
    np.savez(tmp_path / "answers.npz", inputs=value, wanted=wanted)
    path = placed.export_to(tmp_path / "model.so", placed.place(module, "openvino"), THREADS)
    told = run_python(MEET, path, tmp_path / "answers.npz", CALLERS, ROUNDS)
    assert told["wrong"] == []
    assert told["right"] == CALLERS * ROUNDS
