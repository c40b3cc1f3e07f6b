# SPDX-License-Identifier: Apache-2.0
"""TorchScript files: traced by torch, compiled and run by Collage, with torch's outputs.

torch is not among the requirements. ``scripts/torch.sh`` fetches Debian's into build/test-torch, which is put
on the paths of the processes that need it.
"""

import os
import subprocess
import sys
from dataclasses import replace

import documents
import numpy as np
import pytest
from conftest import SAMPLES, TREE, environment, fetched
from document_runner import Runner

# Writes NAME.pt, NAME.npz (inputs by name) and NAME.expected.npz (torch's outputs) for each network.
TRACE = """
import sys
import numpy as np
import torch
from torch import nn

class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(12, 20)
        self.right = nn.Linear(8, 20, bias=False)
    def forward(self, first, second):
        both = torch.tanh(self.left(first)) * torch.sigmoid(self.right(second))
        return torch.softmax(both, -1), both.sum(-1)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(30, 16)
        self.head = nn.Linear(16, 4)
    def forward(self, words):
        return self.head(self.table(words).mean(1))

class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(24).half())
    def forward(self, x):
        return x * self.scale + x

class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 8)
    def forward(self, x, mask, words):
        return torch.where(mask, x, self.table(words))

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)
    def forward(self, x, mask):
        return self.head(x).masked_fill(mask, -1e4)

class Four(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(9, 8) for _ in range(4)])
    def forward(self, a, b, c, d):
        return sum(table(one) for table, one in zip(self.tables, (a, b, c, d)))

torch.manual_seed(0)
cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.Hardswish(), nn.AdaptiveAvgPool2d(1),
                    nn.Flatten(), nn.Linear(16, 10), nn.LogSoftmax(1))
mlp = nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.LayerNorm(48), nn.Dropout(0.5), nn.Linear(48, 5))
networks = {
    "cnn": (cnn, {"input": torch.rand(2, 3, 16, 16)}),
    "mlp": (mlp, {"input": torch.rand(4, 24)}),
    "branches": (Branches(), {"first": torch.rand(3, 12), "second": torch.rand(3, 8)}),
    "words": (Words(), {"words": torch.randint(0, 30, (2, 7))}),
    "mixed": (Mixed(), {"x": torch.rand(3, 8), "mask": torch.rand(3, 8) < 0.4, "words": torch.randint(0, 9, (3,))}),
    "half": (Half(), {"x": torch.rand(4, 24).half()}),
    "masked": (Masked(), {"x": torch.rand(3, 8), "mask": torch.rand(3, 8) < 0.4}),
    "four": (Four(), {name: torch.randint(0, 9, (3,)) for name in "abcd"}),
}
# As after training: running means are not 0.
cnn.train()(torch.rand(4, 3, 16, 16))
folder = sys.argv[1]
for name, (network, inputs) in networks.items():
    network.eval()
    script = torch.jit.trace(network, tuple(inputs.values()))
    script.save(f"{folder}/{name}.pt")
    outputs = network(*inputs.values())
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    np.savez(f"{folder}/{name}.npz", **{key: value.numpy() for key, value in inputs.items()})
    np.savez(f"{folder}/{name}.expected.npz", *[value.detach().numpy() for value in outputs])
lacking = torch.jit.trace(lambda x: torch.linalg.svdvals(x), torch.rand(4, 4))
lacking.save(f"{folder}/lacking.pt")
"""
INPUTS = {
    "cnn": ["input:2,3,16,16"],
    "mlp": ["input:4,24"],
    "branches": ["first:3,12", "second:3,8"],
    "words": ["words:2,7"],
    "mixed": ["x:3,8", "mask:3,8", "words:3"],
    "half": ["x:4,24"],
    "masked": ["x:3,8", "mask:3,8"],
    "four": ["a:3", "b:3", "c:3", "d:3"],
}


