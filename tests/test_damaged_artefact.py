# SPDX-License-Identifier: Apache-2.0
"""Exported models of which bytes were changed on the way.

What a damaged region says of itself is refused with a line that a user understands. Its weights are taken as
they are: the model runs, on other numbers. Nothing ends the process, or hangs. (What TVM itself reads of a
model, its graph and the frame around the modules, is TVM's to check, and is left alone here.)
"""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import placed
import pytest
from conftest import PACKAGE, environment
from test_border import module_of, weight
from tvm import relay

BACKENDS = [name for name in placed.with_regions_of_their_own() if name != "dnnl_tvm"]
FORMAT = b"CLGERGN3"
RUNNER = Path(__file__).with_name("damaged_artefact_runner.py")

pytestmark = [
    pytest.mark.usefixtures("collage_library"),
    pytest.mark.skipif(not BACKENDS, reason="no backend beside TVM can be used here"),
]


def network():
    """Two dense layers: every backend takes them."""
    x = relay.var("x", shape=(4, 48))
    y = relay.nn.relu(relay.nn.dense(x, weight(64, 48, seed=1)))
    return module_of(relay.nn.relu(relay.nn.dense(y, weight(32, 64, seed=2))), x)


@pytest.fixture(scope="module", params=BACKENDS)
def exported(request, tmp_path_factory):
    """{suffix: an exported model} with regions of the backend, in each of the two forms."""
    folder = tmp_path_factory.mktemp(request.param)
    module = placed.place(network(), request.param)
    assert placed.regions(module), f"{request.param} takes nothing of the network"
    return {suffix: placed.export_to(folder / f"model{suffix}", module).read_bytes() for suffix in (".so", ".tar")}


def parts(model):
    """The byte ranges of the first region in a model's file: (what it says of itself, its weights)."""
    begin = model.index(FORMAT)
    at = begin + 8

    def number():
        nonlocal at
        at += 8
        return struct.unpack_from("<Q", model, at - 8)[0]

    def skip_types():
        nonlocal at
        weights = 0
        for _ in range(number()):
            bits = model[at + 1]
            at += 4
            elements = int(np.prod([number() for _ in range(number())], dtype=np.int64))
            weights += (elements * bits // 8 + 63) // 64 * 64
        return weights

    for _ in ("symbol", "program"):
        size = number()
        at += size
    skip_types()
    skip_types()
    number()  # the seal
    weights = skip_types()
    gap = number()
    number()
    assert gap < 64 and weights > 0, "the region is not read as it was written"
    return range(begin, at), range(at + gap, at + gap + weights)


def changed(model, position, bit):
    damaged = bytearray(model)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


def outcomes(files, timeout):
    """What became of each file: (word, text). The runner must come to its end."""
    result = subprocess.run(
        [sys.executable, str(RUNNER), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
    )
    lines = [line.split(" ", 2) for line in result.stdout.splitlines() if line[:1].isdigit()]
    last = files[int(lines[-1][0])] if lines else "the beginning"
    assert result.returncode == 0, f"died ({result.returncode}) at {last}: {result.stderr[-800:]}"
    return [(line[1], line[2] if len(line) > 2 else "") for line in lines if line[1] != "begun"]


def try_changes(exported, suffix, count, tmp_path, seed):
    """Changes a bit at `count` places of the region, and at as many of its weights, and runs the models."""
    model = exported[suffix]
    said, weights = parts(model)
    rng = np.random.default_rng(seed)
    files = []
    for where in (said, weights):
        for position in rng.choice(len(where), count, replace=False):
            files.append(tmp_path / f"{len(files)}_{where[int(position)]}{suffix}")
            files[-1].write_bytes(changed(model, where[int(position)], int(rng.integers(8))))
    whole = tmp_path / f"whole{suffix}"
    whole.write_bytes(model)
    told = outcomes([whole, *files], timeout=60 + 20 * len(files))
    assert len(told) == len(files) + 1
    assert told[0][0] == "ran", told[0]
    for file, (word, text) in zip(files[:count], told[1:], strict=False):
        assert word == "refused", f"{file} runs although its program was changed"
        assert "compile the model again" in text, (file, text)
    for file, (word, text) in zip(files[count:], told[count + 1 :], strict=True):
        assert word == "ran" or text, f"{file} was refused without a word"


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_changed_bytes_are_refused_or_run(exported, suffix, tmp_path):
    try_changes(exported, suffix, 4, tmp_path, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_many_changed_bytes_are_refused_or_run(exported, suffix, tmp_path):
    try_changes(exported, suffix, 60, tmp_path, seed=2)


def collage_run(path):
    return subprocess.run(
        [str(PACKAGE / "bin" / "collage"), "run", str(path), "--repeat", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
    )


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_collage_run_says_in_one_line_that_a_program_is_damaged(exported, suffix, tmp_path):
    said, _ = parts(exported[suffix])
    path = tmp_path / f"model{suffix}"
    path.write_bytes(exported[suffix])
    assert collage_run(path).returncode == 0
    path.write_bytes(changed(exported[suffix], said[len(said) // 2], 3))
    result = collage_run(path)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "the file is damaged; compile the model again" in result.stderr


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_collage_run_says_in_one_line_that_a_file_is_cut_short(exported, suffix, tmp_path):
    model = exported[suffix]
    path = tmp_path / f"model{suffix}"
    said, weights = parts(model)
    # Behind its members an archive has zeros, which nobody misses.
    most = weights[-1] if suffix == ".tar" else len(model) * 9 // 10
    for size in (100, said[0], weights[0], most):
        path.write_bytes(model[:size])
        result = collage_run(path)
        assert result.returncode == 2, (size, result.returncode, result.stderr)
        assert len(result.stderr.strip().splitlines()) == 1, (size, result.stderr)
