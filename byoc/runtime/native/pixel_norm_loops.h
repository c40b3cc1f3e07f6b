// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/pixel_norm.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_PIXEL_NORM_LOOPS_H_
#define COLLAGE_NATIVE_PIXEL_NORM_LOOPS_H_

#include "native/gemm_loops.h"
#include "native/lanes.h"
#include "native/pixel_norm.h"

namespace collage::native {
namespace {

// Pixels that are worked on side by side: what belongs to their channels is loaded once for all of them.
constexpr int kPixelsTogether = 4;
// Pixels of which the squares are summed up about the first one.
constexpr int64_t kPixelBlock = 32;

// The sums of so many pixels without the block's first one, and of their squares, onto those there are.
template <int kPixels, bool kWhole>
COLLAGE_ALWAYS void AddPixels(const PixelMoments& w, const float* about, const float* from, int64_t channel,
                              Lanes last) {
  const Vector first = kWhole ? Load(about + channel) : LoadLanes(about + channel, last);
  Vector sums = kWhole ? Load(w.block_sums + channel) : LoadLanes(w.block_sums + channel, last);
  Vector squares = kWhole ? Load(w.block_squares + channel) : LoadLanes(w.block_squares + channel, last);
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    const float* const at = from + p * w.channels + channel;
    const Vector x = (kWhole ? Load(at) : LoadLanes(at, last)) - first;
    sums += x;
    squares += x * x;
  }
  if (kWhole) {
    Store(w.block_sums + channel, sums);
    Store(w.block_squares + channel, squares);
  } else {
    StoreLanes(w.block_sums + channel, sums, last);
    StoreLanes(w.block_squares + channel, squares, last);
  }
}

template <int kPixels>
COLLAGE_ALWAYS void AddChannels(const PixelMoments& w, const float* about, const float* from) {
  int64_t c = 0;
  for (; c + kWidth <= w.channels; c += kWidth) {
    AddPixels<kPixels, true>(w, about, from, c, FirstLanes(kWidth));
  }
  if (c < w.channels) AddPixels<kPixels, false>(w, about, from, c, FirstLanes(w.channels - c));
}

// Brings the moments of a block, of so many pixels, together with those of as many as there were before.
COLLAGE_ALWAYS void TakeBlock(const PixelMoments& w, const float* about, int64_t before, int64_t count) {
  const float n = static_cast<float>(count), all = static_cast<float>(before + count);
  const float share = n / all, weight = static_cast<float>(before) * share;
  for (int64_t c = 0; c < w.channels; c += kWidth) {
    const Lanes lanes = FirstLanes(w.channels - c);
    const Vector sum = LoadLanes(w.block_sums + c, lanes);
    const Vector rest = sum / n;
    Vector mean = LoadLanes(about + c, lanes) + rest;
    Vector squares = LoadLanes(w.block_squares + c, lanes) - sum * rest;
    if (before > 0) {
      const Vector so_far = LoadLanes(w.means + c, lanes), difference = mean - so_far;
      mean = so_far + difference * share;
      squares += LoadLanes(w.squares + c, lanes) + difference * difference * weight;
    }
    StoreLanes(w.means + c, mean, lanes);
    StoreLanes(w.squares + c, squares, lanes);
    StoreLanes(w.block_sums + c, Vector{}, lanes);
    StoreLanes(w.block_squares + c, Vector{}, lanes);
  }
}

// Stores the sums of so many pixels, where something is added.
void StoreSums(const PixelMoments& work, int64_t begin, int64_t count) {
  if (work.num_addends == 0) return;
  const PixelMoments w = work;  // what a store may lie over is not read again
  for (int64_t p = begin; p < begin + count; ++p) {
    const float* const data = w.data + p * w.channels;
    float* const sum = w.sum + p * w.channels;
    for (int64_t c = 0; c < w.channels; c += kWidth) {
      const Lanes lanes = FirstLanes(w.channels - c);
      Vector x = LoadLanes(data + c, lanes);
      for (int a = 0; a < w.num_addends; ++a) {
        x += LoadLanes(w.addends[a].data + p * w.addends[a].row + c, lanes);
      }
      StoreLanes(sum + c, x, lanes);
    }
  }
}

void MeasurePixels(const PixelMoments& w) {
  const float* const from = w.num_addends > 0 ? w.sum : w.data;
  for (int64_t c = 0; c < w.channels; ++c) w.block_sums[c] = w.block_squares[c] = 0;
  for (int64_t begin = 0; begin < w.pixels; begin += kPixelBlock) {
    const float* const block = from + begin * w.channels;
    const int64_t count = w.pixels - begin < kPixelBlock ? w.pixels - begin : kPixelBlock;
    int64_t p = 0;
    for (; p + kPixelsTogether <= count; p += kPixelsTogether) {
      StoreSums(w, begin + p, kPixelsTogether);
      AddChannels<kPixelsTogether>(w, block, block + p * w.channels);
    }
    for (; p < count; ++p) {
      StoreSums(w, begin + p, 1);
      AddChannels<1>(w, block, block + p * w.channels);
    }
    TakeBlock(w, block, begin, count);
  }
}

template <int kPixels, bool kWhole>
COLLAGE_ALWAYS void WriteChannels(const PixelWrite& w, int64_t pixel, int64_t channel, Lanes last) {
  const auto of_channel = [&](const float* from) {
    return kWhole ? Load(from + channel) : LoadLanes(from + channel, last);
  };
  const Vector mean = of_channel(w.means), factor = of_channel(w.factors), shift = of_channel(w.shifts);
  Vector x[kPixels][1];
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    const float* const at = w.from + (pixel + p) * w.channels + channel;
    x[p][0] = ((kWhole ? Load(at) : LoadLanes(at, last)) - mean) * factor + shift;
  }
  for (int i = 0; i < w.num_posts; ++i) {
    ApplyPost<kPixels, 1, kWhole>(w.posts[i], w.operands, pixel, channel, last, x);
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    float* const at = w.out + (pixel + p) * w.channels + channel;
    if (kWhole) {
      Store(at, x[p][0]);
    } else {
      StoreLanes(at, x[p][0], last);
    }
  }
}

// What a store may lie over is not read again: hence a copy of the work.
template <int kPixels>
COLLAGE_ALWAYS void WriteTogether(const PixelWrite& work, int64_t pixel) {
  const PixelWrite w = work;
  int64_t c = 0;
  for (; c + kWidth <= w.channels; c += kWidth) {
    WriteChannels<kPixels, true>(w, pixel, c, FirstLanes(kWidth));
  }
  if (c < w.channels) WriteChannels<kPixels, false>(w, pixel, c, FirstLanes(w.channels - c));
}

void WritePixels(const PixelWrite& w) {
  int64_t p = 0;
  for (; p + kPixelsTogether <= w.pixels; p += kPixelsTogether) WriteTogether<kPixelsTogether>(w, p);
  for (; p < w.pixels; ++p) WriteTogether<1>(w, p);
}

constexpr PixelNormLoops kPixelNormLoops{MeasurePixels, WritePixels};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PIXEL_NORM_LOOPS_H_
