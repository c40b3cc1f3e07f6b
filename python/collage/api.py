# SPDX-License-Identifier: Apache-2.0
"""The two calls most users need: partition a module, or compile it to an executable.

    placed = collage.partition(module, params, backends=["tvm", "dnnl"])
    collage.compile(module, params, backends=["tvm", "dnnl"], out="model.tar")

Keyword arguments beyond those named are CollagePartition's.
"""

import tvm

from . import export, frontends, library, region, transform, workerside


def partition(module, params=None, **options):
    """Place ``module`` on backends; ``params`` ({name: array}) become constants.

    Returns a new IRModule for relay.build; ``module`` is not changed.
    """
    workerside.refuse()
    library.load()
    if params:
        values = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in params.items()}
        module = frontends.bind(tvm.relay.transform.InferType()(module), values, "the module", "params")
    passes = [transform.Normalise(options.get("disabled_passes")), transform.CollagePartition(**options)]
    return tvm.transform.Sequential(passes)(module)


def compile(module, params=None, out=None, **options):
    """Place and build ``module``.

    With ``out`` (.so or .tar) the executable is written there and its path returned: it runs wherever TVM's
    runtime and the plug-ins are. Without, TVM's graph executor factory is returned, for this process.
    """
    workerside.refuse()
    library.load()
    if out is not None:
        export.check_output(out)
    placed = partition(module, params, **options)
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
