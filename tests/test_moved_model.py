# SPDX-License-Identifier: Apache-2.0
"""An exported model goes elsewhere: another folder, an empty environment, another user, an installation that
was moved. It runs in ``collage run``, in plain TVM and in ``tvmc run``, for each backend that is here.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import placed
import pytest
import tvm
from conftest import PACKAGE, PLUGINS, run_python
from tvm import relay

BINARY = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
LIBRARIES = Path(os.environ.get("COLLAGE_PLUGIN_DIR") or PACKAGE / "lib")
RUNTIME = Path(tvm.__file__).with_name("libtvm_runtime.so")
NOBODY = 65534
BACKENDS = ["tvm", *placed.with_regions_of_their_own()]

LOAD = """
import sys
import numpy as np
import tvm
from tvm.contrib import graph_executor
model, inputs, outputs = sys.argv[1:]
executor = graph_executor.GraphModule(tvm.runtime.load_module(model)["default"](tvm.cpu()))
executor.run(**np.load(inputs))
np.savez(outputs, output_0=executor.get_output(0).numpy())
assert "collage" not in sys.modules
"""


def network():
    """A convolution and a product, which the backends take, and an operator of TVM's between them."""
    rng = np.random.default_rng(1)

    def constant(*shape):
        return relay.const(rng.standard_normal(shape).astype("float32"))

    x = relay.var("x", shape=(1, 3, 16, 16), dtype="float32")
    y = relay.nn.conv2d(x, constant(8, 3, 3, 3), kernel_size=(3, 3), channels=8, padding=(1, 1))
    y = relay.nn.relu(relay.nn.bias_add(y, constant(8)))
    y = relay.erf(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)))
    y = relay.nn.dense(y, constant(10, 8))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))


class Exported:
    """One network on one backend, as both kinds of files, with inputs and what plain TVM computes."""

    def __init__(self, folder, backend):
        self.backend = backend
        module = network()
        x = placed.values(module)[0]
        self.wanted = placed.expected(module, x)
        self.inputs = folder / "x.npz"
        np.savez(self.inputs, x=x)
        put = module if backend == "tvm" else placed.place(module, backend)
        assert backend == "tvm" or placed.offloaded(put)
        self.files = [placed.export_to(folder / f"model{suffix}", put) for suffix in (".so", ".tar")]

    def holds(self, outputs):
        with np.load(outputs) as arrays:
            placed.same([arrays["output_0"]], self.wanted)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function: the models of a backend, made once."""
    made = {}

    def of(backend):
        if backend not in made:
            made[backend] = Exported(tmp_path_factory.mktemp(f"moved-{backend}"), backend)
        return made[backend]

    return of


def succeed(arguments, **options):
    result = subprocess.run(
        [str(argument) for argument in arguments], capture_output=True, text=True, timeout=120, **options
    )
    assert result.returncode == 0, result.stderr
    return result


def run_collage(model, inputs, outputs, **options):
    """The program, with nothing in its environment."""
    options = {"env": {}, "cwd": "/", **options}
    arguments = [
        "run",
        model,
        "--inputs",
        inputs,
        "--outputs",
        outputs,
        "--repeat",
        1,
        "--tvm-runtime",
        RUNTIME,
    ]
    return succeed([BINARY, *arguments], **options)


# All that plain TVM must be told.
FOUND = {"LD_LIBRARY_PATH": str(PLUGINS)}


def run_tvm(model, inputs, outputs, **options):
    """TVM's own Python, which knows nothing of Collage."""
    options = {"env": FOUND, "cwd": "/", **options}
    return succeed([sys.executable, "-c", LOAD, model, inputs, outputs], **options)


def run_tvmc(model, inputs, outputs, **options):
    options = {"env": FOUND, "cwd": "/", **options}
    arguments = ["run", "--inputs", inputs, "--outputs", outputs, model]
    return succeed([sys.executable, "-m", "tvm.driver.tvmc", *arguments], **options)


