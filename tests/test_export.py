# SPDX-License-Identifier: Apache-2.0
"""What is exported runs under plain TVM; what cannot be written leaves nothing behind."""

import errno
import os
import resource
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import placed
import pytest
import tvm
from collage import export, library, target, transform, virtual_machine
from conftest import PACKAGE, environment, run_python
from tvm import relay
from tvm.contrib import graph_executor

# Runs a model in a process that has TVM and nothing of Collage's on its path, and says what it got mapped.
RUNNER = """
import json, sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
path, inputs, outputs = sys.argv[1:]
executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
executor.set_input(**dict(np.load(inputs)))
executor.run()
np.savez(outputs, *[executor.get_output(i).numpy() for i in range(executor.get_num_outputs())])
assert "collage" not in sys.modules
maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(json.dumps(sorted(maps)))
"""

WEIGHTS = 64


@pytest.fixture(scope="module")
def module():
    x = relay.var("x", shape=(1, WEIGHTS), dtype="float32")
    weight = np.random.default_rng(5).standard_normal((WEIGHTS, WEIGHTS), dtype=np.float32)
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.dense(x, relay.const(weight)))))


@pytest.fixture(scope="module")
def factory(module):
    return export.build(module)


@pytest.fixture(scope="module")
def plugins():
    path = library.plugin_path("runtime")
    assert path, f"there is no runtime plug-in in {PACKAGE / 'lib'}; build it with `make build`"
    return [path]


@pytest.mark.parametrize("suffix", [".so", ".tar"])
@pytest.mark.parametrize("shape", [(3, 0), (0, 3)], ids=str)
def test_a_constant_without_elements(plugins, tmp_path, shape, suffix):
    x = relay.var("x", shape=(3, 4), dtype="float32")
    empty = relay.const(np.zeros(shape, "float32"))
    both = relay.concatenate([x, relay.nn.relu(empty)], axis=shape.index(0)) if shape[0] else relay.nn.relu(empty)
    module = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([both, empty, x + x])))
    path = tmp_path / f"model{suffix}"
    export.write(export.build(module), path, plugins, 2)
    value = np.arange(12, dtype="float32").reshape(3, 4)
    executor = placed.load(path)
    first, second, third = placed.run(executor, value)
    # As tvmc has it, which builds by itself.
    with tvm.transform.PassContext(opt_level=3):
        export.write(relay.build(module, "llvm"), tmp_path / f"other{suffix}", plugins, 2)
    assert placed.run(placed.load(tmp_path / f"other{suffix}"), value)[1].shape == shape
    np.testing.assert_array_equal(first, value if shape[0] else np.zeros(shape, "float32"))
    assert second.shape == shape
    np.testing.assert_array_equal(third, 2 * value)
    if suffix == ".so":
        executor = graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](tvm.cpu()))
        assert placed.run(executor, value)[1].shape == shape


def test_a_constant_without_elements_beside_a_regions(collage_library):
    """TVM would write a file that it cannot load."""
    x = relay.var("x", shape=(3, 4), dtype="float32")
    dense = relay.nn.dense(x, relay.const(np.ones((4, 4), "float32")))
    module = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([dense, relay.const(np.zeros((3, 0), "bool"))])))
    with pytest.raises(ValueError, match=r"constants without elements, of shape \(3, 0\), and regions"):
        export.build(placed.place(module, "dnnl"))


