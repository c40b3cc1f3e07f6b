# SPDX-License-Identifier: Apache-2.0
"""What the backends mkl and openblas accept gives TVM's answer, and what they must refuse stays with TVM.

Every test says how many operators go to the library, pattern by pattern. A library that is not installed
(make backends BACKENDS=mkl,openblas) skips its half of the tests.
"""

import json
import math
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import tvm
from grid import built, outputs
from tvm import relay

nn = relay.nn
BACKENDS = ("mkl", "openblas")
# TVM's erf of doubles is precise to 4e-8.
TOLERANCES = {"float32": (1e-4, 1e-5), "float64": (1e-7, 1e-7)}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request, collage_library):
    """The name of a backend whose library is here."""
    from collage import library, transform

    library.load()
    probe = relay.Function([], relay.const(1.0))
    try:
        transform.CollagePartition(backends=["tvm", request.param], only=request.param)(tvm.IRModule.from_expr(probe))
    except ValueError as error:
        pytest.skip(f"{request.param} cannot be used here: {error}")
    return request.param


@pytest.fixture
def grid(backend):
    return Grid(backend)


class Grid:
    """Expressions that are offloaded in one module and compared with plain TVM."""

    def __init__(self, backend):
        self.backend = backend
        self.random = np.random.RandomState(0)
        self.names, self.fields, self.inputs, self.taken = [], [], {}, []

    def array(self, shape, dtype):
        return self.random.uniform(-1.0, 1.0, shape).astype(dtype)

    def input(self, *shape, dtype="float32"):
        """A new input of the module, with values."""
        variable = relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype)
        self.inputs[variable] = self.array(shape, dtype)
        return variable

    def constant(self, *shape, dtype="float32"):
        return relay.const(self.array(shape, dtype), dtype)

    def add(self, name, expression, *takes):
        """Add a case; takes are the patterns that go to the library, none where it is refused."""
        self.names.append(name)
        self.fields.append(expression)
        self.taken.extend(f"{self.backend}.{take}" for take in takes)

    def module(self):
        function = relay.Function(list(self.inputs), relay.Tuple(self.fields))
        return relay.transform.InferType()(tvm.IRModule.from_expr(function))

    def partition(self):
        import collage

        return collage.partition(self.module(), backends=["tvm", self.backend], only=self.backend)

    def check(self):
        """Partition, count what was offloaded, run both, compare."""
        placed = self.partition()
        counted, expected = Counter(offloaded(placed)), Counter(self.taken)
        assert counted == expected, f"too many: {counted - expected}, missing: {expected - counted}"
        got, want = self.run(placed), self.run(self.module())
        wrong = []
        for name, a, b in zip(self.names, got, want, strict=True):
            rtol, atol = TOLERANCES.get(str(b.dtype), (0, 0))
            if a.shape != b.shape or not np.allclose(a, b, rtol=rtol, atol=atol):
                wrong.append(f"{name}: {np.max(np.abs(a - b)) if a.shape == b.shape else a.shape}")
        assert not wrong, f"{self.backend} and TVM disagree:\n" + "\n".join(wrong)

    def run(self, module):
        executor = built(module, self.inputs)
        # Twice: what the first run leaves behind must not change the second.
        executor.run()
        return outputs(executor)


def offloaded(module):
    """The composites in the module's regions of other backends than TVM."""
    names = []

    def visit(node):
        if isinstance(node, relay.Function) and node.attrs and "Composite" in node.attrs:
            names.append(str(node.attrs["Composite"]))

    for function in module.functions.values():
        if function.attrs and "Compiler" in function.attrs:
            relay.analysis.post_order_visit(function, visit)
    return names


SIZES = ((1, 1, 1), (1, 10, 64), (7, 33, 5), (5, 1, 9), (64, 64, 64), (33, 130, 257), (128, 200, 300))


def test_dense(grid):
    for dtype in ("float32", "float64"):
        for m, n, k in SIZES:
            case = f"dense {dtype} {m} {n} {k}"
            one = nn.dense(grid.input(m, k, dtype=dtype), grid.constant(n, k, dtype=dtype), units=n)
            grid.add(case, one, "dense")
            one = nn.dense(grid.input(m, k, dtype=dtype), grid.input(n, k, dtype=dtype))
            grid.add(f"{case}, weight an input", one, "dense")
    square = grid.input(4, 4)
    grid.add("dense of x and x", nn.dense(square, square), "dense")
    grid.check()


