// SPDX-License-Identifier: Apache-2.0
//
// The softmax of rows of scores that come block by block ("online": M. Milakov and N. Gimelshein, "Online
// normalizer calculation for softmax", 2018). native/softmax_loops.h has the loops, compiled for each level.
#ifndef COLLAGE_NATIVE_SOFTMAX_H_
#define COLLAGE_NATIVE_SOFTMAX_H_

#include <cstdint>

namespace collage::native {

// What is done to scores: something is added, or some are kept and the others replaced. The element (r, i) is
// that at r * row + i * column; column is 1 or 0.
struct ScoreMask {
  const float* added = nullptr;
  // In the place of `added`: scores stay where that a byte is not 0 is `keeps`; the others become `fill`.
  const uint8_t* chosen = nullptr;
  bool keeps = true;
  float fill = 0;
  int64_t row = 0, column = 0;
};

// A block of scores becomes e^(masked(scale * score) - m), where m is the greatest that the row has had so
// far, and the masks are done one after the other.
struct SoftmaxWork {
  static constexpr int kMasks = 2;

  // Rows of `length` scores; `step`, whole vectors, is from row to row. What is behind the last one, up to
  // whole vectors, becomes 0.
  float* scores = nullptr;
  int64_t rows = 0, step = 0, length = 0;
  // Row r has no more than visible + r scores, from the first one on; the others become 0.
  int64_t visible = INT64_MAX / 2;
  float scale = 1;
  int num_masks = 0;
  ScoreMask masks[kMasks];
  // For each row, from block to block: the greatest score and the sum of powers. Not read with the first
  // block.
  bool first = true;
  float* greatest = nullptr;
  float* sums = nullptr;
  // What a row's results of the blocks before are to be multiplied by, as its greatest score has grown; 1
  // with the first block.
  float* factors = nullptr;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_SOFTMAX_H_
