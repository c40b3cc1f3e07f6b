# SPDX-License-Identifier: Apache-2.0
"""collage doctor on the machine that runs the tests, and on broken ones.

Broken installations are copies of the package, and virtual environments whose packages are links to those of
the one that runs the tests. Each fault is a line that says what to do, with the exit code that ``collage help
doctor`` promises, and never a traceback.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import PACKAGE

BACKEND_PACKAGES = {
    "dnnl": "onednn-cpu-tbb",
    "native": "onednn-cpu-tbb",
    "mkl": "mkl",
    "onnxruntime": "onnxruntime",
    "openblas": "scipy-openblas32",
    "openvino": "openvino",
}
# What changes what doctor says; each test sets what it is about.
SETTINGS = (
    "OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "COLLAGE_LIBRARY", "COLLAGE_BINARY",
    "COLLAGE_PLUGIN_DIR", "CXX", "PYTHONPATH",
)  # fmt: skip


def doctor(*arguments, package=PACKAGE, python=sys.executable, **settings):
    """Run doctor of a package with an interpreter; settings are the environment's, None takes one away."""
    there = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    there |= {"PYTHONPATH": str(package.parent), "COLLAGE_PYTHON": str(python)}
    for name, value in settings.items():
        there.pop(name, None)
        if value is not None:
            there[name] = str(value)
    return subprocess.run(
        [str(package / "bin" / "collage"), "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=there,
    )


def held(result, code):
    """The text of doctor, after it was held against what is promised of every run."""
    assert result.returncode == code, result.stdout + result.stderr
    for noise in ("Traceback", "goroutine", "internal error", "Stack trace"):
        assert noise not in result.stdout + result.stderr
    last = "collage: error: models cannot be compiled here; what is missing is listed above\n"
    assert result.stderr == (last if code else "")
    assert ("models can be compiled here" in result.stdout.lower()) == (code == 0)
    return result.stdout


def problem(text, severity, *words):
    """The remedy of the one problem of a severity in which all words stand."""
    problems = re.findall(r"^(error|warning|note): (.*)\n  remedy: (.*)$", text, re.M)
    found = [remedy for kind, said, remedy in problems if kind == severity and all(word in said for word in words)]
    assert len(found) == 1, problems
    assert found[0]
    return found[0]


def errors(text):
    return re.findall(r"^error: (.*)$", text, re.M)


@pytest.fixture
def package(tmp_path):
    """A copy of the package, in which files may be changed."""
    copy = tmp_path / "overlay" / "collage"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    yield copy
    shutil.rmtree(copy)


@pytest.fixture(scope="module")
def farm(tmp_path_factory):
    """A function that makes a virtual environment with the packages of this one, but for some."""

    def make(*without):
        folder = tmp_path_factory.mktemp("farm") / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        there = folder / "lib" / version / "site-packages"
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            name = entry.name.lower()
            if entry.suffix != ".pth" and not any(name.split("-")[0] == gone for gone in without):
                (there / entry.name).symlink_to(entry)
        return folder / "bin" / "python"

    return make


@pytest.fixture(scope="module")
def good():
    result = doctor("--json")
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def installed(distribution):
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def test_a_good_machine(good):
    """All that is installed is usable, and has its version."""
    assert good["ready"]
    assert [p for p in good["problems"] if p["severity"] == "error"] == []
    assert good["tvm"]["version"]
    assert good["tvm"]["compiler"]
    assert good["python"]["tvm"]
    assert good["python"]["collage_version"] == good["collage"]["version"]
    assert good["python"]["versions"]["onnx"] == installed("onnx")
    backends = {backend["name"]: backend["probe"] for backend in good["backends"]}
    assert set(BACKEND_PACKAGES) < set(backends)
    demanded = set(filter(None, os.environ.get("COLLAGE_REQUIRE_BACKENDS", "").split(",")))
    expected = {"tvm", *demanded, *(name for name, needs in BACKEND_PACKAGES.items() if installed(needs))}
    for name in expected:
        assert backends[name]["usable"], backends[name]
        assert backends[name]["version"], backends[name]
    # With the library of the backend that computes the same in float32; the processor may lack it.
    narrow = {
        name: instructions
        for suffix, instructions in {"_bf16": "avx512_bf16", "_int8": "avx512_vnni"}.items()
        for name in backends
        if name.endswith(suffix) and name.removesuffix(suffix) in expected
    }
    for name, instructions in narrow.items():
        assert backends[name]["usable"] or instructions in backends[name]["reason"]
    # A driver of a device may be there, or not.
    far = {backend["name"] for backend in good["backends"] if backend["device"] != "cpu"}
    for name in set(backends) - expected - set(narrow) - {"dnnl_tvm"}:
        if name in far and backends[name]["usable"]:
            continue
        assert backends[name]["reason"]
        assert backends[name]["remedy"]
    for plugin in good["plugins"]:
        assert Path(plugin["path"]).is_file(), plugin
        assert "reason" not in plugin
    assert good["machine"]["processors"] >= 1
    assert "problem" not in good["cost_store"]


def test_the_text_of_a_good_machine(good):
    text = held(doctor(), 0)
    for backend in good["backends"]:
        if backend["probe"]["usable"]:
            line = rf"^  {backend['name']} +usable, takes .*{re.escape(backend['probe']['version'])}"
            assert re.search(line, text, re.M), backend
    for plugin in good["plugins"]:
        assert re.search(rf"^  {re.escape(plugin['name'])} +.*{re.escape(plugin['path'])}", text, re.M)
    assert re.search(rf"^collage\n  version +{re.escape(good['collage']['version'])} ", text)


@pytest.mark.fast
def test_no_python():
    text = held(doctor(python="/nowhere/python"), 2)
    problem(text, "error", "/nowhere/python", "cannot be run")


@pytest.mark.fast
def test_something_else_than_python(tmp_path):
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho hello\n")
    other.chmod(0o755)
    assert "COLLAGE_PYTHON" in problem(held(doctor(python=other), 2), "error", str(other), "does not work")


def test_no_tvm(farm):
    text = held(doctor(python=farm("tvm", "xtc_tvm_python_bindings")), 2)
    assert "0.10 to 0.19" in problem(text, "error", "has no TVM")


def test_no_package_collage(farm, package):
    """Python without the package: the program lies elsewhere, as it does when only it was copied."""
    text = held(doctor(python=farm(), PYTHONPATH=None, package=package), 2)
    assert "PYTHONPATH" in problem(text, "error", "has no package collage")


@pytest.mark.parametrize("version", ["0.9.0", "0.20.0"])
def test_tvm_of_another_version(farm, package, version):
    """A package that calls itself TVM and lacks what Collage needs of it."""
    python = farm("tvm")
    fake = python.parents[1] / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    fake = fake / "site-packages" / "tvm"
    fake.mkdir()
    (fake / "__init__.py").write_text(f'__version__ = "{version}"\n')
    text = held(doctor(python=python, package=package), 2)
    problem(text, "error", "cannot be loaded", version, "0.10 to 0.19")


def test_tvm_that_does_not_load(farm, package):
    """What TVM needs is missing (here NumPy): the reason is told, not TVM's traceback."""
    text = held(doctor(python=farm("numpy", "numpy.libs"), package=package), 2)
    problem(text, "error", "cannot be loaded", "numpy")


def test_no_libcollage(package):
    (package / "lib" / "libcollage.so").unlink()
    text = held(doctor(package=package), 2)
    problem(text, "error", "libcollage.so", "does not exist")


def test_libcollage_cut_short(package):
    file = package / "lib" / "libcollage.so"
    file.write_bytes(file.read_bytes()[:5000])
    problem(held(doctor(package=package), 2), "error", "libcollage.so", "cannot be loaded")


def other_version(content, version):
    """A program or library that says that it is of a version as long as the real one."""
    stands = f'__version__ = "{version}"'.encode()
    assert content.count(stands) == 1
    return content.replace(stands, re.sub(rb"\d", b"9", stands))


def test_libcollage_of_another_version(good, package, tmp_path):
    """Doctor says it, and what would rely on it is not begun."""
    version = good["collage"]["version"]
    file = package / "lib" / "libcollage.so"
    file.write_bytes(other_version(file.read_bytes(), version))
    said = "libcollage.so is of version 9"
    text = held(doctor(package=package), 2)
    assert "make build" in problem(text, "error", said, version)
    (tmp_path / "m.relay").write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(1), float32]) { erf(%x) }\n')
    refused = subprocess.run(
        [str(package / "bin" / "collage"), "compile", "m.relay", "-o", "m.tar"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package.parent), "COLLAGE_PYTHON": sys.executable},
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_package_of_another_version(good, package):
    (package / "_version.py").write_text('__version__ = "9.9.9"\n')
    text = held(doctor(package=package), 2)
    problem(text, "error", "the Python package collage is of version 9.9.9", good["collage"]["version"])


