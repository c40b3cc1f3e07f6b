// SPDX-License-Identifier: Apache-2.0
#include "native/projection.h"

#include <algorithm>
#include <utility>

#include "native/gemm.h"
#include "native/workers.h"

namespace collage::native {

ProjectionKernel::ProjectionKernel(int64_t pixels, int64_t in_channels, int64_t out_channels,
                                   std::vector<Post> posts, int threads, const ProjectionBlocking& blocking)
    : pixels_(pixels),
      in_channels_(in_channels),
      out_channels_(out_channels),
      posts_(std::move(posts)),
      threads_(std::max(threads, 1)),
      blocking_(blocking) {}

size_t ProjectionKernel::PackedSize() const {
  return static_cast<size_t>(PackedElements(in_channels_, out_channels_));
}

void ProjectionKernel::Pack(const float* weight, int64_t out_stride, int64_t in_stride, float* packed) const {
  PackPanels(weight, in_stride, out_stride, in_channels_, out_channels_, packed);
}

void ProjectionKernel::Run(const float* src, const float* packed, const float* bias,
                           const float* const* addends, float* dst) const {
  const int64_t panels = PanelsOf(out_channels_), blocks = DivideUp(pixels_, blocking_.pixels);
  std::vector<Operand> operands;
  for (const Post& post : posts_) {
    if (post.operand >= 0) operands.resize(std::max<size_t>(operands.size(), post.operand + 1));
  }
  for (size_t i = 0; i < operands.size(); ++i) operands[i] = {addends[i], out_channels_};
  // Neighbours read the same pixels.
  const auto work = [&](int64_t item, int64_t) {
    const int64_t first = item % panels * PanelColumns(), width = PanelWidth(first, out_channels_);
    const int64_t start = item / panels * blocking_.pixels;
    GemmWork product;
    product.left = src + start * in_channels_;
    product.left_row = in_channels_;
    product.right = packed + first * in_channels_;
    product.right_row = width;
    product.length = in_channels_;
    product.rows = std::min(blocking_.pixels, pixels_ - start);
    product.columns = std::min(width, out_channels_ - first);
    product.initial = bias == nullptr ? nullptr : bias + first;
    product.out = dst + start * out_channels_ + first;
    product.out_row = out_channels_;
    product.posts = posts_.data();
    product.num_posts = static_cast<int>(posts_.size());
    product.operands = operands.data();
    product.row = start;
    product.column = first;
    if (first + width < out_channels_) {
      product.ahead = product.right + width * in_channels_;
      product.ahead_size = PanelWidth(first + width, out_channels_) * in_channels_;
    }
    Multiply(product);
  };
  const int64_t workers =
      std::min({int64_t{threads_}, blocks * panels,
                std::max(int64_t{1}, pixels_ * in_channels_ * out_channels_ / blocking_.grain)});
  DivideAmongWorkers(workers, blocks * panels, work);
}

}  // namespace collage::native
