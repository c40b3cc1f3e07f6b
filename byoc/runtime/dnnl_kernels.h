// SPDX-License-Identifier: Apache-2.0
//
// Kernels of our own for what oneDNN 2.6 has a reference implementation only: operands that are broadcast
// along any axes, and sums over any axes. f32, plain tensors.
#ifndef COLLAGE_DNNL_KERNELS_H_
#define COLLAGE_DNNL_KERNELS_H_

#include <functional>

#include "dnnl_program.h"
#include "native/crew.h"

namespace collage::onednn {

// data: left, right, result; left and right are broadcast to dims by numpy's rules. The result may lie where
// an operand of the same dimensions does.
std::function<void(void* const* data)> BroadcastKernel(dnnl::algorithm algorithm, const Dims& dims,
                                                       const Dims& left, const Dims& right);

// data: argument, result. Reduces the argument, seen as [outer, length, inner], to [outer, inner]. algorithm
// is a reduction (sum, mean, max, min).
std::function<void(void* const* data)> ReduceKernel(dnnl::algorithm algorithm, int64_t outer, int64_t length,
                                                    int64_t inner);

// data: argument, mean, result. The variance of the argument, seen as [outer, length, inner], about the mean
// [outer, inner]; divisor is length, or one less.
std::function<void(void* const* data)> VarianceKernel(int64_t outer, int64_t length, int64_t inner,
                                                      int64_t divisor);

// data: argument, gain, shift, result. Each row of length is brought to mean 0 and divided by its standard
// deviation plus epsilon, times gain, plus shift; both have length elements. divisor is that of the variance.
// This is not what is usually called layer normalisation, where epsilon is added to the variance, and which
// oneDNN has.
PieceWork StandardiseKernel(int64_t rows, int64_t length, int64_t divisor, float epsilon, int threads);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_KERNELS_H_
