// SPDX-License-Identifier: Apache-2.0
//
// Normalisations of rows and of groups of channels, whole and in parts, with what is added before and done
// behind.
//
// ctest: levels kernel
#include "native/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "sample.h"

namespace collage::native {
namespace {

using Divisor = NormShape::Divisor;
using Addends = std::vector<NormAddend>;
constexpr NormAddend kWhole = NormAddend::kWhole, kRow = NormAddend::kRow, kChannels = NormAddend::kChannels,
                     kImageChannels = NormAddend::kImageChannels;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// All that a normalisation reads, in vectors of exactly that size.
struct Arrays {
  std::vector<float> data, gain, shift;
  std::vector<std::vector<float>> addends;
};

int64_t Images(const NormShape& shape, int64_t rows) { return rows * shape.length / shape.image; }

int64_t SizeOf(NormAddend addend, const NormShape& shape, int64_t rows) {
  switch (addend) {
    case kWhole:
      return rows * shape.length;
    case kRow:
      return shape.length;
    case kChannels:
      return shape.channels;
    default:
      return Images(shape, rows) * shape.channels;
  }
}

// Which number of an addend belongs to an element.
int64_t NumberOf(NormAddend addend, const NormShape& shape, int64_t element) {
  const int64_t channel = element / shape.inner % shape.channels;
  switch (addend) {
    case kWhole:
      return element;
    case kRow:
      return element % shape.length;
    case kChannels:
      return channel;
    default:
      return element / shape.image * shape.channels + channel;
  }
}

Arrays SampleOf(const NormShape& shape, int64_t rows, unsigned seed, const Magnitudes& magnitudes = {}) {
  Arrays s;
  s.data = Sample(rows * shape.length, seed, magnitudes.data);
  if (shape.gain) s.gain = Sample(shape.channels, seed + 1, magnitudes.weights);
  if (shape.shift) s.shift = Sample(shape.channels, seed + 2, magnitudes.results());
  for (const NormAddend addend : shape.addends) {
    s.addends.push_back(Sample(SizeOf(addend, shape, rows), ++seed + 2, magnitudes.data));
  }
  return s;
}

// The sums, and the results, in double.
void Reference(const NormShape& shape, const Arrays& s, int64_t rows, std::vector<double>* sums,
               std::vector<double>* results) {
  const int64_t length = shape.length;
  sums->clear();
  results->clear();
  for (int64_t i = 0; i < rows * length; ++i) {
    float sum = s.data[i];  // as it is stored
    for (size_t a = 0; a < s.addends.size(); ++a) sum += s.addends[a][NumberOf(shape.addends[a], shape, i)];
    sums->push_back(sum);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const double* const row = sums->data() + r * length;
    double mean = 0, squares = 0;
    for (int64_t k = 0; k < length; ++k) mean += row[k];
    mean /= static_cast<double>(length);
    if (shape.divisor == Divisor::kSquare || shape.divisor == Divisor::kNone) mean = 0;
    for (int64_t k = 0; k < length; ++k) squares += (row[k] - mean) * (row[k] - mean);
    squares /= static_cast<double>(length - (shape.unbiased ? 1 : 0));
    double divisor = 1;
    if (shape.divisor == Divisor::kDeviation) {
      divisor = std::sqrt(squares) + shape.epsilon;
    } else if (shape.divisor != Divisor::kNone) {
      divisor = std::sqrt(squares + shape.epsilon);
    }
    for (int64_t k = 0; k < length; ++k) {
      const int64_t channel = (r * length + k) / shape.inner % shape.channels;
      double result = (row[k] - mean) / divisor;
      if (shape.gain) result *= s.gain[channel];
      if (shape.shift) result += s.shift[channel];
      results->push_back(result);
    }
  }
}

Norm::Arguments ArgumentsOf(const Arrays& s, int64_t rows) {
  Norm::Arguments a;
  a.rows = rows;
  a.data = s.data.data();
  for (size_t i = 0; i < s.addends.size(); ++i) a.addends[i] = s.addends[i].data();
  a.gain = s.gain.data();
  a.shift = s.shift.data();
  return a;
}

void Normalise(const Norm& norm, Norm::Arguments a, int threads) {
  std::vector<NormMoments> scratch(norm.Scratch(a.rows, threads));
  a.scratch = scratch.data();
  const int64_t parts = norm.Parts(a.rows, threads);
  const int pieces = norm.Pieces(a.rows, threads);
  ASSERT_LE(pieces, threads);
  ASSERT_EQ(scratch.empty(), parts == 1);
  if (parts == 1) {
    for (int piece = 0; piece < pieces; ++piece) norm.WholeRows(a, piece, pieces);
    return;
  }
  for (int piece = 0; piece < pieces; ++piece) norm.Measure(a, parts, piece, pieces);
  for (int piece = pieces; piece-- > 0;) norm.Write(a, parts, piece, pieces);
}

std::string Named(const NormShape& shape, int64_t rows) {
  return std::to_string(static_cast<int>(shape.divisor)) + ": " + std::to_string(rows) + " rows of " +
         std::to_string(shape.length) + ", " + std::to_string(shape.inner) + " neighbours, " +
         std::to_string(shape.addends.size()) + " addends";
}

void ExpectNormal(const NormShape& shape, int64_t rows, int threads = 1, const Magnitudes& magnitudes = {}) {
  const Arrays s = SampleOf(shape, rows, static_cast<unsigned>(shape.length), magnitudes);
  std::vector<double> sums, want;
  Reference(shape, s, rows, &sums, &want);
  std::vector<float> out(want.size(), kNan), sum(want.size(), kNan);
  Norm::Arguments a = ArgumentsOf(s, rows);
  a.out = out.data();
  const Norm norm(shape, {});
  Normalise(norm, a, threads);
  ExpectClose(out, want, 1e-4, Named(shape, rows), magnitudes.results());
  if (shape.addends.empty()) return;
  std::fill(out.begin(), out.end(), kNan);
  a.sum = sum.data();
  Normalise(norm, a, threads);
  ExpectClose(out, want, 1e-4, Named(shape, rows) + ", the sum apart", magnitudes.results());
  ExpectClose(sum, sums, 0, Named(shape, rows) + ", the sum");
}

constexpr Divisor kDivisors[] = {Divisor::kVariance, Divisor::kDeviation, Divisor::kSquare, Divisor::kNone};

NormShape RowsOf(int64_t length, Divisor divisor) {
  NormShape shape;
  shape.divisor = divisor;
  shape.length = shape.channels = length;
  shape.gain = shape.shift = true;
  shape.epsilon = 1e-3F;
  return shape;
}

TEST(Norms, RowsAroundTheVectors) {
  for (const Divisor divisor : kDivisors) {
    for (int64_t length = 1; length <= 140; length += length < 70 ? 1 : 13) {
      for (const int64_t rows : {1, 5}) ExpectNormal(RowsOf(length, divisor), rows);
    }
    for (const int64_t length : {768, 4096, 4097, 12345}) ExpectNormal(RowsOf(length, divisor), 2);
  }
}

TEST(Norms, WithoutGainOrShift) {
  for (const bool gain : {false, true}) {
    for (const int64_t inner : {1, 5}) {
      NormShape shape = RowsOf(35, Divisor::kVariance);
      shape.channels = 35 / inner;
      shape.inner = inner;
      shape.gain = gain;
      shape.shift = !gain;
      ExpectNormal(shape, 3);
      shape.gain = shape.shift = false;
      ExpectNormal(shape, 3);
    }
  }
}

TEST(Norms, UnbiasedVariance) {
  for (const Divisor divisor : {Divisor::kVariance, Divisor::kDeviation}) {
    NormShape shape = RowsOf(19, divisor);
    shape.unbiased = true;
    ExpectNormal(shape, 3);
  }
}

// Groups of channels, each with its pixels: group and instance normalisation, and scales by channel.
TEST(Norms, GroupsOfChannels) {
  for (const Divisor divisor : kDivisors) {
    for (const int64_t pixels : {1, 3, 16, 49, 64, 70}) {
      for (const int64_t channels : {1, 4, 6}) {
        for (const int64_t groups : {1, 2}) {
          if (channels % groups != 0) continue;
          NormShape shape = RowsOf(channels / groups * pixels, divisor);
          shape.channels = channels;
          shape.inner = pixels;
          ExpectNormal(shape, 3 * groups);
        }
      }
    }
  }
}

TEST(Norms, AddsFirst) {
  for (const Divisor divisor : kDivisors) {
    for (const Addends& addends :
         {Addends{kWhole}, {kRow}, {kWhole, kRow}, {kRow, kWhole, kWhole}, {kWhole, kWhole, kRow, kWhole}}) {
      for (const int64_t length : {1, 15, 64, 67, 5000}) {
        NormShape shape = RowsOf(length, divisor);
        shape.addends = addends;
        ExpectNormal(shape, 3);
      }
    }
  }
}

// A row is a group of channels; of scales by channel it is an image, or a pixel whose channels lie innermost.
TEST(Norms, AddsToImages) {
  for (const Divisor divisor : kDivisors) {
    for (const Addends& addends : {Addends{kWhole},
                                   {kChannels},
                                   {kImageChannels},
                                   {kImageChannels, kWhole},
                                   {kWhole, kChannels, kImageChannels, kWhole}}) {
      for (const int64_t pixels : {1, 3, 16, 49, 1500}) {
        for (const int64_t groups : {1, 2, 6}) {
          NormShape shape = RowsOf(6 / groups * pixels, divisor);
          shape.channels = 6;
          shape.inner = pixels;
          shape.image = 6 * pixels;
          shape.addends = addends;
          for (const int threads : {1, 3}) ExpectNormal(shape, 2 * groups, threads);
        }
        NormShape shape = RowsOf(37, divisor);
        shape.image = pixels * 37;
        shape.addends = addends;
        ExpectNormal(shape, 2 * pixels);
      }
    }
  }
}

// One number that is none, and is added, leaves no number in its group.
TEST(Norms, AddsWhatIsNotANumber) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    NormShape shape = RowsOf(2 * 33, Divisor::kVariance);
    shape.channels = 4;
    shape.inner = 33;
    shape.image = 4 * 33;
    shape.addends = {kImageChannels};
    Arrays s = SampleOf(shape, 4, 5);
    std::vector<double> sums, want;
    Reference(shape, s, 4, &sums, &want);
    s.addends[0][5] = bad;
    std::fill_n(want.begin() + 2 * 66, 66, kNan);
    std::vector<float> out(want.size());
    Norm::Arguments a = ArgumentsOf(s, 4);
    a.out = out.data();
    Normalise(Norm(shape, {}), a, 1);
    ExpectClose(out, want, 1e-4);
  }
}

