# SPDX-License-Identifier: Apache-2.0
"""TVM's own tuners, run on one computation that Go has chosen (pass/tuning/tunable.go): ``python -m collage.tune``,
a process of its own, as tuners start servers and builders that must end with it.

In, one line of JSON on standard input (see ``tune``): a Relay function as pass/annotate makes it for TVM, and
how long to search. Out, JSON objects, one a line, on standard output:

    {"event": "progress", "done", "total", "best_ms"}   after each trial; best_ms is 0 while none has worked
    {"event": "compared", "default_ms", "tuned_ms"}     samples of the function as TVM makes it by itself, and with
                                                        the best that was found, taken in turn; it is answered by a
                                                        line {"keep": true or false} on standard input
    {"event": "result", ...}                            what ``tune`` returns
    {"event": "error", "detail"}                        it cannot be tuned, and why

The end of standard input ends the process and all that it started.

Every trial is kept at once, in a file (AutoTVM) or a database (MetaSchedule) of its own, so a search that is ended
goes on where it was. The best goes into the log only if the whole function is faster with it, which Go decides: TVM
prefers any record to what it would do by itself, which a short search may not reach.
"""

import glob
import json
import logging
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from . import errors, export, library, one_dimension, target, tuninglog

# "metaschedule" searches programs, the others search the parameters of AutoTVM's schedules.
TUNERS = ("auto", "xgboost", "genetic", "random", "metaschedule")

_BUILD_SECONDS, _RUN_SECONDS = 30, 20


class TuneError(errors.InputError):
    """What was asked for cannot be tuned; the text says why."""


def tune(spec, progress, keep):
    """Tune one computation. ``progress(done, total, best_ms)`` is called after each trial; what it raises
    ends the search. ``keep(default_ms, tuned_ms)`` is given the samples and says whether the log gets what was found.

    The spec is {"function", "constants", "target", "opt_level", "disabled_passes", "threads", "tuner",
    "trials", "log", "trials_log"}: "log" is the tuning log, "trials_log" where all trials are.
    Returns {"tuner", "tasks", "trials", "failed", "kept"}.
    """
    if threads := spec.get("threads"):
        os.environ["TVM_NUM_THREADS"] = str(threads)  # of the processes that measure
    build_for = tvm.target.Target(spec.get("target") or target.default_target())
    module = one_dimension.as_two(_module(spec), build_for)  # as it is built
    tuner = _choose(spec.get("tuner") or "auto")
    if tuner == "metaschedule":
        result = _meta_schedule(module, build_for, spec, progress, keep)
    else:
        result = _autotvm(module, build_for, tuner, spec, progress, keep)
    return {"tuner": tuner, **result}


def _choose(tuner):
    """Which tuner it is; without xgboost, which learns what is fast, the genetic one."""
    if tuner not in TUNERS:
        raise TuneError(f"there is no tuner {tuner} (tuners: {', '.join(TUNERS)})")
    if tuner not in ("auto", "xgboost"):
        return tuner
    try:
        import xgboost  # noqa: F401
    except ImportError:
        if tuner == "xgboost":
            raise TuneError(
                "the tuner xgboost needs the package xgboost==1.7.6: pip install xgboost==1.7.6, or make "
                "backends BACKENDS=tune in the source tree"
            ) from None
        return "genetic"
    return "xgboost"


def _module(spec):
    """The function with its constants filled in, as a module."""
    function = tvm.ir.load_json(spec["function"])
    rng = np.random.RandomState(0)
    constants = {
        c["name"]: tvm.nd.array(rng.standard_normal(c["shape"]).astype(c["dtype"])) for c in spec.get("constants") or []
    }
    if constants:
        function = relay.build_module.bind_params_by_name(function, constants)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(function.params, function.body)))


def _autotvm(module, build_for, tuner, spec, progress, keep):
    from tvm import autotvm

    logging.getLogger("autotvm").setLevel(logging.ERROR)
    tasks = _tasks(autotvm, module, build_for, spec)
    trials_log, wanted = spec["trials_log"], int(spec["trials"])
    state = {"done": 0, "failed": 0, "best": 0.0}
    total = wanted * len(tasks)
    for task in tasks:
        known = _records(autotvm, trials_log, task)
        state["done"] += min(wanted, len(known))
        search = _tuner(autotvm, tuner, task)
        for inp, result in known:
            _count(state, result)
            # What was tried is not tried again. (Some tuners keep a list, some a set.)
            (search.visited.append if isinstance(search.visited, list) else search.visited.add)(inp.config.index)
        if known:
            search.load_history(known)
        progress(state["done"], total, state["best"])
        remaining = min(wanted, len(task.config_space)) - len(known)
        if remaining <= 0:
            continue

        def told(_search, _inputs, results):
            for result in results:
                state["done"] += 1
                _count(state, result)
            progress(state["done"], total, state["best"])

        try:
            search.tune(
                n_trial=remaining,
                measure_option=autotvm.measure_option(
                    # One at a time: builds beside a measurement would disturb it.
                    builder=autotvm.LocalBuilder(n_parallel=1, timeout=_BUILD_SECONDS),
                    runner=autotvm.LocalRunner(number=1, repeat=3, min_repeat_ms=50, timeout=_RUN_SECONDS),
                ),
                callbacks=[autotvm.callback.log_to_file(trials_log), told],
            )
        finally:
            # Left on where a callback raises; builds after it would go on taking notes.
            autotvm.GLOBAL_SCOPE.in_tuning = False
    result = {
        "tasks": [task.name for task in tasks],
        "trials": state["done"],
        "failed": state["failed"],
    }
    return {**result, "kept": _keep(autotvm, tasks, module, build_for, spec, keep)}


