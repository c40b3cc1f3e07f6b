# SPDX-License-Identifier: Apache-2.0
"""`collage bench`: what its reports hold, on networks that take no time. No figure is asserted."""

import importlib.util
import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import onnx
import placed
import pytest
import schemas
from collage import frontends
from collage.peers import onnx_file, program
from conftest import TREE
from onnx import TensorProto, helper, numpy_helper
from test_end_to_end import small_onnx


def matmul_onnx(path):
    """Two matrix products, one of them twice."""
    rng = np.random.default_rng(3)
    weights = {"a": (16, 24), "b": (24, 16), "c": (16, 24)}
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["u"]),
        helper.make_node("Gemm", ["u", "b"], ["v"]),
        helper.make_node("Gemm", ["v", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "matmuls",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 24])],
        [
            numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32), name)
            for name, shape in weights.items()
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def installed(*packages):
    return all(importlib.util.find_spec(package) for package in packages)


def report_of(result, path):
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())


@pytest.mark.long
def test_operators_by_themselves(command, store, tmp_path):
    matmul_onnx(tmp_path / "net.onnx")
    arguments = [
        "bench", "matmuls", "--model", tmp_path / "net.onnx", "--db", store, "--repeat", 2, "-q",
        "--json", tmp_path / "report.json", "--svg", tmp_path / "report.svg",
    ]  # fmt: skip
    result = command(*arguments)
    report = report_of(result, tmp_path / "report.json")
    assert [row["count"] for row in report["operators"]] == [2, 1]
    names = [backend["name"] for backend in report["backends"]]
    assert names[0] == "tvm"
    assert set(names) == {"tvm", *placed.usable()}
    for row in report["operators"]:
        assert row["operator"] == "nn.dense"
        assert [cell["backend"] for cell in row["backends"]] == names
        assert row["backends"][0]["relative"] == 1
        for cell in row["backends"]:
            if cell.get("absent"):
                continue
            assert 0 < cell["low_ms"] <= cell["ms"] <= cell["high_ms"]
            assert cell["relative"] == pytest.approx(cell["ms"] / row["backends"][0]["ms"])
        assert (
            row["fastest"]
            == min((cell for cell in row["backends"] if "ms" in cell), key=lambda cell: cell["ms"])["backend"]
        )
    assert report["measured"] > 0
    assert report["machine"]["processors"] > 0
    assert report["load"]["seconds"] > 0
    for text in ("geometric mean", "other processes took", "machine:"):
        assert text in result.stdout
    ElementTree.parse(tmp_path / "report.svg")

    # What was measured is not measured again.
    again = report_of(command(*arguments), tmp_path / "report.json")
    assert again["measured"] == 0
    assert again["stored"] == report["measured"] + report["stored"]

    result = command("bench", "convs", "--model", tmp_path / "net.onnx", "--db", store, "-q")
    assert result.returncode == 2
    assert "has none of the operators nn.conv1d" in result.stderr


