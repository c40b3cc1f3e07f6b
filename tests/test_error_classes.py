# SPDX-License-Identifier: Apache-2.0
"""One base class for all that Collage raises, with the operator, the span, the backend, the option and the file."""

import importlib
import importlib.util
import inspect
import pickle
import pkgutil

import numpy as np
import pytest
import tvm
from tvm import relay

pytestmark = [pytest.mark.usefixtures("loaded"), pytest.mark.fast]


@pytest.fixture(scope="module")
def loaded(collage_library):
    """libcollage in this process."""
    import collage

    return collage.library.load()


def network(operator=relay.nn.relu):
    return tvm.IRModule.from_expr(operator(relay.var("x", shape=(2, 16), dtype="float32")))


def raised(call, *arguments, **options):
    """The CollageError that a call raises."""
    import collage

    with pytest.raises(collage.CollageError) as caught:
        call(*arguments, **options)
    return caught.value


def test_an_option_of_gos_table():
    import collage

    error = raised(collage.partition, network(), backends=["tvm"], threads=-1)
    assert isinstance(error, collage.errors.OptionError) and isinstance(error, ValueError)
    assert error.fields == {"option": "threads"}
    assert "threads" in str(error)


def test_a_backend_that_there_is_not():
    import collage

    for call in (collage.partition, collage.plan):
        error = raised(call, network(), backends=["tvm", "dnnnl"])
        assert type(error) is collage.errors.BackendError
        assert (error.backend, error.operator, error.file) == ("dnnnl", None, None)


def test_an_operator_that_nobody_takes():
    import collage

    module = network(lambda x: relay.nn.relu(relay.erf(relay.nn.relu(x))))
    error = raised(collage.partition, module, backends=["dnnl_tvm"], store="")
    assert type(error) is collage.errors.BackendError
    assert (error.operator, error.backend) == ("erf", "dnnl_tvm")


def test_a_code_generator_of_gos():
    """A region made by hand, with an operator that the engine does not know behind one that it knows."""
    import collage
    from collage import export

    spans = [relay.Span(relay.SourceName(name), 1, 1, 2, 2) for name in ("first", "second")]
    y = relay.var("y", shape=(2, 16), dtype="float32")
    body = relay.Call(tvm.ir.Op.get("nn.relu"), [y], span=spans[0])
    body = relay.Call(tvm.ir.Op.get("acos"), [body], span=spans[1])
    region = relay.Function([y], body, ret_type=y.type_annotation)
    for name, value in {"Compiler": "collage_dnnl", "Primitive": 1, "Inline": 1, "global_symbol": "region_0"}.items():
        region = region.with_attr(name, tvm.tir.IntImm("int32", 1) if value == 1 else value)
    collage.library.load()
    collage.partition(network(), only="dnnl", store="")  # has the code generator installed
    x = relay.var("x", shape=(2, 16), dtype="float32")
    inside = relay.GlobalVar("region_0")
    module = tvm.IRModule({inside: region, relay.GlobalVar("main"): relay.Function([x], inside(x))})
    error = raised(export.build, relay.transform.InferType()(module))
    assert type(error) is collage.errors.BackendError
    assert (error.backend, error.operator, error.span) == ("dnnl", "acos", "second:1:2")
    assert str(error).startswith("the code generator of the backend dnnl, at acos (second:1:2): ")


def test_the_pass_and_the_function_alike():
    """What goes through TVM's own pass manager is no other exception."""
    import collage

    passes = collage.transform.CollagePartition(backends=["dnnl_tvm"], store="")
    error = raised(tvm.transform.Sequential([passes]), network(relay.erf))
    assert (type(error).__name__, error.operator) == ("BackendError", "erf")


def test_a_plan_for_another_network():
    import collage

    plan = collage.plan(network(), backends=["tvm"])
    error = raised(collage.replay, network(relay.tanh), plan.text)
    assert type(error) is collage.errors.PlanError
    assert type(raised(collage.Plan, '{"schema": 1}')) is collage.errors.PlanError


