// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of upsampled tensors.
//
// ctest: levels threads kernel
#include "native/upsampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "native/divide_up.h"
#include "native/upsampling_axis.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

struct Case {
  int64_t batch, in_channels, out_channels;
  int64_t in[2], scale[2], kernel[2], pad_front[2], pad_back[2];
};

void Check(const Case& c, bool with_bias, bool clamp, int threads, const Magnitudes& magnitudes = {}) {
  int64_t out[2];
  for (int i = 0; i < 2; ++i) {
    out[i] = c.in[i] * c.scale[i] + c.pad_front[i] + c.pad_back[i] - c.kernel[i] + 1;
    ASSERT_GT(out[i], 0);
  }
  const UpsampledAxis height(c.in[0], c.scale[0], c.kernel[0], c.pad_front[0], out[0]);
  const UpsampledAxis width(c.in[1], c.scale[1], c.kernel[1], c.pad_front[1], out[1]);
  const UpsampledConvolutionKernel kernel(c.batch, c.in_channels, c.out_channels, height, width, threads);

  const int64_t in_pixels = c.in[0] * c.in[1];
  const std::vector<float> plain = Sample(c.batch * c.in_channels * in_pixels, 1, magnitudes.data);
  const std::vector<float> weights =
      Sample(c.out_channels * c.in_channels * c.kernel[0] * c.kernel[1], 2, magnitudes.weights);
  const std::vector<float> bias = Sample(c.out_channels, 3, magnitudes.results());
  const auto blocks = [](int64_t channels) { return DivideUp(channels, kLanes); };
  const auto layout = [&](int64_t channels, int64_t rows, int64_t columns) {
    ChannelBlocks l;
    l.pixel = kLanes;
    l.row = columns * l.pixel;
    l.block = rows * l.row;
    l.batch = blocks(channels) * l.block;
    return l;
  };
  UpsampledConvolutionKernel::Arguments a;
  a.src_layout = layout(c.in_channels, c.in[0], c.in[1]);
  a.dst_layout = layout(c.out_channels, out[0], out[1]);
  std::vector<float> src(c.batch * a.src_layout.batch), dst(c.batch * a.dst_layout.batch, 1e9F);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t k = 0; k < c.in_channels; ++k) {
      for (int64_t p = 0; p < in_pixels; ++p) {
        src[b * a.src_layout.batch + k / kLanes * a.src_layout.block + p * kLanes + k % kLanes] =
            plain[(b * c.in_channels + k) * in_pixels + p];
      }
    }
  }
  const std::vector<int64_t> strides = {c.in_channels * c.kernel[0] * c.kernel[1], c.kernel[0] * c.kernel[1],
                                        c.kernel[1], 1};
  std::vector<float> packed(kernel.PackedSize()), scratch(kernel.ScratchSize());
  kernel.Pack(weights.data(), strides, packed.data());
  a.src = src.data();
  a.packed = packed.data();
  a.bias = with_bias ? bias.data() : nullptr;
  a.dst = dst.data();
  a.scratch = scratch.data();
  const float low = -0.25F * magnitudes.results(), high = 0.5F * magnitudes.results();
  if (clamp) a.clamp = Post{Post::Kind::kClip, low, high, -1};
  kernel.Run(a);

  std::vector<double> want(dst.size());
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t o = 0; o < blocks(c.out_channels) * kLanes; ++o) {
      for (int64_t y = 0; y < out[0]; ++y) {
        for (int64_t x = 0; x < out[1]; ++x) {
          double sum = with_bias && o < c.out_channels ? bias[o] : 0;
          for (int64_t k = 0; o < c.out_channels && k < c.in_channels; ++k) {
            for (int64_t ky = 0; ky < c.kernel[0]; ++ky) {
              for (int64_t kx = 0; kx < c.kernel[1]; ++kx) {
                const int64_t row = y - c.pad_front[0] + ky, column = x - c.pad_front[1] + kx;
                if (row < 0 || row >= c.in[0] * c.scale[0] || column < 0 || column >= c.in[1] * c.scale[1])
                  continue;
                sum += static_cast<double>(plain[(b * c.in_channels + k) * in_pixels +
                                                 row / c.scale[0] * c.in[1] + column / c.scale[1]]) *
                       weights[o * strides[0] + k * strides[1] + ky * strides[2] + kx];
              }
            }
          }
          if (clamp) sum = std::clamp<double>(sum, low, high);
          want[b * a.dst_layout.batch + o / kLanes * a.dst_layout.block + (y * out[1] + x) * kLanes +
               o % kLanes] = sum;
        }
      }
    }
  }
  ExpectClose(dst, want, 3e-4,
              std::to_string(c.in_channels) + " to " + std::to_string(c.out_channels) + " channels, " +
                  std::to_string(c.in[0]) + "x" + std::to_string(c.in[1]),
              magnitudes.results());
}

