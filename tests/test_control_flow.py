# SPDX-License-Identifier: Apache-2.0
"""Networks that branch or loop, or say themselves how large their results are: read, placed, built for TVM's virtual
machine and run; their outputs are another engine's.
"""

import json
import re
import subprocess

import numpy as np
import placed
import pytest
import tvm
from collage import export, frontends, region, transform
from onnx_networks import BOOL, INT, answers, graph, hold, node, normal, ran, values, weights, write
from tvm import relay


def branches(path):
    """A convolution, then two or one of them by the mean of what comes out, then another."""

    def branch(name, size):
        return graph(
            name,
            [
                node("Conv", ["y", f"w_{name}"], [f"c_{name}"], kernel_shape=[size] * 2, pads=[size // 2] * 4),
                node("Relu", [f"c_{name}"], [f"r_{name}"]),
            ],
            [], values(**{f"r_{name}": [1, 16, 16, 16]}), weights(**{f"w_{name}": (16, 16, size, size)}),
        )  # fmt: skip

    return write(
        path,
        [
            node("Conv", ["x", "w0"], ["c0"], kernel_shape=[3, 3], pads=[1] * 4),
            node("Relu", ["c0"], ["y"]),
            node("ReduceMean", ["y"], ["mean"], keepdims=0),
            node("Greater", ["mean", "limit"], ["which"]),
            node("If", ["which"], ["z"], then_branch=branch("then", 3), else_branch=branch("else", 1)),
            node("Conv", ["z", "w2"], ["out"], kernel_shape=[3, 3], pads=[1] * 4),
        ],
        values(x=[1, 3, 16, 16], limit=[]), values(out=[1, 8, 16, 16]), weights(w0=(16, 3, 3, 3), w2=(8, 16, 3, 3)),
    )  # fmt: skip


def body(nodes, held, out=(), inside=()):
    """A loop's: what is held goes in as s and out as s2."""
    return graph(
        "body", nodes, values(i=(INT, []), going=(BOOL, []), s=held),
        values(goes=(BOOL, []), s2=held) + list(out), inside,
    )  # fmt: skip


STEP = [node("MatMul", ["s", "w"], ["q"]), node("Tanh", ["q"], ["s2"])]
ON = [node("Identity", ["going"], ["goes"])]


def counted(path):
    """So many rounds as a weight says, and no condition."""
    return write(
        path,
        [node("Loop", ["n", "", "x"], ["y"], body=body(STEP + ON, [4, 32])), node("MatMul", ["y", "v"], ["out"])],
        values(x=[4, 32]), values(out=[4, 8]), weights(n=np.array(3), w=(32, 32), v=(32, 8)),
    )  # fmt: skip


def until(path):
    """Rounds until what comes out is small, as many as an input says at most."""
    small = [node("Abs", ["s2"], ["a"]), node("ReduceMean", ["a"], ["m"], keepdims=0)]
    nodes = STEP + small + [node("Greater", ["m", "tolerance"], ["goes"])]
    return write(
        path,
        [node("Loop", ["n", "go", "x"], ["y"], body=body(nodes, [4, 32])), node("MatMul", ["y", "v"], ["out"])],
        values(x=[4, 32], n=(INT, [])), values(out=[4, 8]),
        weights(go=np.array(True), tolerance=np.float32(0.3), w=(32, 32), v=(32, 8)),
    )  # fmt: skip


def gathered(path):
    """What each round gives, in a list; every other round takes another branch."""
    once, twice = (graph(f"b{n}", [node("MatMul", ["s", f"w{n}"], [f"t{n}"])], [], values(**{f"t{n}": [4, 32]}))
                   for n in (0, 1))  # fmt: skip
    nodes = [
        node("Mod", ["i", "two"], ["rest"]),
        node("Equal", ["rest", "zero"], ["even"]),
        node("If", ["even"], ["s2"], then_branch=once, else_branch=twice),
        node("ReduceSum", ["s2", "axis"], ["o"]),
    ]
    return write(
        path,
        [node("Loop", ["n", "", "x"], ["y", "ys"], body=body(nodes + ON, [4, 32], values(o=[4, 1])))],
        values(x=[4, 32], n=(INT, [])), values(y=[4, 32], ys=["n", 4, 1]),
        weights(w0=(32, 32), w1=(32, 32), two=np.array(2), zero=np.array(0), axis=np.array([1])),
    )  # fmt: skip


def growing(path):
    """What is held gets longer each round, as a cache of keys does."""
    nodes = [node("Concat", ["s", "x"], ["s2"], axis=0)]
    return write(
        path,
        [node("Loop", ["n", "", "x"], ["l"], body=body(nodes + ON, None)), node("MatMul", ["l", "v"], ["out"])],
        values(x=[1, 8], n=(INT, [])), values(out=["k", 4]), weights(v=(8, 4)),
    )  # fmt: skip


def scanned(path):
    step = graph(
        "body",
        [
            node("MatMul", ["s", "w"], ["q"]),
            node("Add", ["q", "xi"], ["r"]),
            node("Tanh", ["r"], ["s2"]),
            node("Identity", ["s2"], ["o"]),
        ],
        values(s=[4, 32], xi=[4, 32]), values(s2=[4, 32], o=[4, 32]),
    )  # fmt: skip
    return write(
        path, [node("Scan", ["s0", "x"], ["y", "ys"], body=step, num_scan_inputs=1)],
        values(s0=[4, 32], x=[5, 4, 32]), values(y=[4, 32], ys=[5, 4, 32]), weights(w=(32, 32)),
    )  # fmt: skip


def places(path):
    """Where a network's outputs are not zero."""
    return write(
        path,
        [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["r"]), node("NonZero", ["r"], ["out"])],
        values(x=[4, 32]), values(out=(INT, [2, "k"])), weights(w=(32, 64)),
    )  # fmt: skip


def detector(path):
    """Boxes and scores from convolutions, and which of them are kept."""
    numbers = weights(
        w=(16, 3, 3, 3), wb=(4, 16, 1, 1), ws=(2, 16, 1, 1), most=np.array(5), overlap=np.float32(0.5),
        least=np.float32(0.5), boxes=np.array([1, 4, 64]), classes=np.array([1, 2, 64]),
    )  # fmt: skip
    return write(
        path,
        [
            node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1] * 4),
            node("Relu", ["a"], ["f"]),
            node("Conv", ["f", "wb"], ["b0"], kernel_shape=[1, 1]),
            node("Reshape", ["b0", "boxes"], ["b1"]),
            node("Transpose", ["b1"], ["b2"], perm=[0, 2, 1]),
            node("Sigmoid", ["b2"], ["b"]),
            node("Conv", ["f", "ws"], ["s0"], kernel_shape=[1, 1]),
            node("Sigmoid", ["s0"], ["s1"]),
            node("Reshape", ["s1", "classes"], ["s"]),
            node("NonMaxSuppression", ["b", "s", "most", "overlap", "least"], ["out"]),
        ],
        values(x=[1, 3, 8, 8]), values(out=(INT, ["k", 3])), numbers,
    )  # fmt: skip


