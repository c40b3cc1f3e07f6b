# SPDX-License-Identifier: Apache-2.0
"""Set-up's refusals, interruptions and repetitions, in copies of its scripts with tools that only pretend.

The copy lies in a folder with a space in its name, and finds no tool but those that a test gives it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]
EXTRAS = ("cuda", "mkl", "onnxruntime", "openblas", "openvino", "tune")

# What the scripts use of the system.
SYSTEM = """bash cat chmod cut dirname env flock getconf grep head id mkdir mv nproc rm sed sh sha256sum sleep
sort tail touch uname"""

# An interpreter that can do what set-up asks of it. What pip does is in the variable PIP_DOES.
PYTHON = """#!/usr/bin/env bash
self={base}
case "$*" in
*"import sys, venv, ensurepip"*) exit {unfit} ;;
*platform*) echo {version} ;;
*_base_executable*) echo "$self" ;;
*get_path*) cd "$(dirname "$0")/.." && pwd ;;
--version) echo "Python {version}" ;;
"-m venv "*) mkdir -p "$3/bin" && cat "$self" >"$3/bin/python" && chmod +x "$3/bin/python" ;;
"-m pip --version") ;;
"-m pip install "*) echo "pip $*" >>"$CALLS" && eval "${{PIP_DOES:-}}" ;;
*) echo "{version} runs $*" ;;
esac
"""

CMAKE = """#!/usr/bin/env bash
echo "cmake $*" >>"$CALLS"
case "$*" in
--version) echo "cmake version {version}" ;;
"--build "*) eval "${{BUILD_DOES:-}}" ;;
esac
"""


class Copy:
    """A copy of the scripts, with tools of its own."""

    def __init__(self, folder):
        self.root = folder / "a tree"
        self.tools = folder / "tools"
        self.tools.mkdir()
        for name in SYSTEM.split():
            found = shutil.which(name)
            assert found, name
            (self.tools / name).symlink_to(found)
        shutil.copytree(TREE / "scripts", self.root / "scripts", ignore=shutil.ignore_patterns("*.py", "bench*"))
        # Where Go usually lies, it may lie on this machine, too.
        setup = self.root / "scripts" / "setup.sh"
        text = setup.read_text()
        assert "/usr/local/go/bin" in text
        setup.write_text(text.replace("/usr/local/go/bin", str(folder / "nowhere")))
        self.calls = folder / "calls"
        self.calls.touch()
        self.tool("go", 'echo "go${GO_IS:-1.26.0}"')
        self.tool("g++", "echo 12.2.0")
        self.tool("make", "true")
        self.tool("git", "true")
        self.write("cmake", CMAKE.format(version="3.25.1"))
        self.python("python3.11", "3.11.7")

    def write(self, name, text):
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def tool(self, name, does):
        self.write(name, f"#!/usr/bin/env bash\n{does}\n")

    def python(self, name, version, unfit=0):
        self.write(name, PYTHON.format(version=version, base=self.tools / name, unfit=unfit))

    def start(self, script="setup.sh", *arguments, **extra):
        environment = {
            "PATH": str(self.tools),
            "HOME": str(self.root.parent),
            "CALLS": str(self.calls),
            **extra,
        }
        return subprocess.Popen(
            [self.tools / "bash", self.root / "scripts" / script, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script="setup.sh", *arguments, **extra):
        process = self.start(script, *arguments, **extra)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def works(self, **extra):
        done = self.run(**extra)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def refuses(self, script="setup.sh", *arguments, **extra):
        """The one line in which it says why."""
        done = self.run(script, *arguments, **extra)
        assert done.returncode == 2, done.stdout + done.stderr
        (line,) = done.stderr.splitlines()
        name = script.removesuffix(".sh")
        assert line.startswith(f"{name}: error: ")
        return line.removeprefix(f"{name}: error: ")

    def called(self, what):
        return sum(line.startswith(what) for line in self.calls.read_text().splitlines())


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- what is missing --------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize("system, machine", [("Linux", "aarch64"), ("Darwin", "x86_64"), ("Darwin", "arm64")])
def test_another_machine_is_named_and_refused(copy, system, machine):
    copy.tool("uname", f"[[ $1 == -s ]] && echo {system} || echo {machine}")
    assert copy.refuses() == f"this machine is {system} {machine}; Collage runs on x86-64 Linux only"
    # First of all: nothing is made.
    assert sorted(path.name for path in copy.root.iterdir()) == ["scripts"]


@pytest.mark.fast
@pytest.mark.parametrize("says, told", [("echo glibc 2.17", "glibc 2.17"), ("exit 1", "not glibc")])
def test_another_c_library_is_refused(copy, says, told):
    copy.tool("getconf", says)
    assert copy.refuses() == f"this machine's C library is {told}; TVM's packages need glibc 2.28 or newer"


@pytest.mark.fast
def test_missing_tools_are_named(copy):
    (copy.tools / "g++").unlink()
    (copy.tools / "cmake").unlink()
    assert copy.refuses().startswith("missing: g++ cmake. On Debian, as root: apt-get install g++ cmake")


@pytest.mark.fast
def test_no_python(copy):
    copy.python("python3.11", "3.9.2", unfit=1)
    assert copy.refuses().startswith("missing: python3 python3-venv.")


@pytest.mark.fast
def test_no_go(copy):
    (copy.tools / "go").unlink()
    assert copy.refuses() == "Go was not found; install Go 1.26 or newer and put it in PATH"


@pytest.mark.fast
def test_an_old_go(copy):
    assert copy.refuses(GO_IS="1.25.9").endswith("is 1.25.9; Go 1.26 or newer is needed")
    assert "Go 1.27.1," in copy.works(GO_IS="1.27.1").stdout


@pytest.mark.fast
@pytest.mark.parametrize("version", ["3.18.4", "3.9.6"])
def test_an_old_cmake(copy, version):
    copy.write("cmake", CMAKE.format(version=version))
    assert copy.refuses().endswith(f"is {version}; CMake 3.20 or newer is needed")
    assert not (copy.root / ".venv").exists()


# --- which Python -----------------------------------------------------------------------------------------


@pytest.mark.fast
def test_python_that_contradicts_the_environment_is_refused(copy):
    copy.python("python3.12", "3.12.1")
    copy.works(PYTHON="python3.12")
    (copy.root / ".venv" / "mine").touch()
    told = copy.refuses(PYTHON="python3.11")
    assert told.startswith("PYTHON=python3.11 is Python 3.11.7, but .venv is 3.12.1: leave PYTHON out")
    assert copy.refuses(PYTHON="python3.99") == "PYTHON=python3.99 does not run"
    # The one that it was made with is no contradiction, nor is none, though 3.11 comes first.
    for environment in ({"PYTHON": "python3.12"}, {}):
        assert ".venv is up to date: Python 3.12.1" in copy.works(**environment).stdout
    assert (copy.root / ".venv" / "mine").exists()
    assert copy.called("pip") == 1


@pytest.mark.fast
def test_python_that_does_not_fit_is_refused(copy):
    copy.python("python3.9", "3.9.18", unfit=1)
    told = copy.refuses(PYTHON="python3.9")
    assert told == "PYTHON=python3.9 is not a Python 3.10 to 3.13 with the modules venv and ensurepip"


# --- again ------------------------------------------------------------------------------------------------


@pytest.mark.fast
def test_packages_are_installed_by_hash_and_once(copy):
    copy.works()
    assert "--require-hashes" in copy.calls.read_text()
    copy.works()
    assert copy.called("pip") == 1
    with open(copy.root / "scripts" / "requirements-dev.txt", "a") as file:
        file.write("# another\n")
    copy.works()
    assert copy.called("pip") == 2


@pytest.mark.fast
def test_the_command_works_in_a_folder_with_a_space(copy):
    copy.works()
    done = subprocess.run([copy.root / ".venv" / "bin" / "collage", "a b"], capture_output=True, text=True)
    assert done.stdout == f"3.11.7 runs {copy.root}/.venv/bin/collage a b\n", done.stderr


@pytest.mark.fast
def test_a_set_up_that_was_killed_while_it_installed_begins_anew(copy):
    copy.python("python3.12", "3.12.1")
    dies = "echo 'Installing collected packages: tvm'; kill -KILL $PPID"
    assert copy.run(PYTHON="python3.12", PIP_DOES=dies).returncode == -signal.SIGKILL
    torn = copy.root / ".venv" / "torn"
    torn.touch()
    told = copy.works().stdout
    assert "a set-up was interrupted" in told
    # With the interpreter that was chosen, though another comes first.
    assert "making .venv with Python 3.12.1" in told
    assert not torn.exists()
    assert ".venv is up to date" in copy.works().stdout


@pytest.mark.fast
@pytest.mark.parametrize("stage", ["fetching", "unreachable"])
def test_a_set_up_that_fails_before_it_installs_keeps_what_is_there(copy, stage):
    copy.works()
    mine = copy.root / ".venv" / "mine"
    mine.touch()
    with open(copy.root / "scripts" / "requirements.txt", "a") as file:
        file.write("# another\n")
    if stage == "fetching":
        failed = copy.run(PIP_DOES="echo no space; exit 1")
        assert failed.returncode == 2 and "this failed: .venv/bin/python -m pip install" in failed.stderr
        assert "no space" in failed.stderr
    else:
        line = "NewConnectionError: Failed to establish a new connection: [Errno 111]"
        told = copy.refuses(PIP_DOES=f"echo '{line}'; exit 1")
        assert told.startswith("no package index could be reached.")
    assert copy.works().stdout.count("installing TVM") == 1
    assert mine.exists()


@pytest.mark.fast
def test_a_build_that_was_killed_begins_anew(copy):
    assert copy.run(BUILD_DOES="kill -KILL $PPID").returncode == -signal.SIGKILL
    copy.works()
    assert copy.called("cmake --build") == 2
    assert "--clean-first" in copy.calls.read_text().splitlines()[-2]
    # One that failed has left nothing torn behind, and goes on.
    assert copy.run(BUILD_DOES="exit 1").returncode == 2
    copy.works()
    assert copy.calls.read_text().count("--clean-first") == 1


@pytest.mark.fast
def test_a_tree_that_was_moved_is_configured_anew(copy):
    copy.works()
    cache = copy.root / "build" / "CMakeCache.txt"
    cache.write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={copy.root}\n")
    copy.works()
    assert cache.exists()
    cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    copy.works()
    assert not cache.exists()


@pytest.mark.fast
@pytest.mark.parametrize("second", [("setup.sh",), ("backends.sh", "openblas")])
def test_two_at_once_wait_for_each_other(copy, second):
    copy.works()
    going, go_on = copy.root / "going", copy.root / "go on"
    # Not for ever: a test that was killed leaves its processes behind.
    waits = f"touch '{going}'; for try in {{1..3000}}; do [[ -e '{go_on}' ]] && break; sleep 0.02; done"
    first = copy.start(BUILD_DOES=waits)
    wait_for(going.exists)
    calls = copy.calls.read_text()
    other = copy.start(*second)
    assert "waiting" in other.stdout.readline()
    # It has said that it waits, and does.
    time.sleep(0.2)
    assert other.poll() is None and copy.calls.read_text() == calls
    go_on.touch()
    for process in (first, other):
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    assert copy.calls.read_text() != calls


# --- no network -------------------------------------------------------------------------------------------


def test_no_network_for_pip_is_one_line(copy):
    """By the pip that this Python brings."""
    copy.tool("python3.11", f'exec "{sys.executable}" "$@"')
    nowhere = "http://127.0.0.1:9/simple"
    told = copy.refuses(PIP_INDEX_URL=nowhere, PIP_RETRIES="1", PIP_NO_CACHE_DIR="1", PIP_CONFIG_FILE=os.devnull)
    assert told.startswith("no package index could be reached. Check the network;")
    assert told.endswith("(all of the output: build/setup.log)")
    assert nowhere in (copy.root / "build" / "setup.log").read_text()


def test_no_network_for_go_is_one_line(copy):
    """By the Go that the tests are run with, without what it has fetched before."""
    go = shutil.which("go", path=os.environ["PATH"] + os.pathsep + "/usr/local/go/bin")
    assert go
    shutil.copy(TREE / "go.mod", copy.root)
    shutil.copy(TREE / "go.sum", copy.root)
    (copy.root / "main.go").write_text('package main\n\nimport _ "github.com/spf13/pflag"\n\nfunc main() {}\n')
    told = copy.refuses(
        BUILD_DOES=f'exec "{go}" build -o /dev/null .',
        GOPROXY="off",
        GOFLAGS="-mod=mod",
        GOTOOLCHAIN="local",
        GOMODCACHE=str(copy.root.parent / "modules"),
        GOCACHE=str(copy.root.parent / "cache"),
    )
    assert told.startswith("no package index could be reached.")


@pytest.mark.fast
def test_no_network_for_a_backend_is_one_line(copy):
    copy.works()
    told = copy.refuses("backends.sh", "openblas", PIP_DOES="echo '(from versions: none)'; exit 1")
    assert told.startswith("openblas: no package index could be reached.")


# --- optional backends ------------------------------------------------------------------------------------


@pytest.mark.fast
@pytest.mark.parametrize("names", ["opencv", "openvino,opencv", "dev", "package"])
def test_an_unknown_backend_is_told_with_the_known_ones(copy, names):
    told = copy.refuses("backends.sh", names)
    known = ", ".join((*EXTRAS, "all", "cublas", "opencl", "clblast"))
    assert told == f"there is no backend {names.split(',')[-1]} to install (known: {known})"
    assert copy.called("pip") == 0


@pytest.mark.fast
def test_no_name_at_all(copy):
    assert copy.refuses("backends.sh", "").startswith("name what to install")


@pytest.mark.fast
@pytest.mark.parametrize("name", ["opencl", "tvm_opencl"])
def test_a_driver_that_is_there_is_taken(copy, tmp_path, name):
    copy.works()
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    (vendors / "a.icd").write_text("libgpu.so.1\n")
    (vendors / "b.icd").write_text("libother.so.2\n")
    copy.tool("ldconfig", "echo '  libOpenCL.so.1 (libc6,x86-64) => /lib/libOpenCL.so.1'")
    done = copy.run("backends.sh", name, OCL_ICD_VENDORS=str(vendors))
    assert done.returncode == 0, done.stderr
    assert "drivers: libgpu.so.1 libother.so.2" in done.stdout
    assert copy.called("apt-get") == 0


@pytest.mark.fast
def test_a_driver_that_cannot_be_had(copy, tmp_path):
    copy.tool("ldconfig", "true")
    lacks = {"OCL_ICD_VENDORS": str(tmp_path / "nowhere")}
    assert copy.refuses("backends.sh", "opencl", **lacks).startswith(
        "there is no OpenCL driver, and only root on Debian"
    )
    # As root on Debian it is installed.
    (copy.tools / "mktemp").symlink_to(shutil.which("mktemp"))
    copy.tool("id", "echo 0")
    copy.tool("apt-get", 'echo "apt-get $*" >>"$CALLS"; [[ $1 == update ]] || { echo "no such package"; exit 100; }')
    told = copy.refuses("backends.sh", "opencl", **lacks)
    assert told == "Debian's pocl-opencl-icd cannot be installed: no such package"
    assert copy.called("apt-get install") == 1
    vendors = tmp_path / "vendors"
    copy.tool("apt-get", f"mkdir -p {vendors}; echo libpocl.so.2 >{vendors}/pocl.icd")
    copy.tool("ldconfig", f"[[ ! -f {vendors}/pocl.icd ]] || echo libOpenCL.so.1")
    copy.works()
    done = copy.run("backends.sh", "opencl", OCL_ICD_VENDORS=str(vendors))
    assert done.returncode == 0, done.stderr
    assert "drivers: libpocl.so.2" in done.stdout


@pytest.mark.fast
def test_clblast_comes_beside_a_driver(copy, tmp_path):
    vendors, library = tmp_path / "vendors", tmp_path / "library"
    vendors.mkdir()
    (vendors / "a.icd").write_text("libgpu.so.1\n")
    here = {"OCL_ICD_VENDORS": str(vendors)}
    copy.tool("ldconfig", f"echo libOpenCL.so.1; [[ ! -f {library} ]] || echo libclblast.so.1")
    copy.tool("id", "echo 1000")
    copy.tool("apt-get", f'echo "apt-get $*" >>"$CALLS"; [[ $1 == update ]] || touch {library}')
    told = copy.refuses("backends.sh", "clblast", **here)
    assert told == "there is no CLBlast, and only root on Debian installs one (apt-get install libclblast1)"
    assert copy.called("apt-get") == 0
    (copy.tools / "mktemp").symlink_to(shutil.which("mktemp"))
    copy.tool("id", "echo 0")
    copy.works()
    for _ in range(2):
        done = copy.run("backends.sh", "clblast", **here)
        assert done.returncode == 0, done.stderr
        assert "is there; drivers: libgpu.so.1" in done.stdout
    assert copy.called("apt-get install -q -y --no-install-recommends libclblast1") == 1


@pytest.mark.fast
def test_backends_are_installed_by_hash_without_what_else_they_ask_for(copy):
    copy.works()
    for _ in range(2):
        done = copy.run("backends.sh", "openvino,openblas,openvino,tvm")
        assert done.returncode == 0, done.stderr
    calls = [line for line in copy.calls.read_text().splitlines() if "pip install" in line][1:]
    assert [call.rpartition("requirements-")[2] for call in calls] == ["openvino.txt", "openblas.txt"]
    assert all("--require-hashes" in call and "--no-deps" in call for call in calls)