def test_so_runs_under_plain_tvm(module, plugins, tmp_path):
    size = export.write(export.build(module), tmp_path / "model.so", plugins, 2)
    assert size == (tmp_path / "model.so").stat().st_size
    x = np.random.default_rng(6).standard_normal((1, WEIGHTS), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    mapped = run_python(RUNNER, tmp_path / "model.so", tmp_path / "x.npz", tmp_path / "y.npz", PYTHONPATH="")
    names = {Path(path).name for path in mapped}
    assert "libcollage_runtime.so" in names
    assert "libcollage.so" not in names
    expected = relay.create_executor("graph", module).evaluate()(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["arr_0"], expected, rtol=1e-5, atol=1e-6)


def test_tar_is_what_tvmc_runs(module, plugins, tmp_path):
    export.write(export.build(module), tmp_path / "model.tar", plugins, 2)
    with tarfile.open(tmp_path / "model.tar") as tar:
        assert tar.getnames() == ["mod.so", "mod.json", "mod.params"]
    x = np.ones((1, WEIGHTS), "float32")
    np.savez(tmp_path / "x.npz", x=x)
    tvmc = [
        sys.executable,
        "-m",
        "tvm.driver.tvmc",
        "run",
        "--inputs",
        "x.npz",
        "--outputs",
        "y.npz",
        "model.tar",
    ]
    result = subprocess.run(tvmc, cwd=tmp_path, capture_output=True, text=True, env=environment(PYTHONPATH=""))
    assert result.returncode == 0, result.stderr
    expected = relay.create_executor("graph", module).evaluate()(x).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["output_0"], expected, rtol=1e-5, atol=1e-6)


def test_package_repeats(module, tmp_path):
    """The same build packed twice gives the same bytes but for the linker's."""
    built = export.build(module)
    for name in ("a.tar", "b.tar"):
        export.write(built, tmp_path / name)
    contents = []
    for name in ("a.tar", "b.tar"):
        with tarfile.open(tmp_path / name) as tar:
            contents.append([tar.extractfile(member).read() for member in ("mod.json", "mod.params")])
    assert contents[0] == contents[1]


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_lasting_files_are_on_the_disk(factory, tmp_path, monkeypatch, suffix):
    """A whole file is synced before it has its name; what a search tries is not, and is the same file."""
    synced, model, trial = [], tmp_path / f"model{suffix}", tmp_path / f"trial{suffix}"

    def fsync(descriptor):
        assert not model.exists()
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    size = export.write(factory, model)
    assert synced == [size]
    assert export.write(factory, trial, lasting=False) == size
    assert synced == [size]
    assert trial.stat().st_mode == model.stat().st_mode


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("model.onnx", ValueError, r"the name must end in \.so or \.tar"),
        ("model", ValueError, r"the name must end in"),
        ("nowhere/model.so", FileNotFoundError, "there is no directory"),
        ("folder.so", IsADirectoryError, "is a directory"),
    ],
)
def test_outputs_that_cannot_be(factory, tmp_path, name, kind, message):
    (tmp_path / "folder.so").mkdir()
    with pytest.raises(kind, match=message):
        export.write(factory, tmp_path / name)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_full_disk(full_disk, suffix):
    model = full_disk / f"model{suffix}"
    model.write_bytes(b"what stood here before")
    big = tvm.IRModule.from_expr(relay.Function([], relay.nn.relu(relay.const(np.ones((512, 512), "float32")))))
    built = export.build(big, disabled_passes=["FoldConstant"])
    with pytest.raises(export.ExportError, match=f"no space left on device while writing {model}") as raised:
        export.write(built, model)
    assert raised.value.errno == errno.ENOSPC
    assert os.listdir(full_disk) == [model.name]
    assert model.read_bytes() == b"what stood here before"


def test_file_size_limit(module, tmp_path):
    """Told beforehand: LLVM would end the process in the middle."""
    built = export.build(module)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(export.ExportError, match="the limit of file sizes is 4 KiB"):
            export.write(built, tmp_path / "model.so")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


@pytest.mark.fast
def test_default_target_has_the_widest_vectors():
    """LLVM's name of the processor makes TVM choose the schedules that its features deserve."""
    named = tvm.target.Target(target.default_target())
    assert named.kind.name == "llvm"
    flags = Path("/proc/cpuinfo").read_text()
    with named:
        for feature in ("avx2", "avx512f"):
            assert bool(tvm.target.codegen.target_has_features(feature)) == (f" {feature} " in flags)


