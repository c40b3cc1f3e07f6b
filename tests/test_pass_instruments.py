# SPDX-License-Identifier: Apache-2.0
"""TVM's builds do not infer types that are known, nor compile what Go folds."""

import numpy as np
import placed
import pytest
import tvm
from collage import export, pass_instruments, target, virtual_machine
from tvm import relay

pytestmark = pytest.mark.usefixtures("collage_library")


@tvm.instrument.pass_instrument
class _Seen:
    """The passes that ran, and what each of some kinds was given."""

    def __init__(self, of=None):
        self.names, self.modules, self._of = [], [], of

    def run_before_pass(self, module, info):
        self.names.append(info.name)
        if info.name == self._of:
            self.modules.append(tvm.IRModule(module.functions, module.type_definitions))


def _network(rows):
    x = relay.var("x", shape=(rows, 8))
    y = relay.nn.dense(x, relay.const(np.ones((4, 8), "float32")))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.softmax(relay.tanh(y)))))


def test_types_are_inferred_of_what_has_changed_alone():
    module, seen = _network(2), _Seen()
    other = tvm.IRModule.from_expr(relay.Function([], relay.add(relay.const(1.0), relay.const(2.0))))
    with tvm.transform.PassContext(instruments=[pass_instruments.KnownTypes(), seen]):
        infer = relay.transform.InferType()
        typed = infer(infer(module))
        assert seen.names == ["InferType"]
        assert infer(other)["main"].body.checked_type == relay.TensorType((), "float32")
        infer(typed)
        typed["another"] = other["main"]
        assert infer(typed)["another"].body.checked_type == relay.TensorType((), "float32")
        assert seen.names == ["InferType"] * 4
        infer(module)  # one function less is another module, too
        assert seen.names == ["InferType"] * 5


def test_a_build_infers_fewer():
    def runs(instruments):
        seen = _Seen()
        with tvm.transform.PassContext(opt_level=3, instruments=[*instruments, seen]):
            relay.build(_network(2), target.default_target())
        return seen.names.count("InferType")

    assert runs([pass_instruments.KnownTypes()]) < runs([])
    seen = _Seen()
    export.build(_network(2), instruments=[seen])
    assert seen.names.count("InferType") < runs([])


def _of_constants(module):
    """How many sums, products and quotients of constants are in a module's main."""
    found = []

    def look(one):
        name = getattr(one.op, "name", "") if isinstance(one, relay.Call) else ""
        if name in ("add", "multiply", "divide"):
            found.append(all(isinstance(arg, relay.Constant) for arg in one.args))

    relay.analysis.post_order_visit(module["main"], look)
    return sum(found)


def test_what_tvm_folds_on_its_machine_is_folded_before():
    module = _network(relay.Any())

    def given(instruments):
        seen = _Seen("FoldConstant")
        with tvm.transform.PassContext(opt_level=3, instruments=[*instruments, seen]):
            relay.vm.compile(module, target.default_target())
        return [_of_constants(one) for one in seen.modules]

    assert any(given([])), "TVM has bytes of elements reckoned for each tensor of an open size"
    assert not any(given([pass_instruments.FoldedInGo()]))
    built = export.build_for_machine(module)
    machine = virtual_machine.Model(built.module, built.signature)
    data = np.random.default_rng(0).standard_normal((3, 8), dtype="float32")
    machine.set_input("x", data)
    machine.run()
    raised = np.exp(np.tanh(data.sum(1, keepdims=True)).repeat(4, 1))
    placed.same([machine.get_output(0).numpy()], [raised / raised.sum(1, keepdims=True)])
