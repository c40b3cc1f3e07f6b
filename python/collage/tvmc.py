# SPDX-License-Identifier: Apache-2.0
"""``collage`` as a target of TVM's own command line driver:
``collage tvmc compile --target="collage, llvm" model.onnx``, or ``python -m collage.tvmc``.

TVMC has no way to find plug-ins, so this program adds the target to its table, makes its packages link the runtime
plug-ins, and then is tvmc.
"""

import inspect
import mmap
import os
import sys
from collections.abc import Callable
from typing import Any

import tvm
from tvm import relay
from tvm.driver.tvmc import TVMCException, autotuner, compiler, composite_target
from tvm.driver.tvmc.model import TVMCModel, TVMCPackage
from tvm.driver.tvmc.target import target_from_cli

from . import api, errors, export, library, region, spans, transform
from .api import Parameters

NAME = "collage"

# Options of the target beside docs/options.md's.
_RPATH = "rpath"


class _Compilation:
    """What is known of the compilation that tvmc is at: the records of its tuner, the backends that have regions, and
    whether the library says where their plug-ins are.
    """

    records: str | None = None
    compilers: tuple[str, ...] = ()
    rpath = False


def partition_for_collage(
    module: tvm.IRModule, params: Parameters | None = None, mod_name: str = "default", **options: Any
) -> tvm.IRModule:
    """Place ``module`` with ``params`` bound, as TVM's own ``partition_for_*`` do; TVMC's hook.

    ``options`` are docs/options.md's, as ``collage.partition`` takes them or as text, which is what they are in
    ``--target="collage -backends=tvm+dnnl -threads=2 -search_time=30, llvm"``: lists have + between their parts, truth
    is 1 or 0. What TVMC's tokenizer does not let through (paths, =) may stand in a PassContext: ``--pass-config
    collage.store=FILE``. ``rpath`` has what tvmc writes say where the plug-ins are on this machine. Raises ValueError
    for an option that there is not, or that is not readable.
    """
    _Compilation.rpath = _truth(_RPATH, options.pop(_RPATH, False))
    arguments = {name: _read(name, value) for name, value in options.items()}
    if _Compilation.records is not None:
        arguments.setdefault("tuning_log", _Compilation.records)
    if params:
        bound = tvm.IRModule(module.functions, module.type_definitions)
        # Weights must stand inside the regions.
        bound["main"] = relay.build_module.bind_params_by_name(module["main"], dict(params))
        module = relay.transform.InferType()(bound)
    normal = spans.kept(module, transform.Normalise(arguments.get("disabled_passes"))(module))
    placed = tvm.transform.Sequential([transform.CollagePartition(**arguments)])(normal)
    _Compilation.compilers = tuple(api.compilers(placed))
    return placed


def _truth(name: str, value: Any) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}
    if str(value).lower() not in known:
        raise errors.OptionError(f"-{name}={value} of the target {NAME}: it is 1 or 0", option=name)
    return known[str(value).lower()]


