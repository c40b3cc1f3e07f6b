// SPDX-License-Identifier: Apache-2.0
//
// The tiles of native/dot.h for one level (native/level.h), whatever the words are made of.
#ifndef COLLAGE_NATIVE_DOT_LOOPS_H_
#define COLLAGE_NATIVE_DOT_LOOPS_H_

#include <utility>

#include "native/divide_up.h"
#include "native/dot.h"
#include "native/gemm_loops.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

// Vectors of columns of a panel, and rows of a tile: an address for each of them must fit into registers.
#if COLLAGE_LANES == 16
constexpr int kDotVectors = 4, kDotRows = 6;
#else
constexpr int kDotVectors = 2, kDotRows = 4;
#endif

typedef int32_t Word __attribute__((aligned(1), may_alias));
typedef int32_t AnyIntegers __attribute__((vector_size(COLLAGE_LANES * 4), aligned(4), may_alias));

COLLAGE_ALWAYS Integers LoadIntegers(const void* from) { return *static_cast<const AnyIntegers*>(from); }

// The bias of V vectors of columns, of which the last one has the given lanes.
template <int V, bool kWhole>
COLLAGE_ALWAYS Vector BiasOf(const DotWork& w, int v, Lanes last) {
  if (w.bias == nullptr) return Vector{};
  return kWhole || v + 1 < V ? Load(w.bias + v * kWidth) : LoadLanes(w.bias + v * kWidth, last);
}

// R rows of V vectors of results from row `top` on.
template <int R, int V, bool kWhole>
COLLAGE_ALWAYS void StoreRows(const DotWork& w, int64_t top, Lanes last, const Vector (&result)[R][V]) {
  float* const to = w.out + top * w.out_row;
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const at = to + r * w.out_row + v * kWidth;
      if (kWhole || v + 1 < V) {
        Store(at, result[r][v]);
      } else {
        StoreLanes(at, result[r][v], last);
      }
    }
  }
}

// Where R rows from row `top` of the work on begin, and of which image each of them is.
template <int R>
COLLAGE_ALWAYS void PlaceRows(const DotWork& w, int64_t top, const uint8_t* (&row)[R], int64_t (&of)[R]) {
  const int64_t first = w.row + top, line = first / w.at.width;
  int64_t x = first % w.at.width, y = line % w.at.height, image = line / w.at.height;
  for (int r = 0; r < R; ++r) {
    row[r] = w.left + image * w.at.image + y * w.at.line + x * w.at.pixel;
    of[r] = image;
    if (++x < w.at.width) continue;
    x = 0;
    if (++y < w.at.height) continue;
    y = 0;
    ++image;
  }
}

// R rows from row `top` of the work on, and V vectors of columns; see Tile in native/gemm_loops.h. What the
// words are made of Kind says: Work, which is a DotWork; Sum, a vector of sums; kAhead, how many
// bytes ahead the right side is fetched (0: not); Add, which adds products to
// one; and Store, which has the sums, and of which image each row is.
template <typename Kind, int R, int V, bool kWhole>
void DotTile(const typename Kind::Work& w, int64_t top, Lanes last) {
  const uint8_t* row[R];
  int64_t of[R];
  PlaceRows<R>(w, top, row, of);
  typename Kind::Sum sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = typename Kind::Sum{};
  }
  const uint8_t* b = w.right;
  for (int64_t stretch = 0; stretch < w.num_stretches; ++stretch) {
    const uint8_t* a[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) a[r] = row[r] + (w.stretches == nullptr ? 0 : w.stretches[stretch]);
    for (int64_t k = 0; k < w.length; k += kWordBytes) {
      Integers right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        right[v] = LoadIntegers(b + v * kWidth * kWordBytes);
        if (Kind::kAhead > 0) __builtin_prefetch(b + v * kWidth * kWordBytes + Kind::kAhead, 0, 3);
      }
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const int32_t word = *reinterpret_cast<const Word*>(a[r] + k);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = Kind::Add(sum[r][v], word, right[v]);
      }
      b += V * kWidth * kWordBytes;
    }
  }
  Kind::template Store<R, V, kWhole>(w, top, last, of, sum);
}

template <typename Kind>
using DotTileFunction = void (*)(const typename Kind::Work&, int64_t, Lanes);

// The tiles of V vectors, by rows less one.
template <typename Kind, int V, bool kWhole, typename RowsLessOne>
struct DotTilesOf;
template <typename Kind, int V, bool kWhole, int... kRowsLessOne>
struct DotTilesOf<Kind, V, kWhole, std::integer_sequence<int, kRowsLessOne...>> {
  static constexpr DotTileFunction<Kind> kAll[] = {DotTile<Kind, kRowsLessOne + 1, V, kWhole>...};
};
template <typename Kind, int V, bool kWhole>
constexpr const DotTileFunction<Kind>* kDotTiles =
    DotTilesOf<Kind, V, kWhole, std::make_integer_sequence<int, kDotRows>>::kAll;

// By vectors less one, and whether all columns are wanted.
template <typename Kind>
constexpr const DotTileFunction<Kind>* kDotTilesByVectors[][2] = {
    {kDotTiles<Kind, 1, false>, kDotTiles<Kind, 1, true>},
    {kDotTiles<Kind, 2, false>, kDotTiles<Kind, 2, true>},
#if COLLAGE_LANES == 16
    {kDotTiles<Kind, 3, false>, kDotTiles<Kind, 3, true>},
    {kDotTiles<Kind, 4, false>, kDotTiles<Kind, 4, true>},
#endif
};

template <typename Kind>
void MultiplyWords(const typename Kind::Work& w) {
  if (w.rows <= 0 || w.columns <= 0) return;
  const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
  const DotTileFunction<Kind>* const tiles = kDotTilesByVectors<Kind>[vectors - 1][rest == kWidth ? 1 : 0];
  // As equal tiles as possible.
  const int64_t count = DivideUp(w.rows, kDotRows), least = w.rows / count, more = w.rows % count;
  const Lanes last = FirstLanes(rest);
  for (int64_t i = 0, top = 0; i < count; ++i) {
    const int64_t rows = least + (i < more ? 1 : 0);
    tiles[rows - 1](w, top, last);
    top += rows;
  }
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_DOT_LOOPS_H_
