// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with kernels of 3x3 by Winograd's filtering.
//
// ctest: levels threads kernel
#include "native/winograd.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "post_check.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

void CheckWinograd(const WinogradShape& s, bool with_bias, const std::vector<Post>& posts, int threads,
                   const Magnitudes& magnitudes = {}, const WinogradBlocking& blocking = {}) {
  const std::vector<float> src =
      Sample(s.batch * s.in_depth * s.in_height * s.in_width * s.in_channels, 1, magnitudes.data);
  const int64_t taps = s.kernel_depth * 9;
  const std::vector<float> weight = Sample(s.out_channels * s.in_channels * taps, 2, magnitudes.weights),
                           bias = Sample(s.out_channels, 3, magnitudes.results());
  const int64_t results = s.batch * s.out_depth * s.out_height * s.out_width * s.out_channels;
  const std::vector<float> first = Sample(results, 4, magnitudes.results()),
                           second = Sample(results, 5, magnitudes.results());
  const float* addends[] = {first.data(), second.data()};

  const WinogradKernel kernel(s, posts, threads, blocking);
  std::vector<float> packed(kernel.PackedSize()), scratch(kernel.ScratchSize()), dst(results, 1e9F);
  const int64_t strides[5] = {s.in_channels * taps, taps, 9, 3, 1};
  kernel.Pack(weight.data(), strides, packed.data());
  kernel.Run(src.data(), packed.data(), with_bias ? bias.data() : nullptr, addends, scratch.data(),
             dst.data());

  std::vector<double> want;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t z = 0; z < s.out_depth; ++z) {
      for (int64_t y = 0; y < s.out_height; ++y) {
        for (int64_t x = 0; x < s.out_width; ++x) {
          for (int64_t o = 0; o < s.out_channels; ++o) {
            double sum = with_bias ? bias[o] : 0;
            for (int64_t kz = 0; kz < s.kernel_depth; ++kz) {
              const int64_t slice = z * s.stride_depth - s.pad_depth + kz * s.dilation_depth;
              if (slice < 0 || slice >= s.in_depth) continue;
              for (int64_t tap = 0; tap < 9; ++tap) {
                const int64_t row = y - s.pad_top + tap / 3, column = x - s.pad_left + tap % 3;
                if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
                const int64_t pixel = ((b * s.in_depth + slice) * s.in_height + row) * s.in_width + column;
                for (int64_t k = 0; k < s.in_channels; ++k) {
                  sum += static_cast<double>(src[pixel * s.in_channels + k]) *
                         weight[o * strides[0] + k * strides[1] + kz * 9 + tap];
                }
              }
            }
            for (const Post& post : posts) {
              sum = PostOf(post, sum, post.operand >= 0 ? addends[post.operand][want.size()] : 0);
            }
            want.push_back(sum);
          }
        }
      }
    }
  }
  ExpectClose(dst, want, 1e-3,
              std::to_string(s.in_channels) + " to " + std::to_string(s.out_channels) + " channels, " +
                  std::to_string(s.in_height) + "x" + std::to_string(s.in_width),
              magnitudes.results());
}

WinogradShape Square(int64_t in_channels, int64_t out_channels, int64_t height, int64_t width) {
  WinogradShape s;
  s.in_channels = in_channels;
  s.out_channels = out_channels;
  s.in_height = s.out_height = height;
  s.in_width = s.out_width = width;
  s.pad_top = s.pad_left = 1;
  return s;
}

constexpr int64_t kSides[] = {2, 4};

WinogradBlocking TilesOf(int64_t side) {
  WinogradBlocking blocking;
  blocking.side = side;
  return blocking;
}

TEST(Winograd, AtSizesAroundTheTiles) {
  for (const int64_t side : kSides) {
    for (const int64_t height : {1, 2, 3, 4, 5, 9}) {
      for (const int64_t width : {1, 2, 4, 5, 8, 11}) {
        CheckWinograd(Square(16, 16, height, width), true, {}, 2, {}, TilesOf(side));
      }
    }
  }
}

// Few tiles do not pay for reading the weights of the larger ones.
TEST(Winograd, TilesOfTheSideThatCostsLess) {
  EXPECT_EQ(WinogradKernel(Square(16, 16, 7, 7), {}, 1).side(), 2);
  EXPECT_EQ(WinogradKernel(Square(16, 16, 56, 56), {}, 1).side(), 4);
  WinogradBlocking blocking;
  blocking.weight_cost = 0;  // multiplications alone
  EXPECT_EQ(WinogradKernel(Square(16, 16, 7, 7), {}, 1, blocking).side(), 4);
  blocking.weight_cost = 1 << 20;  // weights alone
  EXPECT_EQ(WinogradKernel(Square(16, 16, 56, 56), {}, 1, blocking).side(), 2);
}

