# SPDX-License-Identifier: Apache-2.0
"""Small networks placed on a device by given costs, and run there."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import placed
import tvm
from tvm import relay


def typed(expr):
    return relay.transform.InferType()(tvm.IRModule.from_expr(expr))


def convolution(data, channels_in, channels, seed=0):
    weight = np.random.default_rng(seed).standard_normal((channels, channels_in, 3, 3)) / (3 * channels_in**0.5)
    return relay.nn.conv2d(
        data, relay.const(weight.astype("float32")), kernel_size=(3, 3), channels=channels, padding=(1, 1)
    )


def network():
    """Two convolutions with what follows them, a pool, and a softmax."""
    data = relay.var("data", shape=(1, 3, 16, 16))
    data = relay.nn.relu(convolution(data, 3, 8))
    data = relay.nn.max_pool2d(relay.nn.relu(convolution(data, 8, 8, 1)), (2, 2), (2, 2))
    return typed(relay.nn.softmax(relay.nn.batch_flatten(data)))


def by_costs(kind, module, cost, backends=("tvm",), **options):
    """The module and the plan for costs that a function of the key gives."""
    import collage

    told = collage.transform.configuration(list(backends), devices=[kind], threads=placed.THREADS, **options)
    split, plan = tvm.get_global_func("collage.partition")(module, told, lambda key: cost(json.loads(str(key))))
    return split, json.loads(str(plan))


def mixed(kind, module, pins):
    """The module with some operators on the device, by TVM's kernels, the rest on the processor, and the plan."""
    there = {name: f"tvm_{kind}" if name in pins else "tvm" for name in placed.counted(module["main"])}
    return by_costs(kind, module, lambda key: 1.0, pin=[f"{name}={backend}" for name, backend in there.items()])


def runs_like_tvm(module, split, folder, rtol=1e-4):
    inputs = placed.values(module, seed=5)
    executor = placed.load(placed.export_to(folder / "model.tar", split))
    got = placed.run(executor, *inputs)
    placed.same(got, placed.expected(module, *inputs), rtol=rtol)
    # A second run finds what the first one has left.
    other = placed.values(module, seed=6)
    placed.same(placed.run(executor, *other), placed.expected(module, *other), rtol=rtol)


def steps(split, folder, *inputs):
    """What the regions of a placed module say of their steps in one run."""
    executor = placed.load(placed.export_to(folder / "model.tar", split))
    placed.run(executor, *inputs)
    switch = tvm.get_global_func("collage.runtime.ProfileRegions")
    switch(True)
    try:
        placed.run(executor, *inputs)
        told = json.loads(str(tvm.get_global_func("collage.runtime.RegionProfile")()))
    finally:
        switch(False)
    return [step for region in told.values() for step in region["steps"]["steps"]]


def threads_agree(module, path, turns):
    """Four threads, each with an executor of one exported model, give TVM's answers, each for other inputs in turn."""
    inputs = [placed.values(module, seed=seed) for seed in range(4)]
    wanted = [placed.expected(module, *each) for each in inputs]

    def call(first):
        executor = placed.load(path)
        for turn in range(turns):
            at = (first + turn) % len(inputs)
            placed.same(placed.run(executor, *inputs[at]), wanted[at], rtol=1e-4)

    with ThreadPoolExecutor(len(inputs)) as pool:
        list(pool.map(call, range(len(inputs))))