def rounds(*shape):
    return [{"x": normal(3, *shape), "n": np.array(count)} for count in (0, 1, 4, 9)]


def bare(path):
    """Inputs that nothing but branches read, two results of each, one of them given as it is."""

    def branch(operator):
        return graph(
            operator, [node(operator, ["x"], [f"o{operator}"]), node("Identity", ["z"], [f"z{operator}"])], [],
            values(**{f"o{operator}": [2, 3], f"z{operator}": [4]}),
        )  # fmt: skip

    return write(
        path, [node("If", ["c"], ["out", "other"], then_branch=branch("Relu"), else_branch=branch("Abs"))],
        values(x=[2, 3], z=[4], c=(BOOL, [1])), values(out=[2, 3], other=[4]),
    )  # fmt: skip


LIMITS = (-10.0, 10.0)  # below and above the mean: one branch, and the other
NETWORKS = {
    branches: [{"x": normal(1, 1, 3, 16, 16), "limit": np.array(limit, "float32")} for limit in LIMITS],
    bare: [{"x": normal(1, 2, 3), "z": normal(2, 4), "c": np.array([c])} for c in (True, False)],
    counted: [{"x": normal(2, 4, 32)}],
    until: rounds(4, 32),
    gathered: rounds(4, 32),
    growing: rounds(1, 8),
    scanned: [{"s0": normal(4, 4, 32), "x": normal(5, 5, 4, 32)}],
    places: [{"x": normal(seed, 4, 32)} for seed in (6, 7)],
    detector: [{"x": normal(seed, 1, 3, 8, 8)} for seed in (8, 9)],
}


