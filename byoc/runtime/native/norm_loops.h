// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/norm.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_NORM_LOOPS_H_
#define COLLAGE_NATIVE_NORM_LOOPS_H_

#include "native/gemm_loops.h"
#include "native/lanes.h"
#include "native/norm.h"

namespace collage::native {
namespace {

// Vectors that are worked on side by side, so that sums need not wait for one another.
constexpr int kNormVectors = 4;
// Elements of which the moments are taken at a time: 16 KB.
constexpr int64_t kNormBlock = 4096;

// What follows the whole vectors of a row, which a masked load fills with zeros, counts as nothing.
COLLAGE_ALWAYS Vector Present(Vector v, int64_t count) {
  return NumbersOf(kNumbers) < static_cast<int32_t>(count) ? v : Vector{};
}

// The sum of all elements; with addends, of their sums, which are stored.
template <int kAddends>
COLLAGE_ALWAYS float SumRow(const NormSource& s, int64_t begin, int64_t count) {
  const float* const data = s.data + begin;
  const float* addends[kAddends + 1];
  for (int a = 0; a < kAddends; ++a) addends[a] = s.addends[a] + begin;
  float* const sum = kAddends > 0 ? s.sum + begin : nullptr;
  Vector sums[kNormVectors] = {};
  int64_t i = 0;
  for (; i + kNormVectors * kWidth <= count; i += kNormVectors * kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < kNormVectors; ++v) {
      Vector x = Load(data + i + v * kWidth);
#pragma GCC unroll 4
      for (int a = 0; a < kAddends; ++a) x += Load(addends[a] + i + v * kWidth);
      if (kAddends > 0) Store(sum + i + v * kWidth, x);
      sums[v] += x;
    }
  }
  for (; i < count; i += kWidth) {
    const Lanes lanes = FirstLanes(count - i);
    Vector x = LoadLanes(data + i, lanes);
#pragma GCC unroll 4
    for (int a = 0; a < kAddends; ++a) x += LoadLanes(addends[a] + i, lanes);
    if (kAddends > 0) StoreLanes(sum + i, x, lanes);
    sums[0] += x;
  }
  return SumOfLanes((sums[0] + sums[1]) + (sums[2] + sums[3]))[0];
}

// The sums of what is left without a mean, and of its squares.
template <bool kCentred>
COLLAGE_ALWAYS NormMoments Remainders(const float* data, float mean, int64_t count) {
  const Vector about = All(mean);
  Vector squares[kNormVectors] = {}, rests[kNormVectors] = {};
  int64_t i = 0;
  for (; i + kNormVectors * kWidth <= count; i += kNormVectors * kWidth) {
#pragma GCC unroll 4
    for (int v = 0; v < kNormVectors; ++v) {
      Vector x = Load(data + i + v * kWidth);
      if (kCentred) x -= about;
      if (kCentred) rests[v] += x;
      squares[v] += x * x;
    }
  }
  for (; i < count; i += kWidth) {
    Vector x = LoadLanes(data + i, FirstLanes(count - i));
    if (kCentred) x = Present(x - about, count - i);
    if (kCentred) rests[0] += x;
    squares[0] += x * x;
  }
  NormMoments sums;
  if (kCentred) sums.mean = SumOfLanes((rests[0] + rests[1]) + (rests[2] + rests[3]))[0];
  sums.squares = SumOfLanes((squares[0] + squares[1]) + (squares[2] + squares[3]))[0];
  return sums;
}

template <int kAddends>
void MeasureRow(const NormSource& s, bool centred, NormMoments* moments) {
  NormMoments all;
  for (int64_t begin = 0; begin < s.count; begin += kNormBlock) {
    const int64_t count = s.count - begin < kNormBlock ? s.count - begin : kNormBlock;
    const float sum = kAddends > 0 || centred ? SumRow<kAddends>(s, begin, count) : 0.0F;
    const float n = static_cast<float>(count);
    const float* const from = (kAddends > 0 ? s.sum : s.data) + begin;
    NormMoments block;
    if (centred) {
      // A mean that was rounded leaves something, by which both are put right.
      const float mean = sum / n;
      const NormMoments rests = Remainders<true>(from, mean, count);
      const float rest = rests.mean / n;
      block = {n, mean + rest, rests.squares - rests.mean * rest};
    } else {
      block = {n, 0, Remainders<false>(from, 0, count).squares};
    }
    all = begin == 0 ? block : Together(all, block);
  }
  *moments = all;
}

void MeasureNorm(const NormSource& s, bool centred, NormMoments* moments) {
  switch (s.num_addends) {
    case 0:
      return MeasureRow<0>(s, centred, moments);
    case 1:
      return MeasureRow<1>(s, centred, moments);
    case 2:
      return MeasureRow<2>(s, centred, moments);
    case 3:
      return MeasureRow<3>(s, centred, moments);
    default:
      return MeasureRow<kMostNormAddends>(s, centred, moments);
  }
}

void AddBefore(const NormSource& source) {
  const NormSource s = source;  // what a store may lie over is not read again
  int64_t neighbours = 0, end = s.inner > 0 ? s.inner - s.before : s.count;
  for (int64_t begin = 0; begin < s.count; begin = end, end += s.inner, ++neighbours) {
    if (end > s.count) end = s.count;
    for (int64_t i = begin; i < end; i += kWidth) {
      const Lanes lanes = FirstLanes(end - i);
      Vector x = LoadLanes(s.data + i, lanes);
      for (int a = 0; a < s.num_addends; ++a) {
        x += s.spread[a] ? All(s.addends[a][neighbours]) : LoadLanes(s.addends[a] + i, lanes);
      }
      StoreLanes(s.sum + i, x, lanes);
    }
  }
}

// What a vector is multiplied by, and what is added to it then: one number for all of a row's elements, or
// one for each.
template <bool kEach>
struct NormScale {
  const float *gain, *shift;  // kEach: null for 1 and 0
  float gain_of_all, shift_of_all;
};

template <int kVectors, bool kWhole, bool kEach>
COLLAGE_ALWAYS void WriteVectors(const NormWrite& w, const NormScale<kEach>& scale, int64_t i, Lanes last) {
  const Vector mean = All(w.mean), factor = All(w.factor);
  Vector x[1][kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = i + v * kWidth;
    Vector value = kWhole ? Load(w.from + at) : LoadLanes(w.from + at, last);
    value = (value - mean) * factor;
    if (kEach) {
      if (scale.gain != nullptr) value *= kWhole ? Load(scale.gain + at) : LoadLanes(scale.gain + at, last);
      if (scale.shift != nullptr)
        value += kWhole ? Load(scale.shift + at) : LoadLanes(scale.shift + at, last);
    } else {
      value = value * scale.gain_of_all + scale.shift_of_all;
    }
    x[0][v] = value;
  }
  for (int p = 0; p < w.num_posts; ++p) {
    ApplyPost<1, kVectors, kWhole>(w.posts[p], w.operands, 0, i, last, x);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    if (kWhole) {
      Store(w.out + i + v * kWidth, x[0][v]);
    } else {
      StoreLanes(w.out + i + v * kWidth, x[0][v], last);
    }
  }
}

// Elements begin .. end - 1. What a store may lie over is not read again: hence a copy of the work.
template <bool kEach>
COLLAGE_ALWAYS void WriteSome(const NormWrite& work, const NormScale<kEach> scale, int64_t begin,
                              int64_t end) {
  const NormWrite w = work;
  int64_t i = begin;
  for (; i + kNormVectors * kWidth <= end; i += kNormVectors * kWidth) {
    WriteVectors<kNormVectors, true>(w, scale, i, FirstLanes(kWidth));
  }
  for (; i + kWidth <= end; i += kWidth) WriteVectors<1, true>(w, scale, i, FirstLanes(kWidth));
  if (i < end) WriteVectors<1, false>(w, scale, i, FirstLanes(end - i));
}

void WriteNorm(const NormWrite& w) {
  if (w.inner == 1) return WriteSome(w, NormScale<true>{w.gain, w.shift, 1, 0}, 0, w.count);
  const float *gain = w.gain, *shift = w.shift;
  int64_t end = w.inner - w.before;
  for (int64_t begin = 0; begin < w.count; begin = end, end += w.inner) {
    const NormScale<false> scale{nullptr, nullptr, gain == nullptr ? 1.0F : *gain++,
                                 shift == nullptr ? 0.0F : *shift++};
    WriteSome(w, scale, begin, end < w.count ? end : w.count);
  }
}

constexpr NormLoops kNormLoops{MeasureNorm, AddBefore, WriteNorm};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_NORM_LOOPS_H_
