# SPDX-License-Identifier: Apache-2.0
"""What --json prints, and the files that the product writes, against docs/schemas.

Every command that ``collage help`` lists must stand in COMMANDS below and have a schema of its name.
"""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import schemas
from conftest import PACKAGE, SAMPLES, TREE, environment
from onnx import TensorProto, helper, numpy_helper, save

QUICK = ("--level", "operator", "--repeat", SAMPLES, "--rounds", 2, "-q")


def small_network(path):
    """A convolution, a product and an operator that only TVM takes, as ONNX."""
    rng = np.random.default_rng(0)
    weights = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 10)}
    initialisers = [
        numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name) for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["m"]),
        helper.make_node("Erf", ["m"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 16, 16]), ("y", [1, 10]))
    )
    graph = helper.make_graph(nodes, "small", [x], [y], initialisers)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


RESULTS = TREE / "docs" / "results"


class Made:
    """A folder with a network, plans of it, an executable and a store with all that was measured."""

    def __init__(self, folder, command):
        self.folder, self.command = folder, command
        self.model = small_network(folder / "small.onnx")
        self.store = folder / "costs.jsonl"
        self.tar, self.plan, self.other = (folder / name for name in ("model.tar", "plan.json", "other.json"))
        self.documents = {}
        self.documents["compile"] = self.run(
            "compile", self.model, "-o", self.tar, "--plan-out", self.plan, "--db", self.store,
            "--search-time", "2s", "--trials", 2, "--repeat", SAMPLES, "--rounds", 2, "-q",
        )  # fmt: skip
        self.documents["plan"] = self.run(
            "plan", self.model, "--plan-out", self.other, "--db", self.store, "--repeat", SAMPLES, "-q",
            "--pin", "nn.conv2d=tvm", "--report", folder / "page",
        )  # fmt: skip

    def run(self, *arguments, flags=("--json",), code=0):
        """What a command prints, which is one JSON document and nothing beside it."""
        result = self.command(*arguments, *flags)
        assert result.returncode == code, result.stderr
        return schemas.parsed(result.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory, command):
    return Made(tmp_path_factory.mktemp("json"), command)


def bench(made, name, *arguments):
    """A report of bench, which stands on the standard output only where it is told so."""
    return made.run("bench", name, *arguments, "-q", flags=("--json", "-"))


def peers(made):
    return (made.model, "--networks", "none", "--rounds", 2, "--turn", "1ms")


def without(made):
    """What bench without prints of what bench all has kept."""
    folder = made.folder / "kept"
    folder.mkdir()
    offered = ("--backends", "tvm,dnnl,native", "--db", made.store, "--repeat", SAMPLES, "--compile-rounds", 2)
    bench(made, "all", *peers(made), "--peers", "tvm", *offered, "--search-time", "2s", "--executables", folder)
    return bench(made, "without", *peers(made), *offered, "--search-time", "2s", "--executables", folder)


