// SPDX-License-Identifier: Apache-2.0
//
// Sums of products of bytes that a library has made of rows (native/bytes.h), as the numbers that they stand
// for.
#ifndef COLLAGE_NATIVE_BYTE_SUMS_H_
#define COLLAGE_NATIVE_BYTE_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/bytes.h"
#include "native/post.h"

namespace collage::native {

// Of [rows, columns]; each row has a scale of its own, as each column has.
struct ByteSums {
  int64_t rows = 0, columns = 0;
  std::vector<Post> posts;
  int threads = 1;  // how many Run may use

  // What is known of the columns, in bytes: the scales, and the sums of the weights.
  size_t PackedSize() const;
  void Pack(const float* scales, const int32_t* sums, void* packed) const;
  // bias has one number for each column, or is null. Addends are laid out like out, and may be out.
  void Run(const int32_t* sums, const ByteScale* scales, const void* packed, const float* bias,
           const float* const* addends, float* out) const;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_BYTE_SUMS_H_
