# SPDX-License-Identifier: Apache-2.0
"""Collage's passes as ``tvm.transform.Pass`` objects; made in Go, usable wherever TVM takes a pass."""

import difflib
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from . import error_measure, errors, host, library, patterns, progress, workerside

# A list of names, or one of them; of backends several, with commas.
Names = str | Sequence[str]
# The path of a file or of a folder.
File = str | os.PathLike[str]


def _list(backends: Names) -> list[str]:
    if isinstance(backends, str):
        backends = backends.split(",")
    return [name.strip() for name in backends if name.strip()]


def _names(values: Names) -> list[str]:
    return [values] if isinstance(values, str) else list(values)


def _measure(value: str | Callable[..., float]) -> str:
    return error_measure.named(value) if callable(value) else str(value)


# How options are written for Go that are more to Python than text, numbers and lists.
_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "backends": _list,
    "devices": _list,
    "target": str,
    "store": str,
    "disabled_passes": list,
    "tuning_log": str,
    "trace": str,
    "pin": _names,
    "forbid": _names,
    "error_measure": _measure,
    "calibration": str,
}


def configuration(backends: Names | None = None, **options: Any) -> str:
    """The options of CollagePartition as the JSON that Go reads; what is None is left out.

    A PassContext's ``collage.*`` options stand in for what is left out here. Raises TypeError for an option
    that there is not.
    """
    told = {"backends": backends, **options, "python": sys.executable, **progress.said()}
    for name in options:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            hint = f"; did you mean {near[0]}?" if near else f" (options: {', '.join(OPTIONS)})"
            raise errors.CallError(f"CollagePartition has no option {name}{hint}", option=name)
    return json.dumps(
        {name: _WRITTEN.get(name, lambda as_it_is: as_it_is)(told[name]) for name in told if told[name] is not None}
    )


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a function's arguments that are options and say something; ``arguments`` are its ``locals()``."""
    return {name: arguments[name] for name in OPTIONS if arguments.get(name) is not None}


def CollagePartition(  # noqa: N802
    config: Any = None,
    cost_estimator: Any = None,
    outline_native: bool = False,
    *,
    backends: Names | None = None,
    devices: Names | None = None,
    pin: Names | None = None,
    forbid: Names | None = None,
    exact: bool | None = None,
    only: str | None = None,
    target: str | tvm.target.Target | None = None,
    threads: int | None = None,
    opt_level: int | None = None,
    disabled_passes: Sequence[str] | None = None,
    tuning_log: File | None = None,
    store: File | None = None,
    samples: int | None = None,
    exhaustive: bool | None = None,
    skip_unusable: bool | None = None,
    retry_failures: bool | None = None,
    strict: bool | None = None,
    trace: File | None = None,
    precision: str | None = None,
    max_error: float | None = None,
    error_measure: str | Callable[..., float] | None = None,
    calibration: File | None = None,
    calibration_method: str | None = None,
    bias_correction: str | None = None,
    level: str | None = None,
    search_time: float | None = None,
    trials: int | None = None,
    rounds: int | None = None,
) -> tvm.transform.Pass:
    """The pass that places a module's operators on backends by cost, as a ``tvm.transform.Pass``.

    The options are docs/options.md's (and ``collage.options()``); where one is None, that of the PassContext holds
    (``collage.threads``), else the default. Names may be lists, or backends as one text with commas; ``error_measure``
    may be the function itself.

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
    options = given(locals())
    workerside.refuse()
    library.load()
    host.register()
    if isinstance(config, (str, list, tuple)):  # the backends, by position
        config, options = None, {**options, "backends": config}
    text = configuration(**options)
    if config is not None:
        return _drop_in(config, cost_estimator, outline_native, text)
    if cost_estimator is not None or outline_native:
        raise errors.InputError(
            "CollagePartition: cost_estimator and outline_native need a CompilationConfig as first argument"
        )
    return tvm.get_global_func("collage.transform.CollagePartition")(text)


# The names of the options, in the order of Go's table (tests/test_options.py holds them against it).
OPTIONS = tuple(
    parameter.name
    for parameter in inspect.signature(CollagePartition).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
)


def Replay(  # noqa: N802
    plan: File | dict[str, Any],
    exact: bool = False,
    store: File | None = None,
    retry_failures: bool = False,
    verify: bool = True,
    tuning_log: File | None = None,
    calibration: File | None = None,
    strict: bool = False,
) -> tvm.transform.Pass:
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
    machine is not compared, with a warning. With ``strict`` warnings are ValueErrors.
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
        strict=bool(strict),
    )
    options = json.dumps({**json.loads(options), "verify": bool(verify)})
    return tvm.get_global_func("collage.transform.Replay")(text, options)


def plan_text(plan: File | dict[str, Any]) -> str:
    """The JSON of a plan that is given as ``Replay`` takes it."""
    if isinstance(plan, dict):
        return json.dumps(plan)
    if isinstance(plan, str) and plan.lstrip().startswith("{"):
        return plan
    return Path(plan).read_text(encoding="utf-8")


def _drop_in(config: Any, cost_estimator: Any, outline_native: bool, measuring: str) -> tvm.transform.Pass:
    patterns.register()
    if callable(cost_estimator) and not isinstance(cost_estimator, tvm.runtime.Object):
        cost_estimator = tvm.runtime.convert(cost_estimator)
    return tvm.get_global_func("collage.transform.DropIn")(config, cost_estimator, bool(outline_native), measuring)


def Normalise(disabled_passes: Sequence[str] | None = None) -> tvm.transform.Pass:  # noqa: N802
    """The pass that brings a module into the form in which candidates are looked for.

    Types inferred, training-only operators removed, constants folded, scales folded into convolutions.
    """
    library.load()
    options = {} if disabled_passes is None else {"disabled_passes": list(disabled_passes)}
    return tvm.get_global_func("collage.transform.Normalise")(json.dumps(options))


def ClearPadding(mask: str) -> tvm.transform.Pass:  # noqa: N802
    """The pass that makes a module known as one on padded batches of sequences (docs/dynamic.md).

    ``mask`` is the input of batch and length, of fixed sizes, that says which places are tokens. Wherever padding
    would leave what works row by row, outputs among it, it becomes 0; backends that know of it need not compute it.
    The module must have types (InferType); an OptionError says what is wrong with the mask.
    """
    library.load()
    return tvm.get_global_func("collage.transform.ClearPadding")(mask)
