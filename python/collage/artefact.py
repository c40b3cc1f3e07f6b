# SPDX-License-Identifier: Apache-2.0
"""Regions that are built and can be run: on TVM, or on another backend.

In: "measure" requests. Out: artefacts, which give outputs and seconds. A region of another backend whose code
generator gives a runtime module is run as that module, without TVM's compiler around it: what calls it in an
exported model is a function call, too. All other code goes through relay.build and a linked library, as in an
exported model.
"""

import os
import tempfile
import time
from collections import OrderedDict

import numpy as np
import tvm

from . import export, library, target
from .region import (
    Region,
    RegionError,
    identity,
    in_phase,
    in_short,
    kind_of,
    load_executor,
    outputs_of,
    plugins_for,
    spoil,
    spoil_outputs,
)

# What is kept of regions that were built: so much of the machine's memory; and bytes of plain TVM's answers.
_KEPT_SHARE = 0.1
_REFERENCE_BYTES = 256 << 20


class Artefact:
    """A region that can be run. ``number`` is for whoever times it: how many runs make a sample; ``grown`` is
    by how many bytes the process grew while it was timed.
    """

    def __init__(self, held):
        self.held = held
        self.number = None
        self.grown = 0


class OnGraphExecutor(Artefact):
    """A region in a graph executor; ``names`` are its inputs, in the order of ``values``."""

    def __init__(self, executor, names, values, held=0):
        super().__init__(held + sum(value.nbytes for value in values))
        self._executor = executor
        for name, value in zip(names, values, strict=True):
            executor.set_input(name, value)

    def outputs(self):
        """The outputs for the inputs that belong to the region's key."""
        spoil_outputs(self._executor)
        self._executor.run()
        return outputs_of(self._executor)

    def seconds(self, number, repeat):
        """``repeat`` times the mean seconds of ``number`` runs, after one run that is not timed."""
        timer = self._executor.module.time_evaluator("run", tvm.cpu(), number=number, repeat=repeat)
        return timer().results


class OnModule(Artefact):
    """A region in a runtime module, as the function ``symbol`` that takes inputs and outputs."""

    def __init__(self, module, symbol, values, types):
        self._module, self._symbol = module, symbol
        self._inputs = [tvm.nd.array(value) for value in values]
        self._outputs = [tvm.nd.empty(shape, dtype) for shape, dtype in types]
        super().__init__(2 * sum(array.numpy().nbytes for array in self._inputs + self._outputs))
        self._run = module.get_function(symbol, query_imports=True)

    def outputs(self):
        for output in self._outputs:
            spoil(output)
        self._run(*self._inputs, *self._outputs)
        return [output.numpy() for output in self._outputs]

    def seconds(self, number, repeat):
        timer = self._module.time_evaluator(self._symbol, tvm.cpu(), number=number, repeat=repeat)
        return timer(*self._inputs, *self._outputs).results


class OnDevice(OnModule):
    """A region that runs on another device. Its seconds are those of its kernels: what copies take counts where
    regions meet, and calls are waited for together, as the kernels of one larger region are.
    """

    def __init__(self, module, symbol, values, types, device):
        super().__init__(module, symbol, values, types)
        self._leave_out, self._wait = (
            tvm.get_global_func(f"collage.runtime.{device}.{name}") for name in ("LeaveOutCopies", "Wait")
        )

    def seconds(self, number, repeat):
        arguments = (*self._inputs, *self._outputs)
        self._run(*arguments)  # its inputs are there now
        self._leave_out(True)
        try:
            return [self._mean(number, arguments) for _ in range(repeat)]
        finally:
            self._leave_out(False)

    def _mean(self, number, arguments):
        self._wait()
        started = time.perf_counter()
        for _ in range(number):
            self._run(*arguments)
        self._wait()
        return (time.perf_counter() - started) / number


def _results(kind):
    """[(shape, dtype)] of a result, tuples taken apart."""
    if isinstance(kind, tvm.relay.TupleType):
        return [result for field in kind.fields for result in _results(field)]
    return [(tuple(int(dim) for dim in kind.shape), kind.dtype)]


def use_threads(threads):
    """What runs from now on runs on so many threads; 0 for as many as there are cores."""
    if set_threads := tvm.get_global_func("collage.runtime.SetNumThreads", allow_missing=True):
        set_threads(threads)
    elif threads:
        # Without the plug-in TVM's own pool runs the loops; 1 is its mode "prefer the big cores".
        tvm.get_global_func("runtime.config_threadpool")(1, threads)


def _function(module, name):
    try:
        return module.get_function(name)
    except AttributeError:
        return None


def _with_constants(module, function, symbol, compiler):
    """Give a module the constants that it asks for, as TVM's ConstLoaderModule would; says whether it has
    them.
    """
    ask, prepare = _function(module, "get_const_vars"), _function(module, f"__init_{symbol}")
    if ask is None or _function(module, "get_symbol") is None:
        return True
    names = [str(name) for name in ask()]
    update = tvm.get_global_func(f"relay.ext.{compiler}.constant_updater", allow_missing=True)
    if prepare is None or (names and update is None):
        return False
    values = {str(name): value for name, value in update(function, symbol).items()} if names else {}
    if not set(names) <= values.keys():
        return False
    prepare([values[name] for name in names])
    return True


