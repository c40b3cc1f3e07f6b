# SPDX-License-Identifier: Apache-2.0
"""The calls most users need: partition a module, replay a plan, or compile to an executable.

    placed = collage.partition(module, params, backends=["tvm", "dnnl", "native"], plan_out="plan.json")
    placed = collage.replay(module, "plan.json", params)
    collage.compile(module, params, backends=["tvm", "dnnl", "native"], out="model.tar")

Keyword arguments beyond those named are CollagePartition's.
"""

import contextlib
import json
import logging
import os
from pathlib import Path

import tvm

from . import calibration_data, export, frontends, library, region, transform, workerside


def partition(module, params=None, plan_out=None, **options):
    """Place ``module`` on backends; ``params`` ({name: array}) become constants.

    Returns a new IRModule for relay.build; ``module`` is not changed. With ``plan_out`` the plan is written
    to that file: what was chosen, what it costs and why (``collage explain``), for ``replay``. What comes
    out is the fastest of what was found, of each backend alone and of plain TVM, as whole networks that ran
    in turn; all of it takes ``search_time`` seconds (120) at most, and is over sooner with
    ``level="operator"``. Ctrl-C ends it, and the fastest so far is kept; a second time, or before there is
    any, it raises KeyboardInterrupt. Where the program has a handler of its own for SIGINT, that one decides.
    The module's attribute ``collage.level`` says at which level it was placed. ``calibration`` may be any
    iterable of inputs (calibration_data).
    """
    workerside.refuse()
    library.load()
    with _calibrated(options, module, params) as options:
        passes = transform.CollagePartition(**options)  # first of all, what is wrong with the options
        module = _normalised(module, params, options.get("disabled_passes"))
        if plan_out is None:
            placed = tvm.transform.Sequential([passes])(module)
        else:
            placed, plan = tvm.get_global_func("collage.partition")(module, transform.configuration(**options))
            _write(Path(plan_out), str(plan))
    if placed.attrs and "collage.level" in placed.attrs:  # nothing was placed where a PassContext leaves the pass out
        logging.getLogger("collage").info("collage.partition placed at the %s level", placed.attrs["collage.level"])
    return placed


@contextlib.contextmanager
def _calibrated(options, module, params):
    """The options with calibration data as a path, where it is given as anything else."""
    names = [p.name_hint for p in module["main"].params if p.name_hint not in (params or {})]
    with calibration_data.as_path(options.get("calibration"), names) as path:
        yield {**options, "calibration": path}


def replay(
    module,
    plan,
    params=None,
    disabled_passes=None,
    exact=False,
    store=None,
    retry_failures=False,
    verify=True,
    tuning_log=None,
    calibration=None,
):
    """Place ``module`` as ``plan`` says (a path, JSON text, or a dictionary), without measuring.

    ``module``, ``params`` and ``disabled_passes`` are those that the plan was made for: the plan has their
    hash. Raises ValueError where they are not, where ``exact`` (CollagePartition's) does without a kernel
    that the plan names, where ``store`` (the user's by default) knows that one of its candidates fails
    here, unless ``retry_failures``, and where the plan was made with another ``tuning_log``.

    The outputs are compared with plain TVM's, on ``calibration`` data where the plan's errors were taken on such:
    without it they are compared on random inputs, with a warning, and other data than the plan's is refused. A plan
    that holds the outputs to no max_error needs none. That builds the network twice and runs it: seconds to minutes,
    where a plan is replayed in less than a second with ``verify=False``. ValueError where they differ. What TVM's
    virtual machine runs and plain TVM cannot run, at the sizes that open dimensions are tried at, is not compared,
    with a warning.
    """
    workerside.refuse()
    library.load()
    with _calibrated({"calibration": calibration}, module, params) as options:
        passes = transform.Replay(plan, exact, store, retry_failures, verify, tuning_log, options["calibration"])
        return passes(_normalised(module, params, disabled_passes))


def _normalised(module, params, disabled_passes):
    if params:
        values = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in params.items()}
        module = frontends.bind(tvm.relay.transform.InferType()(module), values, "the module", "params")
    return transform.Normalise(disabled_passes)(module)


