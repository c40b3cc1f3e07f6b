# SPDX-License-Identifier: Apache-2.0
"""Collage's passes as ``tvm.transform.Pass`` objects; made in Go, usable wherever TVM takes a pass."""

import difflib
import inspect
import json
import sys
from pathlib import Path

import tvm

from . import error_measure, host, library, patterns, target, workerside


def _list(backends):
    if isinstance(backends, str):
        backends = backends.split(",")
    return [name.strip() for name in backends if name.strip()]


def _names(values):
    return [values] if isinstance(values, str) else list(values)


def _measure(value):
    return error_measure.named(value) if callable(value) else str(value)


# The options of CollagePartition, and how each is written for Go (None: as it is).
_OPTIONS = {
    "backends": _list,
    "target": str,
    "store": str,
    "threads": None,
    "only": None,
    "samples": None,
    "opt_level": None,
    "disabled_passes": list,
    "tuning_log": str,
    "retry_failures": None,
    "pin": _names,
    "forbid": _names,
    "exact": None,
    "precision": str,
    "max_error": float,
    "error_measure": _measure,
    "calibration": str,
    "calibration_method": str,
    "bias_correction": str,
    "exhaustive": None,
    "skip_unusable": None,
    "level": str,
    "search_time": None,
    "trials": None,
    "seed": None,
    "rounds": None,
}

# Names that are others for Go.
_NAMES = {"search_time": "search_time_s"}


def configuration(backends=None, **options):
    """The options of CollagePartition as the JSON that Go reads; what is None is left out.

    A PassContext's ``collage.*`` options stand in for what is left out here. Raises TypeError for an option
    that there is not.
    """
    told = {"backends": backends, "opt_level": target.OPT_LEVEL, "python": sys.executable}
    for name, value in options.items():
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            hint = f"; did you mean {near[0]}?" if near else f" (options: {', '.join(_OPTIONS)})"
            raise TypeError(f"CollagePartition has no option {name}{hint}")
        if value is not None:
            told[name] = value
    written = {
        _NAMES.get(name, name): _OPTIONS[name](value) if _OPTIONS.get(name) else value
        for name, value in told.items()
        if value is not None
    }
    return json.dumps(written)


def CollagePartition(config=None, cost_estimator=None, outline_native=False, **options):  # noqa: N802
    """The pass that places a module's operators on backends by cost, as a ``tvm.transform.Pass``.

    Without config, the options are: backends: names, ["tvm", "dnnl", "native"] by default. target: TVM's target string
    (default: this processor). store: the file of measured costs (default: the user's). threads: of the
    executable (default: as many as there are processors). only: a backend that gets all it can take, without
    measuring, or several ("native,dnnl": what both can take goes to the first). samples: how many samples of
    each candidate. opt_level and disabled_passes: of the builds that are measured. pin and forbid:
    "WHAT=BACKEND" or "WHAT=BACKEND.KERNEL", where operators must and must not go. exact: do without kernels
    that associate sums otherwise than a direct sum does (Winograd). exhaustive: measure every candidate,
    those too that a lower bound leaves no chance. skip_unusable: leave backends out that cannot be used here
    (one that the store has costs of is left out in any case, with a warning). retry_failures: measure again
    what is known to have failed. level: "graph" (the default) searches among whole networks, at most
    trials of them, with random numbers from seed; "operator" places once, by what parts take within every
    backend alone. Either way it takes search_time seconds (120) at most, and what comes out is the fastest of
    the best, of each backend alone and of plain TVM. tuning_log: what TVM's tuners have found out (AutoTVM's file, or a
    MetaSchedule database's folder); it holds for what TVM compiles, where the module is built with it too
    (``collage.compile`` does that).

    With a CompilationConfig it takes the place of ``tvm.relay.transform.CollagePartition``: the targets are
    config's, the patterns those of TVM's pattern tables, the options ``relay.collage.*`` of the PassContext.
    cost_estimator is one of ``tvm.relay.collage``'s, or a function of a module and a target that gives
    seconds (infinity for what cannot be done); by default candidates are measured as without config (store,
    threads, samples, opt_level, disabled_passes hold). outline_native gives the regions the form and the
    names that TVM's pass gives them.

    The result's module comes out with one function for each region of a backend other than TVM, attributes as
    PartitionGraph sets them; TVM's share stays in ``main``. Raises ValueError for options that make no sense,
    when the pass is made.
    """
    workerside.refuse()
    library.load()
    host.register()
    if isinstance(config, (str, list, tuple)):  # the backends, by position
        config, options = None, {**options, "backends": config}
    text = configuration(**options)
    if config is not None:
        return _drop_in(config, cost_estimator, outline_native, text)
    if cost_estimator is not None or outline_native:
        raise ValueError(
            "CollagePartition: cost_estimator and outline_native need a CompilationConfig as first argument"
        )
    return tvm.get_global_func("collage.transform.CollagePartition")(text)


# What help() and editors show.
CollagePartition.__signature__ = inspect.Signature(
    [
        *list(inspect.signature(CollagePartition).parameters.values())[:3],
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in _OPTIONS),
    ]
)


def Replay(  # noqa: N802
    plan, exact=False, store=None, retry_failures=False, verify=True, tuning_log=None, calibration=None
):
    """The pass that places a module as a plan says, without measuring.

    ``plan`` is the path of a plan file, its text, or what ``json.loads`` made of it. The module must be the
    normalised one that the plan was made for. Raises ValueError where it is another one, where a backend
    does not take any more what the plan gives it, where ``store`` (CollagePartition's) knows that it fails
    here, unless ``retry_failures``, or where ``exact`` (CollagePartition's) does without it; where the plan was
    made with a tuning log, and ``tuning_log`` is not that one; and where the outputs are not TVM's. Another
    machine or library than the plan's is warned of on the standard error.

    With ``verify`` the module and plain TVM are built, for the plan's target and threads, and run once on the
    same inputs: two builds, seconds to minutes, where a plan without is replayed in less than a second.
    A plan that leaves everything to TVM is not built. A plan whose errors were taken on ``calibration`` data is
    compared on these; without them on random inputs, with a warning. What plain TVM cannot run on TVM's virtual
    machine is not compared, with a warning.
    """
    workerside.refuse()
    library.load()
    host.register()
    text = plan_text(plan)
    options = configuration(
        exact=bool(exact),
        store=store,
        retry_failures=bool(retry_failures),
        tuning_log=tuning_log,
        calibration=calibration,
    )
    options = json.dumps({**json.loads(options), "verify": bool(verify)})
    return tvm.get_global_func("collage.transform.Replay")(text, options)


def plan_text(plan):
    """The JSON of a plan that is given as ``Replay`` takes it."""
    if isinstance(plan, dict):
        return json.dumps(plan)
    if isinstance(plan, str) and plan.lstrip().startswith("{"):
        return plan
    return Path(plan).read_text(encoding="utf-8")


def _drop_in(config, cost_estimator, outline_native, measuring):
    patterns.register()
    if callable(cost_estimator) and not isinstance(cost_estimator, tvm.runtime.Object):
        cost_estimator = tvm.runtime.convert(cost_estimator)
    return tvm.get_global_func("collage.transform.DropIn")(config, cost_estimator, bool(outline_native), measuring)


def Normalise(disabled_passes=None):  # noqa: N802
    """The pass that brings a module into the form in which candidates are looked for.

    Types inferred, training-only operators removed, constants folded, scales folded into convolutions.
    """
    library.load()
    options = {} if disabled_passes is None else {"disabled_passes": list(disabled_passes)}
    return tvm.get_global_func("collage.transform.Normalise")(json.dumps(options))