// Few long rows are divided among threads, in the same result; none reads what another has not measured.
TEST(Norms, RowsInParts) {
  for (const Divisor divisor : kDivisors) {
    for (const int threads : {2, 3, 7}) {
      for (const int64_t rows : {1, 2, 5}) {
        NormShape shape = RowsOf(40001, divisor);
        shape.addends = {kWhole};
        ExpectNormal(shape, rows, threads);
        shape = RowsOf(9 * 4999, divisor);
        shape.channels = 9;
        shape.inner = 4999;
        ExpectNormal(shape, rows, threads);
      }
      ExpectNormal(RowsOf(300, divisor), 200, threads);
    }
  }
  EXPECT_GT(Norm(RowsOf(40001, Divisor::kVariance), {}).Parts(1, 2), 1);
  EXPECT_EQ(Norm(RowsOf(40001, Divisor::kVariance), {}).Parts(2, 2), 1);
  EXPECT_EQ(Norm(RowsOf(100, Divisor::kVariance), {}).Parts(1, 8), 1);
}

// Beside an epsilon of 1, so that results are as small as data and gains make them. Without one, the squares
// of numbers that are 1e-23 or less are 0, here as in what is written out in single steps.
TEST(Norms, OfDenormalNumbers) {
  for (const Divisor divisor : kDivisors) {
    for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
      for (const int64_t length : {1, 35, 5000}) {
        NormShape shape = RowsOf(length, divisor);
        shape.epsilon = 1;
        ExpectNormal(shape, 2, 1, magnitudes);
        shape.addends = {kWhole, kRow};
        ExpectNormal(shape, 1, 2, magnitudes);
      }
    }
  }
}