@pytest.mark.parametrize("network", NETWORKS, ids=lambda one: one.__name__)
def test_it_computes_what_another_engine_does(network, tmp_path):
    path = network(tmp_path / "network.onnx")
    model = export.runnable(transform.Normalise()(frontends.load(path).module))
    seen = []
    for given in NETWORKS[network]:
        wanted = answers(path, given)
        hold(ran(model, given), wanted)
        seen.append(wanted)
    if len(seen) > 1:  # both branches, several numbers of rounds: the answers must not be one and the same
        assert not all(
            one.shape == other.shape and np.allclose(one, other) for one, other in zip(*seen[:2], strict=True)
        )


@pytest.mark.parametrize("backend", placed.with_regions_of_their_own())
@pytest.mark.parametrize("network", [branches, until], ids=lambda one: one.__name__)
def test_a_backend_takes_what_stands_in_branches_and_loops(network, backend, tmp_path):
    path = network(tmp_path / "network.onnx")
    module = placed.place(transform.Normalise()(frontends.load(path).module), backend)
    taken = placed.regions(module)
    convolutions, products = (sum(each[name] for each in taken.values()) for name in ("nn.conv2d", "nn.dense"))
    if network is branches:
        assert convolutions in (0, 4), "those around the branches and those in both of them"
    # A library of products takes no convolution.
    assert convolutions + products or (network is branches and backend in ("openblas", "mkl"))
    plugins = dict.fromkeys(one for name in ("", backend) for one in region.plugins_for(name))
    export.write(export.build_for_machine(module), tmp_path / "network.so", list(plugins), 1)
    model = region.load_executor(tmp_path / "network.so")
    for given in NETWORKS[network]:
        hold(ran(model, given), answers(path, given))


