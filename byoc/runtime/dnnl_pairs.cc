// SPDX-License-Identifier: Apache-2.0
//
// Products in bfloat16, by a kernel of our own.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "instruction_set.h"
#include "native/pair_product.h"

namespace collage::onednn {
namespace {

constexpr auto kF32 = dnnl::memory::data_type::f32, kBf16 = dnnl::memory::data_type::bf16;

// How many tensors one operator adds on the way out.
constexpr size_t kMostAddends = 4;

// The same layout of numbers of another type.
Desc As(Desc desc, dnnl::memory::data_type dtype) {
  desc.data.data_type = dnnl::memory::convert_to_c(dtype);
  return desc;
}

Desc Row(int64_t size) { return Desc({size}, kBf16, dnnl::memory::format_tag::a); }

}  // namespace

Tensor Compiler::WantedAsPairs(int value, const PairRows& rows) {
  const Desc layout = RowMajor(type(value).dims, kF32), as_pairs = As(layout, kBf16);
  const auto there = [&](const Desc& desc) {
    return std::any_of(tensors_[value].begin(), tensors_[value].end(),
                       [&](const Tensor& one) { return SameLayout(one.desc, desc); });
  };
  // Where it has to be laid out anew, it is rounded on the way, by oneDNN.
  const bool narrow = there(as_pairs) || !there(layout);
  if (rows.AreWhole() && narrow) return Wanted(value, as_pairs);
  for (const Paired& one : paired_) {
    if (one.value == value && one.row == rows.Row()) return one.pairs;
  }
  const Tensor from = Wanted(value, narrow ? as_pairs : layout);
  const Tensor made = NewTensor(rows.AreWhole() ? as_pairs : Row(rows.Size()));
  needed_until_[made.buffer] = last_use_[value];
  AddKernel(narrow ? "pad bfloat16" : "round to bfloat16", {from, made},
            [rows, narrow, threads = collage_num_threads()](void* const* data) {
              auto* const to = static_cast<uint16_t*>(data[1]);
              if (narrow) {
                rows.Copy(static_cast<const uint16_t*>(data[0]), threads, to);
              } else {
                rows.Round(static_cast<const float*>(data[0]), threads, to);
              }
            });
  if (rows.AreWhole()) {
    tensors_[value].push_back(made);  // for oneDNN's operators, too
  } else {
    paired_.push_back({value, rows.Row(), made});
  }
  return made;
}

bool Compiler::Pairs(const Op& op) {
  // Without the instruction oneDNN's own kernels in float32 are quicker.
  if (AllowedInstructionSet() < InstructionSet::kAvx512Bf16) return false;
  // The weights of one that could not be done so before have become float32.
  if (type(op.in[1]).dtype != kBf16) return false;
  const Dims &left = type(op.in[0]).dims, &right = type(op.in[1]).dims, &out = type(op.out).dims;
  const size_t rank = left.size();
  if (op.transpose_a || out.size() != rank || !std::equal(left.begin(), left.end() - 2, out.begin())) {
    return false;
  }
  PairProduct::Shape shape;
  shape.rows = Elements({left.begin(), left.end() - 1});
  shape.length = left.back();
  shape.columns = out.back();
  shape.matrices = Elements({right.begin(), right.end() - 2});
  shape.transposed = op.transpose_b;
  if (shape.matrices != 1 && shape.matrices != Elements({out.begin(), out.end() - 2})) return false;
  const OwnPosts posts = OwnPostsOf(op, program_.values, kMostAddends);
  // What is left to do is done in float32.
  if (posts.list.size() < op.post.size()) types_[op.out].dtype = kF32;
  const bool narrow = type(op.out).dtype == kBf16;
  const auto kernel = std::make_shared<const PairProduct>(shape, posts.list, collage_num_threads());

  std::vector<Tensor> tensors = {WantedAsPairs(op.in[0], kernel->left())};
  tensors.push_back(
      WantedPacked(op.in[1], RowMajor(right, kBf16), Row(static_cast<int64_t>(kernel->PackedSize())),
                   [&](const void* plain, void* memory) {
                     kernel->Pack(static_cast<const uint16_t*>(plain), static_cast<uint16_t*>(memory));
                   }));
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  const Desc as_result = RowMajor(out, kF32);
  Tensor result;
  if (narrow) {
    for (const int addend : posts.addends) tensors.push_back(Wanted(addend, as_result));
    result = NewTensor(As(as_result, kBf16));
    tensors.push_back(result);
  } else {
    result = AddResult(op, posts.addends, as_result, &tensors);
  }
  AddKernel(op.kind + " pairs", tensors,
            [kernel, narrow, bias = op.bias, count = posts.addends.size()](void* const* data) {
              const auto* const left = static_cast<const uint16_t*>(data[0]);
              const auto* const packed = static_cast<const uint16_t*>(data[1]);
              data += 2;
              const float* const biases = bias ? static_cast<const float*>(*data++) : nullptr;
              std::array<const float*, kMostAddends> list{};
              for (size_t i = 0; i < count; ++i) list[i] = static_cast<const float*>(*data++);
              PairProduct::Result to;
              if (narrow) {
                to.bf16 = static_cast<uint16_t*>(*data);
              } else {
                to.f32 = static_cast<float*>(*data);
              }
              kernel->Run(left, packed, biases, list.data(), to);
            });
  Finish(op, posts.list.size(), result);
  return true;
}

}  // namespace collage::onednn
