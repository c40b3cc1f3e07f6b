# SPDX-License-Identifier: Apache-2.0
"""Products of bytes by AVX-512 VNNI, where LLVM takes them otherwise than TVM gives them.

TVM 0.19's schedules for uint8 by int8 hand LLVM's intrinsic vectors of 32-bit numbers. LLVM 22 wants them as bytes, and
ends the process (an assertion in CallInst::init) where they are not. What goes out of here are the same vectors, seen
as bytes, wherever Python code of TVM's asks for that intrinsic.
"""

import functools

import tvm
from tvm import tir

_INTRINSIC = "llvm.x86.avx512.vpdpbusd.512"
_WANTS_BYTES = 22  # the first version of LLVM that does


def _seen_as_bytes(call):
    @functools.wraps(call)
    def made(dtype, name, *args, **options):
        if name == _INTRINSIC:
            # How many arguments there are, the sums, and the two sides.
            args = (*args[:2], *(tir.call_intrin("int8x64", "tir.reinterpret", side) for side in args[2:]))
        return call(dtype, name, *args, **options)

    return made


if (tvm.target.codegen.llvm_version_major(allow_none=True) or 0) >= _WANTS_BYTES:
    tir.call_llvm_pure_intrin = _seen_as_bytes(tir.call_llvm_pure_intrin)
