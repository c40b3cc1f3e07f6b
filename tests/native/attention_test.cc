// SPDX-License-Identifier: Apache-2.0
//
// Attention, and the softmax of rows that come block by block.
//
// ctest: levels kernel
#include "native/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "native/divide_up.h"
#include "native/level.h"
#include "sample.h"

namespace collage::native {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The weights of a row, by its scores: as TVM's softmax has them.
std::vector<double> Weights(const std::vector<double>& scores) {
  double greatest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const double score : scores) greatest = score > greatest ? score : greatest;
  std::vector<double> weights;
  for (const double score : scores) {
    weights.push_back(std::exp(score - greatest));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

// Rows of scores in blocks of so many at a time; the weights by the powers, the factors and the sums.
void CheckSoftmax(const std::vector<float>& scores, int64_t block, int masks, bool along, float scale = 0.5F,
                  double tolerance = 2e-6, double size = 1) {
  const Level& level = BestLevel();
  constexpr int64_t kRows = 3;
  const auto length = static_cast<int64_t>(scores.size());
  const std::vector<float> first = Sample(kRows * length, 1), second = Sample(kRows * length, 2);
  std::vector<float> greatest(kRows), sums(kRows), factors(kRows), got(kRows * length);
  for (int64_t begin = 0; begin < length; begin += block) {
    const int64_t count = std::min(block, length - begin);
    const int64_t step = RoundUp(count, level.lanes) + level.lanes;
    std::vector<float> powers(kRows * step, 1e9F);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < count; ++i)
        powers[r * step + i] = scores[begin + i] * static_cast<float>(r + 1);
    }
    SoftmaxWork work;
    work.scores = powers.data();
    work.rows = kRows;
    work.step = step;
    work.length = count;
    work.scale = scale;
    work.num_masks = masks;
    if (masks > 0) {
      work.masks[0].added = first.data() + (along ? begin : 0);
      work.masks[0].row = length;
      work.masks[0].column = along ? 1 : 0;
    }
    if (masks > 1) {
      work.masks[1].added = second.data() + begin;
      work.masks[1].column = 1;
    }
    work.first = begin == 0;
    work.greatest = greatest.data();
    work.sums = sums.data();
    work.factors = factors.data();
    level.softmax(work);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < begin; ++i) got[r * length + i] *= factors[r];
      for (int64_t i = 0; i < count; ++i) got[r * length + begin + i] = powers[r * step + i];
      for (int64_t i = count; i < step - level.lanes; ++i) EXPECT_EQ(powers[r * step + i], 0);
    }
  }
  std::vector<double> want;
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<double> row;
    for (int64_t i = 0; i < length; ++i) {
      double score = static_cast<double>(scores[i] * static_cast<float>(r + 1)) * scale;
      if (masks > 0) score += first[r * length + (along ? i : 0)];
      if (masks > 1) score += second[i];
      row.push_back(score);
      got[r * length + i] *= 1.0F / sums[r];
    }
    const std::vector<double> weights = Weights(row);
    want.insert(want.end(), weights.begin(), weights.end());
  }
  ExpectClose(got, want, tolerance, std::to_string(length) + " scores in blocks of " + std::to_string(block),
              size);
}

TEST(Softmax, InBlocksAndMasked) {
  for (const int64_t length : {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 64}) {
    std::vector<float> scores = Sample(length, 3);
    for (float& score : scores) score *= 20;
    for (const int64_t block : {length, int64_t{5}, int64_t{16}}) {
      CheckSoftmax(scores, block, 0, false);
      CheckSoftmax(scores, block, 1, false);
      CheckSoftmax(scores, block, 1, true);
      CheckSoftmax(scores, block, 2, true);
    }
  }
}

// Of denormal scores, and of scores whose powers of e are denormal: the weights of those are, too.
TEST(Softmax, OfDenormalNumbers) {
  for (const int64_t block : {40, 16, 5}) {
    CheckSoftmax(Sample(40, 3, kDenormal), block, 0, false, 1);
    std::vector<float> scores;
    for (int i = 0; i < 40; ++i) scores.push_back(i == 7 ? 0 : -80 - static_cast<float>(i) * 0.75F);
    CheckSoftmax(scores, block, 0, false, 1, 2e-5, kDenormal);
  }
}

