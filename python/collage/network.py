# SPDX-License-Identifier: Apache-2.0
"""Build, run and profile whole networks: what the workers do for the graph-level search.

In: a normalised module without its weights (a file of TVM's JSON) and the weights (a file of its
parameters), written once by network.Network; for each network the regions that it is to have. Out: exported
models, samples of their latency beside plain TVM's, what each kernel takes in place, sizes. The answers of
each operation are described where it stands.
"""

import errno
import math
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import tvm
from tvm import relay

from . import check, compare, export, library, parameters, precision, profile, region, seeded, timing, witness

# Into so many parts is divided what a value's numbers reach.
_PARTS = 4096

# What is added to a value is so much of what the value is in the mean of squares; and how Go calls what is added.
_LOUDNESS = 2.0**-6
_NOISE = "collage_noise_"


class Networks:
    """What a worker keeps between the requests about whole networks."""

    def __init__(self):
        self._modules = {}
        self._models = OrderedDict()
        self._inputs = {}
        self._outputs = {}
        self._samples = {}

    def operations(self):
        """The operations by name; each takes the request and gives the fields of its result."""
        return {"network_build": self.build, "network_run": self.run, "network_profile": self.profile,
                "network_drop": self.drop, "network_footprint": footprint, "network_agree": self.agree,
                "network_watch": self.watch, "network_round": self.round}  # fmt: skip

    def module(self, path, params):
        """The normalised module, its weights bound again as constants."""
        if path not in self._modules:
            module = tvm.ir.load_json(Path(path).read_text())
            values = parameters.read(params)
            for var in module.get_global_vars():
                function = module[var]
                if not isinstance(function, relay.Function):
                    continue
                mine = {p.name_hint for p in function.params} & values.keys()
                if mine:
                    module[var] = relay.build_module.bind_params_by_name(
                        function, {name: values[name] for name in mine}
                    )
            self._modules.clear()
            self._modules[path] = relay.transform.InferType()(module)
        return self._modules[path]

    def build(self, request):
        """Build a network with regions and export it to request["out"].

        "network" is a network.Spec as JSON. Gives {"seconds", "bytes", "storage_bytes",
        "parameter_bytes", "executable"}; the last one is profile.describe's and may be None.
        """
        library.load()
        started = time.perf_counter()
        module = self.module(request["module"], request["params"])
        compilers = request.get("compilers") or []
        for compiler in compilers:
            region.in_phase("setup", library.install, compiler)
        try:
            placed = tvm.get_global_func("collage.network.annotate")(module, request["network"])
            recorder = profile.KernelRecorder()
            factory = export.build(
                placed,
                request.get("target") or None,
                request.get("opt_level"),
                request.get("disabled_passes"),
                instruments=[recorder],
            )
            described = profile.describe(recorder.module, factory)
            plugins = list(dict.fromkeys(path for name in ("", *compilers) for path in region.plugins_for(name)))
            size = export.write(factory, request["out"], plugins, int(request.get("threads") or 0), lasting=False)
        except MemoryError:
            raise
        except OSError as error:
            kind = "disk-full" if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else "error"
            raise region.RegionError("build", kind, error.strerror or str(error)) from error
        except Exception as error:
            raise region.RegionError("build", region.kind_of(error), region.in_short(error)) from error
        parameters = sum(array.numpy().nbytes for array in factory.get_params().values())
        return {
            "seconds": time.perf_counter() - started,
            "bytes": size,
            "storage_bytes": profile.storage_bytes(factory),
            "parameter_bytes": parameters,
            "executable": described,
        }

    def _load(self, path):
        if path not in self._models:
            self._models[path] = region.in_phase("load", region.load_executor, path)
        self._models.move_to_end(path)
        return self._models[path]

    def _values(self, reference, seed):
        """Inputs for all models of a network: those of the one that others are held against."""
        key = (reference, seed)
        if key not in self._inputs:
            self._inputs = {key: seeded.inputs(seed, region.model_inputs(self._load(reference)))}
            self._outputs = {}
        return self._inputs[key]

    def _ready(self, path, reference, seed):
        executor = self._load(path)
        for name, value in self._values(reference, seed).items():
            executor.set_input(name, value)
        return executor

    def run(self, request):
        """Run "model" in turn with the model "against", "rounds" times, on the same inputs.

        With "check" the outputs are compared first with those of "reference", plain TVM's model. Gives {"samples_ms",
        "against_ms", "outputs", "resident_bytes"}; "outputs" is check.seen's, resident_bytes is by how much this
        process has grown over loading and running the model the first time, 0 where it was loaded before. With
        "inputs" and "held_out", lists as of ``_errors``, there are "errors" and "held_out_errors", those on these
        inputs; where the model is plain TVM's, it is run on them, so that this time is told with its own.
        """
        model, against, reference = request["model"], request["against"], request["reference"]
        seed = request.get("seed") or 0
        threads = int(request.get("threads") or 0)
        if threads and library.plugin_path("runtime") is None:
            tvm.get_global_func("runtime.config_threadpool")(1, threads)
        expected = self._expected(reference, seed)
        pace = self._ready(against, reference, seed)
        before, known = timing.resident(), model in self._models
        executor = self._ready(model, reference, seed)
        if model != reference:  # plain TVM has run on these inputs
            region.spoil_outputs(executor)
            region.in_phase("run", executor.run)
        result = {"outputs": None, "resident_bytes": 0}
        if not known:
            result["resident_bytes"] = max(0, timing.resident() - before)
        if model == reference and request.get("inputs"):
            self._right(reference, [*request["inputs"], *request["held_out"]])
            executor = self._ready(model, reference, seed)
        if request.get("check") and model != reference:
            outputs = region.in_phase("run", region.outputs_of, executor)
            result["outputs"] = check.seen(outputs, expected, request)
            if request.get("inputs"):
                own = request.get("measure")
                result["errors"] = self._errors(executor, reference, request["inputs"], own)
                result["held_out_errors"] = self._errors(executor, reference, request["held_out"], own)
                executor = self._ready(model, reference, seed)
        minimum = float(request.get("min_sample_ms") or 2.0)
        timers = [region.in_phase("run", compare.timer, executor, minimum)]
        if model != against:
            # Plain TVM may take many times as long as what runs beside it.
            timers.append(region.in_phase("run", compare.timer, pace, minimum, against != reference))
        samples = [[] for _ in timers]
        for _ in range(int(request.get("rounds") or 3)):
            for timer, taken in zip(timers, samples, strict=True):
                taken.append(1000.0 * region.in_phase("run", timer))
        return {**result, "samples_ms": samples[0], "against_ms": samples[-1]}

    def _expected(self, reference, seed):
        """What plain TVM gives for the inputs of this seed: run once, so that its model need not stay loaded."""
        self._values(reference, seed)  # those of other inputs are forgotten
        if reference not in self._outputs:
            executor = self._ready(reference, reference, seed)
            region.in_phase("run", executor.run)
            self._outputs[reference] = region.outputs_of(executor)
        return self._outputs[reference]

    def _errors(self, executor, reference, samples, own):
        """How far off a model is where "reference" is right (precision.errors, which takes ``own``), on ``samples``, as
        compare.sample takes them.
        """
        known = self._right(reference, samples)
        got = [compare.ran(executor, values) for values, _ in known]
        for ours, (_, theirs) in zip(got, known, strict=True):
            if check.has_new_nan(ours, theirs):
                raise region.RegionError("check", "not-a-number", "the outputs hold NaN where TVM's hold numbers")
        return compare.errors(got, [theirs for _, theirs in known], own, [values for values, _ in known])

    def _right(self, reference, samples):
        """(inputs, what "reference" gives for them) of each of ``samples``, run once."""
        known = self._samples.setdefault(reference, {})
        samples = [sample if isinstance(sample, int) else tuple(sample) for sample in samples]
        for sample in samples:
            if sample not in known:
                right = self._load(reference)
                values = compare.sample(sample, region.model_inputs(right))
                known[sample] = (values, compare.ran(right, values))
        return [known[sample] for sample in samples]

    def agree(self, request):
        """Hold the outputs of "model" against those that another engine gave for the same inputs (collage.witness).

        "answers" is the engine's file, "loose" as it said. Gives {"max_error_share", "mismatch", "doubt"}: the
        largest difference as a share of the greatest value of its output, and where they differ by too much, None
        otherwise; check.doubt, 0 where they do.
        """
        with np.load(request["answers"]) as archive:
            answers, given = witness.answers(archive)
        model, seed = request["model"], request.get("seed") or 0
        if given:
            got = compare.ran(self._load(model), {**self._values(model, seed), **given})
        else:
            got = self._expected(model, seed)
        share, mismatch = check.witnessed(got, answers, request.get("loose"))
        if mismatch:
            return {"max_error_share": 0.0, "mismatch": mismatch, "doubt": 0.0}
        return {"max_error_share": share, "mismatch": None, "doubt": check.doubt(got, answers)}

    def watch(self, request):
        """Run "model" on "inputs" (as compare.sample takes them) and look at its outputs behind the first "results",
        whose channels lie along the axes "channels": on the "least" first inputs in any case, and on those behind them
        until "input_seconds" have gone by, which is asked anew when numbers are counted.

        Gives {"seen", "inputs"}: of each such output {"low", "high", "counts", "squares", ...}, a rounding.Seen of
        Go's, whose ends are those of all numbers on all inputs that there was time for; and on how many inputs it was
        counted how many of those that are not 0 lie in each of equal parts between.
        """
        executor, types, silence = _watched(request["model"])
        inputs, results, seconds = request["inputs"], request["results"], request["input_seconds"]

        def outputs(inputs):
            until = time.perf_counter() + seconds
            for number, values in enumerate(compare.samples(inputs, types)):
                if number >= request["least"] and time.perf_counter() > until:
                    return
                yield compare.ran(executor, values)[results:]

        reaches, count = [(0.0, 0.0) for _ in request["channels"]], 0
        for of in outputs(inputs):
            reaches = [
                (float(np.min(x, initial=low)), float(np.max(x, initial=high)))
                for x, (low, high) in zip(of, reaches, strict=True)
            ]
            if not np.isfinite(reaches).all():
                raise region.RegionError("check", "not-a-number", "a value of the network's is not finite")
            count += 1
        counts = [np.zeros(_PARTS, "int64") for _ in reaches]
        squares, means = [0.0 for _ in reaches], [0.0 for _ in reaches]
        counted = 0
        for of in outputs(inputs[:count]):
            counted += 1
            for i, x in enumerate(of):
                counts[i] += _counted(x, *reaches[i])
                squares[i] += float(np.square(x, dtype="float64").sum())
                means[i] = means[i] + _channel_means(x, request["channels"][i])
        first = next(iter(compare.samples(inputs[:1], types)))
        gains = self._gains(executor, first, silence, request)
        return {
            "inputs": counted,
            "seen": [
                {"low": low, "high": high, "counts": of.tolist(), "squares": square, "means": sums, **gain}
                for (low, high), of, square, sums, gain in zip(
                    reaches, counts, squares, [(sums / counted).tolist() for sums in means], gains, strict=True
                )
            ],
        }

    @staticmethod
    def _gains(executor, values, silence, request):
        """For each of the inputs "silence", {name: zeros}, the "gain" and "channel_gain" of a rounding.Seen of Go's: by
        how much outputs are off, in squares and relatively, where what it is added to is, an output behind the first
        "results", in each of its elements, or in each of its channels.
        """
        right = compare.ran(executor, values)
        results = request["results"]
        began = time.perf_counter()
        compare.ran(executor, values)
        took = time.perf_counter() - began
        # Where there is no time for all of them, what comes before one says what it would have.
        every = max(1, math.ceil(2 * len(silence) * took / request["noise_seconds"]))

        def gain(name, noise):
            executor.set_input(name, (noise * _LOUDNESS).astype(noise.dtype))
            off = precision.errors([compare.ran(executor, values)[:results]], [right[:results]])["l2"]
            return (off / _LOUDNESS) ** 2

        gains = []
        for i, (name, zeros) in enumerate(silence.items()):
            if i % every:
                gains.append(gains[-1])
                continue
            value, axis = right[results + i], request["channels"][i]
            random = np.random.default_rng(i)
            signs = random.choice(np.array([-1.0, 1.0], zeros.dtype), zeros.shape)
            root = math.sqrt(float(np.square(value, dtype="float64").mean())) if value.size else 0.0
            shape = [1] * value.ndim
            if value.ndim:
                shape[axis] = value.shape[axis]
            by_channel = random.choice(np.array([-1.0, 1.0], zeros.dtype), shape)
            noise = {"gain": signs * zeros.dtype.type(root), "channel_gain": value * by_channel}
            gains.append({kind: gain(name, loud) for kind, loud in noise.items()})
            executor.set_input(name, zeros)
        return gains

    def round(self, request):
        """Run "model" on "inputs" as ``watch`` does, with what its outputs behind the first "results" are off by where
        they are rounded to steps added to them: for each of "steps", lists of as many {"scale", "zero"}. The first
        input in any case, the others until "seconds" have gone by.

        Gives {"inputs", "errors"}: on how many inputs, and for each of "steps" precision.errors of the results.
        """
        executor, types, silence = _watched(request["model"])
        results, began = request["results"], time.perf_counter()
        given, right, rounded = [], [], [[] for _ in request["steps"]]
        for values in compare.samples(request["inputs"], types):
            if given and time.perf_counter() - began > request["seconds"]:
                break
            _add(executor, silence)
            exact = compare.ran(executor, values)
            for steps, got in zip(request["steps"], rounded, strict=True):
                off = (_off(x, **of) for x, of in zip(exact[results:], steps, strict=True))
                _add(executor, dict(zip(silence, off, strict=True)))
                got.append(compare.ran(executor, values)[:results])
            given.append(values)
            right.append(exact[:results])
        own = request.get("measure")
        return {"inputs": len(given), "errors": [compare.errors(got, right, own, given) for got in rounded]}

    def profile(self, request):
        """What each kernel of "model" takes in place; see profile.profile."""
        values = self._values(request["reference"], request.get("seed") or 0)
        return region.in_phase("run", profile.profile, request["model"], values, int(request.get("rounds") or 5))

    def drop(self, request):
        """Forget the models that are not among "keep"."""
        keep = set(request.get("keep") or [])
        for path in [path for path in self._models if path not in keep]:
            del self._models[path]
        return {}


