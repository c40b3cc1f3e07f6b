// SPDX-License-Identifier: Apache-2.0
//
// Pools and resampling: spatial operators without weights, in the layout in which they find their argument.
#include <cstring>

#include "dnnl_compiler.h"

namespace collage::onednn {

void Compiler::Pool(const Op& op) {
  Dims gaps;
  for (const int64_t d : op.dilation) gaps.push_back(d - 1);
  const Desc dst_any(Permuted(type(op.out).dims, op.perm), type(op.out).dtype, dnnl::memory::format_tag::any);
  const Desc src = Transposed(tensor(op.in[0]).desc, op.perm);
  const MakeDesc make = [&](const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    const dnnl::pooling_v2_forward::desc desc(dnnl::prop_kind::forward_inference, op.algorithm, src, dst_any,
                                              op.strides, op.window, gaps, op.pad_front, op.pad_back);
    return dnnl::pooling_v2_forward::primitive_desc(desc, attr, CpuEngine());
  };
  const Fused fused = Fuse(op, op.perm, make);
  Arguments arguments = fused.arguments;
  arguments.push_back({DNNL_ARG_SRC, {src, tensor(op.in[0]).buffer}});
  const Tensor result = Destination(op, op.perm, fused);
  arguments.push_back({DNNL_ARG_DST, {Transposed(result.desc, op.perm), result.buffer}});
  AddPrimitive("pool", fused.desc, arguments);
  Finish(op, fused.count, result);
}

void Compiler::Resample(const Op& op) {
  const Desc dst_any(Permuted(type(op.out).dims, op.perm), type(op.out).dtype, dnnl::memory::format_tag::any);
  const Desc src = Transposed(tensor(op.in[0]).desc, op.perm);
  const MakeDesc make = [&](const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    const dnnl::resampling_forward::desc desc(dnnl::prop_kind::forward_inference, op.algorithm, src, dst_any);
    return dnnl::resampling_forward::primitive_desc(desc, attr, CpuEngine());
  };
  const Fused fused = Fuse(op, op.perm, make);
  Arguments arguments = fused.arguments;
  arguments.push_back({DNNL_ARG_SRC, {src, tensor(op.in[0]).buffer}});
  const Tensor result = Destination(op, op.perm, fused);
  arguments.push_back({DNNL_ARG_DST, {Transposed(result.desc, op.perm), result.buffer}});
  AddPrimitive("resample", fused.desc, arguments);
  Finish(op, fused.count, result);
}

}  // namespace collage::onednn
