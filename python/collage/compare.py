# SPDX-License-Identifier: Apache-2.0
"""Whole models, run in turn on the same inputs."""

import time
from collections import OrderedDict

import numpy as np
import tvm

from . import check, error_measure, library, precision, seeded, timing, virtual_machine
from .region import RegionError, in_phase, load_executor, model_inputs, outputs_of, spoil_outputs


def timer(executor, min_sample_ms, warm=True):
    """A function that gives the seconds of a run of a loaded model that has run before, by as many runs as fill
    ``min_sample_ms``. One untimed run precedes these, but for a model that takes long (timing.LONG_SECONDS), and
    without ``warm`` for each whose one run fills the time.
    """
    number, long = _runs(executor, min_sample_ms)
    if number == 1 and (long or not warm):
        return lambda: _once(executor)
    evaluator = executor.module.time_evaluator("run", tvm.cpu(), number=number, repeat=1)
    return lambda: evaluator().results[0]


def _runs(executor, min_sample_ms):
    """How many runs of a loaded model fill ``min_sample_ms``, and whether one takes long; found out once."""
    known = getattr(executor, "collage_runs", None)
    if known is None:
        seconds = _once(executor)
        if seconds < timing.LONG_SECONDS:  # time_evaluator itself makes a run before, untimed
            seconds = executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=1)().mean
        known = executor.collage_runs = timing.runs(seconds, min_sample_ms), seconds >= timing.LONG_SECONDS
    return known


def _once(executor):
    """The seconds that one run takes."""
    began = time.perf_counter()
    executor.run()
    return time.perf_counter() - began


def sample(what, types):
    """Inputs, {name: array}, for a model whose inputs are ``types``: of a whole number, random ones; else ``what`` is
    the name of an .npz file with an array for each input, and which of its samples is meant (pass.samplesOf).
    """
    if isinstance(what, int):
        return seeded.inputs(what, types)
    path, number = what
    with np.load(path) as archive:
        return {name: _cut(archive[name], shape, number) for name, (shape, _) in types.items()}


# How many bytes of samples that are wanted later are kept of files that were read.
_KEPT = 1 << 29


def samples(inputs, types):
    """``sample`` of each of ``inputs``, one after the other. A file is read once, and what else is wanted of it kept,
    as far as there is room for it: inputs that are spread over files may change files with each one.
    """
    known, archive, kept, room = None, {}, {}, _KEPT
    for at, one in enumerate(inputs):
        if isinstance(one, int):
            yield sample(one, types)
            continue
        path, number = one
        if (values := kept.pop((path, number), None)) is not None:
            room += _size(values)
            yield values
            continue
        if path != known:
            with np.load(path) as opened:
                known, archive = path, {name: opened[name] for name in types}
            for later in inputs[at + 1 :]:
                if isinstance(later, int) or later[0] != path or tuple(later) in kept:
                    continue
                values = _sample_in(archive, types, later[1])
                if _size(values) > room:
                    break
                room -= _size(values)
                kept[tuple(later)] = {name: value.copy() for name, value in values.items()}
        yield _sample_in(archive, types, number)


def _sample_in(archive, types, number):
    return {name: _cut(archive[name], shape, number) for name, (shape, _) in types.items()}


def _size(values):
    return sum(value.nbytes for value in values.values())


def _cut(array, shape, number):
    if array.ndim == len(shape) + 1:
        return array[number]
    if array.shape == shape:
        return array
    return array[number * shape[0] : (number + 1) * shape[0]]


def ran(executor, values):
    """What a loaded model gives for these inputs."""
    for name, value in values.items():
        executor.set_input(name, value)
    spoil_outputs(executor)
    in_phase("run", executor.run)
    return outputs_of(executor)


def errors(got, expected, own, inputs):
    """precision.errors; what a measure of the user's own has to say in the place of an error is a RegionError."""
    try:
        return precision.errors(got, expected, own, inputs)
    except error_measure.MeasureError as error:
        raise RegionError("check", "bad-measure", str(error)) from error


