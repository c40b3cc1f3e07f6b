// SPDX-License-Identifier: Apache-2.0
#include "native/strip_kernels.h"

#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#include <immintrin.h>

// From here on for AVX-512; what callers run on any processor stands behind the end of it.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,fma")

namespace collage::native::strip {
namespace {

constexpr int64_t kLanes = 16;
// The tile of a product that stays in registers: 14 pixels by 2 vectors of channels, which leaves two for the
// weights and one for a pixel's channel. Per step along the sum it takes 16 loads for 28 multiply-adds, so
// the multipliers are what limits it, and it runs at what the processor can do.
constexpr int kTilePixels = 14;
constexpr int kTileVectors = 2;

__mmask16 FirstLanes(int64_t count) {
  return count >= kLanes ? __mmask16(0xffff) : static_cast<__mmask16>((1U << count) - 1U);
}

inline __attribute__((always_inline)) void Store(float* to, __mmask16 mask, __m512 value) {
  if (mask == 0xffff) {
    _mm512_storeu_ps(to, value);
  } else {
    _mm512_mask_storeu_ps(to, mask, value);
  }
}

// With a mask, as GCC 12 warns of its own header otherwise (its bug 105593); the mask costs nothing.
inline __attribute__((always_inline)) __m512 Greater(__m512 a, __m512 b) {
  return _mm512_maskz_max_ps(0xffff, a, b);
}
inline __attribute__((always_inline)) __m512 Less(__m512 a, __m512 b) {
  return _mm512_maskz_min_ps(0xffff, a, b);
}

inline __attribute__((always_inline)) __m512 Bounded(__m512 value, const Range& range) {
  if (!range.bounded) return value;
  return Less(Greater(value, _mm512_set1_ps(range.low)), _mm512_set1_ps(range.high));
}

// One tile of a product. The loops over the tile must be unrolled whole, or it would not stay in registers.
// mask is that of the last vector.
template <int kPixels, int kVectors>
void Tile(const Product& p, const float* from, const float* b, const float* bias, const float* add, float* to,
          __mmask16 mask, const char* ahead, int64_t ahead_step) {
  __m512 sum[kPixels][kVectors];
  const __mmask16 masks[2] = {kVectors == 1 ? mask : __mmask16(0xffff), mask};
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const __m512 start =
        bias != nullptr ? _mm512_maskz_loadu_ps(masks[v], bias + kLanes * v) : _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int r = 0; r < kPixels; ++r) sum[r][v] = start;
  }
  if (add != nullptr) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
      for (int r = 0; r < kPixels; ++r) {
        sum[r][v] =
            _mm512_add_ps(sum[r][v], _mm512_maskz_loadu_ps(masks[v], add + r * p.ld_add + kLanes * v));
      }
    }
  }
  // An address for every third pixel: the two after it are one and two lda away, which addressing modes can
  // say.
  constexpr int kAddresses = (kTilePixels + 2) / 3;
  const float* a[kAddresses];
#pragma GCC unroll 5
  for (int i = 0; i < kAddresses; ++i) a[i] = from + 3 * i * p.lda;
  for (int64_t k = p.in; k > 0; --k) {
    _mm_prefetch(ahead, _MM_HINT_T0);
    ahead += ahead_step;
    __m512 weight[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) weight[v] = _mm512_loadu_ps(b + kLanes * v);
#pragma GCC unroll 16
    for (int r = 0; r < kPixels; ++r) {
      const __m512 x = _mm512_set1_ps(a[r / 3][r % 3 * p.lda]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_fmadd_ps(x, weight[v], sum[r][v]);
    }
    b += kLanes * kVectors;
#pragma GCC unroll 5
    for (int i = 0; i < kAddresses; ++i) {
      ++a[i];
      // Keeps the compiler from making an address of its own for each pixel.
      asm("" : "+r"(a[i]));
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kPixels; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      Store(to + r * p.ldc + kLanes * v, masks[v], Bounded(sum[r][v], p.range));
    }
  }
}

using TileFunction = void (*)(const Product&, const float*, const float*, const float*, const float*, float*,
                              __mmask16, const char*, int64_t);
