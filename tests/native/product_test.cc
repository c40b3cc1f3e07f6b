// SPDX-License-Identifier: Apache-2.0
//
// Dense layers, and batches of products.
//
// ctest: levels kernel
#include "native/product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "post_reference.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How large the numbers are, and one that stands once in each side, no number or an infinity.
struct Content {
  Magnitudes magnitudes;
  float left = 0, right = 0;  // 0: none

  std::vector<float> Left(int64_t count, unsigned seed) const {
    return With(left, Sample(count, seed, magnitudes.data));
  }
  std::vector<float> Right(int64_t count, unsigned seed) const {
    return With(right, Sample(count, seed, magnitudes.weights));
  }
  std::vector<float> Result(int64_t count, unsigned seed) const {
    return Sample(count, seed, magnitudes.results());
  }

 private:
  static std::vector<float> With(float number, std::vector<float> of) {
    if (number != 0) of[of.size() / 2] = number;
    return of;
  }
};

// Numbers that are none, infinities of both signs, and denormal ones.
std::vector<Content> OddContents() {
  std::vector<Content> all = {
      {{}, kNan, 0}, {{}, 0, kNan}, {{}, kInfinity, 0}, {{}, 0, -kInfinity}, {{}, kInfinity, -kInfinity}};
  for (const Magnitudes& magnitudes : kDenormalMagnitudes) all.push_back({magnitudes, 0, 0});
  return all;
}

// One left side and weights of several widths; posts only where there is one result.
void CheckProduct(int64_t rows, int64_t length, const std::vector<int64_t>& columns, bool full, int threads,
                  const Content& content = {}) {
  const auto weights = std::make_shared<PackedWeights>(length, columns);
  const std::vector<float> left = content.Left(rows * length, 1),
                           operand = content.Result(rows * columns[0], 2);
  std::vector<std::vector<float>> right, bias, results;
  for (size_t i = 0; i < columns.size(); ++i) {
    right.push_back(content.Right(length * columns[i], 10 + static_cast<unsigned>(i)));
    bias.push_back(content.Result(columns[i], 20 + static_cast<unsigned>(i)));
    results.emplace_back(rows * columns[i], 1e9F);
    // Stored as [columns, rows of the right side].
    weights->Add(right[i].data(), 1, length, full ? bias[i].data() : nullptr);
  }
  std::vector<Post> posts;
  if (full && columns.size() == 1) {
    posts = {{Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kRelu, 0, 0, -1}, {Post::Kind::kGelu, 0, 0, -1}};
  }
  std::vector<void*> data = {const_cast<float*>(left.data())};
  if (!posts.empty()) data.push_back(const_cast<float*>(operand.data()));
  for (auto& result : results) data.push_back(result.data());
  const PieceWork work = ProductKernel(weights, rows, posts, threads);
  EXPECT_LE(work.pieces, threads);
  for (int piece = 0; piece < work.pieces; ++piece) work.work(data.data(), piece);
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<double> want;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns[i]; ++c) {
        double sum = full ? bias[i][c] : 0;
        for (int64_t k = 0; k < length; ++k)
          sum += static_cast<double>(left[r * length + k]) * right[i][c * length + k];
        for (const Post& post : posts) {
          sum = PostOf(post, sum, post.operand >= 0 ? operand[r * columns[i] + c] : 0);
        }
        want.push_back(sum);
      }
    }
    ExpectClose(results[i], want, 1e-4, std::to_string(rows) + " rows of " + std::to_string(length),
                content.magnitudes.results());
  }
}

TEST(Product, RowsAroundTheTiles) {
  for (const int64_t rows : {1, 5, 6, 7, 13, 14, 15, 65}) {
    for (const int threads : {1, 2, 5}) {
      CheckProduct(rows, 31, {16}, true, threads);
      CheckProduct(rows, 16, {130}, false, threads);
    }
  }
}

TEST(Product, ColumnsAroundTheVectors) {
  for (const int64_t columns : {1, 3, 15, 17, 31, 33, 63, 65, 100}) CheckProduct(20, 9, {columns}, true, 2);
}

TEST(Product, LongSumsAreWorkedOnInParts) {
  for (const int64_t length : {1, 1023, 1024, 1025, 2500}) CheckProduct(11, length, {32}, true, 2);
  CheckProduct(100, 3000, {16, 16}, false, 2);  // so long that few rows stay in the cache
}

TEST(Product, SeveralWeights) {
  CheckProduct(9, 20, {16, 48, 7}, true, 3);
  CheckProduct(33, 64, {64, 64, 64}, true, 4);
}

TEST(Product, OfWhatIsNotANumberAndOfDenormalNumbers) {
  for (const Content& content : OddContents()) {
    for (const int64_t rows : {1, 7, 15}) {
      CheckProduct(rows, 33, {70}, true, 2, content);
      CheckProduct(rows, 1100, {17}, false, 1, content);
    }
  }
}

