# SPDX-License-Identifier: Apache-2.0
"""How long it takes to partition a network, beside TVM's own PartitionGraph.

Both begin with the same module and end with the same regions. Ours reads the module, proposes, places (all
that oneDNN can take goes there, so that nothing is measured) and annotates. TVM's gets its work half done: a
module in which the composites are made and the regions are marked already, and has only to cut them out.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import collage
import tvm
from collage import frontends, transform
from tvm import relay
from tvm.relay import testing
from tvm.relay.op.annotation import compiler_begin, compiler_end


class Region(relay.ExprMutator):
    """Writes a region's body with annotations at all that enters it."""

    def __init__(self, compiler, arguments):
        super().__init__()
        self.compiler = compiler
        self.arguments = arguments

    def visit_var(self, var):
        """A parameter is the argument, marked."""
        return compiler_begin(self.arguments[var], self.compiler)

    def visit_constant(self, constant):
        """AnnotateTarget marks constants, too."""
        return compiler_begin(constant, self.compiler)

    def visit_function(self, function):
        """A composite stays whole."""
        return function


class Annotate(relay.ExprMutator):
    """Puts each region back in its place, between the annotations from which PartitionGraph would cut it."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def visit_call(self, call):
        """A call of a region's function becomes the function's body, marked."""
        if not isinstance(call.op, relay.GlobalVar):
            return super().visit_call(call)
        function = self.module[call.op]
        compiler = str(function.attrs["Compiler"])
        arguments = {
            parameter: self.visit(argument) for parameter, argument in zip(function.params, call.args, strict=True)
        }
        return compiler_end(Region(compiler, arguments).visit(function.body), compiler)


def regions(module):
    """How many functions for another compiler a module has."""
    return sum("Compiler" in (function.attrs or {}) for function in module.functions.values())


def milliseconds(work, rounds):
    """Median and least of some rounds."""
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        samples.append((time.perf_counter() - start) * 1e3)
    return statistics.median(samples), min(samples)


def main():
    """Print one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload",
        default="resnet50",
        help="resnet50 (TVM's own, the default), one of collage's workloads, or a model file",
    )
    parser.add_argument("--rounds", type=int, default=10, help="of ours; TVM's takes seconds and is run twice")
    options = parser.parse_args()

    if options.workload == "resnet50":
        module, params = testing.resnet.get_workload(num_layers=50)
        module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
        module = relay.transform.InferType()(module)
    else:
        is_file = os.path.exists(options.workload)
        module = frontends.load(options.workload if is_file else f"workload:{options.workload}").module
    module = transform.Normalise()(module)
    ours = transform.CollagePartition(backends=["tvm", "dnnl_tvm"], only="dnnl_tvm")
    partitioned = ours(module)

    marked = tvm.IRModule.from_expr(Annotate(partitioned).visit(partitioned["main"]))
    marked = relay.transform.InferType()(marked)
    theirs = relay.transform.PartitionGraph()
    again = theirs(marked)

    print(f"{options.workload}: {regions(partitioned)} regions for oneDNN")
    steps = []

    def partition():
        ours(module)
        steps.append(json.loads(tvm.get_global_func("collage.last_timings")()))

    print(f"{'':32}{'regions':>9}{'rounds':>8}{'median ms':>11}{'least ms':>10}")
    for name, work, count, rounds in (
        ("CollagePartition", partition, regions(partitioned), options.rounds),
        ("PartitionGraph, regions given", lambda: theirs(marked), regions(again), 2),
    ):
        median, least = milliseconds(work, rounds)
        print(f"{name:32}{count:9}{rounds:8}{median:11.1f}{least:10.1f}", flush=True)
    print("\nsteps of CollagePartition (median ms; TVM's type inference and hash are apart)")
    for step in steps[0]:
        name = step.removesuffix("_ms").replace("_", " ")
        print(f"  {name:30}{statistics.median(each[step] for each in steps):9.1f}")


if __name__ == "__main__":
    print(f"Collage {collage.__version__}, TVM {tvm.__version__}")
    main()
