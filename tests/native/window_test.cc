// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolutions and pools.
//
// ctest: levels kernel
#include "native/window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kUntouched = 1e9F;
constexpr double kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Image {
  int64_t channels, height, width, kernel_height, kernel_width, stride, pad_top, pad_left, pad_bottom,
      pad_right;
  int64_t dilation = 1;
};

// Pixels that lie further apart than they have channels: what is in between must stay.
// `magnitudes`: of pixels, and of taps or the scale.
void CheckWindow(Window::Kind kind, const Image& i, bool full, std::vector<float> image = {},
                 const Magnitudes& magnitudes = {}) {
  Window w;
  w.kind = kind;
  w.channels = i.channels;
  w.height = i.height;
  w.width = i.width;
  w.kernel_height = i.kernel_height;
  w.kernel_width = i.kernel_width;
  w.stride_height = w.stride_width = i.stride;
  w.dilation_height = w.dilation_width = i.dilation;
  w.pad_top = i.pad_top;
  w.pad_left = i.pad_left;
  const auto size = [&](int64_t extent, int64_t pads, int64_t kernel) {
    return (extent + pads - (kernel - 1) * i.dilation - 1) / i.stride + 1;
  };
  const int64_t out_height = size(i.height, i.pad_top + i.pad_bottom, i.kernel_height);
  w.out_width = size(i.width, i.pad_left + i.pad_right, i.kernel_width);
  const bool depthwise = kind == Window::Kind::kDepthwise;
  const int64_t kernel = i.kernel_height * i.kernel_width;
  const std::vector<float> taps = Sample(i.channels * kernel, 2, magnitudes.weights),
                           bias = Sample(i.channels, 3, magnitudes.results());
  std::vector<float> packed(TapsSize(i.channels, kernel));
  if (depthwise) {
    PackTaps(taps.data(), kernel, i.kernel_width, 1, i.channels, i.kernel_height, i.kernel_width,
             packed.data());
    w.taps = packed.data();
    if (full) w.bias = bias.data();
  } else if (full) {
    w.scale = 0.75F * magnitudes.weights;
  }
  const Post posts[] = {
      {Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kSilu, 1, 0, -1}, {Post::Kind::kClip, -0.5F, 0.75F, -1}};
  if (full) {
    w.posts = posts;
    w.num_posts = 3;
  }
  const int64_t ld = i.channels + 2, ld_out = i.channels + 3, ld_add = i.channels + 1;
  const int64_t results = out_height * w.out_width;
  if (image.empty()) image = Sample(i.height * i.width * ld, 1, magnitudes.data);
  const std::vector<float> add = Sample(results * ld_add, 4, magnitudes.results());
  std::vector<float> out(results * ld_out, kUntouched);
  // In two parts, as strips do.
  const int64_t first = out_height / 2;
  for (const int64_t part : {0, 1}) {
    WindowRowsWork work;
    work.window = &w;
    work.image = image.data();
    work.pixel = ld;
    work.first = part == 0 ? 0 : first;
    work.rows = part == 0 ? first : out_height - first;
    const Operand operand{add.data() + work.first * w.out_width * ld_add, ld_add};
    work.operands = &operand;
    work.out = out.data() + work.first * w.out_width * ld_out;
    work.out_pixel = ld_out;
    RunWindow(work);
  }
  std::vector<double> want(out.size(), kUntouched);
  for (int64_t y = 0; y < out_height; ++y) {
    for (int64_t x = 0; x < w.out_width; ++x) {
      for (int64_t c = 0; c < i.channels; ++c) {
        double value = kind == Window::Kind::kMaximum ? kLowest : 0;
        int64_t seen = 0;
        for (int64_t ky = 0; ky < i.kernel_height; ++ky) {
          for (int64_t kx = 0; kx < i.kernel_width; ++kx) {
            const int64_t row = y * i.stride - i.pad_top + ky * i.dilation;
            const int64_t column = x * i.stride - i.pad_left + kx * i.dilation;
            const bool inside = row >= 0 && row < i.height && column >= 0 && column < i.width;
            // As TVM does, padding is looked at: it is the lowest number.
            if (!inside && kind == Window::Kind::kMaximum) value = GreaterOf(value, kLowest);
            if (!inside) continue;
            ++seen;
            const double pixel = image[(row * i.width + column) * ld + c];
            value = kind == Window::Kind::kMaximum ? GreaterOf(value, pixel)
                    : depthwise ? value + pixel * taps[c * kernel + ky * i.kernel_width + kx]
                                : value + pixel;
          }
        }
        if (kind == Window::Kind::kAverage) value /= static_cast<double>(std::max<int64_t>(seen, 1));
        if (kind == Window::Kind::kAverageWithPadding) value /= static_cast<double>(kernel);
        value *= w.scale;
        if (full && depthwise) value += bias[c];
        const int64_t at = y * w.out_width + x;
        for (int p = 0; p < w.num_posts; ++p) value = PostOf(posts[p], value, add[at * ld_add + c]);
        want[at * ld_out + c] = value;
      }
    }
  }
  ExpectClose(out, want, 1e-5,
              "kind " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(i.height) + "x" +
                  std::to_string(i.width) + ", kernel " + std::to_string(i.kernel_width),
              magnitudes.results());
}

