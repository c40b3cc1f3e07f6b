// SPDX-License-Identifier: Apache-2.0
//
// What is done to rows of a matrix product before others read it.
#ifndef COLLAGE_BLAS_EPILOGUE_H_
#define COLLAGE_BLAS_EPILOGUE_H_

#include <cstdint>

#include "blas_program.h"

namespace collage {

// For each of the rows, of so many columns, that lie ld elements apart: values = activation(values + bias +
// residual). bias has one element for each column; residual lies as values do. Either may be nullptr.
void BlasEpilogue(float* values, int64_t rows, int64_t columns, int64_t ld, const float* bias,
                  const float* residual, BlasActivation activation);
void BlasEpilogue(double* values, int64_t rows, int64_t columns, int64_t ld, const double* bias,
                  const double* residual, BlasActivation activation);

}  // namespace collage

#endif  // COLLAGE_BLAS_EPILOGUE_H_
