# SPDX-License-Identifier: Apache-2.0
"""Real inputs that a program has at hand, as the files that Go reads (pass.samplesOf).

In: an iterable of inputs: {name: array}, or arrays in the order of the network's inputs (a list or tuple, of which what
is too many is left out: a label, say), or one array; PyTorch's tensors and DataLoaders are such, too. Out: a folder of
.npz files.
"""

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from . import errors

# Of what is iterated over so many are written, which is all that Go takes: an iterable may have no end.
MOST = 16 + 256


@contextlib.contextmanager
def as_path(data, names):
    """The path of what ``data`` says: itself where it is one, else a folder that is gone afterwards. ``names`` are the
    network's inputs. Raises ValueError for what is no input.
    """
    if isinstance(data, (str, os.PathLike)) or data is None:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="collage-calibration-") as folder:
        count = 0
        for sample in data:
            np.savez(Path(folder) / f"{count:03d}.npz", **_named(sample, names, count))
            count += 1
            if count == MOST:
                break
        if not count:
            raise errors.OptionError("calibration: the iterable gives nothing", option="calibration")
        yield folder


def _named(sample, names, number):
    if not isinstance(sample, Mapping):
        values = list(sample) if isinstance(sample, (list, tuple)) else [sample]
        if len(values) < len(names):
            raise errors.OptionError(
                f"calibration: item {number} has {len(values)} arrays, "
                f"the network {len(names)} inputs: {', '.join(names)}",
                option="calibration",
            )
        sample = dict(zip(names, values, strict=False))
    return {name: _array(value) for name, value in sample.items()}


def _array(value):
    if hasattr(value, "detach"):  # PyTorch's
        value = value.detach().cpu()
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
