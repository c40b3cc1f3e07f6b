# SPDX-License-Identifier: Apache-2.0
"""Engines order, scatter, gather, mark, sample and divide as TVM does, or leave it to TVM."""

import importlib.util
import itertools
import os

import numpy as np
import openvino_grid
import pytest
from grid import SHARES, operators
from tvm import relay

# The engines with the types that they compute in.
NUMBERS = {"openvino": ("float32", "int32"), "onnxruntime": ("float32", "int32", "float64", "int64")}
MOVED = {"openvino": ("float32", "int8", "bool"), "onnxruntime": ("float32", "float16", "int64", "bool")}


class Cases(openvino_grid.Grid):
    """Cases of which an engine is to take every operator, or those that are named."""

    def __init__(self, engine, share):
        super().__init__(share=share)
        self.engine = self.library = engine
        self.numbers, self.moved = NUMBERS[engine], MOVED[engine]

    def offloaded(self, placed):
        return openvino_grid.offloaded(placed, f"collage_{self.engine}")

    def take(self, name, expression, **how):
        """A case that the engine is to take whole."""
        self.add(name, expression, *operators(expression), **how)

    def of(self, values, dtype):
        """An input with these values."""
        variable = self.input(*np.shape(values), dtype=dtype)
        self.inputs[variable] = np.asarray(values, dtype)
        return variable

    def places(self, *shape, below, dtype="int32", least=0):
        """An input with indices."""
        return self.input(*shape, dtype=dtype, low=least, high=below - 1)


def missing(engine):
    if os.environ.get(f"COLLAGE_{engine.upper()}_LIBRARY") or importlib.util.find_spec(engine):
        return ""
    return f"{engine} is not installed: make backends BACKENDS={engine}"


@pytest.fixture(params=list(NUMBERS))
def engine(request):
    if missing(request.param):
        pytest.skip(missing(request.param))
    return request.param


@pytest.fixture(params=SHARES)
def cases(request, engine):
    return Cases(engine, request.param)


@pytest.fixture
def partition(collage_library, engine):
    import collage

    return lambda module: collage.partition(module, backends=["tvm", engine], only=engine)


def test_greatest(cases, partition):
    for dtype in cases.numbers:
        for shape, axis, k in (((3, 9), -1, 2), ((3, 9), 0, 3), ((2, 5, 4), 1, 5), ((7,), 0, 1), ((2, 1, 3, 4), 3, 4)):
            for ascending in (False, True):
                # Few different ones: ties in every row.
                data = cases.input(*shape, dtype=dtype, low=-2, high=2)
                data = relay.round(data) if dtype == "float32" else data
                case = f"{dtype} {shape} {axis} {k} {ascending}"
                for kind in ("values", "indices"):
                    for places in ("int32", "int64") if kind == "indices" else ("int32",):
                        found = relay.topk(data, k, axis, kind, ascending, places)
                        takes = ["topk"] + (["round"] if dtype == "float32" and kind == "values" else [])
                        cases.add(f"{kind} {places} {case}", found, *takes)
                        data = cases.input(*shape, dtype=dtype, low=-2, high=2)
    for dtype in ("float32", "int32"):
        found = relay.topk(cases.input(4, 6, dtype=dtype, low=-9, high=9), 3, 1, "both", False, "int32")
        both = found[0] + (relay.cast(found[1], dtype) if dtype == "float32" else found[1])
        cases.take(f"both of {dtype}", both)
    far = np.array([[2**24 + 1, 2**24, -(2**24) - 1, 2**31 - 1, 2**31 - 2, -(2**31)]])
    for ascending in (False, True):
        cases.take(f"great int32 {ascending}", relay.topk(cases.of(far, "int32"), 4, 1, "values", ascending))
        ends = cases.of([[0.0, np.inf, -0.0, 1e-45, -np.inf, 0.0, 3e38, -0.0]], "float32")
        cases.take(f"both zeros and what is infinite {ascending}", relay.topk(ends, 8, 1, "indices", ascending))
    for length, k in ((300, 7), (5000, 40), (5000, 1)):
        long = cases.input(2, length, dtype="int32", low=0, high=50)
        cases.take(f"{k} of {length}", relay.topk(long, k, 1, "indices"))
        cases.take(f"{k} of {length} floats", relay.topk(cases.input(2, length), k, 1, "values"))
    cases.take("all of them", relay.topk(cases.input(3, 5), 0, 1, "values"))
    cases.add("of float64", relay.topk(cases.input(3, 5, dtype="int8", high=9), 2, 1, "values"))
    cases.check(partition)