TEST(Softmax, OfWhatIsNotANumber) {
  const std::vector<std::vector<float>> rows = {
      {kNan, 1, 2, 3, 4, 5, 6},
      {1, 2, 3, 4, 5, 6, kNan},
      {kInfinity, 1, 2, 3, 4, 5, 6},
      {1, 2, kInfinity, kInfinity, 5, 6, 7},
      {-kInfinity, 1, 2, 3, 4, 5, 6},
      {-kInfinity, -kInfinity, -kInfinity, -kInfinity, 1, 2, 3},  // a whole block
      {1, 2, -kInfinity, -kInfinity, -kInfinity, -kInfinity, 3},
      std::vector<float>(7, -kInfinity),
      {-3e38F, 3e38F, 0, 0, 0, 0, 0},
  };
  for (const auto& row : rows) {
    for (const int64_t block : {7, 4, 2}) CheckSoftmax(row, block, 0, false, 1.0F / 3);
  }
}

TEST(Softmax, RowsSeeAsMuchAsTheyMay) {
  const Level& level = BestLevel();
  const int64_t length = 2 * level.lanes + 1, step = 3 * level.lanes;
  for (const int64_t visible : {int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{level.lanes}, length}) {
    std::vector<float> scores(4 * step, 1), greatest(4), sums(4), factors(4);
    SoftmaxWork work;
    work.scores = scores.data();
    work.rows = 4;
    work.step = step;
    work.length = length;
    work.visible = visible;
    work.greatest = greatest.data();
    work.sums = sums.data();
    work.factors = factors.data();
    level.softmax(work);
    for (int64_t r = 0; r < 4; ++r) {
      const int64_t seen = std::clamp<int64_t>(visible + r, 0, length);
      EXPECT_EQ(sums[r], static_cast<float>(seen));
      for (int64_t i = 0; i < step; ++i) EXPECT_EQ(scores[r * step + i], i < seen ? 1 : 0) << i;
    }
  }
}

// Scores that are chosen, before and behind something that is added.
TEST(Softmax, KeepsOrReplacesScores) {
  const Level& level = BestLevel();
  constexpr int64_t kRows = 2;
  for (const int64_t length : {1, 3, 7, 8, 15, 16, 17, 40}) {
    for (int form = 0; form < 16; ++form) {
      const bool keeps = (form & 1) != 0, along = (form & 2) != 0, last = (form & 4) != 0;
      const float fill = (form & 8) != 0 ? -kInfinity : 0.25F;
      const int64_t step = DivideUp(length, level.lanes) * level.lanes;
      std::vector<float> scores(kRows * step, 1e9F), added = Sample(length, 7);
      const std::vector<float> raw = Sample(kRows * length, 6);
      std::vector<uint8_t> chosen(kRows * length);
      for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = i % 3 == 0 ? 0 : static_cast<uint8_t>(i % 5 + 1);
      std::vector<float> greatest(kRows), sums(kRows), factors(kRows);
      std::vector<double> want, got;
      for (int64_t r = 0; r < kRows; ++r) {
        std::vector<double> row;
        for (int64_t i = 0; i < length; ++i) {
          scores[r * step + i] = raw[r * length + i];
          const bool kept = (chosen[r * length + (along ? i : 0)] != 0) == keeps;
          const double x = raw[r * length + i];
          row.push_back(last ? (kept ? x + added[i] : fill) : (kept ? x : fill) + added[i]);
        }
        const std::vector<double> weights = Weights(row);
        want.insert(want.end(), weights.begin(), weights.end());
      }
      SoftmaxWork work;
      work.scores = scores.data();
      work.rows = kRows;
      work.step = step;
      work.length = length;
      work.num_masks = 2;
      ScoreMask &choice = work.masks[last ? 1 : 0], &sum = work.masks[last ? 0 : 1];
      choice.chosen = chosen.data();
      choice.keeps = keeps;
      choice.fill = fill;
      choice.row = length;
      choice.column = along ? 1 : 0;
      sum.added = added.data();
      sum.column = 1;
      work.greatest = greatest.data();
      work.sums = sums.data();
      work.factors = factors.data();
      level.softmax(work);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t i = 0; i < length; ++i)
          got.push_back(scores[r * step + i] / static_cast<double>(sums[r]));
      }
      ExpectClose({got.begin(), got.end()}, want, 2e-6,
                  std::to_string(length) + " scores, form " + std::to_string(form));
    }
  }
}

