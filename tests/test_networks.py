# SPDX-License-Identifier: Apache-2.0
"""Whole networks, the paper's five and three that come with the onnx package, with each backend that is
installed alone and with all of them together: counts of what is offloaded, and TVM's outputs from Python,
from `collage run` and from `tvmc run`.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import placed
import pytest
import tvm
from collage import frontends, transform, workloads
from conftest import environment
from tvm import relay

BACKENDS = placed.with_regions_of_their_own()
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
GRAPHS = ("light_squeezenet", "light_shufflenet", "light_resnet50")
NETWORKS = (*workloads.PAPER, *GRAPHS)
# tvmc takes seconds to start: it is asked about networks of few weights.
SMALL = ("bert_full", "light_squeezenet")
# Operators that are pinned to each backend where all of them share a network; to a library of products one.
PINNED = 2

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    pytest.mark.skipif(not BACKENDS, reason="no backend beside TVM can be used here"),
]

# What backends leave to TVM, as operators of the normalised form: whole networks are taken by those that run
# regions of any size; TVM's runtime for oneDNN leaves what the library has no primitive for.
LEFT_BY_DNNL_TVM = {
    "bert_full": {
        "mean": 32, "subtract": 16, "multiply": 16, "variance": 16, "add": 32, "divide": 24, "reshape": 176,
        "transpose": 56,
    },
    "dcgan": {"reshape": 2, "nn.upsampling": 2},
    "nasneta": {"concatenate": 17},
    "resnet50_3d": {},
    "resnext50_32x4d": {},
    "light_squeezenet": {"concatenate": 8, "reshape": 2},
    "light_shufflenet": {"add": 33, "multiply": 32, "reshape": 33, "transpose": 16, "concatenate": 3},
    "light_resnet50": {"reshape": 1},
}  # fmt: skip
TAKES_ALL = ("dnnl", "openvino", "onnxruntime")
# Libraries of matrix products take these with the sums that hang on them; a network that is not here has no
# product, and is TVM's as a whole.
BLAS = ("mkl", "openblas")
TAKEN_BY_BLAS = {
    "bert_full": {"nn.dense": 48, "nn.batch_matmul": 16, "add": 48},
    "dcgan": {"nn.dense": 2, "add": 2},
    "light_shufflenet": {"nn.dense": 1, "add": 1},
    "light_resnet50": {"nn.dense": 1, "add": 1},
}


def stated(network, backend):
    """What a backend is to take of a network: {operator: how often}."""
    there = placed.counted(network.module["main"])
    if backend in BLAS:
        return Counter(TAKEN_BY_BLAS.get(network.name, {}))
    if backend in TAKES_ALL:
        return there
    assert backend == "dnnl_tvm", f"say above what {backend} leaves to TVM of each network"
    return there - Counter(LEFT_BY_DNNL_TVM[network.name])


class _Weights(relay.ExprMutator):
    """Random weights in the place of those that come with the graphs, which are all the same number."""

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(7)

    def visit_constant(self, const):
        array = const.data.numpy()
        if array.size < 16 or array.dtype != "float32":
            return const
        inner = int(np.prod(array.shape[1:])) if array.ndim > 1 and array.shape[0] > 1 else 100
        drawn = self.rng.standard_normal(array.shape, dtype="float32") * np.float32(np.sqrt(2 / inner))
        return relay.const(drawn, "float32")


def normalised(name):
    if name not in GRAPHS:
        return transform.Normalise()(frontends.load(f"workload:{name}").module)
    module = transform.Normalise()(frontends.load(LIGHT / f"{name}.onnx").module)
    module["main"] = _Weights().visit(module["main"])
    return relay.transform.InferType()(module)


class Network:
    """A network with its inputs and plain TVM's outputs, for all backends."""

    def __init__(self, name):
        self.name = name
        self.module = normalised(name)
        self.inputs = placed.values(self.module, seed=11)
        self.names = [var.name_hint for var in self.module["main"].params]
        self.expected = placed.expected(self.module, *self.inputs)
        # Equal numbers would be right whatever was mixed up (one network's result is one number).
        assert all(np.ptp(value) > 0 for value in self.expected if value.size > 1)

    def same(self, outputs):
        # Sums of a thousand products, one upon the other through fifty layers.
        placed.same(outputs, self.expected, rtol=1e-3, share=1e-4)


# One stands for all in `make test`.
PARAMETERS = [name if name == "light_squeezenet" else pytest.param(name, marks=pytest.mark.long) for name in NETWORKS]


@pytest.fixture(scope="module", params=PARAMETERS)
def network(request, collage_library):
    """One network after the other, each held only while it is tested."""
    yield Network(request.param)
    placed.forget()