def test_what_is_called_otherwise():
    import collage

    error = raised(tvm.get_global_func("collage.partition"))
    assert type(error) is collage.errors.CallError and isinstance(error, TypeError)
    error = raised(collage.transform.configuration, None, thread=1)
    assert isinstance(error, TypeError) and error.option == "thread"


def test_what_go_gives_no_class_is_tvms_error_too():
    import collage

    error = raised(tvm.get_global_func("collage.network.annotate"), network(), "no JSON")
    assert isinstance(error, ValueError)
    failed = collage.errors.FailedError
    assert issubclass(failed, tvm.TVMError) and issubclass(failed, collage.CollageError)
    made = collage.errors.raised("TVMError", "", "it failed", "", "nn.dense", "", "dnnl", "")
    assert type(made) is failed and made.fields == {"operator": "nn.dense", "backend": "dnnl"}


def test_tvms_own_errors_stay_tvms():
    import collage

    with pytest.raises(tvm.TVMError) as caught:
        tvm.get_global_func("collage.bridge.Call")(tvm.get_global_func("relay.ir.cast"), 1)
    assert not isinstance(caught.value, collage.CollageError)


def test_models(tmp_path):
    from collage import errors, frontends

    missing = raised(frontends.load, tmp_path / "none.onnx")
    assert isinstance(missing, FileNotFoundError) and missing.file == str(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    bad = raised(frontends.load, tmp_path / "bad.onnx")
    assert type(bad) is errors.ModelError and bad.file == str(tmp_path / "bad.onnx")


def test_an_operator_of_a_model(tmp_path):
    import onnx
    from collage import errors, frontends
    from onnx import TensorProto, helper

    shape = [None, None]
    graph = helper.make_graph(
        [helper.make_node("Dropout", ["x", "ratio", "train"], ["y"], "drop")],
        "drops",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor("ratio", TensorProto.FLOAT, [], [0.5]),
            helper.make_tensor("train", TensorProto.BOOL, [], [1]),
        ],
    )
    path = tmp_path / "drops.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)
    error = raised(frontends.load, path)
    assert type(error) is errors.ModelError
    assert (error.operator, error.file) == ("Dropout", str(path))


def test_files(tmp_path):
    import collage

    assert isinstance(raised(collage.load, tmp_path / "no.so"), FileNotFoundError)
    error = raised(collage.compile, network(), out=tmp_path / "none" / "model.so", backends=["tvm"])
    assert isinstance(error, FileNotFoundError) and error.file == str(tmp_path / "none" / "model.so")


def test_a_registration():
    import collage

    error = raised(collage.register_backend, "Wrong Name", emit=lambda region: "")
    assert isinstance(error, collage.RegistrationError)
    assert (error.backend, error.option) == ("Wrong Name", "name")


def test_all_classes_of_the_package_have_the_base():
    """But for those of the peers, which are programs of their own, and collage.pytorch where there is no torch."""
    import collage
    from collage import errors

    found = 0
    for module in pkgutil.walk_packages(collage.__path__, "collage."):
        if ".peers" in module.name or module.name.endswith("__main__"):
            continue
        if module.name == "collage.pytorch" and importlib.util.find_spec("torch") is None:
            continue
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and issubclass(kind, Exception):
                assert issubclass(kind, errors.CollageError), f"{module.name}.{name}"
                found += 1
    assert found > 12


@pytest.mark.parametrize(
    "kind", [ValueError, TypeError, RuntimeError, KeyError, FileNotFoundError, NotImplementedError]
)
def test_every_kind_of_gos_has_a_class(kind):
    from collage import errors

    made = errors.raised(kind.__name__, "", "why", "", "", "", "", "model.so")
    assert isinstance(made, kind) and isinstance(made, errors.CollageError)
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made) and again.fields == {"file": "model.so"}
    assert errors.python_name(made) == kind.__name__


def test_what_programs_do_not_catch_is_not_made():
    from collage import errors

    assert errors.raised("KeyboardInterrupt", "", "", "", "", "", "", "") is None


def test_the_executables_inputs(tmp_path):
    import collage

    executable = collage.compile(network(), level="operator", backends=["tvm"], only="tvm", search_time=1)
    error = raised(executable.run, y=np.zeros((2, 16), "float32"))
    assert type(error) is collage.errors.InputError
