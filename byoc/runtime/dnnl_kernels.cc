// SPDX-License-Identifier: Apache-2.0
#include "dnnl_kernels.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "dnnl_layout.h"

// One compilation for each vector width; the loader picks the processor's.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COLLAGE_VECTOR_WIDTHS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COLLAGE_VECTOR_WIDTHS
#endif

namespace collage::onednn {
namespace {

// Work for less than this many elements is not divided among threads.
constexpr int64_t kGrain = 16384;

struct Add {
  static float Of(float a, float b) { return a + b; }
};
struct Subtract {
  static float Of(float a, float b) { return a - b; }
};
struct Multiply {
  static float Of(float a, float b) { return a * b; }
};
struct Divide {
  static float Of(float a, float b) { return a / b; }
};
struct Maximum {
  static float Of(float a, float b) { return a > b ? a : b; }
};
struct Minimum {
  static float Of(float a, float b) { return a < b ? a : b; }
};

// A row of results; a side that is broadcast along it has the step 0. Written out for each of the cases, so
// that the compiler makes vector code of each.
template <typename F>
inline __attribute__((always_inline)) void Row(const float* a, const float* b, float* out, int64_t count,
                                               int64_t a_step, int64_t b_step) {
  if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0) {
    const float one = *b;
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(a[i], one);
  } else if (a_step == 0 && b_step == 1) {
    const float one = *a;
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(one, b[i]);
  } else {
    std::fill(out, out + count, F::Of(*a, *b));
  }
}

using RowFunction = void (*)(const float*, const float*, float*, int64_t, int64_t, int64_t);

COLLAGE_VECTOR_WIDTHS void AddRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                  int64_t sb) {
  Row<Add>(a, b, out, n, sa, sb);
}
COLLAGE_VECTOR_WIDTHS void SubtractRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                       int64_t sb) {
  Row<Subtract>(a, b, out, n, sa, sb);
}
COLLAGE_VECTOR_WIDTHS void MultiplyRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                       int64_t sb) {
  Row<Multiply>(a, b, out, n, sa, sb);
}
COLLAGE_VECTOR_WIDTHS void DivideRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                     int64_t sb) {
  Row<Divide>(a, b, out, n, sa, sb);
}
COLLAGE_VECTOR_WIDTHS void MaximumRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                      int64_t sb) {
  Row<Maximum>(a, b, out, n, sa, sb);
}
COLLAGE_VECTOR_WIDTHS void MinimumRow(const float* a, const float* b, float* out, int64_t n, int64_t sa,
                                      int64_t sb) {
  Row<Minimum>(a, b, out, n, sa, sb);
}

RowFunction RowOf(dnnl::algorithm algorithm) {
  switch (algorithm) {
    case dnnl::algorithm::binary_add:
      return AddRow;
    case dnnl::algorithm::binary_sub:
      return SubtractRow;
    case dnnl::algorithm::binary_mul:
      return MultiplyRow;
    case dnnl::algorithm::binary_div:
      return DivideRow;
    case dnnl::algorithm::binary_max:
      return MaximumRow;
    case dnnl::algorithm::binary_min:
      return MinimumRow;
    default:
      throw std::runtime_error("a broadcast operator of an unknown kind");
  }
}

// Axes with the steps that both sides make along them. Neighbours along which both go on evenly are one axis.
struct Loop {
  int64_t count, a_step, b_step;
};

std::vector<Loop> Loops(const Dims& dims, const Dims& left, const Dims& right) {
  const size_t rank = dims.size();
  const Dims a = Aligned(left, rank), b = Aligned(right, rank);
  std::vector<Loop> loops;  // the innermost first
  int64_t a_stride = 1, b_stride = 1;
  for (size_t i = rank; i-- > 0;) {
    if (dims[i] != 1) {
      const Loop loop{dims[i], a[i] == 1 ? 0 : a_stride, b[i] == 1 ? 0 : b_stride};
      if (!loops.empty() && loop.a_step == loops.back().a_step * loops.back().count &&
          loop.b_step == loops.back().b_step * loops.back().count) {
        loops.back().count *= loop.count;
      } else {
        loops.push_back(loop);
      }
    }
    a_stride *= a[i];
    b_stride *= b[i];
  }
  if (loops.empty()) loops.push_back({1, 0, 0});
  return loops;
}

