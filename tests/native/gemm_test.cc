// SPDX-License-Identifier: Apache-2.0
//
// The register tile that all products are made of, its panels, and what is done to results.
//
// ctest: levels kernel
#include "native/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "native/level.h"
#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kUntouched = 1e9F;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::string Named(const Post& post) { return "post " + std::to_string(static_cast<int>(post.kind)); }

// Rows around the tiles by columns around the vectors, with everything that can be asked for.
TEST(Gemm, RowsAndColumnsAroundTheTiles) {
  const int64_t panel = PanelColumns();
  for (int64_t rows = 1; rows <= 31; ++rows) {
    for (int64_t columns = 1; columns <= panel; columns += columns % BestLevel().lanes == 0 ? 1 : 3) {
      for (const int64_t length : {1, 5}) {
        const int64_t width = PanelWidth(0, columns), left_row = 3 * length + 1, out_row = columns + 3;
        const std::vector<float> left = Sample(rows * left_row, 1), right = Sample(3 * length * width, 2),
                                 initial = Sample(columns, 3), addend = Sample((rows + 2) * (columns + 5), 4),
                                 scales = Sample(rows + 2, 5);
        // Two segments, not in order.
        const GemmSegment segments[] = {{2 * length, length}, {0, 2 * length}};
        const Post posts[] = {{Post::Kind::kLinear, 0.5F, 1, -1},
                              {Post::Kind::kAdd, 0, 0, 0},
                              {Post::Kind::kRelu, 0.25F, 0, -1},
                              {Post::Kind::kRowScale, 0, 0, 1},
                              {Post::Kind::kClip, -1, 2, -1}};
        const Operand operands[] = {{addend.data(), columns + 4}, {scales.data(), 1}};
        for (const bool full : {false, true}) {
          std::vector<float> out(rows * out_row, kUntouched);
          GemmWork work;
          work.left = left.data();
          work.left_row = left_row;
          work.right = right.data();
          work.right_row = width;
          work.length = length;
          work.rows = rows;
          work.columns = columns;
          work.out = out.data();
          work.out_row = out_row;
          if (full) {
            work.segments = segments;
            work.num_segments = 2;
            work.initial = initial.data();
            work.posts = posts;
            work.num_posts = 5;
            work.operands = operands;
            work.row = 2;
            work.column = 1;
            work.ahead = right.data();
            work.ahead_size = static_cast<int64_t>(right.size());
          }
          Multiply(work);
          std::vector<double> want(out.size(), kUntouched);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < columns; ++c) {
              double sum = full ? initial[c] : 0;
              const auto add = [&](int64_t l, int64_t k) {
                sum += static_cast<double>(left[r * left_row + l]) * right[k * width + c];
              };
              for (int64_t k = 0; k < length; ++k) {
                if (!full) add(k, k);
                for (const GemmSegment& s : segments) {
                  if (full) add(s.left + k, s.right + k);
                }
              }
              for (const Post& post : posts) {
                const double operand =
                    post.operand == 0 ? addend[(r + 2) * (columns + 4) + c + 1] : scales[r + 2];
                if (full) sum = PostOf(post, sum, operand);
              }
              want[r * out_row + c] = sum;
            }
          }
          ExpectClose(out, want, 1e-5,
                      std::to_string(rows) + " rows, " + std::to_string(columns) + " columns");
        }
      }
    }
  }
}

TEST(Gemm, SumsBeginWithRowsOfTheirOwnOrNothing) {
  const int64_t columns = PanelColumns(), rows = 7;
  const std::vector<float> left = Sample(rows, 1), right = Sample(columns, 2);
  std::vector<float> out = Sample(rows * columns, 3);
  const std::vector<float> before = out;
  GemmWork work;
  work.left = left.data();
  work.left_row = 1;
  work.right = right.data();
  work.right_row = columns;
  work.length = 1;
  work.rows = rows;
  work.columns = columns;
  work.out = out.data();
  work.out_row = columns;
  work.initial = out.data();
  work.initial_row = columns;
  Multiply(work);
  std::vector<double> want;
  for (int64_t i = 0; i < rows * columns; ++i) {
    want.push_back(before[i] + static_cast<double>(left[i / columns]) * right[i % columns]);
  }
  ExpectClose(out, want, 1e-6);
  work.length = 0;
  work.initial = nullptr;
  Multiply(work);
  ExpectClose(out, std::vector<double>(out.size(), 0), 0);
}

