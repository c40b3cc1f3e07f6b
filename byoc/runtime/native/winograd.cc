// SPDX-License-Identifier: Apache-2.0
#include "native/winograd.h"

#ifdef COLLAGE_X86_GCC

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <utility>

#include "native/workers.h"

namespace collage::native {
namespace {

constexpr int64_t kLane = 16;          // floats of a vector
constexpr int64_t kPanel = 4 * kLane;  // output channels of a block of packed weights
constexpr int64_t kRows = 6;           // tiles of which products are kept in registers: 24 of 32
constexpr int64_t kSkew = kLane;  // keeps the planes of transformed tiles out of one another's cache sets

// What it costs to read a packed weight from memory, in multiplications that a core does meanwhile: decides
// between tiles of 4x4, with fewest multiplications, and of 2x2, with fewer weights. (14x14, 256 channels:
// even.)
constexpr int64_t kBalance = 24;
// How much of a core's cache the transformed tiles of a block should take, in floats, and the least number of
// tiles for which all weights are worth being read once more.
constexpr int64_t kBlockFloats = 256 * 1024, kLeast = 24;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Everything that the phases need to know. Planes are the (side + 2)^2 positions in a transformed tile.
struct Task {
  WinogradShape shape;
  const VectorPost* posts;
  size_t num_posts;
  int64_t tile_rows, tile_columns;
  // The tiles first .. first + tiles are worked on; in the scratch memory they are 0 .. tiles.
  int64_t first, tiles;
  // Steps in the scratch memory: from plane to plane, from slice to slice.
  int64_t in_plane, in_slice, out_plane, out_slice;
  const float *src, *packed, *bias;
  const float* const* addends;
  float *in, *out, *dst;  // in, out: transformed
};

// Taps of the depth that meet data for one slice of the result.
struct Taps {
  int64_t first, last;  // last is behind them
};

Taps TapsOf(const WinogradShape& s, int64_t slice) {
  const int64_t start = slice * s.stride_depth - s.pad_depth;
  Taps taps{0, s.kernel_depth};
  while (taps.first < taps.last && start + taps.first * s.dilation_depth < 0) ++taps.first;
  while (taps.last > taps.first && start + (taps.last - 1) * s.dilation_depth >= s.in_depth) --taps.last;
  return taps;
}

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma")

using Vector = __m512;

// The transforms of a row of a tile: of data, B^T x; of products, A^T x. The points are 0, 1, -1, (2, -2,)
// and infinity.
template <int kSide>
struct Transform;

template <>
struct Transform<2> {
  static inline __attribute__((always_inline)) void Data(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    y[0] = a - c;
    y[y_step] = b + c;
    y[2 * y_step] = c - b;
    y[3 * y_step] = b - d;
  }
  static inline __attribute__((always_inline)) void Product(const Vector* x, int step, Vector* y,
                                                            int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step];
    y[0] = a + b + c;
    y[y_step] = b - c - d;
  }
  static constexpr double kWeight[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
};

template <>
struct Transform<4> {
  static inline __attribute__((always_inline)) void Data(const Vector* x, int step, Vector* y, int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step], e = x[4 * step], f = x[5 * step];
    const Vector two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), five = _mm512_set1_ps(5);
    const Vector even = e - four * c, odd = d - four * b;
    const Vector even2 = e - c, odd2 = two * (d - b);
    y[0] = four * a - five * c + e;
    y[y_step] = even + odd;
    y[2 * y_step] = even - odd;
    y[3 * y_step] = even2 + odd2;
    y[4 * y_step] = even2 - odd2;
    y[5 * y_step] = four * b - five * d + f;
  }
  static inline __attribute__((always_inline)) void Product(const Vector* x, int step, Vector* y,
                                                            int y_step) {
    const Vector a = x[0], b = x[step], c = x[2 * step], d = x[3 * step], e = x[4 * step], f = x[5 * step];
    const Vector two = _mm512_set1_ps(2), four = _mm512_set1_ps(4), eight = _mm512_set1_ps(8);
    const Vector sum = b + c, difference = b - c, sum2 = d + e, difference2 = d - e;
    y[0] = a + sum + sum2;
    y[y_step] = difference + two * difference2;
    y[2 * y_step] = sum + four * sum2;
    y[3 * y_step] = difference + eight * difference2 + f;
  }
  static constexpr double kWeight[6][3] = {{1. / 4, 0, 0},
                                           {-1. / 6, -1. / 6, -1. / 6},
                                           {-1. / 6, 1. / 6, -1. / 6},
                                           {1. / 24, 1. / 12, 1. / 6},
                                           {1. / 24, -1. / 12, 1. / 6},
                                           {0, 0, 1}};
};

