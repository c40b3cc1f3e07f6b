// SPDX-License-Identifier: Apache-2.0
//
// Products in bfloat16.
//
// ctest: levels bf16 threads kernel
#include "native/pair_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

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

using Shape = PairProduct::Shape;

// What comes in as float32, or as bfloat16, and goes out as either.
struct Types {
  bool narrow_in = false, narrow_out = false;
};

std::vector<float> Computed(const Shape& s, const std::vector<float>& left, const std::vector<float>& right,
                            const float* bias, const std::vector<Post>& posts, const float* const* addends,
                            int threads, Types types = {}) {
  const PairProduct kernel(s, posts, threads);
  // Exactly as much as is asked for, so that the address sanitizer sees what is beyond.
  std::vector<uint16_t> packed(kernel.PackedSize(), 0x7fc0);
  kernel.Pack(AllNearest(right).data(), packed.data());
  std::vector<uint16_t> data(kernel.left().Size(), 0x7fc0);
  if (types.narrow_in) {
    kernel.left().Copy(AllNearest(left).data(), threads, data.data());
  } else {
    kernel.left().Round(left.data(), threads, data.data());
  }
  const size_t results = s.rows * s.columns;
  if (types.narrow_out) {
    std::vector<uint16_t> out(results, 0x4242);
    kernel.Run(data.data(), packed.data(), bias, addends, {nullptr, out.data()});
    return AllWide(out);
  }
  std::vector<float> out(results, 1e9F);
  kernel.Run(data.data(), packed.data(), bias, addends, {out.data(), nullptr});
  return out;
}

std::vector<double> Direct(const Shape& s, const std::vector<float>& left, const std::vector<float>& right) {
  std::vector<double> all;
  const int64_t each = s.rows / s.matrices;
  for (int64_t r = 0; r < s.rows; ++r) {
    const float* const by = right.data() + r / each * s.length * s.columns;
    for (int64_t c = 0; c < s.columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < s.length; ++k) {
        sum += static_cast<double>(left[r * s.length + k]) *
               by[s.transposed ? c * s.length + k : k * s.columns + c];
      }
      all.push_back(sum);
    }
  }
  return all;
}

std::vector<float> Whole(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-100, 100);
  std::vector<float> all(count);
  for (float& one : all) one = static_cast<float>(number(random));
  return all;
}

int64_t LeftOf(const Shape& s) { return s.rows * s.length; }
int64_t RightOf(const Shape& s) { return s.matrices * s.length * s.columns; }

// Odd lengths, columns that are no whole vectors or panels, more rows than a block has, several matrices.
const std::vector<Shape> kShapes = {{1, 64, 64, 1, true},   {1, 1, 1, 1, false},    {13, 70, 100, 1, true},
                                    {2, 259, 47, 1, false}, {100, 33, 16, 1, true}, {250, 8, 130, 1, false},
                                    {3, 5, 3, 3, true},     {21, 64, 70, 3, false}, {300, 33, 16, 3, true},
                                    {4, 3000, 10, 1, true}, {40, 9000, 17, 1, true}};

TEST(PairProduct, RoundsToTheNearest) {
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
  const PairRows rows{1, static_cast<int64_t>(numbers.size())};
  ASSERT_TRUE(rows.AreWhole());
  std::vector<uint16_t> got(numbers.size());
  rows.Round(numbers.data(), 1, got.data());
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(got[i], Nearest(numbers[i])) << numbers[i];
  for (float& one : numbers) one = std::copysign(kNan, one);
  rows.Round(numbers.data(), 2, got.data());
  for (const uint16_t one : got) ASSERT_TRUE(std::isnan(Wide(one)));
}

TEST(PairProduct, WholeNumbersAreExact) {
  for (const Shape& s : kShapes) {
    const std::vector<float> left = Whole(LeftOf(s), 1);
    std::vector<float> right = Whole(RightOf(s), 2);
    // Sums that float32 has.
    for (float& one : right) one = std::remainder(one, 9.0F);
    const std::vector<double> want = Direct(s, left, right);
    const std::string name = "case " + std::to_string(&s - kShapes.data());
    for (const int threads : {1, 3}) {
      for (const bool narrow : {false, true}) {
        ExpectClose(Computed(s, left, right, nullptr, {}, nullptr, threads, {narrow, false}), want, 0, name);
      }
      const std::vector<float> rounded =
          Computed(s, left, right, nullptr, {}, nullptr, threads, {false, true});
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(rounded[i], Wide(Nearest(static_cast<float>(want[i])))) << i;
      }
    }
  }
}

// Every rest of a tile, or of a block of tiles, of rows, columns and products.
TEST(PairProduct, AnyRest) {
  for (const int64_t length : {1, 31, 32, 33, 63, 64, 130}) {
    for (const int64_t columns : {5, 16, 31, 40, 64, 100}) {
      for (int64_t rows = 1; rows <= 66; rows += rows < 35 ? 1 : 7) {
        const Shape s{rows, length, columns, 1, true};
        const std::vector<float> left = Whole(LeftOf(s), 1), right = Whole(RightOf(s), 2);
        ExpectClose(Computed(s, left, right, nullptr, {}, nullptr, 1), Direct(s, left, right), 0,
                    std::to_string(rows) + " x " + std::to_string(length) + " x " + std::to_string(columns));
      }
    }
  }
}

