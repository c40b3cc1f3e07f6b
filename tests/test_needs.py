# SPDX-License-Identifier: Apache-2.0
"""An exported model says what it needs, and where that is not here it is refused by name, before anything of it
is loaded: by ``collage run``, by ``collage.load``, and by TVM's own loader. Portable levels of processors.
"""

import json
import re
import shutil
import subprocess

import numpy as np
import placed
import pytest
import tvm
from conftest import TREE, run_python
from test_moved_model import BINARY, RUNTIME, network

LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
# The cap that a level's code runs under.
CAPS = {"x86-64-v2": "plain", "x86-64-v3": "avx2", "x86-64-v4": "avx512"}
LOADERS = ["collage run", "collage.load", "tvm"]


def compiled(folder, level, backend="tvm"):
    """A model for a level and what it computes; nothing is measured, so any processor will do."""
    import collage

    module = network()
    path = folder / f"{backend}-{level}.so"
    if not path.exists():
        collage.compile(module, only=backend, level="operator", target=level, threads=2, out=path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("needs")


LOAD = """
import json, sys
how, path, inputs, outputs = sys.argv[1:]
import numpy as np
import tvm
from tvm.contrib import graph_executor
said, mapped = "", False
try:
    if how == "tvm":
        executor = graph_executor.GraphModule(tvm.runtime.load_module(path)["default"](tvm.cpu()))
    else:
        import collage
        executor = collage.load(path)
    executor.run(**np.load(inputs))
    np.savez(outputs, output_0=executor.get_output(0).numpy())
except tvm.TVMError as error:
    said = str(error)
    mapped = path in open("/proc/self/maps").read()
print(json.dumps({"said": said, "mapped": mapped}))
"""


class Runner:
    """Runs a model in one of LOADERS, capped."""

    def __init__(self, command, folder):
        self._command, self._folder = command, folder
        module = network()
        self.value = placed.values(module)[0]
        self.wanted = placed.expected(module, self.value)
        self.inputs = folder / "x.npz"
        np.savez(self.inputs, x=self.value)

    def __call__(self, loader, path, cap):
        """What was said, "" where the model ran and its outputs are right."""
        outputs = self._folder / "y.npz"
        outputs.unlink(missing_ok=True)
        settings = {"COLLAGE_MAX_CPU_ISA": cap} if cap else {}
        if loader == "collage run":
            result = self._command(
                "run", path, "--inputs", self.inputs, "--outputs", outputs, "--repeat", 1, "--tvm-runtime", RUNTIME,
                environment=settings,
            )  # fmt: skip
            assert result.returncode in (0, 2)
            said = result.stderr
            assert len(said.splitlines()) == (result.returncode == 2)
        else:
            told = run_python(LOAD, loader, path, self.inputs, outputs, **settings)
            said = told["said"]
            assert not (told["mapped"] and loader == "collage.load"), "it was loaded, and refused afterwards"
        if not said:
            with np.load(outputs) as arrays:
                placed.same([arrays["output_0"]], self.wanted)
        else:
            assert not outputs.exists()
        return said


@pytest.fixture(scope="module")
def run(command, tmp_path_factory):
    return Runner(command, tmp_path_factory.mktemp("needs-run"))


@pytest.mark.parametrize("backend", ["tvm", *sorted({"dnnl", "native"} & set(placed.usable()))])
@pytest.mark.parametrize("loader", LOADERS)
def test_a_model_for_avx2_runs_capped_to_avx2_and_one_for_avx512_is_refused(run, folder, loader, backend):
    assert run(loader, compiled(folder, "x86-64-v3", backend), "avx2") == ""
    said = run(loader, compiled(folder, "x86-64-v4", backend), "avx2")
    assert (
        "this model needs avx512f, avx512vl, avx512bw and 2 more, which this processor (capped to avx2 by "
        "COLLAGE_MAX_CPU_ISA) does not have; compile it with --target x86-64-v3"
    ) in said


@pytest.mark.parametrize(
    ("processor", "runs", "refused"), [("Haswell", "x86-64-v3", "x86-64-v4"), ("Nehalem", "x86-64-v2", "x86-64-v3")]
)
def test_on_an_older_processor(folder, processor, runs, refused):
    """Not capped, but emulated: there an instruction that is not known ends the process."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("there is no qemu-x86_64 (Debian's qemu-user)")

    def run(level):
        command = [emulator, "-cpu", processor, BINARY, "run", compiled(folder, level), "--repeat", "1"]
        return subprocess.run([*command, "--tvm-runtime", RUNTIME], capture_output=True, text=True, timeout=300)

    here = run(runs)
    assert here.returncode == 0, here.stderr
    there = run(refused)
    assert there.returncode == 2
    assert re.search(
        rf"error: .*: this model needs .*, which this processor does not have; compile it with --target {runs}$",
        there.stderr,
        re.M,
    )


@pytest.mark.parametrize("loader", LOADERS)
def test_a_model_for_this_processor_runs_here_and_under_no_lower_cap(run, folder, loader):
    path = compiled(folder, "native")
    assert run(loader, path, None) == ""
    if not tvm.target.codegen.llvm_cpu_has_features("avx", tvm.target.Target(native())):
        pytest.skip("the processor has nothing that could be capped")
    assert "which this processor (capped to plain by COLLAGE_MAX_CPU_ISA) does not have" in run(loader, path, "plain")


def native():
    from collage import target

    return target.default_target()


def test_what_is_compiled_under_a_cap_runs_under_it(run, folder):
    program = """
import json, sys
sys.path.insert(0, sys.argv[1])
import collage
from test_moved_model import network
collage.compile(network(), only="tvm", level="operator", out=sys.argv[2])
print(json.dumps(collage.target.default_target()))
"""
    path = folder / "capped.so"
    target = run_python(program, TREE / "tests", path, COLLAGE_MAX_CPU_ISA="plain")
    assert "plain" in run("tvm", compiled(folder, "x86-64-v3"), "plain")
    assert run("tvm", path, "plain") == ""
    assert target == "llvm -mcpu=x86-64-v2"


@pytest.mark.parametrize("level", LEVELS)
def test_code_for_a_level_has_only_the_registers_of_the_level(folder, level):
    if shutil.which("objdump") is None:
        pytest.skip("there is no objdump")
    code = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", compiled(folder, level)], capture_output=True, text=True, check=True
    ).stdout
    wide, medium = (re.search(rf"%{register}mm\d", code) is not None for register in "zy")
    masks = re.search(r"%k[1-7]\b", code) is not None
    assert medium == (level != "x86-64-v2")
    assert wide == (level == "x86-64-v4")
    if level != "x86-64-v4":
        assert not masks


@pytest.mark.parametrize("level", LEVELS)
def test_the_note_says_what_the_level_has(folder, level):
    note = note_of(compiled(folder, level))
    features = set(re.findall(r"^feature (\S+)$", note, re.M))
    assert ("avx512f" in features) == (level == "x86-64-v4")
    assert ("avx2" in features) == (level != "x86-64-v2")
    assert "sse4.2" in features
    assert re.search(r"^library runtime 202\d\.\d+ oneTBB$", note, re.M)


def note_of(path):
    """The text of a file's note."""
    content = path.read_bytes()
    return content[content.index(b"collage-needs 1\n") :].split(b"\0")[0].decode()


def edited(path, to, pattern, text):
    """A copy of a model whose note says something else of the same length; the module in it is as it was."""
    content = path.read_bytes()
    found = re.search(pattern, content)
    assert found and len(found.group(0)) == len(text)
    to.write_bytes(content[: found.start()] + text + content[found.end() :])
    return to


def test_a_library_that_is_too_old_is_named(run, folder, tmp_path):
    path = edited(
        compiled(folder, "x86-64-v2"), tmp_path / "new.so", rb"library runtime 20\d\d", b"library runtime 2099"
    )
    said = run("collage run", path, None)
    assert re.search(r"this model needs oneTBB 2099\.\d+ or later; 202\d\.\d+ is here\. Install that version", said)


def test_a_damaged_note_is_refused(run, folder, tmp_path):
    path = edited(
        compiled(folder, "x86-64-v2"), tmp_path / "odd.so", rb"Collage\0collage-needs", b"Colleague" + b"x" * 12
    )
    assert "what it says of itself is damaged" in run("collage run", path, None)
    later = edited(compiled(folder, "x86-64-v2"), tmp_path / "later.so", rb"collage-needs 1", b"collage-needs 7")
    assert "was written by a later version of Collage" in run("collage run", later, None)


def test_a_model_without_plugins_is_left_to_the_c_library(folder):
    """Nobody reads the note; glibc reads a mark, which the linker sets."""
    from collage import export

    path = folder / "alone.so"
    export.write(export.build(network(), "x86-64-v3"), path)
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    marked = re.search(r"x86 ISA needed: (.*)", notes)
    assert marked and "x86-64-v3" in marked.group(1) and "x86-64-v4" not in marked.group(1)
    assert "feature avx2\n" in note_of(path)


def test_costs_of_a_level_stand_apart(tmp_path):
    """Keys of costs carry the target in full, whatever way it was written."""
    import collage

    targets = {}
    for name in ("x86-64-v3", "llvm -mcpu=x86-64-v3", "x86-64-v2"):
        plan = tmp_path / "plan.json"
        collage.partition(network(), only="tvm", target=name, plan_out=plan)
        targets[name] = json.loads(plan.read_text())["environment"]["target"]
    assert targets["x86-64-v3"] == targets["llvm -mcpu=x86-64-v3"] == "llvm -keys=cpu -mcpu=x86-64-v3"
    assert "x86-64-v2" in targets["x86-64-v2"]


def test_unknown_levels_are_named(command, tmp_path):
    import collage

    with pytest.raises(ValueError, match='there is no level "x86-64-v9"; there are x86-64, x86-64-v2'):
        collage.partition(network(), only="tvm", target="x86-64-v9")
    with pytest.raises(ValueError, match="there is no level"):
        collage.export.build(network(), "x86-64-v9")
    result = command("compile", "workload:dcgan", "--target", "x86-64-v9", "-o", tmp_path / "x.so")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith('collage: error: --target: there is no level "x86-64-v9"')