def _tasks(autotvm, module, build_for, spec):
    """AutoTVM's tasks in the function: the choices that its schedules leave open."""
    tasks = autotvm.task.extract_from_program(module["main"], target=build_for, params={})
    tasks = [task for task in tasks if len(task.config_space) > 1]
    if not tasks:
        raise TuneError("TVM's schedules for this operator leave nothing to tune")
    # Several implementations of one operator are offered; the first is what TVM takes by itself.
    return tasks[: int(spec.get("tasks") or 1)]


def _tuner(autotvm, name, task):
    if name == "xgboost":
        return autotvm.tuner.XGBTuner(task, loss_type="reg", num_threads=os.cpu_count())
    if name == "genetic":
        return autotvm.tuner.GATuner(task, pop_size=min(50, len(task.config_space)))
    return autotvm.tuner.RandomTuner(task)


def _count(state, result):
    if result.error_no != 0:
        state["failed"] += 1
        return
    took = 1000.0 * float(np.mean(result.costs))
    state["best"] = min(state["best"] or took, took)


def _records(autotvm, path, task):
    """The records of a task in a log; none where there is no log yet."""
    if not os.path.exists(path):
        return []
    return [
        (inp, result)
        for inp, result in autotvm.record.load_from_file(path)
        if inp.task.workload == task.workload and str(inp.target) == str(task.target)
    ]


def _keep(autotvm, tasks, module, build_for, spec, keep):
    """Put the best record of each task into the log, if it is to be kept; returns whether it is."""
    best = []
    for task in tasks:
        good = [record for record in _records(autotvm, spec["trials_log"], task) if record[1].error_no == 0]
        if good:
            best.append(min(good, key=lambda record: np.mean(record[1].costs)))
    with tempfile.TemporaryDirectory(prefix="collage-tune-") as folder:
        trial = os.path.join(folder, "best.json")
        Path(trial).write_text("".join(autotvm.record.encode(*record) + "\n" for record in best))
        kept = keep(*_compare(module, build_for, spec, trial)) and bool(best)
    _replace(autotvm, spec["log"], tasks, best if kept else [])
    return kept


def _replace(autotvm, log, tasks, records):
    """Let ``records`` take the place of what the log has of ``tasks``; the file changes in one step."""
    workloads = {(task.workload, str(task.target)) for task in tasks}
    kept = []
    if os.path.exists(log):
        for inp, result in autotvm.record.load_from_file(log):
            if (inp.task.workload, str(inp.target)) not in workloads:
                kept.append(autotvm.record.encode(inp, result))
    kept += [autotvm.record.encode(*record) for record in records]
    partial = f"{log}.{os.getpid()}.partial"
    Path(partial).write_text("".join(line + "\n" for line in kept))
    os.replace(partial, log)


def _compare(module, build_for, spec, log):
    """Samples in milliseconds of the function as TVM makes it by itself, and with the log; run in turn, as an
    exported model runs.
    """
    runtime = library.plugin_path("runtime")
    plugins = [runtime] if runtime else []
    for plugin in plugins:
        library.load_plugin(plugin)
    timers = []
    for tuning_log in ("", log):
        factory = export.build(
            module, build_for, spec.get("opt_level"), spec.get("disabled_passes"), tuning_log=tuning_log
        )
        export.attach_threads(factory, int(spec.get("threads") or 0))
        with tempfile.TemporaryDirectory(prefix="collage-tune-") as folder:
            path = os.path.join(folder, "function.so")
            export.link(factory, path, plugins)
            loaded = tvm.runtime.load_module(path)
        executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
        timers.append(executor.module.time_evaluator("run", tvm.cpu(), number=1, repeat=3, min_repeat_ms=20))
    samples = [[], []]
    for _ in range(5):
        for number, timer in enumerate(timers):
            samples[number].extend(timer().results)
    return [[1000.0 * float(seconds) for seconds in results] for results in samples]