def runners(model):
    """What runs a file besides ``collage run``."""
    return [run_collage, run_tvmc if model.suffix == ".tar" else run_tvm]


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_folder_and_an_empty_environment(exported, tmp_path, backend):
    """The file where it was made is gone; nothing is set that could lead back."""
    made = exported(backend)
    for file in made.files:
        moved = shutil.copy(file, tmp_path / f"elsewhere{file.suffix}")
        hidden = file.rename(file.with_name(f"gone{file.suffix}"))
        try:
            for run in runners(moved):
                outputs = tmp_path / f"{run.__name__}{file.suffix}.npz"
                run(moved, made.inputs, outputs)
                made.holds(outputs)
        finally:
            hidden.rename(file)


def test_odd_paths(exported, tmp_path):
    """Spaces, quotes, letters of other alphabets, and what shells and printf would make something of."""
    made = exported(BACKENDS[-1])
    folder = tmp_path / "with  spaces and 'quotes'; Größe-模型 $HOME %s"
    folder.mkdir()
    for file in made.files:
        moved = Path(shutil.copy(file, folder / f"ñ {file.name}"))
        for run in runners(moved):
            outputs = folder / f"{run.__name__}.npz"
            run(moved, made.inputs, outputs)
            made.holds(outputs)


def test_links_and_relative_paths(exported, tmp_path):
    made = exported(BACKENDS[-1])
    for file in made.files:
        link = tmp_path / f"link{file.suffix}"
        link.symlink_to(file)
        for run in runners(link):
            run(link, made.inputs, tmp_path / f"{run.__name__}.npz")
            made.holds(tmp_path / f"{run.__name__}.npz")
        for model in (link.name, f"./{link.name}", f"../{tmp_path.name}/{link.name}"):
            run_collage(model, made.inputs, "y.npz", cwd=tmp_path)
            made.holds(tmp_path / "y.npz")
            (tmp_path / "y.npz").unlink()


@pytest.fixture
def public(tmp_path):
    """A folder that every user can look into; those of pytest are the owner's alone."""
    folder = Path(tempfile.mkdtemp(prefix="collage-test-"))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    shutil.rmtree(folder)


@pytest.mark.parametrize("backend", BACKENDS)
def test_another_user_and_a_folder_that_is_read_only(exported, public, backend):
    """Whoever may read it may run it, as a user without rights and without a home."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    made = exported(backend)
    shutil.copy(BINARY, public / "collage")
    shutil.copy(made.inputs, public / "x.npz")
    room = public / "room"
    room.mkdir()
    os.chown(room, NOBODY, NOBODY)
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    for path in (RUNTIME, LIBRARIES / "libcollage_runtime.so"):
        if subprocess.run(["test", "-r", str(path)], **who).returncode != 0:
            pytest.skip(f"another user may not read {path}")
    for file in made.files:
        moved = public / f"model{file.suffix}"
        shutil.copy(file, moved)
        moved.chmod(0o444)
    public.chmod(0o555)
    for file in made.files:
        outputs = room / f"{file.suffix}.npz"
        arguments = [
            "run",
            public / f"model{file.suffix}",
            "--inputs",
            public / "x.npz",
            "--outputs",
            outputs,
        ]
        settings = {"HOME": "/nonexistent", "COLLAGE_PLUGIN_DIR": str(LIBRARIES)}
        succeed(
            [public / "collage", *arguments, "--repeat", 1, "--tvm-runtime", RUNTIME],
            env=settings,
            cwd="/",
            **who,
        )
        made.holds(outputs)


EXPORT = """
import json, sys
from test_moved_model import network
import placed
folder, backend = sys.argv[1:]
put = placed.place(network(), backend)
for suffix in (".so", ".tar"):
    placed.export_to(f"{folder}/model{suffix}", put)