def _on_module(region, compiler, settings):
    """The region as its backend's runtime module, or None where it must be compiled and linked."""
    generate = tvm.get_global_func(f"relay.ext.{compiler}", allow_missing=True)
    if generate is None:
        return None
    function = region.external(compiler)
    symbol = str(function.attrs["global_symbol"])
    function = region.module(compiler)[symbol]
    build_for, level, disabled = settings
    with tvm.target.Target(build_for or target.default_target()), target.build_context(level, disabled):
        module = generate(function)
    if not isinstance(module, tvm.runtime.Module) or not module.is_runnable:
        return None
    if module._collect_from_import_tree(lambda each: each.is_dso_exportable):
        return None
    if not _with_constants(module, function, symbol, compiler):
        return None
    arguments = module, symbol, region.values(), _results(function.ret_type)
    device = compiler.removeprefix("collage_")
    if tvm.get_global_func(f"collage.runtime.{device}.LeaveOutCopies", allow_missing=True):
        return lambda: OnDevice(*arguments, device)
    return lambda: OnModule(*arguments)


def _linked(region, compiler, settings, threads):
    """The region built by TVM and linked; gives the function that loads it."""
    factory = export.build(region.module(compiler), *settings)
    export.attach_threads(factory, threads)
    handle, path = tempfile.mkstemp(prefix="collage-region-", suffix=".so")
    os.close(handle)
    try:
        export.link(factory, path, plugins_for(compiler))
    except BaseException:
        os.unlink(path)
        raise

    def load():
        try:
            # main's parameters are the first of the graph's inputs, in order.
            executor = in_phase("load", load_executor, path)
        finally:
            # What is loaded stays loaded; a worker that is killed later leaves nothing behind.
            os.unlink(path)
        return OnGraphExecutor(executor, range(len(region.inputs)), region.values())

    return load


def build(request, compiler):
    """Build a request's region; gives the function that makes the Artefact."""
    settings = (request.get("target") or None, request.get("opt_level"), request.get("disabled_passes"))
    threads = int(request.get("threads") or 0)
    try:
        function = tvm.ir.load_json(request["function"])
        region = Region(function, request.get("constants") or [], request.get("key") or "")
        for plugin in plugins_for(compiler):
            library.load_plugin(plugin)
        use_threads(threads)
        made = _on_module(region, compiler, settings) if compiler else None
        return made or _linked(region, compiler, settings, threads)
    except (RegionError, MemoryError):
        raise
    except Exception as error:
        raise RegionError("build", kind_of(error), in_short(error)) from error


class Artefacts:
    """Regions that were built, and plain TVM's answers by key, so that nothing is built twice in a row.

    The oldest go first where they hold too much memory.
    """

    def __init__(self, most_bytes=None, reference_bytes=_REFERENCE_BYTES):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._most = most_bytes or max(256 << 20, int(_KEPT_SHARE * memory))
        self._made = OrderedDict()
        self._ready = {}  # regions that another process has built: identity -> batch.Built
        self._outputs = OrderedDict()
        self._limit = reference_bytes
        self._bytes = 0

    def add(self, built):
        """Take the regions of a batch; each becomes an artefact when it is asked for."""
        self._ready.update({each.identity: each for each in built})

    def get(self, request, compiler, built=None):
        """The region of a request as an Artefact; builds it where it is not kept. ``built`` gets the
        seconds.
        """
        which = identity(request, compiler)
        started = time.perf_counter()
        if which in self._made:
            self._made.move_to_end(which)
            make = None
        elif which in self._ready:
            make = self._adopt(request, self._ready.pop(which))
        else:
            make = build(request, compiler)
        if built:
            built(time.perf_counter() - started)
        if make:
            self._made[which] = in_phase("load", make)
            self._shrink()
        return self._made[which]

    @staticmethod
    def _adopt(request, ready):
        def make():
            use_threads(int(request.get("threads") or 0))
            executor, inputs, held = ready.executor()
            return OnGraphExecutor(executor, inputs.keys(), inputs.values(), held)

        return make

    def _shrink(self):
        held = sum(artefact.held for artefact in self._made.values())
        while held > self._most and len(self._made) > 1:
            held -= self._made.popitem(last=False)[1].held

    def drop(self, request, compiler):
        """Forget a region that did harm."""
        self._made.pop(identity(request, compiler), None)

    @staticmethod
    def _asked(request):
        """What plain TVM's answer depends on: where a candidate keeps its own constants (a mask), they are not the
        random ones that others of the same key are given.
        """
        constants = [each["name"] for each in request.get("constants") or []]
        return request.get("key") or "", request.get("target") or "", *constants

    def remember(self, request, outputs):
        """Keep plain TVM's answer for a request's key."""
        key = self._asked(request)
        if key in self._outputs or not key[0]:
            return
        self._outputs[key] = [np.array(output) for output in outputs]
        self._bytes += sum(output.nbytes for output in outputs)
        while self._bytes > self._limit and len(self._outputs) > 1:
            self._bytes -= sum(output.nbytes for output in self._outputs.popitem(last=False)[1])

    def reference(self, request):
        """The outputs of a request's region under plain TVM."""
        key = self._asked(request)
        if key in self._outputs:
            self._outputs.move_to_end(key)
            return self._outputs[key]
        outputs = self.get(request, "").outputs()
        self.remember(request, outputs)
        return outputs
