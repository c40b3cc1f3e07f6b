// SPDX-License-Identifier: Apache-2.0
//
// The products of native/dot.h by AMX: an instruction multiplies 16 rows of 64 bytes with a tile of 16 words
// by 16 columns, and adds up the products in a tile of 16 rows by 16 columns. Of the right side, as panels
// have it, such tiles are read as they lie.
//
// A block is 32 rows by 32 columns, or 16 by 64 where no more rows are left: four tiles of sums, and those
// that are multiplied (Intel's optimisation manual, chapter on AMX). Sums go through memory to the epilogue
// that native/dot_loops.h has.
#ifndef COLLAGE_NATIVE_AMX_LOOPS_H_
#define COLLAGE_NATIVE_AMX_LOOPS_H_

#include <utility>

#include "native/divide_up.h"
#include "native/dot_loops.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

constexpr int kAmxRows = 16, kAmxBytes = 64, kAmxColumns = 16;
// Rows of a block; of fewer than kFewRows vectors make the product.
constexpr int kAmxBlockRows = 2 * kAmxRows, kFewRows = 2;

// What LDTILECFG reads.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// The tiles of a block of M by N: sums, those of the second 16 rows from kSecondSums on, then M of the left
// side, then those of the right side.
constexpr int kSecondSums = 2, kLeftTile = 4;
template <int M>
constexpr int kRightTiles = 4 - M;

COLLAGE_ALWAYS void ShapeTiles(const TileShapes& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
// So that threads do not carry 8 KB that nobody reads.
COLLAGE_ALWAYS void ReleaseTiles() { asm volatile("tilerelease" ::: "memory"); }

template <int kTile>
COLLAGE_ALWAYS void LoadTile(const uint8_t* from, int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(kTile) : "memory");
}
// What is read once, or not soon again, so that it does not push the left side out of the first cache.
template <int kTile>
COLLAGE_ALWAYS void LoadTileOnce(const uint8_t* from, int64_t step) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(step), "i"(kTile) : "memory");
}
template <int kTile>
COLLAGE_ALWAYS void StoreTile(void* to, int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(step), "i"(kTile) : "memory");
}
template <int kTile>
COLLAGE_ALWAYS void ClearTile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
}

// Where the rows of a block are: each tile's first one, and how far apart they are.
struct BlockRows {
  const uint8_t* tile[2];
  int64_t step;
};

template <typename Kind, int M, int... kN>
COLLAGE_ALWAYS void AddTiles(const BlockRows& left, int64_t at, const uint8_t* right, int64_t right_step,
                             std::integer_sequence<int, kN...>) {
  LoadTile<kLeftTile>(left.tile[0] + at, left.step);
  if constexpr (M == 2) LoadTile<kLeftTile + 1>(left.tile[1] + at, left.step);
  const auto add = [&](auto n) __attribute__((always_inline)) {
    constexpr int kColumn = decltype(n)::value, kRight = kLeftTile + M + kColumn % kRightTiles<M>;
    LoadTileOnce<kRight>(right + kColumn * kAmxBytes, right_step);
    Kind::template AddTile<kColumn, kLeftTile, kRight>();
    if constexpr (M == 2) Kind::template AddTile<kSecondSums + kColumn, kLeftTile + 1, kRight>();
  };
  (add(std::integral_constant<int, kN>{}), ...);
}

template <int M, int... kN>
COLLAGE_ALWAYS void StoreTiles(float* sums, int64_t step, std::integer_sequence<int, kN...>) {
  constexpr int64_t kElement = sizeof(float);
  (StoreTile<kN>(sums + kN * kAmxColumns, step * kElement), ...);
  if constexpr (M == 2) {
    (StoreTile<kSecondSums + kN>(sums + kAmxRows * step + kN * kAmxColumns, step * kElement), ...);
  }
}

template <int M, int... kN>
COLLAGE_ALWAYS void ClearTiles(std::integer_sequence<int, kN...>) {
  (ClearTile<kN>(), ...);
  if constexpr (M == 2) (ClearTile<kSecondSums + kN>(), ...);
}

// What does not fill a tile's words, with zeros behind it: of the left side and of the right one.
struct Ends {
  alignas(64) uint8_t left[kAmxBlockRows][kAmxBytes];
  alignas(64) uint8_t right[kAmxBytes / kWordBytes][kDotVectors * kAmxBytes];
};

// What is fetched into the second cache while tiles are multiplied: so many cache lines a step.
struct Ahead {
  const uint8_t* at = nullptr;
  int lines = 0;
};