// Transforms the data of one tile in one slice.
template <int kSide>
void TransformData(const Task& t, int64_t slice, int64_t tile) {
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
  for (int64_t c = 0; c < s.in_channels; c += kLane) {
    Vector data[kWide][kWide], half[kWide][kWide];
    if (inside) {
      for (int y = 0; y < kWide; ++y) {
        for (int x = 0; x < kWide; ++x) data[y][x] = _mm512_loadu_ps(pixels[y][x] + c);
      }
    } else {
      for (int y = 0; y < kWide; ++y) {
        for (int x = 0; x < kWide; ++x) {
          data[y][x] = pixels[y][x] != nullptr ? _mm512_loadu_ps(pixels[y][x] + c) : _mm512_setzero_ps();
        }
      }
    }
    for (int x = 0; x < kWide; ++x) Transform<kSide>::Data(&data[0][x], kWide, &half[0][x], kWide);
    for (int y = 0; y < kWide; ++y) {
      Vector out[kWide];
      Transform<kSide>::Data(half[y], 1, out, 1);
      for (int x = 0; x < kWide; ++x) _mm512_storeu_ps(to + (y * kWide + x) * t.in_plane + c, out[x]);
    }
  }
}

// c = sum over taps of a * b: kHigh rows of a, kWide vectors of b.
template <int kHigh, int kWide>
void Product(const float* a, int64_t a_row, int64_t a_tap, const float* b, int64_t b_tap, int64_t taps,
             int64_t depth, float* c, int64_t c_row) {
  Vector sum[kHigh][kWide];
  for (int i = 0; i < kHigh; ++i) {
    for (int j = 0; j < kWide; ++j) sum[i][j] = _mm512_setzero_ps();
  }
  for (int64_t tap = 0; tap < taps; ++tap, a += a_tap, b += b_tap) {
    const float* from = b;
    for (int64_t k = 0; k < depth; ++k, from += kWide * kLane) {
      Vector right[kWide];
#pragma GCC unroll 4
      for (int j = 0; j < kWide; ++j) right[j] = _mm512_loadu_ps(from + j * kLane);
#pragma GCC unroll 6
      for (int i = 0; i < kHigh; ++i) {
        const Vector left = _mm512_set1_ps(a[i * a_row + k]);
#pragma GCC unroll 4
        for (int j = 0; j < kWide; ++j) sum[i][j] = _mm512_fmadd_ps(left, right[j], sum[i][j]);
      }
    }
  }
  for (int i = 0; i < kHigh; ++i) {
    for (int j = 0; j < kWide; ++j) _mm512_storeu_ps(c + i * c_row + j * kLane, sum[i][j]);
  }
}

template <int kWide>
void ProductOf(int64_t high, const float* a, int64_t a_row, int64_t a_tap, const float* b, int64_t b_tap,
               int64_t taps, int64_t depth, float* c, int64_t c_row) {
  switch (high) {
    case 1:
      return Product<1, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
    case 2:
      return Product<2, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
    case 3:
      return Product<3, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
    case 4:
      return Product<4, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
    case 5:
      return Product<5, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
    default:
      return Product<6, kWide>(a, a_row, a_tap, b, b_tap, taps, depth, c, c_row);
  }
}

