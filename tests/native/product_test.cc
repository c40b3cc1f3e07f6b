// SPDX-License-Identifier: Apache-2.0
//
// Tiles of products, the dense layers made of them, and attention.
//
// ctest: levels
#include "native/product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "native/attention.h"
#include "native/tile.h"
#include "sample.h"

namespace collage::native {
namespace {

TEST(Tile, EachSizeWithEachPost) {
  const VectorUnit& unit = BestVectorUnit();
  for (int rows = 1; rows <= kTileRows; ++rows) {
    for (int vectors = 1; vectors <= kTileVectors; ++vectors) {
      for (const int64_t length : {0, 1, 2, 33}) {
        const int64_t columns = vectors * unit.width, lda = length + 1, ldb = columns + 2, ldc = columns + 3;
        const std::vector<float> a = Sample(rows * lda, 1), b = Sample(std::max<int64_t>(1, length * ldb), 2),
                                 initial = Sample(columns, 3), operand = Sample(rows * ldc, 4),
                                 scales = Sample(rows, 5);
        std::vector<float> c(rows * ldc, 1e9F);
        const TilePost posts[] = {{TilePost::Kind::kLinear, 0.5F, 1, nullptr},
                                  {TilePost::Kind::kAdd, 0, 0, operand.data()},
                                  {TilePost::Kind::kRelu, 0.25F, 0, nullptr},
                                  {TilePost::Kind::kScale, 0, 0, scales.data()}};
        for (const bool full : {false, true}) {
          TileWork work;
          work.a = a.data();
          work.lda = lda;
          work.b = b.data();
          work.ldb = ldb;
          work.c = c.data();
          work.ldc = ldc;
          work.length = length;
          work.prefetch = a.data();
          if (full) {
            work.initial = initial.data();
            work.posts = posts;
            work.num_posts = 4;
          }
          unit.tiles[rows - 1][vectors - 1](work);
          std::vector<double> want(c.size(), 1e9F);
          for (int r = 0; r < rows; ++r) {
            for (int64_t x = 0; x < columns; ++x) {
              double sum = full ? initial[x] : 0;
              for (int64_t k = 0; k < length; ++k)
                sum += static_cast<double>(a[r * lda + k]) * b[k * ldb + x];
              if (full) {
                sum = 0.5 * sum + 1 + operand[r * ldc + x];
                if (!(sum > 0)) sum *= 0.25;
                sum *= scales[r];
              }
              want[r * ldc + x] = sum;
            }
          }
          ExpectClose(c, want, 1e-5, std::to_string(rows) + " rows, " + std::to_string(vectors) + " vectors");
        }
      }
    }
  }
}

TEST(Tile, PackTransposes) {
  const VectorUnit& unit = BestVectorUnit();
  for (const int64_t rows : {1, 3, 16, 17, 32}) {
    for (const int64_t columns : {1, 15, 16, 17, 40}) {
      for (const int64_t column_step : {1, 2}) {
        const int64_t row_step = columns * column_step + 1;
        const int64_t padded = (rows + unit.width - 1) / unit.width * unit.width;
        const std::vector<float> from = Sample(rows * row_step, 1);
        std::vector<float> to(columns * padded, 1e9F);
        unit.pack_transposed(from.data(), row_step, column_step, rows, columns, to.data(), padded);
        for (int64_t c = 0; c < columns; ++c) {
          for (int64_t r = 0; r < padded; ++r) {
            ASSERT_EQ(to[c * padded + r], r < rows ? from[r * row_step + c * column_step] : 0.0F);
          }
        }
      }
    }
  }
}

void CheckSoftmax(int64_t rows, int64_t length, bool masked, bool along) {
  const VectorUnit& unit = BestVectorUnit();
  const int64_t step = (length + unit.width - 1) / unit.width * unit.width;
  std::vector<float> scores(rows * step), sums(rows);
  const std::vector<float> values = Sample(rows * length, 1), mask = Sample(along ? rows * length : rows, 2);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < length; ++i) scores[r * step + i] = 20 * values[r * length + i];
  }
  SoftmaxWork work;
  work.scores = scores.data();
  work.rows = rows;
  work.step = step;
  work.length = length;
  work.scale = 0.5F;
  work.mask = masked ? mask.data() : nullptr;
  work.mask_step = along ? length : 1;
  work.mask_along = masked && along;
  work.inverse_sums = sums.data();
  unit.softmax(work);
  std::vector<double> want(scores.size(), 0), want_sums;
  for (int64_t r = 0; r < rows; ++r) {
    double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
    const auto at = [&](int64_t i) {
      const double extra = masked ? mask[along ? r * length + i : r] : 0;
      return 10.0 * values[r * length + i] + extra;
    };
    for (int64_t i = 0; i < length; ++i) greatest = std::max(greatest, at(i));
    for (int64_t i = 0; i < length; ++i) sum += want[r * step + i] = std::exp(at(i) - greatest);
    want_sums.push_back(1 / sum);
  }
  ExpectClose(scores, want, 2e-6, std::to_string(length) + " scores");
  ExpectClose(sums, want_sums, 2e-6);
}

