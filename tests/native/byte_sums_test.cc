// SPDX-License-Identifier: Apache-2.0
//
// Sums of products of bytes as the numbers that they stand for.
//
// ctest: levels vnni threads kernel
#include "native/byte_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "native/divide_up.h"

namespace collage::native {
namespace {

// One bit of float32's rounding, and of the product of two scales.
constexpr double kOff = 4e-7;

TEST(ByteSums, RowsAndColumnsHaveTheirScales) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> sum(-100'000'000, 100'000'000), of_column(-5000, 5000);
  const int64_t shapes[][2] = {{1, 1},   {3, 16},   {5, 17},    {2, 64},  {9, 65},
                               {4, 130}, {70, 259}, {1, 40000}, {600, 96}};
  for (const auto& [rows, columns] : shapes) {
    // Exactly as much as is asked for, so that the address sanitizer sees what is beyond.
    std::vector<int32_t> sums(rows * columns), column_sums(columns);
    std::vector<float> scales(columns), bias(columns), addend(rows * columns);
    std::vector<ByteScale> by(rows);
    for (int32_t& one : sums) one = sum(random);
    for (int64_t c = 0; c < columns; ++c) {
      column_sums[c] = of_column(random);
      scales[c] = 1e-3F * static_cast<float>(1 + c % 7);
      bias[c] = 1e4F * static_cast<float>(c % 5 - 2);
    }
    for (int64_t r = 0; r < rows; ++r)
      by[r] = {0.5F + static_cast<float>(r), static_cast<int32_t>(r * 37 % 256)};
    for (float& one : addend) one = static_cast<float>(sum(random)) / 1000;
    for (const bool biased : {true, false}) {
      for (const bool posts : {true, false}) {
        ByteSums kernel{rows, columns, {}, 3};
        if (posts) kernel.posts = {{Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kRelu}};
        std::vector<int32_t> packed(DivideUp(kernel.PackedSize(), 4));
        kernel.Pack(scales.data(), column_sums.data(), packed.data());
        std::vector<float> out = addend;  // the addend's place
        const float* const addends[] = {out.data()};
        kernel.Run(sums.data(), by.data(), packed.data(), biased ? bias.data() : nullptr, addends,
                   out.data());
        for (int64_t i = 0; i < rows * columns; ++i) {
          const int64_t r = i / columns, c = i % columns;
          const double exact =
              static_cast<double>(sums[i]) - static_cast<double>(by[r].zero) * column_sums[c];
          double want = exact * by[r].scale * scales[c] + (biased ? bias[c] : 0);
          double about = std::abs(want) + 4e4;
          if (posts) {
            want += addend[i];
            about += std::abs(static_cast<double>(addend[i]));
            want = std::max(want, 0.0);
          }
          ASSERT_NEAR(out[i], want, kOff * about + 1e-7 * std::abs(exact * by[r].scale * scales[c]))
              << rows << "x" << columns << " at " << i;
        }
      }
    }
  }
}

// A row whose scale is no number gives none, a row of zeros the bias, and no other is touched by it.
TEST(ByteSums, ARowOfItsOwn) {
  const ByteSums kernel{3, 5, {}, 1};
  std::vector<int32_t> packed(DivideUp(kernel.PackedSize(), 4));
  const std::vector<float> scales(5, 1), bias = {1, 2, 3, 4, 5};
  const std::vector<int32_t> of_columns(5, 10), sums(15, 7);
  kernel.Pack(scales.data(), of_columns.data(), packed.data());
  const std::vector<ByteScale> by = {{std::numeric_limits<float>::quiet_NaN(), 0}, {0, 0}, {2, 3}};
  std::vector<float> out(15);
  kernel.Run(sums.data(), by.data(), packed.data(), bias.data(), nullptr, out.data());
  for (int c = 0; c < 5; ++c) {
    EXPECT_TRUE(std::isnan(out[c]));
    EXPECT_EQ(out[5 + c], bias[c]);
    EXPECT_EQ(out[10 + c], 2.0F * (7 - 30) + bias[c]);
  }
}

}  // namespace
}  // namespace collage::native
