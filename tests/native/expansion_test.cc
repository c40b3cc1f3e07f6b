// SPDX-License-Identifier: Apache-2.0
//
// Products that strips make ahead of the windows that read them: whatever the windows, strips and threads,
// the results are those of one operator after the other on whole images.
//
// ctest: levels threads kernel
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "native/gemm.h"
#include "native/strips.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kImages = 2, kWidth = 9, kIn = 5, kWide = 19, kOut = 6;

const Post kSix{Post::Kind::kClip, 0, 6, -1}, kSum{Post::Kind::kAdd, 0, 0, 0};

// The windows down the image: a depthwise convolution, and a pool that sees the same rows or others.
struct Shape {
  int64_t height, kernel, stride, top, dilation, results;  // results: rows
  int64_t pool_kernel, pool_top;
};

Doubles Multiplied(const Doubles& left, const std::vector<float>& right, const std::vector<float>& bias,
                   int64_t rows, int64_t length) {
  const auto columns = static_cast<int64_t>(bias.size());
  Doubles out;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = bias[c];
      for (int64_t k = 0; k < length; ++k) sum += left[r * length + k] * right[k * columns + c];
      out.push_back(sum);
    }
  }
  return out;
}

// A depthwise convolution with these taps of one column, or a maximum of as many rows.
Doubles Down(const Doubles& image, const Shape& s, int64_t kernel, int64_t top, int64_t dilation,
             const float* taps) {
  Doubles out;
  for (int64_t n = 0; n < kImages; ++n) {
    for (int64_t y = 0; y < s.results; ++y) {
      for (int64_t i = 0; i < kWidth * kWide; ++i) {
        double sum = taps != nullptr ? 0 : std::numeric_limits<float>::lowest();
        for (int64_t tap = 0; tap < kernel; ++tap) {
          const int64_t row = y * s.stride - top + tap * dilation;
          if (row < 0 || row >= s.height) continue;
          const double x = image[(n * s.height + row) * kWidth * kWide + i];
          sum = taps != nullptr ? sum + x * taps[i % kWide * kernel + tap] : std::max(sum, x);
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

void CheckExpansion(const Shape& s, int64_t strips, int64_t threads) {
  const int64_t before = kImages * s.height * kWidth, after = kImages * s.results * kWidth;
  std::vector<float> image = Sample(before * kIn, 1), addend = Sample(before * kWide, 2),
                     residual = Sample(after * kOut, 3);
  const std::vector<float> expand = Sample(kIn * kWide, 4), project = Sample(kWide * kOut, 5),
                           wide_bias = Sample(kWide, 6), bias = Sample(kOut, 7),
                           taps = Sample(kWide * s.kernel, 8);
  std::vector<float> expand_panels(PackedElements(kIn, kWide)), project_panels(PackedElements(kWide, kOut)),
      packed_taps(TapsSize(kWide, s.kernel));
  PackPanels(expand.data(), kWide, 1, kIn, kWide, expand_panels.data());
  PackPanels(project.data(), kOut, 1, kWide, kOut, project_panels.data());
  PackTaps(taps.data(), s.kernel, 1, 1, kWide, s.kernel, 1, packed_taps.data());

  Doubles wide = Multiplied({image.begin(), image.end()}, expand, wide_bias, before, kIn);
  for (int64_t i = 0; i < before * kWide; ++i) wide[i] = PostOf(kSix, wide[i] + addend[i]);
  const Doubles deep = Down(wide, s, s.kernel, s.top, s.dilation, taps.data()),
                pooled = Down(wide, s, s.pool_kernel, s.pool_top, 1, nullptr);
  Doubles sum = deep;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += pooled[i];
  Doubles want = Multiplied(sum, project, bias, after, kWide);
  for (int64_t i = 0; i < after * kOut; ++i) want[i] += residual[i];

  Strips step;
  step.images = kImages;
  step.height = s.results;
  step.width = kWidth;
  step.strips = strips;
  step.threads = threads;
  step.looks_ahead = true;
  enum Tensor { kScratch, kImage, kAddend, kResidual, kResult };

  StripAction ahead;
  ahead.kind = StripAction::Kind::kProduct;
  const int64_t top = std::max(s.top, s.pool_top),
                below = std::max((s.kernel - 1) * s.dilation - s.top, s.pool_kernel - 1 - s.pool_top);
  ahead.ahead = {s.height, kWidth, s.stride, top, top + below + 1};
  ahead.in = {kImage, 0, 0, kIn};
  ahead.out = {StripPlace::kScratch, 0, 0, kWide};
  ahead.channels_in = kIn;
  ahead.channels_out = kWide;
  ahead.weight = expand_panels.data();
  ahead.bias = wide_bias.data();
  ahead.reads_other = true;
  ahead.other = {kAddend, 0, 0, kWide};
  ahead.posts = {kSum, kSix};

  const int64_t most = DivideUp(kImages * s.results, strips);
  const int64_t first = ahead.ahead.Rows(most) * kWidth * kWide, each = most * kWidth * kWide;
  StripAction window;
  window.kind = StripAction::Kind::kWindow;
  window.source = 0;
  window.in = ahead.out;
  window.out = {StripPlace::kScratch, first, 0, kWide};
  window.window.channels = kWide;
  window.window.height = s.height;
  window.window.width = window.window.out_width = kWidth;
  window.window.kernel_height = s.kernel;
  window.window.stride_height = s.stride;
  window.window.dilation_height = s.dilation;
  window.window.pad_top = s.top;
  window.window.taps = packed_taps.data();
  StripAction pool = window;
  pool.out.offset = first + each;
  pool.window.kind = Window::Kind::kMaximum;
  pool.window.taps = nullptr;
  pool.window.kernel_height = s.pool_kernel;
  pool.window.dilation_height = 1;
  pool.window.pad_top = s.pool_top;
  pool.reads_other = true;
  pool.other = window.out;
  pool.posts = {kSum};

  StripAction narrow;
  narrow.kind = StripAction::Kind::kProduct;
  narrow.in = pool.out;
  narrow.out = {kResult, 0, 0, kOut};
  narrow.channels_in = kWide;
  narrow.channels_out = kOut;
  narrow.weight = project_panels.data();
  narrow.bias = bias.data();
  narrow.reads_other = true;
  narrow.other = {kResidual, 0, 0, kOut};
  narrow.posts = {kSum};
  step.actions = {ahead, window, pool, narrow};
  step.scratch = first + 2 * each;

  // What was not made must not be read.
  std::vector<float> scratch(step.scratch * threads, std::numeric_limits<float>::quiet_NaN()),
      result(after * kOut, std::numeric_limits<float>::quiet_NaN());
  void* const data[] = {scratch.data(), image.data(), addend.data(), residual.data(), result.data()};
  step.Run(data);
  ExpectClose(result, want, 1e-5,
              std::to_string(s.height) + " rows, kernel " + std::to_string(s.kernel) + ", stride " +
                  std::to_string(s.stride) + ", " + std::to_string(strips) + " strips, " +
                  std::to_string(threads) + " threads");
}

TEST(Expansion, OfAnyWindowsInAnyStripsByAnyThreads) {
  for (const Shape& s : {
           Shape{11, 3, 1, 1, 1, 11, 3, 1},  // the same rows for both
           Shape{11, 3, 2, 1, 1, 6, 5, 2},   // the pool sees more of them
           Shape{12, 5, 1, 2, 2, 8, 1,
                 0},  // with rows between that are not seen, and none at the bottom's end
           Shape{13, 2, 3, 0, 1, 5, 1, 0},  // rows that nobody sees
           Shape{2, 7, 1, 3, 1, 2, 3, 1},   // all see all
       }) {
    const int64_t rows = kImages * s.results;
    for (const int64_t strips : {int64_t{1}, int64_t{2}, int64_t{3}, rows / 2, rows}) {
      for (const int64_t threads : {1, 2, 5}) CheckExpansion(s, strips, threads);
    }
  }
}

}  // namespace
}  // namespace collage::native
