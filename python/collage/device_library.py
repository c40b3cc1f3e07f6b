# SPDX-License-Identifier: Apache-2.0
"""A region as a network of its own for a device, for the runtime plug-in that runs it there (byoc/opencl).

In: a region's function and a kind of device. Out: the bytes of the library that TVM exports, with the weights in it,
and what its kernels are made of.
"""

import contextlib
import json
import tempfile
import threading
from pathlib import Path

import tvm
from tvm import relay
from tvm.contrib import nvcc

from . import export, profile, target


def _of_tensors(function):
    """A region's function as one of tensors alone and without its attributes: the graph executor's inputs are no
    tuples.
    """
    params, bound = [], {}
    for param in function.params:
        kind = param.checked_type
        if not isinstance(kind, tvm.ir.TupleType):
            params.append(param)
            continue
        fields = [relay.var(f"{param.name_hint}_{place}", field) for place, field in enumerate(kind.fields)]
        params += fields
        bound[param] = relay.Tuple(fields)
    body = relay.bind(function.body, bound) if bound else function.body
    return relay.Function(params, body, function.ret_type)


# The libraries whose composite functions are calls within a region (byoc/device/calls.go).
_LIBRARIES = ("clblast", "cublas")


def _operators(expr):
    """The names of the operators of an expression, arguments before those who read them."""
    names = []

    def visit(node):
        if isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.Op):
            names.append(node.op.name)

    relay.analysis.post_order_visit(expr, visit)
    return names


class _CallsApart(relay.ExprMutator):
    """A region's function in which calls of libraries are calls of functions of their own, for the code generators
    collage_<library>. What a composite reads, constants as well, is its arguments: TVM keeps that in the device's
    memory.
    """

    def __init__(self):
        super().__init__()
        self.functions = {}
        self.operators = {}

    def visit_call(self, call):
        new = super().visit_call(call)
        name = str(call.op.attrs["Composite"]) if isinstance(call.op, relay.Function) and call.op.attrs else ""
        library = name.partition(".")[0]
        if library not in _LIBRARIES:
            return new
        params = [relay.var(f"a{i}", argument.checked_type) for i, argument in enumerate(call.args)]
        symbol = f"collage_{library}_{len(self.functions)}"
        function = relay.Function(params, relay.Call(call.op, params), call.checked_type)
        for attribute, value in (
            ("Compiler", f"collage_{library}"), ("global_symbol", symbol), ("Primitive", 1), ("Inline", 1),
        ):  # fmt: skip
            function = function.with_attr(attribute, tvm.tir.IntImm("int32", value) if value == 1 else value)
        variable = relay.GlobalVar(symbol)
        self.functions[variable] = function
        self.operators[symbol] = _operators(call.op.body)
        return relay.Call(variable, new.args)


# TVM's schedules for CUDA's tensor cores include a header of NVIDIA's, which its compiler as a library has not. So TVM
# is told, on a thread that builds a region, that there are none.
_this_thread = threading.local()
_have_tensorcore = nvcc.have_tensorcore
nvcc.have_tensorcore = lambda *args, **named: not vars(_this_thread).get("builds") and _have_tensorcore(*args, **named)


@contextlib.contextmanager
def _without_headers():
    _this_thread.builds = True
    try:
        yield
    finally:
        _this_thread.builds = False


def build(function, device):
    """collage.host.device_library: builds ``function`` for TVM's target ``device`` ("opencl", "cuda -arch=sm_90").
    Gives the names of the operators of each kernel, as JSON [[node of TVM's graph, [name, ...]], ...] in the order in
    which they run, null where that is not known; a zero; and the library.

    What passes there are, and what is known from tuning, is what the caller's build has: this is called in the middle
    of one. What that has done to its module by then it has not done to the region. Whoever watches that build does not
    see this one. Raises what TVM raises where it has no code for something.
    """
    around = tvm.transform.PassContext.current()
    asked_for = target.asked_for(around.disabled_pass)

    def alike(left_out, instruments=None):
        return tvm.transform.PassContext(
            opt_level=around.opt_level,
            required_pass=list(around.required_pass),
            disabled_pass=left_out,
            config=dict(around.config),
            instruments=instruments,
        )

    apart = _CallsApart()
    bare = apart.visit(_of_tensors(function))
    module = relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): bare, **apart.functions}))
    host = tvm.target.Target.current(allow_none=True)
    if host is None or host.kind.name != "llvm":
        host = tvm.target.Target(target.default_target())
    build_for = tvm.target.Target(device, host=host)
    with _without_headers(), alike(asked_for):
        module, done = export.optimise(module, build_for)
    with tempfile.TemporaryDirectory(prefix="collage-device-") as folder:
        path = Path(folder) / "region.so"
        with _without_headers(), alike(target.with_done(asked_for, done), [recorder := profile.KernelRecorder()]):
            factory = relay.build(module, target=build_for)
        export.link(factory, path)
        kernels = _kernels(recorder.module, factory, apart.operators)
        return bytearray(json.dumps(kernels).encode() + b"\0" + path.read_bytes())


def _kernels(module, factory, of_calls):
    """What the kernels of a built network are made of; ``of_calls`` are the operators of functions that are called."""
    described = profile.describe(module, factory)
    if described is None:
        return None
    graph = json.loads(factory.get_graph_json())["nodes"]
    nodes = [place for place, node in enumerate(graph) if node["op"] == "tvm_op"]
    kernels = [[node, []] for node in nodes]
    for op in described["ops"]:
        if op["kernel"] >= 0 and not op["op"].startswith("("):
            name = op["op"]
            kernels[op["kernel"]][1].extend(of_calls[name[1:]] if name.startswith("@") else [name])
    return kernels
