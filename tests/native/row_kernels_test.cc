// SPDX-License-Identifier: Apache-2.0
//
// Operators with broadcasting, reductions and variance: dnnl_kernels and the loops below.
//
// ctest: levels threads
#include "native/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "dnnl_kernels.h"
#include "sample.h"

namespace collage::onednn {
namespace {

using Algorithm = dnnl::algorithm;

int64_t Count(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

// The element of a tensor that is broadcast to dims which stands at the i-th place there.
float At(const std::vector<float>& data, const Dims& own, const Dims& dims, int64_t i) {
  int64_t offset = 0, step = 1;
  for (size_t k = 0; k < dims.size(); ++k) {
    const size_t axis = dims.size() - 1 - k;
    const int64_t at = i % dims[axis];
    i /= dims[axis];
    if (k >= own.size()) continue;
    const int64_t size = own[own.size() - 1 - k];
    if (size != 1) offset += at * step;
    step *= size;
  }
  return data[offset];
}

const std::vector<std::pair<Algorithm, std::function<double(float, float)>>>& Operators() {
  static const std::vector<std::pair<Algorithm, std::function<double(float, float)>>> operators = {
      {Algorithm::binary_add, [](float a, float b) { return a + b; }},
      {Algorithm::binary_sub, [](float a, float b) { return a - b; }},
      {Algorithm::binary_mul, [](float a, float b) { return a * b; }},
      {Algorithm::binary_div, [](float a, float b) { return a / b; }},
      {Algorithm::binary_max, [](float a, float b) { return std::max(a, b); }},
      {Algorithm::binary_min, [](float a, float b) { return std::min(a, b); }},
  };
  return operators;
}

TEST(Broadcast, AllOperatorsOverAnyAxes) {
  const std::vector<std::pair<Dims, Dims>> shapes = {
      {{1}, {1}},
      {{15}, {15}},
      {{16}, {1}},
      {{1}, {17}},
      {{3, 33}, {33}},
      {{3, 1}, {1, 31}},
      {{2, 5, 7}, {5, 1}},
      {{2, 1, 7, 1}, {3, 1, 19}},
      {{4, 1, 6}, {4, 5, 6}},
      {{1, 1}, {2, 65}},
      {{70000}, {70000}},    // one long row, cut among threads
      {{300, 70}, {1, 70}},  // many rows
      {{300, 1}, {300, 90}},
  };
  for (const auto& [left, right] : shapes) {
    const size_t rank = std::max(left.size(), right.size());
    Dims dims(rank, 1);
    for (size_t k = 0; k < rank; ++k) {
      if (k < left.size()) dims[rank - 1 - k] = std::max(dims[rank - 1 - k], left[left.size() - 1 - k]);
      if (k < right.size()) dims[rank - 1 - k] = std::max(dims[rank - 1 - k], right[right.size() - 1 - k]);
    }
    std::vector<float> a = Sample(Count(left), 1), b = Sample(Count(right), 2);
    for (float& one : b) one += one < 0 ? -0.5F : 0.5F;  // for the quotients
    for (const auto& [algorithm, function] : Operators()) {
      std::vector<float> out(Count(dims));
      std::vector<double> want;
      for (int64_t i = 0; i < Count(dims); ++i) {
        want.push_back(function(At(a, left, dims, i), At(b, right, dims, i)));
      }
      void* data[] = {a.data(), b.data(), out.data()};
      BroadcastKernel(algorithm, dims, left, right)(data);
      ExpectClose(out, want, 1e-6, "rank " + std::to_string(rank));
    }
  }
}

TEST(Broadcast, TheResultMayLieWhereAnOperandDoes) {
  std::vector<float> a = Sample(4 * 37, 1), b = Sample(37, 2);
  std::vector<double> want;
  for (size_t i = 0; i < a.size(); ++i) want.push_back(a[i] - b[i % 37]);
  void* data[] = {a.data(), b.data(), a.data()};
  BroadcastKernel(Algorithm::binary_sub, {4, 37}, {4, 37}, {37})(data);
  ExpectClose(a, want, 1e-6);
}

// What the comparison gives when one side is not a number, which is always the right one.
TEST(Broadcast, TheRightSideWinsAgainstWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const auto algorithm : {Algorithm::binary_max, Algorithm::binary_min}) {
    std::vector<float> a(33, nan), b(33, 2), out(33);
    void* data[] = {a.data(), b.data(), out.data()};
    BroadcastKernel(algorithm, {33}, {33}, {33})(data);
    ExpectClose(out, std::vector<double>(33, 2), 0);
    std::swap(data[0], data[1]);
    BroadcastKernel(algorithm, {33}, {33}, {33})(data);
    ExpectClose(out, std::vector<double>(33, nan), 0);
  }
  std::vector<float> a(17, infinity), b(17, -infinity), out(17);
  void* data[] = {a.data(), b.data(), out.data()};
  BroadcastKernel(Algorithm::binary_add, {17}, {17}, {17})(data);
  ExpectClose(out, std::vector<double>(17, nan), 0);
}

// As TVM's: it is forgotten but where it comes last, and what is below all finite numbers does not count.
TEST(Reduction, TheGreatestOfWhatIsNotANumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity(),
              lowest = std::numeric_limits<float>::lowest();
  const RowKernels& rows = BestRowKernels();
  // Two rows of three columns.
  const std::vector<float> in = {nan, 1, -infinity, 1, nan, -infinity};
  std::vector<float> out(3);
  rows.maximum_rows(in.data(), out.data(), 2, 3);
  ExpectClose(out, {1, nan, lowest}, 0);
  const std::vector<float> other = {nan, 1, infinity, 1, nan, infinity};
  rows.minimum_rows(other.data(), out.data(), 2, 3);
  ExpectClose(out, {1, nan, -lowest}, 0);
}

TEST(Broadcast, RefusesWhatIsNoSuchOperator) {
  EXPECT_THROW(BroadcastKernel(Algorithm::eltwise_relu, {1}, {1}, {1}), std::runtime_error);
}

struct Extent {
  int64_t outer, length, inner;
};
constexpr Extent kExtents[] = {{1, 1, 1},  {1, 15, 1}, {2, 16, 1}, {3, 17, 1},   {1, 1000, 1}, {40, 700, 1},
                               {1, 1, 33}, {2, 3, 15}, {3, 5, 16}, {300, 9, 17}, {7, 31, 32},  {1, 2, 40000}};

TEST(Reduce, SumMeanMaximumMinimum) {
  for (const Extent& e : kExtents) {
    std::vector<float> in = Sample(e.outer * e.length * e.inner, 3);
    for (const auto algorithm : {Algorithm::reduction_sum, Algorithm::reduction_mean,
                                 Algorithm::reduction_max, Algorithm::reduction_min}) {
      std::vector<float> out(e.outer * e.inner);
      std::vector<double> want;
      for (int64_t o = 0; o < e.outer; ++o) {
        for (int64_t i = 0; i < e.inner; ++i) {
          const auto at = [&](int64_t k) -> double { return in[(o * e.length + k) * e.inner + i]; };
          double value = at(0);
          for (int64_t k = 1; k < e.length; ++k) {
            value = algorithm == Algorithm::reduction_max   ? std::max(value, at(k))
                    : algorithm == Algorithm::reduction_min ? std::min(value, at(k))
                                                            : value + at(k);
          }
          want.push_back(algorithm == Algorithm::reduction_mean ? value / static_cast<double>(e.length)
                                                                : value);
        }
      }
      void* data[] = {in.data(), out.data()};
      ReduceKernel(algorithm, e.outer, e.length, e.inner)(data);
      ExpectClose(out, want, 2e-5, std::to_string(e.length) + " by " + std::to_string(e.inner));
    }
  }
}

TEST(Variance, OfRowsAndOfColumns) {
  for (const Extent& e : kExtents) {
    if (e.length < 2) continue;
    for (const int64_t divisor : {e.length, e.length - 1}) {
      std::vector<float> in = Sample(e.outer * e.length * e.inner, 4), mean(e.outer * e.inner);
      std::vector<double> want;
      for (int64_t o = 0; o < e.outer; ++o) {
        for (int64_t i = 0; i < e.inner; ++i) {
          const auto at = [&](int64_t k) -> double { return in[(o * e.length + k) * e.inner + i]; };
          double sum = 0, squares = 0;
          for (int64_t k = 0; k < e.length; ++k) sum += at(k);
          const double average = sum / static_cast<double>(e.length);
          for (int64_t k = 0; k < e.length; ++k) squares += (at(k) - average) * (at(k) - average);
          mean[o * e.inner + i] = static_cast<float>(average);
          want.push_back(squares / static_cast<double>(divisor));
        }
      }
      std::vector<float> out(e.outer * e.inner);
      void* data[] = {in.data(), mean.data(), out.data()};
      VarianceKernel(e.outer, e.length, e.inner, divisor)(data);
      ExpectClose(out, want, 2e-5);
    }
  }
}

}  // namespace
}  // namespace collage::onednn
