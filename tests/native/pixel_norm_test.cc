// SPDX-License-Identifier: Apache-2.0
//
// Group normalisation of images whose channels lie innermost, whole and in parts, with what is done behind.
//
// ctest: levels kernel
#include "native/pixel_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sample.h"

namespace collage::native {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// All that a normalisation reads, in vectors of exactly that size.
struct Arrays {
  std::vector<float> data, gain, shift;
  std::vector<std::vector<float>> addends;
};

constexpr NormAddend kWhole = NormAddend::kWhole, kChannels = NormAddend::kChannels,
                     kImageChannels = NormAddend::kImageChannels;

Arrays SampleOf(const PixelNormShape& shape, int64_t images, unsigned seed,
                const Magnitudes& magnitudes = {}) {
  Arrays s;
  s.data = Sample(images * shape.pixels * shape.channels, seed, magnitudes.data);
  if (shape.gain) s.gain = Sample(shape.channels, seed + 1, magnitudes.weights);
  if (shape.shift) s.shift = Sample(shape.channels, seed + 2, magnitudes.results());
  for (const NormAddend addend : shape.addends) {
    const int64_t of_image = addend == kWhole ? shape.pixels * shape.channels : shape.channels;
    s.addends.push_back(
        Sample(addend == kChannels ? of_image : images * of_image, ++seed + 2, magnitudes.data));
  }
  return s;
}

// The data with what is added to it.
std::vector<float> SumOf(const PixelNormShape& shape, const Arrays& s) {
  std::vector<float> sums = s.data;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t channel = i % shape.channels, image = i / (shape.pixels * shape.channels);
    for (size_t a = 0; a < s.addends.size(); ++a) {
      const NormAddend addend = shape.addends[a];
      sums[i] += s.addends[a][addend == kWhole      ? i
                              : addend == kChannels ? channel
                                                    : image * shape.channels + channel];
    }
  }
  return sums;
}

// The results in double.
std::vector<double> Reference(const PixelNormShape& shape, const Arrays& s, int64_t images) {
  const std::vector<float> data = SumOf(shape, s);
  std::vector<double> results(data.size());
  const int64_t width = shape.channels / shape.groups;
  for (int64_t image = 0; image < images; ++image) {
    for (int64_t group = 0; group < shape.groups; ++group) {
      const auto each = [&](const auto& body) {
        for (int64_t p = 0; p < shape.pixels; ++p) {
          for (int64_t c = group * width; c < (group + 1) * width; ++c) {
            body((image * shape.pixels + p) * shape.channels + c, c);
          }
        }
      };
      double mean = 0, squares = 0;
      const auto count = static_cast<double>(shape.pixels * width);
      each([&](int64_t i, int64_t) { mean += data[i] / count; });
      each([&](int64_t i, int64_t) { squares += (data[i] - mean) * (data[i] - mean); });
      const double root = std::sqrt(squares / (count - (shape.unbiased ? 1 : 0)) + shape.epsilon);
      each([&](int64_t i, int64_t c) {
        results[i] = (data[i] - mean) / root * (shape.gain ? s.gain[c] : 1) + (shape.shift ? s.shift[c] : 0);
      });
    }
  }
  return results;
}

PixelNorm::Arguments ArgumentsOf(const Arrays& s, int64_t images) {
  PixelNorm::Arguments a;
  a.images = images;
  a.data = s.data.data();
  for (size_t i = 0; i < s.addends.size(); ++i) a.addends[i] = s.addends[i].data();
  a.gain = s.gain.data();
  a.shift = s.shift.data();
  return a;
}

// As many parts as the kernel would take, the last ones first: none reads what another has not measured.
void Normalise(const PixelNorm& norm, PixelNorm::Arguments a, int threads) {
  std::vector<float> scratch(norm.Scratch(a.images, threads), kNan);
  a.scratch = scratch.data();
  const int64_t parts = norm.Parts(a.images, threads);
  const int pieces = norm.Pieces(a.images, threads);
  ASSERT_LE(pieces, threads);
  if (parts == 1) {
    for (int piece = pieces; piece-- > 0;) norm.WholeImages(a, piece, pieces);
    return;
  }
  for (int piece = pieces; piece-- > 0;) norm.Measure(a, parts, piece, pieces);
  for (int piece = pieces; piece-- > 0;) norm.Write(a, parts, piece, pieces);
}

