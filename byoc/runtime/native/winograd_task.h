// SPDX-License-Identifier: Apache-2.0
//
// What native/winograd and its loops, which are compiled for each level, share.
#ifndef COLLAGE_NATIVE_WINOGRAD_TASK_H_
#define COLLAGE_NATIVE_WINOGRAD_TASK_H_

#include <cstddef>
#include <cstdint>

#include "native/gemm.h"

namespace collage::native {

// A convolution of [batch, in_depth, in_height, in_width, in_channels] to [batch, out_depth, out_height,
// out_width, out_channels]. Two-dimensional ones have depths, and a kernel's depth, of 1.
struct WinogradShape {
  int64_t batch = 1, in_channels = 0, out_channels = 0;
  int64_t in_depth = 1, in_height = 0, in_width = 0;
  int64_t out_depth = 1, out_height = 0, out_width = 0;
  // Along the depth: anything. Dilation 1 is none.
  int64_t kernel_depth = 1, stride_depth = 1, dilation_depth = 1, pad_depth = 0;
  // The padding in front of rows and columns; that behind them follows of the sizes.
  int64_t pad_top = 0, pad_left = 0;
};

// Everything that the phases need to know. Planes are the (side + 2)^2 positions in a transformed tile.
struct WinogradTask {
  WinogradShape shape;
  const Post* posts;
  size_t num_posts;
  int64_t tile_rows, tile_columns;
  // The tiles first .. first + tiles are worked on; in the scratch memory they are 0 .. tiles.
  int64_t first, tiles;
  // Steps in the scratch memory: from plane to plane, from slice to slice.
  int64_t in_plane, in_slice, out_plane, out_slice;
  const float *src, *packed, *bias;
  const float* const* addends;
  float *in, *out, *dst;  // in, out: transformed
  // Where the depth's taps lie, from the first one that meets data on.
  const GemmSegment* taps;
};

// By the tile's side, 2 or 4: a tile's data in one slice, and its products.
struct WinogradLoops {
  using Function = void (*)(const WinogradTask&, int64_t slice, int64_t tile);
  Function data[2], product[2];
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WINOGRAD_TASK_H_
