// SPDX-License-Identifier: Apache-2.0
//
// Products of few rows with a matrix that is read as it lies. Packing a matrix (native/gemm.h) reads it once
// more and writes it; that pays where many rows run past it, and costs several times the product where there
// are few, as where one token attends to all that came before it.
#ifndef COLLAGE_NATIVE_UNPACKED_H_
#define COLLAGE_NATIVE_UNPACKED_H_

#include <cstdint>

namespace collage::native {

// How the work is cut: docs/native.md, "Blocking".
struct UnpackedBlocking {
  // At most so many rows of the left side are multiplied with the right one as it lies.
  int64_t rows = 8;
  // So many rows of a right side whose rows are not columns are read side by side, each from its first
  // element to its last; the sums so far lie at the result meanwhile.
  int64_t length = 16;
};

// out = left * right, f32. Nothing beyond the elements is read.
struct UnpackedWork {
  const float* left = nullptr;  // element (r, k) at left[r * left_row + k]
  int64_t left_row = 0;
  // Element (k, c) at right[k * right_row + c * right_column]; one of the two is 1.
  const float* right = nullptr;
  int64_t right_row = 1, right_column = 1;
  int64_t rows = 0, length = 0, columns = 0;
  float* out = nullptr;  // element (r, c) at out[r * out_row + c]
  int64_t out_row = 0;
};

// By the loops of this processor (native/level.h). block: UnpackedBlocking::length.
void MultiplyUnpacked(const UnpackedWork& work, int64_t block = UnpackedBlocking().length);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_UNPACKED_H_
