# SPDX-License-Identifier: Apache-2.0
"""Several placed programs in one build: placed as they are, and by plain TVM; and the comparison of what they
give."""

import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from .placing import Broken

# Plain TVM without LLVM's optimisations, and with few of TVM's: what it computes is the same, and the half
# of the time goes. Hybrids are built so, too, unless they are built as users get them.
QUICK = {"build_target": "llvm -opt-level=0", "opt_level": 2}

# The greatest relative change of the inputs in the last look at what seems wrong.
PERTURBATION = 2.0**-21

# What float32 may differ by in the last look, whatever TVM's own results do: engines' functions are exact to some of
# one's last digits, also where they give less. ONNX Runtime's sigmoid is to 4e-8 where it gives 2.5e-6 (seed 3580),
# OpenVINO's logarithm of one is -1.4e-6 (seed 7216). Such programs are counted with those that are badly conditioned.
DIGITS_OF_ONE = 2.0**-19


class _Renamed(relay.ExprMutator):
    """An expression with other names for the global functions."""

    def __init__(self, names):
        super().__init__()
        self.names = names

    def visit_global_var(self, var):
        return self.names.get(var.name_hint, var)


def together(modules):
    """One module that does what all of them do: (module, number of results of each)."""
    functions, params, fields, counts = {}, [], [], []
    for i, module in enumerate(modules):
        names = {
            var.name_hint: relay.GlobalVar(f"p{i}_{var.name_hint}")
            for var in module.get_global_vars()
            if var.name_hint != "main"
        }
        for var, function in module.functions.items():
            if var.name_hint == "main":
                continue
            symbol = names[var.name_hint]
            if function.attrs and "global_symbol" in function.attrs:
                function = function.with_attr("global_symbol", tvm.runtime.String(symbol.name_hint))
            functions[symbol] = function
        main = module["main"]
        fresh = [relay.var(f"p{i}_{v.name_hint}", v.type_annotation) for v in main.params]
        body = relay.bind(_Renamed(names).visit(main.body), dict(zip(main.params, fresh, strict=True)))
        params += fresh
        if isinstance(main.ret_type, relay.TupleType):
            count = len(main.ret_type.fields)
            own = (
                list(body.fields)
                if isinstance(body, relay.Tuple)
                else [relay.TupleGetItem(body, k) for k in range(count)]
            )
        else:
            own = [body]
        fields += own
        counts.append(len(own))
    functions["main"] = relay.Function(params, relay.Tuple(fields))
    made = tvm.IRModule({var if var != "main" else relay.GlobalVar("main"): f for var, f in functions.items()})
    return relay.transform.InferType()(made), counts


def quick(module):
    """What export.build makes of a module, by QUICK, and without the pass that LLVM refuses the results of in nearly
    each mixture of programs: export.build would find that out, and build twice.
    """
    from collage import export, target

    config = {"tir.disable_cse_tir": True}
    build_for = tvm.target.Target(target.resolve(QUICK["build_target"]))
    left_out = target.disabled_passes(None)
    try:
        with target.build_context(QUICK["opt_level"], left_out, config):
            optimised, done = export.optimise(module, build_for)
        with target.build_context(QUICK["opt_level"], target.with_done(left_out, done), config):
            return relay.build(optimised, target=build_for)
    except RuntimeError:  # the others that export.build knows a way around
        return export.build(module, **QUICK)


