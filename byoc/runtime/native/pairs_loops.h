// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/pairs.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_PAIRS_LOOPS_H_
#define COLLAGE_NATIVE_PAIRS_LOOPS_H_

#include "native/dot_loops.h"
#include "native/lanes.h"
#include "native/pairs.h"

namespace collage::native {
namespace {

typedef uint16_t Halves __attribute__((vector_size(COLLAGE_LANES * 2)));
typedef uint16_t HalvesAnywhere __attribute__((vector_size(COLLAGE_LANES * 2), aligned(2), may_alias));

// The nearest numbers of bfloat16 (native/pairs.h).
COLLAGE_ALWAYS Halves ToHalves(Vector x) {
#ifdef __AVX512BF16__
  return reinterpret_cast<Halves>(_mm512_cvtneps_pbh(x));
#else
  const Bits bits = reinterpret_cast<Bits>(x), size = bits & 0x7fffffffU, cut = bits >> 16;
  const Bits nearest = (bits + 0x7fffU + (cut & 1U)) >> 16;
  const Bits number = size < 0x00800000U ? cut & 0x8000U : nearest;
  return __builtin_convertvector(size > 0x7f800000U ? cut | 0x40U : number, Halves);
#endif
}

COLLAGE_ALWAYS void StoreHalves(uint16_t* to, Halves v, Lanes lanes) {
#if COLLAGE_LANES == 16
  _mm256_mask_storeu_epi16(to, lanes.mask, reinterpret_cast<__m256i>(v));
#else
  if (lanes.count == kWidth) {
    *reinterpret_cast<HalvesAnywhere*>(to) = v;
    return;
  }
  for (int i = 0; i < lanes.count; ++i) to[i] = v[i];
#endif
}

// The sums, and in each lane the products of its pair with the same pair.
COLLAGE_ALWAYS Vector AddPairs(Vector sums, int32_t pair, Integers right) {
#ifdef __AVX512BF16__
  return _mm512_dpbf16_ps(sums, reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair)),
                          reinterpret_cast<__m512bh>(right));
#else
  const Bits left = static_cast<uint32_t>(pair) - Bits{}, other = reinterpret_cast<Bits>(right);
  const Vector first = reinterpret_cast<Vector>(left << 16),
               first_right = reinterpret_cast<Vector>(other << 16);
  const Vector second = reinterpret_cast<Vector>(left & 0xffff0000U),
               second_right = reinterpret_cast<Vector>(other & 0xffff0000U);
  sums += first * first_right;
  return sums + second * second_right;
#endif
}

struct PairKind {
  using Work = PairWork;
  using Sum = Vector;
  static constexpr int64_t kAhead = 4096;
  static COLLAGE_ALWAYS Vector Add(Vector sums, int32_t pair, Integers right) {
    return AddPairs(sums, pair, right);
  }
  template <int R, int V, bool kWhole>
  static COLLAGE_ALWAYS void Store(const PairWork& w, int64_t top, Lanes last, const int64_t (&)[R],
                                   const Vector (&sum)[R][V]) {
    Vector result[R][V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const Vector bias = BiasOf<V, kWhole>(w, v, last);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) result[r][v] = sum[r][v] + bias;
    }
    for (int p = 0; p < w.num_posts; ++p) {
      ApplyPost<R, V, kWhole>(w.posts[p], w.operands, w.row + top, w.column, last, result);
    }
    if (w.rounded == nullptr) return StoreRows<R, V, kWhole>(w, top, last, result);
    uint16_t* const to = w.rounded + top * w.out_row;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        StoreHalves(to + r * w.out_row + v * kWidth, ToHalves(result[r][v]),
                    kWhole || v + 1 < V ? FirstLanes(kWidth) : last);
      }
    }
  }
};

void RoundToHalves(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; i += kWidth) {
    const Lanes lanes = FirstLanes(count - i);
    StoreHalves(to + i, ToHalves(LoadLanes(from + i, lanes)), lanes);
  }
}

constexpr PairLoops kPairLoops{kDotRows, int64_t{kDotVectors} * kWidth, kWidth, MultiplyWords<PairKind>,
                               RoundToHalves};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PAIRS_LOOPS_H_