@pytest.mark.fast
def test_build_disables_what_does_not_finish():
    with target.build_context() as context:
        assert list(context.disabled_pass) == ["EliminateCommonSubexpr", "SimplifyExpr"]
        assert context.opt_level == 3


def test_build_of_a_layer_whose_values_nobody_reads():
    """TVM cannot schedule a layer with ones_like fused behind it; the build simplifies that away."""
    like = {"ones_like": 1.0, "zeros_like": 0.0}
    for name, value in like.items():
        x, weight = relay.var("x", shape=(1, 1)), relay.var("weight", shape=(48, 1))
        made = getattr(relay, name)(relay.nn.dense(x, weight))
        module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, weight], made)))
        executor = tvm.contrib.graph_executor.GraphModule(export.build(module)["default"](tvm.cpu()))
        executor.run()
        machine = export.build_for_machine(module)
        machine = virtual_machine.Model(machine.module, machine.signature)
        machine.run(x=np.ones((1, 1), "float32"), weight=np.ones((48, 1), "float32"))
        for made in (executor, machine):
            assert (made.get_output(0).numpy() == np.full((1, 48), value, "float32")).all()


def test_a_resized_constant_is_folded(collage_library):
    """TVM's debug information of the code that folds it is refused by LLVM."""
    library.load()
    small = np.random.default_rng(3).standard_normal((1, 2, 2, 2), dtype="float32")
    x, how = relay.var("x", shape=(1, 2, 5, 3)), {"coordinate_transformation_mode": "align_corners"}
    resized = relay.image.resize2d(relay.const(small), (5, 3), rounding_method="", **how)
    folded = transform.Normalise()(tvm.IRModule.from_expr(relay.Function([x], x + resized)))
    constant = folded["main"].body.args[1].data.numpy()
    rows, columns = (np.linspace(0, 1, n)[:, None] for n in (5, 3))
    wanted = small[:, :, :1] * (1 - rows) + small[:, :, 1:] * rows
    wanted = wanted[..., :1] * (1 - columns[:, 0]) + wanted[..., 1:] * columns[:, 0]
    assert np.allclose(constant, wanted, atol=1e-5)


def test_a_pooled_constant_is_folded(collage_library):
    """TVM lowers what folds it twice, and its analysis stumbles over what the first time has made (of the random
    programs, seed 2645)."""
    library.load()
    given = np.random.default_rng(3).standard_normal((6, 32, 3), dtype="float32")
    x = relay.var("x", shape=(6, 22, 3))
    pooled = relay.nn.adaptive_avg_pool1d(relay.const(given), output_size=[22], layout="NWC")
    folded = transform.Normalise()(tvm.IRModule.from_expr(relay.Function([x], x + pooled)))
    constant = folded["main"].body.args[1].data.numpy()
    wanted = [given[:, i * 32 // 22 : -(-(i + 1) * 32 // 22)].mean(axis=1) for i in range(22)]
    assert np.allclose(constant, np.stack(wanted, axis=1), atol=1e-5)


def test_what_is_linked_with_no_plugin_asks_for_none(tmp_path):
    """Also where another model has brought the plug-in into the process."""
    module = relay.fromtext('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }')
    library.load_plugin(library.plugin_path("runtime"))
    path = tmp_path / "plain.so"
    export.write(export.build(relay.transform.InferType()(module)), path)
    program = "import sys, tvm; tvm.runtime.load_module(sys.argv[1]); print(1)"
    assert run_python(program, path) == 1


def test_a_concatenation_whose_parts_tvm_cannot_bind(collage_library):
    """TVM fails so with Basic Pitch (make trained); it is built again, what is joined by kernels of their own."""
    x = relay.var("x", shape=(1, 4, 9, 1))
    y = relay.exp(x)
    moved = relay.nn.pad(relay.strided_slice(y, [0, 0, 3, 0], [1, 4, 9, 1]), ((0, 0), (0, 0), (0, 3), (0, 0)))
    joined = relay.concatenate([moved, y, x], axis=-1)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.tanh(joined))))
    asked = []

    def attempt(module, left_out, config):
        asked.append(module)
        if len(asked) == 1:
            raise tvm.TVMError("InternalError: Cannot bind a compact buffer T_add to a strided buffer T_add_slice")
        return export.build(module, "llvm")

    built = export._around_faults(module, [], attempt)
    assert str(asked[1]).count("annotation.stop_fusion") == 2  # x is no kernel's
    values = np.random.default_rng(0).standard_normal((1, 4, 9, 1)).astype("float32")
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run(x=values)
    placed.same([executor.get_output(0).numpy()], placed.expected(module, values))

    def hopeless(module, left_out, config):
        asked.append(module)
        raise tvm.TVMError("Cannot bind a compact buffer")

    with pytest.raises(tvm.TVMError, match="compact"):
        export._around_faults(module, [], hopeless)
    assert len(asked) == 4


