// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and products in bfloat16.
//
// ctest: levels bf16 threads kernel
#include "native/pair_convolution.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "convolution_cases.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Wide(uint16_t bits) {
  const uint32_t all = static_cast<uint32_t>(bits) << 16;
  float number = 0;
  std::memcpy(&number, &all, sizeof(number));
  return number;
}

// The nearest bfloat16 by looking at both that are near; what is denormal is 0.
uint16_t Nearest(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  const auto below = static_cast<uint16_t>(bits >> 16);
  if (std::isnan(x)) return below | 0x40;
  if (std::isinf(x)) return below;
  if (std::fpclassify(x) == FP_SUBNORMAL) return below & 0x8000;
  const auto above = static_cast<uint16_t>(below + 1);
  // One step beyond the greatest number is where the next one would be.
  const double up = std::isinf(Wide(above)) ? std::copysign(0x1p128, x) : static_cast<double>(Wide(above));
  const double down_by = std::abs(static_cast<double>(x) - static_cast<double>(Wide(below))),
               up_by = std::abs(up - static_cast<double>(x));
  return down_by < up_by || (down_by == up_by && below % 2 == 0) ? below : above;
}

std::vector<uint16_t> AllNearest(const std::vector<float>& numbers) {
  std::vector<uint16_t> all;
  for (const float one : numbers) all.push_back(Nearest(one));
  return all;
}
std::vector<float> AllWide(const std::vector<uint16_t>& numbers) {
  std::vector<float> all;
  for (const uint16_t one : numbers) all.push_back(Wide(one));
  return all;
}

PairConvolution::Weights WeightsOf(const ConvolutionShape& s, int64_t count = 1) {
  const int64_t taps = s.kernel[0] * s.kernel[1], each = s.in_channels * taps;
  return {count, s.out_channels * each, {each, taps, s.kernel[1], 1}};
}

// What comes in as float32, or as bfloat16, and goes out as either.
struct Types {
  bool narrow_in = false, narrow_out = false;
};

std::vector<float> Computed(const ConvolutionShape& s, const std::vector<float>& src,
                            const std::vector<float>& weight, const float* bias,
                            const std::vector<Post>& posts, const float* const* addends, int threads,
                            Types types = {}, int64_t matrices = 1) {
  const PairConvolution kernel(s, WeightsOf(s, matrices), posts, threads);
  // Exactly as much as is asked for, so that the address sanitizer sees what is beyond.
  std::vector<uint16_t> packed(kernel.PackedSize(), 0x7fc0);
  kernel.Pack(AllNearest(weight).data(), packed.data());
  std::vector<uint16_t> data(kernel.data().Size(), 0x7fc0);
  if (types.narrow_in) {
    kernel.data().Copy(AllNearest(src).data(), threads, data.data());
  } else {
    kernel.data().Round(src.data(), threads, data.data());
  }
  const size_t results = s.batch * s.out_height * s.out_width * s.out_channels;
  if (types.narrow_out) {
    std::vector<uint16_t> dst(results, 0x4242);
    kernel.Run(data.data(), packed.data(), bias, addends, {nullptr, dst.data()});
    return AllWide(dst);
  }
  std::vector<float> dst(results, 1e9F);
  kernel.Run(data.data(), packed.data(), bias, addends, {dst.data(), nullptr});
  return dst;
}

std::vector<float> Whole(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-100, 100);
  std::vector<float> all(count);
  for (float& one : all) one = static_cast<float>(number(random));
  return all;
}

int64_t DataOf(const ConvolutionShape& s) { return s.batch * s.in_height * s.in_width * s.in_channels; }
int64_t WeightOf(const ConvolutionShape& s) {
  return s.out_channels * s.in_channels * s.kernel[0] * s.kernel[1];
}

TEST(PairConvolution, RoundsToTheNearest) {
  std::vector<float> numbers = {0,
                                -0.0F,
                                kInfinity,
                                -kInfinity,
                                1e-38F,
                                -1e-42F,
                                std::numeric_limits<float>::min(),
                                std::numeric_limits<float>::max(),
                                -std::numeric_limits<float>::max(),
                                3.3895314e38F,
                                3.3961776e38F};
  // Halves of steps, with even and odd numbers below, and beside them.
  for (const uint32_t bits : {0x3f808000U, 0x3f818000U, 0x3f807fffU, 0x3f808001U, 0xbf808000U, 0xbf818000U,
                              0x007fffffU, 0x00808000U, 0x3fffffffU}) {
    float one = 0;
    std::memcpy(&one, &bits, sizeof(one));
    numbers.push_back(one);
  }
  for (const float one : Sample(1000, 1, 100)) numbers.push_back(one);
  PairImages images;
  images.channels = static_cast<int64_t>(numbers.size());
  images.unit = 1;
  std::vector<uint16_t> got(numbers.size());
  images.Round(numbers.data(), 1, got.data());
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(got[i], Nearest(numbers[i])) << numbers[i];
  for (float& one : numbers) one = std::copysign(kNan, one);
  images.Round(numbers.data(), 2, got.data());
  for (const uint16_t one : got) ASSERT_TRUE(std::isnan(Wide(one)));
}

TEST(PairConvolution, WholeNumbersAreExact) {
  for (const Case& c : Cases()) {
    const ConvolutionShape s = ShapeOf(c);
    const std::vector<float> src = Whole(DataOf(s), 1), weight = Whole(WeightOf(s), 2);
    const std::vector<double> want = Direct(s, src, weight);
    for (const int threads : {1, 3}) {
      for (const bool narrow : {false, true}) {
        ExpectClose(Computed(s, src, weight, nullptr, {}, nullptr, threads, {narrow, false}), want, 0,
                    "case " + std::to_string(&c - Cases().data()));
      }
      const std::vector<float> rounded =
          Computed(s, src, weight, nullptr, {}, nullptr, threads, {false, true});
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(rounded[i], Wide(Nearest(static_cast<float>(want[i])))) << i;
      }
    }
  }
}

