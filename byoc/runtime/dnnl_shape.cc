// SPDX-License-Identifier: Apache-2.0
//
// Operators that move no numbers: reshapes and transposes as views where the layout allows; and reductions.
#include "dnnl_compiler.h"
#include "dnnl_kernels.h"

namespace collage::onednn {

void Compiler::Reshape(const Op& op) {
  const Tensor from = tensor(op.in[0]);
  if (const auto view = Reshaped(from.desc, type(op.out).dims)) return Finish(op, 0, {*view, from.buffer});
  Finish(op, 0, {RowMajor(type(op.out).dims, type(op.out).dtype), Plain(op.in[0]).buffer});
}

void Compiler::Transpose(const Op& op) {
  const Tensor from = tensor(op.in[0]);
  Finish(op, 0, {Transposed(from.desc, op.perm), from.buffer});
}

void Compiler::Reduce(const Op& op) {
  const Dims& dims = type(op.in[0]).dims;
  // The axes follow one another (the code generator sees to it), so that the tensor is [outer, length,
  // inner].
  int64_t outer = 1, length = 1, inner = 1;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    (i < op.axes.front() ? outer : i > op.axes.back() ? inner : length) *= dims[i];
  }
  const Tensor from = Plain(op.in[0]);
  const Tensor to = NewTensor(RowMajor(type(op.out).dims, type(op.out).dtype));
  if (op.kind == "variance") {
    AddKernel("variance", {from, Plain(op.in[1]), to},
              VarianceKernel(outer, length, inner, op.unbiased ? length - 1 : length));
  } else {
    AddKernel("reduce", {from, to}, ReduceKernel(op.algorithm, outer, length, inner));
  }
  Finish(op, 0, to);
}

}  // namespace collage::onednn
