# SPDX-License-Identifier: Apache-2.0
"""The process in which candidates are measured: ``python -m collage.worker``, driven by pass/measure over
its pipes.

One JSON object a line in on standard input, one a line out on standard output, which belongs to the
protocol alone (whatever else is printed goes to standard error):

    {"id", "op": "hello"}    -> {"id", "event": "hello", "tvm", "pid"}
    {"id", "op": "measure"}  -> {"id", "event": "built", "seconds"},
                                {"id", "event": "result", "samples_ms", ...}
    {"id", "op": "soak"}     -> {"id", "event": "result", "before_bytes", "after_bytes"}
    {"id", "op": "forget"}   -> {"id", "event": "result"}
    {"id", "op": "build"}    -> {"id", "event": "result", "manifest"}
    {"id", "op": "load"}     -> {"id", "event": "result"}
    {"id", "op": "calibrate"} -> {"id", "event": "result"}, or {..., "gflop_ms", "read_gib_ms"}
    {"id", "op": "compare"}  -> {"id", "event": "progress", "round"}...,
                                {"id", "event": "result", "samples_ms", ...}
    {"id", "op": "network_build" | "network_run" | "network_profile" | "network_drop" | "network_footprint"
                  | "network_agree"}
                             -> {"id", "event": "result", ...}: network.Networks says what each answers
    anything that fails      -> {"id", "event": "error", "phase", "kind", "detail"}

What a "measure" built is kept for a while, so that further samples of it ("again": true) cost no build. With
no samples ("samples": 0) it only builds, runs and checks. "soak" runs it for the memory that this leaves behind,
"forget" lets go of it. "build" compiles many regions ("items", each as
"measure" has it, for plain TVM) into files in "folder"; another worker is told of them with "load" and has no
need to build them. "calibrate" makes ready what it takes ("ready": true), which others need not stand still for, and
then, asked again, runs it.

The end of standard input or SIGTERM ends the process at once, in the middle of a measurement too. A crash
is the process's own, and the one that drives it sees the pipe close. Modules named in COLLAGE_IMPORT
(separated by commas) are imported first: code generators that a user registers in Python must be here too.
"""

import importlib
import json
import logging
import os
import queue
import signal
import sys
import threading


def _take_stdout():
    """Keep the real standard output for the protocol and let everything else that prints go to standard
    error.
    """
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return protocol


class Worker:
    """Answers requests one after the other; ``send`` takes the answers as dictionaries.

    A new kind of request is a method that takes (number, request) and an entry of ``operations``.
    """

    def __init__(self, send):
        from . import artefact, region

        self._region = region
        self._send = send
        self._artefacts = artefact.Artefacts()
        self._networks = None
        self._calibration = None
        self.operations = {
            "hello": self._hello,
            "measure": self._measure,
            "soak": self._soak,
            "forget": self._forget,
            "build": self._build,
            "load": self._load,
            "calibrate": self._calibrate,
            "compare": self._compare,
        }

    def answer(self, line):
        """Do what one line asks. Never raises: what goes wrong is an answer too."""
        number = None
        try:
            request = json.loads(line)
            number = request.get("id")
            operation = self._operation(request.get("op"))
            if operation is None:
                self._fail(number, "protocol", "error", f"unknown operation {request.get('op')!r}")
            else:
                operation(number, request)
        except self._region.RegionError as error:
            self._fail(number, error.phase, error.kind, str(error))
        except MemoryError as error:
            self._fail(number, "run", "out-of-memory", str(error) or "Python has no memory left")
        except Exception as error:
            self._fail(number, "protocol", "error", f"{type(error).__name__}: {error}")

    def _operation(self, name):
        if not str(name).startswith("network_"):
            return self.operations.get(name)
        from . import network

        if self._networks is None:
            self._networks = network.Networks()
        operation = self._networks.operations().get(name)
        return operation and (lambda number, request: self._result(number, operation(request)))

    def _fail(self, number, phase, kind, detail):
        self._send({"id": number, "event": "error", "phase": phase, "kind": kind, "detail": detail})

    def _result(self, number, fields):
        self._send({"id": number, "event": "result", **fields})

    def _hello(self, number, request):
        import tvm

        self._send({"id": number, "event": "hello", "tvm": tvm.__version__, "pid": os.getpid()})

    def _measure(self, number, request):
        from . import measuring

        def built(seconds):
            self._send({"id": number, "event": "built", "seconds": seconds})

        self._result(number, measuring.measure(request, self._artefacts, built))

    def _soak(self, number, request):
        from . import measuring

        self._result(number, measuring.soak(request, self._artefacts))

    def _forget(self, number, request):
        self._artefacts.drop(request, request.get("compiler") or "")
        self._result(number, {})

    def _build(self, number, request):
        from . import batch

        # Which of the regions is at fault is found out by whoever asked.
        self._result(number, self._region.in_phase("build", batch.build, request))

    def _load(self, number, request):
        from . import batch

        self._artefacts.add(self._region.in_phase("load", batch.load, request["manifest"]))
        self._result(number, {})

    def _calibrate(self, number, request):
        from . import calibrate

        if request.get("ready"):
            told = int(request.get("threads") or 1), request.get("sizes") or []
            self._calibration = calibrate.Calibration(*told)
            self._result(number, {})
            return
        ready, self._calibration = self._calibration, None
        self._result(number, ready.samples())

    def _compare(self, number, request):
        from . import compare

        def progress(round_number):
            self._send({"id": number, "event": "progress", "round": round_number})

        self._result(number, compare.compare(request, progress))


def main():
    """Serve until standard input ends."""
    protocol = _take_stdout()
    # Ctrl-C goes to the whole terminal; the one that drives this process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    # That schedules are not tuned is known, and true of every candidate.
    logging.getLogger("autotvm").setLevel(logging.ERROR)

    requests = queue.Queue()

    def read():
        for line in sys.stdin:
            if line.strip():
                requests.put(line)
        os._exit(0)

    def send(message):
        protocol.write(json.dumps(message) + "\n")
        protocol.flush()

    threading.Thread(target=read, daemon=True, name="requests").start()
    for name in filter(None, os.environ.get("COLLAGE_IMPORT", "").split(",")):
        importlib.import_module(name)
    worker = Worker(send)
    while True:
        worker.answer(requests.get())


if __name__ == "__main__":
    main()
