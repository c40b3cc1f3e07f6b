// SPDX-License-Identifier: Apache-2.0
#include "native/upsampling.h"

#include <algorithm>
#include <utility>

#include "native/gemm.h"
#include "native/upsampling_tile.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// The sum of taps that a product wants; they lie so many elements apart.
float SumOfTaps(const float* values, int64_t stride, const AxisProduct& product) {
  double sum = 0;
  for (int64_t t = product.first; t < product.last; ++t) sum += values[t * stride];
  return static_cast<float>(sum) * product.sign;
}

}  // namespace

UpsampledConvolutionKernel::UpsampledConvolutionKernel(int64_t batch, int64_t in_channels,
                                                       int64_t out_channels, UpsampledAxis height,
                                                       UpsampledAxis width, int threads, int64_t operands)
    : batch_(batch),
      in_channels_(in_channels),
      out_channels_(out_channels),
      height_(std::move(height)),
      width_(std::move(width)),
      threads_(threads),
      in_blocks_(DivideUp(in_channels, kLanes)),
      out_blocks_(DivideUp(out_channels, kLanes)) {
  for (const AxisProduct& product : height_.products) {
    if (product.difference &&
        std::find(row_shifts_.begin(), row_shifts_.end(), product.shift) == row_shifts_.end()) {
      row_shifts_.push_back(product.shift);
    }
  }
  const int64_t sources = 2 * (1 + static_cast<int64_t>(row_shifts_.size()));
  const int64_t margin = width_.greatest_shift - width_.least_shift;
  const int64_t row = width_.end - width_.begin;
  const int64_t most = std::max<int64_t>(kTilePixels, operands / (sources * in_blocks_ * kLanes) - margin);
  segments_ = DivideUp(row, most);
  segment_ = DivideUp(row, segments_);
  pitch_ = segment_ + margin;
  // With few rows, the groups of channels are divided, too.
  const int64_t tasks = batch_ * (height_.end - height_.begin) * segments_;
  shares_ =
      std::clamp<int64_t>(DivideUp(4 * int64_t{threads_}, tasks), 1, DivideUp(out_blocks_, kTileBlocks));

  // The operand of a product of both axes: which rows, and which columns of them.
  const auto term = [&](size_t h, size_t w) {
    const AxisProduct& down = height_.products[h];
    const AxisProduct& across = width_.products[w];
    int64_t source = 0;
    if (down.difference) {
      source =
          2 * (1 + (std::find(row_shifts_.begin(), row_shifts_.end(), down.shift) - row_shifts_.begin()));
    }
    source += across.difference ? 1 : 0;
    const int64_t pixel = across.shift - width_.least_shift;
    return Term{(source * in_blocks_ * pitch_ + pixel) * kLanes,
                static_cast<int64_t>(h * width_.products.size() + w)};
  };
  for (int64_t phase = -1; phase < height_.scale; ++phase) {
    TermGroup group;
    group.phase = phase;
    group.by_column.resize(width_.scale);
    for (size_t h = 0; h < height_.products.size(); ++h) {
      if (height_.products[h].phase != phase) continue;
      for (size_t w = 0; w < width_.products.size(); ++w) {
        const int64_t column = width_.products[w].phase;
        (column < 0 ? group.shared : group.by_column[column]).push_back(term(h, w));
      }
    }
    if (phase < 0 || !group.shared.empty()) groups_.push_back(std::move(group));
  }
  // Behind the operands there are as many pixels as a tile may read too far.
  operands_ = (sources * in_blocks_ * pitch_ + kTilePixels) * kLanes;
  const int64_t tile = kTilePixels * kTileBlocks * kLanes;
  scratch_per_thread_ = static_cast<size_t>(operands_ + kTileBlocks * kLanes + (1 + width_.scale) * tile);
}

size_t UpsampledConvolutionKernel::PackedSize() const {
  return height_.products.size() * width_.products.size() *
         static_cast<size_t>(in_blocks_ * kLanes * out_blocks_ * kLanes);
}

void UpsampledConvolutionKernel::Pack(const float* weights, const std::vector<int64_t>& strides,
                                      float* packed) const {
  const size_t across = width_.products.size(), panels = height_.products.size() * across;
  std::fill(packed, packed + PackedSize(), 0.0F);
  DivideAmongWorkers(threads_, out_channels_, [&](int64_t o, int64_t) {
    const int64_t first = o / (kTileBlocks * kLanes) * kTileBlocks;  // the group's first block
    const int64_t blocks = std::min<int64_t>(kTileBlocks, out_blocks_ - first);
    const int64_t rows = in_blocks_ * kLanes;
    float* const group = packed + first * kLanes * rows * static_cast<int64_t>(panels);
    std::vector<float> part(static_cast<size_t>(height_.kernel) * across);
    for (int64_t c = 0; c < in_channels_; ++c) {
      const float* const taps = weights + o * strides[0] + c * strides[1];
      for (int64_t y = 0; y < height_.kernel; ++y) {
        for (size_t w = 0; w < across; ++w) {
          part[y * across + w] = SumOfTaps(taps + y * strides[2], strides[3], width_.products[w]);
        }
      }
      for (size_t h = 0; h < height_.products.size(); ++h) {
        for (size_t w = 0; w < across; ++w) {
          group[((static_cast<int64_t>(h * across + w) * rows + c) * blocks) * kLanes + o - first * kLanes] =
              SumOfTaps(part.data() + w, static_cast<int64_t>(across), height_.products[h]);
        }
      }
    }
  });
}

