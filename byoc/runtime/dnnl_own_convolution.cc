// SPDX-License-Identifier: Apache-2.0
//
// Convolutions that kernels of our own do: which, in which layout, with which post-operations.
#include <array>
#include <memory>
#include <utility>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/winograd.h"

namespace collage::onednn {
namespace {

// How many tensors one convolution adds on the way out.
constexpr size_t kMostAddends = 4;

}  // namespace

bool Compiler::Winograd(const Op& op) {
  const Dims from = Permuted(type(op.in[0]).dims, op.perm), to = Permuted(type(op.out).dims, op.perm);
  const size_t rank = from.size(), row = rank - 2, column = rank - 1;
  if ((rank != 4 && rank != 5) || !IsConstant(op.in[1])) return false;
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

  const OwnPosts posts = OwnPostsOf(op, program_.values, kMostAddends);
  const auto kernel = std::make_shared<const WinogradKernel>(shape, posts.list, collage_num_threads());
  const auto pack = [&](const float* plain, float* packed) { kernel->Pack(plain, strides, packed); };
  OwnConvolution(
      op, "winograd", kernel->PackedSize(), pack, posts.addends, posts.list.size(), kernel->ScratchSize(),
      [kernel](const OwnArguments& a) { kernel->Run(a.src, a.packed, a.bias, a.addends, a.scratch, a.dst); });
  return true;
}

Tensor Compiler::AddResult(const Op& op, const std::vector<int>& addends, const Desc& dst,
                           std::vector<Tensor>* tensors) {
  Tensor result;
  for (const int addend : addends) {
    tensors->push_back(Wanted(addend, dst));
    if (Overwritable(tensors->back()) && !Reads(op, tensors->back().buffer, addend)) result = tensors->back();
  }
  if (result.buffer < 0) result = NewTensor(dst);
  tensors->push_back(result);
  return result;
}

void Compiler::OwnConvolution(const Op& op, const std::string& what, size_t packed_size,
                              const std::function<void(const float* plain, float* packed)>& pack,
                              const std::vector<int>& addends, size_t done, size_t scratch_size,
                              const std::function<void(const OwnArguments&)>& run) {
  auto layout = [&](int value) {
    return Transposed(ChannelsLast(Permuted(type(value).dims, op.perm), type(value).dtype), Inverse(op.perm));
  };
  auto row = [](size_t size) {
    return Desc({static_cast<int64_t>(size)}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a);
  };
  const Desc dst = layout(op.out);
  // The weights are packed once. The kernel's name is in no descriptor, but no two kernels do the same one.
  const Tensor packed =
      WantedPacked(op.in[1], Seen(op.weight, type(op.in[1]).dtype), row(packed_size),
                   [&](const void* plain, void* memory) {
                     pack(static_cast<const float*>(plain) + op.weight.offset, static_cast<float*>(memory));
                   });
  std::vector<Tensor> tensors = {Wanted(op.in[0], layout(op.in[0])), packed};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  const Tensor result = AddResult(op, addends, dst, &tensors);
  if (scratch_size > 0) tensors.push_back(NewTensor(row(scratch_size)));
  AddKernel(op.kind + " " + what, tensors,
            [run, bias = op.bias, count = addends.size(), scratch = scratch_size > 0](void* const* data) {
              OwnArguments a;
              a.src = static_cast<const float*>(*data++);
              a.packed = static_cast<const float*>(*data++);
              if (bias) a.bias = static_cast<const float*>(*data++);
              std::array<const float*, kMostAddends> list{};
              for (size_t i = 0; i < count; ++i) list[i] = static_cast<const float*>(*data++);
              a.addends = list.data();
              a.dst = static_cast<float*>(*data++);
              if (scratch) a.scratch = static_cast<float*>(*data);
              run(a);
            });
  Finish(op, done, result);
}

}  // namespace collage::onednn