TEST(Extremes, OfRows) {
  const ExtremeLoops& loops = BestLevel().extremes;
  for (const int64_t columns : {1, 3, 8, 16, 17, 33}) {
    const int64_t step = columns + 3;
    std::vector<float> data = Sample(5 * step, 8);
    for (float& x : data) x -= 2;
    data[2 * step + columns] = 9;  // between the rows
    float greatest = -kInfinity, magnitude = 0;
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t i = 0; i < columns; ++i) {
        greatest = std::max(greatest, data[r * step + i]);
        magnitude = std::max(magnitude, std::abs(data[r * step + i]));
      }
    }
    EXPECT_EQ(loops.greatest(data.data(), 5, columns, step), greatest);
    EXPECT_EQ(loops.magnitude(data.data(), 5, columns, step), magnitude);
    EXPECT_EQ(loops.greatest(data.data(), 0, columns, step), -kInfinity);
    float& one = data[3 * step + columns - 1];
    one = -kInfinity;
    EXPECT_EQ(loops.magnitude(data.data(), 5, columns, step), kInfinity);
    one = kNan;
    data[0] = kInfinity;
    EXPECT_TRUE(std::isnan(loops.greatest(data.data(), 5, columns, step)));
    EXPECT_TRUE(std::isnan(loops.magnitude(data.data(), 5, columns, step)));
  }
}

struct Sizes {
  int64_t batch, heads, queries, keys, size, value_size;
  int64_t groups = 1;
};

enum Masks { kNone = 0, kOfKeys = 1, kOfRows = 2, kBoth = 3, kCausal = 4, kCausalChosen = 8 };

// What is not plain of an attention.
struct Unusual {
  float beyond = -kInfinity;  // what a triangle adds, or replaces scores by
  float scale = 0.5F;
  // A number of the last value, or key, that is not like the others.
  float last_value = 0.5F, last_key = 0.5F;
  float values = 1;  // how large they are
  // Weights that are no numbers become 0.
  bool cleared = false;
};

