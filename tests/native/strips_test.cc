// SPDX-License-Identifier: Apache-2.0
//
// Operators that run strip by strip: however many strips and threads there are, the results are those of one
// operator after the other on whole images.
//
// ctest: levels threads kernel
#include "native/strips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "native/gemm.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kUntouched = 1e9F;
constexpr int64_t kImages = 3, kHeight = 7, kWidth = 5, kChannels = 19, kFirst = 24, kSecond = 6;
constexpr int64_t kPixels = kImages * kHeight * kWidth;
// Both products are parts of one concatenation, behind and in front of which there is something else.
constexpr int64_t kBefore = 2, kJoined = kBefore + kFirst + kSecond + 1;

using Doubles = std::vector<double>;

// What the operators compute with.
struct Given {
  std::vector<float> image = Sample(kPixels * kChannels, 1), taps = Sample(kChannels * 9, 2),
                     first = Sample(kChannels * kFirst, 3), second = Sample(kChannels * kSecond, 4),
                     bias = Sample(kFirst, 5), addend = Sample(kPixels * kFirst, 6),
                     factors = Sample(kImages * kChannels, 7);
};

const Post kSilu{Post::Kind::kSilu, 1, 0, -1}, kHard{Post::Kind::kHardSwish, 0, 0, -1},
    kSum{Post::Kind::kAdd, 0, 0, 0}, kTimes{Post::Kind::kMultiply, 0, 0, 0},
    kBounded{Post::Kind::kRelu, 0, 0, -1};

Doubles Depthwise(const Given& g) {
  Doubles out;
  for (int64_t p = 0; p < kPixels; ++p) {
    const int64_t image = p / (kHeight * kWidth), y = p / kWidth % kHeight, x = p % kWidth;
    for (int64_t c = 0; c < kChannels; ++c) {
      double sum = 0;
      for (int64_t tap = 0; tap < 9; ++tap) {
        const int64_t row = y + tap / 3 - 1, column = x + tap % 3 - 1;
        if (row < 0 || row >= kHeight || column < 0 || column >= kWidth) continue;
        sum += static_cast<double>(g.image[((image * kHeight + row) * kWidth + column) * kChannels + c]) *
               g.taps[c * 9 + tap];
      }
      out.push_back(PostOf(kSilu, sum));
    }
  }
  return out;
}

Doubles Multiplied(const Doubles& left, const std::vector<float>& right, int64_t columns) {
  Doubles out;
  for (int64_t p = 0; p < kPixels; ++p) {
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t k = 0; k < kChannels; ++k) sum += left[p * kChannels + k] * right[k * columns + c];
      out.push_back(sum);
    }
  }
  return out;
}

// The concatenation, and the scaled image, which is read elsewhere, too.
struct Results {
  Doubles joined = Doubles(kPixels * kJoined, kUntouched), scaled;
};

Results Wanted(const Given& g, bool of_each_image) {
  Results want;
  const Doubles deep = Depthwise(g);
  for (int64_t i = 0; i < kPixels * kChannels; ++i) {
    const int64_t image = of_each_image ? i / (kHeight * kWidth * kChannels) : 0;
    want.scaled.push_back(PostOf(kBounded, deep[i] * g.factors[image * kChannels + i % kChannels]));
  }
  const Doubles first = Multiplied(deep, g.first, kFirst),
                second = Multiplied(want.scaled, g.second, kSecond);
  for (int64_t p = 0; p < kPixels; ++p) {
    double* const to = want.joined.data() + p * kJoined + kBefore;
    for (int64_t c = 0; c < kFirst; ++c) {
      to[c] = PostOf(kHard, first[p * kFirst + c] + g.bias[c] + g.addend[p * kFirst + c]);
    }
    for (int64_t c = 0; c < kSecond; ++c) to[kFirst + c] = second[p * kSecond + c];
  }
  return want;
}