// Multiplies one plane of all tiles and slices with one panel of the weights.
void Multiply(const Task& t, int64_t plane, int64_t panel, int64_t planes) {
  const WinogradShape& s = t.shape;
  const int64_t first = panel * kPanel, width = std::min(kPanel, s.out_channels - first);
  // Panels lie one behind the other, in each the planes, in these the taps.
  const int64_t tap_size = s.in_channels * width;
  const float* weight =
      t.packed + planes * s.kernel_depth * s.in_channels * first + plane * s.kernel_depth * tap_size;
  for (int64_t slice = 0; slice < s.out_depth; ++slice) {
    const Taps taps = TapsOf(s, slice);
    const bool any = taps.first < taps.last;  // else this slice of the result is the padding's: zeros
    const int64_t from = any ? slice * s.stride_depth - s.pad_depth + taps.first * s.dilation_depth : 0;
    const float* a = t.in + from * t.in_slice + plane * t.in_plane;
    const float* b = any ? weight + taps.first * tap_size : weight;
    float* c = t.out + slice * t.out_slice + plane * t.out_plane + first;
    // Evenly: 13 rows are 5, 4, 4 and not 6, 6, 1.
    const int64_t parts = CeilDiv(t.tiles, kRows);
    for (int64_t part = 0, row = 0; part < parts; ++part) {
      const int64_t high = (t.tiles - row) / (parts - part) + ((t.tiles - row) % (parts - part) != 0);
      const float* rows = a + row * s.in_channels;
      float* to = c + row * s.out_channels;
      const int64_t a_tap = s.dilation_depth * t.in_slice, count = taps.last - taps.first;
      switch (width / kLane) {
        case 1:
          ProductOf<1>(high, rows, s.in_channels, a_tap, b, tap_size, count, s.in_channels, to,
                       s.out_channels);
          break;
        case 2:
          ProductOf<2>(high, rows, s.in_channels, a_tap, b, tap_size, count, s.in_channels, to,
                       s.out_channels);
          break;
        case 3:
          ProductOf<3>(high, rows, s.in_channels, a_tap, b, tap_size, count, s.in_channels, to,
                       s.out_channels);
          break;
        default:
          ProductOf<4>(high, rows, s.in_channels, a_tap, b, tap_size, count, s.in_channels, to,
                       s.out_channels);
      }
      row += high;
    }
  }
}

// Transforms the products of one tile in one slice, and stores the results.
template <int kSide>
void TransformProduct(const Task& t, int64_t slice, int64_t tile) {
  constexpr int kWide = kSide + 2;
  const WinogradShape& s = t.shape;
  const int64_t at = t.first + tile, in_image = at % (t.tile_rows * t.tile_columns);
  const int64_t batch = at / (t.tile_rows * t.tile_columns);
  const int64_t row = in_image / t.tile_columns * kSide, column = in_image % t.tile_columns * kSide;
  const int high = static_cast<int>(std::min<int64_t>(kSide, s.out_height - row));
  const int wide = static_cast<int>(std::min<int64_t>(kSide, s.out_width - column));
  const int64_t base =
      (((batch * s.out_depth + slice) * s.out_height + row) * s.out_width + column) * s.out_channels;
  const int64_t row_step = s.out_width * s.out_channels;
  const float* from = t.out + slice * t.out_slice + tile * s.out_channels;
  for (int64_t c = 0; c < s.out_channels; c += kLane) {
    Vector half[kSide][kWide], out[kSide][kSide];
    for (int x = 0; x < kWide; ++x) {
      Vector products[kWide];
      for (int y = 0; y < kWide; ++y) products[y] = _mm512_loadu_ps(from + (y * kWide + x) * t.out_plane + c);
      Transform<kSide>::Product(products, 1, &half[0][x], kWide);
    }
    for (int y = 0; y < kSide; ++y) Transform<kSide>::Product(half[y], 1, out[y], 1);
    if (t.bias != nullptr) {
      const Vector bias = _mm512_loadu_ps(t.bias + c);
      for (auto& line : out) {
        for (Vector& v : line) v += bias;
      }
    }
    for (size_t i = 0; i < t.num_posts; ++i) {
      const VectorPost& post = t.posts[i];
      if (post.kind != VectorPost::Kind::kAdd) {
        ApplyPost(post, &out[0][0], kSide * kSide);
        continue;
      }
      const float* addend = t.addends[post.addend] + base + c;
      for (int y = 0; y < high; ++y) {
        for (int x = 0; x < wide; ++x) {
          out[y][x] += _mm512_loadu_ps(addend + y * row_step + x * s.out_channels);
        }
      }
    }
    float* to = t.dst + base + c;
    for (int y = 0; y < high; ++y) {
      for (int x = 0; x < wide; ++x) _mm512_storeu_ps(to + y * row_step + x * s.out_channels, out[y][x]);
    }
  }
}

