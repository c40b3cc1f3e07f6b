// SPDX-License-Identifier: Apache-2.0
//
// Weights that the artefact has in a narrow type, for kernels that read float32.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "dnnl_compiler.h"

namespace collage::onednn {
namespace {

constexpr auto kF32 = dnnl::memory::data_type::f32, kS8 = dnnl::memory::data_type::s8,
               kBf16 = dnnl::memory::data_type::bf16;

// Bytes by the scale of each output channel; what an operator does not see of its weight is 0.
void WidenBytes(const Op& op, const Dims& dims, const int8_t* from, const float* scales, float* to) {
  const int64_t count = Elements(dims);
  std::fill_n(to, count, 0.0F);
  if (op.kind == "conv") {
    const View& view = op.weight;
    // Groups are one dimension more, ahead of the channels of each.
    const bool grouped = view.dims.size() == 5;
    ForEachElement(view, [&](const std::vector<int64_t>& at, int64_t place) {
      const int64_t channel = grouped ? at[0] * view.dims[1] + at[1] : at[0];
      to[place] = static_cast<float>(from[place]) * scales[channel];
    });
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<float>(from[i]) * scales[op.transpose_b ? i / dims[1] : i % dims[1]];
  }
}

void WidenPairs(int64_t count, const uint16_t* from, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

}  // namespace

void Compiler::WidenWeights(const Op& op) {
  const int value = op.in[1];
  if (type(value).dtype == kF32) return;  // another operator's, too
  const Dims& dims = type(value).dims;
  const int64_t count = Elements(dims);
  std::shared_ptr<void> wide(AllocateAligned(static_cast<size_t>(count) * sizeof(float)).release(),
                             AlignedFree());
  auto* const to = static_cast<float*>(wide.get());
  const void* const from = buffers_[Plain(value).buffer].data;
  if (type(value).dtype == kS8) {
    WidenBytes(op, dims, static_cast<const int8_t*>(from), Scales(op), to);
  } else if (type(value).dtype == kBf16) {
    WidenPairs(count, static_cast<const uint16_t*>(from), to);
  }
  const int buffer = NewBuffer(Buffer::Kind::kConstant);
  buffers_[buffer].data = wide.get();
  buffers_[buffer].owner = std::move(wide);
  types_[value].dtype = kF32;
  tensors_[value].clear();
  Define(value, {RowMajor(dims, kF32), buffer});
}

}  // namespace collage::onednn