COLLAGE_VECTOR_WIDTHS void SumRows(const float* in, float* out, int64_t length, int64_t inner) {
  for (int64_t i = 0; i < inner; ++i) out[i] = 0;
  for (int64_t k = 0; k < length; ++k, in += inner) {
    for (int64_t i = 0; i < inner; ++i) out[i] += in[i];
  }
}
COLLAGE_VECTOR_WIDTHS float SumRow(const float* in, int64_t length) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += in[k + lane];
  }
  float sum = 0;
  for (; k < length; ++k) sum += in[k];
  for (const float lane : lanes) sum += lane;
  return sum;
}

// The sum of the squares of what is left when the mean is taken away.
COLLAGE_VECTOR_WIDTHS float SquaresRow(const float* in, float mean, int64_t length) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += (in[k + lane] - mean) * (in[k + lane] - mean);
  }
  float sum = 0;
  for (; k < length; ++k) sum += (in[k] - mean) * (in[k] - mean);
  for (const float lane : lanes) sum += lane;
  return sum;
}
COLLAGE_VECTOR_WIDTHS void SquaresRows(const float* in, const float* mean, float* out, int64_t length,
                                       int64_t inner) {
  for (int64_t i = 0; i < inner; ++i) out[i] = 0;
  for (int64_t k = 0; k < length; ++k, in += inner) {
    for (int64_t i = 0; i < inner; ++i) out[i] += (in[i] - mean[i]) * (in[i] - mean[i]);
  }
}
COLLAGE_VECTOR_WIDTHS void ScaleRow(const float* in, const float* gain, const float* shift, float mean,
                                    float scale, float* out, int64_t length) {
  for (int64_t k = 0; k < length; ++k) out[k] = gain[k] * ((in[k] - mean) * scale) + shift[k];
}

// Runs body(begin, end) over 0 .. count, on several threads where there is enough to do: each turn handles so
// many elements.
template <typename Body>
void InParallel(int64_t count, int64_t elements, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements));
  if (count <= grain) return body(0, count);
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, grain),
                    [&](const auto& range) { body(range.begin(), range.end()); });
}

template <typename F>
void Extreme(const float* in, float* out, int64_t length, int64_t inner) {
  std::copy(in, in + inner, out);
  for (int64_t k = 1; k < length; ++k) {
    in += inner;
    for (int64_t i = 0; i < inner; ++i) out[i] = F::Of(in[i], out[i]);
  }
}
COLLAGE_VECTOR_WIDTHS void MaximumRows(const float* in, float* out, int64_t length, int64_t inner) {
  Extreme<Maximum>(in, out, length, inner);
}
COLLAGE_VECTOR_WIDTHS void MinimumRows(const float* in, float* out, int64_t length, int64_t inner) {
  Extreme<Minimum>(in, out, length, inner);
}

}  // namespace