#pragma GCC pop_options

void TransformDataOf(int side, const Task& t, int64_t slice, int64_t tile) {
  side == 2 ? TransformData<2>(t, slice, tile) : TransformData<4>(t, slice, tile);
}

void TransformProductOf(int side, const Task& t, int64_t slice, int64_t tile) {
  side == 2 ? TransformProduct<2>(t, slice, tile) : TransformProduct<4>(t, slice, tile);
}

}  // namespace

WinogradKernel::WinogradKernel(const WinogradShape& shape, std::vector<VectorPost> posts, int threads)
    : shape_(shape), posts_(std::move(posts)), threads_(std::max(threads, 1)) {
  auto tiles = [&](int64_t side) {
    return shape.batch * CeilDiv(shape.out_height, side) * CeilDiv(shape.out_width, side);
  };
  auto cost = [&](int64_t side) { return (side + 2) * (side + 2) * (tiles(side) + kBalance); };
  side_ = cost(2) < cost(4) ? 2 : 4;
  tile_rows_ = CeilDiv(shape.out_height, side_);
  tile_columns_ = CeilDiv(shape.out_width, side_);
  tiles_ = tiles(side_);
  const int64_t planes = (side_ + 2) * (side_ + 2);
  const int64_t tile_floats =
      planes * (shape.in_depth * shape.in_channels + shape.out_depth * shape.out_channels);
  block_ = std::max(kLeast, kBlockFloats / tile_floats);
  if (tiles_ < block_ * threads_) {
    block_ = 0;
    return;
  }
  // Blocks of equal size, as many for each thread.
  block_ = CeilDiv(tiles_, CeilDiv(CeilDiv(tiles_, block_), threads_) * threads_);
}

size_t WinogradKernel::PackedSize() const {
  return static_cast<size_t>((side_ + 2) * (side_ + 2) * shape_.kernel_depth * shape_.in_channels *
                             shape_.out_channels);
}

WinogradKernel::Scratch WinogradKernel::ScratchOf() const {
  const int64_t planes = (side_ + 2) * (side_ + 2), tiles = block_ > 0 ? block_ : tiles_;
  Scratch s;
  s.in_plane = tiles * shape_.in_channels + kSkew;
  s.in_slice = planes * s.in_plane;
  s.out_plane = tiles * shape_.out_channels + kSkew;
  s.out_slice = planes * s.out_plane;
  s.out = shape_.in_depth * s.in_slice;
  s.size = s.out + shape_.out_depth * s.out_slice;
  return s;
}

size_t WinogradKernel::ScratchSize() const {
  return static_cast<size_t>(ScratchOf().size * (block_ > 0 ? threads_ : 1));
}