void CheckAttention(const Sizes& s, int masks, int threads, const Unusual& unusual = {}) {
  AttentionShape shape;
  shape.batch = s.batch;
  shape.groups = s.groups;
  shape.heads = s.heads;
  shape.queries = s.queries;
  shape.keys = s.keys;
  shape.size = s.size;
  shape.value_size = s.value_size;
  shape.scale = unusual.scale;
  shape.cleared = unusual.cleared;
  // Heads side by side in a row, as they come from a dense layer; the keys once more transposed. The heads of
  // a group share them, and the values, which lie behind something else.
  const int64_t heads = s.groups * s.heads, shared = s.groups > 1 ? 0 : 1;
  const int64_t others = shared == 0 ? s.groups : heads;
  constexpr int64_t kBegin = 3;
  shape.query = {s.queries * heads * s.size, s.heads * s.size, s.size, heads * s.size, 1};
  shape.key = {others * s.size * s.keys, s.size * s.keys, shared * s.size * s.keys, 1, s.keys};
  shape.value = {
      s.keys * others * s.value_size, s.value_size, shared * s.value_size, others * s.value_size, 1, kBegin};
  shape.result = {s.queries * heads * s.value_size, s.heads * s.value_size, s.value_size,
                  heads * s.value_size, 1};
  // One for all heads and queries of a sequence; one for each score of a head, the same for all sequences.
  std::vector<std::vector<float>> masked;
  std::vector<uint8_t> chosen(s.queries * s.keys);
  const auto add = [&](const HeadSteps& steps, std::vector<float> values) {
    shape.masks[shape.num_masks++].steps = steps;
    masked.push_back(std::move(values));
  };
  if ((masks & kOfKeys) != 0) add({s.keys, 0, 0, 0, 1}, Sample(s.batch * s.keys, 4));
  if ((masks & kOfRows) != 0) {
    add({0, 0, s.queries * s.keys, s.keys, 1}, Sample(s.heads * s.queries * s.keys, 5));
  }
  const auto sees = [&](int64_t q, int64_t k) { return k <= q + s.keys - s.queries; };
  if ((masks & (kCausal | kCausalChosen)) != 0) {
    shape.triangle = shape.num_masks;
    shape.sees = 1 + s.keys - s.queries;
    shape.beyond = unusual.beyond;
    add({0, 0, 0, s.keys, 1}, std::vector<float>(s.queries * s.keys));
    for (int64_t q = 0; q < s.queries; ++q) {
      for (int64_t k = 0; k < s.keys; ++k) {
        chosen[q * s.keys + k] = sees(q, k) ? 0 : 7;
        masked.back()[q * s.keys + k] = sees(q, k) ? 0 : unusual.beyond;
      }
    }
    AttentionMask& mask = shape.masks[shape.triangle];
    mask.chooses = (masks & kCausalChosen) != 0;
    mask.keeps = false;
    mask.fill = unusual.beyond;
  }
  std::vector<float> query = Sample(s.batch * shape.query.batch, 1),
                     key = Sample(s.batch * shape.key.batch, 2),
                     value = Sample(s.batch * shape.value.batch + kBegin, 3, unusual.values);
  key.back() = unusual.last_key;
  value.back() = unusual.last_value;
  std::vector<float> result(s.batch * shape.result.batch, 1e9F);
  std::vector<char> scratch(AttentionScratch(shape, threads));
  std::vector<void*> data = {const_cast<float*>(query.data()), const_cast<float*>(key.data()),
                             const_cast<float*>(value.data())};
  for (int m = 0; m < shape.num_masks; ++m) {
    data.push_back(shape.masks[m].chooses ? static_cast<void*>(chosen.data()) : masked[m].data());
  }
  data.push_back(result.data());
  data.push_back(scratch.data());
  const PieceWork work = AttentionKernel(shape, threads);
  EXPECT_LE(work.pieces, threads);
  for (int piece = 0; piece < work.pieces; ++piece) work.work(data.data(), piece);

  std::vector<double> want(result.size());
  const auto at = [&s](const HeadSteps& steps, int64_t n, int64_t h, int64_t i, int64_t j) {
    return steps.begin + n * steps.batch + h / s.heads * steps.group + h % s.heads * steps.head +
           i * steps.row + j * steps.column;
  };
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        std::vector<double> scores;
        for (int64_t k = 0; k < s.keys; ++k) {
          double score = 0;
          for (int64_t i = 0; i < s.size; ++i) {
            score += static_cast<double>(query[at(shape.query, n, h, q, i)]) * key[at(shape.key, n, h, k, i)];
          }
          score *= shape.scale;
          for (int m = 0; m < shape.num_masks; ++m) {
            if (!shape.masks[m].chooses) {
              // What is added to -1e9 is lost.
              score = static_cast<float>(score) + masked[m][at(shape.masks[m].steps, n, h, q, k)];
            } else if (!sees(q, k)) {
              score = unusual.beyond;
            }
          }
          scores.push_back(score);
        }
        std::vector<double> weights = Weights(scores);
        for (double& weight : weights) {
          if (unusual.cleared && std::isnan(weight)) weight = 0;
        }
        for (int64_t v = 0; v < s.value_size; ++v) {
          double total = 0;
          for (int64_t k = 0; k < s.keys; ++k) total += weights[k] * value[at(shape.value, n, h, k, v)];
          want[at(shape.result, n, h, q, v)] = total;
        }
      }
    }
  }
  // Of scores of tens of thousands floats have three decimals.
  ExpectClose(result, want, std::abs(unusual.scale) > 1 ? 3e-2 : 2e-5,
              std::to_string(s.queries) + " queries, " + std::to_string(s.keys) + " keys, " +
                  std::to_string(threads) + " threads, masks " + std::to_string(masks),
              unusual.values);
}

TEST(Attention, QueriesAndKeysAroundTheTiles) {
  for (const int64_t queries : {1, 5, 6, 7, 13, 17}) {
    for (const int64_t keys : {1, 3, 15, 16, 17, 33, 65}) {
      CheckAttention({1, 2, queries, keys, 5, 16}, kNone, 2);
      CheckAttention({1, 1, queries, keys, 8, 32}, kOfKeys, 3);
      CheckAttention({2, 2, queries, keys, 8, 32}, kBoth, 3);
    }
  }
}

TEST(Attention, HeadsOfAnySize) {
  for (const int64_t size : {1, 3, 15, 17, 40, 65}) {
    CheckAttention({1, 2, 9, 20, size, size}, kOfRows, 1);
    CheckAttention({1, 2, 9, 20, 7, size}, kNone, 2);
  }
}

TEST(Attention, HeadsAndQueriesAmongThreads) {
  for (const int threads : {1, 2, 3, 4, 7}) {
    CheckAttention({2, 3, 13, 19, 16, 48}, kOfRows, threads);
    CheckAttention({1, 1, 64, 32, 64, 64}, kCausal, threads);
    CheckAttention({2, 3, 13, 19, 16, 8, 2}, kOfKeys | kCausalChosen, threads);
    CheckAttention({2, 8, 3, 5, 16, 16}, kOfKeys, threads);
  }
}

