# SPDX-License-Identifier: Apache-2.0
"""A region as a network of its own for a device, for the runtime plug-in that runs it there (byoc/opencl).

In: a region's function and a kind of device. Out: the bytes of the library that TVM exports, with the weights in it.
"""

import tempfile
from pathlib import Path

import tvm
from tvm import relay

from . import export, target


def build(function, device):
    """collage.host.device_library: builds ``function`` for TVM's target ``device`` ("opencl"); bytes.

    What passes there are, and what is known from tuning, is what the caller's build has: this is called in the middle
    of one. Whoever watches that build does not see this one. Raises what TVM raises where it has no code for something.
    """
    around = tvm.transform.PassContext.current()
    alike = tvm.transform.PassContext(
        opt_level=around.opt_level,
        required_pass=list(around.required_pass),
        disabled_pass=list(around.disabled_pass),
        config=dict(around.config),
    )
    bare = relay.Function(function.params, function.body, function.ret_type)
    host = tvm.target.Target.current(allow_none=True)
    if host is None or host.kind.name != "llvm":
        host = tvm.target.Target(target.default_target())
    build_for = tvm.target.Target(device, host=host)
    with tempfile.TemporaryDirectory(prefix="collage-device-") as folder:
        path = Path(folder) / "region.so"
        with alike:
            factory = relay.build(tvm.IRModule.from_expr(bare), target=build_for)
        export.link(factory, path)
        return bytearray(path.read_bytes())
