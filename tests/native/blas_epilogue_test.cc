// SPDX-License-Identifier: Apache-2.0
//
// What is done to a matrix product before others read it.
//
// ctest: levels
#include "blas_epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sample.h"

namespace collage {
namespace {

double Activated(double x, BlasActivation activation) {
  if (activation == BlasActivation::kRelu) return x > 0 ? x : 0;
  if (activation == BlasActivation::kGelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return x;
}

template <typename T>
void Check(int64_t rows, int64_t columns, int64_t gap, bool with_bias, bool with_residual,
           BlasActivation activation) {
  const int64_t ld = columns + gap;
  const auto convert = [](const std::vector<float>& list, double scale) {
    std::vector<T> result;
    for (const float one : list) result.push_back(static_cast<T>(scale * one));
    return result;
  };
  std::vector<T> values = convert(Sample(rows * ld, 1), 5);
  const std::vector<T> bias = convert(Sample(columns, 2), 1), residual = convert(Sample(rows * ld, 3), 1);
  std::vector<double> want(values.begin(), values.end());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      double x = want[r * ld + c];
      if (with_bias) x += bias[c];
      if (with_residual) x += residual[r * ld + c];
      want[r * ld + c] = Activated(x, activation);
    }
  }
  BlasEpilogue(values.data(), rows, columns, ld, with_bias ? bias.data() : nullptr,
               with_residual ? residual.data() : nullptr, activation);
  ExpectClose(std::vector<float>(values.begin(), values.end()), want, 2e-6,
              std::to_string(rows) + " by " + std::to_string(columns));
}

TEST(BlasEpilogue, AllThatCanBeDoneInBothTypes) {
  for (const int64_t columns : {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 2047, 2048, 2049}) {
    for (const auto activation : {BlasActivation::kNone, BlasActivation::kRelu, BlasActivation::kGelu}) {
      for (const bool with_bias : {false, true}) {
        for (const bool with_residual : {false, true}) {
          Check<float>(3, columns, 5, with_bias, with_residual, activation);
          Check<double>(2, columns, 1, with_bias, with_residual, activation);
        }
      }
    }
  }
}

// As it is: a relu makes 0 of what is not a number, and gelu goes to 0 and to x at both ends.
TEST(BlasEpilogue, AtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values(17, nan);
  values[1] = infinity;
  values[2] = -infinity;
  BlasEpilogue(values.data(), 1, 17, 17, nullptr, nullptr, BlasActivation::kRelu);
  std::vector<double> want(17, 0);
  want[1] = infinity;
  ExpectClose(values, want, 0);
  values.assign(17, 30);
  values[3] = -30;
  BlasEpilogue(values.data(), 1, 17, 17, nullptr, nullptr, BlasActivation::kGelu);
  want.assign(17, 30);
  want[3] = 0;
  ExpectClose(values, want, 1e-5);
}

}  // namespace
}  // namespace collage