@pytest.mark.parametrize("name", ["openblas", "dnnl"])
def test_a_plugin_is_missing(package, name):
    """Its backend cannot be used; models can be compiled all the same."""
    (package / "lib" / f"libcollage_{name}.so").unlink()
    text = held(doctor(package=package), 0)
    problem(text, "warning", f"libcollage_{name}.so")
    assert re.search(rf"^  {name} +not usable: ", text, re.M)
    assert re.search(rf"^  libcollage_{name}.so +not usable", text, re.M)


@pytest.mark.parametrize("name", ["openblas", "dnnl", "runtime"])
def test_a_plugin_cut_short(package, name):
    file = package / "lib" / f"libcollage_{name}.so"
    file.write_bytes(file.read_bytes()[:20000])
    text = held(doctor(package=package), 0)
    assert f"warning: runtime plug-in {file} is cut short" in text
    assert re.search(rf"^  libcollage_{name}.so +not usable", text, re.M)
    # All others are linked with the runtime's.
    backend = "dnnl" if name == "runtime" else name
    assert re.search(rf"^  {backend} +not usable: .*cut short", text, re.M)


def test_the_library_of_dnnl_is_absent(package):
    """The plug-in is there and oneDNN is not: its name is another one in this copy."""
    file = package / "lib" / "libcollage_dnnl.so"
    content = file.read_bytes()
    assert b"libdnnl.so.2\0" in content
    file.write_bytes(content.replace(b"libdnnl.so.2\0", b"libdnnl.so.X\0"))
    text = held(doctor(package=package), 0)
    assert "onednn" in problem(text, "warning", "the backend dnnl cannot be used", "libdnnl.so.X")
    assert re.search(r"^  dnnl +not usable: .*libdnnl.so.X", text, re.M)
    assert re.search(r"^  libcollage_dnnl.so +not usable$", text, re.M)
    warnings = re.findall(r"^warning: .*libcollage_dnnl.so.*", text, re.M)
    assert len(warnings) == 1, "one fault, one warning"


