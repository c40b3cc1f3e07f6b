# SPDX-License-Identifier: Apache-2.0
"""What torch.export saved, written as ONNX: ``python -m collage.pt2 FROM TO``.

A process of its own, without TVM: PyTorch brings an LLVM of its own in (Triton's), and two end the process. Weights go
into a file beside TO. What is wrong is one line on standard error, and the exit code: 3 without torch or onnxscript, 4
for a file that is none of torch.export's, 5 where PyTorch cannot write it.
"""

import contextlib
import sys
import warnings

from . import apart

MISSING, NOT_EXPORTED, NOT_WRITTEN = 3, 4, 5


def convert(source, target):
    """Write ``source`` as ONNX; returns an exit code and what is wrong."""
    try:
        import onnxscript  # noqa: F401
        import torch
    except ImportError as error:
        return MISSING, str(error)
    try:
        program = torch.export.load(source)
    except Exception as error:
        return NOT_EXPORTED, apart.in_short(error)
    try:
        torch.onnx.export(program, (), target, dynamo=True, verbose=False, external_data=True)
    except Exception as error:
        return NOT_WRITTEN, apart.in_short(error)
    return 0, ""


def main():
    """Convert the file that the arguments name."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        code, why = convert(*sys.argv[1:])
    if why:
        print(f"\n{why}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
