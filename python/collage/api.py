# SPDX-License-Identifier: Apache-2.0
"""The calls most users need: partition a module, replay a plan, or compile to an executable.

    placed = collage.partition(module, params, backends=["tvm", "dnnl", "native"], plan_out="plan.json")
    placed = collage.replay(module, "plan.json", params)
    executable = collage.compile(module, params, backends=["tvm", "dnnl", "native"], out="model.tar")
    outputs = executable.run({"data": array})

docs/options.md says what may be said about a placement.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tvm

from . import (
    calibration_data,
    errors,
    export,
    frontends,
    library,
    open_dimensions,
    plans,
    region,
    transform,
    workerside,
)
from .executable import Executable
from .log import logger
from .progress import Shown, told
from .transform import File, Names

# Weights by name, as arrays of numpy's or TVM's.
Parameters = Mapping[str, Any]
# What calibration_data takes: a path, or inputs one after the other.
Calibration = File | Iterable[Any]


def partition(
    module: tvm.IRModule,
    params: Parameters | None = None,
    plan_out: File | None = None,
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
    calibration: Calibration | None = None,
    calibration_method: str | None = None,
    bias_correction: str | None = None,
    level: str | None = None,
    search_time: float | None = None,
    trials: int | None = None,
    rounds: int | None = None,
    progress: Shown = False,
) -> tvm.IRModule:
    """Place ``module`` on backends; ``params`` ({name: array}) become constants.

    Returns a new IRModule for relay.build; ``module`` is not changed. With ``plan_out`` the plan is written
    to that file: what was chosen, what it costs and why (``collage explain``), for ``replay``. What comes
    out is the fastest of what was found, of each backend alone and of plain TVM, as whole networks that ran
    in turn; all of it takes ``search_time`` seconds (120) at most, and is over sooner with
    ``level="operator"``. Ctrl-C ends it, and the fastest so far is kept; a second time, or before there is
    any, it raises KeyboardInterrupt. Where the program has a handler of its own for SIGINT, that one decides.
    The module's attribute ``collage.level`` says at which level it was placed. ``calibration`` may be any
    iterable of inputs (calibration_data). ``progress`` is as in ``compile``. The other options are CollagePartition's.
    """
    options = transform.given(locals())
    workerside.refuse()
    library.load()
    if plan_out is not None:
        with told(progress):
            placed, made = _partitioned(module, params, options)
        made.save(plan_out)
    else:
        with told(progress), _calibrated(options, module, params) as options:
            passes = transform.CollagePartition(**options)  # first of all, what is wrong with the options
            module = _normalised(module, params, options.get("disabled_passes"))
            placed = tvm.transform.Sequential([passes])(module)
    if placed.attrs and "collage.level" in placed.attrs:  # nothing was placed where a PassContext leaves the pass out
        logger.info("collage.partition placed at the %s level", placed.attrs["collage.level"])
    return placed


def _partitioned(
    module: tvm.IRModule, params: Parameters | None, options: dict[str, Any]
) -> tuple[tvm.IRModule, plans.Plan]:
    """What ``partition`` gives for these options, and its plan."""
    with _calibrated(options, module, params) as options:
        transform.CollagePartition(**options)  # first of all, what is wrong with the options
        module = _normalised(module, params, options.get("disabled_passes"))
        placed, made = tvm.get_global_func("collage.partition")(module, transform.configuration(**options))
    return placed, plans.Plan(str(made))


@contextlib.contextmanager
def _calibrated(options: dict[str, Any], module: tvm.IRModule, params: Parameters | None) -> Iterator[dict[str, Any]]:
    """The options with calibration data as a path, where it is given as anything else."""
    names = [p.name_hint for p in module["main"].params if p.name_hint not in (params or {})]
    with calibration_data.as_path(options.get("calibration"), names) as path:
        yield {**options, "calibration": path}


def plan(
    module: tvm.IRModule,
    params: Parameters | None = None,
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
    search_time: float | None = None,
    progress: Shown = False,
) -> plans.Plan:
    """Decide where the operators of ``module`` go, and change and build nothing that is kept: ``collage plan``.

    It is what the operator level places, within ``search_time`` seconds (120). The options are those of docs/options.md
    about placing; ``params`` are as in ``partition``, ``progress`` is as in ``compile``. ``replay`` places as the plan
    says.
    """
    options = transform.given(locals())
    workerside.refuse()
    library.load()
    with told(progress):
        said = transform.configuration(**options)
        module = _normalised(module, params, options.get("disabled_passes"))
        return plans.Plan(str(tvm.get_global_func("collage.plan")(module, said)[1]))


def replay(
    module: tvm.IRModule,
    plan: File | dict[str, Any],
    params: Parameters | None = None,
    disabled_passes: Sequence[str] | None = None,
    exact: bool = False,
    store: File | None = None,
    retry_failures: bool = False,
    verify: bool = True,
    tuning_log: File | None = None,
    calibration: Calibration | None = None,
    strict: bool = False,
    progress: Shown = False,
) -> tvm.IRModule:
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
    with a warning. With ``strict`` warnings are ValueErrors. ``progress`` is as in ``compile``.
    """
    workerside.refuse()
    library.load()
    with told(progress), _calibrated({"calibration": calibration}, module, params) as options:
        data = options["calibration"]
        passes = transform.Replay(plan, exact, store, retry_failures, verify, tuning_log, data, strict)
        return passes(_normalised(module, params, disabled_passes))


