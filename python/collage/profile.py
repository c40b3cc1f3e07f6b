# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a built network are, and what each of them takes within a run of the whole.

In: the module that relay.build has fused (KernelRecorder watches the build), and later the exported model.
Out: the operators with the kernel that each is a part of, in the order in which TVM's graph executor runs
the kernels, and the kernels' times. pass/graphlevel/feedback finds out which of them belongs to what was
placed.
"""

import itertools
import json
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from . import parameters, tvm_threads


@tvm.instrument.pass_instrument
class KernelRecorder:
    """Keeps the module as it is after fusion, which is the last time that operators can be seen."""

    def __init__(self):
        self.module = None

    def run_after_pass(self, module, info):
        """Called by TVM after each pass."""
        if info.name == "FuseOps":
            # A copy: passes that follow take functions out of the module itself (InlineGlobals).
            self.module = tvm.IRModule(module.functions, module.type_definitions)


def _children(expr):
    if isinstance(expr, relay.Call):
        return list(expr.args)
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Let):
        return [expr.value, expr.body]
    return []


def _post_order(body):
    """The expressions that ``body`` is made of, each once, operands first; functions are not looked into."""
    order, seen, stack = [], set(), [(body, False)]
    while stack:
        expr, complete = stack.pop()
        if complete:
            order.append(expr)
            continue
        key = expr.handle.value
        if key in seen:
            continue
        seen.add(key)
        stack.append((expr, True))
        stack.extend((child, False) for child in reversed(_children(expr)))
    return order


class _Describer:
    """Writes the operators of a fused module down, those inside fused functions where they are called."""

    def __init__(self):
        self.ops = []
        self.kernels = []

    def _add(self, name, kernel, arguments, index=None):
        entry = {"op": name, "kernel": kernel, "args": arguments}
        if index is not None:
            entry["index"] = index
        self.ops.append(entry)
        return len(self.ops) - 1

    def expression(self, body, values, kernel=None):
        """The number of the operator that gives ``body``; -1 for an input. ``values`` are known ones by
        handle; ``kernel`` is the one that all of it is in, None for main.
        """
        for expr in _post_order(body):
            key = expr.handle.value
            if key not in values:
                values[key] = self._one(expr, values, kernel)
        return values[body.handle.value]

    def _one(self, expr, values, kernel):
        arguments = [values[child.handle.value] for child in _children(expr)]
        inside = -1 if kernel is None else kernel
        if isinstance(expr, relay.Tuple):
            return self._add("(tuple)", inside, arguments)
        if isinstance(expr, relay.TupleGetItem):
            return self._add("(get)", inside, arguments, expr.index)
        if isinstance(expr, relay.Let):
            return arguments[1]
        if not isinstance(expr, relay.Call):
            return -1
        if isinstance(expr.op, tvm.ir.Op):
            return self._add(expr.op.name, self._kernel(expr.op.name) if kernel is None else kernel, arguments)
        if isinstance(expr.op, relay.GlobalVar):
            name = expr.op.name_hint
            return self._add("@" + name, self._kernel(name) if kernel is None else kernel, arguments)
        function = expr.op
        own = self._kernel("fused") if kernel is None else kernel
        if not isinstance(function, relay.Function):
            return self._add("(call)", own, arguments)
        inner = {
            parameter.handle.value: argument for parameter, argument in zip(function.params, arguments, strict=True)
        }
        return self.expression(function.body, inner, own)

    def _kernel(self, name):
        self.kernels.append(name)
        return len(self.kernels) - 1


def describe(module, factory):
    """The operators of a fused module and their kernels, as pass/trace.Executable reads them.

    None where that cannot be said: no module was recorded, or TVM's graph has other kernels than it.
    """
    if module is None or "main" not in {var.name_hint for var in module.get_global_vars()}:
        return None
    describer = _Describer()
    root = describer.expression(module["main"].body, {})
    nodes = json.loads(factory.get_graph_json())["nodes"]
    names = [node["attrs"]["func_name"] for node in nodes if node["op"] == "tvm_op"]
    if len(names) != len(describer.kernels):
        return None
    for written, name in zip(describer.kernels, names, strict=True):
        # The two orders are the same if the regions stand in the same places.
        if written != name and not (written == "fused" and (name == "__nop" or "fused" in name)):
            return None
    return {"ops": describer.ops, "root": root, "kernels": names}


def storage_bytes(factory):
    """What a built network keeps between kernels, in bytes: TVM's own plan of its memory, without weights."""
    attributes = json.loads(factory.get_graph_json())["attrs"]
    largest = {}
    shapes, kinds = attributes["shape"][1], attributes["dltype"][1]
    for storage, shape, kind in zip(attributes["storage_id"][1], shapes, kinds, strict=True):
        size = tvm.runtime.DataType(kind)
        count = (size.bits * size.lanes + 7) // 8
        for extent in shape:
            count *= extent
        largest[storage] = max(largest.get(storage, 0), count)
    return sum(largest.values())


