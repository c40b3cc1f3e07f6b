// SPDX-License-Identifier: Apache-2.0
//
// Winograd convolutions as steps of a plan: which of them our own kernel does, in which layout, with which
// post-operations.
#include <array>
#include <memory>
#include <utility>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_winograd_kernel.h"

namespace collage::onednn {
namespace {

// How many tensors one convolution adds on the way out.
constexpr size_t kMostAddends = 4;

// A dense tensor of dims batch, channels, space, whose channels are the innermost.
Desc ChannelsLast(const Dims& dims, dnnl::memory::data_type dtype) {
  Dims strides(dims.size());
  int64_t step = dims[1];
  strides[1] = 1;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
  return Desc(dims, dtype, strides);
}

// What the kernel can do of a post-operation; false where it cannot. full says that an operand has the
// result's dimensions.
bool Understood(const PostOp& post, bool full, WinogradPost* out) {
  using Kind = WinogradPost::Kind;
  if (post.kind == PostOp::Kind::kBinary) {
    out->kind = Kind::kAdd;
    return full && post.algorithm == dnnl::algorithm::binary_add;
  }
  out->alpha = post.alpha;
  out->beta = post.beta;
  switch (post.algorithm) {
    case dnnl::algorithm::eltwise_relu:
      out->kind = Kind::kRelu;
      return true;
    case dnnl::algorithm::eltwise_clip:
      out->kind = Kind::kClip;
      return true;
    case dnnl::algorithm::eltwise_linear:
      out->kind = Kind::kLinear;
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Compiler::Winograd(const Op& op) {
  const Dims from = Permuted(type(op.in[0]).dims, op.perm), to = Permuted(type(op.out).dims, op.perm);
  const size_t rank = from.size(), row = rank - 2, column = rank - 1;
  if (!WinogradKernel::Available() || (rank != 4 && rank != 5) || !IsConstant(op.in[1])) return false;
  // Weights with groups have one dimension more.
  const Dims& weight = op.weight.dims;
  if (weight.size() != rank || weight[row] != 3 || weight[column] != 3) return false;
  const size_t space = rank - 2;  // the number of spatial dimensions
  for (size_t i = space - 2; i < space; ++i) {
    if (op.strides[i] != 1 || op.dilation[i] != 1) return false;
  }
  if (from[1] % WinogradKernel::kChannels != 0 || to[1] % WinogradKernel::kChannels != 0) return false;
  for (const int value : {op.in[0], op.in[1], op.out}) {
    if (type(value).dtype != dnnl::memory::data_type::f32) return false;
  }

  WinogradShape shape;
  shape.batch = from[0];
  shape.in_channels = from[1];
  shape.out_channels = to[1];
  shape.in_height = from[row];
  shape.in_width = from[column];
  shape.out_height = to[row];
  shape.out_width = to[column];
  shape.pad_top = op.pad_front[space - 2];
  shape.pad_left = op.pad_front[space - 1];
  // By output channel, input channel, depth, row, column.
  int64_t strides[5] = {op.weight.strides[0], op.weight.strides[1], 0, op.weight.strides[row],
                        op.weight.strides[column]};
  if (rank == 5) {
    shape.in_depth = from[2];
    shape.out_depth = to[2];
    shape.kernel_depth = weight[2];
    shape.stride_depth = op.strides[0];
    shape.dilation_depth = op.dilation[0];
    shape.pad_depth = op.pad_front[0];
    strides[2] = op.weight.strides[2];
  }

  const Desc src = Transposed(ChannelsLast(from, type(op.in[0]).dtype), Inverse(op.perm));
  const Desc dst = Transposed(ChannelsLast(to, type(op.out).dtype), Inverse(op.perm));
  std::vector<WinogradPost> posts;
  std::vector<int> addends;
  for (const PostOp& post : op.post) {
    WinogradPost one;
    const bool full = post.operand >= 0 && type(post.operand).dims == type(op.out).dims;
    if (!Understood(post, full, &one)) break;
    if (one.kind == WinogradPost::Kind::kAdd) {
      if (addends.size() == kMostAddends) break;
      one.addend = static_cast<int>(addends.size());
      addends.push_back(post.operand);
    }
    posts.push_back(one);
  }
  const size_t done = posts.size();
  const auto kernel = std::make_shared<const WinogradKernel>(shape, std::move(posts), collage_num_threads());

  // The weights, transformed once.
  const Desc packed_desc({static_cast<int64_t>(kernel->PackedSize())}, dnnl::memory::data_type::f32,
                         dnnl::memory::format_tag::a);
  const Desc view = Seen(op.weight, type(op.in[1]).dtype);
  const Tensor packed = WantedPacked(op.in[1], view, packed_desc, [&](const void* plain, void* memory) {
    kernel->Pack(static_cast<const float*>(plain) + op.weight.offset, strides, static_cast<float*>(memory));
  });

  std::vector<Tensor> tensors = {Wanted(op.in[0], src), packed};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  for (const int addend : addends) tensors.push_back(Wanted(addend, dst));
  const Tensor scratch = NewTensor(Desc({static_cast<int64_t>(kernel->ScratchSize())},
                                        dnnl::memory::data_type::f32, dnnl::memory::format_tag::a));
  // An addend that nobody needs any more is overwritten: each of its elements is read before the result
  // takes its place.
  Tensor result;
  for (const int addend : addends) {
    const Tensor one = Wanted(addend, dst);
    if (Overwritable(one) && !Reads(op, one.buffer, addend)) result = one;
  }
  if (result.buffer < 0) result = NewTensor(dst);
  tensors.push_back(scratch);
  tensors.push_back(result);
  AddKernel(op.kind + " winograd", tensors,
            [kernel, bias = op.bias, count = addends.size()](void* const* data) {
              void* const* rest = data + (bias ? 3 : 2);
              std::array<const float*, kMostAddends> addends{};
              for (size_t i = 0; i < count; ++i) addends[i] = static_cast<const float*>(rest[i]);
              kernel->Run(static_cast<const float*>(data[0]), static_cast<const float*>(data[1]),
                          bias ? static_cast<const float*>(data[2]) : nullptr, addends.data(),
                          static_cast<float*>(rest[count]), static_cast<float*>(rest[count + 1]));
            });
  Finish(op, done, result);
  return true;
}

}  // namespace collage::onednn