TEST(Tile, Softmax) {
  for (const int64_t length : {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64}) {
    CheckSoftmax(3, length, false, false);
    CheckSoftmax(2, length, true, false);
    CheckSoftmax(2, length, true, true);
  }
}

// What no score reaches, a mask of -infinity, weighs nothing.
TEST(Tile, SoftmaxOfMinusInfinity) {
  const VectorUnit& unit = BestVectorUnit();
  std::vector<float> scores(unit.width, 0), sums(1), mask(unit.width, 0);
  mask[1] = -std::numeric_limits<float>::infinity();
  SoftmaxWork work;
  work.scores = scores.data();
  work.rows = 1;
  work.step = unit.width;
  work.length = 3;
  work.mask = mask.data();
  work.mask_step = unit.width;
  work.mask_along = true;
  work.inverse_sums = sums.data();
  unit.softmax(work);
  EXPECT_EQ(scores[0], 1);
  EXPECT_EQ(scores[1], 0);
  EXPECT_EQ(scores[2], 1);
  EXPECT_FLOAT_EQ(sums[0], 0.5F);
}

// One left side and weights of several widths; posts only where there is one result.
void CheckProduct(int64_t rows, int64_t length, const std::vector<int64_t>& columns, bool full, int threads) {
  int64_t all = 0;
  for (const int64_t one : columns) all += one;
  const auto weights = std::make_shared<PackedWeights>(length, all);
  const std::vector<float> left = Sample(rows * length, 1), operand = Sample(rows * columns[0], 2);
  std::vector<std::vector<float>> right, bias, results;
  for (size_t i = 0; i < columns.size(); ++i) {
    right.push_back(Sample(length * columns[i], 10 + static_cast<unsigned>(i)));
    bias.push_back(Sample(columns[i], 20 + static_cast<unsigned>(i)));
    results.emplace_back(rows * columns[i], 1e9F);
    // Stored as [columns, rows of the right side].
    weights->Add(right[i].data(), 1, length, columns[i], full ? bias[i].data() : nullptr);
  }
  std::vector<TilePost> posts;
  if (full && columns.size() == 1) {
    posts = {{TilePost::Kind::kAdd, 0, 0, nullptr}, {TilePost::Kind::kRelu, 0, 0, nullptr}};
  }
  std::vector<void*> data = {const_cast<float*>(left.data())};
  if (!posts.empty()) data.push_back(const_cast<float*>(operand.data()));
  for (auto& result : results) data.push_back(result.data());
  const PieceWork work = ProductKernel(weights, rows, columns, posts, threads);
  EXPECT_LE(work.pieces, threads);
  for (int piece = 0; piece < work.pieces; ++piece) work.work(data.data(), piece);
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<double> want;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns[i]; ++c) {
        double sum = full ? bias[i][c] : 0;
        for (int64_t k = 0; k < length; ++k)
          sum += static_cast<double>(left[r * length + k]) * right[i][c * length + k];
        if (!posts.empty()) sum = std::max(0.0, sum + operand[r * columns[i] + c]);
        want.push_back(sum);
      }
    }
    ExpectClose(results[i], want, 1e-4, std::to_string(rows) + " rows of " + std::to_string(length));
  }
}

TEST(Product, RowsAroundTheTiles) {
  for (const int64_t rows : {1, 7, 8, 9, 16, 17, 65}) {
    for (const int threads : {1, 2, 5}) {
      CheckProduct(rows, 31, {16}, true, threads);
      CheckProduct(rows, 16, {48}, false, threads);
    }
  }
}

