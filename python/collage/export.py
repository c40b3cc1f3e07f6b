# SPDX-License-Identifier: Apache-2.0
"""Build a module with TVM and write it as an executable that plain TVM loads.

In: an IRModule (with regions of other backends outlined, or without). Out: one file, either ``.so`` (a graph executor
factory for ``tvm.runtime.load_module``, or what TVM's virtual machine runs) or ``.tar`` (mod.so, mod.json, mod.params,
or lib.so: what ``tvmc run`` and ``collage run`` accept). The library inside is linked with the runtime plug-ins, so the
dynamic loader brings them in and neither Go nor Python is needed to run it.

A file appears under its name only when it is complete.
"""

import contextlib
import errno
import io
import os
import resource
import shutil
import tarfile
import tempfile
from pathlib import Path

import tvm
from tvm import autotvm, relay
from tvm.contrib import graph_executor
from tvm.relay.backend import executor_factory

from . import (
    c_sources,
    common_subexpressions,
    errors,
    library,
    needs,
    one_dimension,
    open_images,
    open_slices,
    own_functions,
    packed,
    parameters,
    pass_instruments,
    quiet,
    shape_functions,
    target,
    virtual_machine,
)

FORMATS = (".so", ".tar")

# TVM may fuse what makes a tensor as large as another (ones_like) behind a layer whose values it does not
# read, and then looks in vain for that layer's schedule. SimplifyExpr makes plain ones of such operators;
# builds leave it out (RATIONALE.md) unless they cannot do without.
_NO_WORKLOAD = "Cannot find TOPI workload"

# TVM may compute what a concatenation joins in its loops, and then finds that it has not the form in which the
# concatenation reads it.
_NOT_COMPACT = "Cannot bind a compact buffer"

# TVM may compute behind a product what has another open size than the product's, which its schedule then does not know.
_NOBODYS_SIZE = "are used, but are not passed in as API arguments"

# TVM may think of a layout that no tensor can have (_squeezes_reshaped).
_NO_LAYOUT = "index_backward_rule"

# Space that must be free for intermediate files beside what the parameters take: objects and libraries of
# code.
_CODE_BYTES = 64 << 20


class ExportError(errors.CollageError, OSError):
    """The result could not be written; the text says where and why."""


def check_output(path):
    """Refuse an output path that cannot work, before hours of measuring. Raises ValueError or OSError."""
    path = Path(path)
    if path.suffix not in FORMATS:
        raise errors.InputError(
            f"cannot tell what to write to {path}: the name must end in {' or '.join(FORMATS)}", file=path
        )
    if path.is_dir():
        raise errors.of(IsADirectoryError)(errno.EISDIR, f"{path} is a directory", file=path)
    if not path.parent.is_dir():
        raise errors.MissingFileError(
            errno.ENOENT, f"cannot write {path}: there is no directory {path.parent}", file=path
        )
    if not os.access(path.parent, os.W_OK):
        raise errors.of(PermissionError)(
            errno.EACCES, f"cannot write {path}: no permission to write in {path.parent}", file=path
        )


def build(
    module, build_target=None, opt_level=None, disabled_passes=None, instruments=(), tuning_log=None, lowering=None,
    rearrange=None,
):  # fmt: skip
    """relay.build with the project's settings; returns TVM's graph executor factory. ``instruments`` watch
    its passes, ``lowering`` is further configuration of what makes kernels, and ``rearrange`` gives another module for
    the one whose kernels have their layouts. What None means, ``target.build_context`` says.
    """
    build_for = tvm.target.Target(target.resolve(build_target))

    def attempt(module, left_out, config):
        with target.build_context(opt_level, left_out, config, tuning_log=tuning_log):
            optimised, done = optimise(module, build_for)
        if rearrange is not None:
            optimised = rearrange(optimised)
        left_out = target.with_done(left_out, done)
        with target.build_context(opt_level, left_out, {**(lowering or {}), **config}, instruments, tuning_log):
            return _loadable(relay.build(optimised, target=build_for))

    return _around_faults(module, target.disabled_passes(disabled_passes), attempt)


