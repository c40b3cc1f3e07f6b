# SPDX-License-Identifier: Apache-2.0
"""Collage's passes as ``tvm.transform.Pass`` objects; made in Go, usable wherever TVM takes a pass."""

import json
import sys

import tvm

from . import library, patterns, target, workerside


def _list(backends):
    if isinstance(backends, str):
        backends = backends.split(",")
    return [name.strip() for name in backends if name.strip()]


def configuration(
    backends=None,
    target_string=None,
    store=None,
    threads=None,
    only=None,
    samples=None,
    opt_level=None,
    disabled_passes=None,
    retry_failures=None,
    pin=None,
    forbid=None,
    exhaustive=None,
    skip_unusable=None,
    tuning_log=None,
):
    """The options of CollagePartition as the JSON that Go reads; what is None is left out.

    A PassContext's ``collage.*`` options stand in for what is left out here.
    """
    options = {
        "backends": None if backends is None else _list(backends),
        "target": str(target_string) if target_string is not None else None,
        "store": None if store is None else str(store),
        "threads": threads,
        "only": only,
        "samples": samples,
        "opt_level": target.OPT_LEVEL if opt_level is None else opt_level,
        "disabled_passes": None if disabled_passes is None else list(disabled_passes),
        "tuning_log": None if tuning_log is None else str(tuning_log),
        "retry_failures": retry_failures,
        "pin": None if pin is None else list(pin),
        "forbid": None if forbid is None else list(forbid),
        "exhaustive": exhaustive,
        "skip_unusable": skip_unusable,
        "python": sys.executable,
    }
    return json.dumps({key: value for key, value in options.items() if value is not None})


def CollagePartition(  # noqa: N802  (TVM's passes are named so)
    config=None,
    cost_estimator=None,
    outline_native=False,
    *,
    backends=None,
    target=None,
    store=None,
    threads=None,
    only=None,
    samples=None,
    opt_level=None,
    disabled_passes=None,
    retry_failures=None,
    pin=None,
    forbid=None,
    tuning_log=None,
):
    """The pass that places a module's operators on backends by cost, as a ``tvm.transform.Pass``.

    Without config: backends are names, ["tvm", "dnnl"] by default. target: TVM's target string (default:
    this processor). store: the file of measured costs (default: the user's). threads: of the executable
    (default: as many as there are processors). only: a backend that gets all it can take, without measuring.
    samples: how many samples of each candidate. opt_level and disabled_passes: of the builds that are
    measured. pin and forbid: "WHAT=BACKEND", where operators must and must not go.
    tuning_log: what TVM's tuners have found out (AutoTVM's file, or a MetaSchedule database's folder); it
    holds for what TVM compiles, where the module is built with it too (``collage.compile`` does that).

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
    if isinstance(config, (str, list, tuple)):  # the backends, by position
        config, backends = None, config
    text = configuration(
        backends,
        target,
        store,
        threads,
        only,
        samples,
        opt_level,
        disabled_passes,
        retry_failures,
        pin,
        forbid,
        tuning_log=tuning_log,
    )
    if config is not None:
        return _drop_in(config, cost_estimator, outline_native, text)
    if cost_estimator is not None or outline_native:
        raise ValueError(
            "CollagePartition: cost_estimator and outline_native need a CompilationConfig as first argument"
        )
    return tvm.get_global_func("collage.transform.CollagePartition")(text)


def _drop_in(config, cost_estimator, outline_native, measuring):
    patterns.register()
    if callable(cost_estimator) and not isinstance(cost_estimator, tvm.runtime.Object):
        cost_estimator = tvm.runtime.convert(cost_estimator)
    return tvm.get_global_func("collage.transform.DropIn")(
        config, cost_estimator, bool(outline_native), measuring
    )


def Normalise(disabled_passes=None):  # noqa: N802
    """The pass that brings a module into the form in which candidates are looked for.

    Types inferred, training-only operators removed, constants folded, scales folded into convolutions.
    """
    library.load()
    options = {} if disabled_passes is None else {"disabled_passes": list(disabled_passes)}
    return tvm.get_global_func("collage.transform.Normalise")(json.dumps(options))