// Beside sums in float64 of what was rounded: nothing but the sums' own rounding is off.
TEST(PairProduct, SumsAreFloat32) {
  for (const Shape& s : kShapes) {
    const std::vector<float> left = Sample(LeftOf(s), 1), right = Sample(RightOf(s), 2);
    const std::vector<float> got = Computed(s, left, right, nullptr, {}, nullptr, 2);
    ExpectClose(got, Direct(s, AllWide(AllNearest(left)), AllWide(AllNearest(right))), 4e-6,
                "case " + std::to_string(&s - kShapes.data()), std::sqrt(static_cast<double>(s.length)));
  }
}

TEST(PairProduct, BiasAndPosts) {
  const std::vector<Post> posts = {{Post::Kind::kLinear, 0.5F, 0.25F, -1},
                                   {Post::Kind::kAdd, 0, 0, 0},
                                   {Post::Kind::kGelu, 0, 0, -1},
                                   {Post::Kind::kAdd, 0, 0, 1},
                                   {Post::Kind::kClip, -100, 2000, -1}};
  for (const Shape& s : kShapes) {
    const std::vector<float> left = Whole(LeftOf(s), 1), right = Whole(RightOf(s), 2),
                             bias = Sample(s.columns, 3);
    std::vector<double> want = Direct(s, left, right);
    const auto results = static_cast<int64_t>(want.size());
    std::vector<float> first = Sample(results, 4), second = Sample(results, 5);
    const float* addends[] = {first.data(), second.data()};
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] += bias[i % s.columns];
      for (const Post& post : posts) {
        want[i] = PostOf(post, want[i], post.operand >= 0 ? addends[post.operand][i] : 0);
      }
    }
    ExpectClose(Computed(s, left, right, bias.data(), posts, addends, 2), want, 1e-6);
    ExpectClose(Computed(s, left, right, bias.data(), posts, addends, 2, {true, true}), want, 1.0 / 256);
  }
}

// The result may take an addend's place.
TEST(PairProduct, OverAnAddend) {
  const Shape s = {162, 108, 70, 1, true};
  const std::vector<float> left = Whole(LeftOf(s), 1), right = Whole(RightOf(s), 2);
  const PairProduct kernel(s, {{Post::Kind::kAdd, 0, 0, 0}}, 2);
  std::vector<uint16_t> packed(kernel.PackedSize()), data(kernel.left().Size());
  kernel.Pack(AllNearest(right).data(), packed.data());
  kernel.left().Round(left.data(), 2, data.data());
  std::vector<double> want = Direct(s, left, right);
  std::vector<float> both = Whole(static_cast<int64_t>(want.size()), 3);
  for (size_t i = 0; i < want.size(); ++i) want[i] += both[i];
  const float* const addends[] = {both.data()};
  kernel.Run(data.data(), packed.data(), nullptr, addends, {both.data(), nullptr});
  ExpectClose(both, want, 0);
}

// What is no number, or infinite, reaches the results that read it, and no others.
TEST(PairProduct, WhatIsNoFiniteNumberGoesOn) {
  for (const Shape& s : {Shape{9, 21, 40, 1, true}, {9, 20, 40, 3, false}}) {
    const std::vector<float> right = Sample(RightOf(s), 2);
    for (const float odd : {kNan, kInfinity, -kInfinity, std::numeric_limits<float>::max()}) {
      std::vector<float> left = Sample(LeftOf(s), 1);
      left[LeftOf(s) / 2] = odd;
      left[s.length - 1] = odd;  // beside what makes pairs of an odd length
      const std::vector<double> want = Direct(s, AllWide(AllNearest(left)), AllWide(AllNearest(right)));
      const std::vector<float> got = Computed(s, left, right, nullptr, {}, nullptr, 2);
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i])) << i << " " << odd;
        ASSERT_EQ(std::isinf(got[i]), std::isinf(want[i])) << i << " " << odd;
      }
    }
  }
}

// Large enough for several blocks of rows, and pieces of rounding, for each thread.
TEST(PairProduct, WorkIsDivided) {
  const Shape s = {1050, 145, 72, 1, true};
  const std::vector<float> left = Whole(LeftOf(s), 1), right = Whole(RightOf(s), 2);
  ExpectClose(Computed(s, left, right, nullptr, {}, nullptr, 4), Direct(s, left, right), 0);
}

TEST(PairProduct, NothingAtAll) {
  EXPECT_TRUE(Computed({0, 8, 8, 1, true}, {}, Whole(64, 1), nullptr, {}, nullptr, 2).empty());
}

}  // namespace
}  // namespace collage::native
