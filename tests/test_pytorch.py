# SPDX-License-Identifier: Apache-2.0
"""PyTorch's modules through collage.from_torch and torch.compile(backend="collage"), held against PyTorch itself.

torch is not among the requirements: from_torch is tried with the one that scripts/torch.sh fetches, torch.compile and
torchvision's networks with the one that ``make peers`` has installed, where it has.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SAMPLES, TREE, environment

PEERS = TREE / ".venv-peers" / "bin" / "python"

SETUP = """
import json, logging, os, sys
import numpy as np
import torch
from torch import nn
import collage, collage.pytorch

said = []
class Kept(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())
logging.getLogger("collage").addHandler(Kept())
options = dict(json.loads(sys.argv[1]))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 4)
    def forward(self, x, mask):
        y = torch.where(mask, self.b(torch.relu(self.a(x))), torch.tensor(0.5))
        return self.c(y), y.sum(-1)

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(30, 16), nn.Linear(16, 4)
    def forward(self, words):
        return self.head(self.table(words).mean(1))

torch.manual_seed(0)
cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                    nn.Linear(8 * 16, 10))
cnn(torch.rand(4, 3, 8, 8))
cnn, two, words = cnn.eval(), Two().eval(), Words().eval()
samples = {
    "cnn": (cnn, (torch.rand(1, 3, 8, 8),)),
    "two": (two, (torch.rand(3, 16), torch.rand(3, 32) < 0.5)),
    "words": (words, (torch.randint(0, 30, (2, 7)),)),
}

def flat(outputs):
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]