void UpsampledConvolutionKernel::Run(const Arguments& arguments) const {
  const int64_t tasks = batch_ * (height_.end - height_.begin) * segments_ * shares_;
  DivideAmongWorkers(threads_, tasks, [&](int64_t task, int64_t worker) {
    RunSegment(arguments, task, arguments.scratch + static_cast<int64_t>(scratch_per_thread_) * worker);
  });
}

void UpsampledConvolutionKernel::RunSegment(const Arguments& arguments, int64_t task, float* scratch) const {
  const int64_t share = task % shares_;
  task /= shares_;
  const int64_t first = width_.begin + task % segments_ * segment_,
                last = std::min(first + segment_, width_.end);
  task /= segments_;
  const int64_t rows = height_.end - height_.begin;
  const int64_t row = height_.begin + task % rows, image = task / rows;
  if (first >= last) return;
  Transform(arguments, image, row, first, last, scratch);

  float* const bias = scratch + operands_;
  UpsampledTile tile{};
  tile.operand_block = pitch_ * kLanes;
  tile.in_blocks = in_blocks_;
  tile.bias = bias;
  tile.groups = &groups_;
  tile.kept = bias + kTileBlocks * kLanes;
  tile.dst_block = arguments.dst_layout.block;
  tile.dst_row = arguments.dst_layout.row;
  tile.dst_pixel = arguments.dst_layout.pixel;
  tile.row = row * height_.scale + height_.offset;
  tile.rows = height_.out;
  tile.columns = width_.out;
  tile.row_scale = height_.scale;
  tile.column_scale = width_.scale;
  tile.clamp = arguments.clamp ? &*arguments.clamp : nullptr;

  const int64_t panels = static_cast<int64_t>(height_.products.size() * width_.products.size());
  const int64_t tiles = DivideUp(last - first, MostTilePixels());
  const int64_t groups = DivideUp(out_blocks_, kTileBlocks);
  for (int64_t group = groups * share / shares_; group < groups * (share + 1) / shares_; ++group) {
    const int64_t block = group * kTileBlocks, blocks = std::min<int64_t>(kTileBlocks, out_blocks_ - block);
    for (int64_t i = 0; i < blocks * kLanes; ++i) {
      const int64_t channel = block * kLanes + i;
      bias[i] = arguments.bias != nullptr && channel < out_channels_ ? arguments.bias[channel] : 0.0F;
    }
    tile.panels = arguments.packed + block * kLanes * in_blocks_ * kLanes * panels;
    tile.dst = arguments.dst + image * arguments.dst_layout.batch + block * arguments.dst_layout.block;
    for (int64_t i = 0; i < tiles; ++i) {
      // Tiles of nearly equal width.
      const int64_t begin = (last - first) * i / tiles, end = (last - first) * (i + 1) / tiles;
      tile.pixels = end - begin;
      tile.operands = scratch + begin * kLanes;
      tile.column = (first + begin) * width_.scale + width_.offset;
      UpsampledTileOf(end - begin, blocks)(tile);
    }
  }
}

void UpsampledConvolutionKernel::Transform(const Arguments& arguments, int64_t image, int64_t row,
                                           int64_t first, int64_t last, float* scratch) const {
  const ChannelBlocks& layout = arguments.src_layout;
  // The pixels that are wanted, and of these the ones that are there.
  const int64_t begin = first + width_.least_shift, end = last + width_.greatest_shift;
  for (size_t source = 0; source <= row_shifts_.size(); ++source) {
    const int64_t y = source == 0 ? row : row + row_shifts_[source - 1];
    const bool here = y >= 0 && y < height_.in, before = source > 0 && y >= 1 && y - 1 < height_.in;
    for (int64_t block = 0; block < in_blocks_; ++block) {
      const float* const pixels =
          arguments.src + image * layout.batch + block * layout.block + y * layout.row;
      float* const values =
          scratch + (static_cast<int64_t>(2 * source) * in_blocks_ + block) * pitch_ * kLanes;
      MakeOperands({pixels, layout.row, layout.pixel, width_.in, begin, end, here, before}, values,
                   values + in_blocks_ * pitch_ * kLanes);
    }
  }
}

}  // namespace collage::native
