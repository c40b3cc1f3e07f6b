# SPDX-License-Identifier: Apache-2.0
"""What TVM compiles for, unless told otherwise: this processor, and the passes that every build uses.

TVM asks LLVM which features a ``-mcpu`` has (AVX-512 or not decides its schedules), so the name that LLVM
gives this processor is enough: znver5 gets the same 16-lane schedules and layouts as skylake-avx512.
"""

import contextlib
import functools

import tvm
from tvm.relay.backend import te_compiler

OPT_LEVEL = 3

# One after the other, these two lose the sharing of a graph such as NasNet-A and grow it without end. They
# are disabled for all builds alike, so that comparisons between backends stay fair.
DISABLED_PASSES = ("EliminateCommonSubexpr", "SimplifyExpr")

# TVM asks for its own build flags for every shape that it lowers, 6 ms each time: a third of what building
# takes. They do not change, so they are asked for once.
if hasattr(te_compiler, "libinfo"):
    te_compiler.libinfo = functools.cache(te_compiler.libinfo)


def default_target():
    """The target string for the processor this runs on, such as ``llvm -mcpu=skylake-avx512``."""
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    return "llvm" if cpu in ("", "generic") else f"llvm -mcpu={cpu}"


@contextlib.contextmanager
def build_context(opt_level=None, disabled_passes=None, config=None, instruments=()):
    """The PassContext of every relay.build in this package; None means the default."""
    level = OPT_LEVEL if opt_level is None else opt_level
    disabled = DISABLED_PASSES if disabled_passes is None else disabled_passes
    with tvm.transform.PassContext(
        opt_level=level, disabled_pass=list(disabled), config=config, instruments=list(instruments) or None
    ) as context:
        yield context