// R rows of sums, from row `top` on, to where they belong.
template <typename Kind, int R, int V, bool kWhole>
void StoreSums(const typename Kind::Work& w, int64_t top, Lanes last, const float* sums) {
  const uint8_t* row[R];
  int64_t of[R];
  PlaceRows<R>(w, top, row, of);
  typename Kind::Sum sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      sum[r][v] = reinterpret_cast<typename Kind::Sum>(Load(sums + (r * kDotVectors + v) * kWidth));
    }
  }
  Kind::template Store<R, V, kWhole>(w, top, last, of, sum);
}

template <typename Kind>
struct StoresOfSums {
  using Function = void (*)(const typename Kind::Work&, int64_t, Lanes, const float*);
  template <int R, int V, bool kWhole>
  static constexpr Function kOf = StoreSums<Kind, R, V, kWhole>;
};

// A block whose sums are there and have to become results: a few rows at a time, while tiles of the next one
// are multiplied by units of their own.
template <typename Kind>
struct Finished {
  const typename Kind::Work& work;
  const typename StoresOfSums<Kind>::Function* store;
  Lanes last;
  const float* sums = nullptr;
  int64_t top = 0, done = 0, rows = 0;

  COLLAGE_ALWAYS void Some() {
    if (done == rows) return;
    const int64_t these = rows - done < kDotRows ? rows - done : kDotRows;
    store[these - 1](work, top + done, last, sums + done * kDotVectors * kWidth);
    done += these;
  }
  void Rest() {
    while (done < rows) Some();
  }
};

// M tiles of rows by N of columns, from column tile `first` of the panel on, of V of them.
template <typename Kind, int M, int N>
void SumBlock(const typename Kind::Work& w, const BlockRows& left, int64_t panel_step, int first,
              const Ends* ends, Ahead* ahead, Finished<Kind>* before, float* sums) {
  constexpr auto kColumns = std::make_integer_sequence<int, N>{};
  ClearTiles<M>(kColumns);
  const uint8_t* right = w.right + first * kAmxBytes;
  const int64_t whole = w.length / kAmxBytes * kAmxBytes;
  for (int64_t stretch = 0; stretch < w.num_stretches; ++stretch) {
    const int64_t begin = w.stretches == nullptr ? 0 : w.stretches[stretch];
    for (int64_t k = 0; k < whole; k += kAmxBytes) {
      for (int line = 0; line < ahead->lines; ++line) {
        __builtin_prefetch(ahead->at, 0, 2);
        ahead->at += kAmxBytes;
      }
      AddTiles<Kind, M>(left, begin + k, right, panel_step, kColumns);
      right += panel_step * (kAmxBytes / kWordBytes);
      before->Some();
    }
  }
  if (ends != nullptr) {
    const BlockRows end{{ends->left[0], ends->left[kAmxRows]}, kAmxBytes};
    AddTiles<Kind, M>(end, 0, ends->right[0] + first * kAmxBytes, kDotVectors * kAmxBytes, kColumns);
  }
  StoreTiles<M>(sums + first * kAmxColumns, kDotVectors * kAmxColumns, kColumns);
}

COLLAGE_ALWAYS __mmask64 FirstOf(int64_t count) { return (__mmask64{1} << count) - 1; }

COLLAGE_ALWAYS void CopyBytes(const uint8_t* from, int64_t count, uint8_t* to) {
  const int64_t whole = count / kAmxBytes * kAmxBytes;
  for (int64_t i = 0; i < whole; i += kAmxBytes) _mm512_storeu_si512(to + i, _mm512_loadu_si512(from + i));
  if (whole == count) return;
  const __mmask64 rest = FirstOf(count - whole);
  _mm512_mask_storeu_epi8(to + whole, rest, _mm512_maskz_loadu_epi8(rest, from + whole));
}

// The work with its rows at w.gathered->to, RoundUp(w.num_stretches * w.length, kGatheredBytes) apart.
template <typename Work>
Work Gather(const Work& w) {
  const int64_t length = w.num_stretches * w.length, step = RoundUp(length, kGatheredBytes);
  if (w.gathered->row != w.row) {
    RowWalk walk(w, 0);
    for (int64_t r = 0; r < w.rows; ++r, walk.Next()) {
      const uint8_t* const from = walk.Begin();
      uint8_t* const to = w.gathered->to + r * step;
      _mm512_storeu_si512(to + step - kAmxBytes, _mm512_setzero_si512());
      for (int64_t s = 0; s < w.num_stretches; ++s) {
        CopyBytes(from + (w.stretches == nullptr ? 0 : w.stretches[s]), w.length, to + s * w.length);
      }
    }
    w.gathered->row = w.row;
  }
  Work gathered = w;
  gathered.stretches = nullptr;
  gathered.num_stretches = 1;
  gathered.length = length;
  return gathered;
}

