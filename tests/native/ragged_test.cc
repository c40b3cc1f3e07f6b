// SPDX-License-Identifier: Apache-2.0
//
// Rows of tokens out of padded batches, and back; attention on them, sequence by sequence.
//
// ctest: levels kernel
#include "native/ragged.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "native/attention.h"
#include "sample.h"

namespace collage::native {
namespace {

// A byte for each place: the first ones of each sequence, or what stands between some.
std::vector<uint8_t> ValidOf(const std::vector<int64_t>& lengths, int64_t most, bool holes = false) {
  std::vector<uint8_t> valid(lengths.size() * most);
  for (size_t n = 0; n < lengths.size(); ++n) {
    for (int64_t i = 0; i < lengths[n]; ++i)
      valid[n * most + (holes ? most - 1 - i * most / lengths[n] : i)] = 1;
  }
  return valid;
}

void Do(const PieceWork& work, std::vector<void*> data) {
  // Pieces do not depend on one another.
  for (int piece = work.pieces; piece-- > 0;) work.work(data.data(), piece);
}

TEST(Ragged, TokensGoAndComeBack) {
  constexpr int64_t kLength = 7, kWidth = 5;
  for (const bool holes : {false, true}) {
    for (const int threads : {1, 3}) {
      const std::vector<uint8_t> valid = ValidOf({3, 0, 7, 1}, kLength, holes);
      const auto rows = std::make_shared<RaggedRows>(4, kLength);
      rows->Set(std::vector<uint8_t>(valid.size(), 1).data());  // of another call
      rows->Set(valid.data());
      ASSERT_EQ(rows->tokens(), 11);
      EXPECT_EQ(rows->begin(), (std::vector<int32_t>{0, 3, 3, 10, 11}));
      EXPECT_EQ(rows->LengthOf(2), 7);
      EXPECT_EQ(rows->together(), !holes);
      const int64_t padded = static_cast<int64_t>(valid.size()), packed = 16;
      std::vector<float> from = Sample(padded * kWidth, 1), tokens(packed * kWidth, 9), back(from.size(), 9),
                         cleared(from.size(), 9), wanted = from;
      for (int64_t row = 0; row < padded; ++row) {
        if (valid[row] == 0) std::fill_n(wanted.begin() + row * kWidth, kWidth, 0.0F);
      }
      Do(GatherTokens(rows, kWidth, packed, false, threads), {from.data(), tokens.data()});
      EXPECT_EQ(std::vector<float>(tokens.begin() + 11 * kWidth, tokens.end()),
                std::vector<float>(5 * kWidth, 0.0F));
      std::vector<float> turned(from.size()), by_place(tokens.size(), 9);
      for (int64_t row = 0; row < padded; ++row) {
        std::copy_n(&from[row * kWidth], kWidth, &turned[(row % kLength * 4 + row / kLength) * kWidth]);
      }
      Do(GatherTokens(rows, kWidth, packed, true, threads), {turned.data(), by_place.data()});
      EXPECT_EQ(by_place, tokens);
      Do(ScatterTokens(rows, kWidth, threads), {tokens.data(), back.data()});
      EXPECT_EQ(back, wanted);
      Do(ClearPadding(padded, kWidth, threads),
         {from.data(), const_cast<uint8_t*>(valid.data()), cleared.data()});
      EXPECT_EQ(cleared, wanted);
      Do(ClearPadding(padded, kWidth, threads),
         {from.data(), const_cast<uint8_t*>(valid.data()), from.data()});
      EXPECT_EQ(from, wanted);
    }
  }
}

enum class Masks { kNone, kTriangle, kEach };

// Query, key and value side by side in rows of tokens: what each sequence would give by itself. kEach has
// numbers for each sequence, head, query and key, in the midst of which tokens stand.
void CheckSequences(const std::vector<int64_t>& lengths, int64_t most, int threads, Masks masks) {
  constexpr int64_t kGroups = 2, kHeads = 3, kSize = 20, kUnits = kGroups * kHeads * kSize,
                    kWidth = 3 * kUnits;
  const auto rows = std::make_shared<RaggedRows>(static_cast<int64_t>(lengths.size()), most);
  const auto first = [&](int64_t n) { return masks == Masks::kEach ? (most - lengths[n]) / 2 : 0; };
  std::vector<uint8_t> valid(lengths.size() * most, 0);
  for (size_t n = 0; n < lengths.size(); ++n) {
    std::fill_n(valid.begin() + n * most + first(n), lengths[n], uint8_t{1});
  }
  rows->Set(valid.data());
  EXPECT_TRUE(rows->together());
  const int64_t tokens = rows->tokens();
  const std::vector<float> sides = Sample((tokens + 1) * kWidth, 1);
  std::vector<float> mask(most * most, 0.0F);
  for (int64_t q = 0; q < most; ++q) std::fill(&mask[q * most] + q + 1, &mask[q * most] + most, -1e9F);
  if (masks == Masks::kEach) mask = Sample(rows->batch() * kGroups * kHeads * most * most, 2);

  AttentionShape shape;
  shape.groups = kGroups;
  shape.heads = kHeads;
  shape.size = shape.value_size = kSize;
  shape.scale = 0.3F;
  shape.query = {1, kHeads * kSize, kSize, kWidth, 1, 0};
  shape.key = shape.value = shape.query;
  shape.key.begin = kUnits;
  shape.value.begin = 2 * kUnits;
  shape.result = {1, kHeads * kSize, kSize, kUnits, 1, 0};
  shape.num_masks = masks == Masks::kNone ? 0 : 1;
  if (masks == Masks::kEach) {
    const int64_t of_head = most * most;
    shape.masks[0].steps = {kGroups * kHeads * of_head, kHeads * of_head, of_head, most, 1, 0};
  } else if (masks == Masks::kTriangle) {
    shape.triangle = 0;
    shape.sees = 1;
    shape.beyond = -1e9F;
    shape.masks[0].steps = {0, 0, 0, most, 1, 0};
  }
  const auto result_of = [&](const AttentionShape& s, int by) {
    std::vector<float> result((tokens + 1) * kUnits, 7.0F);
    std::vector<char> scratch(AttentionScratch(s, by) + 1, 'x');
    const char guard = scratch.back();
    auto* const from = const_cast<float*>(sides.data());
    std::vector<void*> data = {from, from, from};
    if (masks != Masks::kNone) data.push_back(mask.data());
    data.push_back(result.data());
    data.push_back(scratch.data());
    const PieceWork work = AttentionKernel(s, by);
    EXPECT_LE(work.pieces, by);
    Do(work, data);
    EXPECT_EQ(scratch.back(), guard);
    return result;
  };

  AttentionShape ragged = shape;
  ragged.ragged = rows;
  ragged.batch = rows->batch();
  ragged.queries = ragged.keys = most;
  const std::vector<float> got = result_of(ragged, threads);
  std::vector<float> wanted(got.size(), 7.0F);
  for (int64_t n = 0; n < rows->batch(); ++n) {
    AttentionShape one = shape;
    one.queries = one.keys = lengths[n];
    for (HeadSteps* side : {&one.query, &one.key, &one.value, &one.result})
      side->begin += rows->begin()[n] * side->row;
    one.masks[0].steps.begin += n * one.masks[0].steps.batch + first(n) * (most + 1);
    if (lengths[n] == 0) continue;
    const std::vector<float> own = result_of(one, 1);
    std::copy(own.begin() + rows->begin()[n] * kUnits, own.begin() + rows->begin()[n + 1] * kUnits,
              wanted.begin() + rows->begin()[n] * kUnits);
  }
  EXPECT_EQ(got, wanted) << lengths.size() << " sequences, " << threads << " threads";
}

TEST(Ragged, AttentionGoesSequenceBySequence) {
  for (const int threads : {1, 2, 7}) {
    for (const Masks masks : {Masks::kNone, Masks::kTriangle, Masks::kEach}) {
      CheckSequences({5}, 9, threads, masks);
      CheckSequences({1, 1, 1}, 3, threads, masks);
      CheckSequences({0, 33, 0, 2, 17, 0}, 40, threads, masks);
      CheckSequences({600, 1, 20}, 601, threads, masks);  // more than a block of keys
      CheckSequences({0, 0}, 4, threads, masks);
    }
  }
}

}  // namespace
}  // namespace collage::native