template <int kVectors>
constexpr TileFunction kTiles[kTilePixels] = {
    Tile<1, kVectors>,  Tile<2, kVectors>,  Tile<3, kVectors>,  Tile<4, kVectors>,  Tile<5, kVectors>,
    Tile<6, kVectors>,  Tile<7, kVectors>,  Tile<8, kVectors>,  Tile<9, kVectors>,  Tile<10, kVectors>,
    Tile<11, kVectors>, Tile<12, kVectors>, Tile<13, kVectors>, Tile<14, kVectors>,
};

// Where padding is: nothing in a sum, less than everything in a maximum.
template <bool kMaximum>
inline __attribute__((always_inline)) __m512 Nothing() {
  return kMaximum ? _mm512_set1_ps(-__builtin_inff()) : _mm512_setzero_ps();
}

// So many results are computed side by side: a pixel that several windows see is loaded once. Widths of
// images are multiples of 7 more often than of 8.
constexpr int kSideBySide = 7;

// Results x0 .. x0 + 6 of a row, of 16 channels, of which the first `wanted` are stored. kInside says that no
// pixel that they see lies in the padding at the sides.
template <Window::Kind kKind, int kWidth, int kStride, bool kInside>
inline __attribute__((always_inline)) void WindowTile(const Window& w, const float* image, int64_t ld,
                                                      int64_t row, int64_t x0, int64_t channel,
                                                      __mmask16 mask, int64_t wanted, const float* add,
                                                      int64_t ld_add, float* out, int64_t ld_out) {
  constexpr bool kMaximum = kKind == Window::Kind::kMaximum;
  constexpr bool kTaps = kKind == Window::Kind::kDepthwise;
  __m512 sum[kSideBySide];
  __m512 start = Nothing<kMaximum>();
  if (kTaps && w.bias != nullptr) start = _mm512_maskz_loadu_ps(mask, w.bias + channel);
#pragma GCC unroll 8
  for (int j = 0; j < kSideBySide; ++j) sum[j] = start;
  const int64_t top = row * w.stride_height - w.pad_top, left = x0 * kStride - w.pad_left;
  const float* taps = kTaps ? w.taps + channel * w.kernel_height * kWidth : nullptr;
  // What the next row of results sees for the first time is fetched while this one is computed: it was
  // written by an earlier step and has left the inner caches.
  const int64_t below = top + w.kernel_height;
  for (int64_t y = below; y < below + w.stride_height && y < w.height; ++y) {
    if (y < 0) continue;
    const int64_t begin = left < 0 ? 0 : left;
    const int64_t end = left + kSideBySide * kStride < w.width ? left + kSideBySide * kStride : w.width;
    const float* const line = image + y * w.width * ld + channel;
    for (int64_t i = begin; i < end; ++i) _mm_prefetch(line + i * ld, _MM_HINT_T0);
  }
  int64_t rows = 0;
  for (int64_t ky = 0; ky < w.kernel_height; ++ky) {
    const int64_t y = top + ky;
    if (y < 0 || y >= w.height) continue;
    ++rows;
    const float* line = image + (y * w.width + left) * ld + channel;
    constexpr int kSeen = (kSideBySide - 1) * kStride + kWidth;
    __m512 x[kSeen];
#pragma GCC unroll 32
    for (int i = 0; i < kSeen; ++i) {
      x[i] = Nothing<kMaximum>();
      if (kInside || (left + i >= 0 && left + i < w.width)) x[i] = _mm512_maskz_loadu_ps(mask, line + i * ld);
    }
    // The results within: each has its own chain of sums, and they take turns.
#pragma GCC unroll 8
    for (int kx = 0; kx < kWidth; ++kx) {
      const __m512 tap = kTaps ? _mm512_loadu_ps(taps + (ky * kWidth + kx) * kLanes) : _mm512_setzero_ps();
#pragma GCC unroll 8
      for (int j = 0; j < kSideBySide; ++j) {
        if (kTaps) {
          sum[j] = _mm512_fmadd_ps(x[j * kStride + kx], tap, sum[j]);
        } else if (kMaximum) {
          sum[j] = Greater(sum[j], x[j * kStride + kx]);
        } else {
          sum[j] = _mm512_add_ps(sum[j], x[j * kStride + kx]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kSideBySide; ++j) {
    if (j >= wanted) break;
    __m512 value = sum[j];
    if (kKind == Window::Kind::kAverageWithPadding) {
      value = _mm512_mul_ps(value, _mm512_set1_ps(w.scale / static_cast<float>(w.kernel_height * kWidth)));
    } else if (kKind == Window::Kind::kAverage) {
      int64_t columns = kWidth;
      if (!kInside) {
        const int64_t begin = left + j * kStride, end = begin + kWidth;
        columns = (end < w.width ? end : w.width) - (begin > 0 ? begin : 0);
      }
      value = _mm512_mul_ps(value, _mm512_set1_ps(w.scale / static_cast<float>(rows * columns)));
    } else if (kMaximum) {
      value = _mm512_mul_ps(value, _mm512_set1_ps(w.scale));
    }
    if (add != nullptr) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, add + j * ld_add));
    Store(out + j * ld_out, mask, Bounded(value, w.range));
  }
}

template <Window::Kind kKind, int kWidth, int kStride>
void WindowRows(const Window& w, const float* image, int64_t ld, int64_t first, int64_t rows,
                const float* add, int64_t ld_add, float* out, int64_t ld_out) {
  // Downwards first: what several rows of results see stays in the first cache. Channels last: memory is read
  // as it lies.
  for (int64_t x = 0; x < w.out_width; x += kSideBySide) {
    const int64_t left = x * kStride - w.pad_left;
    const int64_t right = left + (kSideBySide - 1) * kStride + kWidth;
    const bool inside = left >= 0 && right <= w.width;
    const int64_t wanted = w.out_width - x;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t pixel = row * w.out_width + x;
      for (int64_t channel = 0; channel < w.channels; channel += kLanes) {
        const __mmask16 mask = FirstLanes(w.channels - channel);
        float* const to = out + pixel * ld_out + channel;
        const float* const plus = add == nullptr ? nullptr : add + pixel * ld_add + channel;
        if (inside) {
          WindowTile<kKind, kWidth, kStride, true>(w, image, ld, first + row, x, channel, mask, wanted, plus,
                                                   ld_add, to, ld_out);
        } else {
          WindowTile<kKind, kWidth, kStride, false>(w, image, ld, first + row, x, channel, mask, wanted, plus,
                                                    ld_add, to, ld_out);
        }
      }
    }
  }
}

using WindowFunction = void (*)(const Window&, const float*, int64_t, int64_t, int64_t, const float*, int64_t,
                                float*, int64_t);

// Null where the window is of a size that is not written out.
template <Window::Kind kKind>
WindowFunction WindowOf(int64_t width, int64_t stride) {
  if (stride == 1) {
    return width == 2   ? WindowRows<kKind, 2, 1>
           : width == 3 ? WindowRows<kKind, 3, 1>
           : width == 5 ? WindowRows<kKind, 5, 1>
           : width == 7 ? WindowRows<kKind, 7, 1>
                        : nullptr;
  }
  if (stride == 2) {
    return width == 2   ? WindowRows<kKind, 2, 2>
           : width == 3 ? WindowRows<kKind, 3, 2>
           : width == 5 ? WindowRows<kKind, 5, 2>
           : width == 7 ? WindowRows<kKind, 7, 2>
                        : nullptr;
  }
  return nullptr;
}

WindowFunction FunctionOf(const Window& w) {
  switch (w.kind) {
    case Window::Kind::kDepthwise:
      return WindowOf<Window::Kind::kDepthwise>(w.kernel_width, w.stride_width);
    case Window::Kind::kAverage:
      return WindowOf<Window::Kind::kAverage>(w.kernel_width, w.stride_width);
    case Window::Kind::kAverageWithPadding:
      return WindowOf<Window::Kind::kAverageWithPadding>(w.kernel_width, w.stride_width);
    case Window::Kind::kMaximum:
      return WindowOf<Window::Kind::kMaximum>(w.kernel_width, w.stride_width);
  }
  return nullptr;
}

}  // namespace