// A mean that is a million times the deviation: squares that are added up about 0 would leave nothing of it.
TEST(Norms, LargeMeans) {
  for (const int64_t length : {100, 4096, 100000}) {
    for (const int threads : {1, 3}) {
      std::vector<float> data(length), out(length);
      std::vector<double> want;
      for (int64_t i = 0; i < length; ++i) {
        data[i] = 1e6F + static_cast<float>(i % 2);
        want.push_back(i % 2 == 0 ? -1 : 1);
      }
      NormShape shape = RowsOf(length, Divisor::kVariance);
      shape.gain = shape.shift = false;
      shape.epsilon = 1e-9F;
      Norm::Arguments a;
      a.rows = 1;
      a.data = data.data();
      a.out = out.data();
      Normalise(Norm(shape, {}), a, threads);
      ExpectClose(out, want, 1e-5, std::to_string(length));
    }
  }
}

// Blocks, and parts, whose means differ by more than their deviations.
TEST(Norms, DriftingRows) {
  for (const Divisor divisor : kDivisors) {
    for (const int64_t length : {5000, 30011}) {
      for (const int threads : {1, 3}) {
        NormShape shape = RowsOf(length, divisor);
        Arrays s = SampleOf(shape, 1, 31);
        for (int64_t i = 0; i < length; ++i) s.data[i] += static_cast<float>(i / 2500) * 5;
        std::vector<double> sums, want;
        Reference(shape, s, 1, &sums, &want);
        std::vector<float> out(want.size());
        Norm::Arguments a = ArgumentsOf(s, 1);
        a.out = out.data();
        Normalise(Norm(shape, {}), a, threads);
        ExpectClose(out, want, 1e-5, Named(shape, 1));
      }
    }
  }
}