// More keys than a block has.
// Queries that see no key, and scores that are no numbers.
TEST(Attention, ClearsWhatIsNoNumber) {
  Unusual unusual;
  unusual.cleared = true;
  for (const int threads : {1, 3}) {
    CheckAttention({2, 3, 9, 5, 8, 16}, kCausal, threads, unusual);
    CheckAttention({1, 1, 40, 3, 8, 7}, kCausalChosen, threads, unusual);
    CheckAttention({1, 2, 20, 20, 8, 16}, kBoth, threads, unusual);
    for (const float last : {kNan, kInfinity, -kInfinity}) {
      unusual.last_key = last;
      CheckAttention({1, 2, 5, 1300, 4, 8}, kNone, threads, unusual);
      CheckAttention({1, 2, 5, 7, 4, 8}, kOfKeys, threads, unusual);
      unusual.last_key = 0.5F;
    }
  }
}

TEST(Attention, ManyKeys) {
  for (const int64_t keys : {512, 513, 1100}) {
    CheckAttention({1, 1, 20, keys, 8, 24}, kNone, 1);
    CheckAttention({1, 2, 19, keys, 8, 16}, kBoth, 3);
  }
  CheckAttention({1, 1, 700, 1200, 4, 16}, kCausal, 2);
}

TEST(Attention, QueriesSeeWhatIsBeforeThem) {
  for (const int64_t queries : {1, 7, 40}) {
    for (const int64_t keys : {1, 7, 40, 600})
      for (const int triangle : {kCausal, kCausalChosen}) {
        // Where there are fewer keys than queries, some queries see none.
        for (const float beyond : {-kInfinity, -1e9F, keys < queries ? -1e8F : -1e4F}) {
          CheckAttention({1, 2, queries, keys, 6, 16}, triangle | kOfKeys, 2, {beyond});
          CheckAttention({1, 2, queries, keys, 6, 16}, triangle, 1, {beyond});
        }
      }
  }
}

// What is left out of a triangle is done after all where it can be seen.
TEST(Attention, WhatIsBeyondATriangleMayBeSeen) {
  for (const int triangle : {kCausal, kCausalChosen}) {
    for (const float beyond : {-kInfinity, std::numeric_limits<float>::lowest(), -1e4F, -1.0F, 0.0F, 3.0F}) {
      for (const int64_t tokens : {7, 40, beyond == -1e4F ? 530 : 9}) {
        const Sizes sizes{1, 2, tokens, tokens, 6, 16};
        CheckAttention(sizes, triangle, 2, {beyond});
        CheckAttention(sizes, triangle | kOfRows, 2, {beyond});
        CheckAttention(sizes, triangle, 2, {beyond, 2e4F});
        CheckAttention(sizes, triangle, 2, {beyond, -2e4F});
        for (const float odd : {kNan, kInfinity, -kInfinity}) {
          CheckAttention(sizes, triangle, 1, {beyond, 0.5F, odd});
          CheckAttention(sizes, triangle, 1, {beyond, 0.5F, 0.5F, odd});
        }
      }
    }
  }
}

TEST(Attention, OfDenormalValues) {
  Unusual unusual;
  unusual.values = unusual.last_value = kDenormal;
  for (const int64_t keys : {3, 17, 600}) {
    CheckAttention({1, 2, 9, keys, 8, 24}, kNone, 1, unusual);
    CheckAttention({1, 2, 9, keys, 8, 16}, kBoth, 2, unusual);
  }
}

TEST(Attention, HeadsOfGroupsShareKeys) {
  for (const int64_t groups : {2, 3}) {
    for (const int masks : {int{kNone}, int{kBoth}, int{kCausal}})
      CheckAttention({2, 4, 9, 20, 8, 16, groups}, masks, 3);
  }
}

TEST(Attention, ScratchDoesNotGrowWithTheKeys) {
  AttentionShape shape;
  shape.queries = 64;
  shape.size = shape.value_size = 64;
  shape.keys = 4096;
  const int64_t some = AttentionScratch(shape, 2);
  shape.keys = 1 << 20;
  EXPECT_EQ(AttentionScratch(shape, 2), some);
}

}  // namespace
}  // namespace collage::native