def test_sorted(cases, partition):
    for dtype in cases.numbers:
        for shape, axis in (((3, 9), -1), ((5, 4), 0), ((2, 3, 4), 1), ((1,), 0)):
            for ascending in (False, True):
                data = {"dtype": dtype, "low": -3, "high": 3}
                case = f"{dtype} {shape} {axis} {ascending}"
                cases.take(f"sort {case}", relay.sort(cases.input(*shape, **data), axis, ascending))
                for places in ("int32", "int64"):
                    one = relay.argsort(cases.input(*shape, **data), axis, ascending, places)
                    cases.take(f"argsort {places} {case}", one)
    cases.add("argsort as floats", relay.argsort(cases.input(3, 5), 1, True, "float32"))
    cases.check(partition)


def test_running_sums(cases, partition):
    for dtype in cases.numbers:
        for shape in ((4, 5), (2, 3, 4), (6,)):
            for axis in (None, 0, -1):
                for exclusive in (False, True):
                    data = cases.input(*shape, dtype=dtype, low=-9, high=9)
                    one = relay.cumsum(data, axis, exclusive=exclusive)
                    cases.take(f"cumsum {dtype} {shape} {axis} {exclusive}", one)
    great = cases.input(3, 4, dtype="int32", low=2**24, high=2**26)
    cases.take("cumsum beyond what floats count", relay.cumsum(great, 1))
    cases.add("cumsum in another type", relay.cumsum(cases.input(3, 4, dtype="int8", high=9), 1, "int32"))
    cases.check(partition)


MODES = ("update", "add", "mul", "min", "max")


def takes_slices(cases, mode, apart):
    """What an engine takes of a scatter_nd: where the last update of a place counts, only such as is known to write to
    each place once (apart); what comes to one place more than once OpenVINO adds in turn, ONNX Runtime's threads race.
    """
    return ["scatter_nd"] if (apart if mode == "update" else cases.engine == "openvino") else []


def test_scattered_slices(cases, partition):
    for dtype in cases.numbers:
        for mode in MODES:
            for places, given in itertools.product(("int32", "int64"), (cases.of, relay.const)):
                takes = takes_slices(cases, mode, given == relay.const)
                case = f"{mode} {dtype} {places} {given.__name__}"
                number = {"dtype": dtype, "low": -5, "high": 5}
                rows = given(cases.random.permutation(6)[None, :4], places)
                one = relay.scatter_nd(cases.input(6, 3, **number), rows, cases.input(4, 3, **number), mode)
                cases.add(f"scatter_nd of rows {case}", one, *takes)
                whole = np.stack(np.unravel_index(cases.random.permutation(20)[:6], (4, 5))).reshape(2, 2, 3)
                one = relay.scatter_nd(
                    cases.input(4, 5, **number), given(whole, places), cases.input(2, 3, **number), mode
                )
                cases.add(f"scatter_nd of elements {case}", one, *takes)
        for mode, given in itertools.product(MODES, (cases.of, relay.const)):
            again = given(cases.random.randint(0, 3, (1, 12)), "int32")
            one = relay.scatter_nd(cases.input(3, 2, dtype=dtype), again, cases.input(12, 2, dtype=dtype), mode)
            case = f"{mode} {dtype} {given.__name__}"
            cases.add(f"scatter_nd more than once {case}", one, *takes_slices(cases, mode, False))
    for given in (cases.of, relay.const):
        one = relay.scatter_nd(cases.input(5, 2), given(np.array([3]), "int32"), cases.input(2), "update")
        cases.add(f"scatter_nd of one row {given.__name__}", one, *takes_slices(cases, "update", given == relay.const))
    for mode in MODES[1:]:
        # Enough for an engine to share the work among threads.
        again = cases.places(1, 4000, below=2)
        number = {"dtype": "int32", "low": 1, "high": 1 if mode == "mul" else 3}
        one = relay.scatter_nd(cases.input(2, 64, **number), again, cases.input(4000, 64, **number), mode)
        cases.add(f"scatter_nd again and again {mode}", one, *takes_slices(cases, mode, False))
    eight = cases.input(4, 2, dtype="int8", high=9)
    cases.add("scatter_nd of int8", relay.scatter_nd(eight, cases.of([3], "int32"), cases.constant(2, dtype="int8")))
    cases.check(partition)


