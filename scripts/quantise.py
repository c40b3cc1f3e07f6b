# SPDX-License-Identifier: Apache-2.0
"""Write a built-in network as an ONNX model, and that quantised by ONNX Runtime's own tool: QDQ, weights per channel,
ranges by the least and the greatest of what eight random inputs give.

    python scripts/quantise.py NETWORK FOLDER      -> FOLDER/NETWORK.qdq.onnx, FOLDER/NETWORK.f32.onnx
"""

import os
import sys
import tempfile
from pathlib import Path

from collage import frontends, library, seeded
from collage.peers import onnx_file, program
from onnxruntime import quantization

INPUTS = 8


class Samples(quantization.CalibrationDataReader):
    """What the ranges are of."""

    def __init__(self, inputs):
        self.left = [seeded.inputs(seed, inputs) for seed in range(INPUTS)]

    def get_next(self):
        return self.left.pop() if self.left else None


def main(network, folder):
    library.load()
    model = frontends.load(f"workload:{network}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / f"{network}.f32.onnx"
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        # A file that is there is whole: what was interrupted stays in the temporary folder.
        written, narrow = Path(temporary) / "plain.onnx", Path(temporary) / "narrow.onnx"
        onnx_file.write(program.read(model.module), str(written))
        quantization.quantize_static(
            str(written), str(narrow), Samples(model.inputs), quant_format=quantization.QuantFormat.QDQ,
            per_channel=True, activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
        )  # fmt: skip
        os.replace(written, plain)
        os.replace(narrow, folder / f"{network}.qdq.onnx")


if __name__ == "__main__":
    main(*sys.argv[1:])