def test_optional_libraries_that_are_absent(farm, package):
    """What set-up does not install by itself is a note, with how to get it."""
    text = held(doctor(python=farm("openvino", "onnxruntime", "scipy_openblas32"), package=package), 0)
    for name in ("openvino", "onnxruntime", "openblas"):
        if re.search(rf"^  {name} +not usable: ", text, re.M):
            assert name in problem(text, "note", f"the backend {name} cannot be used")
    assert errors(text) == []


def test_no_onnx(farm, package):
    problem(held(doctor(python=farm("onnx"), package=package), 0), "warning", "onnx", "cannot be read")


def test_no_compiler(tmp_path):
    for settings in ({"PATH": tmp_path}, {"CXX": "no-such-compiler"}):
        text = held(doctor(**settings), 2)
        assert "g++" in problem(text, "error", "no C++ compiler")
        assert len(errors(text)) == 1


def test_a_store_that_cannot_be_used(tmp_path):
    """In the place of a folder there is a file; in the place of the store there is something else."""
    (tmp_path / "file").touch()
    text = held(doctor(XDG_CACHE_HOME=tmp_path / "file"), 0)
    assert "--db" in problem(text, "warning", "costs.jsonl", "not a directory")
    (tmp_path / "collage").mkdir()
    (tmp_path / "collage" / "costs.jsonl").write_text("no store\n")
    text = held(doctor(XDG_CACHE_HOME=tmp_path), 0)
    assert "--db" in problem(text, "warning", "costs.jsonl", "not a cost store")


def test_what_types_there_are_instructions_for():
    """Which narrow types are computed by whom; none where the environment forbids the instructions."""
    backends = {b["name"]: b["probe"]["usable"] for b in json.loads(doctor("--json").stdout)["backends"]}
    (line,) = re.findall(r"^  precision +(.*)", held(doctor(), 0), re.M)
    for name, usable in backends.items():
        if name.endswith(("_bf16", "_int8")):
            assert (name in line) == usable
    (line,) = re.findall(r"^  precision +(.*)", held(doctor(COLLAGE_MAX_CPU_ISA="avx2"), 0), re.M)
    assert line.startswith("f32 alone")


@pytest.mark.parametrize(
    ("name", "value"),
    [("OPENBLAS_CORETYPE", "Haswell"), ("ONEDNN_MAX_CPU_ISA", "AVX2"), ("DNNL_MAX_CPU_ISA", "SSE41")],
)
def test_settings_that_cost_time(name, value):
    text = held(doctor(**{name: value}), 0)
    assert problem(text, "warning", f"{name}={value}") == f"unset {name}"
    assert re.search(rf"^  settings +.*{name}={value}", text, re.M)
