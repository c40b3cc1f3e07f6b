// SPDX-License-Identifier: Apache-2.0
#include "native/tile.h"

#include <limits>

#include "instruction_set.h"

// Vectors that are wider than what every x86 has are passed between inlined functions of this file only.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace collage::native {

#ifdef COLLAGE_X86_GCC

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")
#define COLLAGE_WIDTH 16
namespace avx512 {
namespace {
#include "native/tile_body.inc"
}  // namespace
}  // namespace avx512
#undef COLLAGE_WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define COLLAGE_WIDTH 8
namespace avx2 {
namespace {
#include "native/tile_body.inc"
}  // namespace
}  // namespace avx2
#undef COLLAGE_WIDTH
#pragma GCC pop_options

#endif

#define COLLAGE_WIDTH 4
namespace any {
namespace {
#include "native/tile_body.inc"
}  // namespace
}  // namespace any
#undef COLLAGE_WIDTH

const VectorUnit& BestVectorUnit() {
  static const VectorUnit unit = [] {
#ifdef COLLAGE_X86_GCC
    if (BestInstructionSet() == InstructionSet::kAvx512) return avx512::Unit();
    if (BestInstructionSet() == InstructionSet::kAvx2) return avx2::Unit();
#endif
    return any::Unit();
  }();
  return unit;
}

}  // namespace collage::native