void Run(const Product& p) {
  // As equal tiles as possible: 15 pixels are 8 and 7, not 14 and 1.
  const int64_t tiles = (p.pixels + kTilePixels - 1) / kTilePixels;
  const float* b = p.b;
  // The weights of the next channels are fetched meanwhile, each tile its share of them.
  const int64_t step = (kTileVectors * kLanes * 4 + tiles - 1) / tiles;
  for (int64_t channel = 0; channel < p.out;) {
    const int64_t rest = p.out - channel;
    const bool wide = rest > kLanes;
    const TileFunction* const functions = wide ? kTiles<2> : kTiles<1>;
    const __mmask16 mask = FirstLanes(wide ? rest - kLanes : rest);
    const char* const next = reinterpret_cast<const char*>(b + p.in * (wide ? kTileVectors : 1) * kLanes);
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t begin = i * p.pixels / tiles, count = (i + 1) * p.pixels / tiles - begin;
      functions[count - 1](p, p.a + begin * p.lda, b, p.bias == nullptr ? nullptr : p.bias + channel,
                           p.add == nullptr ? nullptr : p.add + begin * p.ld_add + channel,
                           p.c + begin * p.ldc + channel, mask, next + i * step * p.in, step);
    }
    const int64_t vectors = wide ? kTileVectors : 1;
    b += p.in * vectors * kLanes;
    channel += vectors * kLanes;
  }
}

