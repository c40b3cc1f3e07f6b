// SPDX-License-Identifier: Apache-2.0
//
// Winograd's transforms of data and of products, for one level (native/level.h).
#ifndef COLLAGE_NATIVE_WINOGRAD_LOOPS_H_
#define COLLAGE_NATIVE_WINOGRAD_LOOPS_H_

#include "native/gemm_loops.h"
#include "native/winograd_task.h"

namespace collage::native {
namespace {

// The transforms of a row of a tile: of data, B^T x; of products, A^T x. The points are 0, 1, -1, (2, -2,)
// and infinity.
template <int kSide>
struct Transform;

template <>
struct Transform<2> {
  static COLLAGE_ALWAYS void OfData(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    y[0] = a - c;
    y[y_step] = b + c;
    y[2 * y_step] = c - b;
    y[3 * y_step] = b - d;
  }
  static COLLAGE_ALWAYS void OfProducts(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    y[0] = a + b + c;
    y[y_step] = b - c - d;
  }
};

template <>
struct Transform<4> {
  static COLLAGE_ALWAYS void OfData(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step], e = x[4 * step], f = x[5 * step];
    constexpr float two = 2, four = 4, five = 5;
    const Vector even = e - four * c, odd = d - four * b;
    const Vector even2 = e - c, odd2 = two * (d - b);
    y[0] = four * a - five * c + e;
    y[y_step] = even + odd;
    y[2 * y_step] = even - odd;
    y[3 * y_step] = even2 + odd2;
    y[4 * y_step] = even2 - odd2;
    y[5 * y_step] = four * b - five * d + f;
  }
  static COLLAGE_ALWAYS void OfProducts(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step], e = x[4 * step], f = x[5 * step];
    constexpr float two = 2, four = 4, eight = 8;
    const Vector sum = b + c, difference = b - c, sum2 = d + e, difference2 = d - e;
    y[0] = a + sum + sum2;
    y[y_step] = difference + two * difference2;
    y[2 * y_step] = sum + four * sum2;
    y[3 * y_step] = difference + eight * difference2 + f;
  }
};

// Transforms the data of one tile in one slice.
template <int kSide>
void TransformData(const WinogradTask& t, int64_t slice, int64_t tile) {
  constexpr int kWide = kSide + 2;
  const WinogradShape& s = t.shape;
  const int64_t at = t.first + tile, in_image = at % (t.tile_rows * t.tile_columns);
  const int64_t batch = at / (t.tile_rows * t.tile_columns);
  const int64_t row = in_image / t.tile_columns * kSide - s.pad_top;
  const int64_t column = in_image % t.tile_columns * kSide - s.pad_left;
  const float* from = t.src + ((batch * s.in_depth + slice) * s.in_height * s.in_width) * s.in_channels;
  float* to = t.in + slice * t.in_slice + tile * s.in_channels;
  // Pixels outside of the image are zeros.
  const float* pixels[kWide][kWide];
  bool inside = true;
  for (int y = 0; y < kWide; ++y) {
    for (int x = 0; x < kWide; ++x) {
      const int64_t r = row + y, c = column + x;
      const bool there = r >= 0 && r < s.in_height && c >= 0 && c < s.in_width;
      pixels[y][x] = there ? from + (r * s.in_width + c) * s.in_channels : nullptr;
      inside &= there;
    }
  }
  for (int64_t c = 0; c < s.in_channels; c += kWidth) {
    Vector data[kWide][kWide], half[kWide][kWide];
    if (inside) {
      for (int y = 0; y < kWide; ++y) {
        for (int x = 0; x < kWide; ++x) data[y][x] = Load(pixels[y][x] + c);
      }
    } else {
      for (int y = 0; y < kWide; ++y) {
        for (int x = 0; x < kWide; ++x) {
          data[y][x] = pixels[y][x] != nullptr ? Load(pixels[y][x] + c) : Vector{};
        }
      }
    }
    for (int x = 0; x < kWide; ++x) Transform<kSide>::OfData(&data[0][x], kWide, &half[0][x], kWide);
    for (int y = 0; y < kWide; ++y) {
      Vector out[kWide];
      Transform<kSide>::OfData(half[y], 1, out, 1);
      for (int x = 0; x < kWide; ++x) Store(to + (y * kWide + x) * t.in_plane + c, out[x]);
    }
  }
}

// Transforms the products of one tile in one slice, and stores the results.
template <int kSide>
void TransformProduct(const WinogradTask& t, int64_t slice, int64_t tile) {
  constexpr int kWide = kSide + 2;
  const WinogradShape& s = t.shape;
  const int64_t at = t.first + tile, in_image = at % (t.tile_rows * t.tile_columns);
  const int64_t batch = at / (t.tile_rows * t.tile_columns);
  const int64_t row = in_image / t.tile_columns * kSide, column = in_image % t.tile_columns * kSide;
  const int high = static_cast<int>(s.out_height - row < kSide ? s.out_height - row : kSide);
  const int wide = static_cast<int>(s.out_width - column < kSide ? s.out_width - column : kSide);
  const int64_t base =
      (((batch * s.out_depth + slice) * s.out_height + row) * s.out_width + column) * s.out_channels;
  const int64_t row_step = s.out_width * s.out_channels;
  const float* from = t.out + slice * t.out_slice + tile * s.out_channels;
  for (int64_t c = 0; c < s.out_channels; c += kWidth) {
    Vector half[kSide][kWide], out[kSide][kSide];
    for (int x = 0; x < kWide; ++x) {
      Vector products[kWide];
      for (int y = 0; y < kWide; ++y) products[y] = Load(from + (y * kWide + x) * t.out_plane + c);
      Transform<kSide>::OfProducts(products, 1, &half[0][x], kWide);
    }
    for (int y = 0; y < kSide; ++y) Transform<kSide>::OfProducts(half[y], 1, out[y], 1);
    if (t.bias != nullptr) {
      const Vector bias = Load(t.bias + c);
      for (auto& line : out) {
        for (Vector& v : line) v += bias;
      }
    }
    for (size_t i = 0; i < t.num_posts; ++i) {
      const Post& post = t.posts[i];
      if (post.kind != Post::Kind::kAdd) {
        ApplyPost<kSide * kSide, 1, true>(post, nullptr, 0, 0, FirstLanes(kWidth),
                                          reinterpret_cast<Vector(&)[kSide * kSide][1]>(out));
        continue;
      }
      const float* addend = t.addends[post.operand] + base + c;
      for (int y = 0; y < high; ++y) {
        for (int x = 0; x < wide; ++x) out[y][x] += Load(addend + y * row_step + x * s.out_channels);
      }
    }
    float* to = t.dst + base + c;
    for (int y = 0; y < high; ++y) {
      for (int x = 0; x < wide; ++x) Store(to + y * row_step + x * s.out_channels, out[y][x]);
    }
  }
}

constexpr WinogradLoops kWinogradLoops{{TransformData<2>, TransformData<4>},
                                       {TransformProduct<2>, TransformProduct<4>}};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WINOGRAD_LOOPS_H_
