// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/extremes.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_EXTREMES_LOOPS_H_
#define COLLAGE_NATIVE_EXTREMES_LOOPS_H_

#include "native/extremes.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

template <bool kMagnitude>
float Extreme(const float* from, int64_t rows, int64_t columns, int64_t step) {
  const Vector least = kMagnitude ? Vector{} : All(-kInfinity);
  Vector greatest = least;
  Integers odd = Integers{};  // lanes that have met what is not a number
  for (int64_t r = 0; r < rows; ++r, from += step) {
    for (int64_t i = 0; i < columns; i += kWidth) {
      Vector x = LoadLanes(from + i, FirstLanes(columns - i));
      if (columns - i < kWidth) {
        x = NumbersOf(kNumbers) < static_cast<int32_t>(columns - i) ? x : least;
      }
      odd |= x != x;
      greatest = Greater(kMagnitude ? Greater(x, -x) : x, greatest);
    }
  }
  for (int i = 0; i < kWidth; ++i) {
    if (odd[i] != 0) return __builtin_nanf("");
  }
  return GreatestLane(greatest)[0];
}

constexpr ExtremeLoops kExtremeLoops{Extreme<false>, Extreme<true>};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_EXTREMES_LOOPS_H_