def served(made):
    """What a server prints before it listens; it ends by SIGTERM."""
    binary = os.environ.get("COLLAGE_BINARY") or str(PACKAGE / "bin" / "collage")
    command = [binary, "serve", str(made.tar), "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as server:
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(server.stdout.readline())
            assert lines[-1]
        server.terminate()
        assert server.stdout.read() == "" and server.wait(timeout=60) == 0
    return schemas.parsed("".join(lines))


# What each command prints; several documents where it prints several kinds.
COMMANDS = {
    "compile": lambda made: [
        made.documents["compile"],
        made.run("compile", made.model, "-o", made.folder / "same.so", "--plan", made.plan, "--report",
                 made.folder / "page", "-q"),
        made.run("compile", made.model, "-o", made.folder / "quick.so", "--db", made.store, *QUICK),
        made.run("compile", made.model, "--db", made.store, "--dry-run", "-q"),
        made.run("compile", made.model, "-o", made.folder / "never.so", "--plan", made.plan, "--dry-run", "-q"),
    ],
    "plan": lambda made: [
        made.documents["plan"],
        made.run("plan", made.model, "--db", made.folder / "none.jsonl", "--dry-run", "-q"),
    ],
    "tune": lambda made: [
        made.run("tune", made.model, "-o", made.folder / "tuned.json", "--db", made.store, "--tuner",
                 "random", "--trials", 2, "--top", 1, "--backends", "tvm", "--repeat", SAMPLES, "-q")
    ],
    "run": lambda made: [
        made.run("run", made.tar, "--repeat", 3),
        made.run("run", made.tar, "--repeat", 3, "--outputs", made.folder / "y.npz", "--threads", 1),
    ],
    "package": lambda made: [made.run("package", made.tar, "-o", made.folder / "package")],
    "serve": lambda made: [served(made)],
    "bench convs": lambda made: [
        bench(made, "convs", "--model", made.model, "--db", made.store, "--repeat", SAMPLES)
    ],
    "bench matmuls": lambda made: [
        bench(made, "matmuls", "--model", made.model, "--db", made.store, "--repeat", SAMPLES)
    ],
    "bench kernels": lambda made: [
        bench(made, "kernels", "--model", made.model, "--db", made.store, "--repeat", SAMPLES)
    ],
    "bench backends": lambda made: [bench(made, "backends", *peers(made))],
    "bench all": lambda made: [
        bench(made, "all", *peers(made), "--peers", "tvm,openvino,torch", "--db", made.store, "--level",
              "operator", "--repeat", SAMPLES, "--compile-rounds", 2)
    ],
    "bench anytime": lambda made: [
        bench(made, "anytime", *peers(made), "--backends", "tvm", "--search-time", "2s", "--at", "1,2")
    ],
    "bench without": lambda made: [without(made)],
    "bench merge": lambda made: [
        bench(made, "merge", RESULTS / "networks_b1.json", RESULTS / "networks_b1.json")
    ],
    "explain": lambda made: [
        made.run("explain", made.plan),
        made.run("explain", made.plan, "--report", made.folder / "page"),
        made.run("explain", made.other),
        made.run("explain", made.plan, "nn.conv2d"),
        made.run("explain", "--verify", made.other),
    ],
    "diff": lambda made: [made.run("diff", made.plan, made.other), made.run("diff", made.plan, made.plan)],
    "db ls": lambda made: [made.run("db", "ls", "--db", made.store)],
    "db merge": lambda made: [
        made.run("db", "merge", made.store, made.store, "-o", made.folder / "merged.jsonl")
    ],
    "db prune": lambda made: [made.run("db", "prune", "--dry-run", "--db", made.store, "--backend", "tvm")],
    "db export": lambda made: [made.run("db", "export", "--db", made.store)],
    "db verify": lambda made: [made.run("db", "verify", "--db", made.store)],
    "doctor": lambda made: [made.run("doctor")],
    "backends": lambda made: [made.run("backends")],
    "version": lambda made: [made.run("version")],
    "help": lambda made: [
        made.run("help"), made.run("help", "db", "ls"), made.run("help", "compile"), made.run("help", "bench")
    ],
}  # fmt: skip


# They take a minute together; tests/test_bench_scripts.py and test_tune.py run the same code.
LONG = ("tune", "bench backends", "bench all", "bench anytime", "bench without")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in COMMANDS]
)
def test_what_a_command_prints(made, name):
    for document in COMMANDS[name](made):
        assert schemas.hold(name.replace(" ", "-"), document)["schema"] == 1


@pytest.mark.fast
def test_every_command_has_a_schema(command):
    """A command that is new stands in COMMANDS, takes --json, and has a schema that is strict."""
    listed = schemas.parsed(command("help", "--json").stdout)["commands"]
    # What completion prints is a script; tvmc is another program.
    real = [entry for entry in listed if not entry["parts"] and entry["name"] not in ("completion", "tvmc")]
    assert {entry["name"] for entry in real} == set(COMMANDS)
    assert len(listed) - len(real) == 4  # bench and db, too
    for entry in real:
        assert "json" in [flag["name"] for flag in entry["flags"]], entry["name"]
        assert entry["name"].replace(" ", "-") in schemas.names()


