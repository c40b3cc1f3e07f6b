// SPDX-License-Identifier: Apache-2.0
//
// Kernels of our own for what oneDNN 2.6 has a reference implementation only: operands that are broadcast
// along any axes, and sums over any axes. f32, plain tensors.
#ifndef COLLAGE_DNNL_KERNELS_H_
#define COLLAGE_DNNL_KERNELS_H_

#include <functional>

#include "dnnl_program.h"

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

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_KERNELS_H_
