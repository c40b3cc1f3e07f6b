// SPDX-License-Identifier: Apache-2.0
//
// What is computed of one strip (a few rows of an image) by dnnl_strips.cc: f32, channels innermost, one
// pixel after the other at a fixed distance (ld, in elements). Written for AVX-512; Available says whether
// this processor and this build have it, and nothing else here may be called where it says no.
#ifndef COLLAGE_NATIVE_STRIP_KERNELS_H_
#define COLLAGE_NATIVE_STRIP_KERNELS_H_

#include <cstdint>

namespace collage::native::strip {

bool Available();

// What is done to a result last: it is brought between low and high, where bounded.
struct Range {
  bool bounded = false;
  float low = 0, high = 0;
};

// c = range(a * b + bias + add) for so many pixels of so many channels in and out. b is what Pack made. bias
// and add may be null; add has the result's shape and may be c itself.
struct Product {
  const float* a;
  int64_t lda;
  const float* b;
  const float* bias;
  const float* add;
  int64_t ld_add;
  float* c;
  int64_t ldc;
  int64_t pixels, in, out;
  Range range;
};
void Run(const Product& product);

// A matrix [out, in] with these strides in the order in which Run reads it: PackedSize elements.
int64_t PackedSize(int64_t in, int64_t out);
void Pack(const float* matrix, int64_t out_stride, int64_t in_stride, int64_t in, int64_t out, float* packed);

// Rows first .. first + rows - 1 of the result of a depthwise convolution or a pool, in one image.
struct Window {
  enum class Kind { kDepthwise, kAverage, kAverageWithPadding, kMaximum };
  Kind kind = Kind::kDepthwise;
  int64_t channels, height, width;  // of the argument
  int64_t out_width;
  int64_t kernel_height, kernel_width, stride_height, stride_width, pad_top, pad_left;
  // kDepthwise: what PackTaps made, and one number a channel or null.
  const float* taps = nullptr;
  const float* bias = nullptr;
  // Pools: what the result is multiplied by.
  float scale = 1;
  Range range;
};
// Whether Run can compute windows of this size and stride.
bool Knows(const Window& window);
// add, if it is not null, has the result's shape and is added to it before it is brought into the range.
void Run(const Window& window, const float* image, int64_t ld, int64_t first, int64_t rows, const float* add,
         int64_t ld_add, float* out, int64_t ld_out);

// Taps [channels, kernel] (kernel = height * width of the window) with these strides in the order in which
// Run reads them: TapsSize elements.
int64_t TapsSize(int64_t channels, int64_t kernel);
void PackTaps(const float* taps, int64_t channel_stride, int64_t height_stride, int64_t width_stride,
              int64_t channels, int64_t kernel_height, int64_t kernel_width, float* packed);

// out = range(a + b), out = range(a); the result may lie where an argument does.
void Add(const float* a, int64_t lda, const float* b, int64_t ldb, float* out, int64_t ld_out, int64_t pixels,
         int64_t channels, const Range& range);
void Copy(const float* a, int64_t lda, float* out, int64_t ld_out, int64_t pixels, int64_t channels,
          const Range& range);

}  // namespace collage::native::strip

#endif  // COLLAGE_NATIVE_STRIP_KERNELS_H_