def run_everywhere(network, split, command, folder, tvmc):
    """The placed network gives TVM's outputs from Python, `collage run` and, where asked for, tvmc."""
    archive = placed.export_to(folder / "model.tar", split)
    network.same(placed.run(placed.load(archive), *network.inputs))
    np.savez(folder / "x.npz", **dict(zip(network.names, network.inputs, strict=True)))
    told = command(
        "run",
        archive,
        "--inputs",
        folder / "x.npz",
        "--outputs",
        folder / "y.npz",
        "--repeat",
        1,
        "--warmup",
        0,
    )
    assert told.returncode == 0, told.stderr
    network.same(outputs(folder / "y.npz"))
    if tvmc:
        arguments = ["run", "--inputs", "x.npz", "--outputs", "z.npz", str(archive)]
        told = subprocess.run(
            [sys.executable, "-m", "tvm.driver.tvmc", *arguments],
            cwd=folder, capture_output=True, text=True, env=environment(PYTHONPATH=""), timeout=300,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr
        network.same(outputs(folder / "z.npz"))
    archive.unlink()  # hundreds of megabytes


def outputs(path):
    with np.load(path) as archive:
        return [archive[f"output_{index}"] for index in range(len(archive.files))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_backend(network, backend, command, tmp_path):
    split = placed.place(network.module, backend)
    taken, wanted = placed.offloaded(split), stated(network, backend)
    assert taken == wanted, f"too many: {taken - wanted}, missing: {wanted - taken}"
    if wanted:
        run_everywhere(network, split, command, tmp_path, network.name in SMALL)
    else:
        assert tvm.ir.structural_equal(split["main"], network.module["main"], map_free_vars=True)


def covered(network, backend):
    """{index: operator} of what a backend takes when it gets all that it can."""
    ask = tvm.get_global_func("collage.partition")
    _, plan = ask(network.module, transform.configuration(only=backend, threads=placed.THREADS))
    return {
        node["index"]: node.get("operator", "")
        for region in json.loads(str(plan))["regions"]
        if region["backend"] == backend
        for part in region["candidates"]
        for node in part["nodes"]
    }


def shares(network):
    """{backend: indices}: some convolutions and products for each backend, none for two."""
    heavy = ("nn.conv", "nn.dense", "nn.batch_matmul")
    takes = {
        backend: sorted(index for index, name in covered(network, backend).items() if name.startswith(heavy))
        for backend in BACKENDS
    }
    chosen, taken = {}, set()
    # The choosy ones first: what they take is taken by the others, too.
    for backend in sorted(BACKENDS, key=lambda name: (len(takes[name]), name)):
        free = [index for index in takes[backend] if index not in taken]
        pinned = 1 if backend in BLAS else PINNED
        step = max(1, len(free) // pinned)
        chosen[backend] = free[::step][:pinned]
        taken.update(chosen[backend])
    return {backend: indices for backend, indices in chosen.items() if indices}


# One of them in `make test`: it is on four backends at once.
TOGETHER = [name if name == "bert_full" else pytest.param(name, marks=pytest.mark.long) for name in NETWORKS]


@pytest.mark.skipif(len(BACKENDS) < 2, reason="one backend is not together with another")
@pytest.mark.parametrize("network", TOGETHER, indirect=True)
def test_all_backends_together(network, command, store, tmp_path):
    wanted = shares(network)
    # Where there is one product, one of the libraries of products gets it; where there is none, neither.
    products = stated(network, BLAS[0])["nn.dense"] + stated(network, BLAS[0])["nn.batch_matmul"]
    blas = [backend for backend in BLAS if backend in BACKENDS]
    assert set(wanted) == (set(BACKENDS) - set(BLAS)) | set(blas[:products])
    pinned = {index for indices in wanted.values() for index in indices}
    pins = [f"%{index}={backend}" for backend, indices in wanted.items() for index in indices]
    pins += [f"%{index}=tvm" for index in covered(network, "tvm") if index not in pinned]
    options = json.loads(
        transform.configuration(
            ["tvm", *BACKENDS], store=store, threads=placed.THREADS, samples=1, pin=pins, level="operator"
        )
    )
    # So much for each candidate that the fewest win, whatever they cost: little needs to be measured.
    options["overhead_ms"] = 1e5
    split, plan = tvm.get_global_func("collage.partition")(network.module, json.dumps(options))
    operators = {entry["name"]: entry["operators"] for entry in json.loads(str(plan))["backends"]}
    for backend, indices in wanted.items():
        assert operators[backend] == len(indices)
    run_everywhere(network, split, command, tmp_path, network.name in SMALL)