def debug_module(path):
    """An exported model (.so or .tar) as TVM's debug executor, whose function "profile" times each kernel."""
    path = Path(path)
    if path.suffix != ".tar":
        return tvm.runtime.load_module(str(path))["debug_create"]("default", tvm.cpu())
    with tempfile.TemporaryDirectory(prefix="collage-load-") as folder:
        files = tvm.get_global_func("collage.model_files")(str(path.resolve()), folder)
        library, graph, weights = map(Path, map(str, files))
        create = tvm.get_global_func("tvm.graph_executor_debug.create")
        device = tvm.cpu()
        functions = tvm.runtime.load_module(str(library))
        executor = create(graph.read_text(), functions, device.device_type, device.device_id)
        for name, array in parameters.read(weights).items():
            executor["set_input"](name, array)
    return executor


def _estimate(values):
    """The lower quartile, as Go takes it of candidates (cost.Quantile): what else the machine does only adds time."""
    return float(np.quantile(values, 0.25))


def _regions(rounds):
    """The regions of one network, from what collage.runtime.RegionProfile said of each round.

    Each has "ms" and, where its engine tells, "groups", "steps" with their "ms", and "call_ms": what the call
    took beside its steps, in the round in which that was least; and what else the engine says ("layers", "why"). A
    region that had other steps in some round (its plan was made anew) is left without any.
    """
    regions = {}
    for symbol in rounds[-1] if rounds else {}:
        calls = [one[symbol] for one in rounds if symbol in one]
        region = {"ms": _estimate([call["ms"] for call in calls])}
        told = [call["steps"] for call in calls if "steps" in call]
        if told and len({len(one["steps"]) for one in told}) == 1:
            region |= told[-1]
            steps = zip(*(one["steps"] for one in told), strict=True)
            region["steps"] = [{**same[-1], "ms": _estimate([step["ms"] for step in same])} for same in steps]
            region["call_ms"] = max(0.0, min(_beside(call) for call in calls if "steps" in call))
        elif told:
            region |= {"groups": told[-1]["groups"], "steps": [], "why": "its engine took other steps in each run"}
        regions[symbol] = region
    return regions


def _beside(call):
    """What a region's call took beside its steps: what the engine says, else what is left of the whole."""
    told = call["steps"]
    return told.get("call_ms", call["ms"] - sum(step["ms"] for step in told["steps"]))


# Before each run TVM's profiler ends the pool's threads, on which no kernel runs, and starts others.
@tvm_threads.sleeping()
def profile(path, inputs, rounds=5):
    """What each kernel of an exported model takes, in milliseconds: {"kernels_ms", "names", "regions"}.

    The network is run ``rounds`` times as a whole, or less often where that takes longer than about a second (TVM's
    profiler makes three runs of its own before each), each kernel timed where it stands, caches as its predecessors
    left them; the lower quartile counts. ``inputs`` are arrays by name. "regions" has, by
    symbol, what the regions' own runtimes say about the steps inside (pass/trace.Inside); it is
    empty where the runtime is not loaded or is one of an earlier version.

    Engines that time layers run a model with clocks in it for that, or write down what they did, which takes time
    itself: where there are such, the kernels' times are of other runs, in which nobody looks inside.
    """
    executor = debug_module(path)
    for name, value in inputs.items():
        executor["set_input"](name, tvm.nd.array(value))
    run = executor["profile"]
    switch = tvm.get_global_func("collage.runtime.ProfileRegions", allow_missing=True)
    take = tvm.get_global_func("collage.runtime.RegionProfile", allow_missing=True)
    regions = []
    if switch is not None and take is not None:
        switch(True)
        try:
            began = time.perf_counter()
            first = run([])
            rounds = _affordable(rounds, time.perf_counter() - began)
            if json.loads(str(take())):  # engines set up in it what they need
                times, names = _kernels(_runs(run, rounds), lambda: regions.append(json.loads(str(take()))))
            else:
                times, names = _kernels(itertools.chain([first], _runs(run, rounds - 1)))
        finally:
            switch(False)
    regions = _regions(regions)
    if switch is None or take is None or any(region.get("layers") for region in regions.values()):
        began = time.perf_counter()
        run([])  # they put away what they had set up
        rounds = _affordable(rounds, time.perf_counter() - began)
        times, names = _kernels(_runs(run, rounds))
    estimates = [_estimate(column) for column in zip(*times, strict=True)]
    return {"kernels_ms": estimates, "names": names, "regions": regions}


# For so many seconds a network is profiled: once where a round takes longer.
_PROFILE_SECONDS = 1.0


def _affordable(rounds, took):
    """How many of so many rounds there is time for, of which each takes so many seconds."""
    return min(rounds, math.ceil(_PROFILE_SECONDS / took))


def _runs(run, rounds):
    """What TVM's profiler says of so many runs, each made when it is asked for."""
    return (run([]) for _ in range(rounds))


def _kernels(runs, after=lambda: None):
    """What the kernels took in each of the runs, in milliseconds, and their names."""
    times, names = [], []
    for one in runs:
        calls = one.calls
        names = [str(call["Name"]) for call in calls]
        times.append([call["Duration (us)"].microseconds / 1000.0 for call in calls])
        after()
    return times, names