TEST(Product, LongSumsAreWorkedOnInParts) {
  for (const int64_t length : {1, 255, 256, 257, 600}) CheckProduct(11, length, {32}, true, 2);
  CheckProduct(40, 3000, {16, 16}, false, 2);  // so long that few rows stay in the cache
}

TEST(Product, SeveralWeights) {
  CheckProduct(9, 20, {16, 48, 32}, true, 3);
  CheckProduct(33, 64, {64, 64, 64}, true, 4);
}

struct Sizes {
  int64_t batch, heads, queries, keys, size, value_size;
};

void CheckAttention(const Sizes& s, bool masked, bool mask_along, int threads) {
  AttentionShape shape;
  shape.batch = s.batch;
  shape.heads = s.heads;
  shape.queries = s.queries;
  shape.keys = s.keys;
  shape.size = s.size;
  shape.value_size = s.value_size;
  shape.scale = 0.5F;
  shape.masked = masked;
  // Heads side by side in a row, as they come from a dense layer; the keys once more transposed.
  shape.query = {s.queries * s.heads * s.size, s.size, s.heads * s.size, 1};
  shape.key = {s.heads * s.size * s.keys, s.size * s.keys, 1, s.keys};
  shape.value = {s.keys * s.heads * s.value_size, s.value_size, s.heads * s.value_size, 1};
  shape.result = {s.queries * s.heads * s.value_size, s.value_size, s.heads * s.value_size, 1};
  shape.mask = mask_along ? HeadSteps{s.keys, 0, 0, 1} : HeadSteps{s.queries, 0, 1, 0};
  const std::vector<float> query = Sample(s.batch * shape.query.batch, 1),
                           key = Sample(s.batch * shape.key.batch, 2),
                           value = Sample(s.batch * shape.value.batch, 3),
                           mask = Sample(s.batch * (mask_along ? s.keys : s.queries), 4);
  std::vector<float> result(s.batch * shape.result.batch, 1e9F);
  std::vector<char> scratch(AttentionScratch(shape, threads));
  std::vector<void*> data = {const_cast<float*>(query.data()), const_cast<float*>(key.data()),
                             const_cast<float*>(value.data())};
  if (masked) data.push_back(const_cast<float*>(mask.data()));
  data.push_back(result.data());
  data.push_back(scratch.data());
  const PieceWork work = AttentionKernel(shape, threads);
  EXPECT_LE(work.pieces, threads);
  for (int piece = 0; piece < work.pieces; ++piece) work.work(data.data(), piece);

  std::vector<double> want(result.size());
  const auto at = [](const HeadSteps& steps, int64_t n, int64_t h, int64_t i, int64_t j) {
    return n * steps.batch + h * steps.head + i * steps.row + j * steps.column;
  };
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t k = 0; k < s.keys; ++k) {
          double score = 0;
          for (int64_t i = 0; i < s.size; ++i) {
            score += static_cast<double>(query[at(shape.query, n, h, q, i)]) * key[at(shape.key, n, h, k, i)];
          }
          weights.push_back(std::exp(shape.scale * score + (masked ? mask[at(shape.mask, n, h, q, k)] : 0)));
          sum += weights.back();
        }
        for (int64_t v = 0; v < s.value_size; ++v) {
          double total = 0;
          for (int64_t k = 0; k < s.keys; ++k) total += weights[k] * value[at(shape.value, n, h, k, v)];
          want[at(shape.result, n, h, q, v)] = total / sum;
        }
      }
    }
  }
  ExpectClose(result, want, 1e-5,
              std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys, " +
                  std::to_string(threads) + " threads");
}

TEST(Attention, QueriesAndKeysAroundTheTiles) {
  for (const int64_t queries : {1, 7, 8, 9, 17}) {
    for (const int64_t keys : {1, 3, 15, 16, 17, 33, 65}) {
      CheckAttention({1, 2, queries, keys, 5, 16}, false, false, 2);
      CheckAttention({1, 1, queries, keys, 8, 32}, true, true, 3);
    }
  }
}

TEST(Attention, HeadsAndQueriesAmongThreads) {
  for (const int threads : {1, 2, 3, 4, 7}) {
    CheckAttention({2, 3, 13, 19, 16, 48}, true, false, threads);
    CheckAttention({1, 1, 64, 32, 64, 64}, false, false, threads);
    CheckAttention({2, 8, 3, 5, 16, 16}, true, true, threads);
  }
}

}  // namespace
}  // namespace collage::native
