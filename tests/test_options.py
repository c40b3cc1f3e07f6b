# SPDX-License-Identifier: Apache-2.0
"""Go's table of options is what Python's functions, the PassContext and the command line have."""

import inspect
import json

import pytest
from conftest import run_python


@pytest.fixture(scope="module")
def collage(collage_library):
    """The package with libcollage."""
    import collage

    collage.library.load()
    return collage


# What says which Python measures is no argument: it is the one that is running.
OF_THE_PROCESS = {"python"}


@pytest.mark.parametrize("name", ["partition", "compile", "transform.CollagePartition"])
def test_functions_have_the_options(collage, name):
    function = collage
    for part in name.split("."):
        function = getattr(function, part)
    parameters = inspect.signature(function).parameters
    assert not [p for p in parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD], "options hide"
    known = [option for option in collage.options() if option not in OF_THE_PROCESS]
    assert [p for p in parameters if p in known] == known
    for option in known:
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option].default is None, "the default is Go's"


def test_functions_have_no_others(collage):
    known = [option for option in collage.options() if option not in OF_THE_PROCESS]
    assert list(collage.transform.OPTIONS) == known


def test_the_command_line_has_the_flags(collage, command):
    told = json.loads(command("help", "compile", "--json").stdout)["commands"][0]
    flags = {flag["name"]: flag for flag in told["flags"]}
    for option in collage.options().values():
        if option["flag"]:
            about = flags[option["flag"]]["usage"].replace("--", "").replace("_", "-")
            assert about == option["meaning"].replace("_", "-")


GIVEN = {
    "collage.backends": ["tvm", "nowhere"],
    "collage.opt_level": 7,
    "collage.search_time": "-1",
    "collage.rounds": -2,
    "collage.trials": -1,
    "collage.level": "middle",
}


@pytest.mark.parametrize("option", GIVEN)
def test_the_pass_context_reaches_go(option):
    """What is wrong with an option is said of the PassContext's, too."""
    program = f"""
import json, collage, tvm
from tvm import relay
x = relay.var("x", shape=(1, 8))
module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x)))
try:
    with tvm.transform.PassContext(config={{{option!r}: {GIVEN[option]!r}}}):
        collage.partition(module)
    print(json.dumps("it was placed"))
except ValueError as error:
    print(json.dumps(str(error)))
"""
    said = run_python(program)
    assert ("nowhere" if option == "collage.backends" else option.removeprefix("collage.")) in said


def test_every_option_is_one_of_the_pass_context(collage):
    from tvm.ir.transform import PassContext

    assert {f"collage.{name}" for name in collage.options()} <= set(PassContext.list_configs())


def test_an_argument_goes_before_the_pass_context(collage):
    import tvm

    with tvm.transform.PassContext(config={"collage.opt_level": 7}):
        made = collage.transform.CollagePartition(only="dnnl", opt_level=2)
        x = tvm.relay.var("x", shape=(1, 8))
        module = tvm.IRModule.from_expr(tvm.relay.Function([x], tvm.relay.nn.relu(x)))
        made(tvm.relay.transform.InferType()(module))
