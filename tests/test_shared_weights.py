# SPDX-License-Identifier: Apache-2.0
"""Copies of a model in a process hold TVM's weights once, and let go of them with the last copy."""

import gc
import shutil
import threading

import numpy as np
import placed
import pytest
import tvm
from tvm import relay

pytestmark = pytest.mark.usefixtures("collage_library")


def weight(*shape, seed):
    return relay.const(np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype("float32"))


@pytest.fixture(scope="module")
def module():
    """Products on plain TVM; a weight is a result, too, and a small one is nobody else's concern."""
    x = relay.var("x", shape=(3, 96))
    y = relay.nn.relu(relay.nn.dense(x, weight(128, 96, seed=1)) + weight(128, seed=2))
    shown = weight(64, 128, seed=3)
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([relay.nn.dense(y, shown), relay.sqrt(y), shown])))


@pytest.fixture(scope="module", params=["so", "tar"])
def path(request, module, tmp_path_factory):
    from collage import export, region

    made = tmp_path_factory.mktemp("shared") / f"model.{request.param}"
    export.write(export.build(module), made, region.plugins_for(""), 0)
    return made


def addresses(executor):
    """{name: address} of the weights."""
    names = [f"p{i}" for i in range(9) if executor.module["get_input_index"](f"p{i}") >= 0]
    return {name: executor.get_input(name).handle.contents.data for name in names}


def outputs(executor, x):
    executor.set_input("x", x)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def shared_bytes():
    gc.collect()
    return tvm.get_global_func("collage.runtime.SharedBytes")()


def inputs(seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (3, 96)).astype("float32")


def test_copies_share_what_no_one_writes(path, module, tmp_path):
    from collage import region

    before = shared_bytes()
    copied = shutil.copy(path, tmp_path / f"another{path.suffix}")
    models = [region.load_executor(one) for one in (path, path, copied)]
    first, *others = map(addresses, models)
    assert len(first) >= 3
    large = {name for name in first if np.prod(models[0].get_input(name).shape) * 4 >= 1 << 13}
    results = {models[0].get_output(i).handle.contents.data for i in range(3)}
    own = {name for name in large if first[name] in results}
    assert len(large) == 3 and len(own) == 1
    once = 4 * (128 * 96 + 64 * 128)
    for other in others:
        # What is a result, to which callers may write, and what is too small to search for is each model's own.
        assert {name for name in first if first[name] == other[name]} == large - own
    assert shared_bytes() - before == once
    for seed, model in enumerate(models):
        placed.same(outputs(model, inputs(seed)), placed.expected(module, inputs(seed)))
    # The second lives on when the first is let go of.
    models.pop(0)
    first = None
    gc.collect()
    placed.same(outputs(models[0], inputs(5)), placed.expected(module, inputs(5)))
    assert shared_bytes() - before == once
    models.clear()
    model = None
    assert shared_bytes() == before


def test_a_weight_that_is_set_is_the_models_own(path, module):
    from collage import region

    one, other = region.load_executor(path), region.load_executor(path)
    want = outputs(other, inputs())
    name = next(
        n for n in addresses(one) if one.get_input(n).shape == (128, 96) or one.get_input(n).numpy().size == 12288
    )
    shape = one.get_input(name).shape
    one.set_input(name, np.zeros(shape, "float32"))
    assert not one.get_input(name).numpy().any() and other.get_input(name).numpy().any()
    assert not np.array_equal(outputs(one, inputs())[0], want[0])
    placed.same(outputs(other, inputs()), want)
    index = one.module["get_input_index"](name)
    one.set_input(index, other.get_input(name))  # by its number, and again
    placed.same(outputs(one, inputs()), want)
    assert list(one.get_input_info()[0]) == ["x"]


def test_models_that_are_loaded_and_run_at_once(path, module):
    from collage import region

    before, failures = shared_bytes(), []
    region.load_executor(path)  # plug-ins

    def work(seed):
        try:
            for turn in range(5):
                model = region.load_executor(path)
                placed.same(outputs(model, inputs(seed + turn)), wanted[seed + turn])
        except BaseException as error:
            failures.append(error)

    wanted = [placed.expected(module, inputs(seed)) for seed in range(9)]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert shared_bytes() == before


def graph(**changes):
    """The text of a graph of one operator, of an input x and a weight p0."""
    import json

    nodes = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "p0", "inputs": []},
        {"op": "tvm_op", "name": "f", "attrs": {"func_name": "f"}, "inputs": [[0, 0, 0], [1, 0, 0]]},
    ]
    whole = {
        "nodes": nodes, "arg_nodes": [0, 1], "heads": [[2, 0, 0]], "node_row_ptr": [0, 1, 2, 3],
        "attrs": {
            "storage_id": ["list_int", [0, 1, 2]], "dltype": ["list_str", ["float32"] * 3],
            "shape": ["list_shape", [[4096]] * 3],
        },
    }  # fmt: skip
    return json.dumps({**whole, **changes})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        (graph(nodes=3), "in the place of a list"),
        (graph(node_row_ptr=[0]), "too few rows"),
        (graph(node_row_ptr=[0, 1, 7, 8]), "of no memory"),
        (graph(node_row_ptr=[0, "1", 2, 3]), "in the place of a number"),
        (graph(heads=[[9, 0, 0]]), "a node 9"),
        (graph(heads=[[2]]), "too short"),
        (graph(attrs={}), "does not say of something its storage_id"),
    ],
)
def test_a_graph_that_is_none_is_refused(text, told):
    library = tvm.get_global_func("runtime.CSourceModuleCreate")("", "c", [], [])
    with pytest.raises(tvm.TVMError, match=told):
        tvm.get_global_func("collage.runtime.OpenParts")(text, library, {}, 1, 0)
