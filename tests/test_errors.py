# SPDX-License-Identifier: Apache-2.0
"""Errors across the border, both ways, and values of all kinds through Go."""

import gc

import numpy as np
import pytest
import tvm

pytestmark = [pytest.mark.usefixtures("loaded"), pytest.mark.fast]


@pytest.fixture(scope="module")
def loaded(collage_library):
    """libcollage in this process."""
    import collage

    return collage.library.load()


def through_go(function, *arguments):
    """Call a Python function: Python -> Go -> Python and back."""
    return tvm.get_global_func("collage.bridge.Call")(tvm.runtime.convert(function), *arguments)


class OddError(Exception):
    """A class of the user's own, with more to it than a text."""

    def __init__(self, text, number):
        super().__init__(text)
        self.number = number


def test_the_users_own_exception_survives():
    thrown = OddError("this went wrong", 42)

    def fail():
        raise thrown

    with pytest.raises(OddError) as caught:
        through_go(fail)
    assert caught.value is thrown
    assert caught.value.number == 42


@pytest.mark.parametrize("kind", [ValueError, KeyError, ZeroDivisionError, NotImplementedError])
def test_pythons_exceptions_survive(kind):
    def fail():
        raise kind("said here")

    with pytest.raises(kind, match="said here"):
        through_go(fail)


def test_two_trips():
    def fail():
        raise OddError("deep", 1)

    call = tvm.get_global_func("collage.bridge.Call")
    with pytest.raises(OddError):
        call(call, tvm.runtime.convert(lambda: call(tvm.runtime.convert(fail))))


def test_errors_of_go_have_pythons_classes():
    make = tvm.get_global_func("collage.transform.CollagePartition")
    with pytest.raises(ValueError, match=r"dnnll.*dnnl"):
        make('{"backends": ["tvm", "dnnll"]}')
    with pytest.raises(TypeError):
        make(7)
    with pytest.raises(ValueError):
        make("{not json")
    with pytest.raises(TypeError):
        tvm.get_global_func("collage.bridge.Call")()


def test_errors_of_tvm_pass_through():
    with pytest.raises(tvm.TVMError):
        through_go(tvm.get_global_func("relay.ir.Var"), 1, 2, 3)


def test_an_error_leaves_nothing_behind():
    counts = tvm.get_global_func("collage.bridge.LiveHandles")
    collect = tvm.get_global_func("collage.bridge.Collect")

    def fail():
        raise OddError("again", 0)

    failing = tvm.runtime.convert(fail)
    call = tvm.get_global_func("collage.bridge.Call")
    for _ in range(3):
        with pytest.raises(OddError):
            call(failing)
    collect()
    before = int(counts()["total"])
    for _ in range(200):
        with pytest.raises(OddError):
            call(failing)
    gc.collect()
    collect()
    assert int(counts()["total"]) <= before


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**62, 1.5, "text", "ümlaut €", "", True, None],
)
def test_plain_values(value):
    assert through_go(lambda x: x, value) == value


def test_values_with_identity():
    array = tvm.nd.array(np.arange(6, dtype="float32").reshape(2, 3))
    np.testing.assert_array_equal(through_go(lambda x: x, array).numpy(), array.numpy())
    expression = tvm.relay.var("x", shape=(2, 3))
    assert through_go(lambda x: x, expression).same_as(expression)
    module = tvm.IRModule.from_expr(expression)
    assert through_go(lambda x: x, module).same_as(module)
    assert through_go(lambda f: f(20), tvm.runtime.convert(lambda x: x + 1)) == 21
    assert str(through_go(lambda x: x, tvm.cpu(0))) == str(tvm.cpu(0))
    assert through_go(lambda x: x, bytearray(b"\0bytes\0")) == bytearray(b"\0bytes\0")
    boxed = through_go(lambda x: x, tvm.runtime.convert([1, "two", [3.0]]))
    assert (int(boxed[0]), str(boxed[1]), float(boxed[2][0])) == (1, "two", 3.0)