def test_matmul(grid):
    for m, n, k in SIZES:
        for ta in (False, True):
            for tb in (False, True):
                left = grid.input(*((k, m) if ta else (m, k)))
                right = grid.constant(*((n, k) if tb else (k, n)))
                # TVM makes nn.dense of it, where that is the same.
                takes = "dense" if tb and not ta else "matmul"
                one = nn.matmul(left, right, transpose_a=ta, transpose_b=tb)
                grid.add(f"matmul {m} {n} {k} {ta} {tb}", one, takes)
    grid.check()


def test_batch_matmul(grid):
    for dtype in ("float32", "float64"):
        for batch, m, n, k in ((1, 1, 1, 1), (3, 5, 7, 9), (12, 48, 48, 32), (2, 1, 70, 40), (5, 40, 1, 30)):
            for ta in (False, True):
                for tb in (False, True):
                    left = grid.input(batch, *((k, m) if ta else (m, k)), dtype=dtype)
                    right = grid.input(batch, *((n, k) if tb else (k, n)), dtype=dtype)
                    one = nn.batch_matmul(left, right, transpose_a=ta, transpose_b=tb)
                    grid.add(f"batch_matmul {dtype} {batch} {m} {n} {k} {ta} {tb}", one, "batch_matmul")
    grid.check()


def test_broadcast_batches(grid):
    """One matrix for the whole batch, on either side, constant or not."""
    for left_batch, right_batch in ((4, 1), (1, 4)):
        for ta in (False, True):
            for tb in (False, True):
                for make in (grid.input, grid.constant):
                    left = grid.input(left_batch, *((9, 5) if ta else (5, 9)))
                    right = make(right_batch, *((7, 9) if tb else (9, 7)))
                    one = nn.batch_matmul(left, right, transpose_a=ta, transpose_b=tb)
                    case = f"batches {left_batch} {right_batch} {ta} {tb} {make.__name__}"
                    grid.add(case, one, "batch_matmul")
    grid.check()


def gelu_onnx(x):
    return (relay.const(0.5) * x) * (relay.const(1.0) + relay.erf(x / relay.const(math.sqrt(2))))


def gelu_exported(x):
    return (x * (relay.erf(x / relay.const(1.41421354)) + relay.const(1.0))) * relay.const(0.5)


def gelu_torch(x):
    return x * (relay.const(0.5) + relay.erf(x * relay.const(0.5**0.5)) * relay.const(0.5))


def products(grid):
    """One product of each kind, with its result's shape."""
    yield "dense", lambda: nn.dense(grid.input(40, 24), grid.input(72, 24)), (40, 72)
    yield "batch_matmul", lambda: nn.batch_matmul(grid.input(3, 5, 8), grid.input(3, 6, 8)), (3, 5, 6)
    yield "matmul", lambda: nn.matmul(grid.input(9, 5), grid.input(9, 7), transpose_a=True), (5, 7)


def test_epilogues(grid):
    for name, make, shape in products(grid):
        columns = shape[-1]
        bias = grid.constant(columns)
        grid.add(f"{name} bias", make() + bias, f"{name}_bias")
        grid.add(f"{name} bias first", bias + make(), f"{name}_bias")
        grid.add(f"{name} bias_add", nn.bias_add(make(), bias, axis=-1), f"{name}_bias")
        wide = grid.input(*(1,) * (len(shape) - 1), columns)
        grid.add(f"{name} bias relu", nn.relu(make() + wide), f"{name}_bias_relu")
        for gelu in (gelu_onnx, gelu_exported, gelu_torch):
            grid.add(f"{name} bias {gelu.__name__}", gelu(make() + bias), f"{name}_bias_gelu")
        grid.add(f"{name} gelu alone", gelu_onnx(make()), f"{name}_gelu")
        grid.add(f"{name} relu", nn.relu(make()), f"{name}_relu")
        grid.add(f"{name} sum", make() + grid.input(*shape), f"{name}_sum")
        grid.add(f"{name} sum relu", nn.relu(grid.input(*shape) + make()), f"{name}_sum_relu")
        grid.add(f"{name} bias sum", (make() + bias) + grid.constant(*shape), f"{name}_bias_sum")
        one = nn.relu(grid.input(*shape) + (make() + bias))
        grid.add(f"{name} bias sum relu", one, f"{name}_bias_sum_relu")
        grid.add(f"{name} scale", make() / relay.const(8.0), f"{name}_scale")
        one = make() / relay.const(0.3) + grid.input(*shape)
        grid.add(f"{name} scale sum", one, f"{name}_scale_sum")
        # FoldScaleAxis multiplies the weight of a dense layer instead.
        one = relay.const(5.0) * make()
        grid.add(f"{name} multiplied", one, "dense" if name == "dense" else f"{name}_scale")
    grid.check()