def compare(request, progress=None):
    """Do what one "compare" request asks: run whole models in turn on the same inputs; the first is the
    reference. Gives {"samples_ms", "outputs", "errors"}, by the models' names: check.seen of the outputs of all others,
    and how far they are off on the inputs "held_out", as ``sample`` takes them. Of models whose open dimensions have
    domains a sample is the mean over these (open_dimensions.points), and outputs are compared at all points and at both
    ends; then "points" has what they take where: [{"sizes", "weight", "ms": {name: median}}].
    """
    models = request["models"]
    threads = int(request.get("threads") or 0)
    if threads and library.plugin_path("runtime") is None:
        tvm.get_global_func("runtime.config_threadpool")(1, threads)
    executors = OrderedDict()
    for model in models:
        executors[model["name"]] = in_phase("load", load_executor, model["path"])
    first = next(iter(executors))
    points = executors[first].points() if isinstance(executors[first], virtual_machine.Model) else []
    if points:
        return _over_domains(request, executors, points, progress)
    inputs = seeded.inputs(request.get("seed") or 0, model_inputs(executors[first]))

    outputs = {}
    for name, executor in executors.items():
        outputs[name] = in_phase("run", ran, executor, inputs)

    seen = {name: check.seen(outputs[name], outputs[first], request) for name in list(executors)[1:]}
    errors_of = _held_out(request, executors)
    if errors_of:
        for executor in executors.values():
            for key, value in inputs.items():
                executor.set_input(key, value)

    min_ms = float(request.get("min_sample_ms") or 2.0)
    timers = {name: timer(executor, min_ms) for name, executor in executors.items()}
    samples = {name: [] for name in executors}
    rounds = int(request.get("rounds") or 20)
    most = {model["name"]: model.get("rounds") or rounds for model in models}
    for round_number in range(rounds):
        for name, timed in timers.items():
            if round_number >= most[name]:
                continue
            samples[name].append(1000.0 * timed())
        if progress:
            progress(round_number + 1)
    return {"samples_ms": samples, "outputs": seen, "errors": errors_of}


def _held_out(request, executors):
    """{name: errors} of all but the first on the inputs that are held out; nothing without such."""
    first, *others = executors
    errors_of = {}
    if held_out := request.get("held_out"):
        values = [sample(one, model_inputs(executors[first])) for one in held_out]
        expected = [ran(executors[first], one) for one in values]
        for name in others:
            got = [ran(executors[name], one) for one in values]
            errors_of[name] = errors(got, expected, request.get("measure"), values)
    return errors_of


def _worse(one, other):
    """Whether what check.seen gives is worse than another."""

    def how(seen):
        wrong = sum(output["wrong"] for output in seen["each"])
        greatest = [np.inf if output["greatest"] is None else output["greatest"] for output in seen["each"]]
        return bool(seen["unlike"]), wrong, max(greatest, default=0.0)

    return how(one) > how(other)


def _over_domains(request, executors, points, progress):
    """``compare`` of models whose open dimensions have domains."""
    first = next(iter(executors))
    types = model_inputs(executors[first])
    seed = request.get("seed") or 0

    def inputs(sizes):
        return seeded.inputs(seed, {name: (tuple(sizes[name]), dtype) for name, (_, dtype) in types.items()})

    seen = {}
    for sizes in [*executors[first].corners(), *(point["sizes"] for point in points)]:
        values = inputs(sizes)
        expected = ran(executors[first], values)
        for name in list(executors)[1:]:
            here = check.seen(ran(executors[name], values), expected, request)
            if name not in seen or _worse(here, seen[name]):
                seen[name] = here

    min_ms = float(request.get("min_sample_ms") or 2.0)
    values = [inputs(point["sizes"]) for point in points]

    def timed(executor):
        """What one run takes at each point, in milliseconds. Sizes change with each run, as they are going to: what an
        engine does then is a part of it.
        """
        times = [[] for _ in points]
        while sum(map(sum, times)) < min_ms:
            for at, given in enumerate(values):
                for key, value in given.items():
                    executor.set_input(key, value)
                began = time.perf_counter()
                executor.run()
                times[at].append(1000.0 * (time.perf_counter() - began))
        return [float(np.mean(one)) for one in times]

    rounds = int(request.get("rounds") or 20)
    most = {model["name"]: model.get("rounds") or rounds for model in request["models"]}
    taken = {name: [] for name in executors}
    for round_number in range(rounds):
        for name, executor in executors.items():
            if round_number < most[name]:
                taken[name].append(timed(executor))
        if progress:
            progress(round_number + 1)
    weights = [point["weight"] for point in points]
    return {
        "samples_ms": {name: [float(np.dot(weights, one)) for one in each] for name, each in taken.items()},
        "outputs": seen,
        "errors": _held_out(request, executors),
        "points": [
            {**point, "ms": {name: float(np.median([one[at] for one in each])) for name, each in taken.items()}}
            for at, point in enumerate(points)
        ],
    }
