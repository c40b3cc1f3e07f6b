# SPDX-License-Identifier: Apache-2.0
"""Every benchmark in a short form: it ends, writes what it promises where it is told to and nowhere else, its
JSON fits its schema, and its text holds no figure that is none. No figure is asserted.
"""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import exported_transformer
import placed
import pytest
import schemas
from conftest import SAMPLES, TREE, environment
from test_dynamic_domains import two_inputs
from test_json import small_network
from test_ragged import sentences

RESULTS = TREE / "docs" / "results"


@pytest.fixture(autouse=True)
def results_are_left_alone():
    """docs/results is written by make's targets alone, on a quiet machine."""

    def state():
        return {path.name: path.stat().st_mtime_ns for path in RESULTS.iterdir()}

    before = state()
    yield
    assert state() == before


@pytest.fixture
def network(tmp_path):
    return small_network(tmp_path / "small.onnx")


def readable(text, *words):
    """A report for people: what it must name is in it, and no NaN, infinity or missing value."""
    for word in words:
        assert word in text, text
    for nothing in (r"\bnan\b", r"\binf\b", r"[+-]Inf\b", r"\bNaN\b", r"\bNone\b", r"%!", r"<nil>"):
        assert not re.search(nothing, text), text
    return text


def script(name, *arguments, folder):
    """Run one of scripts/ in a folder; it may write nowhere but where it is told."""
    result = subprocess.run(
        [sys.executable, str(TREE / "scripts" / f"{name}.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(XDG_CACHE_HOME=folder / "cache"),
        timeout=850,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.long
@pytest.mark.parametrize("what", ["convs", "matmuls", "kernels", "backends", "all", "anytime"])
def test_collage_bench(command, network, tmp_path, what):
    """A table, JSON and a picture, of the same network."""
    peers = ("--networks", "none", "--rounds", 2, "--turn", "1ms")
    store = ("--db", tmp_path / "costs.jsonl", "--repeat", SAMPLES)
    arguments = {
        "convs": ("--model", network, *store),
        "matmuls": ("--model", network, *store),
        "kernels": ("--model", network, *store),
        "backends": (network, *peers),
        "all": (
            network, *peers, *store, "--search-time", "1s", "--compile-rounds", 2, "--executables",
            tmp_path, "--backends", ",".join(["tvm", *placed.usable()[:1]]),
        ),
        "anytime": (
            network, *peers, "--search-time", "3s", "--at", "2,4",
            "--backends", ",".join(["tvm", *placed.usable()[:1]]),
        ),
    }[what]  # fmt: skip
    file, picture = tmp_path / "report.json", tmp_path / "report.svg"
    result = command("bench", what, *arguments, "-q", "--json", file, "--svg", picture)
    assert result.returncode == 0, result.stderr
    report = schemas.hold(f"bench-{what}", schemas.parsed(file.read_text()))
    readable(result.stdout, "tvm", f"wrote {file}", f"wrote {picture}", "machine")
    drawn = picture.read_text()
    readable(" ".join(ElementTree.fromstring(drawn).itertext()))
    assert "NaN" not in drawn
    assert report["load"]["seconds"] > 0
    if what == "all":
        schemas.hold("files/plan", schemas.parsed((tmp_path / "small.plan.json").read_text()))
        assert (tmp_path / "small.tar").is_file()


@pytest.mark.long
def test_bench_drop_in(network, tmp_path):
    backend = "dnnl" if "dnnl" in placed.usable() else placed.usable()[0]
    arguments = ("--backends", f"tvm,{backend}", "--search-time", 5, "--rounds", 2)
    text = script("bench_drop_in", network, *arguments, folder=tmp_path)
    levels = ("graph ms", "operator ms", "the best alone to graph and operator", "at the graph level and the operator")
    readable(text, *levels, f"{backend} ms", "medians of 2 rounds")
    ratios = re.search(rf"^small .* (?:tvm|{backend}) (\S+) (\S+)$", text, re.M).groups()
    assert all(float(ratio) > 0 for ratio in ratios)
    text = script("bench_drop_in", network, *arguments, "--level", "operator", folder=tmp_path)
    assert "graph" not in text
    assert float(re.search(rf"^small .* (?:tvm|{backend}) (\S+)$", text, re.M).group(1)) > 0


@pytest.mark.long
@pytest.mark.skipif("dnnl_tvm" not in placed.usable(), reason="dnnl_tvm cannot be used here")
def test_bench_partition(network, tmp_path):
    text = script("bench_partition", "--workload", network, "--rounds", 1, folder=tmp_path)
    readable(text, "CollagePartition", "PartitionGraph", "regions", "steps of CollagePartition")
    counts = re.findall(r"^(?:CollagePartition|PartitionGraph, regions given) +(\d+)", text, re.M)
    assert len(counts) == 2
    assert counts[0] == counts[1] != "0"


@pytest.mark.long
@pytest.mark.skipif("dnnl_tvm" not in placed.usable(), reason="dnnl_tvm cannot be used here")
def test_bench_search(network, tmp_path):
    file = tmp_path / "search.json"
    settings = ("--rounds", 2, "--limit", 700, "--depth", 2, "--search-time", 5)
    text = script("bench_search", network, *settings, "--json", file, folder=tmp_path)
    readable(text, "Collage:", "TVM:", "of TVM's seconds", "latency in turn:", "both on the VM", "machine:", "load:")
    (row,) = schemas.hold("files/search", schemas.parsed(file.read_text()))["rows"]
    assert row["tvm_finished"], row
    assert row["warm_measured"] == 0
    assert row["collage_measured"] > 0
    assert 0 < row["collage_measuring"] < row["collage_seconds"]
    assert 0 < row["tvm_measuring"] < row["tvm_seconds"]
    assert 0 < row["whole_known"] < row["whole_seconds"]
    for latency in ("collage_ms", "collage_vm_ms", "whole_ms", "whole_vm_ms", "tvm_vm_ms"):
        assert row[latency] > 0


@pytest.mark.long
def test_bench_threads(network, tmp_path):
    backends = [name for name in ("dnnl", "openvino") if name in placed.usable()]
    if not backends:
        pytest.skip("neither dnnl nor openvino can be used here")
    file = tmp_path / "threads.json"
    text = script(
        "bench_threads", network, "--backends", ",".join(backends), "--rounds", 1, "--turn", "0.01",
        "--threads", 2, "--json", file, folder=tmp_path,
    )  # fmt: skip
    readable(text, "one pool", "Geometric means", "machine:", "load:")
    report = schemas.hold("files/threads", schemas.parsed(file.read_text()))
    assert [row["backend"] for row in report["rows"]] == backends


def test_bench_memory(network, tmp_path):
    backend = "dnnl+tvm" if "dnnl" in placed.usable() else "tvm"
    text = script("bench_memory", network, "--backends", backend, "--runs", 3, "--copies", 2, folder=tmp_path)
    readable(text, "loaded", "after the first run", "after 3 runs", "2 models, same file again")
    assert f"{network} on {backend.replace('+', ', ')}: weights" in text


@pytest.mark.long
def test_bench_devices(tmp_path):
    fetched = subprocess.run([TREE / "scripts" / "opencl.sh", "clblast"], capture_output=True, text=True, timeout=600)
    if fetched.returncode == 3:
        pytest.skip(f"CLBlast cannot be had here: {fetched.stdout.strip()}")
    model = tmp_path / "model.onnx"
    exported_transformer.save(model, layers=1)
    text = script("bench_devices", model, "--rounds", 1, folder=tmp_path)
    lines = readable(text, "device: ", "operators").splitlines()
    rows = [line.split() for line in lines if line.startswith(str(model))]
    assert [row[1] for row in rows] == ["tvm", "tvm_opencl", "clblast+tvm_opencl"]
    assert all(float(row[2]) > 0 for row in rows)
    there, theirs = (int(word.rstrip(",")) for word in rows[2][3:5])
    assert 0 < theirs < there and int(rows[1][3].rstrip(",")) > 0


def test_bench_dynamic(tmp_path):
    if not {"onnxruntime", "openvino"} <= set(placed.usable()):
        pytest.skip("ONNX Runtime or OpenVINO is not usable here")
    model, file = two_inputs(tmp_path / "sentence.onnx"), tmp_path / "dynamic.json"
    text = script("bench_dynamic", model, "--sizes", "len=1..30", "--shapes", 4, "--rounds", 2, "--json", file,
                  "--db", tmp_path / "costs.jsonl", folder=tmp_path)  # fmt: skip
    lines = readable(text, "sentence.onnx", "rounds").splitlines()
    assert "is wrong" not in text
    assert sum(line.startswith("len=") for line in lines) == 4
    (found,) = schemas.hold("files/dynamic", schemas.parsed(file.read_text()))["models"]
    assert len(found["shapes"]) == 4
    for row in found["shapes"]:
        assert 1 <= row["sizes"]["len"] <= 30
        assert set(row["ms"]) == {"collage", "onnxruntime", "openvino"}
        assert all(took > 0 for took in row["ms"].values())
    for given, why in ((["--sizes", "other=1..3"], ""), (["--sizes", "len=5"], "give it as NAME=1..512")):
        told = subprocess.run(
            [sys.executable, TREE / "scripts" / "bench_dynamic.py", tmp_path / "nothing.onnx", *given],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert told.returncode != 0 and why in told.stderr


@pytest.mark.long
def test_bench_ragged(tmp_path):
    if not {"native", "onnxruntime", "openvino"} <= set(placed.usable()):
        pytest.skip("native, ONNX Runtime or OpenVINO is not usable here")
    model, file = sentences(tmp_path / "sentences.onnx"), tmp_path / "ragged.json"
    text = script("bench_ragged", model, "--lengths", "sentences,full", "--rounds", 2, "--search-time", "8s", "--db",
                  tmp_path / "costs.jsonl", "--json", file, folder=tmp_path)  # fmt: skip
    lines = readable(text, "sentences.onnx", "rounds").splitlines()
    assert "is wrong" not in text
    assert sum(line.startswith("sentences.onnx") for line in lines) == 2
    assert sum("the same kernels with padding to ours" in line for line in lines) == 2
    few, full = schemas.hold("files/ragged", schemas.parsed(file.read_text()))["batches"]
    assert full["lengths"] == [10] * 4 and max(few["lengths"]) <= 10
    assert set(few["ms"]) == {"collage", "padded", "onnxruntime", "openvino"}
    told = subprocess.run(
        [sys.executable, TREE / "scripts" / "bench_ragged.py", two_inputs(tmp_path / "open.onnx")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert told.returncode != 0 and "has no input of batch and length, of fixed sizes" in told.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_bench_serve(tmp_path):
    """Triton's client, a peer of the same protocol, and answers that ONNX Runtime gives, too."""
    fetched = subprocess.run(
        [TREE / "scripts" / "serve_peer.sh"], capture_output=True, text=True, env=environment(),
        stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    if "no package index could be reached" in fetched.stderr:
        pytest.skip(f"the peer cannot be had here: {fetched.stderr.strip()}")
    assert fetched.returncode == 0, fetched.stdout + fetched.stderr
    file = tmp_path / "serve.json"
    text = script(
        "bench_serve", "--seconds", 1, "--rounds", 2, "--clients", 3, "--search-time", "5s", "--backends", "tvm",
        "--json", file, folder=tmp_path,
    )  # fmt: skip
    readable(text, "collage serve, JSON", "collage serve, bytes", "MLServer", "p99 ms", "machine:")
    report = schemas.hold("files/serve", schemas.parsed(file.read_text()))
    assert len(report["rows"]) == 3 and all(row["requests"] for row in report["rows"])


@pytest.mark.long
def test_bench_onednn(tmp_path):
    file = tmp_path / "onednn.json"
    text = script("bench_onednn", "--rounds", 1, "--json", file, folder=tmp_path)
    readable(text, "oneDNN 2.6 beside 3.2", "conv 64>64 56 3x3 f32", "geometric mean")
    both = schemas.hold("files/onednn", schemas.parsed(file.read_text()))
    assert set(both["2.6"]) <= set(both["3.2"])


@pytest.mark.long
def test_bench_blocking():
    """Each number at half, once and twice, of one kernel."""
    result = subprocess.run(
        [TREE / "scripts" / "bench_blocking.sh", "--rounds", "1", "--threads", "1", "--only", "product"],
        capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in readable(result.stdout, "as it is").splitlines() if line.startswith("product")]
    assert {row[1] for row in rows} == {"depth", "left_elements"}
    assert all(float(time) > 0 for row in rows for time in row[-5:])


@pytest.mark.long
def test_bench_networks(tmp_path):
    settings = environment(ONLY="t1", NETWORKS="bert", RESULTS=tmp_path, EXECUTABLES=tmp_path)
    arguments = ("--rounds", 1, "--turn", "10ms", "--level", "operator", "--backends", "tvm,dnnl", "--repeat", 2, "-q")
    result = subprocess.run(
        [TREE / "scripts" / "bench_networks.sh", *map(str, arguments), "--db", tmp_path / "costs.jsonl"],
        capture_output=True, text=True, env=settings, timeout=850,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = schemas.hold("bench-all", schemas.parsed((tmp_path / "networks_t1.json").read_text()))
    assert report["threads"] == 1
    assert {"collage", "dnnl alone", "tvm"} <= {peer["name"] for peer in report["peers"] if "absent" not in peer}
    assert (tmp_path / "networks_t1.txt").read_text() in result.stdout
    assert (tmp_path / "networks_t1.svg").exists()
    assert (tmp_path / "t1" / "bert.tar").exists()


@pytest.mark.long
def test_bench_without(network, tmp_path):
    """Two networks: one that has kernels of native, and one that was never kept."""
    settings = environment(NETWORKS="none", RESULTS=tmp_path, EXECUTABLES=tmp_path)
    often = ("--rounds", 3, "--turn", "1ms", "--repeat", 2, "--compile-rounds", 2, "--search-time", "3s",
             "--backends", "tvm,native", "--db", tmp_path / "costs.jsonl", "-q")  # fmt: skip
    shutil.copy(network, tmp_path / "absent.onnx")

    def run(only, *arguments):
        return subprocess.run(
            [TREE / "scripts" / "bench_networks.sh", *map(str, (*arguments, *often))],
            capture_output=True, text=True, env={**settings, "ONLY": only}, timeout=850,
        )  # fmt: skip

    # What is pinned is kept, whatever is faster.
    first = run("b1", network, "--pin", "nn.dense=native", "--peers", "tvm")
    assert first.returncode == 0, first.stderr
    result = run("without", network, tmp_path / "absent.onnx")
    assert result.returncode == 2
    assert "1 of 2 networks could not be compiled or run: absent" in result.stderr
    report = schemas.hold("bench-without", schemas.parsed((tmp_path / "without.json").read_text()))
    small, absent = report["networks"]
    assert "there is no absent.tar" in absent["failure"]
    plan = schemas.parsed((tmp_path / "b1" / "small.plan.json").read_text())
    kernels = {
        one["kernel"]
        for region in plan["regions"]
        for one in region["candidates"]
        if one.get("backend", region["backend"]) == "native" and "kernel" in one
    }
    assert kernels
    assert [row["kernel"] for row in small["without"]] == ["", *sorted(kernels)]
    for row in small["without"]:
        assert "absent" not in row
        assert len(row["turns_ms"]) == 3
        if row["kernel"]:
            left = schemas.parsed((tmp_path / "b1" / f"small.without-{row['kernel']}.plan.json").read_text())
            text = json.dumps(left["regions"])
            assert f'"kernel": "{row["kernel"]}"' not in text
    assert {one["kernel"] for one in report["kernels"]} >= kernels
    readable(result.stdout, "kernels that earn nothing on any of them:", "(again)")
    assert (tmp_path / "without.svg").exists()


@pytest.mark.long
def test_bench_precision(tmp_path):
    settings = environment(ERRORS="0.5", NETWORKS="bert", RESULTS=tmp_path, EXECUTABLES=tmp_path)
    arguments = ("--rounds", 1, "--turn", "10ms", "--level", "operator", "--backends", "tvm,openvino", "--repeat", 2,
                 "-q", "--skip-unusable", "--db", tmp_path / "costs.jsonl")  # fmt: skip
    result = subprocess.run(
        [TREE / "scripts" / "bench_precision.sh", *map(str, arguments)],
        capture_output=True, text=True, env=settings, timeout=850,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = schemas.hold("bench-all", schemas.parsed((tmp_path / "precision_0.5.json").read_text()))
    assert report["precision"] == "up to auto, off by 0.5 (l2) at most"
    assert "How far the outputs are off" in (tmp_path / "precision_0.5.txt").read_text()
    for cell in report["networks"][0]["peers"]:
        if cell["peer"] in ("onnxruntime", "openvino"):
            assert cell["l2_error"] < 1e-4
        # Engines quantise by scales of their own: ONNX Runtime's outputs are off by three times what bert gives, and
        # that is what the report has to say.
        if cell.get("wrong"):
            assert cell["peer"].endswith("-int8") and cell["l2_error"] > 0.5


@pytest.mark.long
def test_bench_quantised(tmp_path):
    """A network that is quantised here; engines that round otherwise are not wrong; models are written once."""
    settings = environment(NETWORKS="mobilenet_v2", RESULTS=tmp_path, EXECUTABLES=tmp_path)
    arguments = ("--rounds", 1, "--turn", "10ms", "--search-time", "30s", "--backends", "tvm,openvino",
                 "-q", "--skip-unusable", "--db", tmp_path / "costs.jsonl")  # fmt: skip
    written = set()
    for _ in range(2):
        result = subprocess.run(
            [TREE / "scripts" / "bench_quantised.sh", *map(str, arguments)],
            capture_output=True, text=True, env=settings, timeout=850,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        written.add((tmp_path / "mobilenet_v2.qdq.onnx").stat().st_mtime_ns)
        report = schemas.hold("bench-all", schemas.parsed((tmp_path / "quantised.json").read_text()))
        assert [network["name"] for network in report["networks"]] == ["mobilenet_v2.qdq", "mobilenet_v2.f32"]
        assert not any(cell.get("wrong") for network in report["networks"] for cell in network["peers"])
    assert len(written) == 1


@pytest.mark.long
def test_bench_models(network, tmp_path):
    """What lies in a folder; what was taken is not taken again."""
    (tmp_path / "models").mkdir()
    shutil.copy(network, tmp_path / "models" / "small.new.onnx")
    settings = environment(MODELS=tmp_path / "models", RESULTS=tmp_path, EXECUTABLES=tmp_path / "kept")
    arguments = ("--rounds", 1, "--turn", "1ms", "--search-time", "4s", "--backends", "tvm,dnnl", "-q")
    reports = []
    for _ in range(2):
        result = subprocess.run(
            [TREE / "scripts" / "bench_models.sh", *map(str, arguments)],
            capture_output=True, text=True, env=settings, timeout=850,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        reports.append(schemas.hold("bench-all", schemas.parsed((tmp_path / "models_speed.json").read_text())))
    assert (tmp_path / "models_speed.txt").read_text() in result.stdout
    assert (tmp_path / "models_speed.svg").exists()
    assert [row["name"] for row in reports[0]["networks"]] == ["small.new"]
    assert reports[1]["networks"] == reports[0]["networks"]


@pytest.mark.long
def test_bench_anytime(network, tmp_path):
    """Of two programs; what was taken is not taken again."""
    settings = environment(NETWORKS="none", RESULTS=tmp_path, EXECUTABLES=tmp_path / "kept")
    arguments = (
        network, "--before", TREE, "--backends", "tvm,dnnl", "--search-time", "4s", "--at", "5,10,600",
        "--rounds", 2, "--turn", "1ms", "-q",
    )  # fmt: skip
    reports, executables = [], []
    for _ in range(2):
        result = subprocess.run(
            [TREE / "scripts" / "bench_anytime.sh", *map(str, arguments)],
            capture_output=True, text=True, env=settings, timeout=850,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        reports.append(schemas.hold("bench-anytime", schemas.parsed((tmp_path / "anytime.json").read_text())))
        executables.append({path.name: path.stat().st_mtime_ns for path in (tmp_path / "kept").glob("*.tar")})
    assert (tmp_path / "anytime.txt").read_text() == result.stdout
    readable(result.stdout, "before: tvm,dnnl (an earlier Collage", "within 3 % of the best on", "machine:")
    assert (tmp_path / "anytime.svg").exists()
    (row,) = reports[0]["networks"]
    assert [run["column"] for run in row["runs"]] == ["collage", "before"]
    assert row["best_ms"] == min(run["median_ms"] for run in row["runs"])
    for run in row["runs"]:
        assert "failure" not in run, run
        assert run["found"][0]["name"] == "tvm"
        assert run["found"][0]["to_tvm"] == pytest.approx(1)
        seconds = [found["seconds"] for found in run["found"]]
        assert seconds == sorted(seconds)
        assert seconds[-1] < run["taken_seconds"]
        assert run["latencies_ms"][-1] == run["median_ms"]
    assert executables[0] == executables[1]
    assert set(executables[0]) == {"small.collage.tar", "small.before.tar"}
    assert reports[1]["networks"] == reports[0]["networks"]


@pytest.mark.long
def test_bench_ablation(network, tmp_path):
    settings = environment(NETWORKS="none", BACKENDS="tvm,dnnl", RESULTS=tmp_path, EXECUTABLES=tmp_path / "kept")
    arguments = (
        network, "--search-time", "4s", "--rounds", 2, "--turn", "1ms", "--repeat", 2, "--compile-rounds", 2, "-q",
    )  # fmt: skip
    result = subprocess.run(
        [TREE / "scripts" / "bench_ablation.sh", *map(str, arguments)],
        capture_output=True, text=True, env=settings, timeout=850,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    report = schemas.hold("bench-all", schemas.parsed((tmp_path / "ablation.json").read_text()))
    searched = ["operator level", "backends first", "with feedback"]
    assert [peer["name"] for peer in report["peers"]] == ["collage", *searched, "dnnl alone", "tvm"]
    readable(result.stdout, "Seconds until", *(f"{name} to ours" for name in [*searched, "dnnl alone"]))
    (row,) = report["networks"]
    kept = schemas.parsed((tmp_path / "kept" / "small.plan.json").read_text())["graph_level"]["believed"]
    assert row["with_borders_to_without"] == pytest.approx(kept["bound_ms"] / kept["proven_ms"])
    readable(result.stdout, f"were nothing paid between regions, as each search believed at its end: {row['name']} ")
    cells = {cell["peer"]: cell for cell in row["peers"]}
    for name in ["collage", *searched]:
        assert cells[name]["search_seconds"] > 0
        assert cells[name]["kept"]
    plans = {
        name: schemas.parsed((tmp_path / "kept" / f"small.{name.replace(' ', '-')}.plan.json").read_text())
        for name in searched
    }
    measured = {name: [one["name"] for one in plan["graph_level"]["networks"]] for name, plan in plans.items()}
    assert set(measured["operator level"]) <= {"tvm", "operator level"}
    assert measured["backends first"][:2] == ["tvm", "dnnl"]
    assert not any(one.startswith(("feedback", "placed again")) for one in measured["backends first"])
    assert not any(one.startswith("placed again") for one in measured["with feedback"])


@pytest.mark.long
def test_bench_scale(tmp_path):
    keep = tmp_path / "rows"
    script("bench_scale", "--operators", 4, "--megabytes", "", "--keep", keep, folder=tmp_path)
    (line,) = keep.read_text().splitlines()
    keep.write_text(line.replace('"steps": {', '"ended": ["as it was kept"], "steps": {') + "\n")
    out = script(
        "bench_scale", "--operators", "4,9", "--megabytes", 1, "--json", tmp_path / "scale.json", "--keep", keep,
        folder=tmp_path,
    )  # fmt: skip
    readable(out, "read s", "place again s", "plan again s", "peak MB")
    told = schemas.parsed((tmp_path / "scale.json").read_text())
    schemas.hold("files/scale", told)
    assert [row["operators"] for row in told["operators"]] == [4, 9]
    steps = {"read", "normalise", "place", "place again", "build", "export"}
    for row in told["operators"]:
        assert set(row["steps"]) == {*steps, "plan", "plan again"}
        assert row.get("ended") == (["as it was kept"] if row["operators"] == 4 else None)
        assert row["steps"]["plan"]["peak_mb"] > 10
    for row in told["megabytes"]:
        assert set(row["steps"]) == steps


def test_stacks_have_more_computations_the_more_operators_they_have(tmp_path):
    import onnx

    sys.path.insert(0, str(TREE / "scripts"))
    import bench_scale

    kinds = []
    for operators in (30, 300, 3000):
        bench_scale.stack(tmp_path / "stack.onnx", operators)
        graph = onnx.load(tmp_path / "stack.onnx", load_external_data=False).graph
        assert len(graph.node) == operators
        kinds.append(len({tuple(one.dims) for one in graph.initializer}))
    assert kinds == [10, 100, 1000]


def test_what_a_dead_process_of_bench_scale_says():
    sys.path.insert(0, str(TREE / "scripts"))
    import bench_scale

    assert bench_scale.ending(3, False, 10, "one\n\nValueError: two\n") == "exit code 3, ValueError: two"
    assert bench_scale.ending(-9, False, 10, "") == "SIGKILL"
    assert bench_scale.ending(-9, True, 10, "what it said") == "ended after 10 s"
    with subprocess.Popen([sys.executable, "-c", "x = bytes(80_000_000); input()"], stdin=subprocess.PIPE,
                          start_new_session=True) as running:  # fmt: skip
        memory = bench_scale.Memory(running.pid)
        memory.start()
        import time

        until = time.monotonic() + 60
        while memory.peak < 1 and time.monotonic() < until:
            time.sleep(0.1)
        memory.over.set()
        running.stdin.close()
    assert memory.peak >= 1


@pytest.mark.long
def test_bench_region_call(tmp_path):
    text = script("bench_region_call", "--calls", 50, "--rounds", 2, folder=tmp_path)
    readable(text, "Median of 2 rounds of 50 calls", "machine: ")
    rows = re.findall(r"^(\w+) +(\d+\.\d+) +\[\d+\.\d+, \d+\.\d+\] +(\d+\.\d+) +\[", text, re.M)
    assert rows[0][0] == "tvm" and {name for name, *_ in rows} <= {"tvm", *placed.usable()}
    assert len(rows) > 1 and all(float(time) >= 0 for _, *both in rows for time in both)


def test_benchsolver(tmp_path):
    go = shutil.which("go", path=f"{environment()['PATH']}:/usr/local/go/bin")
    if not go:
        pytest.skip("there is no go here")
    result = subprocess.run(
        [go, "run", "./scripts/benchsolver", "--sizes", "60,120", "--repeats", "1", "--out", str(tmp_path)],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    readable(result.stdout)
    assert (tmp_path / "solver.txt").read_text() == result.stdout
    report = schemas.hold("files/solver", schemas.parsed((tmp_path / "solver.json").read_text()))
    assert {row["operators"] for row in report["rows"]}
    assert len(report["fits"]) * 2 == len(report["rows"])


@pytest.mark.fast
def test_every_script_is_here():
    """A benchmark that is new is run by this file."""
    names = {path.stem for path in (TREE / "scripts").glob("bench*")}
    assert names == {
        "bench_ablation",
        "bench_anytime",
        "bench_blocking",
        "bench_devices",
        "bench_memory",
        "bench_models",
        "bench_networks",
        "bench_onednn",
        "bench_partition",
        "bench_precision",
        "bench_quantised",
        "bench_ragged",
        "bench_scale",
        "bench_drop_in",
        "bench_dynamic",
        "bench_region_call",
        "bench_search",
        "bench_serve",
        "bench_threads",
        "benchsolver",
    }
    text = (TREE / "tests" / "test_bench_scripts.py").read_text()
    for name in names:
        assert f"def test_{name}(" in text
    kinds = schemas.parsed(
        subprocess.run(
            [str(TREE / "python" / "collage" / "bin" / "collage"), "help", "bench", "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )["commands"][0]["parts"]
    mark = next(mark for mark in test_collage_bench.pytestmark if mark.name == "parametrize")
    # bench without has a test of its own; bench merge, which runs nothing, is held in test_json.py.
    assert kinds == [f"bench {what}" for what in (*mark.args[1], "without", "merge")]
    assert "def test_bench_without(" in text
