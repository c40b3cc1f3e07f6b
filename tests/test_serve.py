# SPDX-License-Identifier: Apache-2.0
"""``collage serve``: real models behind real connections, several clients, bad ones among them, and the end."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import PACKAGE, environment
from onnx_networks import node, values, weights, write

NETWORK = """#[version = "0.0.5"]
def @main(%x: Tensor[(4, 64), float32], %y: Tensor[(4, 64), float32]) {
  %0 = nn.softmax(add(%x, %y), axis=1);
  (%0, argmax(%0, axis=[1]))
}
"""


@pytest.fixture(scope="module")
def model(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "net.relay").write_text(NETWORK)
    done = command(
        "compile", folder / "net.relay", "--backends", "tvm,dnnl", "--pin", "nn.softmax=dnnl", "--search-time", "5s",
        "--level", "operator", "-q", "-o", folder / "net.so",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "net.so"


@contextlib.contextmanager
def server(model, *options):
    """(process, port) of a server; it is ended by SIGTERM, with exit code 0."""
    binary = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
    command = [binary, "serve", str(model), "--listen", "127.0.0.1:0", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        line = process.stdout.readline()
        assert " listens at http://127.0.0.1:" in line, process.stderr.read()
        yield process, int(line.split(":")[-1].split("/")[0])
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def inputs(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((4, 64)).astype("float32") for _ in range(2)]


def right(x, y):
    powers = np.exp(x + y - (x + y).max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def by_json(port, x, y):
    named = zip("xy", (x, y), strict=True)
    tensors = [{"name": n, "shape": [4, 64], "datatype": "FP32", "data": v.tolist()} for n, v in named]
    status, body, _ = ask(port, "POST", "/v2/models/net/infer", json.dumps({"inputs": tensors}))
    assert status == 200, body
    outputs = json.loads(body)["outputs"]
    return [np.array(one["data"]).reshape(one["shape"]) for one in outputs]


def by_bytes(port, x, y):
    size = {"binary_data_size": x.nbytes}
    tensors = [{"name": n, "shape": [4, 64], "datatype": "FP32", "parameters": size} for n in "xy"]
    head = json.dumps({"parameters": {"binary_data": True}, "inputs": tensors}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, body, said = ask(port, "POST", "/v2/models/net/infer", head + x.tobytes() + y.tobytes(), headers)
    assert status == 200, body
    at = int(said["Inference-Header-Content-Length"])
    softmax = np.frombuffer(body, "float32", 4 * 64, at).reshape(4, 64)
    return [softmax, body[at + softmax.nbytes :]]


@pytest.mark.parametrize("way", [by_json, by_bytes])
def test_answers_are_the_models(model, way):
    with server(model) as (_, port):
        for seed in range(3):
            x, y = inputs(seed)
            softmax, most = way(port, x, y)
            np.testing.assert_allclose(softmax, right(x, y), rtol=1e-5)
            if way is by_json:
                np.testing.assert_array_equal(most, right(x, y).argmax(axis=1))


def test_a_package_is_served(model, command, tmp_path):
    assert command("package", model, "-o", tmp_path / "net").returncode == 0
    with server(tmp_path / "net") as (_, port):
        x, y = inputs(1)
        np.testing.assert_allclose(by_bytes(port, x, y)[0], right(x, y), rtol=1e-5)


def batches(port):
    """What the metrics say of batches, by name."""
    said = ask(port, "GET", "/metrics")[1].decode()
    lines = [line for line in said.splitlines() if line.startswith("collage_batch_")]
    return {line.split("{")[0]: float(line.split()[-1]) for line in lines}


def test_requests_are_gathered(model):
    """Single rows from eight clients: each has its own answer, and the model runs less often than it is asked."""
    with server(model, "--batch-delay", "20ms") as (_, port):
        x, y = (np.concatenate([inputs(seed)[k] for seed in range(8)]) for k in range(2))
        want, wrong = right(x, y), []

        def client(first):
            for row in range(first, len(x), 8):
                tensors = [
                    {"name": n, "shape": [1, 64], "datatype": "FP32", "data": v[row].tolist()}
                    for n, v in (("x", x), ("y", y))
                ]
                status, body, _ = ask(port, "POST", "/v2/models/net/infer", json.dumps({"inputs": tensors}))
                softmax, most = (np.array(one["data"]) for one in json.loads(body)["outputs"])
                if status != 200 or most.shape != (1,) or not np.allclose(softmax, want[row], rtol=1e-5):
                    wrong.append((row, body))

        clients = [threading.Thread(target=client, args=(first,)) for first in range(8)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert not wrong, wrong[0]
        np.testing.assert_allclose(by_bytes(port, x[:4], y[:4])[0], want[:4], rtol=1e-5)  # a batch that is full
        told = batches(port)
        assert told["collage_batch_rows_sum"] == len(x) + 4
        assert told["collage_batch_requests_sum"] == len(x) + 1 > told["collage_batch_requests_count"]


def test_as_many_rows_as_came_run_at_once(command, tmp_path):
    """A model whose batch is open: requests of one, two and three rows, together more than it was tried with."""
    matrix = np.random.default_rng(5).standard_normal((64, 32)).astype("float32")
    write(
        tmp_path / "net.onnx",
        [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["out"])],
        values(x=["N", 64]), values(out=["N", 32]), weights(w=matrix),
    )  # fmt: skip
    done = command(
        "compile", tmp_path / "net.onnx", "--dynamic", "x:0", "--backends", "tvm", "--level", "operator", "-q",
        "-o", tmp_path / "net.so",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with server(tmp_path / "net.so", "--batch-delay", "300ms") as (_, port):
        wrong, together = [], threading.Barrier(6)

        def client(number):
            x = np.random.default_rng(number).standard_normal((number % 3 + 1, 64)).astype("float32")
            tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist()}
            together.wait()
            status, body, _ = ask(port, "POST", "/v2/models/net/infer", json.dumps({"inputs": [tensor]}))
            said = json.loads(body)["outputs"][0] if status == 200 else {"shape": [], "data": []}
            right = np.maximum(x @ matrix, 0)
            if said["shape"] != list(right.shape) or not np.allclose(said["data"], right.ravel(), rtol=1e-4, atol=1e-4):
                wrong.append((number, body))

        clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert not wrong, wrong[0]
        told = batches(port)
        assert told["collage_batch_rows_sum"] == 2 * (1 + 2 + 3)
        assert told["collage_batch_requests_sum"] == 6 > told["collage_batch_requests_count"]


def test_a_model_that_mixes_rows_is_not_gathered_for(command, tmp_path):
    (tmp_path / "net.relay").write_text(
        '#[version = "0.0.5"]\ndef @main(%x: Tensor[(4, 64), float32]) { nn.softmax(%x, axis=0) }\n'
    )
    done = command(
        "compile", tmp_path / "net.relay", "--backends", "tvm", "--level", "operator", "-q", "-o", tmp_path / "net.so"
    )
    assert done.returncode == 0, done.stderr
    done = command("serve", tmp_path / "net.so", "--listen", "127.0.0.1:0", "--batch-delay", "1ms", timeout=60)
    assert done.returncode == 2 and "--batch-delay: " in done.stderr and "mixes rows" in done.stderr, done.stderr


def resident(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


def test_eight_clients_and_bad_ones(model):
    """Each gets the answers to its own questions, whatever others send; memory does not grow with requests."""
    with server(model, "--executors", 3) as (process, port):
        wrong = []

        def client(number):
            try:
                for turn in range(40):
                    x, y = inputs(100 * number + turn)
                    softmax = by_bytes(port, x, y)[0]
                    np.testing.assert_allclose(softmax, right(x, y), rtol=1e-5)
            except BaseException as error:
                wrong.append(error)

        def all_clients():
            threads = [threading.Thread(target=client, args=[number]) for number in range(8)]
            for thread in threads:
                thread.start()
            for what in (b"{", b"\x00" * 100, b'{"inputs": []}'):
                assert ask(port, "POST", "/v2/models/net/infer", what)[0] == 400
            for _ in range(10):  # clients that vanish in the middle of a request
                with socket.create_connection(("127.0.0.1", port)) as gone:
                    gone.sendall(b"POST /v2/models/net/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            for thread in threads:
                thread.join()

        all_clients()
        before = resident(process)
        all_clients()
        assert not wrong
        assert resident(process) < before + (64 << 20)
        _, metrics, _ = ask(port, "GET", "/metrics")
        assert b'collage_requests_total{code="200",model="net"} 640' in metrics
        assert b'collage_requests_total{code="400",model="net"} 6' in metrics


def test_what_was_asked_before_the_end_is_answered(model):
    """SIGTERM under load: each request is answered in full, or was not taken."""
    with server(model, "--executors", 2) as (process, port):
        answered, refused, wrong = [], [], []

        def client(number):
            for turn in range(100000):
                x, y = inputs(1000 * number + turn)
                try:
                    softmax = by_bytes(port, x, y)[0]
                except (ConnectionRefusedError, ConnectionResetError, AssertionError) as error:
                    if isinstance(error, AssertionError) and "shut down" not in str(error):
                        wrong.append(error)
                    refused.append(error)
                    return
                except BaseException as error:
                    wrong.append(error)
                    return
                if not np.allclose(softmax, right(x, y), rtol=1e-4):
                    wrong.append(number)
                answered.append(turn)

        threads = [threading.Thread(target=client, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        while len(answered) < 60:
            time.sleep(0.01)
            assert not wrong
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert not wrong and len(refused) == 6
        assert process.wait(timeout=60) == 0


def test_failures(model, command, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        for arguments, said in (
            ((model, "--listen", busy), "address already in use"),
            ((model, "--listen", "here"), "give it as HOST:PORT"),
            ((model, "--name", "a b"), "a name has letters, digits"),
            ((model, "--executors", "0"), "--executors 0: from 1"),
            ((tmp_path,), "is a folder without a manifest.json"),
        ):
            done = command("serve", *arguments, timeout=120)
            assert done.returncode == 2 and said in done.stderr, done.stderr
