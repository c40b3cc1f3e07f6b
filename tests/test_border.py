# SPDX-License-Identifier: Apache-2.0
"""The border between TVM and the regions of each backend that is installed: layouts, strides, alignment,
dtypes, sizes, constants, names, models side by side, threads. Results are TVM's, or what does not fit is
refused.
"""

import ctypes

import numpy as np
import placed
import pytest
import tvm
from side_by_side import in_threads
from tvm import relay

BACKENDS = placed.with_regions_of_their_own()

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    pytest.mark.skipif(not BACKENDS, reason="no backend beside TVM can be used here"),
]

# Rows and columns of the weights of what every library takes: nn.dense.
UNITS = 32

# How many regions a backend makes of a convolution with what hangs on it: one, but for the libraries of
# matrix products, which have none. TVM's runtime for oneDNN gives what it does not fuse a region of its own.
CONVOLUTION = {"mkl": 0, "openblas": 0}
CONVOLUTION_AND_MORE = {**CONVOLUTION, "dnnl_tvm": 2}


def weight(*shape, seed=1, dtype="float32"):
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return relay.const((0.2 * rng.standard_normal(shape)).astype(dtype), dtype)
    return relay.const(rng.integers(-4, 5, shape).astype(dtype), dtype)


def module_of(outputs, *inputs):
    if isinstance(outputs, list):
        outputs = relay.Tuple(outputs)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(inputs), outputs)))


def apart(x):
    """An operator that stays on TVM, so that what is before and behind it are two regions."""
    return relay.annotation.stop_fusion(x)


def dense_module(rows=3, units=UNITS, seed=1, name="x"):
    x = relay.var(name, shape=(rows, units))
    return module_of(relay.nn.relu(relay.nn.dense(x, weight(units, units, seed=seed))), x)


def conv(x, out_channels, in_channels, kernel=3, seed=1, **options):
    return relay.nn.conv2d(
        x, weight(out_channels, in_channels, kernel, kernel, seed=seed), kernel_size=(kernel, kernel),
        channels=out_channels, padding=(kernel // 2, kernel // 2), **options,
    )  # fmt: skip


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def build(tmp_path, backend):
    """build(module, count) -> executor of the module with all that the backend can take on it, loaded from a
    file. ``count`` is how many regions that makes, or {backend: count} of those that make another number than
    one; without it there must be at least one.
    """
    made = 0

    def make(module, count=None, suffix=".so"):
        nonlocal made
        made += 1
        split = placed.place(module, backend)
        found = placed.regions(split)
        if count is None:
            count = max(1, len(found))
        wanted = count.get(backend, 1) if isinstance(count, dict) else count
        assert len(found) == wanted, f"{backend} takes {found} of\n{module}"
        path = tmp_path / f"model{made}{suffix}"
        placed.export_to(path, split)
        make.path, make.placed = path, split
        return placed.load(path)

    return make


def check(build, module, count=None, seeds=(0, 1), **tolerance):
    """The module on the backend gives what TVM gives, for several inputs one after the other."""
    executor = build(module, count)
    for seed in seeds:
        inputs = placed.values(module, seed)
        placed.same(placed.run(executor, *inputs), placed.expected(module, *inputs), **tolerance)


# Regions and constants


def test_several_regions(build):
    x = relay.var("x", shape=(3, UNITS))
    y = x
    for layer in range(4):
        y = apart(relay.nn.relu(relay.nn.dense(y, weight(UNITS, UNITS, seed=layer))))
    check(build, module_of(y, x), 4)


def test_one_constant_in_two_regions(build):
    x = relay.var("x", shape=(3, UNITS))
    shared = weight(UNITS, UNITS)
    y = relay.nn.dense(apart(relay.nn.dense(x, shared)), shared)
    check(build, module_of(y, x), 2)


def test_one_constant_twice_in_a_region(build):
    x = relay.var("x", shape=(3, UNITS))
    shared = weight(UNITS, UNITS)
    check(build, module_of(relay.nn.dense(relay.nn.relu(relay.nn.dense(x, shared)), shared), x))


def test_equal_constants_stay_apart(build):
    """Two constants of one shape and different content: neither takes the other's place."""
    x = relay.var("x", shape=(3, UNITS))
    left = relay.nn.dense(x, weight(UNITS, UNITS, seed=1))
    right = relay.nn.dense(x, weight(UNITS, UNITS, seed=2))
    check(build, module_of([apart(left), apart(right)], x), 2)


def test_several_outputs(build):
    """What is inside a region is an output of the network, too."""
    x = relay.var("x", shape=(3, UNITS))
    a = relay.nn.dense(x, weight(UNITS, UNITS, seed=1))
    b = relay.nn.relu(a)
    c = relay.nn.dense(b, weight(UNITS, UNITS, seed=2))
    check(build, module_of([c, a, b, a], x))


def test_several_outputs_between_regions(build):
    x = relay.var("x", shape=(3, UNITS))
    a = relay.nn.dense(x, weight(UNITS, UNITS, seed=1))
    b = relay.nn.relu(a)
    c = relay.nn.dense(apart(relay.add(a, b)), weight(UNITS, UNITS, seed=2))
    check(build, module_of([relay.add(c, b), relay.add(c, a)], x))


def test_several_inputs(build):
    """Inputs reach their region in the order of its parameters; one is read twice, one by two regions."""
    x, y, z = (relay.var(name, shape=(3, UNITS)) for name in ("x", "y", "z"))
    a = relay.nn.dense(relay.add(y, x), weight(UNITS, UNITS, seed=1))
    b = relay.nn.dense(apart(relay.add(relay.multiply(z, z), a)), weight(UNITS, UNITS, seed=2))
    check(build, module_of(relay.add(b, y), x, y, z))


def test_weights_as_inputs(build):
    """A weight that is not known at compile time: the backend takes it or leaves it, and a changed one
    counts.
    """
    x, w = relay.var("x", shape=(3, UNITS)), relay.var("w", shape=(UNITS, UNITS))
    check(build, module_of(relay.nn.dense(x, w), x, w), 1)


def test_a_network_without_regions(build):
    x = relay.var("x", shape=(3, UNITS))
    check(build, module_of(relay.annotation.stop_fusion(x), x), 0)


# Sizes


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_batches_of_dense(build, rows):
    check(build, dense_module(rows))


@pytest.mark.parametrize("batch", [1, 3])
def test_batches_of_conv(build, batch):
    x = relay.var("x", shape=(batch, 4, 9, 7))
    y = relay.nn.relu(relay.nn.bias_add(conv(x, 6, 4), weight(6)))
    check(build, module_of(relay.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2)), x), CONVOLUTION_AND_MORE)


