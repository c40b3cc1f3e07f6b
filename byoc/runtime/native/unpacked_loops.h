// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/unpacked.h, for one level (native/level.h).
//
// A tile of sums is in registers, of few rows: 1, 2 or 4. Where it has fewer sums than a processor has
// additions under way, there are several sets of it, each for every second, or fourth, product, which are
// added up at the end.
#ifndef COLLAGE_NATIVE_UNPACKED_LOOPS_H_
#define COLLAGE_NATIVE_UNPACKED_LOOPS_H_

#include "native/lanes.h"
#include "native/unpacked.h"

namespace collage::native {
namespace {

// Four cycles of two additions each.
constexpr int SetsOf(int sums) { return sums >= 8 ? 1 : sums >= 4 ? 2 : 4; }

// Whether what is read next is fetched meanwhile. With fewer rows there are no instructions to spare: the
// right side's loads are what takes the time.
template <int kRows>
constexpr bool kFetches = kRows == 4;

// Which lanes of two vectors, one behind the other, stand in one that they become: its own, and its
// partners' at a distance, of the first vector where the distance's bit of a lane's number is 0, of the
// second where it is 1.
constexpr LaneNumbers OwnOfTwo(int distance) {
  LaneNumbers lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.of[i] = (i & distance ? kWidth : 0) + i;
  return lanes;
}
constexpr LaneNumbers PartnersOfTwo(int distance) {
  LaneNumbers lanes{};
  for (int i = 0; i < kWidth; ++i) lanes.of[i] = (i & distance ? kWidth : 0) + (i ^ distance);
  return lanes;
}
template <int kDistance>
constexpr LaneNumbers kOwnOfTwo = OwnOfTwo(kDistance);
template <int kDistance>
constexpr LaneNumbers kPartnersOfTwo = PartnersOfTwo(kDistance);

// Lane i, below kCount, becomes the sum of the lanes of sums[i]: two vectors become one, until there is one,
// whose lanes are added up as far as that has not been done. (Not a loop: the compiler would have the vectors
// in memory.)
template <int kDistance, int kCount>
COLLAGE_ALWAYS Vector SumsOfLanes(Vector (&sums)[kCount]) {
  if constexpr (kDistance == kWidth) {
    return sums[0];
  } else if constexpr (kDistance < kCount) {
#pragma GCC unroll 16
    for (int i = 0; i < kCount; i += 2 * kDistance) {
      sums[i] = __builtin_shuffle(sums[i], sums[i + kDistance], NumbersOf(kOwnOfTwo<kDistance>)) +
                __builtin_shuffle(sums[i], sums[i + kDistance], NumbersOf(kPartnersOfTwo<kDistance>));
    }
    return SumsOfLanes<2 * kDistance>(sums);
  } else {
    sums[0] += __builtin_shuffle(sums[0], NumbersOf(kPartnersOfTwo<kDistance>));
    return SumsOfLanes<2 * kDistance>(sums);
  }
}

// kRows rows and kColumns columns of a result, where the elements of the right side's columns lie one after
// the other: vectors along them, whose lanes are added up at the end.
template <int kRows, int kColumns>
void AlongColumns(const UnpackedWork& w, int64_t row, int64_t column) {
  constexpr int kSums = kRows * kColumns, kSets = SetsOf(kSums);
  Vector sum[kSets][kSums];
#pragma GCC unroll 4
  for (int s = 0; s < kSets; ++s) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sum[s][i] = Vector{};
  }
  const int64_t step = w.right_column;
  const float* a = w.left + row * w.left_row;
  // An address for every third column: the two after it are one and two steps away, which addressing modes
  // can say.
  constexpr int kAddresses = (kColumns + 2) / 3;
  const float* b[kAddresses];
  b[0] = w.right + column * step;
#pragma GCC unroll 6
  for (int i = 1; i < kAddresses; ++i) b[i] = b[i - 1] + 3 * step;
  int64_t k = w.length;
  for (; k >= kSets * kWidth; k -= kSets * kWidth) {
#pragma GCC unroll 4
    for (int s = 0; s < kSets; ++s) {
      Vector left[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) left[r] = Load(a + r * w.left_row + s * kWidth);
#pragma GCC unroll 16
      for (int c = 0; c < kColumns; ++c) {
        const float* const at = b[c / 3] + c % 3 * step + s * kWidth;
        if (kFetches<kRows>) __builtin_prefetch(at + kColumns * step, 0, 3);
        const Vector right = Load(at);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[s][r * kColumns + c] += left[r] * right;
      }
    }
    a += kSets * kWidth;
#pragma GCC unroll 6
    for (int i = 0; i < kAddresses; ++i) {
      b[i] += kSets * kWidth;
      // Keeps the compiler from making an address of its own for each column.
      COLLAGE_KEEP_ADDRESS(b[i]);
    }
  }
  for (; k > 0; k -= kWidth) {
    const Lanes lanes = FirstLanes(k);
    Vector left[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) left[r] = LoadLanes(a + r * w.left_row, lanes);
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      const Vector right = LoadLanes(b[c / 3] + c % 3 * step, lanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[0][r * kColumns + c] += left[r] * right;
    }
    a += kWidth;
#pragma GCC unroll 6
    for (int i = 0; i < kAddresses; ++i) b[i] += kWidth;
  }
#pragma GCC unroll 4
  for (int s = 1; s < kSets; ++s) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sum[0][i] += sum[s][i];
  }
  alignas(kWidth * sizeof(float)) float all[kWidth];
  Store(all, SumsOfLanes<1>(sum[0]));
  float* const to = w.out + row * w.out_row + column;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) to[r * w.out_row + c] = all[r * kColumns + c];
  }
}