std::function<void(void* const*)> BroadcastKernel(dnnl::algorithm algorithm, const Dims& dims,
                                                  const Dims& left, const Dims& right) {
  const RowFunction row = RowOf(algorithm);
  std::vector<Loop> loops = Loops(dims, left, right);
  const Loop inner = loops.front();
  loops.erase(loops.begin());
  int64_t rows = 1;
  for (const Loop& loop : loops) rows *= loop.count;
  return [=](void* const* data) {
    const auto* a = static_cast<const float*>(data[0]);
    const auto* b = static_cast<const float*>(data[1]);
    auto* out = static_cast<float*>(data[2]);
    const auto some_rows = [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        int64_t rest = r, a_offset = 0, b_offset = 0;
        for (const Loop& loop : loops) {
          const int64_t at = rest % loop.count;
          rest /= loop.count;
          a_offset += at * loop.a_step;
          b_offset += at * loop.b_step;
        }
        row(a + a_offset, b + b_offset, out + r * inner.count, inner.count, inner.a_step, inner.b_step);
      }
    };
    if (rows == 1) {
      // One long row: cut it instead.
      return InParallel(inner.count, 1, [&](int64_t begin, int64_t end) {
        row(a + begin * inner.a_step, b + begin * inner.b_step, out + begin, end - begin, inner.a_step,
            inner.b_step);
      });
    }
    InParallel(rows, inner.count, some_rows);
  };
}

std::function<void(void* const*)> ReduceKernel(dnnl::algorithm algorithm, int64_t outer, int64_t length,
                                               int64_t inner) {
  const float scale = algorithm == dnnl::algorithm::reduction_mean ? 1.0F / static_cast<float>(length) : 1.0F;
  const bool maximum = algorithm == dnnl::algorithm::reduction_max;
  const bool minimum = algorithm == dnnl::algorithm::reduction_min;
  return [=](void* const* data) {
    const auto* in = static_cast<const float*>(data[0]);
    auto* out = static_cast<float*>(data[1]);
    const auto one = [&](int64_t o) {
      const float* from = in + o * length * inner;
      float* to = out + o * inner;
      if (maximum) return MaximumRows(from, to, length, inner);
      if (minimum) return MinimumRows(from, to, length, inner);
      if (inner == 1) {
        *to = SumRow(from, length);
      } else {
        SumRows(from, to, length, inner);
      }
      if (scale != 1.0F) {
        for (int64_t i = 0; i < inner; ++i) to[i] *= scale;
      }
    };
    InParallel(outer, length * inner, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) one(o);
    });
  };
}

std::function<void(void* const*)> VarianceKernel(int64_t outer, int64_t length, int64_t inner,
                                                 int64_t divisor) {
  const float scale = 1.0F / static_cast<float>(divisor);
  return [=](void* const* data) {
    const auto* in = static_cast<const float*>(data[0]);
    const auto* mean = static_cast<const float*>(data[1]);
    auto* out = static_cast<float*>(data[2]);
    InParallel(outer, length * inner, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const float* from = in + o * length * inner;
        float* to = out + o * inner;
        if (inner == 1) {
          *to = SquaresRow(from, mean[o], length);
        } else {
          SquaresRows(from, mean + o * inner, to, length, inner);
        }
        for (int64_t i = 0; i < inner; ++i) to[i] *= scale;
      }
    });
  };
}

PieceWork StandardiseKernel(int64_t rows, int64_t length, int64_t divisor, float epsilon, int threads) {
  // A piece takes about a microsecond, which is more than it costs to begin one.
  constexpr int64_t kPiece = 4096;
  const int64_t most = std::min({int64_t{threads}, rows, rows * length / kPiece});
  const int pieces = static_cast<int>(std::max<int64_t>(1, most));
  const auto work = [=](void* const* data, int piece) {
    const auto* in = static_cast<const float*>(data[0]);
    const auto* gain = static_cast<const float*>(data[1]);
    const auto* shift = static_cast<const float*>(data[2]);
    auto* out = static_cast<float*>(data[3]);
    for (int64_t r = rows * piece / pieces; r < rows * (piece + 1) / pieces; ++r) {
      const float* from = in + r * length;
      const float mean = SumRow(from, length) / static_cast<float>(length);
      const float variance = SquaresRow(from, mean, length) / static_cast<float>(divisor);
      ScaleRow(from, gain, shift, mean, 1.0F / (std::sqrt(variance) + epsilon), out + r * length, length);
    }
  };
  return {pieces, work};
}

}  // namespace collage::onednn
