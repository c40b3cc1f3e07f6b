# SPDX-License-Identifier: Apache-2.0
"""The calls most users need: partition a module, replay a plan, or compile to an executable.

    placed = collage.partition(module, params, backends=["tvm", "dnnl"], plan_out="plan.json")
    placed = collage.replay(module, "plan.json", params)
    collage.compile(module, params, backends=["tvm", "dnnl"], out="model.tar")

Keyword arguments beyond those named are CollagePartition's.
"""

import os
from pathlib import Path

import tvm

from . import export, frontends, library, region, transform, workerside


def partition(module, params=None, plan_out=None, **options):
    """Place ``module`` on backends; ``params`` ({name: array}) become constants.

    Returns a new IRModule for relay.build; ``module`` is not changed. With ``plan_out`` the plan is written
    to that file: what was chosen, what it costs and why (``collage explain``), for ``replay``.
    """
    workerside.refuse()
    library.load()
    passes = transform.CollagePartition(**options)  # first of all, what is wrong with the options
    module = _normalised(module, params, options.get("disabled_passes"))
    if plan_out is None:
        return tvm.transform.Sequential([passes])(module)
    placed, plan = tvm.get_global_func("collage.partition")(module, transform.configuration(**options))
    _write(Path(plan_out), str(plan))
    return placed


def replay(module, plan, params=None, disabled_passes=None):
    """Place ``module`` as ``plan`` says (a path, JSON text, or a dictionary), without measuring.

    ``module``, ``params`` and ``disabled_passes`` are those that the plan was made for: the plan has their
    hash. Raises ValueError where they are not.
    """
    workerside.refuse()
    library.load()
    passes = transform.Replay(plan)
    return passes(_normalised(module, params, disabled_passes))


def _normalised(module, params, disabled_passes):
    if params:
        values = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in params.items()}
        module = frontends.bind(tvm.relay.transform.InferType()(module), values, "the module", "params")
    return transform.Normalise(disabled_passes)(module)


def _write(path, text):
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def compile(module, params=None, out=None, plan=None, plan_out=None, **options):
    """Place and build ``module``.

    With ``out`` (.so or .tar) the executable is written there and its path returned: it runs wherever TVM's
    runtime and the plug-ins are. Without, TVM's graph executor factory is returned, for this process. With
    ``plan`` it is placed as that plan says, and nothing is measured; ``plan_out`` is ``partition``'s.
    """
    workerside.refuse()
    library.load()
    if out is not None:
        export.check_output(out)
    if plan is None:
        placed = partition(module, params, plan_out, **options)
    else:
        placed = replay(module, plan, params, options.get("disabled_passes"))
    factory = export.build(
        placed,
        options.get("target"),
        options.get("opt_level"),
        options.get("disabled_passes"),
        tuning_log=options.get("tuning_log"),
    )
    plugins = list(
        dict.fromkeys(path for name in ("", *compilers(placed)) for path in region.plugins_for(name))
    )
    if out is None:
        for plugin in plugins:
            library.load_plugin(plugin)
        return factory
    export.write(factory, out, plugins, options.get("threads") or 0)
    return str(out)


def compilers(module):
    """Names of the backends, other than TVM, that a partitioned module has regions of."""
    names = set()
    for function in module.functions.values():
        attrs = getattr(function, "attrs", None)
        if attrs and "Compiler" in attrs:
            names.add(str(attrs["Compiler"]))
    return sorted(names)
