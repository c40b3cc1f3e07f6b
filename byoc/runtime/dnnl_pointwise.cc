// SPDX-License-Identifier: Apache-2.0
//
// Operators that work on each element by itself: in whatever layout they find their arguments.
#include <stdexcept>
#include <string>
#include <utility>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_kernels.h"
#include "native/byte_convolution.h"

namespace collage::onednn {
namespace {

// A plain tensor is one long row, whatever its dimensions: oneDNN has limits for those.
Desc AsRow(const Desc& desc) {
  return IsRowMajor(desc) ? RowMajor({Elements(desc.dims())}, desc.data_type()) : desc;
}

bool Commutes(dnnl::algorithm algorithm) {
  return algorithm == dnnl::algorithm::binary_add || algorithm == dnnl::algorithm::binary_mul ||
         algorithm == dnnl::algorithm::binary_max || algorithm == dnnl::algorithm::binary_min;
}

bool IsReference(const dnnl::primitive_desc& desc) {
  return std::string(desc.impl_info_str()).find("ref") != std::string::npos;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

}  // namespace

Tensor Compiler::ApplyEltwise(const Tensor& from, dnnl::algorithm algorithm, float alpha, float beta,
                              bool in_place) {
  if (algorithm == kGrid) {
    // In any layout: what lies between elements is 0, which stays.
    const auto count = static_cast<int64_t>(from.desc.get_size() / sizeof(float));
    const Tensor to = in_place ? from : NewTensor(from.desc);
    AddKernel("grid", {from, to}, [=, threads = collage_num_threads()](void* const* data) {
      RoundToGrid(static_cast<const float*>(data[0]), count, alpha, beta, threads,
                  static_cast<float*>(data[1]));
    });
    return to;
  }
  const Desc row = AsRow(from.desc);
  const dnnl::eltwise_forward::desc desc(dnnl::prop_kind::forward_inference, algorithm, row, alpha, beta);
  const dnnl::eltwise_forward::primitive_desc primitive(desc, UserScratchpad(), CpuEngine());
  const Tensor to = in_place ? from : NewTensor(from.desc);
  AddPrimitive("eltwise", primitive, {{DNNL_ARG_SRC, {row, from.buffer}}, {DNNL_ARG_DST, {row, to.buffer}}});
  return to;
}

Tensor Compiler::ApplyBroadcast(dnnl::algorithm algorithm, const Dims& dims, const Tensor& left,
                                const Tensor& right, bool in_place) {
  if (left.desc.data_type() != dnnl::memory::data_type::f32) {
    throw std::runtime_error("operands are broadcast in float32 only");
  }
  const Tensor to = in_place ? left : NewTensor(RowMajor(dims, left.desc.data_type()));
  AddKernel("broadcast", {left, right, to},
            BroadcastKernel(algorithm, dims, left.desc.dims(), right.desc.dims()));
  return to;
}

Tensor Compiler::ApplyBinary(dnnl::algorithm algorithm, const Tensor& left, int right, bool in_place) {
  const Dims dims = left.desc.dims();
  const bool full = type(right).dims == dims;
  if (!full && IsRowMajor(left.desc)) {
    return ApplyBroadcast(algorithm, dims, left, Plain(right), in_place);
  }
  // In blocks oneDNN broadcasts along channels and single values; the rest is done in plain order.
  const Tensor other =
      full ? Wanted(right, left.desc)
           : Tensor{RowMajor(Aligned(type(right).dims, dims.size()), type(right).dtype), Plain(right).buffer};
  const Desc a = full ? AsRow(left.desc) : left.desc;
  const Desc b = full ? AsRow(other.desc) : other.desc;
  const dnnl::binary::desc desc(algorithm, a, b, a);
  const dnnl::binary::primitive_desc primitive(desc, UserScratchpad(), CpuEngine(), /*allow_empty=*/true);
  if (!full && (!primitive || IsReference(primitive))) {
    const Tensor plain = NewTensor(RowMajor(dims, left.desc.data_type()));
    AddReorder(left, plain);
    return ApplyBroadcast(algorithm, dims, plain, Plain(right), /*in_place=*/true);
  }
  if (!primitive) throw std::runtime_error("oneDNN has no such binary operator");
  const Tensor to = in_place ? left : NewTensor(left.desc);
  AddPrimitive("binary", primitive,
               {{DNNL_ARG_SRC_0, {a, left.buffer}},
                {DNNL_ARG_SRC_1, {b, other.buffer}},
                {DNNL_ARG_DST, {a, to.buffer}}});
  return to;
}

void Compiler::Eltwise(const Op& op) {
  const Tensor from = tensor(op.in[0]);
  Finish(op, 0, ApplyEltwise(from, op.algorithm, op.alpha, op.beta, Overwritable(from)));
}

bool Compiler::Grid(const Op& op) {
  Eltwise(op);
  return true;
}

void Compiler::Binary(const Op& op) {
  const Dims& dims = type(op.out).dims;
  int a = op.in[0], b = op.in[1];
  const bool swap = Commutes(op.algorithm) && type(a).dims != dims && type(b).dims == dims;
  if (swap) std::swap(a, b);
  if (type(a).dims != dims) {
    return Finish(op, 0, ApplyBroadcast(op.algorithm, dims, Plain(a), Plain(b), /*in_place=*/false));
  }
  // Two layouts meet: what is in blocks stays in them, as its neighbours probably are.
  Tensor left = tensor(a);
  if (type(b).dims == dims && IsStrided(left.desc) && !IsStrided(tensor(b).desc))
    left = Wanted(a, tensor(b).desc);
  const bool in_place = Overwritable(left) && !Reads(op, left.buffer, a);
  Finish(op, 0, ApplyBinary(op.algorithm, left, b, in_place));
}

}  // namespace collage::onednn
