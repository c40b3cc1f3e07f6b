# SPDX-License-Identifier: Apache-2.0
"""What others install: the wheel, the source archive, `pip install .`, and the extras, on each Python.

The wheel is built once for each state of the tree and kept in build/test-packages.
"""

import base64
import configparser
import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import numpy as np
import pytest
from conftest import PACKAGE
from package_trials import TREE, Trial, copy_of_the_tree, packages

# Whoever comes first builds the wheel.
pytestmark = pytest.mark.timeout(3600)

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
OWN = "{}.{}".format(*sys.version_info)
OWN_BACKENDS = {"tvm", "dnnl", "dnnl_tvm", "native"}  # those that need neither an extra nor a device
OF_DEVICES = {"clblast", "tvm_opencl", "cublas", "tvm_cuda"}  # those that the drivers of the machine decide on

# What every glibc machine has.
SYSTEM = {
    "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0",
    "libstdc++.so.6",
}  # fmt: skip
# What comes from the wheels that ours asks for, and lies beside it.
TAKEN = {"libdnnl.so.2", "libtbb.so.12", "libsvml.so", "libimf.so", "libintlc.so.5"}


def version():
    (found,) = re.findall(r'^__version__ = "(.+)"$', (PACKAGE / "_version.py").read_text(), re.M)
    return found


@pytest.fixture(scope="module")
def wheel():
    return packages()[0]