TEST(Gemm, AllPanelsOfARightSide) {
  for (const int64_t columns : {1, 17, 64, 130}) {
    constexpr int64_t kRows = 9, kLength = 7;
    const int64_t out_row = columns + 2;
    const std::vector<float> left = Sample(kRows * kLength, 1), right = Sample(columns * kLength, 2),
                             bias = Sample(columns, 3), addend = Sample(kRows * columns, 4);
    std::vector<float> packed(PackedElements(kLength, columns)), out(kRows * out_row, kUntouched);
    PackPanels(right.data(), columns, 1, kLength, columns, packed.data());
    const Post add{Post::Kind::kAdd, 0, 0, 0};
    const Operand operand{addend.data(), columns};
    GemmWork work;
    work.left = left.data();
    work.left_row = kLength;
    work.right = packed.data();
    work.length = kLength;
    work.rows = kRows;
    work.columns = columns;
    work.initial = bias.data();
    work.out = out.data();
    work.out_row = out_row;
    work.posts = &add;
    work.num_posts = 1;
    work.operands = &operand;
    MultiplyPanels(work);
    std::vector<double> want(out.size(), kUntouched);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = static_cast<double>(bias[c]) + addend[r * columns + c];
        for (int64_t k = 0; k < kLength; ++k)
          sum += static_cast<double>(left[r * kLength + k]) * right[k * columns + c];
        want[r * out_row + c] = sum;
      }
    }
    ExpectClose(out, want, 1e-5, std::to_string(columns) + " columns");
  }
}

// Results whose vectors lie apart, as in blocks of channels.
TEST(Gemm, VectorsThatLieApart) {
  const int64_t lanes = BestLevel().lanes, vectors = PanelColumns() / lanes, rows = 3,
                apart = rows * lanes + 5;
  const std::vector<float> left(rows, 1), right = Sample(vectors * lanes, 2);
  std::vector<float> out(vectors * apart, kUntouched);
  GemmWork work;
  work.left = left.data();
  work.left_row = 1;
  work.right = right.data();
  work.right_row = vectors * lanes;
  work.length = 1;
  work.rows = rows;
  work.columns = vectors * lanes;
  work.out = out.data();
  work.out_row = lanes;
  work.out_vector = apart;
  Multiply(work);
  std::vector<double> want(out.size(), kUntouched);
  for (int64_t v = 0; v < vectors; ++v) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < lanes; ++c) want[v * apart + r * lanes + c] = right[v * lanes + c];
    }
  }
  ExpectClose(out, want, 0);
}

TEST(Gemm, PanelsOfRightSidesAsTheyLie) {
  for (const int64_t rows : {1, 3, 16, 17, 40}) {
    for (const int64_t columns : {1, 15, 16, 17, 64, 65, 100}) {
      for (const bool transposed : {false, true}) {
        for (const int64_t step : {1, 2}) {
          const int64_t row_step = transposed ? step : columns * step + 1;
          const int64_t column_step = transposed ? rows * step + 1 : step;
          const std::vector<float> from = Sample((rows - 1) * row_step + (columns - 1) * column_step + 1, 1);
          std::vector<float> packed(PackedElements(rows, columns), kUntouched);
          PackPanels(from.data(), row_step, column_step, rows, columns, packed.data());
          for (int64_t first = 0; first < columns; first += PanelColumns()) {
            const int64_t width = PanelWidth(first, columns);
            for (int64_t r = 0; r < rows; ++r) {
              for (int64_t c = 0; c < width; ++c) {
                ASSERT_EQ(packed[rows * first + r * width + c],
                          first + c < columns ? from[r * row_step + (first + c) * column_step] : 0.0F)
                    << rows << " rows, " << columns << " columns";
              }
            }
          }
        }
      }
    }
  }
}

// Numbers of all sizes, and what is none, through each post: by a product with 1, and alone.
void CheckPost(const Post& post, const std::vector<float>& numbers, double tolerance = 1e-6,
               double size = 1) {
  const auto count = static_cast<int64_t>(numbers.size());
  std::vector<double> want;
  for (const float x : numbers) want.push_back(PostOf(post, x));
  std::vector<float> out(numbers.size(), kUntouched);
  RowsWork rows;
  rows.in = numbers.data();
  rows.out = out.data();
  rows.rows = 1;
  rows.columns = count;
  rows.posts = &post;
  rows.num_posts = 1;
  Apply(rows);
  ExpectClose(out, want, tolerance, Named(post) + " of a row", size);

  std::fill(out.begin(), out.end(), kUntouched);
  const std::vector<float> one(BestLevel().lanes, 1);
  GemmWork work;
  work.left = numbers.data();
  work.left_row = 1;
  work.right = one.data();
  work.length = 1;
  work.rows = count;
  work.columns = 1;
  work.out = out.data();
  work.out_row = 1;
  work.posts = &post;
  work.num_posts = 1;
  Multiply(work);
  ExpectClose(out, want, tolerance, Named(post) + " of a product", size);
}

