// SPDX-License-Identifier: Apache-2.0
//
// Products of bfloat16: data and weights are rounded to it, products of pairs are added up in float32.
//
// A number becomes the nearest one of bfloat16, the even one of two; what is no number stays none, and what
// is smaller than float32's least normal number becomes 0 with its sign, as the instruction has it, so that
// all levels round alike. Which of a pair is added first is the instruction's, too.
//
// native/pairs_loops.h has the loops, compiled for each level, and once more for AVX-512 BF16
// (native/level.h).
#ifndef COLLAGE_NATIVE_PAIRS_H_
#define COLLAGE_NATIVE_PAIRS_H_

#include <cstdint>

#include "native/dot.h"

namespace collage::native {

// left and right are of bfloat16, its bits; pairs that lie side by side are a word.
struct PairWork : DotWork {
  // Where the results are rounded to bfloat16, too; out is not read then, out_row and column hold for it.
  uint16_t* rounded = nullptr;
};

// What is compiled for one level.
struct PairLoops {
  int64_t rows, panel;  // rows of a tile, columns of a panel
  int lanes;
  void (*multiply)(const PairWork&);
  void (*round)(const float* from, int64_t count, uint16_t* to);
};

// The loops for AllowedInstructionSet.
const PairLoops& BestPairLoops();

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PAIRS_H_
