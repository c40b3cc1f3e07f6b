# SPDX-License-Identifier: Apache-2.0
"""Sentences of the documents that stand alone: each test holds one of them, and says which."""

import inspect
import json
import re
import subprocess
import time

import documents
import numpy as np
import placed
import pytest
import source_tree
from conftest import PACKAGE, TREE, environment, run_python
from document_runner import network

ROOMS = ("bridge", "relay", "byoc", "pass", "cmd")


def page(name):
    return " ".join((TREE / name).read_text().split())


@pytest.mark.fast
def test_the_arrow_of_dependency():
    """docs/architecture.md: "The arrow of dependency is bridge <- relay <- byoc <- pass <- cmd"."""
    assert f"The arrow of dependency is {' <- '.join(ROOMS)}." in page("docs/architecture.md")
    upwards = []
    for name in source_tree.files():
        room = name.split("/")[0]
        if not name.endswith(".go") or name.endswith("_test.go") or room not in ROOMS:
            continue
        for other in re.findall(r'"github.com/collage-tvm/collage/(\w+)', (TREE / name).read_text()):
            if other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
                upwards.append(f"{name} imports {other}")
    assert not upwards


@pytest.mark.fast
def test_only_two_packages_speak_c():
    """docs/architecture.md: "Only `bridge` and `cmd/libcollage` say `import "C"`"."""
    speak = {
        name.rpartition("/")[0]
        for name in source_tree.files()
        if name.endswith(".go") and re.search(r'^import "C"$', (TREE / name).read_text(), re.M)
    }
    assert speak == {"bridge", "cmd/libcollage"}


@pytest.mark.fast
def test_rooms_are_folders():
    """docs/architecture.md, "Rooms"."""
    block = documents.read("docs/architecture.md").blocks[0]
    told = re.findall(r"^([a-z/]+)/  ", block.text, re.M) + re.findall(r"  ([a-z]+)/  ", block.text)
    assert set(ROOMS) < set(told) and "python/collage" in told
    assert all((TREE / name).is_dir() for name in told)


