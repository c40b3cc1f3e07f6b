// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/bytes.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_BYTES_LOOPS_H_
#define COLLAGE_NATIVE_BYTES_LOOPS_H_

#include <utility>

#include "native/bytes.h"
#include "native/divide_up.h"
#include "native/gemm_loops.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

// Vectors of columns of a panel, and rows of a tile: an address for each of them must fit into registers.
#if COLLAGE_LANES == 16
constexpr int kByteVectors = 4, kByteRows = 6;
#else
constexpr int kByteVectors = 2, kByteRows = 4;
#endif

typedef int32_t FourBytes __attribute__((aligned(1), may_alias));
typedef int32_t AnyIntegers __attribute__((vector_size(COLLAGE_LANES * 4), aligned(4), may_alias));

COLLAGE_ALWAYS Integers LoadIntegers(const void* from) { return *static_cast<const AnyIntegers*>(from); }

// The sums, and in each lane the products of its four signed bytes with the same four bytes from 0 to 255.
COLLAGE_ALWAYS Integers AddProducts(Integers sums, int32_t four, Integers right) {
#ifdef __AVX512VNNI__
  return reinterpret_cast<Integers>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sums), _mm512_set1_epi32(four), reinterpret_cast<__m512i>(right)));
#else
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Integers byte = (right << (24 - 8 * i)) >> 24;
    sums += byte * (four >> (8 * i) & 255);
  }
  return sums;
#endif
}

// What the sums of rows from `top` on stand for, each row by its scale, with the posts, to where it belongs.
template <int R, int V, bool kWhole>
COLLAGE_ALWAYS void StoreScaled(const ByteWork& w, int64_t top, Lanes last,
                                const ByteScale* const (&scale)[R], const Integers (&sum)[R][V]) {
  Vector result[R][V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const Bits of_column = reinterpret_cast<Bits>(LoadIntegers(w.column_sums + v * kWidth));
    const Vector column_scale = Load(w.column_scales + v * kWidth);
    Vector bias = Vector{};
    if (w.bias != nullptr) {
      bias = kWhole || v + 1 < V ? Load(w.bias + v * kWidth) : LoadLanes(w.bias + v * kWidth, last);
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Bits zeros = of_column * static_cast<uint32_t>(scale[r]->zero);
      const Integers exact = reinterpret_cast<Integers>(reinterpret_cast<Bits>(sum[r][v]) - zeros);
      result[r][v] = __builtin_convertvector(exact, Vector) * (column_scale * scale[r]->scale) + bias;
    }
  }
  for (int p = 0; p < w.num_posts; ++p) {
    ApplyPost<R, V, kWhole>(w.posts[p], w.operands, w.row + top, w.column, last, result);
  }
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

// R rows from row `top` of the work on, and V vectors of columns; see Tile in native/gemm_loops.h.
template <int R, int V, bool kWhole>
void ByteTile(const ByteWork& w, int64_t top, Lanes last) {
  const uint8_t* row[R];
  const ByteScale* scale[R];
  {
    const int64_t first = w.row + top, line = first / w.at.width;
    int64_t x = first % w.at.width, y = line % w.at.height, image = line / w.at.height;
    for (int r = 0; r < R; ++r) {
      row[r] = w.left + image * w.at.image + y * w.at.line + x * w.at.pixel;
      scale[r] = w.scales + image;
      if (++x < w.at.width) continue;
      x = 0;
      if (++y < w.at.height) continue;
      y = 0;
      ++image;
    }
  }
  Integers sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sum[r][v] = Integers{};
  }
  const int8_t* b = w.right;
  for (int64_t tap = 0; tap < w.num_taps; ++tap) {
    const uint8_t* a[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) a[r] = row[r] + (w.taps == nullptr ? 0 : w.taps[tap]);
    for (int64_t k = 0; k < w.length; k += 4) {
      Integers right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) right[v] = LoadIntegers(b + v * kWidth * 4);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const int32_t four = *reinterpret_cast<const FourBytes*>(a[r] + k);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] = AddProducts(sum[r][v], four, right[v]);
      }
      b += V * kWidth * 4;
    }
  }
  StoreScaled<R, V, kWhole>(w, top, last, scale, sum);
}

using ByteTileFunction = void (*)(const ByteWork&, int64_t, Lanes);

// The tiles of V vectors, by rows less one.
template <int V, bool kWhole, typename RowsLessOne>
struct ByteTilesOf;
template <int V, bool kWhole, int... kRowsLessOne>
struct ByteTilesOf<V, kWhole, std::integer_sequence<int, kRowsLessOne...>> {
  static constexpr ByteTileFunction kAll[] = {ByteTile<kRowsLessOne + 1, V, kWhole>...};
};
template <int V, bool kWhole>
constexpr const ByteTileFunction* kByteTiles =
    ByteTilesOf<V, kWhole, std::make_integer_sequence<int, kByteRows>>::kAll;

// By vectors less one, and whether all columns are wanted.
constexpr const ByteTileFunction* kByteTilesByVectors[][2] = {
    {kByteTiles<1, false>, kByteTiles<1, true>},
    {kByteTiles<2, false>, kByteTiles<2, true>},
#if COLLAGE_LANES == 16
    {kByteTiles<3, false>, kByteTiles<3, true>},
    {kByteTiles<4, false>, kByteTiles<4, true>},
#endif
};

