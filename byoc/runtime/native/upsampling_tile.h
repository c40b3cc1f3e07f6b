// SPDX-License-Identifier: Apache-2.0
//
// The innermost part of native/upsampling: some pixels of a row by some blocks of output channels.
#ifndef COLLAGE_NATIVE_UPSAMPLING_TILE_H_
#define COLLAGE_NATIVE_UPSAMPLING_TILE_H_

#include <cstdint>
#include <vector>

#include "native/upsampling.h"
#include "native/vectors.h"

namespace collage::native {

// So many pixels by so many blocks are accumulated in registers: 28 of AVX-512's 32.
constexpr int kTilePixels = 14;
constexpr int kTileBlocks = 2;

struct UpsampledTile {
  // The operands of the tile's first pixel, block by block; the next pixel is kLanes further.
  const float* operands;
  int64_t operand_block, in_blocks;
  int64_t pixels;  // how many of the tile's are wanted
  // The panels of the group of output channels; each has in_blocks * kLanes rows of the tile's blocks.
  const float* panels;
  const float* bias;  // of the tile's blocks
  const std::vector<UpsampledConvolutionKernel::TermGroup>* groups;
  // Room for (1 + columns) tiles.
  float* kept;
  // The destination of image and blocks, and the place of the first pixel's results of phase 0 there.
  float* dst;
  int64_t dst_block, dst_row, dst_pixel;
  int64_t row, column, rows, columns;  // where, and how many there are
  int64_t row_scale, column_scale;
  const Post* clamp;  // null without one
};

using UpsampledTileFunction = void (*)(const UpsampledTile&);

// The greatest number of pixels that a tile has on this processor, at most kTilePixels.
int64_t MostTilePixels();
// The function for 1 .. MostTilePixels() pixels and 1 .. kTileBlocks blocks. It may read the operands of
// pixels that are not wanted, up to kTilePixels.
UpsampledTileFunction UpsampledTileOf(int64_t pixels, int64_t blocks);

// A row of one block of channels, or the difference of two.
struct OperandRow {
  const float* pixels;  // of the row, or of the later one
  int64_t row, pixel;   // the steps from one to the next
  int64_t columns;      // how many there are
  int64_t begin, end;   // those that are wanted; what is not there counts as zero
  bool here, before;    // whether the row counts, and whether the one before it is taken away
};

// Gives the pixels begin .. end - 1 of the row, and the difference of each to the one before.
void MakeOperands(const OperandRow& row, float* values, float* differences);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_UPSAMPLING_TILE_H_
