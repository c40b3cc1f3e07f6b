# SPDX-License-Identifier: Apache-2.0
"""What ``collage help`` promises of failures: exit code 2, one line on the standard error that names what and
where, nothing on the standard output, nothing left behind. For every command and every file that it takes.
"""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
import tvm
from collage import export
from conftest import PACKAGE, environment

BINARY = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
NOBODY = 65534

# Command lines with FILE where a file is read. The other files are there.
READERS = {
    "compile": "compile FILE -o out.tar -q",
    "compile --params": "compile there.relay --params FILE -o out.tar -q",
    "compile --plan": "compile there.relay --plan FILE -o out.tar -q",
    "compile --tuning-log": "compile there.relay --tuning-log FILE -o out.tar -q",
    "plan": "plan FILE --plan-out plan.json -q",
    "plan --params": "plan there.relay --params FILE -q",
    "tune": "tune FILE -o tuned.json -q",
    "run": "run FILE",
    "run --inputs": "run there.tar --inputs FILE",
    "bench convs": "bench convs --model FILE -q",
    "bench matmuls": "bench matmuls --model FILE -q",
    "bench kernels": "bench kernels --model FILE -q",
    "bench backends": "bench backends FILE --networks none -q",
    "bench all": "bench all FILE --networks none -q",
    "bench anytime": "bench anytime FILE --networks none -q",
    "bench without": "bench without FILE --networks none --executables . -q",
    "bench merge": "bench merge FILE FILE",
    "bench anytime --reference": "bench anytime there.relay --networks none --reference FILE -q",
    "explain": "explain FILE",
    "explain --verify": "explain --verify FILE",
    "explain NODE": "explain FILE %1",
    "diff": "diff FILE FILE",
    "db ls": "db ls --db FILE",
    "db merge": "db merge FILE -o merged.jsonl",
    "db prune": "db prune --db FILE",
    "db export": "db export --db FILE -o costs.csv",
    "db verify": "db verify --db FILE",
}
STORES = [name for name in READERS if name.startswith("db ")]

# Command lines with FILE where a file is written.
WRITERS = {
    "compile -o": "compile there.relay -o FILE.tar",
    "compile --plan-out": "compile there.relay -o out.tar --plan-out FILE",
    "compile --db": "compile there.relay -o out.tar --db FILE",
    "compile --trace": "compile there.relay -o out.tar --trace FILE",
    "compile --png": "compile there.relay -o out.tar --png FILE",
    "plan --plan-out": "plan there.relay --plan-out FILE",
    "plan --svg": "plan there.relay --svg FILE",
    "tune -o": "tune there.relay -o FILE",
    "run --outputs": "run there.tar --outputs FILE",
    "bench convs --json": "bench convs --model there.relay --json FILE",
    "bench all --svg": "bench all there.relay --networks none --svg FILE",
    "bench anytime --json": "bench anytime there.relay --networks none --json FILE",
    "db merge -o": "db merge there.jsonl -o FILE",
    "db export -o": "db export --db there.jsonl -o FILE",
}

RECORD = {
    "collage_cost": 1,
    "key": {
        "structure": "ab",
        "backend": "dnnl",
        "target": "t",
        "device": "d",
        "tvm": "0.19.0",
        "threads": 1,
    },
    "samples_ms": [1.0],
    "origin": "measured",
}
RELAY = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 8), float32]) { erf(%x) }\n'


class Place:
    """A folder to run commands in, that can say whether they left anything there or among temporary files."""

    def __init__(self, folder, command):
        self.folder, self.command = folder, command
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        (folder / "there.relay").write_text(RELAY)
        (folder / "there.jsonl").write_text(json.dumps(RECORD) + "\n")
        with open(folder / "there.tar", "wb") as file:
            file.write(b"x" * 512)

    def inventory(self):
        return sorted(
            (str(path.relative_to(self.folder)), path.stat().st_size if path.is_file() else 0)
            for path in self.folder.rglob("*")
        )

    def run(self, line, **options):
        extra = {"TMPDIR": self.temporary, "XDG_CACHE_HOME": self.temporary / "none"}
        extra |= options.pop("environment", {})
        return self.command(*line.split(), cwd=self.folder, environment=extra, **options)

    def refused(self, line, *said, lines=1, **options):
        """Hold a command line against what is promised of failures; a full disk has a line of advice more."""
        before = self.inventory()
        result = self.run(line, **options)
        assert (result.returncode, result.stdout) == (2, ""), (
            result.returncode,
            result.stdout,
            result.stderr,
        )
        assert result.stderr.startswith("collage: error: "), result.stderr
        assert result.stderr.count("\n") == lines, result.stderr
        for text in said:
            assert text in result.stderr
        for noise in ("Traceback", "goroutine", "internal error", "InternalError", ".cc:"):
            assert noise not in result.stderr
        assert self.inventory() == before


