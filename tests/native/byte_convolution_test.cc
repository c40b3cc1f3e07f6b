// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and dense layers as products of bytes.
//
// ctest: levels vnni threads kernel
#include "native/byte_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "native/divide_up.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

struct Case {
  int64_t batch, in_channels, out_channels, in_height, in_width;
  int64_t kernel[2], stride[2], dilation[2], pad_front[2], pad_back[2];
};

ConvolutionShape ShapeOf(const Case& c) {
  ConvolutionShape s;
  s.batch = c.batch;
  s.in_channels = c.in_channels;
  s.out_channels = c.out_channels;
  s.in_height = c.in_height;
  s.in_width = c.in_width;
  const auto size = [&](int64_t in, int i) {
    return (in + c.pad_front[i] + c.pad_back[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.stride[i] + 1;
  };
  s.out_height = size(c.in_height, 0);
  s.out_width = size(c.in_width, 1);
  for (int i = 0; i < 2; ++i) {
    s.kernel[i] = c.kernel[i];
    s.stride[i] = c.stride[i];
    s.dilation[i] = c.dilation[i];
    s.pad_front[i] = c.pad_front[i];
  }
  return s;
}

// In float64; the data are [batch, height, width, channels], weights [out, in, rows, columns].
std::vector<double> Direct(const ConvolutionShape& s, const std::vector<float>& src,
                           const std::vector<float>& weight) {
  std::vector<double> all;
  const int64_t taps = s.kernel[0] * s.kernel[1];
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t y = 0; y < s.out_height; ++y) {
      for (int64_t x = 0; x < s.out_width; ++x) {
        for (int64_t o = 0; o < s.out_channels; ++o) {
          double sum = 0;
          for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t row = y * s.stride[0] - s.pad_front[0] + tap / s.kernel[1] * s.dilation[0];
            const int64_t column = x * s.stride[1] - s.pad_front[1] + tap % s.kernel[1] * s.dilation[1];
            if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
            for (int64_t k = 0; k < s.in_channels; ++k) {
              sum += static_cast<double>(
                         src[((b * s.in_height + row) * s.in_width + column) * s.in_channels + k]) *
                     weight[(o * s.in_channels + k) * taps + tap];
            }
          }
          all.push_back(sum);
        }
      }
    }
  }
  return all;
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {1, 16, 64, 7, 7, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 3, 33, 11, 9, {7, 5}, {2, 2}, {1, 1}, {3, 2}, {3, 2}},
      {3, 5, 80, 6, 13, {3, 3}, {1, 2}, {2, 2}, {2, 1}, {2, 0}},
      {1, 8, 17, 5, 5, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},  // of which the last pixels are not read
      {2, 12, 130, 14, 14, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {1, 4, 1, 9, 40, {2, 3}, {1, 1}, {1, 3}, {0, 4}, {3, 4}},
      {1, 6, 16, 1, 30, {1, 5}, {1, 1}, {1, 1}, {0, 4}, {0, 4}},    // windows that see no pixel but one
      {1, 3, 20, 1, 2, {1, 1}, {9, 9}, {1, 1}, {3, 4}, {0, 0}},     // windows in front of the image alone
      {13, 70, 100, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},  // a dense layer
      {1, 259, 47, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      // Stretches of whole tiles, and pixels that are equally far apart within a line, in an image, in all.
      {1, 64, 48, 5, 16, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {3, 128, 65, 9, 10, {2, 2}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {3, 64, 20, 9, 5, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {2, 64, 20, 9, 5, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
      {70, 64, 20, 2, 1, {2, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {70, 6, 20, 2, 3, {2, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
  };
  return cases;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> Computed(const ByteConvolution::Shape& s, const std::vector<float>& src,
                            const std::vector<float>& weight, const float* bias,
                            const std::vector<Post>& posts, const float* const* addends, int threads,
                            const ByteScale* known = nullptr) {
  const ByteConvolution kernel(s, posts, threads);
  EXPECT_TRUE(kernel.Fits());
  const int64_t taps = s.kernel[0] * s.kernel[1], each = s.in_channels * taps;
  const int64_t steps[4] = {each, taps, s.kernel[1], 1};
  std::vector<int8_t> rounded(weight.size());
  std::vector<float> weight_scales(s.out_channels);
  for (int64_t o = 0; o < s.out_channels; ++o) {
    float most = 0;
    for (int64_t i = 0; i < each; ++i) most = std::max(most, std::abs(weight[o * each + i]));
    weight_scales[o] = most / 127;
    for (int64_t i = 0; i < each && most > 0; ++i) {
      rounded[o * each + i] = static_cast<int8_t>(std::lround(weight[o * each + i] / weight_scales[o]));
    }
  }
  // Exactly as much as is asked for, so that the address sanitizer sees what is beyond.
  std::vector<int32_t> packed(DivideUp(kernel.PackedSize(), 4));
  kernel.Pack(rounded.data(), steps, weight_scales.data(), packed.data());
  std::vector<uint8_t> bytes(kernel.data().Size(), 77);
  std::vector<ByteScale> scales(s.batch);
  kernel.data().Round(src.data(), known, threads, bytes.data(), scales.data());
  std::vector<float> dst(s.batch * s.out_height * s.out_width * s.out_channels, 1e9F);
  std::vector<uint8_t> scratch(kernel.ScratchSize(), 77);
  kernel.Run(bytes.data(), scales.data(), packed.data(), bias, addends, scratch.data(), dst.data());
  return dst;
}

// Whole numbers, of which each image has least and least + 255, and each channel of the weights 127 or -127:
// as bytes they are what they are.
std::vector<float> Whole(int64_t images, int64_t each, int least, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(least, least + 255);
  std::vector<float> all(images * each);
  for (float& one : all) one = static_cast<float>(number(random));
  for (int64_t i = 0; i < images; ++i) {
    all[i * each] = static_cast<float>(least);
    all[(i + 1) * each - 1] = static_cast<float>(least + 255);
  }
  return all;
}
std::vector<float> WholeWeights(int64_t channels, int64_t each, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-127, 127);
  std::vector<float> all(channels * each);
  for (float& one : all) one = static_cast<float>(number(random));
  for (int64_t i = 0; i < channels; ++i) all[i * each] = i % 2 == 0 ? 127 : -127;
  return all;
}

TEST(ByteConvolution, WholeNumbersAreExact) {
  for (const Case& c : Cases()) {
    const ByteConvolution::Shape s = ShapeOf(c);
    for (const int least : {0, -100, -255}) {
      const std::vector<float> src = Whole(s.batch, s.in_height * s.in_width * s.in_channels, least, 1);
      const std::vector<float> weight =
          WholeWeights(s.out_channels, s.in_channels * s.kernel[0] * s.kernel[1], 2);
      for (const int threads : {1, 3}) {
        const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, threads);
        ExpectClose(got, Direct(s, src, weight), 1e-6,
                    "case " + std::to_string(&c - Cases().data()) + " from " + std::to_string(least));
      }
    }
  }
}

// Every rest of a tile, or of a block of tiles, of pixels, columns and products.
TEST(ByteConvolution, AnyRest) {
  for (const int64_t in : {1, 20, 64, 67, 130}) {
    for (const int64_t out : {5, 16, 31, 40, 64, 100}) {
      for (int64_t wide = 1; wide <= 66; wide += wide < 35 ? 1 : 7) {
        for (const int64_t kernel : {1, 3}) {
          const ByteConvolution::Shape s =
              ShapeOf({1, in, out, 2, wide, {1, kernel}, {1, 1}, {1, 1}, {0, kernel / 2}, {0, kernel / 2}});
          const std::vector<float> src = Whole(1, 2 * wide * in, -30, 1),
                                   weight = WholeWeights(out, in * kernel, 2);
          ExpectClose(
              Computed(s, src, weight, nullptr, {}, nullptr, 1), Direct(s, src, weight), 1e-6,
              std::to_string(in) + " to " + std::to_string(out) + ", " + std::to_string(wide) + " wide");
        }
      }
    }
  }
}

TEST(DotRows, StepsAreThoseOfMemory) {
  std::mt19937 random(1);
  const auto upto = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  int64_t even = 0;
  for (int round = 0; round < 20000; ++round) {
    DotRows at{upto(4), upto(3), upto(3), 0, 0};
    at.line = upto(3) == 1 ? upto(9) : at.pixel * at.width;
    at.image = upto(3) == 1 ? upto(30) : at.line * at.height;
    const int64_t first = upto(20) - 1, rows = 1 + upto(12);
    const auto begins = [&](int64_t r) {
      const int64_t line = r / at.width;
      return line / at.height * at.image + line % at.height * at.line + r % at.width * at.pixel;
    };
    const int64_t step = begins(first + 1) - begins(first), told = StepOfRows(at, first, rows);
    bool same = true;
    for (int64_t r = first + 1; r < first + rows; ++r) same &= begins(r) - begins(r - 1) == step;
    // Rows of three axes may lie equally far apart by chance, which need not be seen.
    if (told >= 0) {
      ASSERT_TRUE(same && told == step) << round;
      ++even;
    }
    const bool contiguous = at.line == at.pixel * at.width && at.image == at.line * at.height;
    if (contiguous) {
      ASSERT_EQ(told, at.pixel) << round;
    }
  }
  EXPECT_GT(even, 5000);
}

TEST(ByteConvolution, BiasAndPosts) {
  const std::vector<Post> posts = {{Post::Kind::kLinear, 0.5F, 0.25F, -1},
                                   {Post::Kind::kAdd, 0, 0, 0},
                                   {Post::Kind::kGelu, 0, 0, -1},
                                   {Post::Kind::kAdd, 0, 0, 1},
                                   {Post::Kind::kClip, -100, 2000, -1}};
  for (const Case& c : Cases()) {
    const ByteConvolution::Shape s = ShapeOf(c);
    const std::vector<float> src = Whole(s.batch, s.in_height * s.in_width * s.in_channels, -7, 1);
    const std::vector<float> weight =
        WholeWeights(s.out_channels, s.in_channels * s.kernel[0] * s.kernel[1], 2);
    const std::vector<float> bias = Sample(s.out_channels, 3);
    std::vector<double> want = Direct(s, src, weight);
    const auto results = static_cast<int64_t>(want.size());
    std::vector<float> first = Sample(results, 4), second = Sample(results, 5);
    const float* addends[] = {first.data(), second.data()};
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] += bias[i % s.out_channels];
      for (const Post& post : posts) {
        want[i] = PostOf(post, want[i], post.operand >= 0 ? addends[post.operand][i] : 0);
      }
    }
    ExpectClose(Computed(s, src, weight, bias.data(), posts, addends, 2), want, 1e-6);
  }
}

TEST(ByteConvolution, ResultsOnAGrid) {
  // A power of 2: what stands between two steps stands there exactly.
  const Post grid{Post::Kind::kGrid, 64, -100, -1};
  for (const Case& c : Cases()) {
    const ByteConvolution::Shape s = ShapeOf(c);
    const std::vector<float> src = Whole(s.batch, s.in_height * s.in_width * s.in_channels, -120, 1);
    const std::vector<float> weight =
        WholeWeights(s.out_channels, s.in_channels * s.kernel[0] * s.kernel[1], 2);
    std::vector<double> want = Direct(s, src, weight);
    for (double& one : want) one = PostOf(grid, one);
    const std::vector<float> got = Computed(s, src, weight, nullptr, {grid}, nullptr, 2);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
  }
}

// Numbers on steps of a scale that is known, of which they do not reach the ends.
TEST(ByteConvolution, AScaleThatIsKnown) {
  for (const Case& c : Cases()) {
    const ByteConvolution::Shape s = ShapeOf(c);
    const float step = 0.03125F;
    std::vector<float> src = Whole(s.batch, s.in_height * s.in_width * s.in_channels, -90, 1);
    for (float& one : src) one = std::min(one, 60.0F) * step;
    const std::vector<float> weight =
        WholeWeights(s.out_channels, s.in_channels * s.kernel[0] * s.kernel[1], 2);
    const ByteScale known{step, 100};
    for (const int threads : {1, 3}) {
      ExpectClose(Computed(s, src, weight, nullptr, {}, nullptr, threads, &known), Direct(s, src, weight),
                  1e-6, "case " + std::to_string(&c - Cases().data()));
    }
  }
}

TEST(RoundToGrid, IsWhatPostSays) {
  const std::vector<float> odd = {kNan,   kInfinity, -kInfinity, 0,           -0.0F,  0.5F,   -0.5F,
                                  1.5F,   -1.5F,     2.5F,       0.49999997F, 1e30F,  -1e30F, 1e-42F,
                                  199.5F, 200.5F,    -55.5F,     -56.5F,      154.5F, 155};
  for (const float scale : {1.0F, 0.0123F, 32.0F}) {
    for (const int64_t count : {1, 16, 37, 70001}) {
      for (const int threads : {1, 3}) {
        std::vector<float> numbers = Sample(count, 7);
        for (int64_t i = 0; i < count; ++i) {
          const bool one = i < static_cast<int64_t>(odd.size());
          numbers[i] = (one ? odd[i] : 300 * numbers[i]) * scale;
        }
        std::vector<float> got(count);
        RoundToGrid(numbers.data(), count, scale, -56, threads, got.data());
        for (int64_t i = 0; i < count; ++i) {
          // In float32, as TVM divides: by a half less or more a number of doubles goes the other way.
          const float quotient = numbers[i] / scale;
          const Post unit{Post::Kind::kGrid, 1, -56, -1};
          ASSERT_EQ(got[i], static_cast<float>(PostOf(unit, quotient)) * scale)
              << numbers[i] << " by " << scale;
        }
        RoundToGrid(numbers.data(), count, scale, -56, threads, numbers.data());
        EXPECT_EQ(numbers, got);
      }
    }
  }
}

// How far off a product is that was rounded: half of a step of each number, as if all were the worst.
TEST(ByteConvolution, IsOffByNoMoreThanRounding) {
  for (const Case& c : Cases()) {
    const ByteConvolution::Shape s = ShapeOf(c);
    const int64_t terms = s.in_channels * s.kernel[0] * s.kernel[1];
    const std::vector<float> src = Sample(s.batch * s.in_height * s.in_width * s.in_channels, 1),
                             weight = Sample(s.out_channels * terms, 2);
    const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, 2);
    const std::vector<double> want = Direct(s, src, weight);
    const double step = 2.0 / 255, weight_step = 1.0 / 127, n = static_cast<double>(terms);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_LE(std::abs(got[i] - want[i]), n * 1.01 * (step + weight_step) / 2) << i;
    }
    // What each rounding adds is independent.
    double square = 0;
    for (size_t i = 0; i < want.size(); ++i) square += (got[i] - want[i]) * (got[i] - want[i]);
    const double typical = std::sqrt(n / 3 * (step * step + weight_step * weight_step) / 12);
    EXPECT_LE(std::sqrt(square / static_cast<double>(want.size())), 1.2 * typical);
  }
}

TEST(ByteConvolution, ImagesDoNotKnowOfEachOther) {
  const Case c = {3, 20, 40, 5, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  ByteConvolution::Shape s = ShapeOf(c);
  const int64_t each = s.in_height * s.in_width * s.in_channels;
  std::vector<float> src = Sample(3 * each, 1);
  const std::vector<float> weight = Sample(s.out_channels * s.in_channels * 9, 2);
  for (int64_t i = each; i < 2 * each; ++i) src[i] *= 1000;
  const std::vector<float> all = Computed(s, src, weight, nullptr, {}, nullptr, 1);
  s.batch = 1;
  const std::vector<float> alone =
      Computed(s, {src.begin(), src.begin() + each}, weight, nullptr, {}, nullptr, 1);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin()));
}

TEST(ByteConvolution, WhatIsNoFiniteNumberMakesItsImageNone) {
  const Case c = {3, 20, 40, 5, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const ByteConvolution::Shape s = ShapeOf(c);
  const int64_t each = s.in_height * s.in_width * s.in_channels, out = each / 20 * 40;
  const std::vector<float> weight = Sample(s.out_channels * s.in_channels * 9, 2);
  for (const float odd : {kNan, kInfinity, -kInfinity}) {
    for (const int threads : {1, 2, 8}) {
      for (const int64_t at : {int64_t{0}, each / 2, each - 1}) {
        std::vector<float> src = Sample(3 * each, 1);
        src[each + at] = odd;
        const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, threads);
        for (int64_t i = 0; i < 3 * out; ++i) ASSERT_EQ(std::isnan(got[i]), i / out == 1) << i << " " << odd;
      }
    }
  }
}

TEST(ByteConvolution, NothingAtAll) {
  const Case c = {1, 20, 40, 5, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const ByteConvolution::Shape s = ShapeOf(c);
  const std::vector<float> bias = Sample(s.out_channels, 3);
  const std::vector<float> tiny(600, 1e-42F), zeros(600),
      weight = Sample(s.out_channels * s.in_channels * 9, 2), none(weight.size());
  for (const auto& [src, by] : {std::pair{&zeros, &weight}, {&tiny, &weight}, {&tiny, &none}}) {
    const std::vector<float> got = Computed(s, *src, *by, bias.data(), {}, nullptr, 1);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], bias[i % s.out_channels]);
  }
}

// A large image, which threads divide line by line.
TEST(ByteConvolution, LinesAreDivided) {
  const Case c = {1, 16, 24, 60, 70, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}};
  const ByteConvolution::Shape s = ShapeOf(c);
  const std::vector<float> src = Whole(1, s.in_height * s.in_width * s.in_channels, -128, 1),
                           weight = WholeWeights(s.out_channels, s.in_channels * 9, 2);
  ExpectClose(Computed(s, src, weight, nullptr, {}, nullptr, 4), Direct(s, src, weight), 1e-6);
}

TEST(ByteConvolution, SumsThatCouldOverflowDoNotFit) {
  ByteConvolution::Shape s;
  s.in_channels = kMostTerms;
  s.out_channels = 16;
  EXPECT_TRUE(ByteConvolution(s, {}, 1).Fits());
  std::vector<float> src(kMostTerms, 255), weight(16 * kMostTerms, 127);
  const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, 1);
  EXPECT_NEAR(got[5], 255.0 * 127 * kMostTerms, 1e3);
  s.in_channels += 4;
  EXPECT_FALSE(ByteConvolution(s, {}, 1).Fits());
}

}  // namespace
}  // namespace collage::native