def test_epilogues_of_doubles(grid):
    def double(*shape):
        return grid.input(*shape, dtype="float64")

    one = nn.dense(double(9, 6), double(4, 6)) + grid.constant(4, dtype="float64")
    grid.add("bias sum relu", nn.relu(one + double(9, 4)), "dense_bias_sum_relu")
    half, root = relay.const(0.5, "float64"), relay.const(math.sqrt(2), "float64")
    one = nn.batch_matmul(double(2, 3, 5), double(2, 4, 5))
    grid.add("gelu", (half * one) * (relay.const(1.0, "float64") + relay.erf(one / root)), "batch_matmul_gelu")
    one = nn.batch_matmul(double(2, 3, 5), double(2, 4, 5)) * relay.const(0.7, "float64")
    grid.add("scale", one, "batch_matmul_scale")
    grid.check()


def test_gelu_is_gelu_everywhere(grid):
    """Great values, of both signs, through a product with the unit matrix."""
    values = np.linspace(-12, 12, 481, dtype="float32").reshape(1, -1)
    x = relay.var("x", shape=values.shape)
    grid.inputs[x] = values
    one = nn.dense(x, relay.const(np.eye(values.size, dtype="float32")), units=values.size)
    grid.add("gelu", gelu_onnx(one), "dense_gelu")
    placed = grid.run(grid.partition())[0]
    exact = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in values.ravel().astype("float64")]
    np.testing.assert_allclose(placed.ravel(), exact, rtol=1e-6, atol=2e-6)


def test_operands_of_every_kind(grid):
    x = grid.input(16, 16)
    grid.add("x x + x", nn.dense(x, x) + x, "dense_sum")
    one = nn.dense(nn.relu(grid.input(3, 8)), relay.tanh(grid.input(4, 8)))
    grid.add("computed operands", nn.relu(one + relay.exp(grid.input(4))), "dense_bias_relu")
    shared = grid.constant(12, 12)
    chain = nn.dense(nn.dense(grid.input(6, 12), shared), shared)
    grid.add("one weight in two regions", chain, "dense", "dense")
    # What two readers share leaves the region.
    one = nn.dense(grid.input(6, 12), shared)
    grid.add("a result with two readers", relay.tanh(one) + nn.relu(one), "dense")
    left = nn.dense(grid.input(6, 12), grid.constant(8, 12))
    right = nn.dense(grid.input(6, 12), grid.constant(8, 12))
    grid.add("sum of two products", left + right, "dense", "dense_sum")
    one = nn.dense(grid.input(5, 7), grid.constant(1, 7)) + relay.const(np.array([0.5], "float32"))
    grid.add("one column", one, "dense_bias")
    grid.check()


