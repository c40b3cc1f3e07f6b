# SPDX-License-Identifier: Apache-2.0
"""collage.Executable: what collage.compile and collage.load give is run, timed and saved in one way."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import PLUGINS, SAMPLES, environment

QUICK = {"level": "operator", "search_time": 20, "samples": SAMPLES, "rounds": 2, "threads": 1}


@pytest.fixture(scope="module")
def collage(collage_library):
    import collage

    return collage


def network():
    """(module, weights): a dense layer and a softmax, two inputs of two types."""
    import tvm
    from tvm import relay

    x, scale = relay.var("x", shape=(2, 16)), relay.var("scale", shape=(), dtype="float32")
    w = relay.var("w", shape=(8, 16))
    out = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w)) * scale)
    weights = {"w": np.random.default_rng(0).standard_normal((8, 16), dtype="float32")}
    return tvm.IRModule.from_expr(relay.Function([x, scale, w], relay.Tuple([out, relay.sum(out)]))), weights


X = np.random.default_rng(1).standard_normal((2, 16), dtype="float32")
GIVEN = {"x": X, "scale": np.float32(2)}


def right(scale=2.0, x=X):
    raw = np.maximum(x @ network()[1]["w"].T, 0) * scale
    exp = np.exp(raw - raw.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def holds(outputs, **given):
    assert len(outputs) == 2 and all(isinstance(one, np.ndarray) for one in outputs)
    np.testing.assert_allclose(outputs[0], right(**given), rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module", params=[".so", ".tar"])
def written(request, collage, store, tmp_path_factory):
    """An Executable in a file, of a search."""
    out = tmp_path_factory.mktemp("executable") / f"model{request.param}"
    module, weights = network()
    return collage.compile(module, weights, out=out, backends=["tvm", "dnnl"], store=store, **QUICK)


@pytest.fixture(scope="module")
def here(collage):
    """An Executable in no file."""
    module, weights = network()
    return collage.compile(module, weights, only="dnnl")


def test_what_is_compiled_runs(collage, written):
    assert isinstance(written, collage.Executable)
    holds(written.run(GIVEN))
    holds(written.run(x=X, scale=np.float32(3)), scale=3.0)
    holds(written.run(GIVEN | {"x": 2 * X}), x=2 * X)
    holds(written.run(), x=2 * X)  # those of before
    assert written.inputs == {"x": ((2, 16), "float32"), "scale": ((), "float32")}


def test_it_goes_where_a_path_does(collage, written, command):
    assert str(written) == os.fspath(written) and os.path.isfile(written)
    assert command("run", written, "--repeat", 1).returncode == 0
    holds(collage.load(written).run(GIVEN))


def test_its_plan_is_that_of_the_search(collage, written):
    plan = written.plan
    assert isinstance(plan, collage.Plan)
    assert [one["name"] for one in plan.finalists if one.get("chosen")]
    assert all(len(one["samples_ms"]) >= 1 for one in plan.finalists)
    with pytest.raises(ValueError, match=r"was loaded, .* does not hold its plan; collage\.Plan\(FILE\)"):
        _ = collage.load(written).plan


def test_it_is_saved_as_it_is(collage, written, tmp_path):
    copy = tmp_path / f"copy{written.path.suffix}"
    saved = written.save(copy)
    assert copy.read_bytes() == written.path.read_bytes() and list(tmp_path.iterdir()) == [copy]
    assert os.access(copy, os.X_OK) == os.access(written, os.X_OK)
    assert saved.path == copy and saved.plan.text == written.plan.text
    holds(saved.run(GIVEN))
    other = {".so": ".tar", ".tar": ".so"}[copy.suffix]
    with pytest.raises(ValueError, match=f"copy{copy.suffix} cannot be saved as .*: a {copy.suffix} stays one"):
        saved.save(tmp_path / f"other{other}")
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        saved.save(tmp_path / "nowhere" / copy.name)
    (tmp_path / "new").write_bytes(b"something else")
    os.replace(tmp_path / "new", copy)  # written in place, what is mapped would change
    with pytest.raises(ValueError, match="is another file now"):
        saved.save(tmp_path / f"again{copy.suffix}")
    assert list(tmp_path.iterdir()) == [copy]


def test_without_a_file_it_runs_here(collage, here, tmp_path):
    import tvm
    from tvm.contrib import graph_executor

    holds(here.run(GIVEN))
    assert sum(one["backend"] == "dnnl" for one in here.plan.regions) >= 1
    executor = graph_executor.GraphModule(here["default"](tvm.cpu()))  # as TVM's factory
    executor.run(**GIVEN)
    holds([executor.get_output(0).numpy(), executor.get_output(1).numpy()])
    assert here.get_lib() is not None and here.path is None and "in this process" in str(here)
    with pytest.raises(TypeError, match=r"in no file: save\(path\)"):
        os.fspath(here)
    with pytest.raises(AttributeError, match=r"Executable nor .* has get_rich"):
        collage.load(here.save(tmp_path / "x.so")).get_rich()


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_what_is_in_no_file_is_saved(collage, here, tmp_path, suffix):
    saved = here.save(tmp_path / f"model{suffix}")
    holds(collage.load(saved).run(GIVEN))
    assert saved.plan.text == here.plan.text
    holds(here.run(GIVEN))  # and still runs itself


def test_a_plan_is_built(collage, here, tmp_path):
    module, weights = network()
    again = collage.compile(module, weights, plan=here.plan.text, verify=False)
    assert again.plan.text == here.plan.text
    holds(again.run(GIVEN))


def test_times_are_tvms_benchmark_result(written):
    from tvm.runtime.module import BenchmarkResult

    result = written.benchmark(GIVEN, repeat=7, number=2, min_repeat_ms=0)
    assert isinstance(result, BenchmarkResult) and len(result.results) == 7
    assert 0 < result.min <= result.median <= result.max < 1, "seconds"
    assert result.min <= result.mean <= result.max and result.std >= 0
    assert len(written.benchmark().results) == 10
    holds(written.run(), scale=2.0)  # on the inputs that it was given
    for name in ("repeat", "number"):
        with pytest.raises(ValueError, match=f"{name} is 0"):
            written.benchmark(**{name: 0})


def test_times_without_inputs_are_of_random_ones(collage, written):
    fresh = [collage.load(written) for _ in range(2)]
    for one in fresh:
        one.benchmark(repeat=1, min_repeat_ms=0)
    first, second = (one.run() for one in fresh)
    np.testing.assert_array_equal(first[0], second[0])
    assert np.isfinite(first[0]).all()


def test_inputs_that_do_not_fit_are_refused(collage, written):
    fresh = collage.load(written)
    for inputs, why in (
        ({"x": X, "scales": np.float32(2)}, "no input 'scales': did you mean 'scale'?"),
        ({"x": X, "zzz": 0}, r"no input 'zzz' \(it takes: scale float32 \[\]; x float32 \[2, 16\]\)"),
        (
            {"x": X.astype("float64")},
            r"'x' is float64, the model takes float32 \(convert it with \.astype\('float32'\)\)",
        ),
        ({"x": X[:1]}, r"'x' has the shape \[1, 16\], the model takes \[2, 16\]"),
        ({"x": X[0]}, r"'x' has the shape \[16\], the model takes \[2, 16\]"),
        ({"x": [[1.0] * 16] * 2}, "'x' is float64"),
        ({"x": X}, "'scale' is missing"),
        ({}, "'scale' is missing|'x' is missing"),
    ):
        with pytest.raises(ValueError, match=why):
            fresh.run(inputs)
    with pytest.raises(TypeError, match=r"give them by name, as \{name: array\}"):
        fresh.run(X)
    with pytest.raises(ValueError, match="'x' is given twice"):
        fresh.run({"x": X}, x=X)
    with pytest.raises(ValueError, match="is missing"):
        collage.load(written).run()


def test_what_is_refused_changes_nothing(written):
    before = written.run(GIVEN)
    with pytest.raises(ValueError, match="'scale' is float64"):
        written.run(x=5 * X, scale=np.float64(2))
    np.testing.assert_array_equal(written.run()[0], before[0])


def test_inputs_are_set_one_by_one(collage, written):
    fresh = collage.load(written)
    fresh.set_input("x", X)
    with pytest.raises(ValueError, match="'scale' is missing"):
        fresh.run()
    with pytest.raises(ValueError, match="has the shape"):
        fresh.set_input("scale", X)
    with pytest.raises(ValueError, match="no input 'y'"):
        fresh.set_input(y=X)
    number = int(fresh.module["get_input_index"]("scale"))
    fresh.set_input(number, np.float32(4))
    holds(fresh.run(), scale=4.0)
    with pytest.raises(ValueError, match="no input 99"):
        fresh.set_input(99, X)


def test_a_package_is_loaded(collage, written, command, tmp_path):
    done = command("package", written, "-o", tmp_path / "model")
    assert done.returncode == 0, done.stderr
    loaded = collage.load(tmp_path / "model")
    holds(loaded.run(GIVEN))
    with pytest.raises(ValueError, match="is a package: copy the folder"):
        loaded.save(tmp_path / "model.so")
    (tmp_path / "model" / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"a folder without a manifest\.json, so collage package did not write it"):
        collage.load(tmp_path / "model")


def test_open_dimensions(collage, tmp_path):
    """TVM's virtual machine runs it, at any size."""
    import tvm
    from tvm import relay

    x = relay.var("x", shape=(relay.Any(), 16), dtype="float32")
    module = tvm.IRModule.from_expr(relay.nn.relu(x))
    made = collage.compile(module, out=tmp_path / "open.so", only="tvm")
    assert made.inputs == {"x": ((-1, 16), "float32")}
    for rows in (1, 5):
        given = np.arange(-8, 16 * rows - 8, dtype="float32").reshape(rows, 16)
        np.testing.assert_array_equal(made.run(x=given)[0], np.maximum(given, 0))
    with pytest.raises(ValueError, match=r"has the shape \[5, 15\], the model takes \[\?, 16\]"):
        made.run(x=given[:, 1:])
    assert len(made.benchmark(repeat=3, min_repeat_ms=1).results) == 3
    fresh = collage.load(made)
    fresh.set_input(0, given)
    assert fresh.run()[0].shape == (5, 16)
    assert collage.load(made).benchmark(repeat=1).mean > 0, "random inputs of the sizes at which it is tried"


