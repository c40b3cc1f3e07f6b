// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with few output channels.
//
// ctest: levels threads kernel
#include "native/narrow.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "native/divide_up.h"
#include "sample.h"

namespace collage::native {
namespace {

struct Case {
  int64_t batch, in_channels, out_channels, in_height, in_width;
  int64_t kernel[2], stride[2], dilation[2], pad_front[2], pad_back[2];
};

// channels_last: the source lies with all channels innermost, which it may where they are whole blocks, and
// so does the result. odd: stands once in the data, if it is not 0.
void Check(const Case& c, bool with_bias, bool channels_last, const Magnitudes& magnitudes = {},
           float odd = 0) {
  NarrowConvolution n{};
  n.batch = c.batch;
  n.in_channels = c.in_channels;
  n.out_channels = c.out_channels;
  n.in_height = c.in_height;
  n.in_width = c.in_width;
  for (int i = 0; i < 2; ++i) {
    n.kernel[i] = c.kernel[i];
    n.stride[i] = c.stride[i];
    n.dilation[i] = c.dilation[i];
    n.pad_front[i] = c.pad_front[i];
  }
  const auto size = [&](int64_t in, int i) {
    return (in + c.pad_front[i] + c.pad_back[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.stride[i] + 1;
  };
  n.out_height = size(c.in_height, 0);
  n.out_width = size(c.in_width, 1);
  ASSERT_GT(n.out_height, 0);
  ASSERT_GT(n.out_width, 0);

  const int64_t blocks = DivideUp(c.in_channels, kLanes), pixels = c.in_height * c.in_width;
  std::vector<float> plain =
      Sample(c.batch * c.in_channels * pixels, 1, magnitudes.data);  // batch, channel, pixel
  const std::vector<float> weights =
      Sample(c.out_channels * c.in_channels * c.kernel[0] * c.kernel[1], 2, magnitudes.weights);
  if (odd != 0) plain[plain.size() / 2 + 3] = odd;
  const std::vector<float> bias = Sample(c.out_channels, 3, magnitudes.results());
  ChannelBlocks layout;
  layout.batch = blocks * kLanes * pixels;
  layout.block = channels_last ? kLanes : pixels * kLanes;
  layout.pixel = channels_last ? blocks * kLanes : kLanes;
  layout.row = c.in_width * layout.pixel;
  std::vector<float> src(c.batch * layout.batch);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t k = 0; k < c.in_channels; ++k) {
      for (int64_t p = 0; p < pixels; ++p) {
        src[b * layout.batch + k / kLanes * layout.block + p * layout.pixel + k % kLanes] =
            plain[(b * c.in_channels + k) * pixels + p];
      }
    }
  }
  const std::vector<int64_t> strides = {c.in_channels * c.kernel[0] * c.kernel[1], c.kernel[0] * c.kernel[1],
                                        c.kernel[1], 1};
  std::vector<float> packed(n.PackedSize());
  n.Pack(weights.data(), strides, packed.data());

  const int64_t out_pixels = n.out_height * n.out_width;
  std::vector<float> out(c.batch * c.out_channels * out_pixels, 1e9F);
  NarrowConvolution::Arguments a;
  a.src = src.data();
  a.packed = packed.data();
  a.bias = with_bias ? bias.data() : nullptr;
  a.dst = out.data();
  a.src_layout = layout;
  a.dst_strides[0] = c.out_channels * out_pixels;
  a.dst_strides[1] = channels_last ? 1 : out_pixels;
  a.dst_strides[3] = channels_last ? c.out_channels : 1;
  a.dst_strides[2] = n.out_width * a.dst_strides[3];
  n.Run(a);

  std::vector<double> want(out.size());
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t y = 0; y < n.out_height; ++y) {
        for (int64_t x = 0; x < n.out_width; ++x) {
          double sum = with_bias ? bias[o] : 0;
          for (int64_t k = 0; k < c.in_channels; ++k) {
            for (int64_t ky = 0; ky < c.kernel[0]; ++ky) {
              for (int64_t kx = 0; kx < c.kernel[1]; ++kx) {
                const int64_t row = y * c.stride[0] - c.pad_front[0] + ky * c.dilation[0];
                const int64_t column = x * c.stride[1] - c.pad_front[1] + kx * c.dilation[1];
                if (row < 0 || row >= c.in_height || column < 0 || column >= c.in_width) continue;
                sum +=
                    static_cast<double>(plain[(b * c.in_channels + k) * pixels + row * c.in_width + column]) *
                    weights[o * strides[0] + k * strides[1] + ky * strides[2] + kx];
              }
            }
          }
          want[b * a.dst_strides[0] + o * a.dst_strides[1] + y * a.dst_strides[2] + x * a.dst_strides[3]] =
              sum;
        }
      }
    }
  }
  ExpectClose(out, want, 1e-4,
              std::to_string(c.in_channels) + " to " + std::to_string(c.out_channels) + " channels, " +
                  std::to_string(c.in_height) + "x" + std::to_string(c.in_width),
              magnitudes.results());
}

TEST(Narrow, EachNumberOfOutputsAndChannelsAroundABlock) {
  for (int64_t outputs = 1; outputs <= kMostNarrow; ++outputs) {
    for (const int64_t inputs : {1, 15, 16, 17, 32}) {
      Check({1, inputs, outputs, 6, 29, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, true, false);
    }
  }
}

TEST(Narrow, WidthsAroundTheTiles) {
  for (int64_t width = 1; width <= 27; ++width) {
    Check({1, 16, 3, 2, width, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, false, false);
    Check({1, 16, 1, 2, width, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}}, true, true);
  }
}

TEST(Narrow, KernelsStridesDilationsPadding) {
  Check({2, 20, 2, 9, 11, {5, 3}, {2, 1}, {1, 2}, {2, 0}, {1, 3}}, true, false);
  Check({1, 32, 4, 12, 31, {7, 7}, {1, 2}, {1, 1}, {3, 3}, {3, 3}}, true, true);
  Check({1, 16, 6, 7, 7, {7, 7}, {3, 3}, {1, 1}, {6, 6}, {6, 6}}, false,
        false);  // windows that see padding only
  Check({1, 48, 5, 3, 40, {2, 4}, {1, 3}, {2, 1}, {0, 1}, {1, 0}}, true, true);
  Check({3, 17, 3, 5, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, true, false);
}

// It stays with the pixels whose windows see it.
TEST(Narrow, OfWhatIsNotANumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {kNan, kInfinity, -kInfinity}) {
    for (int64_t outputs = 1; outputs <= kMostNarrow; ++outputs) {
      Check({1, 32, outputs, 5, 29, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, true, false, {}, odd);
      Check({1, 17, outputs, 4, 20, {3, 3}, {1, 2}, {1, 1}, {0, 0}, {0, 0}}, false, false, {}, odd);
    }
  }
}

TEST(Narrow, OfDenormalNumbers) {
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    for (int64_t outputs = 1; outputs <= kMostNarrow; ++outputs) {
      Check({1, 17, outputs, 4, 29, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, true, false, magnitudes);
    }
  }
}

}  // namespace
}  // namespace collage::native
