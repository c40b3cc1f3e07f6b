# SPDX-License-Identifier: Apache-2.0
"""One engine as a process: ``python -m collage.peers NAME``, driven by cmd/internal/bench over its pipes.

One JSON object a line in, one a line out. Standard output belongs to the protocol; all else goes to
standard error.

    {"op": "load", "files", "threads", "prepare"} -> {"version", "seconds", ...}
    {"op": "write", "files"} -> {}              (the engine tvm only: the network as ONNX, in files["onnx"])
    {"op": "check", "inputs", "outputs", "reference"} -> {"max_abs_error", "greatest", "l2", "mismatch"}
    {"op": "sample", "seconds", "least"} -> {"samples_ms"}
    anything that fails -> {"error"}

The process is stopped (SIGSTOP) between its turns, so that no thread of it spins while another engine runs.
"""

import gc
import importlib
import json
import logging
import os
import signal
import sys
import time

import numpy as np

from .. import precision


def _take_stdout():
    """The real standard output for the protocol; whatever else prints goes to standard error."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return protocol


class Peer:
    """Answers requests for one engine."""

    def __init__(self, name):
        engines = importlib.import_module(f"{__package__}.engines")
        self._engine = engines.ENGINES[name]()
        self._sample = engines.sample

    def load(self, request):
        """Load the network; the engine ``tvm`` also writes it for the others where "prepare" says so."""
        started = time.perf_counter()
        version = self._engine.load(request["files"], int(request["threads"]))
        told = {"version": version, "seconds": time.perf_counter() - started}
        if request.get("prepare"):
            told |= self._engine.prepare(request["files"])
        return told

    def write(self, request):
        """Write the network as ONNX, without running anything."""
        self._engine.write(request["files"])
        return {}

    def check(self, request):
        """Run once on the inputs; write the outputs, or hold them against those of ``reference``."""
        with np.load(request["inputs"]) as archive:
            inputs = {name: archive[name] for name in archive.files}
        self._engine.bind(inputs)
        self._engine.run()
        outputs = self._engine.outputs()
        gc.collect()
        gc.disable()
        if request.get("outputs"):
            np.savez(request["outputs"], *outputs)
        if not request.get("reference"):
            return {
                "max_abs_error": 0.0,
                "greatest": max((float(np.abs(o).max()) for o in outputs if o.size), default=0.0),
            }
        with np.load(request["reference"]) as archive:
            expected = [archive[name] for name in archive.files]
        return difference(outputs, expected)

    def sample(self, request):
        """Time calls for a while."""
        return {"samples_ms": self._sample(self._engine.run, float(request["seconds"]), int(request["least"]))}


def difference(outputs, expected):
    """How far outputs are from the expected ones: the greatest error, and the greatest expected value."""
    if [o.shape for o in outputs] != [e.shape for e in expected]:
        shapes = [list(o.shape) for o in outputs]
        return {"mismatch": f"outputs of shapes {shapes} and not {[list(e.shape) for e in expected]}"}
    error = greatest = 0.0
    for one, other in zip(outputs, expected, strict=True):
        if not one.size:
            continue
        error = max(error, float(np.abs(one.astype("float64") - other.astype("float64")).max()))
        greatest = max(greatest, float(np.abs(other).max()))
    if not np.isfinite(error):
        return {"mismatch": "outputs that are not finite numbers"}
    return {"max_abs_error": error, "greatest": greatest, "l2": precision.errors([outputs], [expected])["l2"]}


def main(arguments):
    """Serve one engine until standard input ends."""
    protocol = _take_stdout()
    # Ctrl-C goes to the whole terminal; the one that drives this process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    peer = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            peer = peer or Peer(arguments[0])
            operations = {"load": peer.load, "write": peer.write, "check": peer.check, "sample": peer.sample}
            answer = operations[request["op"]](request)
        except Exception as error:
            text = str(error).strip().splitlines()
            answer = {"error": f"{type(error).__name__}: {text[-1] if text else ''}"}
        protocol.write(json.dumps(answer) + "\n")
        protocol.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