def test_scattered_elements(cases, partition):
    for dtype in cases.numbers:
        for mode in MODES:
            for shape, axis, count in (((4, 5), 0, 7), ((4, 5), -1, 3), ((2, 3, 4), 1, 5), ((6,), 0, 9)):
                at = list(shape)
                at[axis] = count
                number = {"dtype": dtype, "low": -5, "high": 5}
                for places in ("int32", "int64"):
                    # From both ends, and more than once: the last counts.
                    indices = cases.places(*at, below=shape[axis], dtype=places, least=-shape[axis])
                    one = relay.scatter_elements(
                        cases.input(*shape, **number), indices, cases.input(*at, **number), axis, mode
                    )
                    cases.take(f"scatter_elements {mode} {dtype} {places} {shape} {axis}", one)
    for mode in MODES:
        indices = cases.places(900, 80, below=2)
        number = {"dtype": "int32", "low": 1, "high": 1 if mode == "mul" else 3}
        one = relay.scatter_elements(cases.input(2, 80, **number), indices, cases.input(900, 80, **number), 0, mode)
        cases.take(f"scatter_elements again and again {mode}", one)
    less = relay.scatter_elements(cases.input(4, 5), cases.places(2, 3, below=4), cases.input(2, 3), 0)
    cases.add("scatter_elements to a part", less)
    mean = relay.scatter_elements(cases.input(4, 5), cases.places(4, 5, below=4), cases.input(4, 5), 0, "mean")
    cases.add("scatter_elements of means", mean)
    cases.check(partition)


def test_gathered_slices(cases, partition):
    for dtype in cases.moved:
        for places in ("int32", "int64"):
            data = {"dtype": dtype, "low": -9, "high": 9}
            case = f"{dtype} {places}"
            rows = cases.places(1, 4, below=5, dtype=places)
            cases.take(f"gather_nd of rows {case}", relay.gather_nd(cases.input(5, 3, **data), rows))
            pairs = cases.places(2, 3, 2, below=3, dtype=places)
            cases.take(f"gather_nd of elements {case}", relay.gather_nd(cases.input(4, 3, 2, **data), pairs))
            whole = cases.places(2, below=3, dtype=places)
            cases.take(f"gather_nd of one element {case}", relay.gather_nd(cases.input(4, 3, 2, **data), whole))
            batch = cases.places(1, 2, 5, below=4, dtype=places)
            one = relay.gather_nd(cases.input(2, 4, 3, **data), batch, batch_dims=1)
            cases.take(f"gather_nd in batches {case}", one)
    cases.check(partition)


