// SPDX-License-Identifier: Apache-2.0
//
// The products of native/bytes.h and native/pairs.h for processors with AMX; the compiler's flags for this
// file are in levels.cmake.
#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#define COLLAGE_LANES 16
#include "native/amx_loops.h"
#include "native/bytes_loops.h"
#include "native/level.h"
#include "native/pairs_loops.h"

namespace collage::native {
namespace {

struct ByteTiles : ByteKind {
  template <int kSums, int kLeft, int kRight>
  static COLLAGE_ALWAYS void AddTile() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

struct PairTiles : PairKind {
  template <int kSums, int kLeft, int kRight>
  static COLLAGE_ALWAYS void AddTile() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kLeft), "i"(kRight));
  }
};

constexpr ByteLoops AmxBytes() {
  ByteLoops loops = kByteLoops;
  loops.multiply = MultiplyTiles<ByteTiles>;
  loops.gathers = true;
  return loops;
}

constexpr PairLoops AmxPairs() {
  PairLoops loops = kPairLoops;
  loops.rows = kAmxBlockRows;
  loops.multiply = MultiplyTiles<PairTiles>;
  return loops;
}

}  // namespace

const ByteLoops& AmxByteLoops() {
  static constexpr ByteLoops loops = AmxBytes();
  return loops;
}

const PairLoops& AmxPairLoops() {
  static constexpr PairLoops loops = AmxPairs();
  return loops;
}

}  // namespace collage::native
#endif