void MultiplyBytes(const ByteWork& w) {
  if (w.rows <= 0 || w.columns <= 0) return;
  const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
  const ByteTileFunction* const tiles = kByteTilesByVectors[vectors - 1][rest == kWidth ? 1 : 0];
  // As equal tiles as possible.
  const int64_t count = DivideUp(w.rows, kByteRows), least = w.rows / count, more = w.rows % count;
  const Lanes last = FirstLanes(rest);
  for (int64_t i = 0, top = 0; i < count; ++i) {
    const int64_t rows = least + (i < more ? 1 : 0);
    tiles[rows - 1](w, top, last);
    top += rows;
  }
}

// The sums of one row and V vectors of columns, of which `rest` of the last one are there.
template <int V, bool kWhole>
void ScaleRow(const ByteWork& w, const int32_t* sums, int64_t row, int64_t rest) {
  const ByteScale* const scale[1] = {w.scales + w.row + row};
  Integers sum[1][V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    if (kWhole || v + 1 < V) {
      sum[0][v] = LoadIntegers(sums + v * kWidth);
      continue;
    }
    int32_t there[COLLAGE_LANES] = {};
    for (int64_t i = 0; i < rest; ++i) there[i] = sums[v * kWidth + i];
    sum[0][v] = LoadIntegers(there);
  }
  StoreScaled<1, V, kWhole>(w, row, FirstLanes(rest), scale, sum);
}

using ScaleRowFunction = void (*)(const ByteWork&, const int32_t*, int64_t, int64_t);

// By vectors less one, and whether all columns are wanted.
constexpr ScaleRowFunction kScaleRow[][2] = {
    {ScaleRow<1, false>, ScaleRow<1, true>},
    {ScaleRow<2, false>, ScaleRow<2, true>},
#if COLLAGE_LANES == 16
    {ScaleRow<3, false>, ScaleRow<3, true>},
    {ScaleRow<4, false>, ScaleRow<4, true>},
#endif
};

void ScaleSums(const ByteWork& all, const int32_t* sums) {
  constexpr int64_t kPanel = int64_t{kByteVectors} * kWidth;
  for (int64_t row = 0; row < all.rows; ++row) {
    for (int64_t first = 0; first < all.columns; first += kPanel) {
      ByteWork w = all;
      w.columns = all.columns - first < kPanel ? all.columns - first : kPanel;
      w.column_scales += first;
      w.column_sums += first;
      if (w.bias != nullptr) w.bias += first;
      w.out += first;
      w.column += first;
      const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
      kScaleRow[vectors - 1][rest == kWidth ? 1 : 0](w, sums + row * all.columns + first, row, rest);
    }
  }
}

void RangeOf(const float* from, int64_t count, float* least, float* greatest) {
  Vector low = Vector{}, high = Vector{};
  Integers odd = Integers{};  // lanes that have met what is not a number
  for (int64_t i = 0; i < count; i += kWidth) {
    const Vector x = LoadLanes(from + i, FirstLanes(count - i));  // the others are 0
    odd |= x != x;
    low = Less(x, low);
    high = Greater(x, high);
  }
  *least = -GreatestLane(-low)[0];
  *greatest = GreatestLane(high)[0];
  for (int i = 0; i < kWidth; ++i) {
    if (odd[i] != 0) *least = *greatest = __builtin_nanf("");
  }
}

void RoundToBytes(const float* from, int64_t count, float inverse, int32_t zero, uint8_t* to) {
  // Added to a number, it leaves the nearest whole number in the last bits.
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23
  const Vector shift = All(static_cast<float>(zero));
  const auto rounded = [&](Vector x) {
    const Vector inside = Less(Greater(x * inverse + shift, Vector{}), All(255.0F));
    return reinterpret_cast<Integers>(inside + kShift);
  };
  int64_t i = 0;
#if COLLAGE_LANES == 16
  for (; i < count; i += kWidth) {
    const Lanes lanes = FirstLanes(count - i);
    const Integers bytes = rounded(LoadLanes(from + i, lanes));
    _mm512_mask_cvtepi32_storeu_epi8(to + i, lanes.mask, reinterpret_cast<__m512i>(bytes));
  }
#else
  for (; i < count; i += kWidth) {
    const Integers bytes = rounded(LoadLanes(from + i, FirstLanes(count - i)));
    for (int k = 0; k < kWidth && i + k < count; ++k) to[i + k] = static_cast<uint8_t>(bytes[k]);
  }
#endif
}

void RoundAllToGrid(const float* from, int64_t count, float scale, float least, float* to) {
  const Vector scales = All(scale), leasts = All(least);
  for (int64_t i = 0; i < count; i += kWidth) {
    const Lanes lanes = FirstLanes(count - i);
    StoreLanes(to + i, OnGrid(LoadLanes(from + i, lanes), scales, leasts), lanes);
  }
}

constexpr ByteLoops kByteLoops{
    kByteRows,     int64_t{kByteVectors} * kWidth, kWidth, MultiplyBytes, ScaleSums, RangeOf, RoundToBytes,
    RoundAllToGrid};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_BYTES_LOOPS_H_
