// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolutions and pools of any window: f32, channels innermost, one pixel after the other at a
// fixed distance. Widths of 2, 3, 5 and 7 at strides of 1 and 2 are written out (native/window_loops.h).
#ifndef COLLAGE_NATIVE_WINDOW_H_
#define COLLAGE_NATIVE_WINDOW_H_

#include <cstdint>

#include "native/post.h"

namespace collage::native {

struct Window {
  enum class Kind { kDepthwise, kAverage, kAverageWithPadding, kMaximum };
  Kind kind = Kind::kDepthwise;
  int64_t channels = 0, height = 0, width = 0;  // of the argument
  int64_t out_width = 0;
  int64_t kernel_height = 1, kernel_width = 1, stride_height = 1, stride_width = 1;
  int64_t dilation_height = 1, dilation_width = 1, pad_top = 0, pad_left = 0;
  // kDepthwise: what PackTaps made, and one number a channel or null.
  const float* taps = nullptr;
  const float* bias = nullptr;
  // Pools: what the result is multiplied by.
  float scale = 1;
  const Post* posts = nullptr;
  int num_posts = 0;
};

// Rows first .. first + rows - 1 of the result, in one image. The rows of the posts' operands are the pixels
// of these.
struct WindowRowsWork {
  const Window* window = nullptr;
  const float* image = nullptr;
  int64_t pixel = 0;  // from pixel to pixel of the image
  int64_t first = 0, rows = 0;
  const Operand* operands = nullptr;
  float* out = nullptr;
  int64_t out_pixel = 0;
};

void RunWindow(const WindowRowsWork& work);

// Taps [channels, height, width] with these strides in the order in which RunWindow reads them: TapsSize
// elements, kernel = height * width.
int64_t TapsSize(int64_t channels, int64_t kernel);
void PackTaps(const float* taps, int64_t channel_stride, int64_t height_stride, int64_t width_stride,
              int64_t channels, int64_t kernel_height, int64_t kernel_width, float* packed);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WINDOW_H_
