# SPDX-License-Identifier: Apache-2.0
"""Our kernel for regions that say themselves how many samples they take, in the place of TVM's own."""

import grid
import numpy as np
import pytest
import tvm
from collage import library
from tvm import relay


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_it_gives_what_theirs_gives_that_is_told_the_number_of_samples(collage_library, mode):
    """Of regions that take as many, within the image or not."""
    library.load()
    x, r = relay.var("x", shape=(2, 5, 12, 16)), relay.var("r", shape=(4, 5))
    for samples in (2, 40):
        ends = np.array([[0, 1, 2], [1, -3, -70], [1, 15, 11], [0, -90, 4]], "float32")
        regions = np.concatenate([ends, ends[:, 1:] + np.array([2, 3]) * (samples - 0.25)], 1).astype("float32")
        values = {"x": np.random.default_rng(0).standard_normal((2, 5, 12, 16)).astype("float32"), "r": regions}
        ours, theirs = (relay.vision.roi_align(x, r, (3, 2), 1.0, taken, mode=mode) for taken in (0, samples))
        module = tvm.IRModule.from_expr(relay.Function([x, r], relay.Tuple([ours, theirs])))
        got, wanted = grid.run(module, values)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
