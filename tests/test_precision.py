# SPDX-License-Identifier: Apache-2.0
"""Parts that are computed in bfloat16 or bytes where that is allowed, as far as the outputs stay within that."""

import itertools
import json
import math

import numpy as np
import placed
import pytest
import tvm
from tvm import relay

THREADS = 2


def narrow_ones():
    """{name: probe} of the backends that compute narrowly."""
    return {b["name"]: b["probe"] for b in placed.listed() if b["precision"] != "f32"}


needs_bf16 = placed.needs("openvino_bf16")
needs_int8 = placed.needs("native_int8")

pytestmark = pytest.mark.usefixtures("collage_library")


def conv(x, channels, rng):
    weight = relay.const(rng.standard_normal((channels, channels, 3, 3)).astype("float32") / (3 * math.sqrt(channels)))
    return relay.nn.relu(relay.nn.conv2d(x, weight, channels=channels, kernel_size=(3, 3), padding=(1, 1)))


def network(sensitive, channels=32, size=28, features=64):
    """Convolutions, and a dense layer behind them; where it is ``sensitive``, the difference of two dense layers
    whose weights are nearly the same, of which bfloat16 leaves nothing.
    """
    rng = np.random.default_rng(5)
    x = relay.var("x", shape=(1, channels, size, size))
    y = conv(conv(x, channels, rng), channels, rng)
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    weight = rng.standard_normal((features, channels)).astype("float32")
    out = relay.nn.dense(y, relay.const(weight))
    if sensitive:
        nearly = weight + 1e-3 * rng.standard_normal(weight.shape).astype("float32")
        out = out - relay.nn.dense(y, relay.const(nearly))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(out), out)))


def compiled(module, tmp_path, **options):
    """What collage.compile makes of a module: (path, plan)."""
    import collage

    plan = tmp_path / "plan.json"
    path = collage.compile(
        module, out=str(tmp_path / "model.so"), plan_out=str(plan), threads=THREADS,
        store=str(tmp_path / "costs.jsonl"),
        **{"samples": 3, "search_time": 60, "trials": 6, "rounds": 3, **options},
    )  # fmt: skip
    return path, json.loads(plan.read_text())


def kept(plan):
    return next(finalist for finalist in plan["finalists"] if finalist.get("chosen"))


def operators_on(plan, backend):
    """The operators that a plan gives to a backend."""
    return sorted(
        node["operator"]
        for region in plan["regions"]
        for candidate in region["candidates"]
        if candidate.get("backend", region["backend"]) == backend
        for node in candidate["nodes"]
        if not node["operator"].startswith("(")
    )


def l2(got, expected):
    return float(np.linalg.norm(got.astype("float64") - expected) / np.linalg.norm(expected.astype("float64")))


def outputs(path, values):
    import collage

    model = collage.load(path)
    for name, value in values.items():
        model.set_input(name, value)
    model.run()
    return model.get_output(0).numpy()


def expected(module, values):
    return placed.expected(module, *values.values())[0]


def drawn(module, seed):
    rng = np.random.default_rng(seed)
    return {
        p.name_hint: rng.standard_normal([int(n) for n in p.checked_type.shape]).astype("float32")
        for p in module["main"].params
    }


