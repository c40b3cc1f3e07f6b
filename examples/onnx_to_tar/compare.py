# SPDX-License-Identifier: Apache-2.0
"""Compares y.npz, which `collage run` wrote, with wanted.npz."""

import numpy as np

with np.load("y.npz") as got, np.load("wanted.npz") as wanted:
    difference = np.abs(got["output_0"] - wanted["arr_0"]).max()
print(f"largest difference to ONNX's reference: {difference:.1e}")
assert difference < 1e-5
