// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/window.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_WINDOW_LOOPS_H_
#define COLLAGE_NATIVE_WINDOW_LOOPS_H_

#include "native/gemm_loops.h"
#include "native/window.h"

namespace collage::native {
namespace {

// Where padding is: nothing in a sum, the lowest number in a maximum.
template <bool kMaximum>
COLLAGE_ALWAYS Vector Nothing() {
  return kMaximum ? All(kLowest) : Vector{};
}

// So many results are computed side by side: a pixel that several windows see is loaded once. Widths of
// images are multiples of 7 more often than of 8.
constexpr int kSideBySide = 7;

template <Window::Kind kKind>
COLLAGE_ALWAYS Vector Gathered(Vector sum, Vector x, Vector tap) {
  if (kKind == Window::Kind::kDepthwise) return x * tap + sum;
  if (kKind == Window::Kind::kMaximum) return Greater(sum, x);
  return sum + x;
}

// Results x0 .. x0 + 6 of a row, of a vector of channels, of which the first `wanted` are stored. kInside
// says that no pixel that they see lies in the padding at the sides. kAcross and kStride: the window's width
// and stride along the row, or 0 where they are not written out. result: the number of the first result
// within the work.
template <Window::Kind kKind, int kAcross, int kStride, bool kInside>
COLLAGE_ALWAYS void WindowTile(const WindowRowsWork& work, int64_t row, int64_t x0, int64_t channel,
                               Lanes lanes, int64_t wanted, int64_t result) {
  constexpr bool kMaximum = kKind == Window::Kind::kMaximum;
  constexpr bool kTaps = kKind == Window::Kind::kDepthwise;
  const Window& w = *work.window;
  const int64_t across = kAcross > 0 ? kAcross : w.kernel_width,
                stride = kAcross > 0 ? kStride : w.stride_width;
  Vector sum[kSideBySide][1];
  Vector start = Nothing<kMaximum>();
  if (kTaps && w.bias != nullptr) start = LoadLanes(w.bias + channel, lanes);
#pragma GCC unroll 8
  for (int j = 0; j < kSideBySide; ++j) sum[j][0] = start;
  const int64_t top = row * w.stride_height - w.pad_top, left = x0 * stride - w.pad_left;
  const float* taps = kTaps ? w.taps + channel * w.kernel_height * across : nullptr;
  // What the next row of results sees for the first time is fetched while this one is computed: it was
  // written by an earlier step and has left the inner caches.
  const int64_t below = top + (w.kernel_height - 1) * w.dilation_height + 1;
  for (int64_t y = below; y < below + w.stride_height && y < w.height; ++y) {
    if (y < 0) continue;
    const int64_t begin = left < 0 ? 0 : left;
    const int64_t end = left + kSideBySide * stride < w.width ? left + kSideBySide * stride : w.width;
    const float* const line = work.image + y * w.width * work.pixel + channel;
    for (int64_t i = begin; i < end; ++i) __builtin_prefetch(line + i * work.pixel, 0, 3);
  }
  int64_t rows = 0;
  bool padded = false;  // the last row that was looked at is padding
  for (int64_t ky = 0; ky < w.kernel_height; ++ky) {
    const int64_t y = top + ky * w.dilation_height;
    padded = y < 0 || y >= w.height;
    if (padded) continue;
    ++rows;
    const float* const line = work.image + (y * w.width + left) * work.pixel + channel;
    const float* const row_taps = kTaps ? taps + ky * across * kWidth : nullptr;
    if constexpr (kAcross > 0) {
      constexpr int kSeen = (kSideBySide - 1) * kStride + kAcross;
      Vector x[kSeen];
#pragma GCC unroll 32
      for (int i = 0; i < kSeen; ++i) {
        x[i] = Nothing<kMaximum>();
        if (kInside || (left + i >= 0 && left + i < w.width)) x[i] = LoadLanes(line + i * work.pixel, lanes);
      }
      // The results within: each has its own chain of sums, and they take turns.
#pragma GCC unroll 8
      for (int kx = 0; kx < kAcross; ++kx) {
        const Vector tap = kTaps ? Load(row_taps + kx * kWidth) : Vector{};
#pragma GCC unroll 8
        for (int j = 0; j < kSideBySide; ++j)
          sum[j][0] = Gathered<kKind>(sum[j][0], x[j * kStride + kx], tap);
      }
    } else {
      for (int64_t kx = 0; kx < across; ++kx) {
        const Vector tap = kTaps ? Load(row_taps + kx * kWidth) : Vector{};
#pragma GCC unroll 8
        for (int j = 0; j < kSideBySide; ++j) {
          const int64_t i = j * stride + kx * w.dilation_width;
          Vector x = Nothing<kMaximum>();
          if (left + i >= 0 && left + i < w.width) x = LoadLanes(line + i * work.pixel, lanes);
          sum[j][0] = Gathered<kKind>(sum[j][0], x, tap);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kSideBySide; ++j) {
    Vector& value = sum[j][0];
    if (kKind == Window::Kind::kAverageWithPadding) {
      value *= w.scale / static_cast<float>(w.kernel_height * across);
    } else if (kKind == Window::Kind::kAverage) {
      int64_t columns = across;
      if (!kInside) {
        columns = 0;
        for (int64_t kx = 0; kx < across; ++kx) {
          const int64_t column = left + j * stride + kx * w.dilation_width;
          columns += column >= 0 && column < w.width ? 1 : 0;
        }
      }
      value *= w.scale / static_cast<float>(rows * columns > 0 ? rows * columns : 1);
    } else if (kMaximum) {
      // Rows of padding behind the last one are looked at, too; those in front of the first one change
      // nothing.
      if (padded) value = Greater(value, Nothing<true>());
      value *= w.scale;
    }
  }
  for (int p = 0; p < w.num_posts; ++p) {
    const Post& post = w.posts[p];
    if (post.kind != Post::Kind::kAdd) {
      ApplyPost<kSideBySide, 1, true>(post, nullptr, 0, 0, lanes, sum);
      continue;
    }
    // Of what is not wanted, there may be nothing to read.
    const Operand& operand = work.operands[post.operand];
    const float* const from = operand.data + result * operand.row + channel;
#pragma GCC unroll 8
    for (int j = 0; j < kSideBySide; ++j) {
      if (j >= wanted) break;
      sum[j][0] += LoadLanes(from + j * operand.row, lanes);
    }
  }
  float* const to = work.out + result * work.out_pixel + channel;
#pragma GCC unroll 8
  for (int j = 0; j < kSideBySide; ++j) {
    if (j >= wanted) break;
    StoreLanes(to + j * work.out_pixel, sum[j][0], lanes);
  }
}

template <Window::Kind kKind, int kAcross, int kStride>
void WindowRows(const WindowRowsWork& work) {
  const Window& w = *work.window;
  // Downwards first: what several rows of results see stays in the first cache. Channels last: memory is read
  // as it lies.
  for (int64_t x = 0; x < w.out_width; x += kSideBySide) {
    const int64_t left = x * kStride - w.pad_left;
    const int64_t right = left + (kSideBySide - 1) * kStride + kAcross;
    const bool inside = kAcross > 0 && left >= 0 && right <= w.width;
    const int64_t wanted = w.out_width - x;
    for (int64_t row = 0; row < work.rows; ++row) {
      const int64_t result = row * w.out_width + x;
      for (int64_t channel = 0; channel < w.channels; channel += kWidth) {
        const Lanes lanes = FirstLanes(w.channels - channel);
        if (kAcross > 0 && inside) {
          WindowTile<kKind, kAcross, kStride, kAcross != 0>(work, work.first + row, x, channel, lanes, wanted,
                                                            result);
        } else {
          WindowTile<kKind, kAcross, kStride, false>(work, work.first + row, x, channel, lanes, wanted,
                                                     result);
        }
      }
    }
  }
}

using WindowFunction = void (*)(const WindowRowsWork&);

template <Window::Kind kKind>
WindowFunction WindowOf(const Window& w) {
  if (w.dilation_width == 1 && w.stride_width == 1) {
    if (w.kernel_width == 2) return WindowRows<kKind, 2, 1>;
    if (w.kernel_width == 3) return WindowRows<kKind, 3, 1>;
    if (w.kernel_width == 5) return WindowRows<kKind, 5, 1>;
    if (w.kernel_width == 7) return WindowRows<kKind, 7, 1>;
  }
  if (w.dilation_width == 1 && w.stride_width == 2) {
    if (w.kernel_width == 2) return WindowRows<kKind, 2, 2>;
    if (w.kernel_width == 3) return WindowRows<kKind, 3, 2>;
    if (w.kernel_width == 5) return WindowRows<kKind, 5, 2>;
    if (w.kernel_width == 7) return WindowRows<kKind, 7, 2>;
  }
  return WindowRows<kKind, 0, 0>;
}

void WindowAny(const WindowRowsWork& work) {
  switch (work.window->kind) {
    case Window::Kind::kDepthwise:
      return WindowOf<Window::Kind::kDepthwise>(*work.window)(work);
    case Window::Kind::kAverage:
      return WindowOf<Window::Kind::kAverage>(*work.window)(work);
    case Window::Kind::kAverageWithPadding:
      return WindowOf<Window::Kind::kAverageWithPadding>(*work.window)(work);
    case Window::Kind::kMaximum:
      return WindowOf<Window::Kind::kMaximum>(*work.window)(work);
  }
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WINDOW_LOOPS_H_
