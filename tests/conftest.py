# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: one cost store for all of them, the command line, exported models by name."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import emulated_card
import pytest
from gate import pytest_addoption, pytest_collection_modifyitems, pytest_configure  # noqa: F401 (hooks)

# Before anything imports TVM: relay.build would look for tuned schedules on the network.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")

# No test runs on a card of NVIDIA's: whether there is an emulated one each says by itself.
os.environ.update(emulated_card.ENVIRONMENT)

TREE = Path(__file__).resolve().parents[1]
PACKAGE = TREE / "python" / "collage"

sys.path.insert(0, str(PACKAGE.parent))

# Plain TVM knows nothing of our plug-ins, and a model does not say where they lie: the loader finds them here, in
# the processes that tests start.
PLUGINS = Path(os.environ.get("COLLAGE_PLUGIN_DIR") or PACKAGE / "lib").resolve()
os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("LD_LIBRARY_PATH")]))

# Enough to tell a candidate that is right and fast from one that is not, in a tenth of the default's time.
SAMPLES = 3


def environment(**extra):
    """The environment of a program under test: this tree's package, nothing from the network."""
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "COLLAGE_PYTHON": sys.executable,
        **{name: str(value) for name, value in extra.items()},
    }


def fetched(script, folder, absent):
    """What scripts/SCRIPT prints when it has put what a test needs into the folder. Where it cannot be had here (exit
    code 3) the test is skipped: absent says what, the script why.
    """
    done = subprocess.run(
        [str(TREE / "scripts" / script), str(folder)],
        capture_output=True,
        text=True,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    if done.returncode == 3:
        pytest.skip(f"{absent}: {done.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def run_python(program, *arguments, timeout=300, **extra):
    """Run a program in a fresh Python; what it prints last is JSON, and is returned."""
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        # Where a crash happened is said before the process ends.
        env=environment(PYTHONFAULTHANDLER=1, **extra),
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def collage_library():
    """libcollage; tests that need it say so by asking for it."""
    path = Path(os.environ.get("COLLAGE_LIBRARY") or PACKAGE / "lib" / "libcollage.so")
    assert path.exists(), f"{path} is not there; build it with `make build`"
    return path


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """The file of measured costs that all tests share, so that nothing is measured twice; the workers of
    pytest-xdist, whose folders have one parent, share it, too.
    """
    shared = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp().parent if shared else tmp_path_factory.mktemp("store")
    return folder / "costs.jsonl"


@pytest.fixture(scope="session")
def command(collage_library):
    """A function that runs the command line: command("compile", ...) -> CompletedProcess."""
    binary = Path(os.environ.get("COLLAGE_BINARY") or PACKAGE / "bin" / "collage")
    assert binary.exists(), f"{binary} is not there; build it with `make build`"

    def run(*arguments, timeout=600, **options):
        extra = options.pop("environment", {})
        return subprocess.run(
            [str(binary), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(**extra),
            **options,
        )

    return run


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder for what tests compile, removed at the end (the five networks are 700 MB)."""
    folder = tmp_path_factory.mktemp("models")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a file system of 256 KB; as root only."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