// The same kernel on more and fewer rows.
TEST(Product, RowsAreFreeAtRunTime) {
  constexpr int64_t kLength = 40, kColumns = 70;
  auto weights = std::make_shared<PackedWeights>(kLength, std::vector<int64_t>{kColumns});
  const std::vector<float> right = Sample(kLength * kColumns, 1);
  weights->Add(right.data(), kColumns, 1, nullptr);
  const Product product(weights, {});
  for (const int64_t rows : {1, 300, 17}) {
    const int64_t left_row = kLength + 3;
    const std::vector<float> left = Sample(rows * left_row, 2);
    std::vector<float> result(rows * kColumns, 1e9F);
    float* results[] = {result.data()};
    Product::Arguments a;
    a.rows = rows;
    a.left = left.data();
    a.left_row = left_row;
    a.results = results;
    for (int piece = 0; piece < product.Pieces(rows, 3); ++piece) product.Run(a, piece, 3);
    std::vector<double> want;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < kColumns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < kLength; ++k)
          sum += static_cast<double>(left[r * left_row + k]) * right[k * kColumns + c];
        want.push_back(sum);
      }
    }
    ExpectClose(result, want, 1e-5, std::to_string(rows) + " rows");
  }
}

void CheckBatch(int64_t batch, int64_t rows, int64_t length, int64_t columns, bool transposed, bool shared,
                int threads, const Content& content = {}) {
  const float shift = content.magnitudes.results();
  BatchProduct b;
  b.batch = batch;
  b.length = length;
  b.columns = columns;
  b.left_row = length + 1;
  b.left_batch = rows * b.left_row;
  b.right_row = transposed ? 1 : columns;
  b.right_column = transposed ? length : 1;
  b.right_batch = shared ? 0 : length * columns;
  b.result_row = columns + 2;
  b.result_batch = rows * b.result_row;
  b.posts = {{Post::Kind::kAdd, 0, 0, 0}, {Post::Kind::kLinear, 0.5F, shift, -1}};
  const std::vector<float> left = content.Left(batch * b.left_batch, 1),
                           right = content.Right(batch * length * columns, 2),
                           addend = content.Result(batch * rows * columns, 3);
  std::vector<float> result(batch * b.result_batch, 1e9F), scratch(b.Scratch(threads));
  const Operand operand{addend.data(), columns};
  BatchProduct::Arguments a;
  a.rows = rows;
  a.left = left.data();
  a.right = right.data();
  a.result = result.data();
  a.operands = &operand;
  a.operand_rows = rows;
  a.scratch = scratch.data();
  const int pieces = b.Pieces(rows, threads);
  EXPECT_LE(pieces, threads);
  for (int piece = 0; piece < pieces; ++piece) b.Run(a, piece, pieces);
  std::vector<double> want(result.size(), 1e9F);
  for (int64_t i = 0; i < batch; ++i) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = addend[(i * rows + r) * columns + c];
        for (int64_t k = 0; k < length; ++k) {
          sum += static_cast<double>(left[i * b.left_batch + r * b.left_row + k]) *
                 right[i * b.right_batch + k * b.right_row + c * b.right_column];
        }
        want[i * b.result_batch + r * b.result_row + c] = 0.5 * sum + shift;
      }
    }
  }
  ExpectClose(result, want, 1e-5,
              std::to_string(batch) + " times " + std::to_string(rows) + " rows, " + std::to_string(columns) +
                  " columns, " + std::to_string(threads) + " threads",
              content.magnitudes.results());
}

TEST(BatchProduct, AllStepsAmongThreads) {
  for (const int threads : {1, 2, 5}) {
    for (const bool transposed : {false, true}) {
      CheckBatch(1, 1, 1, 1, transposed, false, threads);
      CheckBatch(3, 20, 17, 33, transposed, false, threads);
      CheckBatch(2, 7, 64, 130, transposed, true, threads);
      CheckBatch(1, 50, 20, 16, transposed, false, threads);  // fewer panels than threads
      CheckBatch(1, 8, 20, 16, transposed, false, threads);   // the same, with few rows
      for (const int64_t rows : {8, 9}) CheckBatch(3, rows, 65, 150, transposed, false, threads);
    }
  }
}

// With few rows, whose right sides are read as they lie, and with more.
TEST(BatchProduct, OfWhatIsNotANumberAndOfDenormalNumbers) {
  for (const Content& content : OddContents()) {
    for (const bool transposed : {false, true}) {
      for (const int64_t rows : {1, 3, 20}) CheckBatch(3, rows, 37, 37, transposed, false, 2, content);
    }
  }
}

}  // namespace
}  // namespace collage::native