def _number(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise errors.OptionError(f"-{name}={value} of the target {NAME}: it is a {what}", option=name) from None


def _read(name: str, value: Any) -> Any:
    """An option of the target as ``collage.partition`` takes it."""
    known = api.options()
    if name not in known:
        names = ", ".join([*known, _RPATH])
        raise errors.OptionError(f"the target {NAME} has no option {name} (options: {names})", option=name)
    if value is True and known[name]["kind"] != "truth":  # --name
        raise errors.OptionError(f"-{name} of the target {NAME} needs a value, as in -{name}=VALUE", option=name)
    if not isinstance(value, str | bool):
        return value
    match known[name]["kind"]:
        case "truth":
            return _truth(name, value)
        case "integer":
            return _number(name, value, int)
        case "number":
            return _number(name, value, float)
        case "texts":
            return str(value).split("+")
    return value


def _linked(plain: Callable[..., Any]) -> Callable[..., Any]:
    """TVMCModel.export_classic_format, linked with the plug-ins."""

    def export_classic_format(
        self: Any,
        executor_factory: Any,
        package_path: str | None = None,
        cross: Any = None,
        cross_options: str | None = None,
        lib_format: str = "so",
    ) -> Any:
        compilers = _Compilation.compilers
        if not compilers:
            return plain(self, executor_factory, package_path, cross, cross_options, lib_format)
        if cross or lib_format != "so":
            raise TVMCException(
                f"what is placed on {', '.join(compilers)} is linked with libraries of this machine: leave "
                "--cross-compiler out"
            )
        package_path = package_path or self.default_package_path()
        plugins = list(dict.fromkeys(str(path) for name in compilers for path in region.plugins_for(name)))
        export.write(executor_factory, package_path, plugins, rpath=_Compilation.rpath)
        return package_path

    return export_classic_format


def _with_records(plain: Callable[..., Any]) -> Callable[..., Any]:
    """compile_model, which tells the target of the records that TVM's part is compiled with."""
    signature = inspect.signature(plain)

    def compile_model(*arguments: Any, **named: Any) -> Any:
        records = signature.bind(*arguments, **named).arguments.get("tuning_records")
        _Compilation.records = records if records and os.path.exists(records) else None
        _Compilation.compilers = ()
        try:
            return plain(*arguments, **named)
        finally:
            _Compilation.records = None

    return compile_model


def _of_last_target(plain: Callable[..., Any]) -> Callable[..., Any]:
    """drive_tune, which TVM 0.19 has make a target of the whole text of --target, for parameters of its auto-scheduler:
    it knows no target like this one, and that is an error for each target with another before it.
    """

    def drive_tune(arguments: Any) -> Any:
        make = autotuner.auto_scheduler.HardwareParams

        def hardware(*given: Any, target: Any = None, **named: Any) -> Any:
            last = target_from_cli(target)[0] if isinstance(target, str) else target
            return make(*given, target=last, **named)

        autotuner.auto_scheduler.HardwareParams = hardware
        try:
            return plain(arguments)
        finally:
            autotuner.auto_scheduler.HardwareParams = make

    return drive_tune


def _with_plugins(plain: Callable[..., Any]) -> Callable[..., Any]:
    """TVMCPackage.import_package, with this installation's plug-ins in the process that the model asks for."""

    def import_package(self: Any, package_path: str) -> None:
        plain(self, package_path)
        if self.lib_path.endswith(".so") and _names_a_plugin(self.lib_path):
            library.load()
            tvm.get_global_func("collage.prepare_model")(str(self.lib_path))

    return import_package


def _names_a_plugin(path: str) -> bool:
    """Whether a library may be linked with a plug-in; others may be for another machine, by RPC, and are left alone."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"libcollage_") >= 0


def register() -> None:
    """Make ``collage`` one of TVMC's composite targets, and have its functions do what that needs; once."""
    if NAME in composite_target.REGISTERED_CODEGEN:
        return
    composite_target.REGISTERED_CODEGEN[NAME] = {
        "config_key": None,
        "pass_default": False,
        "default_target": "llvm",
        "pass_pipeline": partition_for_collage,
    }
    TVMCModel.export_classic_format = _linked(TVMCModel.export_classic_format)
    TVMCPackage.import_package = _with_plugins(TVMCPackage.import_package)
    compiler.compile_model = _with_records(compiler.compile_model)
    autotuner.drive_tune = _of_last_target(autotuner.drive_tune)


def main() -> int:
    """tvmc, with one target more; ends the process as tvmc does. What is wrong with the target is one line."""
    from tvm.driver.tvmc import main as driver

    register()
    try:
        driver.main()
        return 0
    except (ValueError, library.LibraryError) as error:
        if os.environ.get("COLLAGE_DEBUG"):
            raise
        print(f"collage: error: {region.in_short(error).partition(': ')[2]}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
