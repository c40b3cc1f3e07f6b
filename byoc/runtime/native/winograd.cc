// SPDX-License-Identifier: Apache-2.0
#include "native/winograd.h"

#include <algorithm>
#include <utility>

#include "native/gemm.h"
#include "native/level.h"
#include "native/workers.h"

namespace collage::native {
namespace {

constexpr int64_t kSkew = 16;  // keeps the planes of transformed tiles out of one another's cache sets

// Taps of the depth that meet data for one slice of the result.
struct Taps {
  int64_t first, last;  // last is behind them
};

Taps TapsOf(const WinogradShape& s, int64_t slice) {
  const int64_t start = slice * s.stride_depth - s.pad_depth;
  Taps taps{0, s.kernel_depth};
  while (taps.first < taps.last && start + taps.first * s.dilation_depth < 0) ++taps.first;
  while (taps.last > taps.first && start + (taps.last - 1) * s.dilation_depth >= s.in_depth) --taps.last;
  return taps;
}

// The transforms of a row of a kernel, G of the paper's G g G^T.
constexpr double kWeightsOf2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
constexpr double kWeightsOf4[6][3] = {{1. / 4, 0, 0},
                                      {-1. / 6, -1. / 6, -1. / 6},
                                      {-1. / 6, 1. / 6, -1. / 6},
                                      {1. / 24, 1. / 12, 1. / 6},
                                      {1. / 24, -1. / 12, 1. / 6},
                                      {0, 0, 1}};

// Multiplies one plane of all tiles and slices with one panel of the weights.
void MultiplyPlane(const WinogradTask& t, int64_t plane, int64_t panel, int64_t planes) {
  const WinogradShape& s = t.shape;
  const int64_t first = panel * PanelColumns(), width = PanelWidth(first, s.out_channels);
  GemmWork work;
  work.left_row = s.in_channels;
  work.right_row = width;
  work.length = s.in_channels;
  work.rows = t.tiles;
  work.columns = std::min(width, s.out_channels - first);
  work.out_row = s.out_channels;
  // Panels lie one behind the other, in each the planes, in these the taps.
  const float* const weight = t.packed + s.kernel_depth * s.in_channels * (planes * first + plane * width);
  for (int64_t slice = 0; slice < s.out_depth; ++slice) {
    const Taps taps = TapsOf(s, slice);
    const bool any = taps.first < taps.last;  // else this slice of the result is the padding's: zeros
    const int64_t from = any ? slice * s.stride_depth - s.pad_depth + taps.first * s.dilation_depth : 0;
    work.left = t.in + from * t.in_slice + plane * t.in_plane;
    work.right = any ? weight + taps.first * s.in_channels * width : weight;
    work.segments = t.taps;
    work.num_segments = taps.last - taps.first;
    work.out = t.out + slice * t.out_slice + plane * t.out_plane + first;
    if (slice + 1 == s.out_depth) {
      // Those of the next plane.
      work.ahead_size = s.kernel_depth * s.in_channels * width;
      work.ahead = weight + work.ahead_size;
    }
    Multiply(work);
  }
}

}  // namespace

WinogradKernel::WinogradKernel(const WinogradShape& shape, std::vector<Post> posts, int threads,
                               const WinogradBlocking& blocking)
    : shape_(shape), posts_(std::move(posts)), threads_(std::max(threads, 1)) {
  auto tiles = [&](int64_t side) {
    return shape.batch * DivideUp(shape.out_height, side) * DivideUp(shape.out_width, side);
  };
  // For each input and output channel a transformed tile has (side + 2)^2 multiplications, and as many
  // weights are read, once for all tiles: tiles of 4x4 have the fewest multiplications, tiles of 2x2 fewer
  // weights.
  auto cost = [&](int64_t side) { return (side + 2) * (side + 2) * (tiles(side) + blocking.weight_cost); };
  side_ = blocking.side != 0 ? blocking.side : cost(2) < cost(4) ? 2 : 4;
  tile_rows_ = DivideUp(shape.out_height, side_);
  tile_columns_ = DivideUp(shape.out_width, side_);
  tiles_ = tiles(side_);
  const int64_t planes = (side_ + 2) * (side_ + 2);
  const int64_t tile_floats =
      planes * (shape.in_depth * shape.in_channels + shape.out_depth * shape.out_channels);
  block_ = std::max(blocking.least_tiles, blocking.block_floats / tile_floats);
  if (tiles_ < block_ * threads_) {
    block_ = 0;
    return;
  }
  // Blocks of equal size, as many for each thread.
  block_ = DivideUp(tiles_, DivideUp(DivideUp(tiles_, block_), threads_) * threads_);
}

size_t WinogradKernel::PackedSize() const {
  return static_cast<size_t>((side_ + 2) * (side_ + 2) * shape_.kernel_depth * shape_.in_channels *
                             shape_.out_channels);
}

WinogradKernel::Scratch WinogradKernel::ScratchOf() const {
  const int64_t planes = (side_ + 2) * (side_ + 2), tiles = block_ > 0 ? block_ : tiles_;
  Scratch s;
  s.in_plane = tiles * shape_.in_channels + kSkew;
  s.in_slice = planes * s.in_plane;
  s.out_plane = tiles * shape_.out_channels + kSkew;
  s.out_slice = planes * s.out_plane;
  s.out = shape_.in_depth * s.in_slice;
  s.size = s.out + shape_.out_depth * s.out_slice;
  return s;
}

size_t WinogradKernel::ScratchSize() const {
  return static_cast<size_t>(ScratchOf().size * (block_ > 0 ? threads_ : 1));
}

void WinogradKernel::Pack(const float* weight, const int64_t (&strides)[5], float* packed) const {
  const int64_t wide = side_ + 2, planes = wide * wide;
  auto factor = [&](int64_t i, int j) { return side_ == 2 ? kWeightsOf2[i][j] : kWeightsOf4[i][j]; };
  const int64_t panels = PanelsOf(shape_.out_channels);
  DivideAmongWorkers(threads_, panels * shape_.kernel_depth, [&](int64_t item, int64_t) {
    const int64_t panel = item / shape_.kernel_depth, tap = item % shape_.kernel_depth;
    const int64_t first = panel * PanelColumns(), width = PanelWidth(first, shape_.out_channels);
    const int64_t tap_size = shape_.in_channels * width;
    float* to = packed + planes * shape_.kernel_depth * shape_.in_channels * first + tap * tap_size;
    for (int64_t c = 0; c < shape_.in_channels; ++c) {
      for (int64_t o = 0; o < width; ++o) {
        const float* from = weight + (first + o) * strides[0] + c * strides[1] + tap * strides[2];
        double half[6][3];
        for (int64_t i = 0; i < wide; ++i) {
          for (int x = 0; x < 3; ++x) {
            half[i][x] = 0;
            for (int y = 0; y < 3; ++y) half[i][x] += factor(i, y) * from[y * strides[3] + x * strides[4]];
          }
        }
        for (int64_t plane = 0; plane < planes; ++plane) {
          double sum = 0;
          for (int x = 0; x < 3; ++x) sum += half[plane / wide][x] * factor(plane % wide, x);
          to[plane * shape_.kernel_depth * tap_size + c * width + o] = static_cast<float>(sum);
        }
      }
    }
  });
}

void WinogradKernel::Run(const float* src, const float* packed, const float* bias,
                         const float* const* addends, float* scratch, float* dst) const {
  const Scratch s = ScratchOf();
  std::vector<GemmSegment> taps;
  for (int64_t tap = 0; tap < shape_.kernel_depth; ++tap) {
    taps.push_back({tap * shape_.dilation_depth * s.in_slice, tap * shape_.in_channels});
  }
  const int64_t planes = (side_ + 2) * (side_ + 2), panels = PanelsOf(shape_.out_channels);
  WinogradTask whole{shape_,     posts_.data(), posts_.size(),   tile_rows_,  tile_columns_, 0,      tiles_,
                     s.in_plane, s.in_slice,    s.out_plane,     s.out_slice, src,           packed, bias,
                     addends,    scratch,       scratch + s.out, dst,         taps.data()};
  const auto transform_data = BestLevel().winograd.data[side_ / 4];
  const auto transform_product = BestLevel().winograd.product[side_ / 4];
  if (block_ > 0) {
    DivideAmongWorkers(threads_, DivideUp(tiles_, block_), [&](int64_t item, int64_t worker) {
      WinogradTask part = whole;
      part.first = item * block_;
      part.tiles = std::min(block_, tiles_ - part.first);
      part.in = scratch + worker * s.size;
      part.out = part.in + s.out;
      for (int64_t slice = 0; slice < shape_.in_depth; ++slice) {
        for (int64_t tile = 0; tile < part.tiles; ++tile) transform_data(part, slice, tile);
      }
      for (int64_t panel = 0; panel < panels; ++panel) {
        for (int64_t plane = 0; plane < planes; ++plane) MultiplyPlane(part, plane, panel, planes);
      }
      for (int64_t slice = 0; slice < shape_.out_depth; ++slice) {
        for (int64_t tile = 0; tile < part.tiles; ++tile) transform_product(part, slice, tile);
      }
    });
    return;
  }
  DivideAmongWorkers(threads_, shape_.in_depth * tiles_,
                     [&](int64_t item, int64_t) { transform_data(whole, item / tiles_, item % tiles_); });
  DivideAmongWorkers(threads_, panels * planes, [&](int64_t item, int64_t) {
    MultiplyPlane(whole, item % planes, item / planes, planes);
  });
  DivideAmongWorkers(threads_, shape_.out_depth * tiles_,
                     [&](int64_t item, int64_t) { transform_product(whole, item / tiles_, item % tiles_); });
}

}  // namespace collage::native
