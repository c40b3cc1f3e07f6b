# SPDX-License-Identifier: Apache-2.0
"""``collage`` as a target of TVM's own command line driver: ``python -m collage.tvmc compile
--target=collage,llvm ...``

TVMC has no way to find plug-ins, so this program adds the target to its table, makes its packages link the
runtime plug-ins, and then is tvmc.
"""

import sys

import tvm
from tvm import relay

from . import api, export, region, transform

_compilers = set()


def partition_for_collage(module, params=None, mod_name="default", **options):
    """TVMC's hook: place ``module`` with ``params`` bound.

    ``options`` are those of the target string, as in ``--target="collage -backends=tvm+dnnl -threads=2,
    llvm"``: backends, threads, samples, only, exact (1). Their values arrive as strings.
    """
    if params:
        bound = tvm.IRModule(module.functions, module.type_definitions)
        # Weights must stand inside the regions.
        bound["main"] = relay.build_module.bind_params_by_name(module["main"], params)
        module = relay.transform.InferType()(bound)
    arguments = {name: str(options[name]) for name in ("only",) if name in options}
    arguments.update({name: int(options[name]) for name in ("threads", "samples") if name in options})
    if "backends" in options:
        arguments["backends"] = str(options["backends"]).replace("+", ",")
    if "exact" in options:
        arguments["exact"] = bool(int(options["exact"]))
    # A cost store cannot be named: paths do not survive TVMC's tokenizer.
    unknown = set(options) - {"only", "threads", "samples", "backends", "exact"}
    if unknown:
        raise ValueError(f"the target collage has no option {sorted(unknown)[0]}")
    placed = tvm.transform.Sequential([transform.Normalise(), transform.CollagePartition(**arguments)])(module)
    _compilers.update(api.compilers(placed))
    return placed


def register():
    """Add ``collage`` to TVMC's composite targets, and link what it exports with the plug-ins."""
    from tvm.driver.tvmc import composite_target
    from tvm.driver.tvmc.model import TVMCModel

    composite_target.REGISTERED_CODEGEN["collage"] = {
        "config_key": None,
        "pass_default": False,
        "default_target": "llvm",
        "pass_pipeline": partition_for_collage,
    }
    plain = TVMCModel.export_classic_format

    def linked(self, executor_factory, package_path=None, cross=None, cross_options=None, lib_format="so"):
        if cross or lib_format != "so" or not _compilers:
            return plain(self, executor_factory, package_path, cross, cross_options, lib_format)
        package_path = package_path or self.default_package_path()
        plugins = [path for name in _compilers for path in region.plugins_for(name)]
        export.write(executor_factory, package_path, list(dict.fromkeys(plugins)))
        return package_path

    TVMCModel.export_classic_format = linked


def main():
    """tvmc, with one target more."""
    from tvm.driver.tvmc import main as driver

    register()
    return driver.main()


if __name__ == "__main__":
    sys.exit(main())
