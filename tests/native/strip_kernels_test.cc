// SPDX-License-Identifier: Apache-2.0
//
// What is computed of a strip of an image. Written for AVX-512 only; elsewhere that it says so.
//
// ctest: levels
#include "native/strip_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "sample.h"

namespace collage::native::strip {
namespace {

constexpr Range kBounded{true, -0.5F, 0.75F};
constexpr float kUntouched = 1e9F;

double Bounded(double value, const Range& range) {
  return range.bounded ? std::clamp<double>(value, range.low, range.high) : value;
}

class Strips : public testing::Test {
 protected:
  void SetUp() override {
    if (!Available()) GTEST_SKIP() << "without AVX-512 these kernels are not used";
  }
};

// Pixels that lie further apart than they have channels: what is in between must stay.
TEST_F(Strips, ProductsAroundTheTiles) {
  for (const int64_t pixels : {1, 2, 13, 14, 15, 29}) {
    for (const int64_t in : {1, 3, 17}) {
      for (const int64_t out : {1, 15, 16, 17, 31, 32, 33, 48, 65}) {
        for (const bool full : {false, true}) {
          const int64_t lda = in + 3, ldc = out + 5, ld_add = out + 1;
          const std::vector<float> a = Sample(pixels * lda, 1), matrix = Sample(out * in, 2),
                                   bias = Sample(out, 3), add = Sample(pixels * ld_add, 4);
          std::vector<float> packed(PackedSize(in, out)), c(pixels * ldc, kUntouched);
          Pack(matrix.data(), in, 1, in, out, packed.data());
          strip::Run(Product{a.data(), lda, packed.data(), full ? bias.data() : nullptr,
                             full ? add.data() : nullptr, ld_add, c.data(), ldc, pixels, in, out,
                             full ? kBounded : Range{}});
          std::vector<double> want(c.size(), kUntouched);
          for (int64_t p = 0; p < pixels; ++p) {
            for (int64_t o = 0; o < out; ++o) {
              double sum = full ? static_cast<double>(bias[o]) + add[p * ld_add + o] : 0;
              for (int64_t k = 0; k < in; ++k)
                sum += static_cast<double>(a[p * lda + k]) * matrix[o * in + k];
              want[p * ldc + o] = Bounded(sum, full ? kBounded : Range{});
            }
          }
          ExpectClose(c, want, 1e-5,
                      std::to_string(pixels) + " pixels, " + std::to_string(out) + " channels");
        }
      }
    }
  }
}

struct Image {
  int64_t channels, height, width, kernel_height, kernel_width, stride, pad_top, pad_left, pad_bottom,
      pad_right;
};

void CheckWindow(Window::Kind kind, const Image& i, bool full) {
  Window w;
  w.kind = kind;
  w.channels = i.channels;
  w.height = i.height;
  w.width = i.width;
  w.kernel_height = i.kernel_height;
  w.kernel_width = i.kernel_width;
  w.stride_height = w.stride_width = i.stride;
  w.pad_top = i.pad_top;
  w.pad_left = i.pad_left;
  const int64_t out_height = (i.height + i.pad_top + i.pad_bottom - i.kernel_height) / i.stride + 1;
  w.out_width = (i.width + i.pad_left + i.pad_right - i.kernel_width) / i.stride + 1;
  ASSERT_TRUE(Knows(w));
  const bool depthwise = kind == Window::Kind::kDepthwise;
  const int64_t kernel = i.kernel_height * i.kernel_width;
  const std::vector<float> taps = Sample(i.channels * kernel, 2), bias = Sample(i.channels, 3);
  std::vector<float> packed(TapsSize(i.channels, kernel));
  if (depthwise) {
    PackTaps(taps.data(), kernel, i.kernel_width, 1, i.channels, i.kernel_height, i.kernel_width,
             packed.data());
    w.taps = packed.data();
    if (full) w.bias = bias.data();
  } else if (full) {
    w.scale = 0.75F;
  }
  if (full) w.range = kBounded;
  const int64_t ld = i.channels + 2, ld_out = i.channels + 3, ld_add = i.channels + 1;
  const int64_t results = out_height * w.out_width;
  const std::vector<float> image = Sample(i.height * i.width * ld, 1), add = Sample(results * ld_add, 4);
  std::vector<float> out(results * ld_out, kUntouched);
  // In two parts, as strips do.
  const int64_t first = out_height / 2;
  for (const int64_t part : {0, 1}) {
    const int64_t begin = part == 0 ? 0 : first, rows = part == 0 ? first : out_height - first;
    if (rows == 0) continue;
    Run(w, image.data(), ld, begin, rows, full ? add.data() + begin * w.out_width * ld_add : nullptr, ld_add,
        out.data() + begin * w.out_width * ld_out, ld_out);
  }
  std::vector<double> want(out.size(), kUntouched);
  for (int64_t y = 0; y < out_height; ++y) {
    for (int64_t x = 0; x < w.out_width; ++x) {
      for (int64_t c = 0; c < i.channels; ++c) {
        double value = kind == Window::Kind::kMaximum ? -std::numeric_limits<double>::infinity() : 0;
        int64_t seen = 0;
        for (int64_t ky = 0; ky < i.kernel_height; ++ky) {
          for (int64_t kx = 0; kx < i.kernel_width; ++kx) {
            const int64_t row = y * i.stride - i.pad_top + ky, column = x * i.stride - i.pad_left + kx;
            if (row < 0 || row >= i.height || column < 0 || column >= i.width) continue;
            ++seen;
            const double pixel = image[(row * i.width + column) * ld + c];
            value = kind == Window::Kind::kMaximum ? std::max(value, pixel)
                    : depthwise ? value + pixel * taps[c * kernel + ky * i.kernel_width + kx]
                                : value + pixel;
          }
        }
        if (kind == Window::Kind::kAverage) value /= static_cast<double>(seen);
        if (kind == Window::Kind::kAverageWithPadding) value /= static_cast<double>(kernel);
        value *= w.scale;
        if (full && depthwise) value += bias[c];
        const int64_t at = y * w.out_width + x;
        if (full) value += add[at * ld_add + c];
        want[at * ld_out + c] = Bounded(value, w.range);
      }
    }
  }
  ExpectClose(out, want, 1e-5,
              "kind " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(i.height) + "x" +
                  std::to_string(i.width) + ", kernel " + std::to_string(i.kernel_width));
}

TEST_F(Strips, WindowsOfAllKindsAndSizes) {
  for (const auto kind : {Window::Kind::kDepthwise, Window::Kind::kAverage, Window::Kind::kAverageWithPadding,
                          Window::Kind::kMaximum}) {
    for (const int64_t kernel : {2, 3, 5, 7}) {
      for (const int64_t stride : {1, 2}) {
        const int64_t pad = kernel / 2;
        for (const bool full : {false, true}) {
          CheckWindow(kind, {17, 9, 16, kernel, kernel, stride, pad, pad, pad, pad}, full);
          CheckWindow(kind, {16, 8, 23, kernel, kernel, stride, 0, 0, 0, 0}, full);
          CheckWindow(kind, {3, 7, 7, kernel, kernel, stride, 0, pad, pad, 0}, full);
        }
      }
    }
  }
}

TEST_F(Strips, WindowsOverImagesSmallerThanATile) {
  for (int64_t width = 1; width <= 9; ++width) {
    CheckWindow(Window::Kind::kDepthwise, {20, 1, width, 3, 3, 1, 1, 1, 1, 1}, true);
    CheckWindow(Window::Kind::kMaximum, {15, 2, width, 3, 3, 2, 1, 1, 1, 1}, false);
    CheckWindow(Window::Kind::kAverage, {33, 3, width, 5, 3, 1, 2, 1, 2, 1}, true);
  }
}

TEST(StripWindows, WhatIsNotWrittenOutIsNotKnown) {
  Window w{};
  w.kernel_height = w.kernel_width = 3;
  w.stride_height = w.stride_width = 3;
  EXPECT_FALSE(Knows(w));
  w.stride_width = 1;
  w.kernel_width = 4;
  EXPECT_FALSE(Knows(w));
}

TEST_F(Strips, SumsAndCopies) {
  for (const int64_t channels : {1, 15, 16, 17, 40}) {
    for (const Range& range : {Range{}, kBounded}) {
      constexpr int64_t kPixels = 5;
      const int64_t lda = channels + 1, ldb = channels + 2, ld_out = channels + 4;
      const std::vector<float> a = Sample(kPixels * lda, 1), b = Sample(kPixels * ldb, 2);
      std::vector<float> sum(kPixels * ld_out, kUntouched), copy(kPixels * ld_out, kUntouched);
      Add(a.data(), lda, b.data(), ldb, sum.data(), ld_out, kPixels, channels, range);
      Copy(a.data(), lda, copy.data(), ld_out, kPixels, channels, range);
      std::vector<double> sums(sum.size(), kUntouched), copies(sum.size(), kUntouched);
      for (int64_t p = 0; p < kPixels; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          sums[p * ld_out + c] = Bounded(static_cast<double>(a[p * lda + c]) + b[p * ldb + c], range);
          copies[p * ld_out + c] = Bounded(a[p * lda + c], range);
        }
      }
      ExpectClose(sum, sums, 1e-6);
      ExpectClose(copy, copies, 0);
    }
  }
}

// As it is: a bound takes the place of what is not a number.
TEST_F(Strips, WhatIsNotANumberBecomesTheBound) {
  std::vector<float> a(3, std::numeric_limits<float>::quiet_NaN()), out(3);
  Copy(a.data(), 3, out.data(), 3, 1, 3, kBounded);
  ExpectClose(out, std::vector<double>(3, kBounded.low), 0);
  Copy(a.data(), 3, out.data(), 3, 1, 3, Range{});
  ExpectClose(out, std::vector<double>(3, std::numeric_limits<double>::quiet_NaN()), 0);
}

}  // namespace
}  // namespace collage::native::strip