def _normalised(module: tvm.IRModule, params: Parameters | None, disabled_passes: Sequence[str] | None) -> tvm.IRModule:
    if params:
        values = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in params.items()}
        module = frontends.bind(tvm.relay.transform.InferType()(module), values, "the module", "params")
    return transform.Normalise(disabled_passes)(module)


def compile(
    module: tvm.IRModule,
    params: Parameters | None = None,
    out: File | None = None,
    plan: File | dict[str, Any] | None = None,
    plan_out: File | None = None,
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
    calibration: Calibration | None = None,
    calibration_method: str | None = None,
    bias_correction: str | None = None,
    level: str | None = None,
    search_time: float | None = None,
    trials: int | None = None,
    rounds: int | None = None,
    memory_limit_executable: int | None = None,
    progress: Shown = False,
    verify: bool = True,
    dynamic: Mapping[str, Any] | None = None,
    ragged: str | None = None,
) -> Executable:
    """Place and build ``module``.

    Returns an Executable: ``run``, ``benchmark``, ``plan``, ``save``. With ``out`` (.so or .tar) it is written there,
    and that file, to which ``os.fspath`` leads, runs wherever TVM's runtime and the plug-ins are. Without, it is for
    this process, with all that TVM's graph executor factory has (``["default"]``); what backends wrote as C is
    compiled, so the factory itself cannot be exported: ``save`` can. With ``plan`` it is placed as that
    plan says, and nothing is measured; with ``out`` too it is built as the plan says, for the plan's target and
    threads. Its outputs are compared with TVM's unless ``verify`` is false. ``plan_out`` is ``partition``'s.

    ``level`` says how far the search goes: "operator" places once, by what parts take within every backend
    alone and by what borders take; "graph" (the default) goes on with whole networks. Either way the fastest of
    what was found, of each backend alone, and of plain TVM is kept; the finalists run ``rounds`` times (20), in
    turn. The whole takes ``search_time`` seconds (120), or less where nothing more is to be gained. The graph
    level measures at most ``trials`` networks. With ``out``, no executable is kept that takes more than
    ``memory_limit_executable`` bytes when it runs. ``progress=True`` shows how far it is, on the
    standard error, or as bars in a notebook where tqdm is installed; a function is told instead
    (``collage.progress.Progress``), and what it raises ends the search and comes out of this function. Ctrl-C is as in
    ``partition``. The other options are CollagePartition's.

    ``dynamic`` says what is known of open dimensions of the module's inputs: {name: {axis: Dim("len", 1, 512)}}, or
    (least, most) for one without a name. Dimensions of one Dim (a ``torch.export.Dim`` is one, too) have one size, and
    networks are measured and checked over all sizes that there may be (docs/dynamic.md). It needs ``out``.

    ``ragged`` names the input of batch and length that says which places of a padded batch are tokens, an attention
    mask: outputs are 0 at all others, which need not be computed (transform.ClearPadding).
    """
    options = transform.given(locals())
    workerside.refuse()
    library.load()
    if dynamic and (out is None or options.get("only")):
        raise errors.OptionError(
            "dynamic needs out, a file for the executable, and goes without only", option="dynamic"
        )
    if out is not None:
        export.check_output(out)
    if level not in (None, "graph", "operator"):
        raise errors.OptionError(f"level is {level!r}; it is 'graph' or 'operator'", option="level")
    if level is not None and plan is not None:
        raise errors.OptionError(f"level={level!r} decides by itself: without plan", option="level")
    if memory_limit_executable and out is None:
        raise errors.OptionError(
            "memory_limit_executable needs out, a file for the executable", option="memory_limit_executable"
        )
    tried = None
    if dynamic:
        module = tvm.relay.transform.InferType()(module)
        sizes = open_dimensions.of_module(module, dynamic)
        module, tried = open_dimensions.settled(module, sizes), open_dimensions.tried(sizes)
    if ragged is not None:
        module = _normalised(module, params, options.get("disabled_passes"))
        module = tvm.transform.Sequential([transform.ClearPadding(ragged), tvm.relay.transform.InferType()])(module)
        params = None
    if plan is None and out is not None and not options.get("only"):
        searching = {
            "out": str(out),
            "plan_out": "" if plan_out is None else str(plan_out),
            "memory_limit_executable_bytes": int(memory_limit_executable or 0),
            "tried": tried,
        }
        return _search(module, params, searching, options, progress)
    if plan is not None and out is not None:
        replaying = {
            "out": str(out),
            "plan_out": "" if plan_out is None else str(plan_out),
            "plan": transform.plan_text(plan),
            "no_verify": not verify,
            "tried": tried,
        }
        return _search(module, params, replaying, options, progress)
    if plan is None:
        with told(progress):
            placed, made = _partitioned(module, params, options)
        if declared := [one["name"] for one in json.loads(made.text)["backends"] if "declared" in one]:
            raise errors.OptionError(
                f"backends has {declared[0]}, whose costs are declared: what is compiled is run and measured; a "
                "network can be planned with it",
                option="backends",
            )
        if plan_out is not None:
            made.save(plan_out)
    else:
        names = ("disabled_passes", "exact", "store", "retry_failures", "tuning_log", "calibration", "strict")
        kept: dict[str, Any] = {name: options[name] for name in names if name in options}
        placed, made = replay(module, plan, params, verify=verify, progress=progress, **kept), plans.Plan(plan)
    if reason := str(tvm.get_global_func("collage.whole")(placed)):
        if out is None:
            raise errors.OptionError(
                f"TVM's virtual machine runs this module ({reason}): give out, a file for the executable",
                option="out",
            )
        placed = tvm.relay.transform.InferType()(placed)
    plugins = list(dict.fromkeys(path for name in ("", *compilers(placed)) for path in region.plugins_for(name)))

    def build() -> Any:
        maker = export.build_for_machine if reason else export.build
        return maker(placed, target, opt_level, disabled_passes, tuning_log=tuning_log)

    def write(path: File) -> None:
        export.write(build(), path, plugins, threads or 0)

    if out is not None:
        write(out)
        return Executable(out, plan=made)
    factory = build()
    for plugin in plugins:
        library.load_plugin(plugin)
    export.link_sources(factory.get_lib(), plugins)
    return Executable(factory=factory, plan=made, write=write)


