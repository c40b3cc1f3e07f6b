// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/bytes.h for processors with AVX-512 VNNI; the compiler's flags for this file are in
// levels.cmake.
#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#define COLLAGE_LANES 16
#include "native/bytes_loops.h"
#include "native/level.h"

namespace collage::native {

const ByteLoops& Avx512VnniByteLoops() {
  static constexpr ByteLoops loops = kByteLoops;
  return loops;
}

}  // namespace collage::native
#endif