def _write(path, text):
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def compile(
    module,
    params=None,
    out=None,
    plan=None,
    plan_out=None,
    level=None,
    search_time=None,
    trials=None,
    seed=0,
    memory_limit_executable=None,
    rounds=None,
    progress=False,
    verify=True,
    **options,
):
    """Place and build ``module``.

    With ``out`` (.so or .tar) the executable is written there and its path returned: it runs wherever TVM's
    runtime and the plug-ins are. Without, TVM's graph executor factory is returned, for this process: what
    backends wrote as C is compiled, and the factory cannot be exported. With ``plan`` it is placed as that
    plan says, and nothing is measured; with ``out`` too it is built as the plan says, for the plan's target and
    threads. Its outputs are compared with TVM's unless ``verify`` is false. ``plan_out`` is ``partition``'s.

    ``level`` says how far the search goes: "operator" places once, by what parts take within every backend
    alone and by what borders take; "graph" (the default) goes on with whole networks. Either way the fastest of
    what was found, of each backend alone, and of plain TVM is kept; the finalists run ``rounds`` times (20), in
    turn. The whole takes ``search_time`` seconds (120), or less where nothing more is to be gained. The graph
    level measures at most ``trials`` networks; ``seed`` makes its random numbers. With ``out``, no executable is
    kept that takes more than ``memory_limit_executable`` bytes when it runs. ``progress`` is shown on the
    standard error. Ctrl-C is as in ``partition``.
    """
    workerside.refuse()
    library.load()
    if out is not None:
        export.check_output(out)
    if level not in (None, "graph", "operator"):
        raise ValueError(f"level is {level!r}; it is 'graph' or 'operator'")
    if level is not None and plan is not None:
        raise ValueError(f"level={level!r} decides by itself: without plan")
    if memory_limit_executable and out is None:
        raise ValueError("memory_limit_executable needs out, a file for the executable")
    if plan is None and out is not None and not options.get("only"):
        searching = {
            "out": str(out),
            "plan_out": "" if plan_out is None else str(plan_out),
            "level": level or "graph",
            "search_time_s": search_time or 0,
            "trials": trials or 0,
            "seed": seed,
            "memory_limit_executable_bytes": int(memory_limit_executable or 0),
            "rounds": rounds or 0,
            "progress": bool(progress),
        }
        return _search(module, params, searching, options)
    if plan is not None and out is not None:
        replaying = {
            "out": str(out),
            "plan_out": "" if plan_out is None else str(plan_out),
            "plan": transform.plan_text(plan),
            "no_verify": not verify,
            "progress": bool(progress),
        }
        return _search(module, params, replaying, options)
    if plan is None:
        deciding = {
            "level": level,
            "search_time": search_time,
            "trials": trials,
            "seed": seed or None,
            "rounds": rounds,
        }
        placed = partition(module, params, plan_out, **deciding, **options)
    else:
        names = ("disabled_passes", "exact", "store", "retry_failures", "tuning_log", "calibration")
        replaying = {name: options[name] for name in names if name in options}
        placed = replay(module, plan, params, verify=verify, **replaying)
    if reason := str(tvm.get_global_func("collage.whole")(placed)):
        if out is None:
            raise ValueError(f"TVM's virtual machine runs this module ({reason}): give out, a file for the executable")
        placed = tvm.relay.transform.InferType()(placed)
    factory = (export.build_for_machine if reason else export.build)(
        placed,
        options.get("target"),
        options.get("opt_level"),
        options.get("disabled_passes"),
        tuning_log=options.get("tuning_log"),
    )
    plugins = list(dict.fromkeys(path for name in ("", *compilers(placed)) for path in region.plugins_for(name)))
    if out is None:
        for plugin in plugins:
            library.load_plugin(plugin)
        export.link_sources(factory.get_lib(), plugins)
        return factory
    export.write(factory, out, plugins, options.get("threads") or 0)
    return str(out)


def load(path):
    """Load an exported model (.so or .tar) as a GraphModule of TVM's, with the plug-ins of this installation; what
    TVM's virtual machine runs as a virtual_machine.Model, which is used in the same way.

    What the model needs and is not here (a processor's feature, a library, a plug-in) is named in the error, before
    anything of the model is loaded.
    """
    return region.load_executor(path)


def _search(module, params, searching, options):
    from . import host

    host.register()
    with _calibrated(options, module, params) as options:
        configuration = transform.configuration(**options)
        module = _normalised(module, params, options.get("disabled_passes"))
        tvm.get_global_func("collage.compile")(module, configuration, json.dumps(searching))
    return searching["out"]


def compilers(module):
    """Names of the backends, other than TVM, that a partitioned module has regions of."""
    names = set()
    for function in module.functions.values():
        attrs = getattr(function, "attrs", None)
        if attrs and "Compiler" in attrs:
            names.add(str(attrs["Compiler"]))
    return sorted(names)
