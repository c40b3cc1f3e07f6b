# SPDX-License-Identifier: Apache-2.0
"""Eight callers load, run and unload models of 1, 2 and 4 threads in one process; every answer is plain TVM's. The
same on regions alone, with sanitizers: tests/native/engine_test.cc.
"""

import numpy as np
import placed
import pytest
from conftest import run_python
from test_soak import network

CALLERS = 8
THREADS = (1, 2, 4)

STRESS = """
import gc, json, os, random, sys, threading, time
import numpy as np
import collage
answers, seconds, rounds, callers, *paths = sys.argv[1:]
with np.load(answers) as arrays:
    inputs, wanted = arrays["inputs"], arrays["wanted"]
end = time.monotonic() + float(seconds)
wrong, counts = [], {"loads": 0, "runs": 0}
counting = threading.Lock()
shelf = [None] * 3

def run(executor, at):
    executor.set_input(0, inputs[at])
    executor.run()
    # Sums of hundreds of terms: a small one is as wrong as the greatest.
    atol = 1e-5 * float(np.abs(wanted[at]).max())
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted[at], rtol=1e-4, atol=atol)
    with counting:
        counts["runs"] += 1

def call(seed):
    choose = random.Random(seed)
    try:
        done = 0
        while not wrong and (done < int(rounds) or time.monotonic() < end):
            done += 1
            executor = collage.load(choose.choice(paths))
            with counting:
                counts["loads"] += 1
            for _ in range(choose.randrange(1, 4)):
                run(executor, choose.randrange(len(inputs)))
            # An executor is one caller's at a time; others let go of it.
            with counting:
                place = choose.randrange(len(shelf))
                executor, shelf[place] = shelf[place], executor
            if executor is not None:
                run(executor, choose.randrange(len(inputs)))
    except BaseException as error:
        wrong.append(repr(error))

threads = [threading.Thread(target=call, args=(seed,)) for seed in range(int(callers))]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"wrong": wrong, **counts}))
"""


@pytest.fixture(scope="module")
def models(collage_library, tmp_path_factory):
    """Inputs with their answers, and the network on each backend for each number of threads."""
    folder = tmp_path_factory.mktemp("stress")
    module = network()
    inputs = np.stack([placed.values(module, seed)[0] for seed in range(3)])
    wanted = np.stack([placed.expected(module, value)[0] for value in inputs])
    np.savez(folder / "answers.npz", inputs=inputs, wanted=wanted)
    paths = []
    for backend in ("tvm", *placed.usable()):
        put = module if backend == "tvm" else placed.place(module, backend)
        for threads in THREADS:
            suffix = ".tar" if threads == 2 else ".so"
            paths.append(placed.export_to(folder / f"{backend}-{threads}{suffix}", put, threads))
    return folder / "answers.npz", paths


def stress(models, seconds, rounds):
    answers, paths = models
    # What glibc finds out about a heap that was written over, it says at once.
    told = run_python(
        STRESS, answers, seconds, rounds, CALLERS, *paths, timeout=seconds + 600, MALLOC_CHECK_=3, MALLOC_PERTURB_=165
    )
    assert told["wrong"] == []
    assert told["loads"] >= CALLERS * rounds
    assert told["runs"] >= told["loads"]
    return told


def test_models_come_and_go(models):
    stress(models, 0, 4)


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(1800)
def test_models_come_and_go_for_minutes(models):
    told = stress(models, 180, 4)
    assert told["loads"] > 8 * CALLERS
    print(f"{told['loads']} models loaded, {told['runs']} runs")
