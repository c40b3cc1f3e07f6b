// SPDX-License-Identifier: Apache-2.0
//
// Dense layers of one row, by a kernel of our own.
#include <cstring>

#include "dnnl_compiler.h"
#include "native/matvec.h"
#include "native/workspace.h"

namespace collage::onednn {

bool Compiler::MatVec(const Op& op) {
  const Dims& out = type(op.out).dims;
  if (!op.more.empty() || out.size() != 2 || out[0] != 1 || op.transpose_a || !op.transpose_b) return false;
  const Dims& weights = type(op.in[1]).dims;
  const Tensor result = NewTensor(RowMajor(type(op.out).dims, type(op.out).dtype));
  Tensor matrix = Plain(op.in[1]);
  const size_t bytes = matrix.desc.get_size();
  if (IsConstant(op.in[1]) && bytes >= kHugePage) {
    // The kernel reads it as it is, but a mapped file lies in small pages, and reading it is all there is to
    // do.
    matrix = WantedPacked(op.in[1], matrix.desc, matrix.desc,
                          [bytes](const void* plain, void* packed) { std::memcpy(packed, plain, bytes); });
  }
  std::vector<Tensor> tensors = {matrix, Plain(op.in[0]), result};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  AddKernel("matvec", tensors, [rows = weights[0], columns = weights[1], bias = op.bias](void* const* data) {
    MatrixTimesVector(static_cast<const float*>(data[0]), static_cast<const float*>(data[1]),
                      bias ? static_cast<const float*>(data[3]) : nullptr, static_cast<float*>(data[2]), rows,
                      columns);
  });
  Finish(op, 0, result);
  return true;
}

}  // namespace collage::onednn
