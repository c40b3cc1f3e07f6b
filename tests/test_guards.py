# SPDX-License-Identifier: Apache-2.0
"""What protects a process that holds Go beside Python and TVM: fork, a second copy, the order of exit,
threads.
"""

import shutil
import subprocess
import sys

import pytest
from conftest import environment, run_python

PRELUDE = """
import json, os, sys, time
import collage, tvm
from tvm import relay
def network():
    x = relay.var("x", shape=(1, 8, 14, 14), dtype="float32")
    w = relay.const(__import__("numpy").ones((8, 8, 3, 3), "float32"))
    out = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=8, kernel_size=(3, 3)))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], out)))
def place(module):
    return collage.transform.CollagePartition(backends=["tvm", "dnnl"], only="dnnl")(module)
"""


@pytest.fixture(autouse=True)
def _needs_library(collage_library):
    """All of this is about libcollage."""


def test_a_forked_child_is_refused():
    answer = run_python(
        PRELUDE
        + """
module = network()
place(module)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(read)
    try:
        place(module)
        said = "placed"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    os.write(write, said.encode())
    os._exit(0)
os.close(write)
said = b""
while block := os.read(read, 4096):
    said += block
status = os.waitpid(child, 0)[1]
place(module)
print(json.dumps([status, said.decode()]))
""",
        timeout=120,
    )
    assert answer[0] == 0
    assert "fork" in answer[1]


def test_other_processes_are_fine():
    answer = run_python(
        PRELUDE
        + """
import subprocess
place(network())
code = "import collage, tvm; tvm.get_global_func('collage.transform.CollagePartition')"
from tvm.contrib.popen_pool import PopenWorker
worker = PopenWorker()
worker.send(len, [[1, 2, 3]])
popen = worker.recv()
print(json.dumps([subprocess.run([sys.executable, "-c", code]).returncode, popen]))
"""
    )
    assert answer == [0, 3]


def test_a_second_copy_is_refused(collage_library, tmp_path):
    copy = tmp_path / "libother.so"
    shutil.copy(collage_library, copy)
    answer = run_python(
        PRELUDE
        + """
import ctypes
other = ctypes.CDLL(sys.argv[1])
other.collage_init.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
other.collage_last_error.restype = ctypes.c_char_p
code = other.collage_init(None, None)
place(network())
print(json.dumps([code, other.collage_last_error().decode()]))
""",
        copy,
    )
    assert answer[0] != 0
    assert "already loaded" in answer[1]


def test_loading_twice_is_one_loading():
    assert run_python(PRELUDE + "print(json.dumps(collage.library.load() is collage.library.load()))")


@pytest.mark.parametrize(
    "last",
    [
        "",
        "kept = [collage.transform.CollagePartition(only='dnnl') for _ in range(50)]",
        "result = place(network())",
        "import threading; threading.Thread(target=lambda: place(network())).start()",
        "tvm.register_func('kept', lambda: 1); sys.exit(0)",
        "tvm._kept = [place(network()), tvm.get_global_func('collage.transform.CollagePartition')]",
    ],
)
def test_exit_is_clean(last):
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + last],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_many_threads_at_once():
    answer = run_python(
        PRELUDE
        + """
import threading
done = []
def work():
    for _ in range(5):
        module = place(network())
        done.append(sum("Compiler" in (f.attrs or {}) for f in module.functions.values()))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(done))
"""
    )
    assert answer == [1] * 40


def test_library_that_is_missing_says_so(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", "import collage; collage.partition(None)"],
        capture_output=True,
        text=True,
        env=environment(COLLAGE_LIBRARY=tmp_path / "gone.so"),
    )
    assert result.returncode == 1
    assert "gone.so does not exist: build it" in result.stderr


def test_library_that_is_none_says_so(tmp_path):
    (tmp_path / "bad.so").write_text("not a library")
    said = {}
    for program in ("import collage; collage.partition(None)", "import collage, tvm", "import tvm, collage"):
        result = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment(COLLAGE_LIBRARY=tmp_path / "bad.so"),
        )
        said[program] = result.returncode
        assert "bad.so cannot be loaded" in result.stderr, program
        # Nobody is told that TVM is missing.
        assert "TVM cannot be imported" not in result.stderr, program
    assert list(said.values()) == [1, 0, 0]
