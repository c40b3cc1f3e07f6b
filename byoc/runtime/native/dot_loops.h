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

// From one row of a work to the next: where it begins, and of which image it is.
struct RowWalk {
  const DotWork& w;
  int64_t x, y, image;

  COLLAGE_ALWAYS RowWalk(const DotWork& work, int64_t top) : w(work) {
    const int64_t first = w.row + top, line = first / w.at.width;
    x = first % w.at.width;
    y = line % w.at.height;
    image = line / w.at.height;
  }
  COLLAGE_ALWAYS const uint8_t* Begin() const {
    return w.left + image * w.at.image + y * w.at.line + x * w.at.pixel;
  }
  COLLAGE_ALWAYS void Next() {
    if (++x < w.at.width) return;
    x = 0;
    if (++y < w.at.height) return;
    y = 0;
    ++image;
  }
};

// Where R rows from row `top` of the work on begin, and of which image each of them is.
template <int R>
COLLAGE_ALWAYS void PlaceRows(const DotWork& w, int64_t top, const uint8_t* (&row)[R], int64_t (&of)[R]) {
  RowWalk walk(w, top);
  for (int r = 0; r < R; ++r, walk.Next()) {
    row[r] = walk.Begin();
    of[r] = walk.image;
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

// Functions of one type, Of::Function: Of::kOf<R, V, kWhole> for each number of rows and of vectors of
// columns.
template <typename Of, int V, bool kWhole, typename RowsLessOne>
struct ByRows;
template <typename Of, int V, bool kWhole, int... kRowsLessOne>
struct ByRows<Of, V, kWhole, std::integer_sequence<int, kRowsLessOne...>> {
  static constexpr typename Of::Function kAll[] = {Of::template kOf<kRowsLessOne + 1, V, kWhole>...};
};
// Those of V vectors, by rows less one.
template <typename Of, int V, bool kWhole>
constexpr const typename Of::Function* kByRows =
    ByRows<Of, V, kWhole, std::make_integer_sequence<int, kDotRows>>::kAll;

// By vectors less one, and whether all columns are wanted.
template <typename Of>
constexpr const typename Of::Function* kByVectors[][2] = {
    {kByRows<Of, 1, false>, kByRows<Of, 1, true>},
    {kByRows<Of, 2, false>, kByRows<Of, 2, true>},
#if COLLAGE_LANES == 16
    {kByRows<Of, 3, false>, kByRows<Of, 3, true>},
    {kByRows<Of, 4, false>, kByRows<Of, 4, true>},
#endif
};

template <typename Kind>
struct DotTiles {
  using Function = void (*)(const typename Kind::Work&, int64_t, Lanes);
  template <int R, int V, bool kWhole>
  static constexpr Function kOf = DotTile<Kind, R, V, kWhole>;
};

template <typename Kind>
void MultiplyWords(const typename Kind::Work& w) {
  if (w.rows <= 0 || w.columns <= 0) return;
  const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
  const auto* const tiles = kByVectors<DotTiles<Kind>>[vectors - 1][rest == kWidth ? 1 : 0];
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
