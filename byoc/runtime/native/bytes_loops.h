// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/bytes.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_BYTES_LOOPS_H_
#define COLLAGE_NATIVE_BYTES_LOOPS_H_

#include "native/bytes.h"
#include "native/divide_up.h"
#include "native/dot_loops.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

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

struct ByteKind {
  using Work = ByteWork;
  using Sum = Integers;
  static constexpr int64_t kAhead = 0;
  static COLLAGE_ALWAYS Integers Add(Integers sum, int32_t four, Integers right) {
    return AddProducts(sum, four, right);
  }
  // What the sums stand for, each row by its image's scale, with the posts, to where it belongs.
  template <int R, int V, bool kWhole>
  static COLLAGE_ALWAYS void Store(const ByteWork& w, int64_t top, Lanes last, const int64_t (&image)[R],
                                   const Integers (&sum)[R][V]) {
    Vector result[R][V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const Bits of_column = reinterpret_cast<Bits>(LoadIntegers(w.column_sums + v * kWidth));
      const Vector column_scale = Load(w.column_scales + v * kWidth);
      const Vector bias = BiasOf<V, kWhole>(w, v, last);
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r) {
        const ByteScale& scale = w.scales[image[r]];
        const Bits zeros = of_column * static_cast<uint32_t>(scale.zero);
        const Integers exact = reinterpret_cast<Integers>(reinterpret_cast<Bits>(sum[r][v]) - zeros);
        result[r][v] = __builtin_convertvector(exact, Vector) * (column_scale * scale.scale) + bias;
      }
    }
    for (int p = 0; p < w.num_posts; ++p) {
      ApplyPost<R, V, kWhole>(w.posts[p], w.operands, w.row + top, w.column, last, result);
    }
    StoreRows<R, V, kWhole>(w, top, last, result);
  }
};

// The sums of one row and V vectors of columns, of which `rest` of the last one are there.
template <int V, bool kWhole>
void ScaleRow(const ByteWork& w, const int32_t* sums, int64_t row, int64_t rest) {
  const int64_t image[1] = {w.row + row};
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
  ByteKind::Store<1, V, kWhole>(w, row, FirstLanes(rest), image, sum);
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
  constexpr int64_t kPanel = int64_t{kDotVectors} * kWidth;
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

constexpr ByteLoops kByteLoops{kDotRows,
                               int64_t{kDotVectors} * kWidth,
                               kWidth,
                               false,
                               MultiplyWords<ByteKind>,
                               ScaleSums,
                               RangeOf,
                               RoundToBytes,
                               RoundAllToGrid};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_BYTES_LOOPS_H_
