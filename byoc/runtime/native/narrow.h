// SPDX-License-Identifier: Apache-2.0
//
// A convolution with few output channels: the last one of what makes pictures or masks.
//
// oneDNN's kernels have output channels side by side in a register, and fill up what there are to a block of
// 16: with 3 they do five times the work. Here the input channels stand side by side, and are added up at the
// end. f32, two spatial dimensions, one group.
#ifndef COLLAGE_NATIVE_NARROW_H_
#define COLLAGE_NATIVE_NARROW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/vectors.h"

namespace collage::native {

// The greatest number of output channels.
constexpr int64_t kMostNarrow = 6;

struct NarrowConvolution {
  int64_t batch, in_channels, in_height, in_width;
  int64_t out_channels, out_height, out_width;
  // By axis, height first.
  int64_t kernel[2], stride[2], dilation[2], pad_front[2];

  // In elements: the weights as `Run` wants them.
  size_t PackedSize() const;
  // Packs weights [out_channels, in_channels, height, width], which lie by these steps.
  void Pack(const float* weights, const std::vector<int64_t>& strides, float* packed) const;

  struct Arguments {
    const float* src = nullptr;
    const float* packed = nullptr;
    const float* bias = nullptr;  // one for each channel, or none
    float* dst = nullptr;
    ChannelBlocks src_layout;
    // The steps of the result: images, channels, rows, pixels.
    int64_t dst_strides[4] = {};
  };
  // The source's channels beyond in_channels, up to a whole block, must be zero.
  void Run(const Arguments& arguments) const;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_NARROW_H_
