// SPDX-License-Identifier: Apache-2.0
//
// Quotients that are rounded up. Static, as the files of each level of instructions include this
// (native/level.h).
#ifndef COLLAGE_NATIVE_DIVIDE_UP_H_
#define COLLAGE_NATIVE_DIVIDE_UP_H_

#include <cstddef>
#include <cstdint>

namespace collage::native {

// The least whole number that is no less than a / b, for a >= 0 and b > 0: how many pieces of b there are in
// a.
static constexpr int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The least multiple of `to` that is no less than a count, or a size in bytes.
static constexpr int64_t RoundUp(int64_t count, int64_t to) { return DivideUp(count, to) * to; }
static constexpr size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_DIVIDE_UP_H_