@pytest.fixture
def place(tmp_path, command):
    return Place(tmp_path, command)


@pytest.mark.fast
@pytest.mark.parametrize("name", READERS)
def test_no_such_file(place, name):
    place.refused(READERS[name].replace("FILE", "absent.x"), "absent.x")


@pytest.mark.fast
@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_the_place_of_a_file(place, name):
    (place.folder / "folder.x").mkdir()
    place.refused(READERS[name].replace("FILE", "folder.x"), "folder.x")


# Only Python, which takes seconds to start, can say whether these files hold anything sensible.
SLOW = ("compile", "compile --params", "run --inputs", "tune", "bench convs", "bench backends")
# A store may be empty, as before the first measurement; so may AutoTVM's log, where nothing was faster.
QUICK = [
    name
    for name in READERS
    if name not in STORES and READERS[name].split()[0] in ("run", "explain", "diff") and name not in SLOW
] + ["compile --plan"]


@pytest.fixture(scope="module")
def runnable(tmp_path_factory):
    """A model that can be run: what it is given is at fault."""
    path = tmp_path_factory.mktemp("runnable") / "there.tar"
    module = tvm.relay.fromtext(RELAY)
    export.write(export.build(tvm.relay.transform.InferType()(module)), path)
    return path


@pytest.mark.fast
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("content", [b"", b"noise", bytes(range(256)) * 12])
def test_a_file_of_something_else(place, name, content):
    (place.folder / "other.x").write_bytes(content)
    place.refused(READERS[name].replace("FILE", "other.x"), "other.x")


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("content", [b"", bytes(range(256)) * 12], ids=["empty", "noise"])
def test_a_file_of_something_else_told_by_python(place, runnable, name, content):
    shutil.copy(runnable, place.folder)
    (place.folder / "other.x").write_bytes(content)
    place.refused(READERS[name].replace("FILE", "other.x"), "other.x")


@pytest.mark.fast
@pytest.mark.parametrize("name", STORES)
def test_a_store_of_something_else(place, name):
    line = READERS[name].replace("FILE", "other.x")
    (place.folder / "other.x").write_bytes(bytes(range(256)) * 12)
    place.refused(line, "other.x is not a cost store")
    (place.folder / "other.x").write_bytes(b"")
    assert place.run(line).returncode == 0


@pytest.mark.fast
@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_is_not_there(place, name):
    place.refused(WRITERS[name].replace("FILE", "nowhere/file.x"), "nowhere")


@pytest.mark.fast
@pytest.mark.parametrize("name", WRITERS)
def test_writing_over_a_folder(place, name):
    (place.folder / "folder.x").mkdir()
    (place.folder / "folder.x.tar").mkdir()
    place.refused(WRITERS[name].replace("FILE", "folder.x"), "folder.x")


def listed(command):
    return [entry for entry in json.loads(command("help", "--json").stdout)["commands"] if not entry["parts"]]


def test_flags_and_arguments(place):
    """For every command: a flag it has not, a value that is missing, an argument too many or too few."""
    for entry in listed(place.command):
        name = entry["name"]
        if name == "tvmc":
            continue  # which takes its line apart by itself
        place.refused(f"{name} --no-such-flag", "--no-such-flag", name)
        for flag in entry["flags"]:
            if flag["type"] != "bool":
                place.refused(f"{name} --{flag['name']}", f"--{flag['name']}")
            if flag["type"] in ("int", "uint64", "duration"):
                place.refused(f"{name} --{flag['name']} many", f"--{flag['name']}", "many")
        if name == "help":
            place.refused("help no-such-command", "no-such-command")
            place.refused("help run too", "too")
        elif not entry["arguments"]:
            place.refused(f"{name} too-many", "too-many", name)
        elif not entry["arguments"].startswith("["):
            place.refused(name, name)
    for name in ("no-such-command", "db no-such-part", "bench no-such-part", "--no-such-flag"):
        place.refused(name, name.split()[-1])