std::string Named(const PixelNormShape& shape, int64_t images) {
  return std::to_string(images) + " images of " + std::to_string(shape.pixels) + " pixels, " +
         std::to_string(shape.channels) + " channels in " + std::to_string(shape.groups) + " groups";
}

void ExpectNormal(const PixelNormShape& shape, int64_t images, int threads = 1,
                  const Magnitudes& magnitudes = {}) {
  const Arrays s =
      SampleOf(shape, images, static_cast<unsigned>(shape.pixels * 31 + shape.channels), magnitudes);
  std::vector<float> out(s.data.size(), kNan);
  PixelNorm::Arguments a = ArgumentsOf(s, images);
  a.out = out.data();
  const PixelNorm norm(shape, {});
  Normalise(norm, a, threads);
  ExpectClose(out, Reference(shape, s, images), 1e-4, Named(shape, images), magnitudes.results());
  if (shape.addends.empty()) return;
  std::fill(out.begin(), out.end(), kNan);
  std::vector<float> sum(out.size(), kNan);
  a.sum = sum.data();
  Normalise(norm, a, threads);
  ExpectClose(out, Reference(shape, s, images), 1e-4, Named(shape, images) + ", the sum apart",
              magnitudes.results());
  const std::vector<float> sums = SumOf(shape, s);
  ExpectClose(sum, {sums.begin(), sums.end()}, 0, Named(shape, images) + ", the sum");
}

PixelNormShape ShapeOf(int64_t pixels, int64_t channels, int64_t groups) {
  PixelNormShape shape;
  shape.pixels = pixels;
  shape.channels = channels;
  shape.groups = groups;
  shape.gain = shape.shift = true;
  shape.epsilon = 1e-3F;
  return shape;
}

TEST(PixelNorms, AroundVectorsAndBlocks) {
  for (const int64_t pixels : {1, 2, 3, 4, 5, 31, 32, 33, 63, 65, 100}) {
    for (int64_t channels = 1; channels <= 40; ++channels) {
      for (int64_t groups = 1; groups <= channels; ++groups) {
        if (channels % groups == 0) ExpectNormal(ShapeOf(pixels, channels, groups), 2);
      }
    }
    ExpectNormal(ShapeOf(pixels, 320, 32), 1);
  }
}

TEST(PixelNorms, WithoutGainOrShift) {
  for (const bool gain : {false, true}) {
    PixelNormShape shape = ShapeOf(35, 21, 3);
    shape.gain = gain;
    shape.shift = !gain;
    ExpectNormal(shape, 3);
    shape.gain = shape.shift = false;
    ExpectNormal(shape, 3);
  }
}

TEST(PixelNorms, UnbiasedVariance) {
  PixelNormShape shape = ShapeOf(5, 4, 2);
  shape.unbiased = true;
  ExpectNormal(shape, 3);
}

// Few large images are divided among threads, in the same result.
TEST(PixelNorms, ImagesInParts) {
  for (const int threads : {2, 3, 7}) {
    for (const int64_t images : {1, 2, 5}) {
      ExpectNormal(ShapeOf(1237, 19, 1), images, threads);
      ExpectNormal(ShapeOf(641, 48, 6), images, threads);
    }
    ExpectNormal(ShapeOf(30, 20, 4), 40, threads);
    ExpectNormal(ShapeOf(2, 9000, 3), 1, threads);
  }
  EXPECT_EQ(PixelNorm(ShapeOf(1000, 40, 4), {}).Parts(1, 2), 2);
  EXPECT_EQ(PixelNorm(ShapeOf(1000, 40, 4), {}).Parts(2, 2), 1);
  EXPECT_EQ(PixelNorm(ShapeOf(1, 40000, 4), {}).Parts(1, 2), 1);
  EXPECT_EQ(PixelNorm(ShapeOf(10, 40, 4), {}).Parts(1, 8), 1);
}

