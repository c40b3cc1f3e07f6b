# SPDX-License-Identifier: Apache-2.0
"""`collage serve` under load beside a server of the same protocol: MLServer with ONNX Runtime.

    bench_serve.py [--model FILE.onnx] [--clients N] [--seconds S] [--rounds N] [--json FILE]

Both answer the same questions, which Triton's client has written (KServe v2 over HTTP, tensors as JSON), to as many
clients at once as --clients says, each asking again as soon as it has its answer, in turn for --seconds each; `collage
serve` then again with tensors as bytes, which MLServer does not take over HTTP. All processes share the machine's
processors. Before, that client itself asks once. Each answer is compared with ONNX Runtime's. Told are requests a
second, the quantiles of their latency as the client sees it, and what the server holds of memory after the first and
after the last round (VmRSS). Without --model it is a net of eight convolutions on 3x64x64 pixels.

Needs what scripts/serve_peer.sh installs.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import onnx
from bench_threads import describe, from_command
from onnx import TensorProto, helper, numpy_helper

TREE = Path(__file__).resolve().parents[1]
PEER = TREE / ".venv-serve" / "bin" / "python"
NAME = "net"
QUANTILES = (50, 90, 99, 100)

# MLServer's side: a model of its own kind, since it has none for ONNX.
RUNTIME = """
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Network(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.settings.parameters.extra["threads"]
        self._session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        self._outputs = [output.name for output in self._session.get_outputs()]
        return True

    async def predict(self, payload):
        given = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        made = self._session.run(self._outputs, given)
        outputs = [NumpyCodec.encode_output(name, value) for name, value in zip(self._outputs, made)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""

# The clients: threads of one process, each with a connection. Triton's client has written the requests before, so that
# the servers are what is waited for. Reads a job from stdin, writes what it found.
CLIENTS = """
import http.client, json, sys, threading, time
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

job = json.load(sys.stdin)
given = dict(np.load(job["inputs"]))
right = dict(np.load(job["answers"]))
path = f"/v2/models/{job['model']}/infer"
requests, latencies, wrong = [], [], []
for turn in range(job["questions"]):
    asked = []
    for name in sorted(given):
        asked.append(InferInput(name, list(given[name][turn].shape), job["types"][name]))
        asked[-1].set_data_from_numpy(given[name][turn], binary_data=job["bytes"])
    wanted = [InferRequestedOutput(name, binary_data=job["bytes"]) for name in job["outputs"]]
    body, head = InferenceServerClient.generate_request_body(asked, outputs=wanted)
    more = {} if head is None else {"Inference-Header-Content-Length": str(head)}
    requests.append((body, {"Content-Type": "application/json"} | more))


def check(answer, turn):
    for name, place in zip(job["outputs"], sorted(right)):
        if not np.allclose(answer.as_numpy(name), right[place][turn], rtol=1e-3, atol=1e-4):
            raise ValueError(f"the answer {name} to question {turn} is wrong")


def client(number):
    try:
        connection = http.client.HTTPConnection(job["host"], job["port"], timeout=120)
        turn = number
        while time.monotonic() < until:
            turn = (turn + 1) % job["questions"]
            body, headers = requests[turn]
            began = time.perf_counter()
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            body = answer.read()
            latencies.append(time.perf_counter() - began)
            if answer.status != 200:
                raise ValueError(f"{answer.status}: {body[:500]}")
            head = answer.getheader("Inference-Header-Content-Length")
            head = None if head is None else int(head)
            check(InferenceServerClient.parse_response_body(body, header_length=head), turn)
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {error}")


with InferenceServerClient(f"{job['host']}:{job['port']}") as whole:
    if not whole.is_server_live() or not whole.is_model_ready(job["model"]):
        raise SystemExit("Triton's client finds no model")
    check(whole.infer(job["model"], asked, outputs=wanted), turn)
threads = [threading.Thread(target=client, args=[number]) for number in range(job["clients"])]
began, until = time.perf_counter(), time.monotonic() + job["seconds"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
json.dump({"seconds": time.perf_counter() - began, "latencies": latencies, "wrong": wrong}, sys.stdout)
"""


def network(path):
    """Writes the net that is served where no model is given: seeded weights."""
    rng = np.random.default_rng(0)
    nodes, weights, value, before = [], [], "image", 3
    for layer, channels in enumerate((32, 32, 64, 64, 128, 128, 256, 256)):
        stride = 2 - layer % 2
        scale = np.sqrt(2 / (9 * before))
        kernel = (scale * rng.standard_normal((channels, before, 3, 3))).astype("float32")
        weights.append(numpy_helper.from_array(kernel, f"w{layer}"))
        conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], **conv))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        value, before = f"r{layer}", channels
    weights.append(numpy_helper.from_array((rng.standard_normal((100, before)) / 16).astype("float32"), "w"))
    nodes += [
        helper.make_node("GlobalAveragePool", [value], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["classes"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 64, 64])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 100])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def questions(model, folder, count=16):
    """Random inputs of an ONNX model with fixed float32 inputs, and ONNX Runtime's answers: what clients are told."""
    graph = onnx.load(model, load_external_data=False).graph
    inputs = {}
    for value in graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        if kind.elem_type != TensorProto.FLOAT or not all(shape):
            raise SystemExit(f"bench_serve: error: the input {value.name} of {model} is no float32 of a fixed shape")
        inputs[value.name] = np.random.default_rng(0).standard_normal((count, *shape), dtype="float32")
    np.savez(folder / "inputs.npz", **inputs)
    ask = """
import sys, numpy as np, onnxruntime
model, inputs, answers = sys.argv[1:]
given = dict(np.load(inputs))
session = onnxruntime.InferenceSession(model)
made = [session.run(None, {n: v[k] for n, v in given.items()}) for k in range(len(next(iter(given.values()))))]
np.savez(answers, **{f"{i:04}": np.stack([one[i] for one in made]) for i in range(len(made[0]))})
"""
    command = [PEER, "-c", ask, model, folder / "inputs.npz", folder / "answers.npz"]
    subprocess.run(list(map(str, command)), check=True)
    return {
        "inputs": str(folder / "inputs.npz"),
        "answers": str(folder / "answers.npz"),
        "questions": count,
        "types": dict.fromkeys(inputs, "FP32"),
    }


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def resident(process):
    """What a process and those that it started hold of memory, in bytes."""
    total, left = 0, [process.pid]
    while left:
        pid = left.pop()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = Path(f"/proc/{pid}/status").read_text()
            total += int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10
            for task in Path(f"/proc/{pid}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
    return total


@contextlib.contextmanager
def started(command, port, log, **rest):
    """A server that is ready at a port; SIGTERM ends it."""
    with open(log, "w") as out:
        process = subprocess.Popen(list(map(str, command)), stdout=out, stderr=out, **rest)
        try:
            until = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    url = f"http://127.0.0.1:{port}/v2/models/{NAME}/ready"
                    if urllib.request.urlopen(url, timeout=5).status == 200:
                        break
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"bench_serve: error: {command[0]} does not serve: {log.read_text()[-2000:]}")
                time.sleep(0.2)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def of_collage(model, port, folder, executors):
    command = [sys.executable, "-m", "collage", "serve", model, "--name", NAME, "--listen", f"127.0.0.1:{port}"]
    command += ["--executors", executors, "--queue", 1000]
    return started(command, port, folder / "collage.log", env=os.environ | {"PYTHONPATH": str(TREE / "python")})