print(json.dumps(placed.offloaded(put)))
"""


@pytest.fixture(scope="module")
def orphans(tmp_path_factory):
    """Models of dnnl from an installation that was moved away since: (models, where its plug-ins are now)."""
    if "dnnl" not in BACKENDS:
        pytest.skip("dnnl cannot be used here")
    folder = tmp_path_factory.mktemp("orphans")
    before, after = folder / "before", folder / "after"
    before.mkdir()
    for name in ("libcollage_runtime.so", "libcollage_dnnl.so"):
        shutil.copy(LIBRARIES / name, before)
    tests = str(Path(__file__).parent)
    run_python(
        EXPORT,
        folder,
        "dnnl",
        COLLAGE_PLUGIN_DIR=before,
        PYTHONPATH=os.pathsep.join((str(PACKAGE.parent), tests)),
    )
    before.rename(after)
    return [folder / "model.so", folder / "model.tar"], after


def test_the_installation_was_moved(orphans, exported, tmp_path):
    """``collage run`` brings its own plug-ins; plain TVM finds them where LD_LIBRARY_PATH says."""
    models, plugins = orphans
    made = exported("dnnl")
    for model in models:
        run_collage(model, made.inputs, tmp_path / "collage.npz")
        made.holds(tmp_path / "collage.npz")
        run = runners(model)[1]
        run(model, made.inputs, tmp_path / "other.npz", env={"LD_LIBRARY_PATH": str(plugins)})
        made.holds(tmp_path / "other.npz")


def test_plugins_beside_a_model(orphans, exported, tmp_path):
    """A folder with the model and the plug-ins is enough, wherever it lies."""
    models, plugins = orphans
    made = exported("dnnl")
    for file in (*plugins.iterdir(), models[0]):
        shutil.copy(file, tmp_path)
    run_tvm(tmp_path / models[0].name, made.inputs, tmp_path / "y.npz", env={})
    made.holds(tmp_path / "y.npz")


def test_without_plugins_it_is_said(orphans, exported, tmp_path):
    """One line with the names of what is missing and where to name its folder."""
    models, _ = orphans
    empty = tmp_path / "empty"
    empty.mkdir()
    for model in models:
        told = subprocess.run(
            [BINARY, "run", str(model), "--tvm-runtime", str(RUNTIME)],
            env={"COLLAGE_PLUGIN_DIR": str(empty)},
            capture_output=True,
            text=True,
        )
        assert (told.returncode, told.stdout) == (2, "")
        assert "libcollage_dnnl.so" in told.stderr
        assert "COLLAGE_PLUGIN_DIR" in told.stderr
        assert told.stderr.count("\n") == 1


PATH_IN_FILE = re.compile(rb"(?<![\w./])/(?:[\w.+@~-]+/)+[\w.+@~-]+")


def library_of(model, folder):
    """A model's shared library."""
    if model.suffix == ".so":
        return model
    with tarfile.open(model) as tar:
        tar.extractall(folder, filter="data")
    return folder / "mod.so"


@pytest.mark.parametrize("backend", ["tvm", *placed.usable()])
def test_no_path_is_inside(exported, tmp_path, backend):
    """Of the machine that built it a model says nothing: no folder of the project, of the user, of Python's packages,
    no temporary one; nor any other path.
    """
    places = [PACKAGE, LIBRARIES.resolve(), Path.home(), Path(sys.prefix).resolve(), Path(tempfile.gettempdir())]
    places.append(Path(tvm.__file__).parent)
    for model in exported(backend).files:
        content = model.read_bytes()
        for place in places:
            assert bytes(place) + b"/" not in content
        assert b"site-packages" not in content
        code = library_of(model, tmp_path).read_bytes()
        assert PATH_IN_FILE.findall(code) == []
        names = set(re.findall(rb"[\w./$-]*libcollage_\w+\.so", code))
        assert names == {name.rpartition(b"/")[2] for name in names}, "plug-ins go by their names"
        assert backend == "tvm" or names
