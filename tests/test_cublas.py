# SPDX-License-Identifier: Apache-2.0
"""cuBLASLt's products between TVM's kernels on a card: right, one region, each argument as it should be. What it does
is done by the emulated card's (cuda_emulator/cublas_lt.cc), which refuses what does not fit; where the real one is
installed, what is declared of it is held to its header, and it must have each function.
"""

import ctypes
import json
import re
import subprocess
from importlib import metadata
from pathlib import Path

import emulated_card
import numpy as np
import placed
import pytest
import tvm
from device_networks import by_costs, runs_like_tvm, threads_agree, typed
from tvm import relay

BACKEND, TVM = "cublas", "tvm_cuda"
HEADER = Path(__file__).parent.parent / "byoc" / "runtime" / "cuda_interface" / "cublas_lt.h"


@pytest.fixture(scope="module", autouse=True)
def card(collage_library):
    with emulated_card.present():
        yield
        placed.forget()


def x(*shape, name="x", dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def weight(*shape, dtype="float32"):
    drawn = np.random.default_rng(sum(shape)).standard_normal(shape) / shape[-1] ** 0.5
    return relay.const(drawn.astype(dtype), dtype)


def dense():
    return relay.nn.dense(x(5, 24), weight(16, 24))


def row(length):
    return weight(length)


# Expressions, the composite that each becomes, and what cuBLASLt is asked: by columns, for the transposed result.
TAKEN = {
    "dense": (dense, "dense", "TN 16x5x24 x1 epilogue 1 alpha 1 beta 0"),
    "one row": (lambda: relay.nn.dense(x(1, 24), weight(16, 24)), "dense", "TN 16x1x24 x1 epilogue 1 alpha 1 beta 0"),
    "bias": (lambda: relay.nn.bias_add(dense(), row(16)), "dense_bias", "TN 16x5x24 x1 epilogue 4 alpha 1 beta 0"),
    "bias by add": (lambda: dense() + row(16), "dense_bias", "TN 16x5x24 x1 epilogue 4 alpha 1 beta 0"),
    "rectifier": (lambda: relay.nn.relu(dense()), "dense_relu", "TN 16x5x24 x1 epilogue 2 alpha 1 beta 0"),
    "bias and rectifier": (
        lambda: relay.nn.relu(relay.nn.bias_add(dense(), row(16))),
        "dense_bias_relu",
        "TN 16x5x24 x1 epilogue 6 alpha 1 beta 0",
    ),
    "residual": (lambda: dense() + x(5, 16, name="r"), "dense_sum", "TN 16x5x24 x1 epilogue 1 alpha 1 beta 1"),
    "bias, residual, rectifier": (
        lambda: relay.nn.relu(dense() + row(16) + x(5, 16, name="r")),
        "dense_bias_sum_relu",
        "TN 16x5x24 x1 epilogue 6 alpha 1 beta 1",
    ),
    "scale": (lambda: dense() * relay.const(0.5), "dense_scale", "TN 16x5x24 x1 epilogue 1 alpha 0.5 beta 0"),
    "scale and residual": (
        lambda: dense() / relay.const(4.0) + x(5, 16, name="r"),
        "dense_scale_sum",
        "TN 16x5x24 x1 epilogue 1 alpha 0.25 beta 1",
    ),
    "batch": (
        lambda: relay.nn.batch_matmul(x(3, 5, 24), x(3, 7, 24, name="y")),
        "batch_matmul",
        "TN 7x5x24 x3 epilogue 1 alpha 1 beta 0",
    ),
    "batch with one right side": (
        lambda: relay.nn.batch_matmul(x(3, 5, 24), weight(1, 7, 24)) + row(7),
        "batch_matmul_bias",
        "TN 7x15x24 x1 epilogue 4 alpha 1 beta 0",
    ),
    "batch with one left side": (
        lambda: relay.nn.batch_matmul(x(1, 24, 5), x(3, 24, 7, name="y"), transpose_a=True, transpose_b=False),
        "batch_matmul",
        "NT 7x5x24 x3 epilogue 1 alpha 1 beta 0",
    ),
    "matmul": (
        lambda: relay.nn.matmul(x(24, 5), x(24, 7, name="y"), transpose_a=True),
        "matmul",
        "NT 7x5x24 x1 epilogue 1 alpha 1 beta 0",
    ),
    "float64": (
        lambda: relay.nn.dense(x(5, 24, dtype="float64"), weight(16, 24, dtype="float64")),
        "dense",
        "TN 16x5x24 x1 epilogue 1 alpha 1 beta 0 f64",
    ),
}


def on(module, kept=("exp", "tanh")):
    """The module with all operators but those kept on cuBLAS, these on the card by TVM; and the plan."""
    costs = {BACKEND: 0.01, TVM: 0.02}
    pin = [f"{name}={BACKEND}" for name in placed.counted(module["main"]) if name not in kept]
    return by_costs("cuda", module, lambda key: costs.get(key["backend"], 5.0), pin=pin)


@pytest.mark.parametrize("what", TAKEN)
def test_what_is_taken(what, command, tmp_path):
    """By itself, and between kernels of TVM's that read and write the same memory."""
    make, composite, asked = TAKEN[what]
    for module in (typed(make()), typed(relay.tanh(relay.exp(make())))):
        split, plan = on(module)
        (inside,) = plan["regions"]
        (mine,) = [one for one in inside["candidates"] if one.get("composite")]
        assert mine["composite"] == f"cublas.{composite}"
        assert inside["backend"] == (BACKEND if len(inside["candidates"]) == 1 else f"{BACKEND}+{TVM}")
        runs_like_tvm(module, split, tmp_path)
    log = tmp_path / "log"
    ran = command("run", tmp_path / "model.tar", "--repeat", 1, environment=emulated_card.told(log=log))
    assert ran.returncode == 0, ran.stderr
    assert {line for line in log.read_text().splitlines() if "Matmul" in line} == {f"cublasLtMatmul {asked}"}


def encoder():
    """An encoder's layer, small."""
    from collage import transform
    from collage.workloads.bert import bert_full

    module, params = bert_full(layers=1, tokens=16, units=32, heads=4)
    module["main"] = relay.build_module.bind_params_by_name(module["main"], params)
    return transform.Normalise()(module)


def kept(module):
    """What is no product."""
    return {name for name in placed.counted(module["main"]) if not re.search("dense|matmul", name)}


def test_an_encoder(tmp_path):
    module = encoder()
    split, plan = on(module, kept(module))
    (inside,) = plan["regions"]
    assert inside["backend"] == f"{BACKEND}+{TVM}"
    taken = [one["composite"] for one in inside["candidates"] if one.get("composite")]
    assert len(taken) == 8, taken
    runs_like_tvm(module, split, tmp_path)


def test_a_plan_is_replayed():
    import collage

    module = encoder()
    split, plan = on(module, kept(module))
    assert tvm.ir.structural_equal(split, collage.replay(module, json.dumps(plan)))


def test_several_threads_at_once(tmp_path):
    """One module of calls, which executors of several threads share."""
    module = encoder()
    threads_agree(module, placed.export_to(tmp_path / "model.tar", on(module, kept(module))[0]), turns=4)


def test_what_is_not_taken():
    """Its GELU is another one than Relay's, and products of bytes are not offered."""
    scaled = relay.erf(dense() * relay.const(0.5**0.5)) * relay.const(0.5) + relay.const(0.5)
    _, plan = by_costs("cuda", typed(dense() * scaled), lambda key: 1.0)
    every = [one for region in plan["regions"] for one in region["candidates"]] + plan["candidates"]["rejected"]
    names = {one["composite"] for one in every if one.get("composite")}
    assert names and not any("gelu" in name for name in names)
    _, plan = by_costs(
        "cuda", typed(relay.nn.dense(x(8, 16, dtype="int8"), x(8, 16, name="y", dtype="int8"))), lambda key: 1.0
    )
    refused = [one["reason"] for one in plan["candidates"]["refusals"] if one["backend"] == BACKEND]
    assert any("only float32 and float64 are supported" in one for one in refused), refused


def test_without_the_library(command, tmp_path):
    """A model that needs it says so when it is loaded; --device cuda does without it."""
    archive = placed.export_to(tmp_path / "model.tar", on(typed(dense()))[0])
    lacking = {"COLLAGE_CUBLASLT_LIBRARY": "/nowhere/libcublasLt.so.12"}
    done = command("run", archive, environment=lacking)
    assert done.returncode == 2
    assert "cuBLASLt cannot be opened where COLLAGE_CUBLASLT_LIBRARY says" in done.stderr, done.stderr
    model = tmp_path / "network.json"
    model.write_text(tvm.ir.save_json(typed(dense())))
    arguments = ["plan", model, "--dry-run", "--db", tmp_path / "costs.jsonl"]
    done = command(*arguments, "--backends", f"tvm,{BACKEND}", environment=lacking)
    assert done.returncode == 2 and "cublas cannot be used: COLLAGE_CUBLASLT_LIBRARY is" in done.stderr, done.stderr
    assert "make backends BACKENDS=cublas" in done.stderr
    done = command(*arguments, "--device", "cuda", "--backends", "tvm", environment=lacking)
    assert done.returncode == 0 and TVM in done.stdout and BACKEND not in done.stdout, done.stderr


@pytest.mark.parametrize(
    "text",
    ["", "collage-blas 2\n", "collage-blas 1\ninput 0\noutput 0\n", "GELU"],
)
def test_a_call_that_is_damaged(text):
    from collage import library

    library.install("collage_cuda")
    create = tvm.get_global_func("collage.runtime.cuda.CublasCreate")
    line = "product float32 2 0 1 5 16 24 1 0 0 0 1 1 -1 -1 "
    frame = "collage-blas 1\ninput 0\ninput 1\n{}\noutput 2\n"
    create("call", frame.format(line + "none"))
    with pytest.raises(tvm.TVMError, match="compile the model again"):
        create("call", frame.format(line + "gelu") if text == "GELU" else text)


def installed():
    """The files of the real library, where make backends BACKENDS=cublas was."""
    try:
        files = metadata.files("nvidia-cublas-cu12")
    except metadata.PackageNotFoundError:
        pytest.skip("cuBLAS is not installed (make backends BACKENDS=cublas)")
    return {Path(str(file)).name: Path(file.locate()) for file in files}


def runtime_headers():
    (file,) = [one for one in metadata.files("nvidia-cuda-runtime-cu12") if str(one).endswith("/cuda_runtime_api.h")]
    return Path(file.locate()).parent


def test_what_is_declared_is_nvidias(tmp_path):
    ours = HEADER.read_text()
    functions = re.findall(r"F\((cublas\w+),\s*(\(.*?\))\)\s*(?=F\(|#|$)", ours.replace("\\\n", " "), re.DOTALL)
    numbers = re.findall(r"\b(CU\w+) = (\d+)", ours)
    assert len(functions) == 12 and len(numbers) > 14
    files = installed()
    library = ctypes.CDLL(str(files["libcublasLt.so.12"]))
    lines = ['#include "cublasLt.h"', "#include <cstddef>", "#include <type_traits>"]
    # Theirs has const in front of what is not changed, which the calling convention does not know.
    lines += ["template <typename T> struct Plain { using type = T; };"]
    lines += ["template <typename T> struct Plain<const T*> { using type = T*; };"]
    lines += ["template <typename R, typename... A> auto Of(R (*)(A...)) -> R (*)(typename Plain<A>::type...);"]
    for name, parameters in functions:
        getattr(library, name)
        parameters = re.sub(r"\bCUstream\b", "cudaStream_t", parameters)
        lines += [f"cublasStatus_t ours_{name}{parameters};"]
        lines += [f"static_assert(std::is_same_v<decltype(Of(&{name})), decltype(Of(&ours_{name}))>);"]
    lines += [f"static_assert({name} == {number});" for name, number in numbers]
    for field in ("algo", "workspaceSize", "state", "wavesCount", "reserved"):
        lines += [f"static_assert(offsetof(cublasLtMatmulHeuristicResult_t, {field}) == {OFFSETS[field]});"]
    lines += [f"static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == {OFFSETS['end']});"]
    (tmp_path / "check.cc").write_text("\n".join(lines))
    headers = {str(file.parent) for name, file in files.items() if name == "cublasLt.h"}
    # Of the compiler's own headers, which are in another package, only names that say nothing here are used.
    (tmp_path / "crt").mkdir()
    names = ("CUDARTAPI", "CUDARTAPI_CDECL", "__device_builtin__", "__cudart_builtin__", "__host__", "__device__")
    empty = [f"#define {name}" for name in names] + ["#define __builtin_align__(n)", "#define __align__(n)"]
    (tmp_path / "crt" / "host_defines.h").write_text("\n".join([*empty, "#define __device_builtin_texture_type__"]))
    (tmp_path / "cuda_fp16.h").write_text("struct __half; struct __half2;")
    (tmp_path / "cuda_bf16.h").write_text("struct __nv_bfloat16; struct __nv_bfloat162;")
    folders = [f"-I{folder}" for folder in (tmp_path, *headers, runtime_headers())]
    compiling = ["g++", "-std=c++17", "-fsyntax-only", *folders, tmp_path / "check.cc"]
    done = subprocess.run(compiling, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


OFFSETS = {"algo": 0, "workspaceSize": 64, "state": 72, "wavesCount": 76, "reserved": 80, "end": 96}
