// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and dense layers as products of bytes, by a kernel of our own.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "instruction_set.h"
#include "native/byte_convolution.h"

namespace collage::onednn {
namespace {

// How many tensors one operator adds on the way out.
constexpr size_t kMostAddends = 4;

Desc Row(int64_t size, dnnl::memory::data_type dtype) {
  return Desc({size}, dtype, dnnl::memory::format_tag::a);
}

}  // namespace

void Compiler::FindGrids() {
  grids_.assign(program_.values.size(), std::nullopt);
  for (const Op& op : program_.ops) {
    const auto on = [](dnnl::algorithm algorithm, float scale, float least) -> std::optional<ByteScale> {
      if (algorithm != kGrid) return std::nullopt;
      return ByteScale{scale, -static_cast<int32_t>(least)};
    };
    std::optional<ByteScale> grid;
    if (!op.post.empty()) {
      const PostOp& last = op.post.back();
      if (last.kind == PostOp::Kind::kEltwise) grid = on(last.algorithm, last.alpha, last.beta);
    } else if (op.kind == "eltwise") {
      grid = on(op.algorithm, op.alpha, op.beta);
    } else if (op.kind == "reshape" || op.kind == "transpose" ||
               (op.kind == "pool" && op.algorithm == dnnl::algorithm::pooling_max)) {
      grid = grids_[op.in[0]];
    }
    grids_[op.out] = grid;
  }
}

Compiler::Rounded Compiler::WantedAsBytes(int value, const Desc& layout, const ByteImages& images) {
  for (const Rounded& one : rounded_) {
    if (one.value == value && *one.images == images) return one;
  }
  Rounded made{value, std::make_shared<const ByteImages>(images),
               NewTensor(Row(images.Size(), dnnl::memory::data_type::u8)),
               NewTensor(Row(2 * images.images, dnnl::memory::data_type::s32))};
  for (const Tensor& tensor : {made.bytes, made.scales}) needed_until_[tensor.buffer] = last_use_[value];
  AddKernel(
      "round to bytes", {Wanted(value, layout), made.bytes, made.scales},
      [images = made.images, known = grids_[value], threads = collage_num_threads()](void* const* data) {
        images->Round(static_cast<const float*>(data[0]), known ? &*known : nullptr, threads,
                      static_cast<uint8_t*>(data[1]), static_cast<ByteScale*>(data[2]));
      });
  rounded_.push_back(made);
  return made;
}

const float* Compiler::Scales(const Op& op) {
  return static_cast<const float*>(buffers_[Plain(op.in.back()).buffer].data);
}

bool Compiler::Bytes(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32, s8 = dnnl::memory::data_type::s8;
  // Without the instruction oneDNN's own kernels in float32 are quicker.
  if (AllowedInstructionSet() < InstructionSet::kAvx512Vnni) return false;
  // The weights of one that could not be done so before have become float32.
  if (type(op.in[1]).dtype != s8) return false;
  ByteConvolution::Shape shape;
  std::array<int64_t, 4> steps{};
  Desc data, dst;
  int64_t offset = 0;
  if (op.kind == "conv") {
    const Dims from = Permuted(type(op.in[0]).dims, op.perm), to = Permuted(type(op.out).dims, op.perm);
    // Groups are one dimension more of the weights.
    if (from.size() != 4 || op.weight.dims.size() != 4) return false;
    shape.batch = from[0];
    shape.in_channels = from[1];
    shape.in_height = from[2];
    shape.in_width = from[3];
    shape.out_channels = to[1];
    shape.out_height = to[2];
    shape.out_width = to[3];
    for (int i = 0; i < 2; ++i) {
      shape.kernel[i] = op.weight.dims[2 + i];
      shape.stride[i] = op.strides[i];
      shape.dilation[i] = op.dilation[i];
      shape.pad_front[i] = op.pad_front[i];
    }
    std::copy_n(op.weight.strides.begin(), 4, steps.begin());
    offset = op.weight.offset;
    data = Transposed(ChannelsLast(from, f32), Inverse(op.perm));
    dst = Transposed(ChannelsLast(to, f32), Inverse(op.perm));
  } else {
    const Dims &left = type(op.in[0]).dims, &out = type(op.out).dims;
    if (op.transpose_a || left.size() != 2 || out.size() != 2) return false;
    shape.batch = left[0];
    shape.in_channels = left[1];
    shape.out_channels = out[1];
    steps = {op.transpose_b ? left[1] : 1, op.transpose_b ? 1 : out[1], 0, 0};
    data = RowMajor(left, f32);
    dst = RowMajor(out, f32);
  }
  const OwnPosts posts = OwnPostsOf(op, program_.values, kMostAddends);
  const auto kernel = std::make_shared<const ByteConvolution>(shape, posts.list, collage_num_threads());
  if (!kernel->Fits()) return false;

  const Rounded left = WantedAsBytes(op.in[0], data, kernel->data());
  const Tensor packed = WantedPacked(
      op.in[1], op.kind == "conv" ? Seen(op.weight, s8) : RowMajor(type(op.in[1]).dims, s8),
      Row(static_cast<int64_t>(kernel->PackedSize()), dnnl::memory::data_type::u8),
      [&](const void* plain, void* memory) {
        kernel->Pack(static_cast<const int8_t*>(plain) + offset, steps.data(), Scales(op), memory);
      });
  std::vector<Tensor> tensors = {left.bytes, left.scales, packed};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  const size_t scratch = kernel->ScratchSize();
  if (scratch > 0) {
    tensors.push_back(NewTensor(RowMajor({static_cast<int64_t>(scratch)}, dnnl::memory::data_type::u8)));
  }
  const Tensor result = AddResult(op, posts.addends, dst, &tensors);
  AddKernel(op.kind + " bytes", tensors,
            [kernel, bias = op.bias, scratch = scratch > 0, count = posts.addends.size()](void* const* data) {
              const auto* const bytes = static_cast<const uint8_t*>(data[0]);
              const auto* const scales = static_cast<const ByteScale*>(data[1]);
              const void* const packed = data[2];
              data += 3;
              const float* const biases = bias ? static_cast<const float*>(*data++) : nullptr;
              void* const rows = scratch ? *data++ : nullptr;
              std::array<const float*, kMostAddends> list{};
              for (size_t i = 0; i < count; ++i) list[i] = static_cast<const float*>(*data++);
              kernel->Run(bytes, scales, packed, biases, list.data(), rows, static_cast<float*>(*data));
            });
  Finish(op, posts.list.size(), result);
  return true;
}

}  // namespace collage::onednn