@pytest.fixture(scope="module")
def content(wheel):
    """Name -> bytes of the wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.fixture(scope="module")
def binaries(content, tmp_path_factory):
    """The programs and libraries of the wheel, as files."""
    folder = tmp_path_factory.mktemp("wheel")
    found = []
    for name, data in content.items():
        if data.startswith(b"\x7fELF"):
            found.append(folder / Path(name).name)
            found[-1].write_bytes(data)
    assert {path.name for path in found} == {path.name for path in PACKAGE.glob("lib/*.so")} | {"collage"}
    return found


def dist_info(content, name):
    return content[f"collage_tvm-{version()}.dist-info/{name}"].decode()


def dynamic(path, kind):
    """The entries of a kind (NEEDED, RUNPATH, ...) in the dynamic section."""
    shown = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    return re.findall(rf"\({kind}\).*\[(.*)\]", shown)


# --- the version --------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_the_version_stands_in_one_file():
    """Literally, and what was built of it says the same."""
    shown = subprocess.run([PACKAGE / "bin" / "collage", "version", "--json"], capture_output=True, check=True)
    assert json.loads(shown.stdout)["version"] == version()
    for name in (
        "pyproject.toml",
        "CMakeLists.txt",
        "cmd/internal/cli/version.go",
        "python/collage/version.go",
    ):
        assert version() not in (TREE / name).read_text(), name
    import collage

    assert collage.__version__ == version()


# --- the wheel ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_tag_is_what_the_symbols_need(wheel, content):
    name = re.fullmatch(rf"collage_tvm-{re.escape(version())}-(py3-none-manylinux_2_(\d+)_x86_64)\.whl", wheel.name)
    assert name, wheel.name
    assert f"\nTag: {name[1]}\n" in dist_info(content, "WHEEL")
    # Debian 12, on which it is built, has 2.36; a newer one would shut out machines that are in use.
    assert int(name[2]) <= 36
    auditwheel = TREE / "build" / "venv-package" / "bin" / "auditwheel"
    shown = subprocess.run([auditwheel, "show", wheel], capture_output=True, text=True, check=True).stdout
    assert f'constrains the platform tag to "manylinux_2_{name[2]}_x86_64"' in " ".join(shown.split())


@pytest.mark.long
def test_the_record_is_complete(content):
    record = {row[0]: row[1:] for row in csv.reader(io.StringIO(dist_info(content, "RECORD")))}
    assert set(record) == set(content)
    for name, (digest, size) in record.items():
        if not name.endswith("/RECORD"):
            (kind, value) = digest.split("=")
            assert kind == "sha256" and int(size) == len(content[name])
            made = base64.urlsafe_b64encode(hashlib.sha256(content[name]).digest()).decode()
            assert made.rstrip("=") == value, name


@pytest.mark.long
def test_the_wheel_holds_the_package_and_nothing_else(content):
    # What runs other engines for benchmarks belongs to the source tree.
    left_out = {"__pycache__", "peers"}
    paths = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    here = {f"collage/{path}" for path in paths if not left_out & set(path.parts)}
    there = {name for name in content if name.startswith("collage/")}
    assert {name for name in there if name.endswith(".py")} == here
    rest = {name for name in there - here if not name.startswith(("collage/lib/libcollage", "collage/bin/collage"))}
    assert {name for name in rest if Path(name).name != "py.typed"} == set()
    # No library of others has been copied in.
    assert {name.split("/")[0] for name in content} == {"collage", f"collage_tvm-{version()}.dist-info"}


@pytest.mark.long
def test_the_metadata_is_complete(content):
    metadata = Parser().parsestr(dist_info(content, "METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("collage-tvm", version())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "Collage for TVM developers"
    assert metadata["Author-email"] is None and metadata["Maintainer-email"] is None
    assert set(metadata["Requires-Python"].split(",")) == {">=3.10", "<3.14"}
    assert set(metadata["Keywords"].split(",")) >= {"TVM", "BYOC", "oneDNN"}
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Documentation", "Issues", "Paper"}
    classifiers = metadata.get_all("Classifier")
    for python in PYTHONS:
        assert f"Programming Language :: Python :: {python}" in classifiers
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (TREE / "README.md").read_text().strip()
    entries = configparser.ConfigParser()
    entries.read_string(dist_info(content, "entry_points.txt"))
    assert entries["console_scripts"]["collage"] == "collage.__main__:main"
    # How torch.compile knows the backend by its name.
    assert entries["torch_dynamo_backends"]["collage"] == "collage.pytorch:backend"


@pytest.mark.long
def test_the_licences_of_all_that_is_inside_are_inside(content):
    for name in ("LICENSE", "NOTICE"):
        assert dist_info(content, f"licenses/{name}") == (TREE / name).read_text()
    texts = dist_info(content, "licenses/THIRD-PARTY-LICENSES.txt")
    linked = re.findall(r"^ +(\S+\.\S+/\S+ v\S+)", (TREE / "NOTICE").read_text(), re.M)
    assert len(linked) > 5
    for title in (*linked, "Go", "dlpack", "dmlc-core", "picojson"):
        assert re.search(rf"^{re.escape(title)}\n=+\n", texts, re.M), title


@pytest.mark.long
def test_no_binary_knows_the_machine_that_built_it(binaries):
    go = subprocess.run(
        ["go", "env", "GOROOT", "GOMODCACHE", "GOCACHE"],
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/local/go/bin"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    homes = {str(TREE), str(Path.home()), sys.prefix, sys.base_prefix, "/tmp/", "/home/", *go.split()}
    for path in binaries:
        data = path.read_bytes()
        for home in homes - {"/", "/usr"}:
            # Followed by more of a path: "/root" may be a word.
            at = re.search(re.escape(home.rstrip("/").encode()) + rb"/[\w.-]{2,}", data)
            assert at is None, f"{path.name}: {at[0]}"
        for run_path in dynamic(path, "R(?:UN)?PATH"):
            assert run_path == "$ORIGIN:$ORIGIN/../../../..", path.name


@pytest.mark.long
def test_the_libraries_that_are_needed_are_known(binaries):
    own = {path.name for path in binaries}
    needed = {path.name: set(dynamic(path, "NEEDED")) for path in binaries}
    for name, libraries in needed.items():
        assert libraries <= SYSTEM | TAKEN | own, name
    assert "libdnnl.so.2" in needed["libcollage_dnnl.so"]
    # An optional engine's plug-in loads without the engine, and libcollage without any C++ library.
    assert needed["libcollage_openvino.so"] <= SYSTEM | {"libtbb.so.12", "libcollage_runtime.so"}
    assert needed["libcollage.so"] <= SYSTEM - {"libstdc++.so.6"}


@pytest.mark.long
def test_the_source_archive_holds_sources_only():
    """That it is enough to build from is shown by the wheel, which is built from it."""
    with tarfile.open(packages()[1]) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    assert {"CMakeLists.txt", "NOTICE", "go.sum", "python/collage/_version.py", "PKG-INFO"} <= set(names)
    made = ("python/collage/lib/", "python/collage/bin/", "build/", "dist/", ".venv", "tests/")
    assert [name for name in names if name.startswith(made) or name.endswith((".so", ".pyc"))] == []


# --- installed ----------------------------------------------------------------------------------------------


def same(outputs):
    ran, driver, plain = outputs
    assert plain.shape == (4, 24) and np.abs(plain).max() > 0.01
    np.testing.assert_allclose(ran, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(driver, ran)


def usable(trial):
    """The backends that doctor finds usable, but for those that compute narrowly, on which processors decide,
    and those of devices."""
    report = json.loads(trial.collage("doctor", "--json"))
    found = {b["name"] for b in report["backends"] if b["probe"]["usable"]}
    return {name for name in found - OF_DEVICES if not name.endswith(("_bf16", "_int8"))}


# Runs a command that is to fail and prints what it complains of.
REFUSED = """
import subprocess, sys
ran = subprocess.run(sys.argv[1:], capture_output=True, text=True)
assert ran.returncode == 2, ran
print(ran.stderr)
"""


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS)
def test_the_wheel_in_a_clean_environment(wheel, tmp_path, python):
    trial = Trial(tmp_path, python)
    trial.pip("install", "--only-binary", ":all:", wheel)
    trial.pip("check")
    assert trial.installed()["collage-tvm"] == version()
    where = trial.python("-c", "import collage; print(collage.__file__, collage.__version__)").split()
    assert Path(where[0]).is_relative_to(tmp_path) and where[1] == version()
    assert usable(trial) == OWN_BACKENDS
    bench = (trial.bin / "collage", "bench", "all", "--networks", "dcgan", "--peers", "tvm")
    told = trial.python("-c", REFUSED, *map(str, bench))
    assert "run collage bench from the source tree" in told
    outputs, code = trial.outputs("nn.conv2d=dnnl")
    assert b"libcollage_dnnl.so" in code
    same(outputs)
    # What was installed goes again (TVM has a folder of this name, too).
    trial.pip("uninstall", "--yes", "collage-tvm")
    assert [path for path in (tmp_path / "venv").rglob("collage*") if "tvm" not in path.parts] == []


@pytest.mark.long
@pytest.mark.parametrize("backend, pin", [("openblas", "nn.dense"), ("openvino", "nn.conv2d")])
def test_an_extra_brings_its_backend(wheel, tmp_path, backend, pin):
    trial = Trial(tmp_path, OWN)
    trial.pip("install", "--only-binary", ":all:", f"{wheel}[{backend}]")
    trial.pip("check")
    assert backend in usable(trial)
    outputs, code = trial.outputs(f"{pin}={backend}", backends=f"tvm,{backend}")
    assert f"libcollage_{backend}.so".encode() in code
    same(outputs)


@pytest.mark.long
@pytest.mark.parametrize("python", PYTHONS)
def test_all_extras_resolve_together(wheel, python):
    """And give the versions of TVM and oneDNN that the plug-ins are compiled for."""
    uv = TREE / "build" / "venv-package" / "bin" / "uv"
    command = [
        uv, "pip", "compile", "--quiet", "--no-config", "--no-python-downloads", "--only-binary", ":all:",
        "--python-version", python, "--python-platform", "x86_64-manylinux_2_34", "-",
    ]  # fmt: skip
    wanted = f"collage-tvm[all] @ {wheel.as_uri()}"
    ran = subprocess.run(command, input=wanted, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = dict(re.findall(r"^([\w.-]+)==(\S+)", ran.stdout, re.M))
    assert {"openvino", "onnxruntime", "mkl", "scipy-openblas32", "xgboost"} <= set(found)
    pinned = re.findall(
        r"^(xtc-[\w-]+|onednn-cpu-tbb)==(\S+)", (TREE / "scripts" / "requirements.in").read_text(), re.M
    )
    assert len(pinned) == 3
    for name, pin in pinned:
        assert found[name] == pin


@pytest.mark.long
def test_pip_builds_and_installs_the_tree(tmp_path):
    """From a folder with a space in its name, in the isolation that pip makes."""
    trial = Trial(tmp_path, OWN)
    trial.environment["PATH"] += ":/usr/local/go/bin"
    trial.pip("install", "--only-binary", "numpy,onnx,scipy", copy_of_the_tree(tmp_path / "a tree"))
    trial.pip("check")
    assert usable(trial) == OWN_BACKENDS
    outputs, code = trial.outputs("nn.conv2d=dnnl")
    assert b"libcollage_dnnl.so" in code
    same(outputs)