constexpr Window::Kind kKinds[] = {Window::Kind::kDepthwise, Window::Kind::kAverage,
                                   Window::Kind::kAverageWithPadding, Window::Kind::kMaximum};

TEST(Window, OfAllKindsAndSizes) {
  for (const Window::Kind kind : kKinds) {
    for (const int64_t kernel : {1, 2, 3, 4, 5, 7, 9}) {
      for (const int64_t stride : {1, 2, 3}) {
        const int64_t pad = kernel / 2;
        for (const bool full : {false, true}) {
          CheckWindow(kind, {17, 9, 16, kernel, kernel, stride, pad, pad, pad, pad}, full);
          CheckWindow(kind, {16, 10, 23, kernel, kernel, stride, 0, 0, 0, 0}, full);
          CheckWindow(kind, {3, 9, 9, kernel, kernel, stride, 0, pad, pad, 0}, full);
        }
      }
    }
  }
}

TEST(Window, Dilated) {
  for (const Window::Kind kind : kKinds) {
    CheckWindow(kind, {20, 11, 15, 3, 3, 1, 2, 2, 2, 2, 2}, true);
    CheckWindow(kind, {5, 17, 16, 5, 2, 2, 4, 1, 3, 0, 3}, false);
  }
}

TEST(Window, OverImagesSmallerThanATile) {
  for (int64_t width = 1; width <= 9; ++width) {
    CheckWindow(Window::Kind::kDepthwise, {20, 1, width, 3, 3, 1, 1, 1, 1, 1}, true);
    CheckWindow(Window::Kind::kMaximum, {15, 2, width, 3, 3, 2, 1, 1, 1, 1}, false);
    CheckWindow(Window::Kind::kAverage, {33, 3, width, 5, 3, 1, 2, 1, 2, 1}, true);
  }
}

TEST(Window, OfDenormalNumbers) {
  for (const Window::Kind kind : kKinds) {
    for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
      for (const int64_t kernel : {2, 3, 5, 9}) {
        const Image i{19, 7, 13, kernel, kernel, kernel == 5 ? 2 : 1, 1, 1, 1, 1};
        // Pools but those that are scaled have no weights.
        if (kind == Window::Kind::kDepthwise || magnitudes.weights == 1)
          CheckWindow(kind, i, false, {}, magnitudes);
        CheckWindow(kind, i, true, {}, magnitudes);
      }
    }
  }
}

// In each place of a window, inside of the image and where padding comes before or behind.
TEST(Window, OfWhatIsNotANumber) {
  for (const Window::Kind kind : kKinds) {
    for (const int64_t kernel : {2, 3, 4}) {
      for (const int64_t pad : {int64_t{0}, kernel / 2}) {
        const Image i{3, 8, 11, kernel, kernel, 2, pad, pad, pad, pad};
        const int64_t ld = i.channels + 2;
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          for (const int64_t every : {1, 7, 13}) {
            std::vector<float> image = Sample(i.height * i.width * ld, 5);
            for (size_t p = 0; p < image.size(); p += static_cast<size_t>(every)) image[p] = bad;
            CheckWindow(kind, i, false, image);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace collage::native