def _loadable(built):
    """A factory whose file can be loaded: TVM writes an array without elements, but reads it only where its first
    dimension is 0. The executor gives each its shape by itself; it takes the (no) bytes of another as well.
    """
    params = built.get_params()
    empty = [name for name, array in params.items() if 0 in array.shape[1:]]
    if not empty:
        return built
    if _has_constant_loader(built.lib):
        shapes = ", ".join(str(tuple(params[name].shape)) for name in empty)
        raise errors.InputError(
            f"the module has constants without elements, of shape {shapes}, and regions with constants: TVM keeps all "
            "of them for the regions, and cannot load these. Take them out of the module, or leave it to plain TVM"
        )
    params = {**params, **{name: tvm.nd.empty((0,), params[name].dtype) for name in empty}}
    return executor_factory.GraphExecutorFactoryModule(
        built.ir_mod, built.target, built.executor, built.graph_json, built.lib, built.libmod_name, params,
        built.function_metadata,
    )  # fmt: skip


def _has_constant_loader(module):
    return module.type_key == "const_loader" or any(map(_has_constant_loader, module.imported_modules))


def _around_faults(module, left_out, attempt):
    """What ``attempt(module, left_out, config)`` builds without the passes ``left_out``: tried again without what TVM's
    passes are known to fail with.
    """
    config, apart, reshaped, products_apart, cuts_apart = {}, False, False, False, False
    while True:
        try:
            return attempt(module, left_out, config)
        except RuntimeError as error:  # TVMError, or one of TVM's Python functions
            if common_subexpressions.refused(error) and "tir.disable_cse_tir" not in config:
                config = {**config, "tir.disable_cse_tir": True}
            elif _NO_WORKLOAD in str(error) and "SimplifyExpr" in left_out:
                left_out = [name for name in left_out if name != "SimplifyExpr"]
            elif _NOT_COMPACT in str(error) and not apart:
                module, apart = _joined_apart(module), True
            elif _NOBODYS_SIZE in str(error) and "relay.FuseOps.max_depth" not in config:
                if open_slices.SIZE in str(error) and not cuts_apart:
                    module, cuts_apart = _cuts_apart(module), True
                elif products_apart:
                    config = {**config, "relay.FuseOps.max_depth": 1}
                else:
                    module, products_apart = own_functions.changed(module, _ProductsApart().visit), True
            elif _NO_LAYOUT in str(error) and not reshaped:
                module, reshaped = _squeezes_reshaped(module), True
            else:
                raise


class _SqueezesReshaped(relay.ExprMutator):
    def visit_call(self, call):
        new = super().visit_call(call)
        if call.op != tvm.ir.Op.get("squeeze"):
            return new
        sizes = [size if isinstance(size, tvm.tir.IntImm) else -1 for size in call.checked_type.shape]
        if sizes.count(-1) > 1:
            return new
        return relay.reshape(new.args[0], [int(size) for size in sizes])


def _squeezes_reshaped(module):
    """The module with reshapes in the place of its own squeezes. Behind a convolution of one channel TVM takes a
    squeeze to leave the parts of a channel in the layout when there are no channels any more.
    """
    return own_functions.changed(relay.transform.InferType()(module), _SqueezesReshaped().visit)


class _ProductsApart(relay.ExprMutator):
    """What is behind a product of matrices is made by kernels of its own."""

    def visit_call(self, call):
        new = super().visit_call(call)
        if isinstance(call.op, tvm.ir.Op) and call.op.name in ("nn.batch_matmul", "nn.dense", "nn.matmul"):
            return relay.annotation.stop_fusion(new)
        return new