def _watched(model):
    """A model that was built to be watched: itself, the types of its inputs, and those that are noise, {name: zeros},
    in the order of the outputs that they are added to.
    """
    executor = region.in_phase("load", region.load_executor, model)
    types = region.model_inputs(executor)
    noises = sorted((name for name in types if name.startswith(_NOISE)), key=lambda name: int(name[len(_NOISE) :]))
    silence = {name: np.zeros(*types.pop(name)) for name in noises}
    _add(executor, silence)
    return executor, types, silence


def _add(executor, noise):
    for name, value in noise.items():
        executor.set_input(name, value)


def _off(x, scale, zero):
    """By how much numbers are off where they are rounded to bytes: byte = number / scale + zero, of 0 to 255."""
    steps = np.clip(np.rint(x / np.float32(scale)), -zero, 255 - zero)
    return steps.astype("float32") * np.float32(scale) - x


def _channel_means(x, axis):
    """The mean of each channel of an array, along that axis; of a number without axes its own."""
    if not x.ndim:
        return x.reshape(1).astype("float64")
    return np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1).mean(axis=1, dtype="float64")


def _counted(x, low, high):
    """How many elements of ``x`` that are not 0 lie in each of _PARTS equal parts of what is between two ends."""
    if not low < high:
        return np.zeros(_PARTS, "int64")  # all of them are 0, which is one of the ends
    part = (x.astype("float64").reshape(-1) - low) * (_PARTS / (high - low))
    part = np.minimum(part.astype("int32"), _PARTS - 1)
    return np.bincount(part[x.reshape(-1) != 0], minlength=_PARTS)


def footprint(request):
    """What loading and running "model" takes of memory in a process that has done nothing else.

    Gives {"resident_bytes", "peak_bytes"}: by how much the process is larger afterwards, and was at most.
    """
    for plugin in request.get("plugins") or []:
        library.load_plugin(plugin)
    before, most = timing.resident(), _most()
    executor = region.in_phase("load", region.load_executor, request["model"])
    for name, value in seeded.inputs(0, region.model_inputs(executor)).items():
        executor.set_input(name, value)
    for _ in range(2):
        region.in_phase("run", executor.run)
    after = timing.resident()
    # Where the process had held more before, while it started, its greatest size says nothing of the model.
    peak = _most() if _most() > most else after
    return {"resident_bytes": max(0, after - before), "peak_bytes": max(0, peak - before)}


def _most():
    """The most memory that this process has held, in bytes; 0 where it cannot be known."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0
