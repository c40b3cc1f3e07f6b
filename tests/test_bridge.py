# SPDX-License-Identifier: Apache-2.0
"""The border between Python and Go, seen from Python: values, errors, lifetimes, threads, exit, Ctrl-C.

Each test runs in a process of its own. test_guards.py has the guards against fork and a second copy.
"""

import subprocess
import sys
import textwrap

import pytest
from conftest import environment, run_python
from interrupts import REACHED_BY_CTRL_C

PRELUDE = """
import gc, json, os, sys, threading, weakref
import numpy as np
import tvm
from collage import library
library.load()

def function(name):
    return tvm.get_global_func("collage.bridge." + name)

call = function("Call")

def live():
    gc.collect()
    function("Collect")()
    gc.collect()
    return {str(kind): int(count) for kind, count in function("LiveHandles")().items()}
"""


@pytest.fixture
def python(collage_library):
    """Run a program with TVM and libcollage in it; gives the finished process."""

    def run(program, before="", timeout=120, check=True):
        result = subprocess.run(
            [
                *REACHED_BY_CTRL_C,
                sys.executable,
                "-c",
                textwrap.dedent(before) + PRELUDE + textwrap.dedent(program),
            ],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(),
        )
        if check:
            assert result.returncode == 0, result.stderr
        return result

    return run


def test_values_through_go(python):
    python(
        """
        same = lambda x: x
        for value in [None, 7, -1.5, True, False, "", "grüße", bytearray(b"a\\0b")]:
            assert call(same, value) == value, value
        assert type(call(same, True)) is bool and type(call(same, 1)) is int
        assert list(call(same, [1, "two", [3.5]])[2]) == [3.5]
        assert dict(call(same, {"a": 1})) == {"a": 1}
        array = tvm.nd.array(np.arange(6, dtype="float32").reshape(2, 3))
        assert call(same, array).handle.contents.data == array.handle.contents.data
        var = tvm.relay.var("x", shape=(1, 3))
        assert call(same, var).same_as(var)
        assert call(lambda device: str(device), tvm.cpu(0)) == "cpu(0)"
        assert call(call, call, same, 5) == 5
        """
    )


def test_a_python_exception_survives_the_trip(python):
    python(
        """
        class Mine(Exception):
            pass

        error = Mine("mine", 42)

        def fail():
            raise error

        for f in (lambda: call(fail), lambda: call(call, fail), lambda: call(call, call, fail)):
            try:
                f()
            except Mine as caught:
                assert caught is error, caught
            else:
                assert False
        """
    )


def test_errors_have_pythons_classes(python):
    python(
        """
        def expect(kind, text, *args):
            try:
                call(*args)
            except kind as error:
                assert text in str(error), error
            else:
                assert False, args

        # An error of Go's own reads as it was written, without TVM's stack.
        try:
            call("no function")
        except TypeError as error:
            assert str(error) == "expected a function, got string", error

        expect(TypeError, "expected a function, got string", "no function")
        expect(TypeError, "wants a function")
        expect(tvm.error.InternalError, "out of bound", tvm.get_global_func("runtime.ArrayGetItem"),
               tvm.runtime.convert([1]), 5)
        """
    )


def test_nothing_leaks_on_either_side(python):
    python(
        """
        class Mine(Exception):
            pass

        class Held:
            pass

        def round_trip(refs):
            held = Held()
            refs.append(weakref.ref(held))
            call(lambda x: (held, x)[1], tvm.relay.var("x", shape=(2,)))
            call(lambda x: x, [tvm.nd.array(np.zeros(4)), "text", {"k": 1}])

            def fail():
                raise Mine(held)

            try:
                call(fail)
            except Mine:
                pass

        round_trip([])
        before = live()
        refs = []
        for _ in range(1000):
            round_trip(refs)
        after = live()
        assert before == after, (before, after)
        alive = sum(ref() is not None for ref in refs)
        assert alive == 0, alive
        """
    )


def test_threads(python):
    python(
        """
        failed, finished = [], []

        def work(number):
            for i in range(300):
                if call(lambda x: x, f"{number}.{i}") != f"{number}.{i}":
                    failed.append((number, i))
                try:
                    call(f"not a function {number}")
                except TypeError:
                    continue
                failed.append((number, i))
            finished.append(number)  # an error of another class ends the thread before

        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failed, failed[:3]
        assert sorted(finished) == list(range(6)), finished
        """
    )


def test_exit_while_go_holds_python(python):
    result = python(
        """
        class Loud:
            def __del__(self):
                pass

        loud = Loud()
        registered = tvm.register_func("collage.test.held", lambda: loud)
        for i in range(200):
            call(lambda: (loud, i)[1])
            try:
                call(lambda: 1 / 0)
            except ZeroDivisionError:
                pass
        print("done")
        """
    )
    assert result.stdout.strip() == "done"
    assert result.stderr == ""


def test_exit_while_go_gives_something_back(python):
    """The interpreter ends while Go's collector drops a Python object that takes its time: it is waited for."""
    result = python(
        """
        import time
        begun = threading.Event()

        class Slow:
            def __del__(self):
                begun.set()
                time.sleep(0.5)
                print("given back", flush=True)

        def leave(slow):
            call(lambda x: slow and x, 1)

        leave(Slow())
        for _ in range(100000):
            if begun.wait(0.001):
                break
            call(lambda x: x, bytearray(100000))  # so that Go's collector runs
        print("exit", flush=True)
        """
    )
    assert result.stdout.split("\n") == ["exit", "given back", ""]
    assert result.stderr == ""


def test_ctrl_c_reaches_go(python):
    python(
        """
        import signal
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            function("Wait")(3600.0)  # longer than the test may last
        except KeyboardInterrupt:
            pass
        else:
            assert False

        # TVM's own look at signals, in a call that Go makes.
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            call(tvm.get_global_func("testing.run_check_signal"), 3600)
        except KeyboardInterrupt:
            pass
        else:
            assert False

        class Stop(Exception):
            pass

        def handler(number, frame):
            raise Stop("from the handler")

        signal.signal(signal.SIGUSR1, handler)
        try:
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            function("Wait")(3600.0)
        except Stop as error:
            assert str(error) == "from the handler"
        else:
            assert False
        """
    )


def test_a_crash_is_still_pythons_to_report(python):
    """faulthandler, switched on before Collage is loaded, still says where a crash in C happened."""
    result = python(
        "import ctypes; ctypes.string_at(0)",
        before="import faulthandler; faulthandler.enable()",
        check=False,
    )
    assert result.returncode != 0
    assert "Segmentation fault" in result.stderr or "SIGSEGV" in result.stderr


# Sets a variable, takes one away, and asks what a backend makes of it.
VARIABLES = """
import json, os, sys
os.environ["COLLAGE_OPENBLAS_LIBRARY"] = "/nowhere/libopenblas.so"
del os.environ["COLLAGE_MKL_LIBRARY"]
import collage, tvm
said = {}
for name in ("openblas", "mkl"):
    try:
        tvm.get_global_func("collage.install")("collage_" + name)
        said[name] = ""
    except Exception as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.mark.fast
def test_variables_that_python_sets_before_the_import_count():
    """Go by itself knows those that the process was started with."""
    said = run_python(VARIABLES, COLLAGE_MKL_LIBRARY="/elsewhere/libmkl_rt.so.2")
    assert "COLLAGE_OPENBLAS_LIBRARY is /nowhere/libopenblas.so, which is no file" in said["openblas"]
    assert "/elsewhere" not in said["mkl"]