TEST(Norms, NothingAtAll) {
  NormShape shape = RowsOf(0, Divisor::kVariance);
  for (const int64_t length : {0, 8}) {
    shape.length = shape.channels = length;
    Norm::Arguments a;
    a.rows = length == 0 ? 3 : 0;
    Normalise(Norm(shape, {}), a, 2);
  }
}

// As what is written out in single steps gives it.
TEST(Norms, WhatIsNotANumber) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const int64_t length : {5, 100, 5000}) {
      for (const int threads : {1, 2}) {
        std::vector<float> data = Sample(length, 3), out(length);
        data[length / 2] = bad;
        NormShape shape = RowsOf(length, Divisor::kVariance);
        shape.gain = shape.shift = false;
        Norm::Arguments a;
        a.rows = 1;
        a.data = data.data();
        a.out = out.data();
        for (const Divisor divisor : {Divisor::kVariance, Divisor::kDeviation}) {
          shape.divisor = divisor;
          Normalise(Norm(shape, {}), a, threads);
          ExpectClose(out, std::vector<double>(length, kNan), 0, "all of the row");
        }
        shape.divisor = Divisor::kSquare;
        Normalise(Norm(shape, {}), a, threads);
        std::vector<double> want(length, std::isnan(bad) ? kNan : 0);
        want[length / 2] = kNan;
        ExpectClose(out, want, 0, "mean squares");
      }
    }
  }
  // No deviation and no epsilon: 0 / 0.
  std::vector<float> data(20, 3), out(20);
  NormShape shape = RowsOf(20, Divisor::kVariance);
  shape.gain = shape.shift = false;
  shape.epsilon = 0;
  Norm::Arguments a;
  a.rows = 1;
  a.data = data.data();
  a.out = out.data();
  Normalise(Norm(shape, {}), a, 1);
  ExpectClose(out, std::vector<double>(20, kNan), 0, "no deviation");
}

TEST(Norms, Posts) {
  for (const int64_t inner : {1, 21}) {
    NormShape shape = RowsOf(84, Divisor::kVariance);
    shape.channels = 84 / inner;
    shape.inner = inner;
    const int64_t rows = 3;
    const Arrays s = SampleOf(shape, rows, 11);
    const std::vector<float> added = Sample(rows * 84, 12);
    std::vector<double> sums, want;
    Reference(shape, s, rows, &sums, &want);
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = std::min(std::max(want[i] / (1 + std::exp(-want[i])) + added[i], -0.1), 0.4);
    }
    std::vector<float> out(want.size());
    Norm::Arguments a = ArgumentsOf(s, rows);
    const Operand operand{added.data(), 0};
    a.operands = &operand;
    a.out = out.data();
    Normalise(Norm(shape, {{Post::Kind::kSilu, 1, 0, -1},
                           {Post::Kind::kAdd, 0, 0, 0},
                           {Post::Kind::kClip, -0.1F, 0.4F, -1}}),
              a, 1);
    ExpectClose(out, want, 1e-5);
  }
}

// The result where the data or the sum is.
TEST(Norms, InPlace) {
  for (const int threads : {1, 3}) {
    NormShape shape = RowsOf(20000, Divisor::kVariance);
    for (const bool sum : {false, true}) {
      if (sum) shape.addends = {kWhole};
      Arrays s = SampleOf(shape, 2, 21);
      std::vector<double> sums, want;
      Reference(shape, s, 2, &sums, &want);
      Norm::Arguments a = ArgumentsOf(s, 2);
      a.out = s.data.data();
      a.sum = sum ? s.data.data() : nullptr;
      Normalise(Norm(shape, {}), a, threads);
      ExpectClose(s.data, want, 1e-4);
    }
  }
}

TEST(Norms, RefusesGainsThatDoNotFit) {
  NormShape shape = RowsOf(12, Divisor::kVariance);
  shape.channels = 8;
  EXPECT_THROW(Norm(shape, {}), std::runtime_error);
  shape.gain = shape.shift = false;
  EXPECT_NO_THROW(Norm(shape, {}));
}

TEST(Norms, RefusesAddendsThatDoNotFit) {
  NormShape shape = RowsOf(12, Divisor::kVariance);
  shape.addends = Addends(5, kWhole);
  EXPECT_THROW(Norm(shape, {}), std::runtime_error);
  shape.addends = {kImageChannels};
  for (const int64_t image : {0, 18}) {
    shape.image = image;
    EXPECT_THROW(Norm(shape, {}), std::runtime_error) << image;
  }
  shape.image = 24;
  EXPECT_NO_THROW(Norm(shape, {}));
}

}  // namespace
}  // namespace collage::native
