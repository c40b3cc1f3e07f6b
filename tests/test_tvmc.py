# SPDX-License-Identifier: Apache-2.0
"""Collage as a target of TVM's own driver: compiled by tvmc, run by a tvmc that knows nothing of it."""

import subprocess
import sys
import tarfile

import numpy as np
import pytest
from collage import frontends
from conftest import SAMPLES, environment
from onnx import TensorProto, helper, numpy_helper, save
from test_end_to_end import small_onnx


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache folder, for the user's cost store."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def driver(collage_library, cache, tmp_path):
    """driver(module, *arguments): python -m module, in tmp_path, where no plug-in is found by its name."""

    def run(module, *arguments, code=0, **extra):
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment(**{"XDG_CACHE_HOME": cache, "LD_LIBRARY_PATH": "", **extra}),
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize("options", ["", " -only=dnnl", " -backends=tvm+dnnl"])
def test_tvmc_compiles_and_runs(driver, tmp_path, options):
    small_onnx(tmp_path / "small.onnx")
    x = np.random.default_rng(20).standard_normal((1, 3, 16, 16), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    target = f"collage -samples={SAMPLES} -rpath=1{options}, llvm"
    compile_ = ["compile", "--target", target, "--input-shapes", "x:[1,3,16,16]", "--opt-level", "3"]
    driver("collage.tvmc", *compile_, "-o", "model.tar", "small.onnx")
    driver("tvm.driver.tvmc", "run", "--inputs", "x.npz", "--outputs", "y.npz", "model.tar", PYTHONPATH="")
    if "only" in options:
        with tarfile.open(tmp_path / "model.tar") as tar:
            assert b"libcollage_dnnl.so" in tar.extractfile("mod.so").read()
    from tvm import relay

    model = frontends.load(tmp_path / "small.onnx", input_shapes={"x": (1, 3, 16, 16)})
    expected = relay.create_executor("graph", model.module).evaluate()(x).numpy()
    with np.load(tmp_path / "y.npz") as outputs:
        np.testing.assert_allclose(outputs["output_0"], expected, rtol=1e-4, atol=1e-6)


def with_normalisation(path):
    """A convolution with a normalisation behind it, which is folded into its weights, and a dense layer."""
    rng = np.random.default_rng(0)
    shapes = {"w": (8, 3, 3, 3), "s": (8,), "b": (8,), "m": (8,), "v": (8,), "d": (10, 8)}
    weights = [
        numpy_helper.from_array(np.abs(rng.standard_normal(shape)).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "d"], ["y"], transB=1),
        helper.make_node("Erf", ["y"], ["z"]),
    ]
    x, z = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 16, 16]), ("z", [1, 10]))
    )
    graph = helper.make_graph(nodes, "normalised", [x], [z], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def test_it_dumps_what_was_offloaded(driver, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    driver("collage.tvmc", "compile", "--target", "collage -only=dnnl, llvm", "--dump-offloads", "told.txt", "-o",
           "model.tar", "net.onnx")  # fmt: skip
    told = (tmp_path / "told.txt").read_text().splitlines()
    where = {}
    for line in told:
        for operator in ("nn.conv2d", "nn.relu", "nn.dense", "erf"):
            if f"{operator}(" in line:
                where[operator] = line.split()[0]
    assert where == {
        "nn.conv2d": "collage_dnnl",
        "nn.relu": "collage_dnnl",
        "nn.dense": "collage_dnnl",
        "erf": "generic",
    }


def test_the_command_is_tvmc(command, cache, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    settings = {"cwd": tmp_path, "environment": {"XDG_CACHE_HOME": cache, "LD_LIBRARY_PATH": ""}}
    target = "--target=collage -only=dnnl, llvm"
    done = command("tvmc", "compile", target, "-o", "model.tar", "net.onnx", **settings)
    assert done.returncode == 0, done.stderr
    with tarfile.open(tmp_path / "model.tar") as tar:
        assert sorted(tar.getnames()) == ["mod.json", "mod.params", "mod.so"]
    done = command("tvmc", "run", "--fill-mode", "random", "--print-time", "model.tar", **settings)
    assert done.returncode == 0 and "mean (ms)" in done.stdout, done.stderr
    assert "usage: tvmc run" in command("tvmc", "run", "--help", **settings).stdout
    assert command("tvmc", "--help", **settings).stdout == command("help", "tvmc").stdout


def test_options_of_the_target(driver, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    for options, why in (
        (" -bakends=tvm", "the target collage has no option bakends (options: backends, devices, pin,"),
        (" -threads=many", "-threads=many of the target collage: it is a whole number"),
        (" -search_time=x", "-search_time=x of the target collage: it is a number"),
        (" -exact=perhaps", "-exact=perhaps of the target collage: it is 1 or 0"),
        (" -rpath=perhaps", "-rpath=perhaps of the target collage: it is 1 or 0"),
        (" --level", "-level of the target collage needs a value, as in -level=VALUE"),
        (" -level=operator -trials=3 -strict=1", "strict: trials: no effect"),
        (" -backends=tvm+dnll", "dnll"),
    ):
        done = driver(
            "collage.tvmc", "compile", "--target", f"collage{options}, llvm", "-o", "x.tar", "net.onnx", code=2
        )
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("collage: error: "), done.stderr
        assert why in done.stderr
        assert not (tmp_path / "x.tar").exists()


def test_what_a_target_cannot_say_stands_in_the_pass_context(driver, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    store = tmp_path / "of this test" / "costs.jsonl"
    target = f"collage -backends=tvm+dnnl -level=operator -samples={SAMPLES} -rounds=2, llvm"
    driver("collage.tvmc", "compile", "--target", target, "--pass-config", f"collage.store={store}", "-o", "x.tar",
           "net.onnx")  # fmt: skip
    assert store.stat().st_size > 0


def test_what_is_tuned_is_placed_with_its_records(driver, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    tune = ["tune", "--target", "collage -only=dnnl, llvm", "--tuner", "random", "--trials", 2, "--repeat", 1]
    driver("collage.tvmc", *tune, "--number", 1, "-o", "none.json", "net.onnx")
    driver("collage.tvmc", *tune[:2], "llvm", *tune[3:], "--number", 1, "-o", "records.json", "net.onnx")
    assert (tmp_path / "records.json").stat().st_size > 0
    store = tmp_path / "costs.jsonl"
    target = f"collage -backends=tvm+dnnl -level=operator -samples={SAMPLES} -rounds=2, llvm"
    driver("collage.tvmc", "compile", "--target", target, "--pass-config", f"collage.store={store}",
           "--tuning-records", "records.json", "-o", "x.tar", "net.onnx")  # fmt: skip
    assert "tuned" in store.read_text(), "the costs are those of other records"
    # Records of the auto-scheduler say nothing of what is measured.
    (tmp_path / "other.json").write_text('{"i": [["x"]], "r": [[0.1], 0, 0.1, 1], "v": "v0.6"}\n')
    done = driver("collage.tvmc", "compile", "--target", target, "--tuning-records", "other.json", "-o", "y.tar",
                  "net.onnx", code=2)  # fmt: skip
    assert "tuning_log" in done.stderr and not (tmp_path / "y.tar").exists()


def test_another_machines_libraries_are_not_linked(driver, tmp_path):
    with_normalisation(tmp_path / "net.onnx")
    done = driver("collage.tvmc", "compile", "--target", "collage -only=dnnl, llvm", "--cross-compiler", "g++", "-o",
                  "x.tar", "net.onnx", code=4)  # fmt: skip
    assert "what is placed on collage_dnnl is linked with libraries of this machine" in done.stderr


def test_it_places_as_tvms_own_functions_do(collage_library):
    import collage
    import tvm
    from tvm import relay

    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(8, 8))
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.exp(relay.nn.dense(x, w))))
    weights = {"w": tvm.nd.array(np.ones((8, 8), "float32"))}
    placed = collage.partition_for_collage(module, weights, only="dnnl", threads=1)
    assert "collage_dnnl" in {str((f.attrs or {}).get("Compiler", "")) for f in placed.functions.values()}
    assert len(placed["main"].params) == 1


def test_spans_are_kept():
    import tvm
    from collage import spans
    from tvm import relay

    def network(mark, gelu=False):
        x = relay.var("x", shape=(4, 8), dtype="float32")
        span = tvm.ir.Span(tvm.ir.SourceName("here"), 1, 1, 1, 1) if mark else None
        first = relay.Call(tvm.ir.Op.get("exp"), [x], None, [], span)
        more = relay.tanh(first)
        return relay.transform.InferType()(tvm.IRModule.from_expr(relay.exp(more) if gelu else more))

    def names(module):
        found = []
        relay.analysis.post_order_visit(
            module["main"],
            lambda e: found.append(e.span and str(e.span.source_name.name)) if isinstance(e, relay.Call) else 0,
        )
        return found

    assert names(spans.kept(network(True), network(False))) == ["here", None]
    other = network(False, gelu=True)  # which of two it was cannot be told
    assert spans.kept(network(True), other).same_as(other)
