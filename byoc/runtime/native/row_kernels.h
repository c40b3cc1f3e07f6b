// SPDX-License-Identifier: Apache-2.0
//
// The innermost loops of dnnl_kernels: over a row of numbers, or over rows. Plain loops, which the compiler
// makes vector code of, once for each level of instructions.
#ifndef COLLAGE_NATIVE_ROW_KERNELS_H_
#define COLLAGE_NATIVE_ROW_KERNELS_H_

#include <cstdint>

namespace collage::native {

// A row of results; a side that is broadcast along it has the step 0, else the step is 1.
using RowFunction = void (*)(const float* a, const float* b, float* out, int64_t count, int64_t a_step,
                             int64_t b_step);
// Brings length rows of inner numbers together into one.
using RowsFunction = void (*)(const float* in, float* out, int64_t length, int64_t inner);

struct RowKernels {
  RowFunction add, subtract, multiply, divide, maximum, minimum;
  RowsFunction sum_rows, maximum_rows, minimum_rows;
  float (*sum)(const float* in, int64_t length);
  // The sum of the squares of what is left when the mean is taken away: of a row, and by column of rows.
  float (*squares)(const float* in, float mean, int64_t length);
  void (*squares_rows)(const float* in, const float* mean, float* out, int64_t length, int64_t inner);
};

// Those for this processor.
const RowKernels& BestRowKernels();

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_ROW_KERNELS_H_
