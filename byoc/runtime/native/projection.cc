// SPDX-License-Identifier: Apache-2.0
#include "native/projection.h"

#ifdef COLLAGE_X86_GCC

#include <algorithm>
#include <utility>

#include "native/workers.h"

namespace collage::native {
namespace {

constexpr int64_t kLane = 16;          // floats of a vector
constexpr int64_t kPanel = 4 * kLane;  // output channels of a block of packed weights
constexpr int64_t kRows = 6;           // pixels of which results are kept in registers: 24 of 32
constexpr int64_t kBlock = 96;         // pixels that are multiplied with one panel in a row

// Work for less than this many multiplications is not divided among threads.
constexpr int64_t kGrain = 1 << 18;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Task {
  int64_t in_channels, out_channels;
  const VectorPost* posts;
  size_t num_posts;
  const float* const* addends;
};

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma")

// kHigh pixels by kWide vectors of output channels. at is where the results begin in dst and addends.
template <int kHigh, int kWide>
void Product(const Task& t, const float* a, const float* b, const float* bias, int64_t at, float* dst) {
  for (size_t i = 0; i < t.num_posts; ++i) {
    if (t.posts[i].kind != VectorPost::Kind::kAdd) continue;
    const float* addend = t.addends[t.posts[i].addend] + at;
    for (int y = 0; y < kHigh; ++y) {
      for (int x = 0; x < kWide; ++x) {
        _mm_prefetch(reinterpret_cast<const char*>(addend + y * t.out_channels + x * kLane), _MM_HINT_T0);
      }
    }
  }
  __m512 sum[kHigh][kWide];
  for (int x = 0; x < kWide; ++x) {
    const __m512 start = bias != nullptr ? _mm512_loadu_ps(bias + x * kLane) : _mm512_setzero_ps();
    for (int y = 0; y < kHigh; ++y) sum[y][x] = start;
  }
  for (int64_t k = 0; k < t.in_channels; ++k, b += kWide * kLane) {
    __m512 right[kWide];
#pragma GCC unroll 4
    for (int x = 0; x < kWide; ++x) right[x] = _mm512_loadu_ps(b + x * kLane);
#pragma GCC unroll 6
    for (int y = 0; y < kHigh; ++y) {
      const __m512 left = _mm512_set1_ps(a[y * t.in_channels + k]);
#pragma GCC unroll 4
      for (int x = 0; x < kWide; ++x) sum[y][x] = _mm512_fmadd_ps(left, right[x], sum[y][x]);
    }
  }
  for (size_t i = 0; i < t.num_posts; ++i) {
    const VectorPost& post = t.posts[i];
    if (post.kind == VectorPost::Kind::kAdd) {
      const float* addend = t.addends[post.addend] + at;
      for (int y = 0; y < kHigh; ++y) {
        for (int x = 0; x < kWide; ++x) {
          sum[y][x] += _mm512_loadu_ps(addend + y * t.out_channels + x * kLane);
        }
      }
    } else {
      ApplyPost(post, &sum[0][0], kHigh * kWide);
    }
  }
  for (int y = 0; y < kHigh; ++y) {
    for (int x = 0; x < kWide; ++x) {
      _mm512_storeu_ps(dst + at + y * t.out_channels + x * kLane, sum[y][x]);
    }
  }
}

#pragma GCC pop_options

using ProductFunction = void (*)(const Task&, const float*, const float*, const float*, int64_t, float*);

template <int kWide>
ProductFunction ProductOf(int64_t high) {
  static constexpr ProductFunction kProducts[] = {Product<1, kWide>, Product<2, kWide>, Product<3, kWide>,
                                                  Product<4, kWide>, Product<5, kWide>, Product<6, kWide>};
  return kProducts[high - 1];
}

ProductFunction ProductOf(int64_t high, int64_t wide) {
  switch (wide) {
    case 1:
      return ProductOf<1>(high);
    case 2:
      return ProductOf<2>(high);
    case 3:
      return ProductOf<3>(high);
    default:
      return ProductOf<4>(high);
  }
}

}  // namespace

ProjectionKernel::ProjectionKernel(int64_t pixels, int64_t in_channels, int64_t out_channels,
                                   std::vector<VectorPost> posts, int threads)
    : pixels_(pixels),
      in_channels_(in_channels),
      out_channels_(out_channels),
      posts_(std::move(posts)),
      threads_(std::max(threads, 1)) {}

void ProjectionKernel::Pack(const float* weight, int64_t out_stride, int64_t in_stride, float* packed) const {
  for (int64_t first = 0; first < out_channels_; first += kPanel) {
    const int64_t width = std::min(kPanel, out_channels_ - first);
    float* to = packed + first * in_channels_;
    for (int64_t c = 0; c < in_channels_; ++c) {
      for (int64_t o = 0; o < width; ++o)
        to[c * width + o] = weight[(first + o) * out_stride + c * in_stride];
    }
  }
}

void ProjectionKernel::Run(const float* src, const float* packed, const float* bias,
                           const float* const* addends, float* dst) const {
  const Task task{in_channels_, out_channels_, posts_.data(), posts_.size(), addends};
  const int64_t panels = CeilDiv(out_channels_, kPanel), blocks = CeilDiv(pixels_, kBlock);
  // Neighbours read the same pixels.
  const auto work = [&](int64_t item, int64_t) {
    const int64_t first = item % panels * kPanel, width = std::min(kPanel, out_channels_ - first);
    const int64_t start = item / panels * kBlock, count = std::min(kBlock, pixels_ - start);
    const int64_t parts = CeilDiv(count, kRows);
    for (int64_t part = 0, row = 0; part < parts; ++part) {
      // Evenly: 13 rows are 5, 4, 4 and not 6, 6, 1.
      const int64_t high = CeilDiv(count - row, parts - part);
      ProductOf(high, width / kLane)(task, src + (start + row) * in_channels_, packed + first * in_channels_,
                                     bias == nullptr ? nullptr : bias + first,
                                     (start + row) * out_channels_ + first, dst);
      row += high;
    }
  };
  const int64_t workers = std::min({int64_t{threads_}, blocks * panels,
                                    std::max(int64_t{1}, pixels_ * in_channels_ * out_channels_ / kGrain)});
  DivideAmongWorkers(workers, blocks * panels, work);
}

}  // namespace collage::native

#else  // no AVX-512 in this build: HasVectors says no, and nobody makes a kernel

namespace collage::native {

ProjectionKernel::ProjectionKernel(int64_t, int64_t, int64_t, std::vector<VectorPost>, int) {}
void ProjectionKernel::Pack(const float*, int64_t, int64_t, float*) const {}
void ProjectionKernel::Run(const float*, const float*, const float*, const float* const*, float*) const {}

}  // namespace collage::native

#endif