TEST(Upsampling, ChannelsAroundTheBlocks) {
  for (const int64_t inputs : {1, 16, 17}) {
    for (const int64_t outputs : {1, 15, 16, 17, 32, 33, 49}) {
      Check({1, inputs, outputs, {3, 5}, {2, 2}, {3, 3}, {1, 1}, {1, 1}}, true, false, 2);
    }
  }
}

TEST(Upsampling, WidthsAroundTheTiles) {
  for (int64_t width = 1; width <= 30; ++width) {
    Check({1, 16, 16, {1, width}, {2, 2}, {3, 3}, {1, 1}, {1, 1}}, false, width % 2 == 0, 1);
  }
}

TEST(Upsampling, ScalesKernelsPadding) {
  Check({1, 16, 16, {4, 4}, {2, 3}, {3, 3}, {1, 1}, {1, 1}}, true, true, 2);
  Check({2, 16, 16, {4, 5}, {3, 2}, {5, 5}, {2, 2}, {2, 2}}, true, false, 3);
  Check({1, 3, 20, {5, 6}, {4, 4}, {4, 7}, {0, 3}, {2, 1}}, false, false, 2);
  Check({1, 16, 16, {2, 2}, {2, 2}, {1, 1}, {0, 0}, {0, 0}}, true, false, 1);
  Check({1, 16, 16, {3, 3}, {1, 1}, {3, 3}, {1, 1}, {1, 1}}, true, false, 1);  // not upsampled at all
  Check({1, 16, 16, {2, 2}, {2, 2}, {3, 3}, {4, 4}, {3, 5}}, true, false,
        2);  // results that see padding only
}

// A row so long that it is worked on in segments, and more threads than rows, which divides the channels.
TEST(Upsampling, SegmentsAndShares) {
  Check({1, 256, 17, {1, 60}, {2, 2}, {3, 3}, {1, 1}, {1, 1}}, false, false, 8);
  Check({1, 16, 200, {1, 3}, {2, 2}, {3, 3}, {1, 1}, {1, 1}}, true, true, 16);
}

TEST(Upsampling, OfDenormalNumbers) {
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    for (const bool clamp : {false, true}) {
      Check({1, 17, 33, {3, 5}, {2, 2}, {3, 3}, {1, 1}, {1, 1}}, true, clamp, 2, magnitudes);
      Check({1, 16, 16, {4, 4}, {2, 3}, {4, 5}, {1, 1}, {1, 1}}, false, clamp, 2, magnitudes);
    }
  }
}

TEST(Upsampling, OfWhatIsNotANumber) {
  const UpsampledAxis axis(2, 2, 3, 1, 4);
  const UpsampledConvolutionKernel kernel(1, 1, 1, axis, axis, 1);
  const std::vector<float> weights(9, 1), src(4 * kLanes, 0);
  std::vector<float> packed(kernel.PackedSize()), scratch(kernel.ScratchSize());
  kernel.Pack(weights.data(), {9, 9, 3, 1}, packed.data());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bias : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, 0.25F}) {
    for (const Post& post : {Post{Post::Kind::kRelu, 0, 0, -1}, Post{Post::Kind::kClip, -0.5F, 0.75F, -1}}) {
      std::vector<float> dst(16 * kLanes);
      UpsampledConvolutionKernel::Arguments a;
      a.src = src.data();
      a.packed = packed.data();
      a.bias = &bias;
      a.dst = dst.data();
      a.scratch = scratch.data();
      a.src_layout = {4 * kLanes, 4 * kLanes, 2 * kLanes, kLanes};
      a.dst_layout = {16 * kLanes, 16 * kLanes, 4 * kLanes, kLanes};
      a.clamp = post;
      kernel.Run(a);
      std::vector<double> want(dst.size(), PostOf(post, 0));
      for (size_t i = 0; i < want.size(); i += kLanes) want[i] = PostOf(post, bias);
      ExpectClose(dst, want, 0);
    }
  }
}

}  // namespace
}  // namespace collage::native