template <typename Kind>
void MultiplyTiles(const typename Kind::Work& given) {
  if (given.rows <= 0 || given.columns <= 0) return;
  // Tiles read whole words of one stretch.
  const bool even = given.step >= 0 && (given.num_stretches == 1 || given.length % kAmxBytes == 0);
  if (given.rows < kFewRows || (!even && given.gathered == nullptr)) return MultiplyWords<Kind>(given);
  const typename Kind::Work w = even ? given : Gather(given);
  const int64_t step = even ? w.step : RoundUp(w.length, kGatheredBytes);
  const uint8_t* const base = even ? RowWalk(w, 0).Begin() : w.gathered->to;
  const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
  const int64_t panel_step = vectors * kAmxBytes, end = w.length % kAmxBytes;
  const Lanes last = FirstLanes(rest);
  const auto* const store = kByVectors<StoresOfSums<Kind>>[vectors - 1][rest == kWidth ? 1 : 0];
  // Of the block that is multiplied, and of the one before it.
  alignas(64) float both[2][kAmxBlockRows * kDotVectors * kWidth];
  Finished<Kind> before{w, store, last};
  Ends ends;
  if (end > 0) {
    for (int64_t word = 0; word < kAmxBytes / kWordBytes; ++word) {
      const bool there = word * kWordBytes < end;
      const uint8_t* const from =
          w.right + (w.length / kAmxBytes * (kAmxBytes / kWordBytes) + word) * panel_step;
      for (int64_t v = 0; v < vectors; ++v) {
        const __m512i words = there ? _mm512_loadu_si512(from + v * kAmxBytes) : _mm512_setzero_si512();
        _mm512_store_si512(ends.right[word] + v * kAmxBytes, words);
      }
    }
  }
  // The panel behind this one, spread over the steps of all blocks.
  Ahead ahead;
  if (w.next) {
    const int64_t passes =
        DivideUp(w.rows, int64_t{kAmxBlockRows}) * (w.rows > kAmxRows && vectors > 2 ? 2 : 1);
    ahead.at = w.right + w.length / kWordBytes * panel_step;
    ahead.lines = static_cast<int>(DivideUp(vectors * (kAmxBytes / kWordBytes), passes));
  }
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.bytes[tile] = kAmxBytes;
  int64_t shaped = 0;  // for so many rows
  for (int64_t top = 0; top < w.rows; top += kAmxBlockRows) {
    const int64_t rows = w.rows - top < kAmxBlockRows ? w.rows - top : kAmxBlockRows;
    const int64_t first = rows < kAmxRows ? rows : kAmxRows;
    if (rows != shaped) {
      for (int tile = 0; tile < 8; ++tile) shapes.rows[tile] = kAmxRows;
      const bool two = rows > kAmxRows;
      for (int tile = 0; tile <= kLeftTile; ++tile) shapes.rows[tile] = static_cast<uint8_t>(first);
      if (two) {
        for (const int tile : {kSecondSums, kSecondSums + 1, kLeftTile + 1}) {
          shapes.rows[tile] = static_cast<uint8_t>(rows - kAmxRows);
        }
      }
      ShapeTiles(shapes);
      shaped = rows;
    }
    const BlockRows left{{base + top * step, base + (top + kAmxRows) * step}, step};
    if (end > 0) {
      for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* const from = base + (top + r) * step + w.length - end;
        _mm512_store_si512(ends.left[r], _mm512_maskz_loadu_epi8(FirstOf(end), from));
      }
    }
    const Ends* const with = end > 0 ? &ends : nullptr;
    float* const sums = both[top / kAmxBlockRows % 2];
    if (rows > kAmxRows) {
      if (vectors > 1) SumBlock<Kind, 2, 2>(w, left, panel_step, 0, with, &ahead, &before, sums);
      if (vectors == 1) SumBlock<Kind, 2, 1>(w, left, panel_step, 0, with, &ahead, &before, sums);
      if (vectors == 3) SumBlock<Kind, 2, 1>(w, left, panel_step, 2, with, &ahead, &before, sums);
      if (vectors == 4) SumBlock<Kind, 2, 2>(w, left, panel_step, 2, with, &ahead, &before, sums);
    } else {
      if (vectors == 1) SumBlock<Kind, 1, 1>(w, left, panel_step, 0, with, &ahead, &before, sums);
      if (vectors == 2) SumBlock<Kind, 1, 2>(w, left, panel_step, 0, with, &ahead, &before, sums);
      if (vectors == 3) SumBlock<Kind, 1, 3>(w, left, panel_step, 0, with, &ahead, &before, sums);
      if (vectors == 4) SumBlock<Kind, 1, 4>(w, left, panel_step, 0, with, &ahead, &before, sums);
    }
    before.Rest();
    before.sums = sums;
    before.top = top;
    before.done = 0;
    before.rows = rows;
  }
  ReleaseTiles();
  before.Rest();
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_AMX_LOOPS_H_