@pytest.fixture(scope="session")
def torch_environment():
    """What a process needs in its environment to import torch beside TVM."""
    folder = TREE / "build" / "test-torch"
    fetched("torch.sh", folder, "torch cannot be had here")
    site, libraries = (folder / "environment").read_text().splitlines()
    paths = os.pathsep.join((environment()["PYTHONPATH"], site))
    return {"PYTHONPATH": paths, "LD_LIBRARY_PATH": libraries}


@pytest.fixture(scope="module")
def traced(torch_environment, tmp_path_factory):
    """A folder with the networks, their inputs and outputs."""
    folder = tmp_path_factory.mktemp("torch")
    made = subprocess.run(
        [sys.executable, "-c", TRACE, str(folder)],
        capture_output=True,
        text=True,
        env={**environment(), **torch_environment},
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    return folder


def shapes(name):
    return [argument for shape in INPUTS[name] for argument in ("--input-shape", shape)]


@pytest.mark.long
@pytest.mark.parametrize("name", INPUTS)
def test_outputs_are_those_of_torch(command, store, torch_environment, traced, tmp_path, name):
    arguments = [
        "-o",
        "model.tar",
        "--db",
        store,
        "-v",
        "--level",
        "operator",
        "--repeat",
        SAMPLES,
        "--rounds",
        2,
    ]
    compiled = command(
        "compile",
        traced / f"{name}.pt",
        *shapes(name),
        *arguments,
        cwd=tmp_path,
        environment=torch_environment,
    )
    assert compiled.returncode == 0, compiled.stderr
    assert "TVM read the model right: PyTorch " in compiled.stdout
    # Nothing of torch is needed any more.
    ran = command("run", "model.tar", "--inputs", traced / f"{name}.npz", "--outputs", "y.npz", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "y.npz") as got, np.load(traced / f"{name}.expected.npz") as wanted:
        assert len(got.files) == len(wanted.files)
        for index, key in enumerate(wanted.files):
            near = {"rtol": 5e-3, "atol": 5e-3} if wanted[key].dtype == "float16" else {"rtol": 1e-4, "atol": 1e-5}
            assert got[f"output_{index}"].dtype == wanted[key].dtype
            np.testing.assert_allclose(got[f"output_{index}"], wanted[key], **near)


# A network that runs with one combination of types alone, for each of those that there are of two inputs.
TYPES = """
import itertools
import torch
from collage import frontends

class Network:
    def __init__(self, wanted, parameters=torch.float32):
        self.wanted, self.kind = wanted, parameters
    def __call__(self, *given):
        if [str(one.dtype) for one in given] != [f"torch.{kind}" for kind in self.wanted]:
            raise RuntimeError("other types")
    def parameters(self):
        return [torch.zeros(2, dtype=self.kind)]

shapes = {"x": (2, 3), "y": (4,)}
for wanted in itertools.product(("float32", "float16", "int64", "int32", "bool"), repeat=2):
    if set(wanted) != {"float32", "float16"}:  # an input of each nobody tries
        found = frontends._input_types(Network(wanted), shapes)
        assert tuple(found.values()) == wanted, (wanted, found)
assert set(frontends._input_types(Network(()), shapes).values()) == {"float32"}
assert set(frontends._input_types(Network((), torch.float16), shapes).values()) == {"float16"}
Any = type("Any", (Network,), {"__call__": lambda *_: None})
assert set(frontends._input_types(Any(()), shapes).values()) == {"float32"}
"""


@pytest.mark.long
def test_types_are_those_with_which_it_runs(torch_environment):
    paths = {**environment(), **torch_environment}
    ran = subprocess.run([sys.executable, "-c", TYPES], capture_output=True, text=True, env=paths, timeout=600)
    assert ran.returncode == 0, ran.stderr


def refused(result, *said):
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    for text in said:
        assert text in result.stderr


@pytest.mark.long
def test_what_is_refused(command, torch_environment, traced, tmp_path):
    """Shapes are asked for by name; what the importer lacks, and what is no TorchScript, is told so."""

    def compiled(file, *arguments):
        return command("compile", file, *arguments, "-o", "m.tar", "-q", cwd=tmp_path, environment=torch_environment)

    refused(compiled(traced / "cnn.pt"), "cnn.pt", "--input-shape input")
    refused(compiled(traced / "cnn.pt", "--input-shape", "x:1"), "no input 'x'", "input")
    refused(compiled(traced / "cnn.pt", "--input-shape", "input:2,4,16,16"), "cnn.pt")
    refused(compiled(traced / "lacking.pt", "--input-shape", "x:4,4"), "lacking.pt", "linalg_svdvals")
    (tmp_path / "noise.pt").write_bytes(b"PK\x03\x04" + bytes(200))
    refused(compiled(tmp_path / "noise.pt"), "noise.pt is not a TorchScript model")
    assert os.listdir(tmp_path) == ["noise.pt"]


# A module that has TVM's importer leave an operator out.
WRONG = """
from tvm.relay.frontend import pytorch
pytorch.PyTorchOpConverter.gelu = lambda self, inputs, types: inputs[0]
"""


@pytest.mark.long
def test_the_first_operator_that_is_read_wrong_is_named(command, torch_environment, traced, tmp_path):
    (tmp_path / "wrong_gelu.py").write_text(WRONG)
    paths = os.pathsep.join((torch_environment["PYTHONPATH"], str(tmp_path)))
    with_it = {**torch_environment, "PYTHONPATH": paths, "COLLAGE_REGISTER": "wrong_gelu"}
    arguments = ["-o", "m.tar", "-q", "--level", "operator"]
    result = command("compile", traced / "mlp.pt", *shapes("mlp"), *arguments, cwd=tmp_path, environment=with_it)
    refused(result, "mlp.pt: TVM computes something else than PyTorch ", "--no-check-import")
    assert ". The first operator that differs is the aten::gelu that makes " in result.stderr


# What is changed in place behind an operator is not what this made. TVM's importer does not see that views are changed.
IN_PLACE = """
import sys
import torch
from torch import nn
from collage import difference

class Changed(nn.Module):
    def __init__(self, view):
        super().__init__()
        self.view = view
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 5)
    def forward(self, x):
        y = torch.relu_(self.first(x) + 0.5)
        half = y[:, :4]
        if self.view:
            half.add_(half)
        return self.second(y), half + half

for view, named in ((False, None), (True, "aten::linear")):
    path = f"{sys.argv[1]}/changed.pt"
    torch.manual_seed(0)
    torch.jit.trace(Changed(view), torch.rand(3, 6)).save(path)
    found = difference.first(path, {"x": (3, 6)}, None, form="torchscript")
    assert (found and found["operator"]) == named, found
"""


@pytest.mark.long
def test_operators_in_place(torch_environment, tmp_path):
    paths = {**environment(), **torch_environment}
    told = [sys.executable, "-c", IN_PLACE, str(tmp_path)]
    ran = subprocess.run(told, capture_output=True, text=True, env=paths, timeout=600)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("file, needs", [("model.pt", "needs torch"), ("model.pt2", "needs torch and onnxscript")])
def test_without_torch_it_is_said(command, tmp_path, file, needs):
    """The file is not looked at: there is nothing that could read it."""
    try:
        import torch  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("torch is installed here")
    (tmp_path / file).write_bytes(b"PK\x03\x04")
    refused(command("compile", file, "-o", "m.tar", "-q", cwd=tmp_path), file, needs, "ONNX")


@pytest.mark.long
def test_blocks_of_from_pytorch_run_as_they_stand(torch_environment, tmp_path):
    """docs/from-pytorch.md: its Python is one program, which writes what its commands compile."""
    blocks = [block for block in documents.read("docs/from-pytorch.md").blocks if block.run_by]
    runner = Runner(tmp_path)
    runner.environment.update(torch_environment)
    program = "".join(block.text for block in blocks if block.language == "python")
    runner.run(replace(blocks[0], text=program))
    assert {path.name for path in tmp_path.iterdir()} >= {"model.onnx", "model.pt"}
    for block in blocks:
        if block.language == "sh":
            runner.run(block)
    assert (tmp_path / "model.tar").exists()
