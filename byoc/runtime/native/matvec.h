// SPDX-License-Identifier: Apache-2.0
//
// A matrix times a vector: a dense layer of one row. Each weight is used once, so that the time is that of
// reading them; they are read as they lie, and need no packing (which would keep them twice). f32.
#ifndef COLLAGE_NATIVE_MATVEC_H_
#define COLLAGE_NATIVE_MATVEC_H_

#include <cstdint>

namespace collage::native {

// How the work is cut. What each is for, and where it comes from: docs/native.md, "Blocking".
struct MatVecBlocking {
  // Work for less than this many elements of the matrix is not divided among threads.
  int64_t grain = 32768;
  // How far ahead memory is asked for, in elements.
  int64_t ahead = 2048;
};

// result[r] = sum over c of matrix[r * columns + c] * vector[c], plus bias[r] where there is a bias.
void MatrixTimesVector(const float* matrix, const float* vector, const float* bias, float* result,
                       int64_t rows, int64_t columns, const MatVecBlocking& blocking = {});

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_MATVEC_H_