// Beside an epsilon of 1, so that results are as small as data and gains make them.
TEST(PixelNorms, OfDenormalNumbers) {
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    PixelNormShape shape = ShapeOf(35, 21, 3);
    shape.epsilon = 1;
    ExpectNormal(shape, 2, 1, magnitudes);
    shape = ShapeOf(1237, 19, 1);
    shape.epsilon = 1;
    ExpectNormal(shape, 1, 2, magnitudes);
  }
}

TEST(PixelNorms, AddsFirst) {
  for (const std::vector<NormAddend>& addends : {std::vector<NormAddend>{kWhole},
                                                 {kChannels},
                                                 {kImageChannels},
                                                 {kImageChannels, kWhole},
                                                 {kWhole, kChannels, kImageChannels, kWhole}}) {
    for (const int64_t pixels : {1, 5, 32, 33, 701}) {
      for (const int64_t channels : {1, 8, 21, 64}) {
        PixelNormShape shape = ShapeOf(pixels, channels, channels == 21 ? 3 : 1);
        shape.addends = addends;
        for (const int threads : {1, 3}) ExpectNormal(shape, 2, threads);
      }
    }
  }
}

// A mean that is a million times the deviation, in channels of which each has a mean of its own.
TEST(PixelNorms, LargeMeans) {
  for (const int64_t pixels : {7, 100, 5000}) {
    for (const int threads : {1, 3}) {
      const PixelNormShape shape = [&] {
        PixelNormShape plain = ShapeOf(pixels, 6, 3);
        plain.gain = plain.shift = false;
        plain.epsilon = 1e-9F;
        return plain;
      }();
      Arrays s;
      for (int64_t i = 0; i < pixels * 6; ++i) {
        s.data.push_back(1e6F * static_cast<float>(i % 6 / 2 - 1) + static_cast<float>(i / 6 % 2 + i % 2));
      }
      std::vector<float> out(s.data.size());
      PixelNorm::Arguments a = ArgumentsOf(s, 1);
      a.out = out.data();
      Normalise(PixelNorm(shape, {}), a, threads);
      // A mean of a million has four digits behind the point, rounded to 1/16.
      ExpectClose(out, Reference(shape, s, 1), 0.1, Named(shape, 1));
    }
  }
}

// Blocks and parts whose means differ by more than their deviations, and a first pixel that is far from all.
TEST(PixelNorms, DriftingPixels) {
  for (const int64_t pixels : {500, 3011}) {
    for (const int threads : {1, 3}) {
      const PixelNormShape shape = ShapeOf(pixels, 24, 4);
      Arrays s = SampleOf(shape, 1, 31);
      for (int64_t i = 0; i < pixels * 24; ++i) s.data[i] += static_cast<float>(i / 24 / 100) * 5;
      for (int64_t i = 0; i < pixels; i += 32) s.data[i * 24] = 1000;
      std::vector<float> out(s.data.size());
      PixelNorm::Arguments a = ArgumentsOf(s, 1);
      a.out = out.data();
      Normalise(PixelNorm(shape, {}), a, threads);
      ExpectClose(out, Reference(shape, s, 1), 1e-5, Named(shape, 1));
    }
  }
}

TEST(PixelNorms, NothingAtAll) {
  for (const int64_t pixels : {0, 8}) {
    PixelNorm::Arguments a;
    a.images = pixels == 0 ? 3 : 0;
    Normalise(PixelNorm(ShapeOf(pixels, 4, 2), {}), a, 2);
  }
}

