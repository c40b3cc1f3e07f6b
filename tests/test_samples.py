# SPDX-License-Identifier: Apache-2.0
"""Samples of calibration data, as workers read them."""

import itertools

import numpy as np
import pytest
from collage import compare

TYPES = {"x": ((1, 4), "float32")}


@pytest.fixture
def files(tmp_path):
    """Three files with five samples each, whose numbers tell them apart."""
    paths = []
    for i in range(3):
        paths.append(str(tmp_path / f"{i}.npz"))
        np.savez(paths[-1], x=np.arange(20, dtype="float32").reshape(5, 1, 4) + 100 * i)
    return paths


@pytest.mark.parametrize(("room", "reads"), [(1 << 20, 3), (3 * 16, 10), (0, 15)])
def test_a_file_is_read_once_as_far_as_there_is_room(files, monkeypatch, room, reads):
    """Where each input is of another file than the one before, too."""
    order = [[path, number] for number, path in itertools.product(range(5), files)]
    loaded, load = [], np.load
    monkeypatch.setattr(np, "load", lambda path: loaded.append(path) or load(path))
    monkeypatch.setattr(compare, "_KEPT", room)
    got = [values["x"] for values in compare.samples(order, TYPES)]
    assert len(loaded) <= reads
    assert room or len(loaded) == reads
    for (path, number), x in zip(order, got, strict=True):
        np.testing.assert_array_equal(x, np.arange(4, dtype="float32")[None] + 4 * number + 100 * files.index(path))


def test_random_samples_stand_between(files):
    order = [[files[0], 0], 7, [files[1], 2], [files[0], 4], [files[0], 4]]
    got = [values["x"].copy() for values in compare.samples(order, TYPES)]
    np.testing.assert_array_equal(got[1], compare.sample(7, TYPES)["x"])
    assert [x[0, 0] for x in got[:1] + got[2:]] == [0, 108, 16, 16]
