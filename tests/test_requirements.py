# SPDX-License-Identifier: Apache-2.0
"""The locked requirements: complete, hashed, in agreement with each other and with the package's metadata."""

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TREE = Path(__file__).resolve().parents[1]
SCRIPTS = TREE / "scripts"
SOURCES = sorted(SCRIPTS.glob("requirements*.in"))
# What `pip install collage-tvm[NAME]` brings is what `make backends BACKENDS=NAME` brings.
EXTRAS = ("cublas", "cuda", "mkl", "onnxruntime", "openblas", "openvino", "tune")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")

pytestmark = pytest.mark.fast


def requirements(path):
    """The requirements of a file, each a line once continued lines are joined, and the hashes of each."""
    text = re.sub(r"\\\n", " ", path.read_text())
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if line:
            requirement, *hashes = re.split(r"\s+--hash=", line)
            yield Requirement(requirement), hashes


def locked(path, python):
    """Name -> version that a locked file gives one Python on Linux."""
    where = {
        "python_version": python,
        "python_full_version": f"{python}.7",
        "sys_platform": "linux",
        "platform_machine": "x86_64",
    }
    versions = {}
    for requirement, _ in requirements(path):
        if requirement.marker is None or requirement.marker.evaluate(where):
            (specifier,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            assert name not in versions, f"{path.name} has {name} twice for Python {python}"
            versions[name] = specifier.version
    return versions


def pyproject():
    return tomllib.loads((TREE / "pyproject.toml").read_text())


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_each_source_is_locked_with_hashes(source):
    lock = source.with_suffix(".txt")
    for requirement, hashes in requirements(lock):
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert hashes, f"{requirement} has no hash"
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", value) for value in hashes), requirement
    # No file names an index or anything that would be fetched past it.
    assert not re.search(r"://|^\s*--?(?!hash)[a-z]", lock.read_text(), re.M)
    for python in PYTHONS:
        versions = locked(lock, python)
        for requirement, hashes in requirements(source):
            assert not hashes
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                version = versions[canonicalize_name(requirement.name)]
                assert requirement.specifier.contains(version), f"{requirement}: locked is {version}"


def test_no_locked_file_lacks_its_source():
    locks = sorted(SCRIPTS.glob("requirements*.txt"))
    assert locks == [source.with_suffix(".txt") for source in SOURCES]
    assert SCRIPTS / "requirements.txt" in locks


@pytest.mark.parametrize("python", PYTHONS)
def test_locked_files_agree(python):
    """They are installed into one environment, or into one that sees it; but for the server of make bench-serve."""
    seen = {}
    for source in SOURCES:
        if source.stem == "requirements-serve":
            continue
        for name, version in locked(source.with_suffix(".txt"), python).items():
            assert seen.setdefault(name, version) == version, f"{name} in {source.name}"


@pytest.mark.parametrize("python", PYTHONS)
def test_the_package_allows_what_set_up_installs(python):
    project = pyproject()["project"]
    versions = locked(SCRIPTS / "requirements.txt", python)
    for text in project["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text
    for name in EXTRAS:
        versions = locked(SCRIPTS / f"requirements-{name}.txt", python)
        for text in project["optional-dependencies"][name]:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), text


def test_the_package_is_built_with_what_set_up_installs():
    versions = {
        **locked(SCRIPTS / "requirements.txt", "3.11"),
        **locked(SCRIPTS / "requirements-package.txt", "3.11"),
    }
    for text in pyproject()["build-system"]["requires"]:
        requirement = Requirement(text)
        # Exactly, for the plug-ins are compiled against them.
        assert str(requirement.specifier) == "==" + versions[canonicalize_name(requirement.name)], text


def test_extras_are_the_optional_backends():
    assert set(pyproject()["project"]["optional-dependencies"]) == {*EXTRAS, "all", "peers", "tflite"}