def execute(modules, inputs, times=1, full=False):
    """Build modules together and run them; inputs is a list of lists of arrays. full: as users get them,
    through a file. Gives the outputs of each module, and a function that runs it again.
    """
    from collage import export

    module, counts = together(modules)
    built = export.build(module) if full else quick(module)
    executor = through_a_file(module, built) if full else graph_executor.GraphModule(built["default"](tvm.cpu()))

    def once(given):
        for index, value in enumerate(array for arrays in given for array in arrays):
            executor.set_input(index, value)
        executor.run()
        outputs = [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
        ends = np.cumsum(counts)
        return [outputs[end - count : end] for end, count in zip(ends, counts, strict=True)]

    return [once(inputs) for _ in range(times)][-1], once


def through_a_file(module, built):
    """The executor of a model that was written and loaded."""
    import placed
    from collage import api, export, region

    plugins = dict.fromkeys(
        plugin for compiler in ("", *api.compilers(module)) for plugin in region.plugins_for(compiler)
    )
    with tempfile.TemporaryDirectory(prefix="random-programs-") as folder:
        path = Path(folder) / "model.so"
        export.write(built, path, list(plugins), placed.THREADS)
        return region.load_executor(path)


def by_machine(module, inputs):
    """Outputs under TVM's virtual machine, which knows scopes."""
    from collage import target

    # What export.build leaves out where LLVM refuses TVM's debug information.
    with target.build_context(QUICK["opt_level"], config={"tir.disable_cse_tir": True}):
        run = relay.create_executor("vm", module, tvm.cpu(), QUICK["build_target"]).evaluate()
    outputs = run(*[tvm.nd.array(array) for array in inputs])
    fields = [outputs] if isinstance(outputs, tvm.nd.NDArray) else list(outputs)
    return [field.numpy() for field in fields]


def limits(dtype):
    """(share of the element, share of the greatest element) that an element may differ by."""
    return {"float16": (2e-2, 1e-2), "float32": (1e-4, 2e-5), "float64": (1e-4, 2e-5)}.get(str(dtype), (0.0, 0.0))


def excess(got, wanted, slack=None):
    """What is wrong with a program's outputs; "" for nothing. slack: arrays that elements may differ by
    besides."""
    if len(got) != len(wanted):
        return f"{len(got)} results instead of {len(wanted)}"
    for number, (one, other) in enumerate(zip(got, wanted, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"result {number} is {one.dtype}{one.shape} and not {other.dtype}{other.shape}"
        if not one.size:
            continue
        if not np.isfinite(other.astype("float64")).all():
            return f"result {number} of plain TVM is not finite: the generator must not make such programs"
        a, b = one.astype("float64"), other.astype("float64")
        rtol, share = limits(one.dtype)
        allowed = rtol * np.abs(b) + share * np.abs(b).max()
        if slack is not None:
            allowed = allowed + slack[number]
        wrong = ~(np.abs(a - b) <= allowed)
        if wrong.any():
            place = np.unravel_index(int(np.argmax(np.where(wrong, np.abs(a - b), -1.0))), a.shape)
            return (
                f"result {number} differs in {int(wrong.sum())} of {a.size} elements, at "
                f"{[int(i) for i in place]} it is {one[place]} instead of {other[place]}"
            )
    return ""


def perturbed(inputs, seed):
    """The inputs with other last digits."""
    random = np.random.default_rng([17, seed])
    return [
        (x * (1 + PERTURBATION * random.choice((-1.0, 1.0), x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x
        for x in inputs
    ]


class _Nudged(relay.ExprMutator):
    """A program in which what comes back from bytes has other last digits, of the greatest magnitude that it may have:
    (steps - zero) * scale by a multiplication and an addition in one, as OpenVINO computes it, is -2e-9 for 0 (seed
    7473), and what jumps there moves.
    """

    def __init__(self, share):
        super().__init__()
        self.share = share

    def visit_call(self, call):
        new = super().visit_call(call)
        if call.op != tvm.ir.Op.get("qnn.dequantize"):
            return new
        scale = call.args[1]
        greatest = np.abs(scale.data.numpy()).max() if isinstance(scale, relay.Constant) else 1.0
        return new + relay.const(np.float32(self.share * 256 * greatest))


def nudged(module, share):
    """A module of which all functions are so."""
    functions = {var: _Nudged(share).visit(function) for var, function in module.functions.items()}
    return relay.transform.InferType()(tvm.IRModule(functions))


def widened(slack, other, wanted):
    """What elements may differ by, where they have been seen to move from ``wanted`` to ``other``."""
    return [
        np.maximum(s, np.abs(x.astype("float64") - y.astype("float64")))
        for s, x, y in zip(slack, other, wanted, strict=True)
    ]


class Wrong(Broken):
    """A hybrid gives something else than plain TVM."""

    def __init__(self, placed, what):
        self.placed = placed
        super().__init__(f"seed {placed.program.seed}, {placed.setting}: {what}")


def compare(batch, full=False):
    """Run placed programs and plain TVM's; raises Wrong for the first that differs. Gives the seeds of those so
    badly conditioned that plain TVM's own results move as far when the inputs' last digits do, and of those that
    plain TVM built as users get it computes wrongly, too.
    """
    inputs = [p.program.inputs for p in batch]
    plain, hybrid = [p.plain for p in batch], [p.hybrid for p in batch]
    if full:
        wanted, again = execute(plain, inputs)
        try:
            got, _ = execute(hybrid, inputs, times=2, full=True)
        except ValueError as error:
            if "constants without elements" not in str(error):
                raise
            # What is refused because no file of it could be loaded (seed 3669).
            got, _ = execute(hybrid, inputs, times=2)
    else:
        # In one build, which lowers once what TVM computes in both.
        outputs, again = execute(plain + hybrid, inputs + inputs, times=2)
        wanted, got = outputs[: len(batch)], outputs[len(batch) :]
    moved, wrong_in_tvm = [], []
    for i, p in enumerate(batch):
        what = excess(got[i], wanted[i])
        if not what:
            continue
        if "instead of" not in what or "results instead" in what:
            raise Wrong(p, what)
        slack = [np.zeros(x.shape) for x in wanted[i]]
        for k in range(4):
            moved_inputs = [perturbed(x, k) for x in inputs]
            slack = widened(slack, again(moved_inputs if full else moved_inputs + moved_inputs)[i], wanted[i])
        for share in (PERTURBATION, -PERTURBATION):
            other, _ = execute([nudged(p.plain, share)], [p.program.inputs])
            slack = widened(slack, other[0], wanted[i])
        # The greatest of a result's: which of its elements moves depends on the draw.
        slack = [
            max(4 * s.max(initial=0.0), DIGITS_OF_ONE if x.dtype == "float32" else 0.0)
            for s, x in zip(slack, wanted[i], strict=True)
        ]
        if what := excess(got[i], wanted[i], slack):
            if full and excess(execute([p.plain], [p.program.inputs], full=True)[0][0], wanted[i], slack):
                # TVM's own: what users get of plain TVM is wrong, too. Seen where LLVM makes vectors of 512 bits of
                # TVM's kernel for a product over one or two elements whose weights are shared by the batch (seed 1470).
                wrong_in_tvm.append(p.program.seed)
                continue
            raise Wrong(p, what)
        moved.append(p.program.seed)
    return moved, wrong_in_tvm


def tvm_alone(batch):
    """Whether plain TVM can build and run the programs of a batch together."""
    try:
        execute([p.plain for p in batch], [p.program.inputs for p in batch])
    except tvm.TVMError:
        return False
    return True


def compare_scoped(p):
    """The same for a program with scopes."""
    if what := excess(by_machine(p.hybrid, p.program.inputs), by_machine(p.plain, p.program.inputs)):
        raise Wrong(p, what)
