// SPDX-License-Identifier: Apache-2.0
//
// Products with a matrix that is read as it lies.
//
// ctest: levels kernel
#include "native/unpacked.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "native/level.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kUntouched = 1e9F;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A product whose rows lie apart on all sides, in vectors that end with the last element, so that the address
// sanitizer sees what is read beyond it.
struct Sides {
  // transposed: the right side lies as [columns, length].
  Sides(int64_t rows, int64_t length, int64_t columns, bool transposed, const Magnitudes& magnitudes = {}) {
    work.rows = rows;
    work.length = length;
    work.columns = columns;
    work.left_row = length + 1;
    work.right_row = transposed ? 1 : columns + 2;
    work.right_column = transposed ? length + 2 : 1;
    work.out_row = columns + 3;
    left = Sample(std::max<int64_t>(0, (rows - 1) * work.left_row + length), 1, magnitudes.data);
    right = Sample(length == 0 ? 0 : (length - 1) * work.right_row + (columns - 1) * work.right_column + 1, 2,
                   magnitudes.weights);
  }

  float& Left(int64_t r, int64_t k) { return left[r * work.left_row + k]; }
  float& Right(int64_t k, int64_t c) { return right[k * work.right_row + c * work.right_column]; }

  void Check(int64_t block, double tolerance = 1e-5, double size = 1) {
    std::vector<float> out((work.rows - 1) * work.out_row + work.columns, kUntouched);
    std::vector<double> want(out.size(), kUntouched);
    for (int64_t r = 0; r < work.rows; ++r) {
      for (int64_t c = 0; c < work.columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < work.length; ++k) sum += static_cast<double>(Left(r, k)) * Right(k, c);
        want[r * work.out_row + c] = sum;
      }
    }
    work.left = left.data();
    work.right = right.data();
    work.out = out.data();
    MultiplyUnpacked(work, block);
    ExpectClose(out, want, tolerance,
                std::to_string(work.rows) + " rows of " + std::to_string(work.length) + ", " +
                    std::to_string(work.columns) + " columns, " +
                    (work.right_row == 1 ? "transposed" : "blocks of " + std::to_string(block)),
                size);
  }

  UnpackedWork work;
  std::vector<float> left, right;
};

TEST(Unpacked, ColumnsAroundTheVectors) {
  for (const bool transposed : {false, true}) {
    for (int64_t columns = 1; columns <= 70; ++columns) {
      for (const int64_t rows : {1, 2, 4, 7}) Sides(rows, 19, columns, transposed).Check(16);
    }
  }
}

TEST(Unpacked, LengthsAroundTheVectorsAndBlocks) {
  for (const bool transposed : {false, true}) {
    for (int64_t length = 0; length <= 70; ++length) {
      for (const int64_t rows : {1, 2, 4}) Sides(rows, length, 21, transposed).Check(16);
    }
  }
}

TEST(Unpacked, AnyNumberOfRows) {
  for (const bool transposed : {false, true}) {
    for (int64_t rows = 1; rows <= 17; ++rows) Sides(rows, 33, 83, transposed).Check(16);
  }
}

TEST(Unpacked, AnyBlock) {
  for (const int64_t block : {1, 2, 3, 5, 8, 64, 1000}) Sides(3, 61, 40, false).Check(block);
}

TEST(Unpacked, OneOfEach) {
  for (const bool transposed : {false, true}) Sides(1, 1, 1, transposed).Check(16);
}

// What is not a number stays in its row, or column, wherever in a vector, a set or a block it lies.
TEST(Unpacked, OfWhatIsNotANumber) {
  for (const bool transposed : {false, true}) {
    for (const float number : {kNan, kInfinity, -kInfinity}) {
      for (const int64_t at : {0, 15, 16, 20, 36}) {
        for (const int64_t rows : {1, 2, 3, 4}) {
          Sides sides(rows, 37, 37, transposed);
          sides.Left(rows - 1, at) = number;
          sides.Check(16);
          sides = Sides(rows, 37, 37, transposed);
          sides.Right(at, at) = number;
          sides.Check(16);
          // Infinities of both signs, and one that meets a zero, make no number.
          sides.Right(5, at) = -number;
          sides.Left(0, at) = 0;
          sides.Check(16);
        }
      }
    }
  }
}

TEST(Unpacked, OfDenormalNumbers) {
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) {
    for (const bool transposed : {false, true}) {
      for (const int64_t rows : {1, 2, 4}) {
        Sides(rows, 37, 37, transposed, magnitudes).Check(16, 1e-5, magnitudes.results());
      }
    }
  }
}

}  // namespace
}  // namespace collage::native