def test_what_is_no_model_is_told(collage, written, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no model"):
        collage.load(tmp_path / "nowhere.so")
    for name in ("text.so", "text.tar"):
        (tmp_path / name).write_text("no model")
        with pytest.raises(ValueError, match=r"is neither a \.tar nor a \.so that collage compile or tvmc wrote"):
            collage.load(tmp_path / name)
    cut = tmp_path / f"cut{written.path.suffix}"
    cut.write_bytes(written.path.read_bytes()[:2000])
    with pytest.raises((ValueError, RuntimeError), match=r"cut short|the archive has 2000|cannot be read"):
        collage.load(cut)


def test_a_plug_in_that_is_missing_is_named(here, tmp_path):
    saved = here.save(tmp_path / "model.so")
    (tmp_path / "plugins").mkdir()
    shutil.copy(PLUGINS / "libcollage_runtime.so", tmp_path / "plugins")
    program = "import collage, sys; collage.load(sys.argv[1])"
    told = subprocess.run(
        [sys.executable, "-c", program, saved],
        capture_output=True,
        text=True,
        env=environment(COLLAGE_PLUGIN_DIR=tmp_path / "plugins", LD_LIBRARY_PATH=""),
    )
    assert told.returncode == 1
    assert "libcollage_dnnl.so" in told.stderr.splitlines()[-1]


@pytest.mark.parametrize("backend", ["tvm", "dnnl"])
def test_a_file_that_is_written_again(collage, backend, tmp_path):
    """The system's loader gives what it has by a name: what was compiled anew is another model nevertheless."""
    import placed
    import tvm
    from tvm import relay

    if backend != "tvm" and backend not in placed.usable():
        pytest.skip(f"{backend} cannot be used here")
    path, made = tmp_path / "model.so", []
    for factor in (2, 3, 4):
        x = relay.var("x", shape=(4, 4))
        out = relay.nn.relu(relay.nn.dense(x, relay.const(factor * np.eye(4, dtype="float32"))))
        module = tvm.IRModule.from_expr(relay.Function([x], out))
        made.append(collage.compile(module, only=backend, store="", out=path, threads=1))
        for number, one in enumerate([*made, collage.load(path)]):
            (got,) = one.run({"x": np.ones((4, 4), "float32")})
            assert (got == min(2 + number, factor)).all(), (factor, number)