def _meta_schedule(module, build_for, spec, progress, keep):
    from tvm import meta_schedule as ms

    folder, trials = Path(spec["log"]), Path(spec["trials_log"])
    _take_back(folder)
    if folder.is_dir() and not trials.exists():
        shutil.copytree(folder, trials)  # what was found is where a search goes on
    for each in (folder, trials):
        each.mkdir(exist_ok=True)
    if "num-cores" not in build_for.attrs:
        cores = spec.get("threads") or os.cpu_count()
        build_for = tvm.target.Target(f"{spec.get('target') or target.default_target()} -num-cores={cores}")
    logging.getLogger("tvm.meta_schedule").setLevel(logging.ERROR)
    database = _database(ms, trials)
    wanted = int(spec["trials"])
    state = {"done": 0, "failed": 0, "best": 0.0}
    with tempfile.TemporaryDirectory(prefix="collage-tune-") as scratch:
        tasks, weights = ms.relay_integration.extracted_tasks_to_tune_contexts(
            ms.relay_integration.extract_tasks(module, build_for, {}), work_dir=scratch
        )
        state["done"] = _known(database, tasks)
        remaining = wanted - state["done"]
        progress(min(state["done"], wanted), wanted, 0.0)
        if remaining > 0:
            ms.tune.tune_tasks(
                tasks=tasks,
                task_weights=weights,
                work_dir=scratch,
                max_trials_global=remaining,
                # Told about, and asked whether to go on, after so many.
                num_trials_per_iter=min(remaining, 16),
                builder=ms.builder.LocalBuilder(max_workers=1, timeout_sec=_BUILD_SECONDS),
                runner=ms.runner.LocalRunner(timeout_sec=_RUN_SECONDS),
                database=database,
                cost_model="xgb" if _choose("auto") == "xgboost" else "random",
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    _telling(ms, state, wanted, progress),
                ],
            )
    best = [record for task in tasks for record in database.get_top_k(database.commit_workload(task.mod), 1)]
    with tempfile.TemporaryDirectory(prefix="collage-tune-") as candidate:
        _commit(ms, _database(ms, Path(candidate)), best)
        kept = keep(*_compare(module, build_for, spec, candidate)) and bool(best)
    _replace_in_database(ms, folder, tasks, best if kept else [])
    return {
        "tasks": [task.task_name for task in tasks],
        "trials": state["done"],
        "failed": state["failed"],
        "kept": kept,
    }


def _database(ms, folder):
    """The MetaSchedule database in a folder, which is made where there is none yet."""
    return ms.database.JSONDatabase(*(str(folder / name) for name in (tuninglog.WORKLOADS, tuninglog.RECORDS)))


def _commit(ms, database, records):
    """Write records of another MetaSchedule database into this one."""
    for record in records:
        workload = database.commit_workload(record.workload.mod)
        copy = ms.database.TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
        database.commit_tuning_record(copy)


def _replace_in_database(ms, folder, tasks, records):
    """``_replace`` for a MetaSchedule database, whose two files belong together: another folder takes its place."""
    left = [record for record in _database(ms, folder).get_all_tuning_records() if not _is_of(record, tasks)]
    partial, old = (folder.with_name(f".{folder.name}.{os.getpid()}.{what}") for what in ("partial", "old"))
    partial.mkdir()
    try:
        _commit(ms, _database(ms, partial), [*left, *records])
        folder.rename(old)
        try:
            partial.rename(folder)
        except BaseException:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _take_back(folder):
    """Put a database in its place again that ``_replace_in_database`` had moved away when its process was killed."""
    if folder.exists():
        return
    moved = list(folder.parent.glob(f".{glob.escape(folder.name)}.*.old"))
    if len(moved) == 1:  # of several nobody knows which was the last
        moved[0].rename(folder)


def _is_of(record, tasks):
    """Whether a record of MetaSchedule's is of one of the tasks."""
    return any(tvm.ir.structural_equal(record.workload.mod, task.mod) for task in tasks)


def _known(database, tasks):
    """How many records of the tasks a MetaSchedule database has."""
    return sum(_is_of(record, tasks) for record in database.get_all_tuning_records())


def _telling(ms, state, wanted, progress):
    """A callback of MetaSchedule's that counts trials and tells ``progress``."""

    @ms.derived_object
    class Telling(ms.measure_callback.PyMeasureCallback):
        def apply(self, _scheduler, _task, _candidates, _built, results):
            for result in results or []:
                state["done"] += 1
                if result is None or result.run_secs is None:
                    state["failed"] += 1
                    continue
                took = 1000.0 * float(np.mean([float(seconds) for seconds in result.run_secs]))
                state["best"] = min(state["best"] or took, took)
            progress(min(state["done"], wanted), wanted, state["best"])

    return Telling()


def main():
    """Tune what standard input says."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # Tuners print; that is not for the one that drives this process.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send(event, **fields):
        protocol.write(json.dumps({"event": event, **fields}) + "\n")
        protocol.flush()

    spec = json.loads(sys.stdin.readline())

    answers = queue.SimpleQueue()

    def watch():
        for line in sys.stdin:
            answers.put(json.loads(line))
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="watch").start()

    def progress(done, total, best_ms):
        send("progress", done=done, total=total, best_ms=best_ms)

    def keep(default_ms, tuned_ms):
        send("compared", default_ms=default_ms, tuned_ms=tuned_ms)
        return bool(answers.get()["keep"])

    try:
        send("result", **tune(spec, progress, keep))
    except TuneError as error:
        send("error", detail=str(error))
    except Exception as error:
        said = str(error).strip().splitlines()
        send("error", detail=f"{type(error).__name__}: {said[-1] if said else 'no reason given'}")


if __name__ == "__main__":
    main()
