// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/pairs.h for processors with AVX-512 BF16; the compiler's flags for this file are in
// levels.cmake.
#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#define COLLAGE_LANES 16
#include "native/level.h"
#include "native/pairs_loops.h"

namespace collage::native {

const PairLoops& Avx512Bf16PairLoops() {
  static constexpr PairLoops loops = kPairLoops;
  return loops;
}

}  // namespace collage::native
#endif