def objects(node):
    """All schemas of objects within a schema."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from objects(value)
    elif isinstance(node, list):
        for value in node:
            yield from objects(value)


@pytest.mark.fast
@pytest.mark.parametrize("name", schemas.names())
def test_schemas_are_strict(name):
    """Draft 2020-12, each object closed, its required fields named and known."""
    schema = schemas.read(name)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"{name}.json"
    schemas.Draft202012Validator.check_schema(schema)
    for node in objects(schema):
        assert "additionalProperties" in node, node
        if node["additionalProperties"] is False:
            assert set(node["required"]) <= set(node["properties"]), node
        else:
            assert "properties" not in node, node


def test_a_field_too_many_or_few_is_told(made):
    """The schemas can say no."""
    document = made.run("version")
    assert schemas.faults("version", {**document, "more": 1})
    del document["go"]
    assert schemas.faults("version", document)
    report = made.documents["plan"]
    assert schemas.faults("plan", {**report, "model_info": {**report["model_info"], "operators": -1}})


def test_plans(made):
    for path in (made.plan, made.other):
        schemas.hold("files/plan", schemas.parsed(path.read_text()))
    assert "finalists" in json.loads(made.plan.read_text())


def test_cost_records(made):
    records = [schemas.parsed(line) for line in made.store.read_text().splitlines()]
    assert len(records) > 5
    for record in records:
        schemas.hold("files/cost-record", record)
    assert "network" in {record["key"].get("kind") for record in records}


def test_what_db_says_of_a_broken_store(made, tmp_path):
    """The document and exit code 2 both: what is broken, and that something is."""
    broken = shutil.copy(made.store, tmp_path / "broken.jsonl")
    with open(broken, "a") as file:
        file.write("no record\n")
    document = made.run("db", "verify", "--db", broken, code=2)
    schemas.hold("db-verify", document)
    assert not document["valid"]
    repaired = made.run("db", "verify", "--repair", "--db", broken)
    schemas.hold("db-verify", repaired)
    assert repaired["repaired"]["broken_to"]


def test_what_explain_says_of_a_false_plan(made, tmp_path):
    """As above: a proof that does not check is a document, too."""
    plan = json.loads(made.other.read_text())
    for rejected in plan["candidates"]["rejected"]:
        rejected["estimate_ms"] = 0
    false = tmp_path / "false.json"
    false.write_text(json.dumps(plan))
    document = made.run("explain", "--verify", false, code=2)
    schemas.hold("explain", document)
    assert not document["valid"]
    assert document["fault"]


def test_failures_in_the_store(made, command, tmp_path):
    """A store with failures and without anything is told in the same form."""
    failed = {
        "collage_cost": 1,
        "key": {"structure": "ab", "backend": "dnnl", "target": "llvm", "device": "cpu", "tvm": "0.19.0",
                "threads": 1},
        "origin": "measured",
        "failure": {"phase": "run", "kind": "crash", "detail": "signal 11"},
        "taken": "2020-01-01T00:00:00Z",
        "expires": "2020-01-08T00:00:00Z",
    }  # fmt: skip
    schemas.hold("files/cost-record", failed)
    store = tmp_path / "failures.jsonl"
    store.write_text(json.dumps(failed) + "\n")
    listed = schemas.hold("db-ls", made.run("db", "ls", "--db", store))
    assert listed["costs"][0]["expired"]
    schemas.hold("db-export", made.run("db", "export", "--db", store))
    schemas.hold("db-prune", made.run("db", "prune", "--db", store))
    assert schemas.hold("db-ls", made.run("db", "ls", "--db", store))["costs"] == []


# Results of docs/results that may be there: each is taken by a make target, on its own.
TAKEN = [
    ("ablation", "bench-all"),
    ("dynamic", "files/dynamic"),
    ("ragged_open", "files/dynamic"),
    ("ragged", "files/ragged"),
    ("anytime", "bench-anytime"),
    ("kernels_int8", "bench-kernels"),
    ("kernels_dnnl_int8", "bench-kernels"),
    ("kernels_native_bf16", "bench-kernels"),
    ("models", "files/models"),
    ("models_speed", "bench-all"),
    ("onednn_t2", "files/onednn"),
    *((f"precision_{of}", "bench-all") for of in ("f32", "bf16", "int8", "1e-3", "1e-2", "1e-2_amx", "3e-2")),
    ("quantised", "bench-all"),
    ("scale", "files/scale"),
    ("search", "files/search"),
    ("serve", "files/serve"),
    ("threads", "files/threads"),
    ("trained", "files/trained"),
    ("trained_auto", "files/trained"),
    ("without", "bench-without"),
]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("file", "schema"),
    [
        *(one for one in TAKEN if (RESULTS / f"{one[0]}.json").exists()),
        ("all", "bench-all"),
        ("backends", "bench-backends"),
        ("convs", "bench-convs"),
        ("matmuls", "bench-matmuls"),
        ("kernels", "bench-kernels"),
        ("kernels_avx2", "bench-kernels"),
        ("networks_b1", "bench-all"),
        ("networks_b1_before", "bench-all"),
        ("without", "bench-without"),
        ("networks_b8", "bench-all"),
        ("networks_b8_zen4", "bench-all"),
        ("networks_t1", "bench-all"),
        ("onednn", "files/onednn"),
        ("onnx", "files/conformance"),
        ("onnx_open", "files/conformance"),
        ("solver", "files/solver"),
    ],
)
def test_published_results(file, schema):
    path = RESULTS / f"{file}.json"
    schemas.hold(schema, schemas.parsed(path.read_text()))


@pytest.mark.fast
def test_every_published_result_is_held():
    mark = next(m for m in test_published_results.pytestmark if m.args[0] == ("file", "schema"))
    assert {path.stem for path in RESULTS.glob("*.json")} == {file for file, _ in mark.args[1]}


@pytest.mark.fast
@pytest.mark.parametrize(
    "line",
    [
        "explain nothing.json",
        "run nothing.tar",
        "db ls --db nothing.jsonl",
        "compile nothing.onnx -o a.tar",
        "version --more",
        "help nothing",
    ],
)
def test_failures_with_json(command, line):
    """One line on the standard error, exit code 2, nothing on the standard output: as without --json."""
    result = command(*line.split(), "--json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("collage: error: ")
    assert result.stderr.count("\n") == 1