def test_the_command_compiles_and_runs_it(command, store, tmp_path):
    path, made = branches(tmp_path / "network.onnx"), tmp_path / "network.tar"
    told = command("compile", path, "-o", made, "--plan-out", tmp_path / "plan.json", "--db", store, "--rounds", "3",
                   "--repeat", "3", "--backends", "tvm,dnnl", "--pin", "nn.conv2d=dnnl", "--json", "-q")  # fmt: skip
    assert told.returncode == 0, told.stderr
    report = json.loads(told.stdout)
    assert any("TVM's virtual machine runs it, since" in note for note in report["notes"])
    assert report["import_check"]["engine"] and not report["import_check"].get("unchecked")
    plan = json.loads((tmp_path / "plan.json").read_text())
    regions = {one["name"]: one["regions"] for one in plan["backends"]}
    assert regions["dnnl"] >= 3, "around the branches and in each of them"
    for given in NETWORKS[branches]:
        np.savez(tmp_path / "in.npz", **given)
        told = command("run", made, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--repeat", "1")
        assert told.returncode == 0, told.stderr
        assert "libcollage_dnnl.so" in told.stdout
        with np.load(tmp_path / "out.npz") as archive:
            hold([archive["output_0"]], answers(path, given))
    # The same plan makes the same network, which is held against plain TVM's and the witness again.
    told = command("compile", path, "-o", tmp_path / "again.so", "--plan", tmp_path / "plan.json", "-q")
    assert told.returncode == 0, told.stderr
    hold(ran(region.load_executor(tmp_path / "again.so"), given), answers(path, given))


def test_partition_compares_whole_networks_too(store, tmp_path, caplog):
    """On TVM's virtual machine, as collage compile does."""
    import collage

    model = frontends.load(branches(tmp_path / "network.onnx"))
    options = {"backends": ["tvm", "dnnl"], "store": store, "samples": 3, "rounds": 3}
    made = collage.partition(model.module, plan_out=tmp_path / "plan.json", **options)
    assert "cannot be run as a whole" not in caplog.text
    plan = json.loads((tmp_path / "plan.json").read_text())
    ran_in_turn = {one["name"]: len(one.get("samples_ms", [])) for one in plan["finalists"]}
    assert set(ran_in_turn) == {"tvm", "dnnl", "collage"}
    assert max(ran_in_turn.values()) >= 3
    assert any("TVM's virtual machine runs it, since" in note for note in plan["notes"])
    (kept,) = (one for one in plan["finalists"] if one.get("chosen"))
    assert sum(placed.regions(made)[name].total() > 0 for name in placed.regions(made)) == kept["regions"]
    # The plan is what came out, and is held against plain TVM there, too.
    assert tvm.ir.structural_equal(made, collage.replay(model.module, plan, store=store))


def test_parts_of_computed_sizes_go_to_the_backend_that_takes_the_most(store, tmp_path):
    """What they take alone nobody knows: the placement by parts has them on TVM, another has not."""
    import collage

    x = relay.var("x", shape=(48, 32))
    rows = relay.nn.relu(relay.nn.dense(x, relay.const(normal(1, 64, 32))))
    found = relay.squeeze(relay.argwhere(relay.greater(relay.sum(rows, axis=1), relay.const(20.0))), axis=[1])
    some = relay.take(rows, found, axis=0)
    for seed in range(2, 6):
        some = relay.nn.relu(relay.nn.dense(some, relay.const(normal(seed, 64, 64))))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(some))
    options = {"backends": ["tvm", "dnnl"], "store": store, "samples": 3, "rounds": 3}
    made = collage.partition(module, plan_out=tmp_path / "plan.json", **options)
    plan = json.loads((tmp_path / "plan.json").read_text())
    regions = {one["name"]: one["regions"] for one in plan["finalists"]}
    assert regions.keys() > {"tvm", "dnnl"}
    # The one of the two that was kept, if one was, is the placement.
    opened = regions.get("open parts", regions.get("collage"))
    closed = regions.get("operator level", regions.get("collage"))
    assert opened > closed, regions
    assert any("was also put on dnnl, which takes the most" in note for note in plan["notes"])
    assert tvm.ir.structural_equal(made, collage.replay(module, plan, store=store))


def test_sizes_that_do_not_go_together_are_placed_by_parts(store, tmp_path, caplog):
    """The sizes at which open dimensions are tried are none that the network takes: nothing whole is compared."""
    import collage

    x, y = relay.var("x", shape=(relay.Any(), 8)), relay.var("y", shape=(1, relay.Any()))
    product = relay.nn.relu(relay.nn.dense(relay.var("z", shape=(4, 32)), relay.const(normal(1, 16, 32))))
    module = tvm.IRModule.from_expr(relay.Tuple([product, relay.add(x, y)]))
    options = {"backends": ["tvm", "dnnl"], "store": store, "samples": 3, "rounds": 3, "pin": ["nn.dense=dnnl"]}
    made = collage.partition(module, plan_out=tmp_path / "plan.json", **options)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert "cannot run it on its virtual machine" in caplog.text
    assert "it is placed by what its parts take alone" in caplog.text
    assert placed.regions(made)
    assert tvm.ir.structural_equal(made, collage.replay(module, plan, store=store))
    assert "the outputs were not compared with TVM's" in caplog.text