class _CutsApart(relay.ExprMutator):
    def visit_call(self, call):
        new = super().visit_call(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name not in ("strided_slice", "dyn.strided_slice"):
            return new
        is_open = any(not isinstance(size, tvm.tir.IntImm) for size in call.checked_type.shape)
        return relay.annotation.stop_fusion(new) if is_open else new


def _cuts_apart(module):
    """The module with kernels of their own behind slices along open dimensions: of some of these the size is not known
    to what is computed of it (open_slices).
    """
    return own_functions.changed(relay.transform.InferType()(module), _CutsApart().visit)


class _JoinedApart(relay.ExprMutator):
    def visit_call(self, call):
        new = super().visit_call(call)
        if call.op != tvm.ir.Op.get("concatenate") or not isinstance(new.args[0], relay.Tuple):
            return new
        fields = [
            relay.annotation.stop_fusion(field) if isinstance(field, relay.Call) else field for field in new.args[0]
        ]
        return relay.Call(new.op, [relay.Tuple(fields)], new.attrs, new.type_args, new.span)


def _joined_apart(module):
    """The module with what its own concatenations join made by kernels of their own."""
    return own_functions.changed(module, _JoinedApart().visit)


# TVM knows no way to give the results of an If a layout, and fails where they have one.
_NOT_WITH_BRANCHES = "AlterOpLayout"


def build_for_machine(module, build_target=None, opt_level=None, disabled_passes=None, tuning_log=None, tried=None):
    """relay.vm.compile with the project's settings, for what the graph executor does not take; returns a
    virtual_machine.Executable. ``tried`` is virtual_machine.signature's.
    """
    shape_functions.register()
    build_for = tvm.target.Target(target.resolve(build_target))
    left_out = target.disabled_passes(disabled_passes)
    if relay.analysis.Feature.fIf in relay.analysis.detect_feature(module):
        left_out = [*left_out, _NOT_WITH_BRANCHES]

    def attempt(module, left_out, config):
        with target.build_context(opt_level, left_out, config, tuning_log=tuning_log):
            optimised, done = optimise(module, build_for, on_machine=True)
        with (
            target.build_context(
                opt_level, target.with_done(left_out, done), config, [pass_instruments.FoldedInGo()], tuning_log
            ),
            quiet.without_notes(),
        ):
            return relay.vm.compile(optimised, build_for)

    with open_images.schedules():
        executable = _around_faults(open_images.plain(module), left_out, attempt)
    return virtual_machine.Executable(executable, relay.transform.InferType()(module), build_for, tried)


def runnable(module, build_target=None, opt_level=None, tried=None):
    """A typed module, built and ready to be run in this process: on TVM's graph executor, or on its virtual machine."""
    library.load()
    if not tvm.get_global_func("collage.whole")(module):
        return graph_executor.GraphModule(build(module, build_target, opt_level)["default"](tvm.cpu()))
    executable = build_for_machine(module, build_target, opt_level, tried=tried)
    return virtual_machine.Model(executable.module, executable.signature)


# Passes that relay.build does well to run again, or that its code generators run, too.
_RUN_AGAIN = {"RemoveUnusedFunctions", "ToBasicBlockNormalForm", "InferType", "FoldConstant", "sequential"}


def optimise(module, build_for, on_machine=False):
    """What relay.build does first, up to the layouts of kernels, with constants folded in Go: TVM would compile a
    kernel for each weight that is laid out anew. Gives the module and the names of the passes that need not run again.
    ``on_machine`` is for TVM's virtual machine, which has passes of its own.
    """
    raw_target = tvm.target.Target.canon_target_and_host(build_for)[0]
    if raw_target.kind.name == "llvm":
        module = one_dimension.as_two(module, raw_target)
    prefix = tvm.get_global_func("relay.backend.GetPassPrefixSeq", allow_missing=True)
    if prefix is None:
        return module, []
    library.load()
    passes, done = [], []
    fold = tvm.get_global_func("collage.transform.FoldConstant")()
    for one in prefix(True, on_machine).passes:
        name = one.info.name
        passes += [fold, one] if name == "FoldConstant" else [one]
        done += [name] if name not in _RUN_AGAIN else []
    schedules = contextlib.nullcontext()
    if isinstance(autotvm.DispatchContext.current, autotvm.FallbackContext):
        schedules = autotvm.tophub.context([raw_target])  # as relay.build does
    with raw_target, schedules:
        return tvm.transform.Sequential(passes)(module), done


def attach_needs(factory, needed):
    """Make TVM's loader refuse the exported library where what is ``needed`` is not there."""
    create = tvm.get_global_func("collage.runtime.NeedsModuleCreate")
    factory.get_lib().import_module(create(needed.text()))


def attach_threads(factory, threads):
    """Make the exported library run TVM's loops on oneTBB with ``threads`` threads (0: as many as there are
    cores).

    Needs the runtime plug-in in this process. Returns whether it was attached.
    """
    create = tvm.get_global_func("collage.runtime.ThreadsModuleCreate", allow_missing=True)
    if create is None:
        return False
    factory.get_lib().import_module(create(threads))
    return True


def link_options(plugins, rpath=False):
    """Linker options that make an exported library name ``plugins``: by their names, so that the loader takes those
    that are in the process already, that LD_LIBRARY_PATH or the system has, or that lie beside the library; with
    ``rpath``, those in the folders that they are in here, last of all.
    """
    if not plugins:
        return []
    # The plug-in's symbols are found through TVM's registry, not by the linker: it must not be dropped as
    # unneeded. The linker looks itself for what a plug-in needs; the loader does that again where the model runs.
    options = ["-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", "-Wl,-rpath,$ORIGIN"]
    for plugin in map(os.path.realpath, plugins):
        options += [f"-L{os.path.dirname(plugin)}", f"-l:{os.path.basename(plugin)}"]
        if rpath:
            options.append(f"-Wl,-rpath,{os.path.dirname(plugin)}")
    return options


def link(exportable, path, plugins=(), needed=None, notes=(), rpath=False):
    """Write ``exportable`` (a factory or a runtime module) as the shared library ``path``, with a note of what is
    ``needed`` (needs.Needs) in it; ``notes`` are further assembler sources, and ``rpath`` is link_options'.
    """
    with tempfile.TemporaryDirectory(prefix="collage-link-") as folder:
        options = link_options(plugins, rpath)
        for number, source in enumerate([needed.note(), *notes] if needed is not None else notes):
            note = Path(folder) / f"note{number}.s"
            note.write_text(source)
            options.append(str(note))
        if needed is not None and not plugins:
            options += needed.loader_options()
        library_module = exportable if isinstance(exportable, tvm.runtime.Module) else exportable.get_lib()
        with c_sources.failures(library_module):
            exportable.export_library(str(path), options=options, fpack_imports=packed.imports)


def link_sources(module, plugins=()):
    """Compile the C sources among what a built ``module`` imports, so that it runs in this process.

    Their places are taken by the compiled libraries, which cannot be exported any more.
    """
    imported = list(module.imported_modules)
    for each in imported:
        link_sources(each, plugins)
    if not any(each.type_key == "c" for each in imported):
        return
    module.clear_imports()
    for each in imported:
        module.import_module(_compiled(each, plugins) if each.type_key == "c" else each)


def _compiled(source, plugins):
    """A module of C source as a library in this process."""
    with tempfile.TemporaryDirectory(prefix="collage-link-") as folder:
        path = Path(folder) / "source.so"
        with c_sources.failures(source):
            source.export_library(str(path), options=link_options(plugins))
        return tvm.runtime.load_module(str(path))  # stays mapped when the file is gone


def _parameter_bytes(factory):
    total = 0
    for array in factory.get_params().values():
        size = array.numpy().nbytes
        total += size
    return total


def _require_space(folder, needed, what):
    """Refuse where intermediate files cannot be written: LLVM ends the process when one cannot."""
    free = shutil.disk_usage(folder).free
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ExportError(
            errno.EFBIG,
            f"{what} needs files of up to about {needed >> 20} MiB, but the limit of file sizes is "
            f"{limit >> 10} KiB (ulimit -f)",
            file=folder,
        )
    if free < needed:
        raise ExportError(
            errno.ENOSPC,
            f"no space left on device: {what} needs about {needed >> 20} MiB in {folder}, {free >> 20} MiB are free",
            file=folder,
        )


def _is_full(error):
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    return any(text in str(error) for text in ("No space left", "Disk quota", "File too large", "File size limit"))


def _pack(factory, library_file, archive):
    """Write the package that tvmc calls "classic", or the virtual machine's: the same bytes for the same input."""
    if isinstance(factory, virtual_machine.Executable):
        with tarfile.open(archive, "w") as tar:
            tar.add(library_file, virtual_machine.MEMBER, filter=_plain_entry)
        return
    graph = factory.get_graph_json().encode()
    with tarfile.open(archive, "w", copybufsize=1 << 20) as tar:
        tar.add(library_file, "mod.so", filter=_plain_entry)
        for name, (content, size) in (
            ("mod.json", (io.BytesIO(graph), len(graph))),
            ("mod.params", parameters.opened(factory.get_params())),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = size
            tar.addfile(_plain_entry(entry), content)


def _plain_entry(entry):
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def write(factory, path, plugins=(), threads=0, lasting=True, rpath=False):
    """Write a built model, a factory of TVM's or a virtual_machine.Executable, to ``path`` (.so or .tar), linked with
    ``plugins``; returns the size in bytes.

    Intermediate files stand in the temporary directory; the finished one is written beside ``path`` and renamed. On
    any error nothing is left behind, and what stood at ``path`` before stands there still. One that is ``lasting`` is
    on the disk when it has its name; what a search builds and runs need not be. With
    ``rpath`` the file says in which folders the plug-ins are here: plain TVM then finds them on this machine.
    """
    path = Path(path)
    check_output(path)
    if not isinstance(factory, virtual_machine.Executable):
        factory = _loadable(factory)  # tvmc builds by itself
    for plugin in plugins:
        library.load_plugin(plugin)
    needed = needs.of(factory, plugins)
    # A file that asks for these modules and is not linked with the plug-in that has them would not load, and the
    # plug-in may be in this process for another model's sake.
    if str(library.plugin_path("runtime")) in map(str, plugins):
        attach_needs(factory, needed)
        attach_threads(factory, threads)

    parameters = _parameter_bytes(factory)
    _require_space(tempfile.gettempdir(), 2 * parameters + _CODE_BYTES, "compiling")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with tempfile.TemporaryDirectory(prefix="collage-export-") as folder:
            made = Path(folder) / "mod.so" if path.suffix == ".tar" else partial
            on_machine = isinstance(factory, virtual_machine.Executable)
            notes = [factory.note()] if on_machine else []
            if path.suffix == ".tar":
                link(factory if on_machine else factory.get_lib(), made, plugins, needed, notes, rpath)
                _pack(factory, made, partial)
            else:
                link(factory, made, plugins, needed, notes, rpath)
            size = partial.stat().st_size
            if lasting:
                with open(partial, "rb+") as written:
                    os.fsync(written.fileno())
        os.chmod(partial, 0o755 if path.suffix == ".so" else 0o644)
        os.replace(partial, path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if _is_full(error):
            raise ExportError(errno.ENOSPC, f"no space left on device while writing {path}", file=path) from error
        if isinstance(error, OSError):
            raise ExportError(error.errno, f"cannot write {path}: {error.strerror or error}", file=path) from error
        raise
    return size
