# SPDX-License-Identifier: Apache-2.0
"""What TVM compiles for, unless told otherwise: this processor, the passes that every build uses, and what is
known from tuning.

TVM asks LLVM which features a ``-mcpu`` has (AVX-512 or not decides its schedules), so the name that LLVM
gives this processor is enough: znver5 gets the same 16-lane schedules and layouts as skylake-avx512.
"""

import contextlib
import functools

import tvm
from tvm.relay.backend import te_compiler

from . import library, pass_instruments, tuninglog

OPT_LEVEL = 3

# TVM asks for its own build flags for every shape that it lowers, 6 ms each time: a third of what building
# takes. They do not change, so they are asked for once.
if hasattr(te_compiler, "libinfo"):
    te_compiler.libinfo = functools.cache(te_compiler.libinfo)


def resolve(name):
    """TVM's target string for what users write: ``x86-64-v2``, ``-v3``, ``-v4``, ``native`` (this processor), a
    target of TVM's as it is, or None for that of the Target scope around the call, else ``native``.
    """
    if isinstance(name, tvm.target.Target):
        return str(name)
    library.load()
    return str(tvm.get_global_func("collage.resolve_target")(name or ""))


def default_target():
    """The target string for the processor this runs on, such as ``llvm -mcpu=skylake-avx512``."""
    return resolve("native")


def disabled_passes(given=None):
    """The passes that builds leave out: those given; where given is None, those that Collage leaves out."""
    if given is not None:
        return list(given)
    library.load()
    return [str(name) for name in tvm.get_global_func("collage.disabled_passes")()]


# Stands among the passes that a context leaves out, before those that were run already.
_DONE = "(done)"


def with_done(left_out, done):
    """The passes that a build leaves out: those that are asked for, and those that were run on the module before."""
    return [*left_out, _DONE, *done]


def asked_for(left_out):
    """Of such a list the passes that are asked for: who builds something else within the build has run none yet."""
    names = [str(name) for name in left_out]
    return names[: names.index(_DONE)] if _DONE in names else names


@contextlib.contextmanager
def build_context(opt_level=None, disabled=None, config=None, instruments=(), tuning_log=None):
    """The PassContext of every relay.build in this package; None means the default.

    tuning_log is a path (tuninglog says of what); where it is None, the one that the process was started
    with holds.
    """
    log = tuninglog.from_environment() if tuning_log is None else tuning_log
    with (
        tuninglog.applied(log) as extra,
        tvm.transform.PassContext(
            opt_level=OPT_LEVEL if opt_level is None else opt_level,
            disabled_pass=disabled_passes(disabled),
            config={**(config or {}), **extra},
            instruments=[pass_instruments.KnownTypes(), *instruments],
        ) as context,
    ):
        yield context