def of_mlserver(model, port, folder, threads):
    place = folder / "mlserver"
    place.mkdir()
    (place / "network.py").write_text(RUNTIME)
    # Without workers it computes in its own process: no tensor goes from one to another.
    settings = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "host": "127.0.0.1",
                "parallel_workers": 0}  # fmt: skip
    (place / "settings.json").write_text(json.dumps(settings))
    parameters = {"uri": str(model), "extra": {"threads": threads}}
    about = {"name": NAME, "implementation": "network.Network", "parameters": parameters}
    (place / "model-settings.json").write_text(json.dumps(about))
    environment = os.environ | {"PYTHONPATH": str(place)}
    return started([PEER.parent / "mlserver", "start", place], port, folder / "mlserver.log", env=environment)


def load(job):
    """What the clients found in one turn."""
    done = subprocess.run(
        [str(PEER), "-c", CLIENTS], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"bench_serve: error: the clients failed: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    if found["wrong"]:
        raise SystemExit(f"bench_serve: error: {found['wrong'][0]}")
    return found


def outputs_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{NAME}", timeout=30) as answer:
        return [one["name"] for one in json.load(answer)["outputs"]]


def version(package):
    ask = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(PEER), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()


def rows(arguments, folder):
    """The report's rows: each server and way of asking, all rounds taken together."""
    model = arguments.model
    if model is None:
        model = folder / "net.onnx"
        network(model)
    compiled = folder / "net.so"
    command = [sys.executable, "-m", "collage", "compile", model, "--backends", arguments.backends]
    command += ["--search-time", arguments.search_time, "-q", "-o", compiled]
    environment = os.environ | {"PYTHONPATH": str(TREE / "python")}
    subprocess.run(list(map(str, command)), check=True, env=environment, stdout=subprocess.DEVNULL)
    asked = questions(model, folder) | {"seconds": arguments.seconds, "clients": arguments.clients, "model": NAME}
    peer_outputs = [output.name for output in onnx.load(model, load_external_data=False).graph.output]
    ports = {"collage": free_port(), "mlserver": free_port()}
    threads = len(os.sched_getaffinity(0))
    with (
        of_collage(compiled, ports["collage"], folder, arguments.executors) as ours,
        of_mlserver(model, ports["mlserver"], folder, threads) as theirs,
    ):
        ways = [
            ("collage serve, JSON", ours, ports["collage"], False),
            (f"MLServer {version('mlserver')}, ONNX Runtime {version('onnxruntime')}, JSON", theirs, ports["mlserver"],
             False),
            ("collage serve, bytes", ours, ports["collage"], True),
        ]  # fmt: skip
        outputs = {ports["collage"]: outputs_of(ports["collage"]), ports["mlserver"]: peer_outputs}
        found = [{"server": name, "rounds": [], "memory": []} for name, *_ in ways]
        for _ in range(arguments.rounds):
            for row, (_, process, port, as_bytes) in zip(found, ways, strict=True):
                where = {"host": "127.0.0.1", "port": port}
                row["rounds"].append(load(asked | where | {"bytes": as_bytes, "outputs": outputs[port]}))
                row["memory"].append(resident(process))
    return [summary(row) for row in found]


def summary(row):
    latencies = np.concatenate([one["latencies"] for one in row["rounds"]]) * 1e3
    seconds = sum(one["seconds"] for one in row["rounds"])
    quantiles = {f"p{q}": round(float(np.percentile(latencies, q)), 3) for q in QUANTILES}
    return {
        "server": row["server"],
        "requests": len(latencies),
        "per_second": round(len(latencies) / seconds, 1),
        "latency_ms": quantiles,
        "p99_ms_of_rounds": [round(float(np.percentile(one["latencies"], 99) * 1e3), 3) for one in row["rounds"]],
        "resident_bytes": [row["memory"][0], row["memory"][-1]],
    }


def show(report):
    for line in report["about"]:
        print(line)
    print()
    width = max(len(row["server"]) for row in report["rows"])
    head = f"{'server':{width}}  {'requests':>8}  {'a second':>8}" + "".join(f"  {f'p{q} ms':>8}" for q in QUANTILES)
    head += f"  {'MB, first round':>15}  {'MB, last':>8}"
    print(head)
    print("-" * len(head))
    for row in report["rows"]:
        text = f"{row['server']:{width}}  {row['requests']:8}  {row['per_second']:8.1f}"
        text += "".join(f"  {row['latency_ms'][f'p{q}']:8.2f}" for q in QUANTILES)
        first, last = (held / 1e6 for held in row["resident_bytes"])
        print(f"{text}  {first:15.1f}  {last:8.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an ONNX file with float32 inputs of fixed shapes")
    parser.add_argument("--clients", type=int, default=8, metavar="N", help="how many ask at once")
    parser.add_argument("--seconds", type=float, default=30, metavar="S", help="how long each turn takes")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="how many turns each has")
    parser.add_argument("--executors", type=int, default=1, metavar="N", help="collage serve's --executors")
    parser.add_argument("--backends", default="tvm,dnnl,native", help="collage compile's --backends")
    parser.add_argument("--search-time", default="60s", help="collage compile's --search-time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE, too")
    arguments = parser.parse_args()
    if not PEER.exists():
        raise SystemExit("bench_serve: error: there is no .venv-serve; run scripts/serve_peer.sh")
    with tempfile.TemporaryDirectory(prefix="collage-serve-") as folder:
        found = rows(arguments, Path(folder))
    name = arguments.model.name if arguments.model else "eight convolutions on 1x3x64x64"
    machine = from_command("doctor")["machine"]
    about = [
        f"{name}; {arguments.clients} clients (tritonclient {version('tritonclient')}), {arguments.rounds} rounds of "
        f"{arguments.seconds:g} s each, in turn; every answer was compared with ONNX Runtime's",
        f"{len(os.sched_getaffinity(0))} processors, clients on the same ones; {arguments.executors} executor"
        f"{'s' * (arguments.executors > 1)} of collage serve",
    ]
    report = {"schema": 1, "machine": machine, "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    report |= {"about": about, "rows": found}
    show(report)
    print(f"\nmachine: {describe(machine)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
