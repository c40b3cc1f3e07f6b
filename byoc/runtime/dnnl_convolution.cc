// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and transposed convolutions of one to three spatial dimensions, grouped and not.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dnnl_compiler.h"

namespace collage::onednn {
namespace {

// What oneDNN calls dilation is the gap between the taps.
Dims Gaps(const Dims& dilation) {
  Dims gaps;
  for (const int64_t d : dilation) gaps.push_back(d - 1);
  return gaps;
}

Desc AnyLayout(const Desc& desc, dnnl::memory::data_type dtype) {
  return Desc(desc.dims(), dtype, dnnl::memory::format_tag::any);
}

template <typename Primitive>
dnnl::primitive_desc Describe(const Op& op, dnnl::algorithm algorithm, const Desc& src, const Desc& weight,
                              const Desc* bias, const Desc& dst, const dnnl::primitive_attr& attr) {
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  const Dims gaps = Gaps(op.dilation);
  if (bias != nullptr) {
    const typename Primitive::desc desc(kind, algorithm, src, weight, *bias, dst, op.strides, gaps,
                                        op.pad_front, op.pad_back);
    return typename Primitive::primitive_desc(desc, attr, CpuEngine());
  }
  const typename Primitive::desc desc(kind, algorithm, src, weight, dst, op.strides, gaps, op.pad_front,
                                      op.pad_back);
  return typename Primitive::primitive_desc(desc, attr, CpuEngine());
}

}  // namespace

void Compiler::Convolution(const Op& op) {
  const bool transposed = op.kind == "deconv";
  const Desc found = Transposed(tensor(op.in[0]).desc, op.perm);
  const ValueType& weight_type = type(op.in[1]);
  const Desc weight_view = Seen(op.weight, weight_type.dtype);
  const dnnl::memory::data_type computed = ComputedIn(op);
  const Desc weight_any = AnyLayout(weight_view, computed);
  const Desc dst_any(Permuted(type(op.out).dims, op.perm), type(op.out).dtype, dnnl::memory::format_tag::any);
  Desc bias;
  if (op.bias) bias = RowMajor({dst_any.dims()[1]}, type(op.in[2]).dtype);

  auto make_with = [&](const Desc& src) -> MakeDesc {
    return [&, src](const dnnl::primitive_attr& attr) {
      const Desc* b = op.bias ? &bias : nullptr;
      return transposed
                 ? Describe<dnnl::deconvolution_forward>(op, dnnl::algorithm::deconvolution_direct, src,
                                                         weight_any, b, dst_any, attr)
                 : Describe<dnnl::convolution_forward>(op, op.algorithm, src, weight_any, b, dst_any, attr);
    };
  };

  // oneDNN chooses the layout of the data; where the same implementation also takes the one in which the data
  // is found, nothing needs to be reordered.
  MakeDesc make = make_with(AnyLayout(found, computed));
  const dnnl::primitive_desc chosen = make({});
  if (found.data_type() == computed && chosen.query_md(dnnl::query::src_md, 0) != found) {
    try {
      const MakeDesc as_found = make_with(found);
      if (std::strcmp(as_found({}).impl_info_str(), chosen.impl_info_str()) == 0) make = as_found;
    } catch (const dnnl::error&) {
      // It takes the layout of its own choice only.
    }
  }

  const Fused fused = Fuse(op, op.perm, make);
  if (WidensFor(op, fused)) return Convolution(op);
  const Desc src = fused.desc.query_md(dnnl::query::src_md, 0);
  Arguments arguments = fused.arguments;
  const Tensor data = Wanted(op.in[0], Transposed(src, Inverse(op.perm)));
  arguments.push_back({DNNL_ARG_SRC, {src, data.buffer}});
  arguments.push_back(
      {DNNL_ARG_WEIGHTS, WantedView(op.in[1], weight_view, fused.desc.query_md(dnnl::query::weights_md, 0))});
  if (op.bias) arguments.push_back({DNNL_ARG_BIAS, {bias, Plain(op.in[2]).buffer}});
  const Tensor result = Destination(op, op.perm, fused);
  arguments.push_back({DNNL_ARG_DST, {Transposed(result.desc, op.perm), result.buffer}});
  AddPrimitive(op.kind, fused.desc, arguments);
  Finish(op, fused.count, result);
}

Desc Compiler::LayoutForReader(int value, const Desc& other) const {
  for (size_t i = now_ + 1; i < program_.ops.size(); ++i) {
    const Op& op = program_.ops[i];
    if (std::find(op.in.begin(), op.in.end(), value) == op.in.end()) continue;
    if (op.kind != "conv" || op.in[0] != value || op.kernel == "narrow") return other;
    if (!op.kernel.empty()) {  // winograd, strips, expansion
      return Transposed(ChannelsLast(Permuted(type(value).dims, op.perm), type(value).dtype),
                        Inverse(op.perm));
    }
    const auto any = [&](const Dims& dims) {
      return Desc(dims, type(value).dtype, dnnl::memory::format_tag::any);
    };
    try {
      const auto desc = Describe<dnnl::convolution_forward>(
          op, op.algorithm, any(Permuted(type(value).dims, op.perm)), any(op.weight.dims), nullptr,
          any(Permuted(type(op.out).dims, op.perm)), {});
      return Transposed(desc.query_md(dnnl::query::src_md, 0), Inverse(op.perm));
    } catch (const dnnl::error&) {
      return other;
    }
  }
  return other;
}

}  // namespace collage::onednn