TEST(Winograd, WithAllWidthsOfPanels) {
  for (const int64_t channels : {16, 32, 48, 64, 80, 128}) {
    CheckWinograd(Square(16, channels, 6, 6), true, {}, 1);
    CheckWinograd(Square(channels, 16, 5, 7), false, {}, 3);
  }
}

// So many tiles that each thread takes blocks of them.
TEST(Winograd, InBlocks) {
  for (const int threads : {1, 2, 5}) {
    WinogradShape s = Square(32, 32, 60, 61);
    s.batch = 2;
    CheckWinograd(s, true, PostsWithOperands(), threads);
  }
}

TEST(Winograd, WithoutAndWithUnevenPadding) {
  WinogradShape s = Square(16, 16, 8, 9);
  s.pad_top = s.pad_left = 0;
  s.out_height = 6;
  s.out_width = 7;
  CheckWinograd(s, false, PostsWithOperands(), 2);
  s.pad_top = 2;  // and one behind
  s.out_height = 9;
  CheckWinograd(s, true, {}, 1);
}

TEST(Winograd, WithDepth) {
  WinogradShape s = Square(16, 32, 6, 5);
  s.in_depth = 5;
  s.kernel_depth = 3;
  s.pad_depth = 1;
  s.out_depth = 5;
  CheckWinograd(s, true, PostsWithOperands(), 2);
  s.stride_depth = 2;
  s.out_depth = 3;
  CheckWinograd(s, true, {}, 2);
  s.stride_depth = 1;
  s.dilation_depth = 2;
  s.pad_depth = 2;
  s.out_depth = 5;
  CheckWinograd(s, true, {}, 2);
  s.pad_depth = 6;  // slices that see padding only
  s.dilation_depth = 1;
  s.out_depth = 15;
  CheckWinograd(s, true, {}, 2);
}

// The posts are such as leave small numbers small.
TEST(Winograd, OfDenormalNumbers) {
  const std::vector<Post> posts = {
      {Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kRelu, 0.125F, 0, -1}, {Post::Kind::kAdd, 0, 0, 1}};
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    for (const int64_t side : kSides) {
      CheckWinograd(Square(16, 32, 13, 14), true, posts, 2, magnitudes, TilesOf(side));
    }
  }
}

TEST(Winograd, MayWriteOverWhatItAdds) {
  const WinogradShape s = Square(16, 16, 7, 6);
  const std::vector<Post> posts = {{Post::Kind::kAdd, 0, 0, 0}};
  const WinogradKernel kernel(s, posts, 2);
  const std::vector<float> src = Sample(7 * 6 * 16, 1), weight = Sample(16 * 16 * 9, 2);
  std::vector<float> packed(kernel.PackedSize()), scratch(kernel.ScratchSize());
  const int64_t strides[5] = {16 * 9, 9, 9, 3, 1};
  kernel.Pack(weight.data(), strides, packed.data());
  std::vector<float> addend = Sample(7 * 6 * 16, 3), apart(addend.size());
  const float* addends[] = {addend.data()};
  kernel.Run(src.data(), packed.data(), nullptr, addends, scratch.data(), apart.data());
  kernel.Run(src.data(), packed.data(), nullptr, addends, scratch.data(), addend.data());
  EXPECT_EQ(addend, apart);
}

// By the bias: of data, the transforms make differences, and so no number of an infinity.
TEST(Winograd, OfWhatIsNotANumber) {
  ExpectPosts([](const Post& post, float x) {
    const WinogradShape s = Square(16, 16, 3, 5);
    const WinogradKernel kernel(s, {post}, 1);
    const std::vector<float> src(3 * 5 * 16, 0), weight(16 * 16 * 9, 1), bias(16, x);
    std::vector<float> packed(kernel.PackedSize()), scratch(kernel.ScratchSize()), dst(src.size());
    const int64_t strides[5] = {16 * 9, 9, 9, 3, 1};
    kernel.Pack(weight.data(), strides, packed.data());
    kernel.Run(src.data(), packed.data(), bias.data(), nullptr, scratch.data(), dst.data());
    return dst;
  });
}

}  // namespace
}  // namespace collage::native