// No number in all of the group and the image, and in nothing else.
TEST(PixelNorms, WhatIsNotANumber) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t at : {0, 5, 700}) {
      for (const int threads : {1, 2}) {
        const PixelNormShape shape = ShapeOf(1500, 10, 5);
        Arrays s = SampleOf(shape, 3, 9);
        std::vector<double> want = Reference(shape, s, 3);
        s.data[(1500 + at) * 10 + 6] = bad;
        for (int64_t p = 1500; p < 3000; ++p) want[p * 10 + 6] = want[p * 10 + 7] = kNan;
        std::vector<float> out(want.size());
        PixelNorm::Arguments a = ArgumentsOf(s, 3);
        a.out = out.data();
        Normalise(PixelNorm(shape, {}), a, threads);
        ExpectClose(out, want, 1e-4, std::to_string(at));
      }
    }
  }
  // The same where it is added.
  PixelNormShape sums = ShapeOf(70, 10, 5);
  sums.addends = {kImageChannels};
  Arrays of = SampleOf(sums, 3, 9);
  std::vector<double> expected = Reference(sums, of, 3);
  of.addends[0][16] = kInfinity;
  for (int64_t p = 70; p < 140; ++p) expected[p * 10 + 6] = expected[p * 10 + 7] = kNan;
  std::vector<float> given(expected.size());
  PixelNorm::Arguments arguments = ArgumentsOf(of, 3);
  arguments.out = given.data();
  Normalise(PixelNorm(sums, {}), arguments, 1);
  ExpectClose(given, expected, 1e-4);
  // No deviation and no epsilon: 0 / 0.
  PixelNormShape shape = ShapeOf(40, 6, 2);
  shape.gain = shape.shift = false;
  shape.epsilon = 0;
  const Arrays s{std::vector<float>(240, 3), {}, {}, {}};
  std::vector<float> out(240);
  PixelNorm::Arguments a = ArgumentsOf(s, 1);
  a.out = out.data();
  Normalise(PixelNorm(shape, {}), a, 1);
  ExpectClose(out, std::vector<double>(240, kNan), 0, "no deviation");
}

TEST(PixelNorms, PostsAndInPlace) {
  for (const int64_t channels : {8, 21, 64}) {
    for (const int threads : {1, 3}) {
      PixelNormShape shape = ShapeOf(701, channels, channels == 21 ? 3 : 4);
      if (channels == 64) shape.addends = {kWhole};
      const int64_t images = 2;
      Arrays s = SampleOf(shape, images, 11);
      const std::vector<float> added = Sample(static_cast<int64_t>(s.data.size()), 12);
      std::vector<double> want = Reference(shape, s, images);
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = std::min(std::max(want[i] / (1 + std::exp(-want[i])) + added[i], -0.1), 0.4);
      }
      PixelNorm::Arguments a = ArgumentsOf(s, images);
      const Operand operand{added.data(), 0};
      a.operands = &operand;
      a.out = s.data.data();
      Normalise(PixelNorm(shape, {{Post::Kind::kSilu, 1, 0, -1},
                                  {Post::Kind::kAdd, 0, 0, 0},
                                  {Post::Kind::kClip, -0.1F, 0.4F, -1}}),
                a, threads);
      ExpectClose(s.data, want, 1e-5);
    }
  }
}

TEST(PixelNorms, RefusesAddendsThatItDoesNotKnow) {
  PixelNormShape shape = ShapeOf(3, 8, 2);
  for (const std::vector<NormAddend>& addends : {std::vector<NormAddend>(5, kWhole), {NormAddend::kRow}}) {
    shape.addends = addends;
    EXPECT_THROW(PixelNorm(shape, {}), std::runtime_error);
  }
}

TEST(PixelNorms, RefusesGroupsThatDoNotDivide) {
  EXPECT_THROW(PixelNorm(ShapeOf(3, 8, 3), {}), std::runtime_error);
  EXPECT_THROW(PixelNorm(ShapeOf(3, 8, 0), {}), std::runtime_error);
  EXPECT_NO_THROW(PixelNorm(ShapeOf(3, 8, 8), {}));
}

}  // namespace
}  // namespace collage::native