@pytest.mark.parametrize("backend", ["openvino", "dnnl"])
def test_a_backend_computes_in_bfloat16(backend, tmp_path, command):
    if lacking := placed.missing(f"{backend}_bf16"):
        pytest.skip(lacking)
    module = network(sensitive=False)
    values = drawn(module, 1)
    right = expected(module, values)
    off = {}
    for name in (backend, f"{backend}_bf16"):
        path = str(tmp_path / f"{name}.so")
        placed.export_to(path, placed.place(module, name))
        off[name] = l2(outputs(path, values), right)
    assert off[backend] < 1e-5
    assert 1e-4 < off[f"{backend}_bf16"] < 3e-2
    if backend == "dnnl":
        # On a processor that has no instructions for it the same model computes in float32.
        np.savez(tmp_path / "x.npz", **values)
        run = command(
            "run", path, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz",
            environment={"COLLAGE_MAX_CPU_ISA": "avx512"},
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        with np.load(tmp_path / "y.npz") as archive:
            assert l2(archive[archive.files[0]], right) < 1e-5


IN_BYTES = pytest.mark.parametrize("backend", ["native_int8", "dnnl_int8"])


@needs_int8
@IN_BYTES
def test_a_backend_computes_in_bytes(backend, tmp_path, command):
    """Convolutions and dense layers, with what follows them; their weights are bytes in the artefact, too."""
    module = network(sensitive=False, channels=128)
    values = drawn(module, 1)
    right = expected(module, values)
    for name in ("dnnl", backend):
        placed.export_to(str(tmp_path / f"{name}.so"), placed.place(module, name))
    path = str(tmp_path / f"{backend}.so")
    found = outputs(path, values)
    assert 1e-3 < l2(found, right) < 3e-2
    weights = 4 * (2 * 128 * 128 * 9 + 128 * 64)
    assert (tmp_path / "dnnl.so").stat().st_size - (tmp_path / f"{backend}.so").stat().st_size > 0.7 * weights
    # A processor that has no instruction for it, where sums of two products would be cut off, computes the same model
    # in float32, with the weights that it has.
    np.savez(tmp_path / "x.npz", **values)
    run = command(
        "run", path, "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz",
        environment={"COLLAGE_MAX_CPU_ISA": "avx512"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    with np.load(tmp_path / "y.npz") as archive:
        assert 1e-3 < l2(archive[archive.files[0]], right) < 2e-2
        assert 1e-3 < l2(archive[archive.files[0]], found) < 2e-2


@needs_int8
@pytest.mark.parametrize("backend", ["native_int8", pytest.param("dnnl_int8", marks=pytest.mark.long)])
def test_bytes_within_an_error_and_not_beyond(backend, tmp_path):
    """int8 allows bfloat16, too; what is off by more than is allowed is never kept."""
    module = network(sensitive=False)
    for most, pins in ((0.05, [f"nn.conv2d={backend}"]), (1e-4, [])):
        folder = tmp_path / str(most)
        folder.mkdir()
        backends = ["tvm", "dnnl"] + ["native"] * (backend == "native_int8")
        options = {"backends": backends, "precision": "int8", "pin": pins}
        path, plan = compiled(module, folder, max_error=most, **options)
        assert plan["precision"]["allowed"] == "int8" and kept(plan).get("error", 0) <= most
        errors = [l2(outputs(path, values), expected(module, values)) for values in (drawn(module, n) for n in (7, 8))]
        assert max(errors) <= 1.5 * most
        on = operators_on(plan, backend)
        assert on.count("nn.conv2d") == (2 if pins else 0) and bool(on) == bool(pins)


@needs_bf16
def test_a_network_in_bfloat16(tmp_path):
    module = network(sensitive=False)
    path, plan = compiled(module, tmp_path, backends=["tvm", "openvino"], precision="bf16", max_error=0.03)
    priced = plan["precision"].pop("lagrangian")
    assert plan["precision"] == {
        "allowed": "bf16", "max_error": 0.03, "measure": "l2", "searched_inputs": 2, "held_out_inputs": 6,
    }  # fmt: skip
    assert priced["error"] <= priced["allowed_error"] < 0.03 and priced["bound_ms"] <= priced["total_ms"]
    names = [backend["name"] for backend in plan["backends"]]
    assert names == ["tvm", "openvino", "openvino_bf16"]
    narrow = next(f for f in plan["finalists"] if f["name"] == "openvino_bf16")
    assert 1e-4 < narrow["error"] < 0.03 and not narrow.get("failure")
    assert kept(plan).get("error", 0) <= 0.03
    # What the plan says of the kept one holds for inputs that nobody there has seen.
    values = drawn(module, 7)
    assert l2(outputs(path, values), expected(module, values)) <= 0.03


@needs_bf16
def test_the_frontier_of_time_against_error(tmp_path, command):
    # Convolutions of which bfloat16 takes half the time, beside whatever else runs.
    module = network(sensitive=False, channels=128)
    model, picture = tmp_path / "model.json", tmp_path / "frontier.svg"
    model.write_text(tvm.ir.save_json(module))
    arguments = ["plan", model, "--backends", "tvm,openvino", "--threads", THREADS, "--repeat", 3]
    arguments += ["--db", tmp_path / "costs.jsonl", "--search-time", "60s"]
    run = command(*arguments, "--frontier", "--svg", picture, "--plan-out", tmp_path / "plan.json")
    assert run.returncode == 0, run.stderr
    head, *rows = run.stdout.splitlines()
    assert head.split()[:3] == ["off", "by", "(l2)"]
    assert any(row.split()[:1] == ["0"] and row.split()[-1] == "tvm" for row in rows), "plain TVM is off by nothing"
    assert f"wrote the picture {picture}" in rows and picture.read_text().startswith("<svg")
    precision = json.loads((tmp_path / "plan.json").read_text())["precision"]
    assert precision["allowed"] == "auto"
    corners = precision["corners"]
    assert corners[0]["error"] == 0 and set(corners[0]["operators"]) == {"f32"}
    assert len(corners) > 1 and set(corners[-1]["operators"]) - {"f32"}, "something narrow is quicker"
    for one, following in itertools.pairwise(corners):
        assert one["error"] < following["error"] and one["total_ms"] > following["total_ms"]
        assert one["gap_ms"] == pytest.approx(one["total_ms"] - following["total_ms"], abs=1e-6)
    assert any("that no placement lies below the line between two of them is proven" in row for row in rows)
    assert "believed: corners of all" in picture.read_text()
    run = command(*arguments, "--max-error", "0.1")
    assert run.returncode == 2 and "--max-error goes with --frontier" in run.stderr
    run = command(*arguments, "--frontier", "--precision", "f32")
    assert run.returncode == 2 and "--frontier with --precision f32 needs --max-error" in run.stderr


@needs_bf16
def test_a_budget_that_nothing_narrow_keeps(tmp_path, capfd):
    module = network(sensitive=False)
    path, plan = compiled(
        module, tmp_path, backends=["tvm", "openvino"], precision="auto", max_error=1e-5, progress=True
    )
    assert not operators_on(plan, "openvino_bf16")
    narrow = next(f for f in plan["finalists"] if f["name"] == "openvino_bf16")
    assert narrow["failure"]["kind"] == "over-budget" and "where 1e-05 is allowed" in narrow["failure"]["detail"]
    assert "it is not kept: its outputs are off by" in capfd.readouterr().err
    values = drawn(module, 7)
    assert l2(outputs(path, values), expected(module, values)) < 1e-5


@needs_bf16
def test_only_layers_that_bear_it_are_computed_narrowly(tmp_path):
    module = network(sensitive=True)
    pins = ["nn.conv2d=openvino_bf16"]
    path, plan = compiled(module, tmp_path, backends=["tvm", "openvino"], precision="bf16", pin=pins)
    on = operators_on(plan, "openvino_bf16")
    assert on.count("nn.conv2d") == 2 and "nn.dense" not in on
    assert any("where 0.01 is allowed" in network.get("exceeds", "") for network in plan["graph_level"]["networks"])
    assert 0 < kept(plan)["error"] <= 0.01
    values = drawn(module, 7)
    assert l2(outputs(path, values), expected(module, values)) <= 0.01


@needs_bf16
def test_a_plan_is_held_to_its_budget_when_it_is_replayed(tmp_path):
    import collage

    module = network(sensitive=False)
    pins = ["nn.conv2d=openvino_bf16"]
    _, plan = compiled(module, tmp_path, backends=["tvm", "openvino"], precision="bf16", max_error=0.03, pin=pins)
    again = tmp_path / "again.so"
    collage.compile(module, plan=plan, out=str(again))
    values = drawn(module, 7)
    assert 1e-4 < l2(outputs(str(again), values), expected(module, values)) <= 0.03
    plan["precision"]["max_error"] = 1e-6
    with pytest.raises(Exception, match="executable is not kept: over-budget in check: its outputs are off by"):
        collage.compile(module, plan=plan, out=str(tmp_path / "strict.so"))
    assert not (tmp_path / "strict.so").exists()


@pytest.mark.long
@needs_bf16
def test_partition_is_held_to_the_budget_too(tmp_path):
    import collage

    module = network(sensitive=True)
    options = {"backends": ["tvm", "openvino"], "threads": THREADS, "store": str(tmp_path / "costs.jsonl")}
    settings = {"samples": 3, "search_time": 60, "trials": 6}
    for allowed, most in (("bf16", 0.01), ("auto", 0.5)):
        result = collage.partition(module, precision=allowed, max_error=most, **options, **settings)
        path = str(tmp_path / f"{allowed}.so")
        placed.export_to(path, result)
        values = drawn(module, 7)
        assert l2(outputs(path, values), expected(module, values)) <= most


def test_errors_are_what_they_are_said_to_be():
    from collage import precision

    rng = np.random.default_rng(2)
    right = [[rng.standard_normal((4, 10)), rng.standard_normal(7)] for _ in range(3)]
    wrong = [[a + 0.5 * rng.standard_normal(a.shape) for a in sample] for sample in right]
    found = precision.errors(wrong, right)
    by_hand = {"l2": [], "max": [], "cosine": [], "top1": []}
    for output in range(2):
        a = np.stack([sample[output] for sample in wrong])
        b = np.stack([sample[output] for sample in right])
        by_hand["l2"].append(np.linalg.norm(a - b) / np.linalg.norm(b))
        by_hand["max"].append(np.abs(a - b).max() / np.abs(b).max())
        by_hand["cosine"].append(1 - (a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
        by_hand["top1"].append(np.mean(a.argmax(-1) != b.argmax(-1)))
    assert set(found) == set(precision.MEASURES)
    for measure, values in by_hand.items():
        assert found[measure] == pytest.approx(max(values)), measure
    assert found["top1"] > 0  # the case is one in which it matters

    assert precision.errors(right, right) == pytest.approx(dict.fromkeys(precision.MEASURES, 0.0), abs=1e-12)
    infinite = [[np.array([1.0, np.inf, np.nan])]]
    assert set(precision.errors(infinite, infinite).values()) == {0.0}
    zero, one = [[np.zeros((2, 3))]], [[np.ones((2, 3))]]
    assert precision.errors(zero, zero)["l2"] == 0 and math.isfinite(precision.errors(one, zero)["l2"])
    assert precision.errors(one, zero)["l2"] > 1e6
    assert precision.errors([[np.array([np.nan, 1.0])]], [[np.array([1.0, 1.0])]])["l2"] > 1e6
    assert set(precision.errors([[np.zeros((0, 3))]], [[np.zeros((0, 3))]]).values()) == {0.0}


def test_what_is_said_of_a_result_for_go_to_judge():
    from collage import check

    right = np.linspace(-1, 1, 50, dtype="float32")

    def seen(got, **request):
        told = check.seen(got, [right], request)
        return told["unlike"], told["each"] and told["each"][0]

    unlike, told = seen([right * 1.01], narrow=True, rtol=0.02)
    assert not unlike and told["wrong"] == 0 and told["l2"] == pytest.approx(0.01, rel=1e-3)
    assert seen([right * 1.01], rtol=0.005)[1]["wrong"] == 50 and "l2" not in seen([right])[1]
    assert seen([right + 0.01], atol_of_greatest=0.02)[1]["wrong"] == 0
    masked = np.append(right, np.float32(-np.inf))  # which is no value to take a share of
    # Beside large outputs small ones are held to what they are themselves, and to a rounding of the large ones.
    large = np.full(3, 1e4, "float32")
    for off, of_all, wrong in ((2e-3, 0, 50), (2e-3, 1e-6, 0), (5e-6, 0, 0)):
        request = {"atol_of_each": 1e-4, "atol_of_greatest": of_all}
        little = right * 0 + np.float32(0.1)
        told = check.seen([large + np.float32(0.5), little + np.float32(off)], [large, little], request)
        assert [output["wrong"] for output in told["each"]] == [0, wrong]
    assert check.seen([masked + np.float32(0.01)], [masked], {"atol_of_greatest": 1e-3})["each"][0]["wrong"] == 50
    other = right.copy()
    other[7] = 4
    _, told = seen([other], rtol=1e-3, narrow=True)
    assert (told["wrong"], told["elements"], told["at"], told["got"]) == (1, 50, [7], "4.0")
    assert told["greatest"] == pytest.approx(4 - right[7]) and told["expected"] == str(right[7])
    other[7] = np.nan
    told = seen([other])[1]
    assert (told["new_nan"], told["greatest"]) == (True, None)
    other[7] = np.inf
    told = seen([other])[1]
    assert (told["new_nan"], told["greatest"], told["wrong"]) == (False, None, 1)
    assert "2 outputs" in seen([right, right])[0] and "float64" in seen([right.astype("float64")])[0]


def test_precisions_that_make_no_sense(command, tmp_path):
    model = tmp_path / "model.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n')

    def refused(*arguments):
        run = command("compile", model, "-o", tmp_path / "model.tar", *arguments)
        assert run.returncode == 2 and not (tmp_path / "model.tar").exists(), run.stderr
        return run.stderr

    assert '--precision is "fp8"; it is f32, bf16, int8 or auto' in refused("--precision", "fp8")
    assert "--max-error is -1; it is a share" in refused("--max-error", "-1")
    assert "--max-error is NaN" in refused("--max-error", "nan")
    assert '--error-measure is "l1"; it is l2, max, cosine or top1, or FILE.py:FUNCTION' in refused(
        "--max-error", "0.1", "--error-measure", "l1"
    )
    told = refused("--precision", "bf16", "--backends", "tvm,dnnl_tvm")
    assert (
        "--precision is bf16, in which nothing here computes: none of the backends tvm, dnnl_tvm can "
        "(dnnl, native, openvino can)" in told
    )
    if "openvino_bf16" in narrow_ones() and narrow_ones()["openvino_bf16"]["usable"]:
        told = refused("--backends", "tvm,openvino_bf16")
        assert "--backends has openvino_bf16, which computes in bf16: say precision bf16, or auto, too" in told


def test_an_error_that_nothing_would_measure(tmp_path):
    import collage

    module = network(sensitive=False)
    with pytest.raises(ValueError, match="needs tvm and another backend"):
        collage.partition(module, backends=["dnnl"], precision="auto", store=str(tmp_path / "costs.jsonl"))
    with pytest.raises(ValueError, match="only measures nothing"):
        collage.partition(module, only="dnnl", max_error=0.1, store=str(tmp_path / "costs.jsonl"))


def test_the_option_of_a_pass_context(tmp_path):
    import collage

    module = network(sensitive=False)
    with tvm.transform.PassContext(config={"collage.precision": "fp8"}), pytest.raises(ValueError, match="fp8"):
        collage.partition(module, store=str(tmp_path / "costs.jsonl"))
    with tvm.transform.PassContext(config={"collage.max_error": "much"}), pytest.raises(ValueError, match="much"):
        collage.partition(module, store=str(tmp_path / "costs.jsonl"))


def samples(module, count, folder, seed=3):
    """Calibration data: so many samples in one file."""
    rng = np.random.default_rng(seed)
    arrays = {
        p.name_hint: rng.standard_normal([count, *(int(n) for n in p.checked_type.shape)]).astype("float32")
        for p in module["main"].params
    }
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


@needs_bf16
def test_errors_on_real_inputs_decide(tmp_path):
    """The data is taken as a file and as an iterable alike, and a plan wants the same again."""
    import collage

    module = network(sensitive=False)
    options = {"backends": ["tvm", "openvino"], "precision": "bf16", "max_error": 0.03}
    data = samples(module, 6, tmp_path)
    _, plan = compiled(module, tmp_path, calibration=str(data), **options)
    assert plan["precision"]["searched_inputs"] == 2 and plan["precision"]["held_out_inputs"] == 4
    digest = plan["precision"]["calibration"]
    with np.load(data) as archive:
        stacked = archive["x"]
    (tmp_path / "again").mkdir()
    loader = ([value, "a label"] for value in stacked)
    _, other = compiled(module, tmp_path / "again", calibration=loader, **options)
    # What was found depends on times, too.
    differing = ("calibration", "lagrangian")
    one, two = ({key: value for key, value in p["precision"].items() if key not in differing} for p in (plan, other))
    assert one == two
    narrow = {f["name"]: f["error"] for f in plan["finalists"] if "error" in f}
    assert {f["name"]: f["error"] for f in other["finalists"] if "error" in f}["openvino_bf16"] == pytest.approx(
        narrow["openvino_bf16"], rel=1e-6
    )
    with pytest.raises(Exception, match=rf"calibration is not what the plan's errors were taken on, .*{digest}"):
        collage.compile(module, plan=plan, out=str(tmp_path / "replayed.so"))
    collage.compile(module, plan=plan, out=str(tmp_path / "replayed.so"), calibration=str(data))
    assert (tmp_path / "replayed.so").exists()


def test_calibration_data_that_cannot_be_used(command, tmp_path):
    import collage

    module = network(sensitive=False)
    np.savez(tmp_path / "bad.npz", x=np.full((2, 1, 32, 28, 28), np.nan, "float32"))
    options = {"store": str(tmp_path / "costs.jsonl"), "max_error": 0.1}
    with pytest.raises(ValueError, match=r"calibration cannot be used: .*bad.npz: the array x has NaN"):
        collage.partition(module, calibration=tmp_path / "bad.npz", **options)
    with pytest.raises(ValueError, match="calibration: the iterable gives nothing"):
        collage.partition(module, calibration=[], **options)
    with pytest.raises(ValueError, match="item 0 has 0 arrays, the network 1 inputs: x"):
        collage.partition(module, calibration=[()], **options)
    with pytest.raises(ValueError, match="the network has no input y"):
        collage.partition(module, calibration=[{"y": np.zeros(3)}, {"y": np.ones(3)}], **options)
    model = tmp_path / "model.relay"
    model.write_text('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float32]) { nn.relu(%x) }\n')
    for arguments, says in (
        (["--calibration", tmp_path / "bad.npz"], "--calibration goes with --max-error"),
        (["--max-error", "0.1", "--calibration", tmp_path / "none.npz"], "none.npz"),
        (["--max-error", "0.1", "--calibration", tmp_path / "bad.npz"], "the array x has the shape [2 1 32 28 28]"),
    ):
        run = command("compile", model, "-o", tmp_path / "model.tar", *arguments)
        assert run.returncode == 2 and says in run.stderr and not (tmp_path / "model.tar").exists(), run.stderr