TEST(Posts, OfNumbersOfAllSizes) {
  std::vector<float> numbers = {0, 1e-40F, -1e-40F, 1e-30F, 5e37F, 87, 88, 89, 104, 3.9F, 4, 5.7F};
  for (float x = -30; x < 30; x += 0.37F) numbers.push_back(x);
  for (const Post& post : PostsWithoutOperand()) CheckPost(post, numbers);
  for (float& number : numbers) number = -number;
  for (const Post& post : PostsWithoutOperand()) CheckPost(post, numbers);
}

// Denormal numbers, and numbers whose powers of e are.
TEST(Posts, WithDenormalNumbers) {
  std::vector<float> numbers = Sample(37, 1, kDenormal);
  for (const Post& post : PostsWithoutOperand()) CheckPost(post, numbers, 1e-5, kDenormal);
  numbers.clear();
  for (float x = -110; x < -80; x += 0.3F) numbers.push_back(x);
  CheckPost({Post::Kind::kSigmoid, 0, 0, -1}, numbers, 1e-5, kDenormal);
  CheckPost({Post::Kind::kSilu, 1, 0, -1}, numbers, 1e-5, 100 * kDenormal);
}

TEST(Posts, OfWhatIsNotANumber) {
  for (const Post& post : PostsWithoutOperand()) {
    CheckPost(post, {kNan, 1, kNan, 2, kInfinity, 3, -kInfinity, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, kNan});
  }
}

TEST(Posts, RowsThatLieApart) {
  for (const int64_t columns : {1, 3, 4, 15, 16, 17, 63, 64, 65, 130}) {
    constexpr int64_t kRows = 3;
    const int64_t in_row = columns + 1, out_row = columns + 2, add_row = columns + 4;
    const std::vector<float> in = Sample(kRows * in_row, 1), addend = Sample(kRows * add_row, 2);
    std::vector<float> out(kRows * out_row, kUntouched);
    const Post posts[] = {{Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kClip, -0.5F, 0.75F, -1}};
    const Operand operand{addend.data(), add_row};
    Apply({in.data(), in_row, out.data(), out_row, kRows, columns, posts, 2, &operand});
    std::vector<double> want(out.size(), kUntouched);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        want[r * out_row + c] =
            PostOf(posts[1], static_cast<double>(in[r * in_row + c]) + addend[r * add_row + c]);
      }
    }
    ExpectClose(out, want, 1e-6, std::to_string(columns) + " columns");
  }
}

// Products and what lies as it is, times an operand, and times one row of it: a factor for each column.
TEST(Posts, TimesAnOperand) {
  constexpr int64_t kRows = 17, kLength = 3;
  for (const int64_t columns : {1, 3, 4, 15, 16, 17, 63, 64}) {
    if (columns > PanelColumns()) break;
    const int64_t width = PanelWidth(0, columns);
    const std::vector<float> left = Sample(kRows * kLength, 1), right = Sample(kLength * width, 2),
                             factors = Sample(kRows * columns, 3);
    const Post posts[] = {{Post::Kind::kMultiply, 0, 0, 0}, {Post::Kind::kLinear, 2, 0.5F, -1}};
    for (const int64_t row : {int64_t{0}, columns}) {
      const Operand operand{factors.data(), row};
      std::vector<float> made(kRows * columns), applied(kRows * columns);
      GemmWork work;
      work.left = left.data();
      work.left_row = kLength;
      work.right = right.data();
      work.right_row = width;
      work.length = kLength;
      work.rows = kRows;
      work.columns = columns;
      work.out = made.data();
      work.out_row = columns;
      Multiply(work);
      const std::vector<float> in = made;
      Apply({in.data(), columns, applied.data(), columns, kRows, columns, posts, 2, &operand});
      work.posts = posts;
      work.num_posts = 2;
      work.operands = &operand;
      Multiply(work);
      std::vector<double> want(made.size());
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < columns; ++c) {
          want[r * columns + c] =
              PostOf(posts[1], PostOf(posts[0], in[r * columns + c], factors[r * row + c]));
        }
      }
      ExpectClose(made, want, 1e-6, "product, " + std::to_string(columns) + " columns");
      ExpectClose(applied, want, 1e-6, "rows, " + std::to_string(columns) + " columns");
    }
  }
}

}  // namespace
}  // namespace collage::native
