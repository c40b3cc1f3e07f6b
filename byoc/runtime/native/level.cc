// SPDX-License-Identifier: Apache-2.0
#include "native/level.h"

namespace collage::native {

const Level& BestLevel() {
  static const Level& best = []() -> const Level& {
#ifdef COLLAGE_X86_GCC
    if (BestInstructionSet() >= InstructionSet::kAvx512) return Avx512Level();
    if (BestInstructionSet() >= InstructionSet::kAvx2) return Avx2Level();
#endif
    return PlainLevel();
  }();
  return best;
}

const ByteLoops& BestByteLoops() {
#ifdef COLLAGE_X86_GCC
  if (MayUseTiles()) return AmxByteLoops();
  if (AllowedInstructionSet() >= InstructionSet::kAvx512Vnni) return Avx512VnniByteLoops();
#endif
  return BestLevel().bytes;
}

const PairLoops& BestPairLoops() {
#ifdef COLLAGE_X86_GCC
  if (MayUseTiles()) return AmxPairLoops();
  if (AllowedInstructionSet() >= InstructionSet::kAvx512Bf16) return Avx512Bf16PairLoops();
#endif
  return BestLevel().pairs;
}

}  // namespace collage::native
