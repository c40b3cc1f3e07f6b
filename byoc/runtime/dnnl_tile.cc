// SPDX-License-Identifier: Apache-2.0
#include "dnnl_tile.h"

#include <limits>

// Vectors that are wider than what every x86 has are passed between inlined functions of this file only.
#pragma GCC diagnostic ignored "-Wpsabi"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COLLAGE_VECTOR_UNITS 1
#endif

namespace collage::onednn {

#ifdef COLLAGE_VECTOR_UNITS

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,fma")
#define COLLAGE_WIDTH 16
namespace avx512 {
namespace {
#include "dnnl_tile_body.inc"
}  // namespace
}  // namespace avx512
#undef COLLAGE_WIDTH
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define COLLAGE_WIDTH 8
namespace avx2 {
namespace {
#include "dnnl_tile_body.inc"
}  // namespace
}  // namespace avx2
#undef COLLAGE_WIDTH
#pragma GCC pop_options

#endif

#define COLLAGE_WIDTH 4
namespace any {
namespace {
#include "dnnl_tile_body.inc"
}  // namespace
}  // namespace any
#undef COLLAGE_WIDTH

const VectorUnit& BestVectorUnit() {
  static const VectorUnit unit = [] {
#ifdef COLLAGE_VECTOR_UNITS
    const auto has = [isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa())](dnnl::cpu_isa wanted) {
      return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
    };
    if (has(dnnl::cpu_isa::avx512_core)) return avx512::Unit();
    if (has(dnnl::cpu_isa::avx2)) return avx2::Unit();
#endif
    return any::Unit();
  }();
  return unit;
}

}  // namespace collage::onednn
