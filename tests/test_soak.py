# SPDX-License-Identifier: Apache-2.0
"""Models that come and go for minutes in one process: answers stay right, memory stays flat."""

import numpy as np
import placed
import pytest
import tvm
from conftest import run_python
from tvm import relay

pytestmark = [pytest.mark.usefixtures("collage_library"), pytest.mark.long, pytest.mark.alone]

CYCLES, CALLERS, CALLS = 60, 4, 10

# Loads a model, has several callers run it, lets go of it, again and again. Tells the resident bytes after
# each cycle; an answer that is not TVM's ends it.
COME_AND_GO = """
import gc, json, sys, threading
import numpy as np
from collage import region, timing
path, answers, cycles, callers, calls = sys.argv[1], np.load(sys.argv[2]), *map(int, sys.argv[3:])
inputs, wanted = answers["inputs"], answers["wanted"]
wrong, resident = [], []
def call(which):
    try:
        executor = region.load_executor(path)
        for i in range(calls):
            at = (which + i) % len(inputs)
            executor.set_input(0, inputs[at])
            executor.run()
            # Sums of hundreds of terms: a small one is as wrong as the greatest.
            atol = 1e-5 * float(np.abs(wanted[at]).max())
            np.testing.assert_allclose(executor.get_output(0).numpy(), wanted[at], rtol=1e-4, atol=atol)
    except BaseException as error:
        wrong.append(repr(error))
for _ in range(cycles):
    threads = [threading.Thread(target=call, args=(which,)) for which in range(callers)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    gc.collect()
    resident.append(timing.resident())
print(json.dumps({"wrong": wrong, "resident": resident}))
"""


def network():
    """A convolution, a pool and two dense layers, so that each library has something to take."""
    rng = np.random.default_rng(1)

    def constant(*shape):
        return relay.const(rng.standard_normal(shape).astype("float32") / 8)

    x = relay.var("x", shape=(2, 8, 20, 20))
    y = relay.nn.relu(relay.nn.conv2d(x, constant(16, 8, 3, 3), padding=(1, 1), channels=16, kernel_size=(3, 3)))
    y = relay.nn.batch_flatten(relay.nn.max_pool2d(y, (2, 2), (2, 2)))
    y = relay.nn.relu(relay.nn.dense(y, constant(640, 1600)))
    y = relay.nn.dense(y, constant(10, 640))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


@pytest.mark.parametrize("backend", placed.with_regions_of_their_own())
def test_models_come_and_go(backend, tmp_path):
    module = network()
    inputs = [placed.values(module, seed)[0] for seed in range(5)]
    np.savez(tmp_path / "answers", inputs=inputs, wanted=[placed.expected(module, x)[0] for x in inputs])
    split = placed.place(module, backend)
    assert placed.offloaded(split)["nn.dense"] == 2
    path = placed.export_to(tmp_path / "model.so", split)

    told = run_python(COME_AND_GO, path, tmp_path / "answers.npz", CYCLES, CALLERS, CALLS)

    assert told["wrong"] == []
    resident = told["resident"]
    assert len(resident) == CYCLES
    # The first half fills caches and allocators, which go on moving by some 20 MB. A model that kept its
    # weights would show as 4 MB a load between the third quarter and the last; a quarter of that is too much.
    third, last = resident[CYCLES // 2 : 3 * CYCLES // 4], resident[3 * CYCLES // 4 :]
    weights = 4 * (640 * 1600 + 10 * 640)
    assert min(last) - min(third) < len(last) * CALLERS * weights / 4, [value >> 20 for value in resident]