@pytest.fixture(scope="module")
def executables(command, store, tmp_path_factory):
    """A folder with the small network and what was compiled of it."""
    folder = tmp_path_factory.mktemp("bench")
    small_onnx(folder / "small.onnx")
    (folder / "built").mkdir()
    result = command(
        "compile", folder / "small.onnx", "--input-shape", "x:1,3,16,16",
        "-o", folder / "built" / "small.tar",
        "--backends", "tvm,dnnl", "--db", store, "--repeat", 2, "--rounds", 2, "-q", "--no-graph-search",
        "--plan-out", folder / "built" / "small.plan.json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return folder


def bench_all(command, folder, *arguments, **options):
    return command(
        "bench", "all", folder / "small.onnx", "--networks", "none", "--input-shape", "x:1,3,16,16",
        "--executables", folder / "built", "--turn", "10ms", "-q", *arguments, **options,
    )  # fmt: skip


def test_kernels_beside_backends(command, store, tmp_path):
    """Two products, three kernels' worth of operators: each kernel on the largest group that it takes."""
    matmul_onnx(tmp_path / "net.onnx")
    result = command(
        "bench", "kernels", "--model", tmp_path / "net.onnx", "--db", store, "--repeat", 2, "-q",
        "--json", tmp_path / "report.json", "--svg", tmp_path / "report.svg",
    )  # fmt: skip
    report = report_of(result, tmp_path / "report.json")
    assert report["backend"] == "native"
    names = [other["name"] for other in report["others"]]
    assert names[0] == "tvm"
    assert set(names) == {"tvm", *placed.usable()} - {"native"}
    assert {row["kernel"] for row in report["rows"]} == {kernel["kernel"] for kernel in report["kernels"]}
    assert sum(kernel["shapes"] for kernel in report["kernels"]) == len(report["rows"])
    for row in report["rows"]:
        assert row["pattern"].startswith("native.")
        assert row["limit_ms"] > 0
        times = {cell["backend"]: cell["ms"] for cell in row["others"] if "ms" in cell}
        assert {"tvm", "dnnl"} <= set(times), row
        for cell in row["others"]:
            if "ms" in cell:
                assert cell["relative"] == pytest.approx(cell["ms"] / row["ms"])
        times["native"] = row["ms"]
        assert row["fastest"] == min(times, key=times.get)
    for text in ("of the limit", "Over all shapes", "machine:"):
        assert text in result.stdout
    ElementTree.parse(tmp_path / "report.svg")


def test_kernels_of_a_backend_without_any(command, store, tmp_path):
    matmul_onnx(tmp_path / "net.onnx")
    arguments = ("bench", "kernels", "--model", tmp_path / "net.onnx", "--db", store, "-q", "--of")
    result = command(*arguments, "dnnl")
    assert result.returncode == 2
    assert "has nothing for the kernels of dnnl" in result.stderr
    result = command(*arguments, "nativ")
    assert result.returncode == 2
    assert "native" in result.stderr


def test_networks_beside_engines(command, executables, tmp_path):
    """Each engine that is installed runs the network, right, in turn; the others are named."""
    peers = ["tvm", "onnxruntime", "openvino", "torch"]
    result = bench_all(
        command, executables, "--peers", ",".join(peers), "--rounds", 3,
        "--json", tmp_path / "all.json", "--svg", tmp_path / "all.svg",
    )  # fmt: skip
    report = report_of(result, tmp_path / "all.json")
    told = {peer["name"]: peer for peer in report["peers"]}
    assert list(told) == ["collage", *peers]
    for name in ("onnxruntime", "openvino"):
        if not installed(name):
            assert f"the Python package {name} is not installed" in told[name]["absent"]
            assert f"{name} was not run" in result.stdout
            assert told[name]["remedy"]
    (network,) = report["networks"]
    assert network["name"] == "small"
    assert network["chosen"]
    ran = [name for name, peer in told.items() if "absent" not in peer]
    assert [cell["peer"] for cell in network["peers"]] == ran
    for cell in network["peers"]:
        assert not cell.get("absent"), cell
        assert len(cell["turns_ms"]) == 3
        assert not cell.get("wrong")
        assert cell["max_abs_error"] <= 1e-4
        if cell["peer"] != "collage":
            assert 0 < cell["to_ours"]["low"] <= cell["to_ours"]["median"] <= cell["to_ours"]["high"]
            assert cell["to_ours"]["coverage"] == 0.75  # what three turns can give
    assert network["best_peer"] in ran[1:]
    assert report["summary"]["best_peer_to_ours"]["networks"] == 1
    assert network["load"]["seconds"] > 0
    for text in ("best peer", "sign test", "other processes took", "tvm is TVM"):
        assert text in result.stdout
    ElementTree.parse(tmp_path / "all.svg")


def test_an_executable_that_computes_something_else(command, executables, store, tmp_path):
    """An output that is not TVM's is told, and where it is an engine's, nobody is compared with it."""
    folder = shutil.copytree(executables, tmp_path / "other")
    weights = onnx.load(str(folder / "small.onnx"))
    for tensor in weights.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
    onnx.save(weights, str(folder / "small.onnx"))
    result = bench_all(command, folder, "--peers", "tvm", "--rounds", 1, "--json", tmp_path / "all.json")
    (network,) = report_of(result, tmp_path / "all.json")["networks"]
    assert network["peers"][0]["wrong"]
    assert "its outputs differ from TVM's" in result.stdout


def test_a_network_that_fails_costs_itself_only(command, executables, tmp_path):
    """The others are run, and not again where the command goes on."""
    folder = shutil.copytree(executables, tmp_path / "other")
    (folder / "broken.onnx").write_bytes(b"no model")
    arguments = (folder / "broken.onnx", "--peers", "tvm", "--rounds", 1, "--json", tmp_path / "all.json", "--resume")
    reports = []
    for _ in range(2):
        result = bench_all(command, folder, *arguments)
        assert result.returncode == 2
        assert "1 of 2 networks could not be compiled or run: broken" in result.stderr
        reports.append(schemas.hold("bench-all", schemas.parsed((tmp_path / "all.json").read_text())))
        small, broken = reports[-1]["networks"]
        assert "broken.onnx" in broken["failure"]
        assert broken["failure"] in result.stdout
        assert broken["peers"] == []
        assert [cell["peer"] for cell in small["peers"]] == ["collage", "tvm"]
        assert reports[-1]["summary"]["failed"] == ["broken"]
        assert reports[-1]["summary"]["best_peer_to_ours"]["networks"] == 1
    assert reports[1]["networks"] == reports[0]["networks"]
    assert reports[1]["peers"] == reports[0]["peers"]
    # With other turns it was run in another way.
    result = bench_all(command, folder, "--peers", "tvm", "--rounds", 2, "--json", tmp_path / "all.json", "--resume")
    (small,) = report_of(result, tmp_path / "all.json")["networks"]
    assert len(small["peers"][0]["turns_ms"]) == 2


def test_figures_that_cannot_be_kept_are_reported(command, executables, tmp_path):
    folder = shutil.copytree(executables, tmp_path / "other", ignore=shutil.ignore_patterns("*.bench.json"))
    (folder / "built" / "small.bench.json").mkdir()
    report = tmp_path / "all.json"
    result = bench_all(command, Path(), "--peers", "tvm", "--rounds", 1, "--json", report, cwd=folder)
    (network,) = report_of(result, report)["networks"]
    # As it was named, so that a report tells nothing of the machine.
    assert network["model"] == "small.onnx"
    assert [len(cell["turns_ms"]) for cell in network["peers"]] == [1, 1]


@pytest.mark.long
def test_networks_beside_backends_alone_and_an_earlier_collage(command, executables, tmp_path):
    """Columns that are no peers: shown and compared with, the best peer of nobody."""
    folder = shutil.copytree(executables, tmp_path / "other")
    told = bench_all(
        command, folder, "--peers", "tvm", "--alone", "dnnl", "--before", TREE, "--level", "operator", "--rounds", 3,
        "--json", tmp_path / "all.json",
    )  # fmt: skip
    report = report_of(told, tmp_path / "all.json")
    peers = {peer["name"]: peer for peer in report["peers"]}
    assert list(peers) == ["collage", "before", "dnnl alone", "tvm"]
    assert [name for name, peer in peers.items() if peer.get("other")] == ["before", "dnnl alone"]
    assert peers["before"]["version"].startswith("an earlier Collage, commit ")
    (network,) = report["networks"]
    for cell in network["peers"]:
        assert not cell.get("absent"), cell
        assert len(cell["turns_ms"]) == 3
        assert cell["max_abs_error"] <= 1e-4
    assert network["best_peer"] == "tvm"
    assert {path.name for path in (folder / "built").iterdir()} >= {"small.before.tar", "small.alone-dnnl.tar"}
    # What is taken from the folder again is no peer either.
    told = bench_all(
        command, folder, "--peers", "tvm", "--alone", "dnnl", "--before", TREE, "--level", "operator", "--rounds", 3,
        "--json", tmp_path / "all.json", "--resume",
    )  # fmt: skip
    assert report_of(told, tmp_path / "all.json")["summary"] == report["summary"]


@pytest.mark.long
def test_backends_alone(command, executables, tmp_path):
    """Each backend runs the network alone, right, and beside its library, in turn with what was compiled."""
    result = command(
        "bench", "backends", executables / "small.onnx", "--networks", "none", "--input-shape", "x:1,3,16,16",
        "--executables", executables / "built", "--turn", "10ms", "--rounds", 3, "-q",
        "--json", tmp_path / "backends.json", "--svg", tmp_path / "backends.svg",
    )  # fmt: skip
    report = report_of(result, tmp_path / "backends.json")
    there = [column["name"] for column in report["backends"] if "absent" not in column]
    assert set(there) == {"tvm", *placed.usable()}
    (network,) = report["networks"]
    assert network["chosen"]
    assert len(network["collage"]["turns_ms"]) == 3
    assert [cell["peer"] for cell in network["backends"]] == there
    libraries = {"tvm": "tvm", "openvino": "openvino", "onnxruntime": "onnxruntime"}
    for cell in network["backends"]:
        assert not cell.get("absent"), cell
        assert not cell.get("wrong")
        assert cell["operators"] > 0
        assert len(cell["turns_ms"]) == 3
        runs_directly = libraries.get(cell["peer"]) and installed(libraries[cell["peer"]])
        assert bool(cell.get("direct")) == bool(runs_directly)
        if runs_directly:
            assert 0 < cell["to_direct"]["low"] <= cell["to_direct"]["median"] <= cell["to_direct"]["high"]
    by_time = sorted(network["backends"], key=lambda cell: cell["median_ms"])
    assert network["fastest"] == by_time[0]["peer"]
    assert [entry["backend"] for entry in report["overheads"]] == [n for n in there if n in libraries]
    for entry in report["overheads"]:
        assert len(entry["within"]) + len(entry["above"]) == 1
    for text in ("all together", "tvm alone to it", "geometric mean", "sign test", "machine:"):
        assert text in result.stdout
    ElementTree.parse(tmp_path / "backends.svg")


def test_arguments(command, executables, tmp_path):
    for arguments, told in (
        (("bench",), None),
        (("bench", "al"), 'unknown command "bench al": did you mean "bench all"?'),
        (("bench", "all", "--peers", "tensorrt"), '--peers: unknown engine "tensorrt"'),
        (("bench", "all", "--peers", "openvin"), 'unknown engine "openvin": did you mean "openvino"?'),
        (("bench", "all", "--networks", "none"), "there is no network to run"),
        (("bench", "all", "--alone", "dnn"), 'did you mean "dnnl"?'),
        (("bench", "all", "--before", tmp_path), "it is a checkout of Collage after make setup"),
        (("bench", "all", "--resume"), "--resume: name the folder that has the figures in --executables"),
        (("bench", "all", "--rounds", 0), "--rounds 0: at least one turn must be run"),
        (("bench", "all", "--executables", tmp_path / "none"), "there is no such folder"),
        (("bench", "convs", "--json", tmp_path / "x", "--svg", tmp_path / "x"), "are the same file"),
        (("bench", "convs", "workload:dcgan"), "bench convs does not take"),
        (("bench", "backends", "--backends", "dnn"), 'did you mean "dnnl"?'),
        (("bench", "backends", "--turn", "2m"), "a turn lasts up to a minute"),
        (("bench", "anytime", "--at", "5,2"), "--at [5 2]: name seconds above 0, in order"),
        (("bench", "anytime", "--search-time", "0s"), "--search-time 0s: name some time"),
        (("bench", "anytime", "--backends", "dnn"), 'did you mean "dnnl"?'),
    ):
        result = command(*arguments)
        assert result.returncode == (0 if told is None else 2)
        assert told is None or told in result.stderr


@pytest.mark.parametrize("name", [pytest.param("bert_full", marks=pytest.mark.long), "small"])
def test_the_onnx_form_computes_the_same(name, tmp_path):
    """What other engines are given is the network: read back by TVM, it gives the same outputs."""
    small_onnx(tmp_path / "small.onnx")
    source = tmp_path / "small.onnx" if name == "small" else f"workload:{name}"
    model = frontends.load(source, input_shapes={"x": (1, 3, 16, 16)} if name == "small" else None)
    plain = program.read(model.module)
    onnx_file.write(plain, tmp_path / "written.onnx")
    written = frontends.load(tmp_path / "written.onnx")
    assert written.inputs == model.inputs
    inputs = placed.values(model.module)
    placed.same(placed.expected(written.module, *inputs), placed.expected(model.module, *inputs))


@pytest.mark.parametrize("mode", ["clip", "wrap", "fast"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
def test_take_is_said_to_others(mode, axis, constant, tmp_path):
    """Indices of any shape, outside of the data too where the mode says what that means, by ONNX's own evaluator."""
    from onnx.reference import ReferenceEvaluator
    from tvm import IRModule, relay

    data = relay.var("x", shape=(3, 4, 5))
    whole = np.array([[-12, 2, -1], [0, 3, 61]] if mode != "fast" else [[0, 2, 1], [2, 1, 0]], "int32")
    for given in (whole, whole[:, 1], np.array(whole[0, 0])):
        shape = given.shape
        indices = relay.const(given) if constant else relay.var("i", shape=shape, dtype="int32")
        parameters = [data] if constant else [data, indices]
        body = relay.take(data, indices, axis=axis, mode=mode)
        module = relay.transform.InferType()(IRModule.from_expr(relay.Function(parameters, body)))
        onnx_file.write(program.read(module), tmp_path / "take.onnx")
        x = np.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
        (want,) = placed.expected(module, *([x] if constant else [x, given]))
        session = ReferenceEvaluator(str(tmp_path / "take.onnx"))
        (got,) = session.run(None, {"x": x} if constant else {"x": x, "i": given})
        assert np.array_equal(got, want), (shape, got, want)


def test_take_of_batches_is_refused(tmp_path):
    from tvm import IRModule, relay

    x, i = relay.var("x", shape=(2, 4)), relay.var("i", shape=(2, 3), dtype="int32")
    function = relay.Function([x, i], relay.take(x, i, axis=1, batch_dims=1))
    plain = program.read(relay.transform.InferType()(IRModule.from_expr(function)))
    with pytest.raises(program.UnsupportedError, match="take with batch_dims 1"):
        onnx_file.write(plain, tmp_path / "take.onnx")


def test_what_cannot_be_said_to_others_is_named():
    from tvm import IRModule, relay

    x = relay.var("x", shape=(4, 4))
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function([x], relay.cumsum(x, axis=0))))
    plain = program.read(module)
    with pytest.raises(program.UnsupportedError, match="the operator cumsum has no ONNX form here"):
        onnx_file.write(plain, "/nowhere")