def test_refusals(grid):
    """What stands here goes to the library without what it must not take, or stays with TVM altogether."""
    for dtype in ("float16", "int8", "int32"):
        one = nn.dense(grid.input(4, 8, dtype=dtype), grid.input(4, 8, dtype=dtype))
        grid.add(f"dense {dtype}", one)
    one = nn.dense(grid.input(4, 8, dtype="int8"), grid.input(4, 8, dtype="int8"), out_dtype="int32")
    grid.add("dense int8 to int32", one)
    # Addends that are broadcast along another axis, or that widen the result.
    grid.add("rows", nn.dense(grid.input(4, 8), grid.constant(4, 8)) + grid.constant(4, 1), "dense")
    grid.add("number", nn.dense(grid.input(4, 8), grid.constant(4, 8)) + relay.const(1.0), "dense")
    grid.add("wider", nn.dense(grid.input(1, 8), grid.constant(4, 8)) + grid.constant(3, 4), "dense")
    grid.add("deeper", nn.dense(grid.input(4, 8), grid.constant(4, 8)) + grid.constant(2, 4, 4), "dense")
    one = nn.batch_matmul(grid.input(2, 3, 4), grid.input(2, 5, 4)) + grid.input(2, 1, 5)
    grid.add("a bias for each of the batch", one, "batch_matmul")
    one = nn.batch_matmul(grid.input(2, 3, 4), grid.input(2, 3, 4))
    grid.add("bias_add along rows", nn.bias_add(one, grid.constant(3), axis=1), "batch_matmul")
    one = nn.batch_matmul(grid.input(2, 3, 4), grid.input(2, 5, 4)) * grid.constant(2, 1, 1)
    grid.add("several scales", one, "batch_matmul")
    one = relay.const(2.0) / (nn.dense(grid.input(4, 8), grid.constant(4, 8)) + relay.const(9.0))
    grid.add("divided by the product", one, "dense")
    one = nn.dense(grid.input(4, 8), grid.constant(4, 8))
    grid.add("another gelu", (one * relay.const(0.5)) * (relay.const(1.0) + relay.tanh(one)), "dense")
    grid.check()


def test_shapes_known_only_at_run_time_are_refused(backend):
    from collage import transform

    x = relay.var("x", shape=(relay.Any(), 8))
    module = tvm.IRModule.from_expr(relay.Function([x], nn.dense(x, relay.const(np.ones((4, 8), "float32")))))
    module = relay.transform.InferType()(module)
    placed = transform.CollagePartition(backends=["tvm", backend], only=backend)(module)
    assert offloaded(placed) == []


def test_exported_model_runs_without_collage(backend, grid, tmp_path, collage_library):
    """In a process of its own, with nothing but TVM; and it says what is missing where the library is."""
    import collage

    x = grid.input(20, 32)
    grid.add("dense", nn.relu(nn.dense(x, grid.constant(48, 32)) + grid.constant(48)), "dense_bias_relu")
    path = collage.compile(
        grid.module(), backends=["tvm", backend], only=backend, out=str(tmp_path / "model.so"), threads=2
    )
    want = grid.run(grid.module())[0]
    np.save(tmp_path / "x.npy", grid.inputs[x])
    program = (
        "import sys, json, numpy as np, tvm\n"
        "from tvm.contrib import graph_executor\n"
        "m = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])['default'](tvm.cpu()))\n"
        "m.set_input('x0', np.load(sys.argv[2])); m.run()\n"
        "tbb = {l.split()[-1] for l in open('/proc/self/maps') if 'libtbb.so' in l}\n"
        "print(json.dumps([m.get_output(0).numpy().tolist(), 'collage' in sys.modules, len(tbb)]))\n"
    )
    arguments = [sys.executable, "-c", program, path, str(tmp_path / "x.npy")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    got, has_collage, pools = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(np.array(got, "float32"), want, rtol=1e-4, atol=1e-5)
    assert not has_collage
    assert pools == 1, "one oneTBB in the process"

    variable = f"COLLAGE_{backend.upper()}_LIBRARY"
    environment = {**os.environ, variable: str(tmp_path / "absent.so")}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode != 0
    assert f"cannot be opened where {variable} says" in done.stderr


def test_large_products_on_several_threads(backend, grid):
    """Products that are cut into pieces, whatever the number of threads."""
    from collage import library

    for plugin in ("runtime", backend):
        library.load_plugin(library.plugin_path(plugin))
    set_threads = tvm.get_global_func("collage.runtime.SetNumThreads")
    for m, n, k in ((384, 384, 384), (17, 1000, 300), (1000, 17, 300), (1, 3000, 400), (3000, 1, 400)):
        for ta in (False, True):
            left = grid.input(*((k, m) if ta else (m, k)))
            one = nn.matmul(left, grid.input(k, n), transpose_a=ta)
            grid.add(f"matmul {m} {n} {k} {ta}", one + grid.input(n), "matmul_bias")
    one = nn.batch_matmul(grid.input(2, 128, 256), grid.input(2, 128, 256))
    grid.add("a batch of two", nn.relu(one), "batch_matmul_relu")
    try:
        for threads in (1, 2, 3, 7):
            set_threads(threads)
            grid.check()
    finally:
        set_threads(0)
