// SPDX-License-Identifier: Apache-2.0
//
// Operators that move no numbers, or only move them: reshapes and transposes as views where the layout
// allows, concatenation, and reductions.
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

void Compiler::Concat(const Op& op) {
  std::vector<Desc> sources;
  Arguments arguments;
  for (const int value : op.in) {
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(sources.size()), tensor(value)});
    sources.push_back(tensor(value).desc);
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::concat::primitive_desc primitive(op.axes.at(0), sources, CpuEngine(), attr);
  const Tensor to = NewTensor(primitive.query_md(dnnl::query::dst_md, 0));
  arguments.push_back({DNNL_ARG_DST, to});
  AddPrimitive("concat", primitive, arguments);
  Finish(op, 0, to);
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