def load(path: File) -> Executable:
    """Open an exported model, a .so, a .tar, or a folder that ``collage package`` made, with the plug-ins of this
    installation; returns its Executable, which has all that TVM's GraphModule has, too.

    What the model needs and is not here (a processor's feature, a library, a plug-in) is named in the error, before
    anything of the model is loaded (RuntimeError). Raises FileNotFoundError where there is nothing, and ValueError for
    what is no model.
    """
    return Executable(path).open()


def _search(
    module: tvm.IRModule,
    params: Parameters | None,
    searching: dict[str, Any],
    options: dict[str, Any],
    progress: Shown,
) -> Executable:
    from . import host

    host.register()
    with told(progress), _calibrated(options, module, params) as options:
        configuration = transform.configuration(**options)
        module = _normalised(module, params, options.get("disabled_passes"))
        answer = tvm.get_global_func("collage.compile")(module, configuration, json.dumps(searching))
    return Executable(searching["out"], plan=plans.Plan(json.loads(str(answer))["plan"]))


def options() -> dict[str, dict[str, Any]]:
    """The options of ``partition`` and ``compile`` by name, as docs/options.md has them: for each a dictionary with
    "kind", "default", "flag" (of the command line; "" for none), "part" and "meaning".
    """
    library.load()
    return {option.pop("name"): option for option in json.loads(tvm.get_global_func("collage.options")())}


def compilers(module: tvm.IRModule) -> list[str]:
    """Names of the backends, other than TVM, that a partitioned module has regions of."""
    names = set()
    for function in module.functions.values():
        attrs = getattr(function, "attrs", None)
        if attrs and "Compiler" in attrs:
            names.add(str(attrs["Compiler"]))
    return sorted(names)