void WinogradKernel::Pack(const float* weight, const int64_t (&strides)[5], float* packed) const {
  const int64_t wide = side_ + 2, planes = wide * wide;
  auto factor = [&](int64_t i, int j) {
    return side_ == 2 ? Transform<2>::kWeight[i][j] : Transform<4>::kWeight[i][j];
  };
  const int64_t panels = CeilDiv(shape_.out_channels, kPanel);
  oneapi::tbb::parallel_for(int64_t{0}, panels * shape_.kernel_depth, [&](int64_t item) {
    const int64_t panel = item / shape_.kernel_depth, tap = item % shape_.kernel_depth;
    const int64_t first = panel * kPanel, width = std::min(kPanel, shape_.out_channels - first);
    const int64_t tap_size = shape_.in_channels * width;
    float* to = packed + planes * shape_.kernel_depth * shape_.in_channels * first + tap * tap_size;
    for (int64_t c = 0; c < shape_.in_channels; ++c) {
      for (int64_t o = 0; o < width; ++o) {
        const float* from = weight + (first + o) * strides[0] + c * strides[1] + tap * strides[2];
        double half[6][3];
        for (int64_t i = 0; i < wide; ++i) {
          for (int x = 0; x < 3; ++x) {
            half[i][x] = 0;
            for (int y = 0; y < 3; ++y) half[i][x] += factor(i, y) * from[y * strides[3] + x * strides[4]];
          }
        }
        for (int64_t plane = 0; plane < planes; ++plane) {
          double sum = 0;
          for (int x = 0; x < 3; ++x) sum += half[plane / wide][x] * factor(plane % wide, x);
          to[plane * shape_.kernel_depth * tap_size + c * width + o] = static_cast<float>(sum);
        }
      }
    }
  });
}

void WinogradKernel::Run(const float* src, const float* packed, const float* bias,
                         const float* const* addends, float* scratch, float* dst) const {
  const Scratch s = ScratchOf();
  const int64_t planes = (side_ + 2) * (side_ + 2), panels = CeilDiv(shape_.out_channels, kPanel);
  Task whole{shape_, posts_.data(), posts_.size(), tile_rows_,  tile_columns_,   0,
             tiles_, s.in_plane,    s.in_slice,    s.out_plane, s.out_slice,     src,
             packed, bias,          addends,       scratch,     scratch + s.out, dst};
  if (block_ > 0) {
    DivideAmongWorkers(threads_, CeilDiv(tiles_, block_), [&](int64_t item, int64_t worker) {
      Task part = whole;
      part.first = item * block_;
      part.tiles = std::min(block_, tiles_ - part.first);
      part.in = scratch + worker * s.size;
      part.out = part.in + s.out;
      for (int64_t slice = 0; slice < shape_.in_depth; ++slice) {
        for (int64_t tile = 0; tile < part.tiles; ++tile) TransformDataOf(side_, part, slice, tile);
      }
      for (int64_t panel = 0; panel < panels; ++panel) {
        for (int64_t plane = 0; plane < planes; ++plane) Multiply(part, plane, panel, planes);
      }
      for (int64_t slice = 0; slice < shape_.out_depth; ++slice) {
        for (int64_t tile = 0; tile < part.tiles; ++tile) TransformProductOf(side_, part, slice, tile);
      }
    });
    return;
  }
  DivideAmongWorkers(threads_, shape_.in_depth * tiles_, [&](int64_t item, int64_t) {
    TransformDataOf(side_, whole, item / tiles_, item % tiles_);
  });
  DivideAmongWorkers(threads_, panels * planes,
                     [&](int64_t item, int64_t) { Multiply(whole, item % planes, item / planes, planes); });
  DivideAmongWorkers(threads_, shape_.out_depth * tiles_, [&](int64_t item, int64_t) {
    TransformProductOf(side_, whole, item / tiles_, item % tiles_);
  });
}

}  // namespace collage::native

#else  // no AVX-512 in this build: HasVectors says no, and nobody makes a kernel

namespace collage::native {

WinogradKernel::WinogradKernel(const WinogradShape&, std::vector<VectorPost>, int) {}
size_t WinogradKernel::PackedSize() const { return 0; }
size_t WinogradKernel::ScratchSize() const { return 0; }
void WinogradKernel::Pack(const float*, const int64_t (&)[5], float*) const {}
void WinogradKernel::Run(const float*, const float*, const float*, const float* const*, float*,
                         float*) const {}

}  // namespace collage::native

#endif