@pytest.mark.parametrize("batches", [(4, 4), (4, 1), (1, 1)])
def test_batches_of_batch_matmul(build, batches):
    a = relay.var("a", shape=(batches[0], 5, 6))
    b = relay.var("b", shape=(batches[1], 7, 6))
    # oneDNN's have no product of which one side is one for all.
    refused = {"dnnl": 0, "dnnl_tvm": 0} if batches[0] != batches[1] else {}
    check(build, module_of(relay.nn.batch_matmul(a, b), a, b), refused)


@pytest.mark.parametrize("shape", [(1, 1), (1, UNITS), (5, 1)])
def test_one_sized_dimensions_of_dense(build, shape):
    rows, inner = shape
    x = relay.var("x", shape=(rows, inner))
    check(build, module_of(relay.nn.dense(x, weight(1, inner)), x), 1)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 4, 1, 5), (2, 1, 5, 1)])
def test_one_sized_dimensions_of_conv(build, shape):
    x = relay.var("x", shape=shape)
    check(build, module_of(relay.nn.relu(conv(x, 3, shape[1])), x), CONVOLUTION)


@pytest.mark.parametrize("other", [(), (1,), (UNITS,), (1, UNITS), (3, 1), (3, UNITS)])
def test_broadcasts(build, other):
    """What is added to a result may be smaller than it, down to a scalar."""
    x = relay.var("x", shape=(3, UNITS))
    y = relay.nn.dense(x, weight(UNITS, UNITS))
    small = relay.const(np.random.default_rng(5).standard_normal(other).astype("float32"))
    check(build, module_of(relay.multiply(relay.add(y, small), small), x))


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 1, 1), (1, 1, 6, 6), (1, 1, 1, 1), (6,)])
def test_broadcasts_behind_conv(build, shape):
    x = relay.var("x", shape=(1, 4, 6, 6))
    small = relay.const(np.random.default_rng(5).standard_normal(shape).astype("float32"))
    # What is not one value for each channel is no bias.
    count = CONVOLUTION if shape in ((4, 1, 1), (1, 4, 1, 1)) else CONVOLUTION_AND_MORE
    check(build, module_of(relay.nn.relu(relay.add(conv(x, 4, 4), small)), x), count)


