# SPDX-License-Identifier: Apache-2.0
"""Who is told how far Collage is: a function of the user's, a bar in a notebook, the log; and warnings."""

import logging
import subprocess
import sys
import types

import numpy as np
import pytest
from conftest import SAMPLES, environment

QUICK = {"search_time": 20, "samples": SAMPLES, "threads": 1, "backends": ["tvm", "dnnl"]}


@pytest.fixture(scope="module")
def collage(collage_library):
    import collage

    return collage


def network(width=24):
    import tvm
    from tvm import relay

    x, w = relay.var("x", shape=(2, width)), relay.const(np.ones((8, width), "float32"))
    return tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w))))


@pytest.mark.parametrize("what", ["partition", "plan", "compile", "compile to a file", "replay"])
def test_a_function_is_told(what, collage, store, tmp_path):
    heard = []
    options = {**QUICK, "store": store, "progress": heard.append}
    if what == "plan":
        collage.plan(network(), **options)
    elif what == "replay":
        collage.partition(network(), only="dnnl", plan_out=tmp_path / "plan.json", store=store)
        collage.replay(network(), tmp_path / "plan.json", store=store, progress=heard.append)
    elif what == "partition":
        collage.partition(network(), **options, level="operator")
    else:
        out = tmp_path / "model.so" if "file" in what else None
        collage.compile(network(), **options, level="operator", rounds=2, out=out)
    assert all(isinstance(one, collage.progress.Progress) for one in heard)
    begun = [one.step for one in heard if not one.done and not one.finished and not one.note]
    ended = [one.step for one in heard if one.finished]
    # Each step that began is over, and its last word is its result.
    assert set(begun) == set(ended) and len(ended) > 1
    results = {one.step: one.result for one in heard if one.finished}
    assert any(results.values())
    assert collage.progress._listeners == {}


@pytest.mark.parametrize("call", ["partition", "partition with a plan", "plan"])
def test_a_function_is_told_where_nothing_is_run(call, collage, store, tmp_path):
    heard = []
    options = {"plan_out": tmp_path / "plan.json"} if "with" in call else {}
    getattr(collage, call.split()[0])(network(), only="dnnl", store=store, progress=heard.append, **options)
    assert [(one.step, one.finished) for one in heard] == [("placing", False), ("placing", True)]
    assert ("all that dnnl takes" if call == "partition" else "candidates") in heard[-1].result


def test_what_a_function_raises_ends_it(collage, store, tmp_path):
    class EnoughError(Exception):
        pass

    heard = []

    def enough(progress):
        heard.append(progress)
        raise EnoughError("that will do")

    out = tmp_path / "model.so"
    with pytest.raises(EnoughError, match="that will do"):
        collage.compile(network(), **QUICK, store=store, out=out, progress=enough)
    assert len(heard) == 1 and list(tmp_path.iterdir()) == []
    with pytest.raises(EnoughError):
        collage.partition(network(), **QUICK, store=store, progress=enough)
    # And the next one is not told.
    collage.partition(network(), **QUICK, store=store, level="operator")


def test_the_log_has_what_was_found(collage, store, caplog):
    with caplog.at_level(logging.INFO, logger="collage"):
        collage.partition(network(), **QUICK, store=store, level="operator")
    assert {record.name for record in caplog.records} == {"collage"}
    assert "placed at the operator level" in caplog.text
    assert "running whole networks: " in caplog.text
    caplog.clear()
    collage.partition(network(), **QUICK, store=store, level="operator")
    assert caplog.records == []


WARNS = """
import logging, sys
import collage, tvm
if sys.argv[1] == "root":
    logging.basicConfig(format="%(name)s-%(levelname)s-%(message)s")
if sys.argv[1] == "own":
    logging.getLogger("collage").addHandler(logging.StreamHandler(sys.stdout))
collage.library.load()
tvm.get_global_func("collage.host.log")("warning", "mind this")
logging.getLogger("collage").info("not this")
"""


@pytest.mark.fast
@pytest.mark.parametrize(
    "way, shown, said",
    [
        ("none", "", "collage: warning: mind this\n"),
        ("root", "", "collage-WARNING-mind this\n"),
        ("own", "mind this\n", ""),
    ],
)
def test_warnings_are_said_once(way, shown, said, collage_library):
    done = subprocess.run(
        [sys.executable, "-c", WARNS, way], capture_output=True, text=True, timeout=300, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, shown, said)


def test_bars_in_a_notebook(collage, store, monkeypatch):
    """With stand-ins for IPython and tqdm: a bar for each step, whose last state is its end."""
    bars, lines = [], []

    class Bar:
        def __init__(self, desc, total, unit):
            self.desc, self.total, self.unit, self.n, self.closed = f"{desc}: ", total, unit, 0, False
            bars.append(self)

        def set_postfix_str(self, text, refresh):
            self.postfix = text

        def update(self, more):
            self.n += more

        def close(self):
            self.closed = True

        write = staticmethod(lines.append)

    shell = types.SimpleNamespace(kernel=object())
    ipython, tqdm, auto = (types.ModuleType(name) for name in ("IPython", "tqdm", "tqdm.auto"))
    ipython.get_ipython, auto.tqdm, tqdm.auto = lambda: shell, Bar, auto
    tqdm.__spec__ = types.SimpleNamespace(name="tqdm")
    for module in (ipython, tqdm, auto):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    collage.partition(network(), **QUICK, store=store, level="operator", progress=True)
    assert bars and all(bar.closed for bar in bars)
    assert any(bar.desc == "running whole networks: " and bar.unit == "s" for bar in bars)
    assert all(bar.n <= (bar.total or 0) for bar in bars)


def test_shown_on_the_standard_error(collage, store, capfd):
    collage.plan(network(32), **QUICK, store=store, progress=True)
    shown = capfd.readouterr().err
    assert "running whole networks" in shown
    collage.plan(network(32), **QUICK, store=store)
    assert capfd.readouterr().err == ""