@pytest.mark.fast
def test_make_help_lists_every_target():
    """README.md: "`make help` lists the rest"."""
    done = subprocess.run(["make", "-s", "help"], cwd=TREE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^([a-z-]+) ", done.stdout, re.M)) == source_tree.make_targets()


# docs/add-a-backend.md.


def test_what_else_a_backend_can_say(collage_library):
    """The table of arguments and fields."""
    import collage

    head, *rows = documents.read("docs/add-a-backend.md").tables[0]
    assert "byoc.Definition" in head[1]
    known = inspect.signature(collage.register_backend).parameters
    fields = set()
    for names in re.findall(r"^\t((?:\w+, )*\w+) ", definition(), re.M):
        fields |= set(names.split(", "))
    for argument, field, _ in rows:
        assert argument.split("`")[0] in known, argument
        assert field in fields, field
    assert {"Name", "Patterns", "Emit"} <= fields


def definition():
    text = (TREE / "byoc" / "definition.go").read_text()
    return re.search(r"^type Definition struct \{\n(.*?)^\}", text, re.M | re.S).group(1)


@pytest.mark.fast
def test_the_mistake_that_is_shown(collage_library):
    """The message is as it stands there."""
    import collage
    from tvm.relay.dataflow_pattern import is_op, wildcard

    shown = [b.text.strip() for b in documents.read("docs/add-a-backend.md").blocks if b.language == "text"]
    with pytest.raises(collage.RegistrationError) as told:
        patterns = [("relu", is_op("nn.relu")(wildcard()))]
        collage.register_backend("mylib", kind="operators", patterns=patterns, emit=definition)
    assert shown == [str(told.value).splitlines()[0]]


@pytest.mark.fast
def test_the_whole_region_is_there_to_look_at(collage_library):
    """What is said to be there to look at: its operators, inputs, outputs, symbol."""
    from collage import program

    said = dict(re.findall(r"`region\.(operators)` \(([a-z, ]+)\)", page("docs/add-a-backend.md")))
    operator = program.Operator("exp", {}, [], [], None)
    assert all(hasattr(operator, name) for name in said["operators"].split(", "))
    for name in ("operators", "inputs", "outputs", "symbol"):
        assert f"`region.{name}`" in page("docs/add-a-backend.md")
        assert f"self.{name}" in inspect.getsource(program.Program), name


# What runs.


@pytest.fixture(scope="module")
def model(tmp_path_factory, command):
    """A small network, all that oneDNN takes on oneDNN."""
    folder = tmp_path_factory.mktemp("promises")
    network(folder / "model.onnx")
    program = """
import sys, onnx, collage
from tvm import relay
module, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]))
print('"' + str(collage.compile(module, params, only="dnnl", out=sys.argv[2])) + '"')
"""
    return run_python(program, folder / "model.onnx", folder / "model.tar")


def test_collage_run_holds_no_python_and_no_compiler(model):
    """docs/from-onnx.md: "libtvm_runtime and the runtime plug-ins, no Python, no compiler"."""
    binary = PACKAGE / "bin" / "collage"
    arguments = [binary, "run", model, "--repeat", "100000000", "--threads", "1"]
    process = subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        mapped = ""
        while "libcollage_dnnl.so" not in mapped:  # pytest's limit ends what never loads it
            assert process.poll() is None, process.stderr.read()
            with open(f"/proc/{process.pid}/maps") as maps:
                mapped = maps.read()
            time.sleep(0.05)
    finally:
        process.kill()
        process.communicate()
    loaded = {line.rsplit("/", 1)[-1] for line in mapped.splitlines() if "/" in line}
    assert "libtvm_runtime.so" in loaded
    assert not {name for name in loaded if re.match(r"libpython|libtvm\.so|libcollage\.so|libLLVM|cc1", name)}


def test_cat_is_enough_to_merge(store, tmp_path, command, collage_library):
    """RATIONALE.md, "Why are costs samples and not numbers?": "`cat` must be enough to merge"."""
    import collage
    import tvm
    from tvm import relay

    parts = []
    for number, operator in enumerate((relay.exp, relay.tanh)):
        parts.append(tmp_path / f"{number}.jsonl")
        module = tvm.IRModule.from_expr(operator(relay.nn.relu(relay.var("x", shape=(4, 8 + number)))))
        collage.partition(module, backends=["tvm", "dnnl"], store=parts[-1], samples=3, level="operator")
    both = tmp_path / "both.jsonl"
    both.write_bytes(b"".join(part.read_bytes() for part in parts))
    assert command("db", "verify", "--db", both).returncode == 0

    def keys(path):
        done = command("db", "ls", "--db", path, "--json")
        assert done.returncode == 0, done.stderr
        costs = json.loads(done.stdout)["costs"]
        assert costs
        return {(cost["structure"], cost["backend"]) for cost in costs}

    assert keys(both) == keys(parts[0]) | keys(parts[1])
    assert len(keys(both)) > max(len(keys(part)) for part in parts)


def test_regions_are_dumped_as_onnx(tmp_path, collage_library):
    """docs/backends.md: "COLLAGE_ONNXRUNTIME_DUMP=FOLDER writes every region as a complete .onnx beside"."""
    if "onnxruntime" not in placed.usable():
        pytest.skip("ONNX Runtime is not installed (make backends BACKENDS=onnxruntime)")
    import onnx

    network(tmp_path / "model.onnx")
    program = """
import sys, onnx, collage
from tvm import relay
module, params = relay.frontend.from_onnx(onnx.load(sys.argv[1]))
collage.compile(module, params, only="onnxruntime", out=sys.argv[2])
print(1)
"""
    folder = tmp_path / "dump"
    folder.mkdir()
    run_python(program, tmp_path / "model.onnx", tmp_path / "model.so", COLLAGE_ONNXRUNTIME_DUMP=folder)
    from onnx.reference import ReferenceEvaluator

    dumped = sorted(folder.glob("**/*.onnx"))
    assert dumped
    kinds = set()
    for path in dumped:
        onnx.checker.check_model(str(path))
        kinds |= {node.op_type for node in onnx.load(path).graph.node}
    assert {"Conv", "Softmax"} <= kinds
    if len(dumped) == 1:
        x = np.random.default_rng(0).standard_normal((1, 3, 16, 16), dtype="float32")
        whole, region = (ReferenceEvaluator(str(path)) for path in (tmp_path / "model.onnx", dumped[0]))
        (wanted,), got = whole.run(None, {"data": x}), region.run(None, {region.input_names[0]: x})
        np.testing.assert_allclose(got[0], wanted, rtol=1e-4, atol=1e-6)