def off(made, right):
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(flat(made), flat(right)))
"""


def asked(python, program, store, extra=None, timeout=560, **options):
    """The JSON that a program prints last."""
    given = {"backends": ["tvm", "native"], "level": "operator", "search_time": 5, "samples": SAMPLES, "rounds": 2}
    given |= {"threads": 1, "store": str(store), **options}
    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", SETUP + program, json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**environment(), **(extra or {})},
        cwd=Path(store).parent,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def small_torch(collage_library):
    """What the environment is to have for Debian's PyTorch; skips where that cannot be had."""
    folder = TREE / "build" / "test-torch"
    done = subprocess.run(
        [str(TREE / "scripts" / "torch.sh"), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLLAGE_PYTHON": sys.executable},
    )
    if done.returncode == 3:
        pytest.skip(f"torch cannot be had here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    site, libraries = (folder / "environment").read_text().splitlines()
    paths = environment()["PYTHONPATH"]
    return {"PYTHONPATH": f"{site}:{paths}", "LD_LIBRARY_PATH": libraries}


@pytest.fixture(scope="module")
def peers(collage_library):
    if not PEERS.exists():
        pytest.skip("torch is not installed: make peers")
    return PEERS


def test_from_torch(small_torch, store):
    told = asked(
        sys.executable,
        """
result = {}
for name, (module, inputs) in samples.items():
    executable = collage.from_torch(module, inputs, **options)
    given = dict(zip({"cnn": ["input"], "two": ["x", "mask"], "words": ["words"]}[name], inputs))
    with torch.no_grad():
        result[name] = [list(executable.inputs), off(executable.run(given), [o.numpy() for o in flat(module(*inputs))])]
executable = collage.from_torch(cnn, torch.rand(1, 3, 8, 8), out="cnn.tar", **options)
given = {"input": np.ones((1, 3, 8, 8), "f4")}
result["file"] = [str(executable.path), off(collage.load("cnn.tar").run(given), executable.run(given))]
class Noisy(nn.Module):  # whatever mode it is in
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, True)
try:
    collage.from_torch(Noisy().eval(), torch.rand(4, 64), out="noisy.tar", **options)
except collage.CollageError as error:
    result["noisy"] = [str(error), os.path.exists("noisy.tar")]
for call in (lambda: collage.from_torch(cnn.train(), torch.rand(1, 3, 8, 8), **options),
             lambda: collage.from_torch(two, torch.rand(3, 16), **options)):
    try:
        call()
    except collage.CollageError as error:
        result[type(error).__name__] = str(error)
print(json.dumps(result))
""",
        store,
        small_torch,
    )
    assert told["two"][0] == ["mask", "x"] and told["words"][0] == ["words"]
    assert all(told[name][1] < 1e-4 for name in ("cnn", "two", "words")), told
    assert told["file"] == ["cnn.tar", 0]
    # Nothing is left of what computes something else.
    assert "compiled computes something else than PyTorch" in told["noisy"][0] and not told["noisy"][1]
    assert "call its eval() first" in told["InputError"]
    assert "Two cannot be traced" in told["ModelError"]


@pytest.mark.timeout(900)
def test_torch_compile(peers, store):
    told = asked(
        peers,
        """
result = {}
for name, (module, inputs) in samples.items():
    fast = torch.compile(module, backend="collage", options=options)
    twice = tuple(torch.cat([one, one]) for one in inputs)
    with torch.no_grad():
        first = fast(*inputs)
        result[name] = [off(first, module(*inputs)), off(fast(*inputs), module(*inputs))]
        fast(*twice)
        result[name] += [off(fast(*twice), module(*twice))]
    if name == "cnn":
        result["compiled"] = list(said)
        said.clear()
        fast(*inputs)  # with gradients
        result["gradients"] = [one for one in said if "PyTorch" in one]
        with torch.no_grad():
            module[5].weight.mul_(2)
            result["changed"] = off(fast(*inputs), module(*inputs))
        result["weights"] = [one for one in said if "weights" in one]
try:
    torch.compile(cnn, backend="collage", options={"thread": 1})(torch.rand(1, 3, 8, 8))
except Exception as error:
    result["refused"] = str(error)
print(json.dumps(result))
""",
        store,
    )
    for name in ("cnn", "two", "words"):
        assert max(told[name]) < 1e-4, told
    assert not any("stays with PyTorch" in one for one in told["compiled"])
    assert "gradients are asked for" in told["gradients"][0]
    assert told["changed"] < 1e-5 and "its weights are not those any more" in told["weights"][0]
    assert "did you mean threads" in told["refused"]


@pytest.mark.timeout(900)
def test_what_it_cannot_compile_stays_with_pytorch(peers, store):
    told = asked(
        peers,
        """
class Odd(nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x + 4 * torch.eye(16)) + torch.relu(x)

x = torch.rand(16, 16)
with torch.no_grad():
    fast = torch.compile(Odd(), backend="collage", options=options)
    result = {"off": off(fast(x), Odd()(x)), "said": said}
    torch._dynamo.reset()
    try:
        torch.compile(Odd(), backend="collage", options={**options, "strict": True})(x)
    except Exception as error:
        result["strict"] = str(error)
    counts = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))  # training: it counts means
    right = torch.nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
    right.load_state_dict(counts.state_dict())
    right(x)
    torch.compile(counts, backend="collage", options=options)(x)
    result["means"] = off(counts[1].running_mean, right[1].running_mean)
    noisy = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    class Doubles(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return torch.relu(x) + 1
    doubles = torch.compile(Doubles(), backend="collage", options=options)
    given = torch.full((2, 3), 1.0)
    doubles(given)
    result["in place"] = [doubles(given).tolist(), given.tolist()]
    result["training"] = list(torch.compile(noisy, backend="collage", options=options)(x).shape)
print(json.dumps(result))
""",
        store,
    )
    assert told["off"] == 0 and told["training"] == [16, 16]
    assert any("stays with PyTorch" in one and "linalg_inv" in one for one in told["said"]), told
    assert told["means"] < 1e-6
    # Dropout in training, which TVM's importer reads as if it were not.
    assert any("stays with PyTorch: compiled it computes something else" in one for one in told["said"]), told
    assert "linalg_inv" in told["strict"]
    assert told["in place"] == [[[5.0] * 3] * 2, [[4.0] * 3] * 2]
    assert any("changes its inputs in their place" in one for one in told["said"]), told


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "squeezenet1_1"])
def test_networks_of_torchvision(name, peers, store):
    told = asked(
        peers,
        f"""
import torchvision
model = torchvision.models.{name}().eval()
image = torch.rand(1, 3, 224, 224)
with torch.no_grad():
    fast = torch.compile(model, backend="collage", options=options)
    fast(image)
    right = model(image)
    print(json.dumps([off(fast(image), right) / float(right.abs().max()), said]))
""",
        store,
        timeout=1700,
        search_time=60,
    )
    assert told[0] < 1e-3
    assert not any("stays with PyTorch" in one for one in told[1])
