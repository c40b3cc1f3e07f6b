// SPDX-License-Identifier: Apache-2.0
//
// A matrix times a vector.
//
// ctest: levels threads kernel
#include "native/matvec.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "sample.h"

namespace collage::native {
namespace {

void Check(int64_t rows, int64_t columns, bool with_bias, const Magnitudes& magnitudes = {}) {
  const std::vector<float> matrix = Sample(rows * columns, 1, magnitudes.weights),
                           vector = Sample(columns, 2, magnitudes.data),
                           bias = Sample(rows, 3, magnitudes.results());
  std::vector<double> want;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = with_bias ? bias[r] : 0;
    for (int64_t c = 0; c < columns; ++c) sum += static_cast<double>(matrix[r * columns + c]) * vector[c];
    want.push_back(sum);
  }
  std::vector<float> result(rows);
  MatrixTimesVector(matrix.data(), vector.data(), with_bias ? bias.data() : nullptr, result.data(), rows,
                    columns);
  ExpectClose(result, want, 1e-4, std::to_string(rows) + " by " + std::to_string(columns),
              magnitudes.results());
}

TEST(MatVec, ShapesAroundTheVectors) {
  for (const int64_t rows : {1, 3, 15, 16, 17, 33}) {
    for (const int64_t columns : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67}) {
      Check(rows, columns, false);
      Check(rows, columns, true);
    }
  }
}

TEST(MatVec, LargeOnesAreDividedAmongThreads) {
  Check(1000, 517, true);
  Check(37, 9001, true);
  Check(4099, 64, false);
}

TEST(MatVec, OfDenormalNumbers) {
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    for (const int64_t columns : {1, 7, 16, 33, 67, 300}) Check(18, columns, columns % 2 == 0, magnitudes);
  }
}

TEST(MatVec, WhatIsNotANumberStays) {
  std::vector<float> matrix(2 * 33, 1), vector(33, 1), result(2);
  matrix[32] = std::numeric_limits<float>::quiet_NaN();
  matrix[33] = std::numeric_limits<float>::infinity();
  MatrixTimesVector(matrix.data(), vector.data(), nullptr, result.data(), 2, 33);
  ExpectClose(result, {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}, 0);
}

TEST(MatVec, WhatIsNotANumberIsCountedOnce) {
  // 3 elements behind the last whole vector: it is read again from there on, the infinity before it is not.
  constexpr int64_t kColumns = 35;
  std::vector<float> matrix(2 * kColumns, 1), vector(kColumns, 1), result(2);
  matrix[31] = std::numeric_limits<float>::infinity();
  vector[30] = 0;
  matrix[kColumns + 30] = 0;
  matrix[kColumns + 34] = -std::numeric_limits<float>::infinity();
  MatrixTimesVector(matrix.data(), vector.data(), nullptr, result.data(), 2, kColumns);
  const double infinity = std::numeric_limits<double>::infinity();
  ExpectClose(result, {infinity, -infinity}, 0);
  vector[30] = std::numeric_limits<float>::infinity();
  matrix.assign(2 * kColumns, 1);
  MatrixTimesVector(matrix.data(), vector.data(), nullptr, result.data(), 2, kColumns);
  ExpectClose(result, {infinity, infinity}, 0);
}

}  // namespace
}  // namespace collage::native