def test_what_is_found_wrong_is_refused(command, store, tmp_path, monkeypatch):
    """A loop that is read wrong: the other engine's answers tell."""
    path = counted(tmp_path / "network.onnx")
    (tmp_path / "wrong_loop.py").write_text(
        "from collage.onnx_reader import control_flow as c\n"
        "real = c._op.less\n"
        "c._op = type('Op', (), {'__getattr__': lambda self, name: getattr(c.relay.op, name),"
        " 'less': staticmethod(lambda a, b: real(a + c.const(1, 'int64'), b))})()\n"
    )
    extra = {"PYTHONPATH": f"{tmp_path}", "COLLAGE_REGISTER": "wrong_loop"}
    told = command("compile", path, "-o", tmp_path / "x.tar", "--db", store, "--rounds", "2", "--backends", "tvm", "-q",
                   environment=extra)  # fmt: skip
    assert told.returncode != 0
    assert "TVM computes something else than" in told.stderr


def refused_shapes(path):
    def cut(size):
        return graph(
            f"cut{size}", [node("Slice", ["x", "begin", f"end{size}"], [f"o{size}"])], [],
            values(**{f"o{size}": [size, 8]}), weights(**{f"end{size}": np.array([size])}),
        )  # fmt: skip

    return write(
        path, [node("If", ["c"], ["out"], then_branch=cut(2), else_branch=cut(3))],
        values(x=[4, 8], c=(BOOL, [])), values(out=["k", 8]), weights(begin=np.array([0])),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("network", "why"),
    [
        (refused_shapes, r"the operator If .*: its branches give results of the shapes \[2, 8\] and \[3, 8\]"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(network, why, tmp_path):
    with pytest.raises(ValueError, match=why) as error:
        frontends.load(network(tmp_path / "network.onnx"))
    assert "\n" not in str(error.value)


def test_a_constant_condition_leaves_one_branch(tmp_path):
    then, other = (graph(name, [node(name, ["x"], [f"r{name}"])], [], values(**{f"r{name}": [2, shape]}))
                   for name, shape in (("Relu", 3), ("Abs", 3)))  # fmt: skip
    path = write(
        tmp_path / "network.onnx", [node("If", ["c"], ["out"], then_branch=then, else_branch=other)],
        values(x=[2, 3]), values(out=[2, 3]), weights(c=np.array(False)),
    )  # fmt: skip
    model = frontends.load(path)
    assert model.info()["operator_counts"] == {"abs": 1}


def test_plain_tvm_runs_what_was_written(tmp_path):
    """Nothing of Collage's is needed but the plug-ins."""
    path = counted(tmp_path / "network.onnx")
    module = transform.Normalise()(frontends.load(path).module)
    export.write(export.build_for_machine(module), tmp_path / "network.so")
    given = NETWORKS[counted][0]["x"]
    np.save(tmp_path / "x.npy", given)
    program = (
        "import sys, numpy, tvm\n"
        "machine = tvm.runtime.vm.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())\n"
        "numpy.save(sys.argv[3], machine.run(numpy.load(sys.argv[2])).numpy())\n"
    )
    arguments = [tmp_path / name for name in ("network.so", "x.npy", "y.npy")]
    import sys

    subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=True, timeout=300)
    hold([np.load(tmp_path / "y.npy")], answers(path, {"x": given}))


def test_inputs_that_do_not_fit(tmp_path):
    module = transform.Normalise()(frontends.load(until(tmp_path / "network.onnx")).module)
    model = export.runnable(module)
    for name, value, why in (
        ("y", normal(0, 4, 32), "no input 'y'; its inputs are: x, n"),
        ("x", normal(0, 4, 31), "x is float32[4, 32]; float32[4, 31] does not fit"),
        ("x", np.zeros((4, 32)), "x is float32[4, 32]; float64[4, 32] does not fit"),
    ):
        with pytest.raises(ValueError, match=re.escape(why)):
            model.set_input(name, value)
    with pytest.raises(ValueError, match="the input n is not set"):
        model.run(x=normal(0, 4, 32))