def test_zero_sized_dimensions(build, backend):
    x = relay.var("x", shape=(0, UNITS))
    module = module_of(relay.nn.relu(relay.nn.dense(x, weight(UNITS, UNITS))), x)
    try:
        wanted = placed.expected(module, *placed.values(module))
    except (tvm.TVMError, TypeError):
        # TVM itself cannot build it; then no backend may pretend to.
        assert not placed.regions(placed.place(module, backend))
        return
    placed.same(placed.run(build(module), *placed.values(module)), wanted)


# Types


# Who takes what beside float32; nobody takes what is not here.
TYPES = {
    ("dense", "float64"): {"mkl", "openblas"},
    ("elementwise", "float64"): {"onnxruntime"},
    ("elementwise", "int32"): {"onnxruntime", "openvino"},
    ("elementwise", "int64"): {"onnxruntime"},
}


DTYPES = ("float16", "float64", "int32", "int64")
# TVM itself refuses sums in int8, and ends the process over sums of int8 in int32 on some processors.
KINDS = [(kind, dtype) for kind in ("dense", "conv", "elementwise") for dtype in DTYPES] + [("elementwise", "int8")]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_types(build, backend, kind, dtype):
    """Right or not taken."""
    if kind == "dense":
        x = relay.var("x", shape=(3, UNITS), dtype=dtype)
        y = relay.nn.dense(x, weight(8, UNITS, dtype=dtype), out_dtype=dtype)
    elif kind == "conv":
        x = relay.var("x", shape=(1, 4, 6, 6), dtype=dtype)
        y = relay.nn.conv2d(
            x,
            weight(4, 4, 3, 3, dtype=dtype),
            kernel_size=(3, 3),
            channels=4,
            padding=(1, 1),
            out_dtype=dtype,
        )
    else:
        x = relay.var("x", shape=(3, UNITS), dtype=dtype)
        y = relay.nn.relu(relay.add(relay.multiply(x, x), x))
    module = module_of(y, x)
    inputs = placed.values(module)
    wanted = placed.expected(module, *inputs)
    tolerance = {"rtol": 1e-2, "share": 4e-3} if dtype == "float16" else {}
    count = int(backend in TYPES.get((kind, dtype), ()))
    placed.same(placed.run(build(module, count), *inputs), wanted, **tolerance)


def test_casts_between_regions(build):
    x = relay.var("x", shape=(3, UNITS))
    y = relay.cast(relay.cast(relay.nn.dense(x, weight(UNITS, UNITS)), "int32"), "float32")
    check(build, module_of(relay.nn.dense(y, weight(8, UNITS)), x))


# Layouts


@pytest.mark.parametrize("layouts", [("NHWC", "HWIO"), ("NCHW", "OIHW")])
def test_layouts_of_conv(build, layouts):
    data, kernel = layouts
    shape = {"NHWC": (1, 6, 5, 4), "NCHW": (1, 4, 6, 5)}[data]
    weights = {"HWIO": (3, 3, 4, 8), "OIHW": (8, 4, 3, 3)}[kernel]
    x = relay.var("x", shape=shape)
    y = relay.nn.conv2d(
        x,
        weight(*weights),
        kernel_size=(3, 3),
        channels=8,
        padding=(1, 1),
        data_layout=data,
        kernel_layout=kernel,
    )
    check(build, module_of(relay.nn.relu(y), x), CONVOLUTION)


def test_blocked_layouts_do_not_leak(build):
    """What a library keeps in a blocked layout inside comes out plain, at every output."""
    x = relay.var("x", shape=(1, 5, 8, 8))
    a = relay.nn.relu(conv(x, 19, 5, seed=1))
    b = relay.nn.relu(conv(a, 17, 19, seed=2))
    shuffled = relay.transpose(relay.reshape(b, (1, 17, 64)), (0, 2, 1))
    check(build, module_of([a, b, shuffled], x), CONVOLUTION_AND_MORE)


# Memory


