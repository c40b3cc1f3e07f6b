# SPDX-License-Identifier: Apache-2.0
"""Records which operators TVM's FuseOps fuses, for candidate's tests.

Run from the repository's root in an environment with TVM, when the set of graphs changes:

    python pass/candidate/testdata/fuseops.py

Each file holds a graph, one node a line: index, kind, operator, fusion pattern, shapes, inputs, group. The
group of an operator is the same for operators that TVM fuses into one function; other nodes have "-".
"""

import os
import pathlib
import random
import sys

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "python" / "collage"))

import numpy  # noqa: E402
import tvm  # noqa: E402
import workloads  # noqa: E402
from tvm import relay  # noqa: E402
from tvm.relay.expr_functor import ExprMutator  # noqa: E402

NETWORKS = ("bert_full", "nasneta", "resnext50_32x4d", "mobilenet_v2", "yolov3", "dcgan")
RANDOM_GRAPHS = 12


class Tag(ExprMutator):
    """Gives each operator call its number as the line of its span."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def visit_call(self, call):
        args = [self.visit(arg) for arg in call.args]
        self.count += 1
        span = relay.Span(relay.SourceName("tag"), self.count, self.count, 0, 0)
        return relay.Call(call.op, args, call.attrs, call.type_args, span)


def random_network(seed):
    """A function with branches, reductions, reshapes, tuples and projections."""
    rng = random.Random(seed)
    shape = (1, 8, 4, 4)
    x = relay.var("x", shape=shape)
    values = [x]

    def take():
        return values[-1 - rng.randrange(min(len(values), rng.choice((1, 2, 5))))]

    for _ in range(40):
        kind = rng.randrange(13)
        v = take()
        if kind <= 1:
            v = relay.nn.conv2d(v, zeros(8, 8, 1, 1))
        elif kind == 2:
            v = relay.add(v, zeros(8, 1, 1))
        elif kind <= 4:
            v = relay.add(v, take())
        elif kind == 5:
            v = relay.nn.relu(v)
        elif kind == 6:
            v = relay.exp(v)
        elif kind == 7:
            v = relay.reshape(relay.reshape(v, (8, 16)), shape)
        elif kind == 8:
            v = relay.add(v, relay.mean(v, axis=[2, 3], keepdims=True))
        elif kind == 9:
            v = relay.strided_slice(relay.concatenate([v, take()], axis=1), (0, 0, 0, 0), shape)
        elif kind == 10:
            parts = relay.split(v, 2, axis=1)
            v = relay.concatenate([relay.exp(parts[1]), parts[0]], axis=1)
        elif kind == 11:
            v = relay.nn.softmax(v)
        else:
            v = relay.multiply(v, relay.const(1.5))
        values.append(v)
    outputs = values[-1 - rng.randrange(3) :]
    body = relay.Tuple(outputs) if len(outputs) > 1 else outputs[0]
    return tvm.IRModule.from_expr(relay.Function([x], body))


def zeros(*shape):
    return relay.const(numpy.zeros(shape, "float32"))


def shapes(kind):
    if isinstance(kind, relay.TupleType):
        return ";".join(shapes(field) for field in kind.fields)
    return "x".join(str(d) for d in kind.shape) or "scalar"


def record(module, path):
    module = relay.transform.InferType()(module)
    tagged = tvm.IRModule.from_expr(Tag().visit(module["main"]))
    tagged = relay.transform.InferType()(tagged)
    fused = relay.transform.FuseOps(fuse_opt_level=2)(tagged)

    group_of, groups = {}, 0

    def collect(expr):
        nonlocal groups
        if isinstance(expr, relay.Function) and expr.attrs and "Primitive" in expr.attrs:
            groups += 1
            number = groups

            def member(inner):
                if isinstance(inner, relay.Call) and isinstance(inner.op, tvm.ir.Op):
                    group_of[inner.span.line] = number

            relay.analysis.post_order_visit(expr.body, member)

    relay.analysis.post_order_visit(fused["main"], collect)

    index, lines = {}, []

    def visit(expr):
        if isinstance(expr, (tvm.ir.Op, relay.Function)):
            return
        index[expr] = len(index)
        op, pattern, group, inputs = "-", "-", "-", []
        if isinstance(expr, relay.Call):
            kind, op, inputs = "call", expr.op.name, expr.args
            pattern = expr.op.get_attr("TOpPattern")
            pattern = 8 if pattern is None else int(pattern)
            group = group_of[expr.span.line]
        elif isinstance(expr, relay.Tuple):
            kind, inputs = "tuple", expr.fields
        elif isinstance(expr, relay.TupleGetItem):
            kind, op, inputs = "get", expr.index, [expr.tuple_value]
        elif isinstance(expr, relay.Constant):
            kind = "const"
        else:
            kind = "var"
        reads = ",".join(str(index[i]) for i in inputs) or "-"
        lines.append(f"{index[expr]} {kind} {op} {pattern} {shapes(expr.checked_type)} {reads} {group}")

    relay.analysis.post_order_visit(tagged["main"].body, visit)
    path.write_text("\n".join(lines) + "\n")


def main():
    folder = pathlib.Path(__file__).with_name("fuseops")
    folder.mkdir(exist_ok=True)
    for name in NETWORKS:
        module, params = workloads.build(name)
        module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
        record(module, folder / f"{name}.txt")
    for seed in range(RANDOM_GRAPHS):
        record(random_network(seed), folder / f"random{seed}.txt")


if __name__ == "__main__":
    main()
