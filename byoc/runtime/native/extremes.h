// SPDX-License-Identifier: Apache-2.0
//
// The greatest of many numbers, and of their magnitudes. native/extremes_loops.h has the loops, compiled for
// each level.
#ifndef COLLAGE_NATIVE_EXTREMES_H_
#define COLLAGE_NATIVE_EXTREMES_H_

#include <cstdint>

namespace collage::native {

// Numbers in rows that are `step` apart. Where one of them is not a number, the result is none; of nothing,
// the greatest is -infinity and the greatest magnitude 0.
struct ExtremeLoops {
  float (*greatest)(const float* from, int64_t rows, int64_t columns, int64_t step);
  float (*magnitude)(const float* from, int64_t rows, int64_t columns, int64_t step);
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_EXTREMES_H_