def dlpack_view(array, byte_offset=0, strides=None):
    """A DLTensor over an array's memory, as a caller of TVM's has it; (tensor, what must stay alive)."""
    ndim = array.ndim
    shape = (ctypes.c_int64 * ndim)(*array.shape)
    steps = (ctypes.c_int64 * ndim)(*strides) if strides else None
    tensor = tvm.runtime.ndarray.TVMArray()
    tensor.data = ctypes.cast(array.ctypes.data - byte_offset, ctypes.c_void_p)
    tensor.device = tvm.cpu()
    tensor.ndim = ndim
    tensor.dtype = tvm.DataType(str(array.dtype))
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    tensor.strides = ctypes.cast(steps, ctypes.POINTER(ctypes.c_int64)) if steps else None
    tensor.byte_offset = byte_offset
    view = tvm.nd.NDArray(ctypes.pointer(tensor), is_view=True)
    return view, (array, shape, steps, tensor)


def at_offset(shape, offset, seed=0):
    """An array whose first element lies ``offset`` bytes behind a multiple of 64."""
    count = int(np.prod(shape))
    memory = np.zeros(count * 4 + 128, "uint8")
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + count * 4].view("float32").reshape(shape)
    array[...] = np.random.default_rng(seed).standard_normal(shape, dtype="float32")
    return array


# TVM's own runtime for oneDNN looks at neither. TVM's graph executor, which is the one that calls regions,
# has neither byte offsets nor strides.
BLIND = {"dnnl_tvm"}


def region_function(build, backend):
    """The first region's packed function and the shape of what it gives."""
    if backend in BLIND:
        pytest.skip("TVM's runtime for oneDNN takes every tensor for compact and without offset")
    symbol = next(iter(placed.regions(build.placed)))
    library = tvm.runtime.load_module(str(build.path))
    # A factory exported whole holds the library under it.
    function = library.get_function(symbol, query_imports=True)
    shape = [int(d) for d in build.placed[symbol].ret_type.shape]
    return function, shape, library


@pytest.mark.parametrize("offset", [0, 64, 4, 12])
def test_byte_offsets_and_alignment(build, backend, offset):
    """Tensors that begin in the middle of an allocation, aligned or not: the result is right."""
    module = dense_module()
    build(module)
    function, shape, _library = region_function(build, backend)
    x, y = at_offset((3, UNITS), offset), at_offset(shape, offset)
    wanted = placed.expected(module, x)
    for byte_offset in (0, offset):
        y[...] = 0
        source, keep = dlpack_view(x, byte_offset)
        sink, keep_sink = dlpack_view(y, byte_offset)
        function(source, sink)
        assert keep and keep_sink
        placed.same([y.copy()], wanted)


def test_strides_are_kept_or_refused(build, backend):
    """A tensor with gaps between its rows is read as such, or refused with an error that says so."""
    module = dense_module()
    build(module)
    function, shape, _library = region_function(build, backend)
    wide = at_offset((3, 2 * UNITS), 0)
    x = wide[:, :UNITS]
    y = at_offset(shape, 0)
    y[...] = 0
    view = np.lib.stride_tricks.as_strided(x, x.shape, x.strides)
    source, keep = dlpack_view(view, 0, strides=(2 * UNITS, 1))
    sink, keep_sink = dlpack_view(y)
    try:
        function(source, sink)
    except tvm.TVMError as error:
        assert any(word in str(error) for word in ("compact", "stride", "contiguous")), str(error)
        return
    assert keep and keep_sink
    placed.same([y.copy()], placed.expected(module, np.ascontiguousarray(x)))


@pytest.mark.parametrize("offset", [0, 4])
def test_zero_copy_inputs_and_outputs(build, offset):
    """A model that reads and writes its caller's memory; what is not aligned is right, or refused by TVM."""
    module = dense_module()
    executor = build(module)
    x, y = at_offset((3, UNITS), offset), at_offset((3, UNITS), offset)
    wanted = placed.expected(module, x)
    source, keep = dlpack_view(x)
    sink, keep_sink = dlpack_view(y)
    try:
        executor.module["set_input_zero_copy"](0, source)
        executor.module["set_output_zero_copy"](0, sink)
    except tvm.TVMError as error:
        assert offset, str(error)
        assert "align" in str(error).lower()
        return
    for _ in range(2):
        y[...] = 0
        executor.run()
        placed.same([y.copy()], wanted)
        x[...] += 1  # the caller's memory, and so the model's
        wanted = placed.expected(module, x)
    assert keep and keep_sink


# Names


@pytest.mark.parametrize("name", ["p0", "constant_0", "output0", "x y", "weights/é:0", "input.1"])
def test_names_of_inputs(build, name):
    """An input's name may be what a library, TVM or ONNX would call something else."""
    check(build, dense_module(name=name))


