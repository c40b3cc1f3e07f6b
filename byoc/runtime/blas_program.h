// SPDX-License-Identifier: Apache-2.0
//
// What byoc/blas writes of a region: matrix products with epilogues, on tensors that go by number.
#ifndef COLLAGE_BLAS_PROGRAM_H_
#define COLLAGE_BLAS_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "checked_stream.h"

namespace collage {

struct RegionProgram;

enum class BlasActivation { kNone, kRelu, kGelu };

// result[b] = activation(alpha * left[b] x right[b] + bias + residual), for each b of the batch; all row by
// row.
struct BlasProduct {
  bool is_double = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  // The operand has one matrix for each of the batch, and not one for all.
  bool left_batch = false, right_batch = false;
  // The operand is stored as [k, m], [n, k].
  bool left_transposed = false, right_transposed = false;
  double alpha = 1;
  BlasActivation activation = BlasActivation::kNone;
  // Numbers of tensors. bias has n elements, residual as many as the result; -1 where there is none.
  int result = -1, left = -1, right = -1, bias = -1, residual = -1;

  int64_t LeadingLeft() const { return left_transposed ? m : k; }
  int64_t LeadingRight() const { return right_transposed ? k : n; }
  int64_t ResultElements() const { return batch * m * n; }
};

// The form of programs that is read.
constexpr int kBlasProgramForm = 1;

struct BlasProgram {
  std::vector<int> inputs, constants, outputs;
  std::vector<BlasProduct> products;

  // One more than the greatest number of a tensor.
  int num_values = 0;

  // Throws std::runtime_error where text is not what byoc/blas writes: no tensor is read before it is made,
  // and all readers of one agree on its type and size.
  static BlasProgram Parse(const std::string& text);

  // Parse, which also throws where the region's arguments or constants are not those of its program.
  static BlasProgram Of(const RegionProgram& region);

  // Throws where the tensors, by position in `inputs` and so on, have other types or sizes than the products
  // want.
  void CheckTensors(const std::vector<TensorType>& input_types, const std::vector<TensorType>& constant_types,
                    const std::vector<TensorType>& output_types) const;
};

}  // namespace collage

#endif  // COLLAGE_BLAS_PROGRAM_H_
