# SPDX-License-Identifier: Apache-2.0
"""What TVM's tuners have found out, applied to builds.

A tuning log is a file of AutoTVM's records (JSON lines), or a folder with a MetaSchedule database
(database_workload.json and database_tuning_record.json). Operators that it does not know are compiled as
without it.
"""

import contextlib
import functools
import os
from pathlib import Path

import tvm

from . import errors

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"

# Workers get their log through the environment: it holds for all that they build.
ENVIRONMENT = "COLLAGE_TUNING_LOG"


def from_environment():
    """The log that this process was started with; None for none."""
    return os.environ.get(ENVIRONMENT) or None


def is_database(path):
    """Whether ``path`` is a MetaSchedule database and not a file of AutoTVM's."""
    return Path(path).is_dir()


@contextlib.contextmanager
def applied(path):
    """While it holds, builds on this thread use what the log ``path`` (None for no log) knows.

    Yields the PassContext options that these builds need. Raises ValueError where the log cannot be read.
    """
    if not path:
        yield {}
        return
    # Read once, however many builds there are; a log that has grown is read again.
    changed = tuple(Path(file).stat().st_mtime_ns for file in _files(path))
    if not is_database(path):
        with _history(str(path), changed):
            yield {}
        return
    with _database(str(path), changed):
        yield {"relay.backend.use_meta_schedule": True, "relay.backend.tir_converter": "default"}


def _files(path):
    path = Path(path)
    files = [path / WORKLOADS, path / RECORDS] if is_database(path) else [path]
    for file in files:
        if not file.is_file():
            raise errors.InputError(f"the tuning log {path} cannot be read: there is no file {file}", file=file)
    return files


@functools.lru_cache(maxsize=2)
def _history(path, _changed):
    from tvm import autotvm

    try:
        return autotvm.apply_history_best(path)
    except Exception as error:
        raise errors.InputError(f"the tuning log {path} cannot be read as AutoTVM's: {error}", file=path) from error


@functools.lru_cache(maxsize=2)
def _database(path, _changed):
    from tvm import meta_schedule

    workloads, records = (str(Path(path) / name) for name in (WORKLOADS, RECORDS))
    try:
        stored = meta_schedule.database.JSONDatabase(workloads, records, allow_missing=False)
    except (tvm.TVMError, ValueError) as error:
        raise errors.InputError(
            f"the tuning log {path} cannot be read as MetaSchedule's: {error}", file=path
        ) from error
    # Builds add to the database that they use (workloads with weights in another layout); the user's stays as
    # it is.
    copy = meta_schedule.database.MemoryDatabase()
    for record in stored.get_all_tuning_records():
        workload = copy.commit_workload(record.workload.mod)
        copy.commit_tuning_record(
            meta_schedule.database.TuningRecord(
                record.trace, workload, record.run_secs, record.target, record.args_info
            )
        )
    return copy