@pytest.mark.parametrize("rows", [6, relay.Any()])
def test_a_squeeze_behind_one_channel(collage_library, rows):
    """What estimates depths has a convolution of one channel, whose dimension goes (DPT, MiDaS); TVM alone fails with
    it.
    """
    x = relay.var("x", shape=(rows, 4, 6, 6))
    weights = relay.const(np.full((1, 4, 3, 3), 0.1, "float32"))
    deep = relay.nn.relu(relay.nn.conv2d(x, weights, padding=(1, 1), channels=1, kernel_size=(3, 3)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.squeeze(deep, [1]))))
    values = np.random.default_rng(0).standard_normal((6, 4, 6, 6)).astype("float32")
    if isinstance(rows, int):
        with pytest.raises(tvm.TVMError, match="index_backward_rule"), tvm.transform.PassContext(opt_level=3):
            relay.build(module, target.resolve(None))
    executor = export.runnable(module)
    executor.set_input("x", values)
    executor.run()
    padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).sum(axis=(1, 4, 5))
    placed.same([executor.get_output(0).numpy()], [np.maximum(windows * 0.1, 0).astype("float32")])


def test_a_sum_of_open_sizes_behind_a_product(collage_library):
    """DeBERTa's scores, of any length: TVM takes the sum's size, which it has made up, into the product's kernel."""

    def opened(name, *sizes):
        return relay.var(name, shape=tuple(size or relay.Any() for size in sizes))

    a, b, p, q = opened("a", 0, 0, 8), opened("b", 0, 0, 8), opened("p", 0, 0, 0), opened("q", 0, 0, 0)
    more = relay.add(relay.divide(p, relay.const(3.0)), relay.divide(q, relay.const(3.0)))
    scores = relay.add(relay.nn.batch_matmul(a, b), more)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([a, b, p, q], scores)))
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(shape).astype("float32")
              for name, shape in {"a": (2, 5, 8), "b": (2, 6, 8), "p": (2, 5, 6), "q": (1, 5, 1)}.items()}  # fmt: skip
    executor = export.runnable(module)
    for name, value in values.items():
        executor.set_input(name, value)
    executor.run()
    wanted = values["a"] @ values["b"].transpose(0, 2, 1) + values["p"] / 3 + values["q"] / 3
    placed.same([executor.get_output(0).numpy()], [wanted])


def test_kernels_of_their_own_are_the_last_resort(collage_library):
    """Each time that TVM fails so, less is fused; then there is nothing left to try."""
    x = relay.var("x", shape=(relay.Any(), 4))
    product = relay.tanh(relay.nn.dense(x, relay.const(np.ones((3, 4), "float32"))))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], product)))
    asked = []

    def hopeless(module, left_out, config):
        asked.append((str(module).count("stop_fusion"), dict(config)))
        raise tvm.TVMError("variables [any_dim] are used, but are not passed in as API arguments")

    with pytest.raises(tvm.TVMError, match="any_dim"):
        export._around_faults(module, [], hopeless)
    assert asked == [(0, {}), (1, {}), (1, {"relay.FuseOps.max_depth": 1})]
