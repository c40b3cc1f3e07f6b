// SPDX-License-Identifier: Apache-2.0
//
// Which vector instructions kernels of our own use: decided once for the process, here and nowhere else.
//
// Kernels are compiled once for each level that they know and choose among their variants when they are made,
// never in an inner loop. What a kernel has no variant for, it does by the next lower one, or it says that it
// cannot run.
#ifndef COLLAGE_INSTRUCTION_SET_H_
#define COLLAGE_INSTRUCTION_SET_H_

#include "collage_runtime.h"

// Variants beside the plain one exist where this is defined. Building with COLLAGE_PLAIN_ONLY is how the code
// for other processors is tried on this one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(COLLAGE_PLAIN_ONLY)
#define COLLAGE_X86 1
#endif
// As above, for kernels that are written with GCC's vectors, with which Clang deals otherwise.
#if defined(COLLAGE_X86) && !defined(__clang__)
#define COLLAGE_X86_GCC 1
#endif

namespace collage {

// The best last; each has all that is before it. kAvx2: AVX2 and FMA. kAvx512: AVX-512 F, VL, DQ and BW.
// kAvx512Vnni: products of bytes. kAvx512Bf16: products of bfloat16. kAmx: tiles of both.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16, kAmx };

// The best that this processor has and the environment allows: COLLAGE_MAX_CPU_ISA=plain, avx2, avx512,
// avx512_vnni, avx512_bf16 or amx. Where that is not set, what ONEDNN_MAX_CPU_ISA says for oneDNN holds for
// our kernels, too.
COLLAGE_EXPORT InstructionSet AllowedInstructionSet();

// The best of these that kernels of our own have variants for: kAvx512 at most, as all of them work on
// float32.
COLLAGE_EXPORT InstructionSet BestInstructionSet();

// Whether threads of this process may use AMX's tiles: whether AllowedInstructionSet is kAmx and the
// operating system, which is asked once, when this is, lets them. Linux wants to be asked, since signals need
// more room on their stacks from then on; it refuses where a thread has an alternate stack without that room.
COLLAGE_EXPORT bool MayUseTiles();

// Whether COLLAGE_MAX_CPU_ISA says something, which libraries with kernels of their own should be told.
COLLAGE_EXPORT bool InstructionSetIsCapped();

}  // namespace collage

#endif  // COLLAGE_INSTRUCTION_SET_H_