@pytest.fixture
def stranger():
    """A place where commands are run by a user who is not root, to whom the program was given."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path(tempfile.mkdtemp(prefix="collage-test-"))
    folder.chmod(0o755)
    binary = shutil.copy(BINARY, folder / "collage")
    room = folder / "room"
    room.mkdir()
    os.chown(room, NOBODY, NOBODY)

    def command(*arguments, environment=environment, **options):
        return subprocess.run(
            [str(binary), *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            env={"PATH": os.environ["PATH"], **{name: str(value) for name, value in environment.items()}},
            **options,
        )

    place = Place(room, command)
    for path in room.rglob("*"):
        os.chown(path, NOBODY, NOBODY)
    yield place
    shutil.rmtree(folder)


@pytest.mark.fast
@pytest.mark.parametrize("name", READERS)
def test_a_file_that_one_may_not_read(stranger, name):
    secret = stranger.folder / "secret.x"
    secret.write_text("x")
    secret.chmod(0)
    line = READERS[name].replace("FILE", "secret.x")
    stranger.refused(line, "secret.x", "permission denied")


@pytest.mark.fast
@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_that_one_may_not_write(stranger, name):
    locked = stranger.folder / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    stranger.refused(WRITERS[name].replace("FILE", "locked/file.x"), "locked")


# These do without Python.
QUICK_LINES = [
    pytest.param(line, marks=pytest.mark.fast) for line in ("help", "version --json", "db ls --db there.jsonl")
]


def reader_gone(place, line):
    """Run a command whose standard output nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [BINARY, *line.split()],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            cwd=place.folder,
            timeout=120,
            env=environment(TMPDIR=place.temporary),
        )
    finally:
        os.close(write)


@pytest.mark.parametrize("line", [*QUICK_LINES, "backends"])
def test_a_reader_that_went_away(place, line):
    """collage backends | head -1: what a shell shows for SIGPIPE, no word, nothing left behind."""
    before = place.inventory()
    result = reader_gone(place, line)
    assert result.stderr == ""
    assert result.returncode == 128 + signal.SIGPIPE
    assert place.inventory() == before


@pytest.mark.parametrize("line", [*QUICK_LINES, "backends", "doctor"])
def test_results_that_cannot_be_written(place, line):
    """A full disk under the standard output: what was not written whole is a failure."""
    before = place.inventory()
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [BINARY, *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=place.folder,
            timeout=120,
            env=environment(TMPDIR=place.temporary),
        )
    assert result.returncode == 2
    assert "no space left on device" in result.stderr
    assert place.inventory() == before


@pytest.mark.parametrize("line", [*QUICK_LINES, "backends"])
def test_closed_standard_output(place, line):
    """Without a standard output nothing else is written to: no file of the command gets its number."""
    result = subprocess.run(
        ["bash", "-c", 'exec "$0" "$@" >&-', BINARY, *line.split()],
        stderr=subprocess.PIPE,
        text=True,
        cwd=place.folder,
        timeout=120,
        env=environment(TMPDIR=place.temporary),
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (place.folder / "there.jsonl").read_text() == json.dumps(RECORD) + "\n"


@pytest.mark.fast
@pytest.mark.parametrize(
    "line", ["db export --db there.jsonl -o DISK/costs.csv", "db merge there.jsonl -o DISK/all.jsonl"]
)
def test_full_disk(place, full_disk, line):
    """A file that was there stays as it was, and none is begun."""
    line = line.replace("DISK", str(full_disk))
    file = Path(line.split()[-1])
    file.write_text(json.dumps(RECORD) + "\n")
    with open(full_disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    place.refused(line, "no space left on device", file.name, lines=2)
    assert file.read_text() == json.dumps(RECORD) + "\n"
    assert sorted(os.listdir(full_disk)) == sorted(["filler", file.name])


def test_full_disk_for_outputs(place, runnable, full_disk):
    with open(full_disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    place.refused(f"run {runnable} --outputs {full_disk}/y.npz", "no space left on device", "y.npz", lines=2)
    assert os.listdir(full_disk) == ["filler"]


@pytest.fixture
def read_only_home(tmp_path):
    """A home directory on a file system that is mounted read-only; as root only."""
    home = tmp_path / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(home)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


def test_read_only_home(place, read_only_home):
    """What needs no file of the user's own works; the store that cannot be made is told, with what to do."""
    home = {"HOME": read_only_home, "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
    place.refused("compile there.relay -o out.tar -q", "costs.jsonl", "read-only", "--db", environment=home)
    place.refused("db ls", str(read_only_home), environment=home)
    told = place.run("doctor --json", environment=home)
    assert told.returncode == 0, told.stderr
    assert "read-only" in json.loads(told.stdout)["cost_store"]["problem"]
    done = place.run("compile there.relay -o out.tar -q --level operator --db costs.jsonl", environment=home)
    assert done.returncode == 0, done.stderr
    assert (place.folder / "out.tar").is_file()