// Beside sums in float64 of what was rounded: nothing but the sums' own rounding is off.
TEST(PairConvolution, SumsAreFloat32) {
  for (const Case& c : Cases()) {
    const ConvolutionShape s = ShapeOf(c);
    const std::vector<float> src = Sample(DataOf(s), 1), weight = Sample(WeightOf(s), 2);
    const std::vector<float> rounded = AllWide(AllNearest(src)), rounded_weight = AllWide(AllNearest(weight));
    const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, 2);
    ExpectClose(got, Direct(s, rounded, rounded_weight), 1e-6, "case " + std::to_string(&c - Cases().data()),
                std::sqrt(static_cast<double>(WeightOf(s)) / static_cast<double>(s.out_channels)));
  }
}

TEST(PairConvolution, BiasAndPosts) {
  const std::vector<Post> posts = {{Post::Kind::kLinear, 0.5F, 0.25F, -1},
                                   {Post::Kind::kAdd, 0, 0, 0},
                                   {Post::Kind::kGelu, 0, 0, -1},
                                   {Post::Kind::kAdd, 0, 0, 1},
                                   {Post::Kind::kClip, -100, 2000, -1}};
  for (const Case& c : Cases()) {
    const ConvolutionShape s = ShapeOf(c);
    const std::vector<float> src = Whole(DataOf(s), 1), weight = Whole(WeightOf(s), 2),
                             bias = Sample(s.out_channels, 3);
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
    ExpectClose(Computed(s, src, weight, bias.data(), posts, addends, 2, {true, true}), want, 1.0 / 256);
  }
}

// The result may take an addend's place.
TEST(PairConvolution, OverAnAddend) {
  const ConvolutionShape s = ShapeOf({2, 12, 70, 9, 9, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  const std::vector<float> src = Whole(DataOf(s), 1), weight = Whole(WeightOf(s), 2);
  const PairConvolution kernel(s, WeightsOf(s), {{Post::Kind::kAdd, 0, 0, 0}}, 2);
  std::vector<uint16_t> packed(kernel.PackedSize()), data(kernel.data().Size());
  kernel.Pack(AllNearest(weight).data(), packed.data());
  kernel.data().Round(src.data(), 2, data.data());
  std::vector<double> want = Direct(s, src, weight);
  std::vector<float> both = Whole(static_cast<int64_t>(want.size()), 3);
  for (size_t i = 0; i < want.size(); ++i) want[i] += both[i];
  const float* const addends[] = {both.data()};
  kernel.Run(data.data(), packed.data(), nullptr, addends, {both.data(), nullptr});
  ExpectClose(both, want, 0);
}

// Products of batches: each has weights of its own.
TEST(PairConvolution, SeveralMatrices) {
  for (const auto& [rows, length, columns] : {std::array<int64_t, 3>{1, 5, 3}, {7, 64, 70}, {100, 33, 16}}) {
    ConvolutionShape s;
    s.batch = 3 * rows;
    s.in_channels = length;
    s.out_channels = columns;
    const std::vector<float> src = Whole(DataOf(s), 1), weight = Whole(3 * WeightOf(s), 2);
    std::vector<double> want;
    ConvolutionShape one = s;
    one.batch = rows;
    for (int64_t i = 0; i < 3; ++i) {
      const auto from = src.begin() + i * rows * length;
      const auto by = weight.begin() + i * WeightOf(s);
      for (const double x : Direct(one, {from, from + rows * length}, {by, by + WeightOf(s)})) {
        want.push_back(x);
      }
    }
    for (const int threads : {1, 3}) {
      ExpectClose(Computed(s, src, weight, nullptr, {}, nullptr, threads, {}, 3), want, 0);
    }
  }
}

// What is no number, or infinite, reaches the results that read it, and no others.
TEST(PairConvolution, WhatIsNoFiniteNumberGoesOn) {
  const ConvolutionShape s = ShapeOf({3, 20, 40, 5, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  const std::vector<float> weight = Sample(WeightOf(s), 2);
  for (const float odd : {kNan, kInfinity, -kInfinity, std::numeric_limits<float>::max()}) {
    std::vector<float> src = Sample(DataOf(s), 1);
    src[DataOf(s) / 2] = odd;  // of the second image, in the third of its lines
    const std::vector<double> want = Direct(s, AllWide(AllNearest(src)), AllWide(AllNearest(weight)));
    const std::vector<float> got = Computed(s, src, weight, nullptr, {}, nullptr, 2);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << i << " " << odd;
      ASSERT_EQ(std::isinf(got[i]), std::isinf(want[i])) << i << " " << odd;
    }
  }
}

// Large enough for several blocks of rows, and pieces of rounding, for each thread.
TEST(PairConvolution, WorkIsDivided) {
  const ConvolutionShape s = ShapeOf({1, 16, 72, 60, 70, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}});
  const std::vector<float> src = Whole(DataOf(s), 1), weight = Whole(WeightOf(s), 2);
  ExpectClose(Computed(s, src, weight, nullptr, {}, nullptr, 4), Direct(s, src, weight), 0);
}

TEST(PairConvolution, NothingAtAll) {
  ConvolutionShape s;
  s.batch = 0;
  s.in_channels = 8;
  s.out_channels = 8;
  EXPECT_TRUE(Computed(s, {}, Whole(64, 1), nullptr, {}, nullptr, 2).empty());
}

}  // namespace
}  // namespace collage::native
