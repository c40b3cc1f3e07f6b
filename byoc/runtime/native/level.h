// SPDX-License-Identifier: Apache-2.0
//
// The inner loops of all kernels, compiled once for each level of vector instructions.
//
// A kernel's loops are templates or functions in a header <kernel>_loops.h, written with the vectors of
// native/lanes.h in a namespace without a name: level_plain.cc, level_avx2.cc and level_avx512.cc include it,
// each with compiler's flags of its own, and so each has a copy that nobody else can see. What these files
// include must emit no functions that the linker could take for others (std:: templates, inline functions of
// headers): a copy with AVX-512 in it would run on processors without.
#ifndef COLLAGE_NATIVE_LEVEL_H_
#define COLLAGE_NATIVE_LEVEL_H_

#include "instruction_set.h"
#include "native/bytes.h"
#include "native/extremes.h"
#include "native/gemm.h"
#include "native/norm.h"
#include "native/pairs.h"
#include "native/pixel_norm.h"
#include "native/recurrent.h"
#include "native/softmax.h"
#include "native/unpacked.h"
#include "native/window.h"
#include "native/winograd_task.h"

namespace collage::native {

struct Level {
  int lanes;  // elements of a vector
  GemmLoops gemm;
  void (*softmax)(const SoftmaxWork&);
  ExtremeLoops extremes;
  WinogradLoops winograd;
  void (*window)(const WindowRowsWork&);
  NormLoops norm;
  PixelNormLoops pixel_norm;
  ByteLoops bytes;
  PairLoops pairs;
  void (*unpacked)(const UnpackedWork&, int64_t block);
  RecurrentLoops recurrent;
};

// The one for BestInstructionSet.
const Level& BestLevel();

const Level& PlainLevel();
#ifdef COLLAGE_X86_GCC
const Level& Avx2Level();
const Level& Avx512Level();
// All of them but those of bytes are Avx512Level's.
const ByteLoops& Avx512VnniByteLoops();
// The same for pairs.
const PairLoops& Avx512Bf16PairLoops();
// With products by AMX; only where MayUseTiles.
const ByteLoops& AmxByteLoops();
const PairLoops& AmxPairLoops();
#endif

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_LEVEL_H_