def test_one_hot(cases, partition):
    for dtype in cases.numbers:
        for places in ("int32", "int64"):
            for shape, axis in (((4,), -1), ((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((), 0)):
                # Those outside are none.
                indices = cases.places(*shape, below=7, least=-3, dtype=places)
                on, off = relay.const(3, dtype), relay.const(-1, dtype)
                one = relay.one_hot(indices, on, off, 5, axis, dtype)
                cases.take(f"one_hot {dtype} {places} {shape} {axis}", one)
    computed = relay.one_hot(cases.places(3, below=4), cases.input(), cases.input(), 4, -1, "float32")
    cases.take("one_hot of values that are inputs", computed)
    cases.check(partition)


def regions(cases, count, batch, extent):
    """Regions of interest: inside, across the border, outside, and of no extent."""
    corner = cases.random.uniform(-0.3 * extent, 1.1 * extent, (count, 2))
    size = cases.random.uniform(-1.0, 0.9 * extent, (count, 2))
    image = cases.random.randint(0, batch, (count, 1))
    return cases.of(np.concatenate([image, corner, corner + size], 1), "float32")


def test_regions_of_interest(cases, partition):
    for scale, extent in ((1.0, 16), (0.25, 64)):
        for sizes in ((3, 3), (1, 4), (7, 5)):
            for samples in (-1, 0, 1, 2, 3):
                one = relay.vision.roi_align(
                    cases.input(2, 3, 16, 16), regions(cases, 9, 2, extent), sizes, scale, samples
                )
                cases.take(f"roi_align {scale} {sizes} {samples}", one, atol=1e-4)
    most = relay.vision.roi_align(cases.input(1, 3, 8, 8), regions(cases, 4, 1, 8), (2, 2), 1.0, 2, mode="max")
    cases.add("roi_align of the greatest", most)
    last = relay.vision.roi_align(cases.input(1, 8, 8, 3), regions(cases, 4, 1, 8), (2, 2), 1.0, 2, layout="NHWC")
    cases.add("roi_align with channels last", last)
    cases.check(partition)


def test_grids(cases, partition):
    for corners in (False, True):
        for padding in ("zeros", "border", "reflection"):
            for method in ("bilinear", "bicubic"):
                for shape, at in (
                    ((2, 3, 5, 7), (2, 2, 4, 6)),
                    ((1, 1, 2, 4), (1, 2, 3, 3)),
                    ((1, 2, 6, 6), (1, 2, 9, 1)),
                ):
                    grid = cases.input(*at, low=-2.2, high=2.2)
                    one = relay.image.grid_sample(cases.input(*shape), grid, method, "NCHW", padding, corners)
                    takes = ["image.grid_sample"] if method == "bilinear" or padding == "zeros" else []
                    cases.add(f"grid_sample {method} {padding} {corners} {shape}", one, *takes, atol=1e-4)
    grid = cases.of(np.array([[[[-1.0, 1, 0]], [[1, -1, 0]]]]), "float32")
    cases.take("grid_sample of the corners", relay.image.grid_sample(cases.input(1, 2, 4, 5), grid))
    near = relay.image.grid_sample(cases.input(1, 2, 4, 5), cases.input(1, 2, 3, 3), "nearest")
    cases.add("grid_sample of the nearest", near)
    deep = relay.image.grid_sample(cases.input(1, 2, 4, 5, 3), cases.input(1, 3, 2, 3, 3), "bilinear", "NCDHW")
    cases.add("grid_sample in three dimensions", deep)
    cases.check(partition)


DIVISIONS = ("mod", "trunc_mod", "floor_mod", "floor_divide")
# What engines compute otherwise of floats: OpenVINO by what is one divided by a constant; its rest is that of a rounded
# quotient, as TVM's trunc_mod is and its mod is not; ONNX Runtime's is the rest itself.
LEFT = {"openvino": ("mod", "floor_divide"), "onnxruntime": ("trunc_mod",)}


def test_divisions(cases, partition):
    whole, divisors = np.arange(-60, 60).reshape(12, 10), np.array([1, 2, 3, 7, 49, -1, -3, -7, 13, -60])
    for dtype in ("float32", "float64"):
        for name in DIVISIONS:
            pairs = {
                "whole": (cases.of(whole, dtype), cases.of(divisors, dtype)),
                "constant": (cases.of(whole, dtype), relay.const(divisors.astype(dtype), dtype)),
                "number": (cases.of(whole, dtype), relay.const(np.asarray(-7, dtype), dtype)),
                "any": (cases.input(3, 40, dtype=dtype, low=-9, high=9), cases.input(40, dtype=dtype, low=0.5)),
                # Quotients that lie just below a whole number, or beyond what float32 counts.
                "near": (
                    cases.of([1.0, 2.0, 1e10, 5.0, -1.0], dtype),
                    cases.of([0.1, 0.4, 3.0, np.inf, 0.1], dtype),
                ),
                "multiples": (
                    cases.of(np.outer(np.arange(-50, 50), np.arange(1, 50)), dtype),
                    relay.const(np.arange(1, 50).astype(dtype), dtype),
                ),
            }
            for kind, (left, right) in pairs.items():
                # TVM itself multiplies by what is one divided by a number.
                taken = dtype in cases.numbers and name not in LEFT[cases.engine]
                taken = taken and not (kind == "number" and name != "mod")
                cases.add(f"{name} {dtype} {kind}", getattr(relay, name)(left, right), *[name] * taken)
    cases.check(partition)


def test_divisions_of_whole_numbers(cases, partition):
    """One element each: of vectors TVM 0.19 writes debug information that LLVM 22 does not accept."""
    pairs = ((7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5), (2**30 + 1, 3), (-(2**30) - 1, 7), (5, 2**30))
    for dtype in ("int32", "int64"):
        for name in DIVISIONS:
            for pair in pairs:
                one = getattr(relay, name)(*(cases.of([number], dtype) for number in pair))
                cases.add(f"{name} {dtype} {pair}", one, *[name] * (cases.engine == "onnxruntime"))
    cases.check(partition)


def test_what_is_no_number(cases, partition):
    values = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, -1.0]
    for name in ("isnan", "isinf", "isfinite"):
        for dtype in ("float32", "float64"):
            takes = [name] if dtype in cases.numbers else []
            cases.add(f"{name} {dtype}", getattr(relay, name)(cases.of([values, values], dtype)), *takes)
    cases.check(partition)


def test_roundings_and_logarithms(cases, partition):
    halves = np.array([0.5, 1.5, 2.5, 0.49999997, 8388609.0, 2.0**30, 0.2, 0.7, 0.0, np.inf, np.nan])
    for dtype in ("float32", "float64"):
        takes = dtype in cases.numbers
        one = relay.round(cases.of(np.concatenate([halves, -halves]), dtype))
        cases.add(f"round {dtype}", one, *["round"] * takes)
        for name in ("log2", "log10"):
            one = getattr(relay, name)(cases.input(4, 9, dtype=dtype, low=0.01, high=900))
            cases.add(f"{name} {dtype}", one, *[name] * takes)
    cases.check(partition)