// All columns from one on up to another, at most kColumns at a time.
template <int kRows, int kColumns>
COLLAGE_ALWAYS void ColumnsOfRows(const UnpackedWork& w, int64_t row, int64_t column, int64_t end) {
  for (; column + kColumns <= end; column += kColumns) AlongColumns<kRows, kColumns>(w, row, column);
  if constexpr (kColumns > 1) ColumnsOfRows<kRows, kColumns / 2>(w, row, column, end);
}

// kRows rows and kVectors vectors of columns of a result, of which the last one has the given lanes, where
// the elements of the right side's rows lie one after the other: rows first .. end of it, added to what the
// result has if that is not the first of them. kWhole: all lanes are wanted.
template <int kRows, int kVectors, bool kWhole>
void AlongRows(const UnpackedWork& w, int64_t row, int64_t column, int64_t first, int64_t end, Lanes last) {
  constexpr int kSets = SetsOf(kRows * kVectors);
  const auto load = [last](const float* from, int v) __attribute__((always_inline)) {
    return kWhole || v + 1 < kVectors ? Load(from + v * kWidth) : LoadLanes(from + v * kWidth, last);
  };
  Vector sum[kSets][kRows][kVectors];
  float* const out = w.out + row * w.out_row + column;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[0][r][v] = first == 0 ? Vector{} : load(out + r * w.out_row, v);
#pragma GCC unroll 4
      for (int s = 1; s < kSets; ++s) sum[s][r][v] = Vector{};
    }
  }
  const float* a = w.left + row * w.left_row + first;
  const float* b = w.right + first * w.right_row + column;
  const int64_t ahead = row == 0 ? (end - first) * w.right_row : 0;  // the rows behind these
  const auto add = [&](int s) __attribute__((always_inline)) {
    Vector right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if (kFetches<kRows> && v * kWidth % 16 == 0) __builtin_prefetch(b + ahead + v * kWidth, 0, 2);
      right[v] = load(b, v);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vector one = All(a[r * w.left_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[s][r][v] += one * right[v];
    }
    ++a;
    b += w.right_row;
  };
  int64_t k = end - first;
  for (; k >= kSets; k -= kSets) {
#pragma GCC unroll 4
    for (int s = 0; s < kSets; ++s) add(s);
  }
  for (; k > 0; --k) add(0);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
      for (int s = 1; s < kSets; ++s) sum[0][r][v] += sum[s][r][v];
      float* const to = out + r * w.out_row + v * kWidth;
      if (kWhole || v + 1 < kVectors) {
        Store(to, sum[0][r][v]);
      } else {
        StoreLanes(to, sum[0][r][v], last);
      }
    }
  }
}

// kVectors vectors of columns, by rows: 1, 2 or 4, of which the tile has as many vectors as there are
// registers for.
template <int kVectors, bool kWhole>
COLLAGE_ALWAYS void VectorsOfRows(const UnpackedWork& w, int64_t column, int64_t first, int64_t end,
                                  Lanes last) {
  constexpr int kOfFour = kWidth < 16 && kVectors > 2 ? 2 : kVectors;
  int64_t row = 0;
  for (; row + 4 <= w.rows; row += 4) {
    for (int v = 0; v < kVectors; v += kOfFour) {
      AlongRows<4, kOfFour, kWhole>(w, row, column + v * kWidth, first, end, last);
    }
  }
  if (row + 2 <= w.rows) {
    AlongRows<2, kVectors, kWhole>(w, row, column, first, end, last);
    row += 2;
  }
  if (row < w.rows) AlongRows<1, kVectors, kWhole>(w, row, column, first, end, last);
}

void MultiplyAsItLies(const UnpackedWork& w, int64_t block) {
  if (w.right_row == 1) {
    // A few columns at a time, past which all rows run while they are near.
    for (int64_t column = 0; column < w.columns; column += kWidth) {
      const int64_t end = w.columns - column < kWidth ? w.columns : column + kWidth;
      int64_t row = 0;
      for (; row + 4 <= w.rows; row += 4) ColumnsOfRows<4, kWidth / 4>(w, row, column, end);
      if (row + 2 <= w.rows) {
        ColumnsOfRows<2, kWidth / 2>(w, row, column, end);
        row += 2;
      }
      if (row < w.rows) ColumnsOfRows<1, kWidth>(w, row, column, end);
    }
    return;
  }
  int64_t first = 0;
  do {  // once where there is nothing to sum up
    const int64_t end = w.length - first < block ? w.length : first + block;
    int64_t column = 0;
    const Lanes all = FirstLanes(kWidth);
    for (; column + 4 * kWidth <= w.columns; column += 4 * kWidth) {
      VectorsOfRows<4, true>(w, column, first, end, all);
    }
    for (; column + kWidth <= w.columns; column += kWidth) VectorsOfRows<1, true>(w, column, first, end, all);
    if (column < w.columns) {
      VectorsOfRows<1, false>(w, column, first, end, FirstLanes(w.columns - column));
    }
    first = end;
  } while (first < w.length);
}

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_UNPACKED_LOOPS_H_
