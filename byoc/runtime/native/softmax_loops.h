// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/softmax.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_SOFTMAX_LOOPS_H_
#define COLLAGE_NATIVE_SOFTMAX_LOOPS_H_

#include "native/divide_up.h"
#include "native/lanes.h"
#include "native/softmax.h"

namespace collage::native {
namespace {

// The scores i ... of row r, of which so many are left, as a mask has them.
COLLAGE_ALWAYS Vector Masked(const ScoreMask& mask, Vector x, int64_t r, int64_t i, int64_t left) {
  if (mask.chosen == nullptr) {
    const float* const from = mask.added + r * mask.row;
    return x + (mask.column == 0 ? All(*from) : LoadLanes(from + i, FirstLanes(left)));
  }
  const uint8_t* const from = mask.chosen + r * mask.row;
  const Integers bytes = mask.column == 0 ? Integers{} + *from : LoadBytes(from + i, left);
  const Integers kept = mask.keeps ? bytes != 0 : bytes == 0;
  return kept ? x : All(mask.fill);
}

// Scales and masks a row of so many scores, and gives the greatest.
template <int kMasks>
COLLAGE_ALWAYS Vector MaskRow(const SoftmaxWork& w, int64_t r, int64_t count) {
  float* const row = w.scores + r * w.step;
  Vector greatest = All(-kInfinity);
  for (int64_t i = 0; i < count; i += kWidth) {
    Vector x = Load(row + i) * w.scale;
    for (int m = 0; m < kMasks; ++m) x = Masked(w.masks[m], x, r, i, count - i);
    if (i + kWidth > count) x = NumbersOf(kNumbers) < static_cast<int32_t>(count - i) ? x : All(-kInfinity);
    Store(row + i, x);
    greatest = Greater(x, greatest);
  }
  return greatest;
}

void Softmax(const SoftmaxWork& w) {
  const int64_t padded = RoundUp(w.length, kWidth);
  for (int64_t r = 0; r < w.rows; ++r) {
    int64_t count = w.visible + r < w.length ? w.visible + r : w.length;
    if (count < 0) count = 0;
    const Vector greatest = w.num_masks == 0   ? MaskRow<0>(w, r, count)
                            : w.num_masks == 1 ? MaskRow<1>(w, r, count)
                                               : MaskRow<2>(w, r, count);
    const float before = w.first ? -kInfinity : w.greatest[r];
    const Vector now = GreatestLane(Greater(greatest, All(before)));
    // Where there was nothing but -infinity, all powers are 0: -infinity less itself would be no number.
    const Vector from = now == -kInfinity ? Vector{} : now;
    float* const row = w.scores + r * w.step;
    Vector sum = Vector{};
    int64_t i = 0;
    for (; i < count; i += kWidth) {
      const Vector power = Exp(Load(row + i) - from);
      sum += power;
      Store(row + i, power);
    }
    for (; i < padded; i += kWidth) Store(row + i, Vector{});
    float total = SumOfLanes(sum)[0];
    float factor = 1;
    if (!w.first) {
      factor = Exp(All(before) - from)[0];
      total += w.sums[r] * factor;
    }
    w.greatest[r] = now[0];
    w.sums[r] = total;
    w.factors[r] = factor;
  }
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_SOFTMAX_LOOPS_H_