void Run(const Window& window, const float* image, int64_t ld, int64_t first, int64_t rows, const float* add,
         int64_t ld_add, float* out, int64_t ld_out) {
  FunctionOf(window)(window, image, ld, first, rows, add, ld_add, out, ld_out);
}

void Add(const float* a, int64_t lda, const float* b, int64_t ldb, float* out, int64_t ld_out, int64_t pixels,
         int64_t channels, const Range& range) {
  for (int64_t i = 0; i < pixels; ++i, a += lda, b += ldb, out += ld_out) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const __mmask16 mask = FirstLanes(channels - c);
      const __m512 sum =
          _mm512_add_ps(_mm512_maskz_loadu_ps(mask, a + c), _mm512_maskz_loadu_ps(mask, b + c));
      Store(out + c, mask, Bounded(sum, range));
    }
  }
}

void Copy(const float* a, int64_t lda, float* out, int64_t ld_out, int64_t pixels, int64_t channels,
          const Range& range) {
  for (int64_t i = 0; i < pixels; ++i, a += lda, out += ld_out) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const __mmask16 mask = FirstLanes(channels - c);
      Store(out + c, mask, Bounded(_mm512_maskz_loadu_ps(mask, a + c), range));
    }
  }
}

#pragma GCC pop_options

bool Available() { return BestInstructionSet() == InstructionSet::kAvx512; }

bool Knows(const Window& window) { return FunctionOf(window) != nullptr; }

int64_t PackedSize(int64_t in, int64_t out) { return in * ((out + kLanes - 1) / kLanes * kLanes); }

void Pack(const float* matrix, int64_t out_stride, int64_t in_stride, int64_t in, int64_t out,
          float* packed) {
  for (int64_t channel = 0; channel < out;) {
    const int64_t wide = (out - channel > kLanes ? kTileVectors : 1) * kLanes;
    for (int64_t k = 0; k < in; ++k) {
      for (int64_t c = channel; c < channel + wide; ++c) {
        *packed++ = c < out ? matrix[c * out_stride + k * in_stride] : 0.0F;
      }
    }
    channel += wide;
  }
}

int64_t TapsSize(int64_t channels, int64_t kernel) {
  return (channels + kLanes - 1) / kLanes * kLanes * kernel;
}

void PackTaps(const float* taps, int64_t channel_stride, int64_t height_stride, int64_t width_stride,
              int64_t channels, int64_t kernel_height, int64_t kernel_width, float* packed) {
  for (int64_t block = 0; block < channels; block += kLanes) {
    for (int64_t y = 0; y < kernel_height; ++y) {
      for (int64_t x = 0; x < kernel_width; ++x) {
        for (int64_t c = block; c < block + kLanes; ++c) {
          *packed++ = c < channels ? taps[c * channel_stride + y * height_stride + x * width_stride] : 0.0F;
        }
      }
    }
  }
}

}  // namespace collage::native::strip

#else  // no AVX-512 in this build

namespace collage::native::strip {

bool Available() { return false; }
bool Knows(const Window&) { return false; }
void Run(const Product&) {}
void Run(const Window&, const float*, int64_t, int64_t, int64_t, const float*, int64_t, float*, int64_t) {}
int64_t PackedSize(int64_t, int64_t) { return 0; }
void Pack(const float*, int64_t, int64_t, int64_t, int64_t, float*) {}
int64_t TapsSize(int64_t, int64_t) { return 0; }
void PackTaps(const float*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, float*) {}
void Add(const float*, int64_t, const float*, int64_t, float*, int64_t, int64_t, int64_t, const Range&) {}
void Copy(const float*, int64_t, float*, int64_t, int64_t, int64_t, const Range&) {}

}  // namespace collage::native::strip

#endif
