// SPDX-License-Identifier: Apache-2.0
#include "dnnl_kernels.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "dnnl_layout.h"
#include "native/row_kernels.h"

namespace collage::onednn {
namespace {

// Work for less than this many elements is not divided among threads.
constexpr int64_t kGrain = 16384;

RowFunction RowOf(dnnl::algorithm algorithm) {
  const RowKernels& rows = BestRowKernels();
  switch (algorithm) {
    case dnnl::algorithm::binary_add:
      return rows.add;
    case dnnl::algorithm::binary_sub:
      return rows.subtract;
    case dnnl::algorithm::binary_mul:
      return rows.multiply;
    case dnnl::algorithm::binary_div:
      return rows.divide;
    case dnnl::algorithm::binary_max:
      return rows.maximum;
    case dnnl::algorithm::binary_min:
      return rows.minimum;
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

// Runs body(begin, end) over 0 .. count, on several threads where there is enough to do: each turn handles so
// many elements.
template <typename Body>
void InParallel(int64_t count, int64_t elements, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, elements));
  if (count <= grain) return body(0, count);
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, grain),
                    [&](const auto& range) { body(range.begin(), range.end()); });
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
  const RowKernels& rows = BestRowKernels();
  return [=, &rows](void* const* data) {
    const auto* in = static_cast<const float*>(data[0]);
    auto* out = static_cast<float*>(data[1]);
    const auto one = [&](int64_t o) {
      const float* from = in + o * length * inner;
      float* to = out + o * inner;
      if (maximum) return rows.maximum_rows(from, to, length, inner);
      if (minimum) return rows.minimum_rows(from, to, length, inner);
      if (inner == 1) {
        *to = rows.sum(from, length);
      } else {
        rows.sum_rows(from, to, length, inner);
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
  const RowKernels& rows = BestRowKernels();
  return [=, &rows](void* const* data) {
    const auto* in = static_cast<const float*>(data[0]);
    const auto* mean = static_cast<const float*>(data[1]);
    auto* out = static_cast<float*>(data[2]);
    InParallel(outer, length * inner, [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) {
        const float* from = in + o * length * inner;
        float* to = out + o * inner;
        if (inner == 1) {
          *to = rows.squares(from, mean[o], length);
        } else {
          rows.squares_rows(from, mean + o * inner, to, length, inner);
        }
        for (int64_t i = 0; i < inner; ++i) to[i] *= scale;
      }
    });
  };
}

}  // namespace collage::onednn
