# SPDX-License-Identifier: Apache-2.0
"""A region as a network of its own for a device, for the runtime plug-in that runs it there (byoc/opencl).

In: a region's function and a kind of device. Out: the bytes of the library that TVM exports, with the weights in it,
and what its kernels are made of.
"""

import json
import tempfile
from pathlib import Path

import tvm
from tvm import relay

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


def build(function, device):
    """collage.host.device_library: builds ``function`` for TVM's target ``device`` ("opencl"). Gives the names of the
    operators of each kernel, as JSON [[node of TVM's graph, [name, ...]], ...] in the order in which they run, null
    where that is not known; a zero; and the library.

    What passes there are, and what is known from tuning, is what the caller's build has: this is called in the middle
    of one. Whoever watches that build does not see this one. Raises what TVM raises where it has no code for something.
    """
    around = tvm.transform.PassContext.current()
    alike = tvm.transform.PassContext(
        opt_level=around.opt_level,
        required_pass=list(around.required_pass),
        disabled_pass=list(around.disabled_pass),
        config=dict(around.config),
        instruments=[recorder := profile.KernelRecorder()],
    )
    bare = _of_tensors(function)
    host = tvm.target.Target.current(allow_none=True)
    if host is None or host.kind.name != "llvm":
        host = tvm.target.Target(target.default_target())
    build_for = tvm.target.Target(device, host=host)
    with tempfile.TemporaryDirectory(prefix="collage-device-") as folder:
        path = Path(folder) / "region.so"
        with alike:
            factory = relay.build(tvm.IRModule.from_expr(bare), target=build_for)
        export.link(factory, path)
        return bytearray(json.dumps(_kernels(recorder.module, factory)).encode() + b"\0" + path.read_bytes())


def _kernels(module, factory):
    """What the kernels of a built network are made of."""
    described = profile.describe(module, factory)
    if described is None:
        return None
    graph = json.loads(factory.get_graph_json())["nodes"]
    nodes = [place for place, node in enumerate(graph) if node["op"] == "tvm_op"]
    kernels = [[node, []] for node in nodes]
    for op in described["ops"]:
        if op["kernel"] >= 0 and not op["op"].startswith("("):
            kernels[op["kernel"]][1].append(op["op"])
    return kernels
