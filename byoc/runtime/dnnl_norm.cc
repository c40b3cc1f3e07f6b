// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's normalisations and softmax.
#include <string>

#include "dnnl_compiler.h"

namespace collage::onednn {
namespace {

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

}  // namespace

void Compiler::BatchNorm(const Op& op) {
  const Tensor from = tensor(op.in[0]);
  const Desc src = Transposed(from.desc, op.perm);
  using Flags = dnnl::normalization_flags;
  const dnnl::batch_normalization_forward::desc desc(
      dnnl::prop_kind::forward_inference, src, op.epsilon,
      Flags::use_global_stats | Flags::use_scale | Flags::use_shift);
  const dnnl::batch_normalization_forward::primitive_desc primitive(desc, UserScratchpad(), CpuEngine());
  const Tensor to = Overwritable(from) ? from : NewTensor(from.desc);
  AddPrimitive("batch_norm", primitive,
               {{DNNL_ARG_SRC, {src, from.buffer}},
                {DNNL_ARG_SCALE, Plain(op.in[1])},
                {DNNL_ARG_SHIFT, Plain(op.in[2])},
                {DNNL_ARG_MEAN, Plain(op.in[3])},
                {DNNL_ARG_VARIANCE, Plain(op.in[4])},
                {DNNL_ARG_DST, {src, to.buffer}}});
  Finish(op, 0, to);
}

void Compiler::LayerNorm(const Op& op) {
  // Over the last axis; the others are one.
  const Tensor from = Plain(op.in[0]);
  const int64_t length = from.desc.dims().back();
  const Desc src = RowMajor({Elements(from.desc.dims()) / length, length}, from.desc.data_type());
  using Flags = dnnl::normalization_flags;
  const dnnl::layer_normalization_forward::desc desc(dnnl::prop_kind::forward_inference, src, op.epsilon,
                                                     Flags::use_scale | Flags::use_shift);
  const dnnl::layer_normalization_forward::primitive_desc primitive(desc, UserScratchpad(), CpuEngine());
  const Tensor to = Overwritable(from) ? from : NewTensor(from.desc);
  AddPrimitive("layer_norm", primitive,
               {{DNNL_ARG_SRC, {src, from.buffer}},
                {DNNL_ARG_SCALE, Plain(op.in[1])},
                {DNNL_ARG_SHIFT, Plain(op.in[2])},
                {DNNL_ARG_DST, {src, to.buffer}}});
  Finish(op, 0, to);
}

void Compiler::Softmax(const Op& op) {
  const Tensor from = Plain(op.in[0]);
  const Dims& dims = type(op.in[0]).dims;
  const size_t axis = static_cast<size_t>(op.axes.at(0));
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < dims.size(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : dims[i];
  const Desc src = inner == 1 ? RowMajor({outer, dims[axis]}, from.desc.data_type())
                              : RowMajor({outer, dims[axis], inner}, from.desc.data_type());
  const dnnl::softmax_forward::desc desc(dnnl::prop_kind::forward_inference, src, 1);
  const dnnl::softmax_forward::primitive_desc primitive(desc, UserScratchpad(), CpuEngine());
  const bool in_place = Overwritable(from);
  if (inner == 1 || std::string(primitive.impl_info_str()).find("ref") == std::string::npos) {
    const Tensor to = in_place ? from : NewTensor(from.desc);
    AddPrimitive("softmax", primitive,
                 {{DNNL_ARG_SRC, {src, from.buffer}}, {DNNL_ARG_DST, {src, to.buffer}}});
    return Finish(op, 0, to);
  }
  // Along an axis that is not the innermost there is a reference implementation only: it is made the
  // innermost, and put back.
  const Desc last = RowMajor({outer, inner, dims[axis]}, from.desc.data_type());
  const Tensor turned = NewTensor(last);
  AddReorder({src, from.buffer}, {Transposed(last, {0, 2, 1}), turned.buffer});
  const Desc rows = RowMajor({outer * inner, dims[axis]}, from.desc.data_type());
  const dnnl::softmax_forward::desc along_last(dnnl::prop_kind::forward_inference, rows, 1);
  const dnnl::softmax_forward::primitive_desc fast(along_last, UserScratchpad(), CpuEngine());
  AddPrimitive("softmax", fast,
               {{DNNL_ARG_SRC, {rows, turned.buffer}}, {DNNL_ARG_DST, {rows, turned.buffer}}});
  const Tensor to = NewTensor(from.desc);
  AddReorder({Transposed(last, {0, 2, 1}), turned.buffer}, {src, to.buffer});
  Finish(op, 0, to);
}

}  // namespace collage::onednn
