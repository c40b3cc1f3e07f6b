# SPDX-License-Identifier: Apache-2.0
"""The process in which candidates are measured: ``python -m collage.worker``, driven by pass/measure over
its pipes.

One JSON object a line in on standard input, one a line out on standard output, which belongs to the
protocol alone (whatever else is printed goes to standard error):

    {"id", "op": "hello"}    -> {"id", "event": "hello", "tvm", "pid"}
    {"id", "op": "measure"}  -> {"id", "event": "built", "seconds"},
                                {"id", "event": "result", "samples_ms", ...}
    {"id", "op": "calibrate"} -> {"id", "event": "result", "gflop_ms", "read_gib_ms"}
    {"id", "op": "compare"}  -> {"id", "event": "progress", "round"}...,
                                {"id", "event": "result", "samples_ms", ...}
    {"id", "op": "network_build" | "network_run" | "network_profile" | "network_drop" | "network_footprint"}
                             -> {"id", "event": "result", ...}: network.Networks says what each answers
    anything that fails      -> {"id", "event": "error", "phase", "kind", "detail"}

What a "measure" built is kept for a while, so that further samples of it ("again": true) cost no build.

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
    """Answers requests one after the other; ``send`` takes the answers as dictionaries."""

    def __init__(self, send):
        from . import region

        self._region = region
        self._send = send
        self._artefacts = region.Artefacts()
        self._networks = None

    def answer(self, line):
        """Do what one line asks. Never raises: what goes wrong is an answer too."""
        number = None
        try:
            request = json.loads(line)
            number = request.get("id")
            operation = request.get("op")
            if operation == "hello":
                self._hello(number)
            elif operation == "measure":
                self._measure(number, request)
            elif operation == "calibrate":
                self._calibrate(number, request)
            elif operation == "compare":
                self._compare(number, request)
            elif str(operation).startswith("network_"):
                self._network(number, request)
            else:
                self._fail(number, "protocol", "error", f"unknown operation {operation!r}")
        except self._region.RegionError as error:
            self._fail(number, error.phase, error.kind, str(error))
        except MemoryError as error:
            self._fail(number, "run", "out-of-memory", str(error) or "Python has no memory left")
        except Exception as error:
            self._fail(number, "protocol", "error", f"{type(error).__name__}: {error}")

    def _fail(self, number, phase, kind, detail):
        self._send({"id": number, "event": "error", "phase": phase, "kind": kind, "detail": detail})

    def _hello(self, number):
        import tvm

        self._send({"id": number, "event": "hello", "tvm": tvm.__version__, "pid": os.getpid()})

    def _measure(self, number, request):
        def built(seconds):
            self._send({"id": number, "event": "built", "seconds": seconds})

        self._send({"id": number, "event": "result", **self._region.measure(request, self._artefacts, built)})

    def _calibrate(self, number, request):
        from . import calibrate

        result = calibrate.calibrate(int(request.get("threads") or 1), request.get("sizes") or [])
        self._send({"id": number, "event": "result", **result})

    def _network(self, number, request):
        from . import network

        if self._networks is None:
            self._networks = network.Networks()
        operation = self._networks.operations().get(request["op"])
        if operation is None:
            self._fail(number, "protocol", "error", f"unknown operation {request['op']!r}")
            return
        self._send({"id": number, "event": "result", **operation(request)})

    def _compare(self, number, request):
        def progress(round_number):
            self._send({"id": number, "event": "progress", "round": round_number})

        self._send({"id": number, "event": "result", **self._region.compare(request, progress)})


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