void CheckStrips(int64_t strips, int64_t threads, bool of_each_image) {
  const Given g;
  std::vector<float> taps(TapsSize(kChannels, 9)), first(PackedElements(kChannels, kFirst)),
      second(PackedElements(kChannels, kSecond));
  PackTaps(g.taps.data(), 9, 3, 1, kChannels, 3, 3, taps.data());
  PackPanels(g.first.data(), kFirst, 1, kChannels, kFirst, first.data());
  PackPanels(g.second.data(), kSecond, 1, kChannels, kSecond, second.data());

  Strips step;
  step.images = kImages;
  step.height = kHeight;
  step.width = kWidth;
  step.strips = strips;
  step.threads = threads;
  const int64_t most = DivideUp(kImages * kHeight, strips) * kWidth;
  step.scratch = most * kChannels;
  enum Tensor { kScratch, kImage, kJoin, kAddend, kFactors, kScaled };

  StripAction window;
  window.kind = StripAction::Kind::kWindow;
  window.in = {kImage, 0, 0, kChannels};
  window.out = {StripPlace::kScratch, 0, 0, kChannels};
  window.window.channels = kChannels;
  window.window.height = kHeight;
  window.window.width = window.window.out_width = kWidth;
  window.window.kernel_height = window.window.kernel_width = 3;
  window.window.pad_top = window.window.pad_left = 1;
  window.window.taps = taps.data();
  window.posts = {kSilu};

  StripAction product;
  product.kind = StripAction::Kind::kProduct;
  product.in = window.out;
  product.out = {kJoin, 0, kBefore, kJoined};
  product.channels_in = kChannels;
  product.channels_out = kFirst;
  product.weight = first.data();
  product.bias = g.bias.data();
  product.reads_other = true;
  product.other = {kAddend, 0, 0, kFirst};
  product.posts = {kSum, kHard};

  StripAction scale;
  scale.in = window.out;
  scale.out = {kScaled, 0, 0, kChannels};
  scale.channels_out = kChannels;
  scale.reads_other = true;
  scale.other = {kFactors, 0, 0, kChannels};
  scale.factors = of_each_image ? kChannels : 0;
  scale.posts = {kTimes, kBounded};

  StripAction last;
  last.kind = StripAction::Kind::kProduct;
  last.in = scale.out;
  last.out = {kJoin, 0, kBefore + kFirst, kJoined};
  last.channels_in = kChannels;
  last.channels_out = kSecond;
  last.weight = second.data();
  step.actions = {window, product, scale, last};

  std::vector<float> scratch(step.scratch * threads), joined(kPixels * kJoined, kUntouched),
      scaled(kPixels * kChannels, kUntouched), image = g.image, addend = g.addend, factors = g.factors;
  void* const data[] = {scratch.data(), image.data(),   joined.data(),
                        addend.data(),  factors.data(), scaled.data()};
  step.Run(data);
  const Results want = Wanted(g, of_each_image);
  const std::string what = std::to_string(strips) + " strips, " + std::to_string(threads) + " threads";
  ExpectClose(joined, want.joined, 1e-5, what);
  ExpectClose(scaled, want.scaled, 1e-5, what);
}

TEST(Strips, OfAnyNumberByAnyThreads) {
  for (const int64_t strips :
       {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{5}, int64_t{8}, kImages * kHeight}) {
    for (const int64_t threads : {1, 2, 5}) {
      for (const bool of_each_image : {false, true}) CheckStrips(strips, threads, of_each_image);
    }
  }
}

// As few as the budget allows, and as many for each thread.
TEST(Strips, AsManyAsTheBudgetWants) {
  const auto bytes = [](int64_t rows) { return 100 + 10 * rows; };
  EXPECT_EQ(StripsFor(40, 1, bytes, 500), 1);
  EXPECT_EQ(StripsFor(41, 1, bytes, 500), 2);
  EXPECT_EQ(StripsFor(41, 4, bytes, 500), 4);
  EXPECT_EQ(StripsFor(200, 2, bytes, 500), 6);
  EXPECT_EQ(StripsFor(7, 4, bytes, 120), 4);
  EXPECT_EQ(StripsFor(7, 4, bytes, 50), 7) << "a row that does not fit";
  EXPECT_EQ(StripsFor(3, 8, bytes, 500), 3) << "none is empty";
}

}  // namespace
}  // namespace collage::native
