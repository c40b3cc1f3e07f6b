# SPDX-License-Identifier: Apache-2.0
"""Many short runs in processes of their own, of which each may end its process or take too long and costs itself only.

``run`` gives each result as it comes, ``add`` and ``kept`` let them stand in a file of JSON lines.
"""

import contextlib
import json
import multiprocessing
import os
import time
from multiprocessing import connection
from pathlib import Path

# Runs after which a process is replaced by a new one: what was loaded stays in it.
REPLACED = 250
# Seconds in which a process has started: it imports what its runs need, which no run's limit counts.
STARTED = 300


def run(function, tasks, jobs, limit):
    """Gives (key, function(*arguments)) of ``tasks``, {key: arguments}, as they come, ``jobs`` at a time; a run that
    ends its process gives ("crashed", why), and so does one that takes more than ``limit`` seconds. Runs with the same
    first argument are made one after the other by one process, which may keep what they share.
    """
    groups = {}
    for key, arguments in reversed(tasks.items()):
        groups.setdefault(arguments[0], []).append((key, arguments))
    waiting = list(groups.values())
    busy, idle = {}, []
    while waiting or busy or any(process.group for process in idle):
        while len(busy) < jobs and (waiting or any(process.group for process in idle)):
            process = next((one for one in idle if one.group), None) or (idle[0] if idle else _Process(function))
            if process in idle:
                idle.remove(process)
            process.group = process.group or waiting.pop()
            process.give(*process.group.pop())
            busy[process.pipe] = process
        ready = connection.wait(list(busy), timeout=1)
        for process in [busy[pipe] for pipe in ready]:
            if process.starts():
                continue
            del busy[process.pipe]
            result = process.result()
            yield process.key, result
            if process.runs < REPLACED:
                idle.append(process)
            else:
                waiting += process.end()
        for process in [one for one in busy.values() if one.late(limit)]:
            del busy[process.pipe]
            waiting += process.end()
            what, most = ("it", limit) if process.started else ("starting its process", STARTED)
            yield process.key, ("crashed", f"{what} took more than {most} s")
    for process in idle:
        process.end()


class _Process:
    """One process that takes a run at a time."""

    def __init__(self, function):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, function), daemon=True)
        self.process.start()
        other.close()
        self.started = False
        self.runs = 0
        self.group = []

    def give(self, key, arguments):
        self.key, self.since = key, time.monotonic()
        self.runs += 1
        with contextlib.suppress(OSError):  # it ended after its last run; the result says so
            self.pipe.send(arguments)

    def late(self, limit):
        return time.monotonic() - self.since > (limit if self.started else STARTED)

    def starts(self):
        """Whether what it has to say is only that it has started: the time of its first run begins here."""
        if self.started:
            return False
        try:
            self.pipe.recv()
        except (EOFError, ConnectionResetError):
            return False  # it ended; the result says so
        self.started, self.since = True, time.monotonic()
        return True

    def result(self):
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            self.runs = REPLACED
            return "crashed", f"its process ended ({self.process.exitcode})"

    def end(self):
        """End it; gives the group of runs that is left, if any, as a list of groups."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return [self.group] if self.group else []


def _serve(pipe, function):
    """A process's work: runs until nobody asks. What it prints is nobody's."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    pipe.send("started")
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(function(*arguments))


def kept(path):
    """{key: result} of a file that ``add`` wrote; none where there is no file."""
    if not path or not Path(path).exists():
        return {}
    lines = Path(path).read_text().splitlines()
    return {tuple(key): tuple(result) for key, result in map(json.loads, lines)}


def add(path, key, result):
    """Write a result behind those that stand in the file."""
    with open(path, "a") as file:
        file.write(json.dumps([key, result]) + "\n")