def test_functions_with_the_names_of_regions(backend):
    """A function that is already there keeps its name; the region gets another one."""
    from collage import transform

    symbol = next(iter(placed.regions(placed.place(dense_module(), backend))))
    module = dense_module()
    y = relay.var("y", shape=(2, 2))
    taken = relay.GlobalVar(symbol)
    module[taken] = relay.Function([y], relay.nn.relu(y))
    module = relay.transform.InferType()(module)
    split = transform.CollagePartition(only=backend)(module)
    names = [var.name_hint for var in split.get_global_vars()]
    assert len(names) == len(set(names))
    assert len(placed.regions(split)) >= 1
    assert symbol not in placed.regions(split)


# Models side by side


def test_a_model_loaded_twice(build, tmp_path):
    """From one file and from two unpacked copies: each has its own buffers."""
    module = dense_module()
    first = build(module, suffix=".tar")
    second, third = placed.load(build.path), placed.load(build.path)
    inputs = [placed.values(module, seed) for seed in range(3)]
    for executor, values in zip((first, second, third), inputs, strict=True):
        executor.set_input(0, *values)
    for executor in (third, first, second):
        executor.run()
    for executor, values in zip((first, second, third), inputs, strict=True):
        placed.same([executor.get_output(0).numpy()], placed.expected(module, *values))


def test_two_models_with_the_same_names(build):
    """Both have a region of the same symbol and constants of the same names."""
    modules = [dense_module(seed=1), dense_module(seed=2, rows=5)]
    executors = [build(module) for module in modules]
    for seed in range(2):
        for module, executor in zip(modules, executors, strict=True):
            inputs = placed.values(module, seed)
            placed.same(placed.run(executor, *inputs), placed.expected(module, *inputs))


def test_models_of_all_backends_in_one_process(tmp_path):
    """The libraries stand each other."""
    module = dense_module()
    inputs = placed.values(module)
    wanted = placed.expected(module, *inputs)
    executors = []
    for name in BACKENDS:
        path = placed.export_to(tmp_path / f"{name}.so", placed.place(module, name))
        executors.append(placed.load(path))
    for _ in range(2):
        for executor in executors:
            placed.same(placed.run(executor, *inputs), wanted)


def test_two_threads_with_a_model_each(build):
    modules = [dense_module(rows=17, seed=1), dense_module(rows=9, seed=2)]
    executors = [build(module) for module in modules]
    cases = []
    for module, executor in zip(modules, executors, strict=True):
        inputs = [placed.values(module, seed) for seed in range(3)]
        cases.append((executor, inputs, [placed.expected(module, *one) for one in inputs]))

    def work(executor, inputs, wanted):
        for turn in range(60):
            placed.same(placed.run(executor, *inputs[turn % 3]), wanted[turn % 3])

    in_threads(*(lambda case=case: work(*case) for case in cases))


def test_one_file_in_two_threads(build):
    """Two loaded copies of one model, each in its thread."""
    module = dense_module(rows=11)
    executors = [build(module), placed.load(build.path)]
    inputs = [placed.values(module, seed) for seed in range(2)]
    wanted = [placed.expected(module, *one) for one in inputs]

    def work(number):
        for _ in range(60):
            placed.same(placed.run(executors[number], *inputs[number]), wanted[number])

    in_threads(lambda: work(0), lambda: work(1))


def test_run_and_dropped_in_another_thread(build):
    """A model is loaded here, first run in one thread, then in another, and freed in a third."""
    module = dense_module()
    held = [build(module)]
    inputs = placed.values(module)
    wanted = placed.expected(module, *inputs)
    for _ in range(2):
        in_threads(lambda: placed.same(placed.run(held[0], *inputs), wanted))
    in_threads(held.clear)
    placed.same(placed.run(placed.load(build.path), *inputs), wanted)


def test_more_threads_than_the_model_asked_for(build):
    """Eight callers at once, on a model of two threads."""
    module = dense_module(rows=4)
    build(module)
    executors = [placed.load(build.path) for _ in range(8)]
    inputs = placed.values(module)
    wanted = placed.expected(module, *inputs)

    def work(executor):
        for _ in range(20):
            placed.same(placed.run(executor, *inputs), wanted)

    in_threads(*(lambda executor=executor: work(executor) for executor in executors))
