// SPDX-License-Identifier: Apache-2.0
#include "native/ragged.h"

#include <algorithm>
#include <utility>

namespace collage::native {
namespace {

// Calls body(row) for the piece's share of so many rows.
template <typename Body>
void ShareOf(int64_t rows, int piece, int pieces, const Body& body) {
  const int64_t end = rows * (piece + 1) / pieces;
  for (int64_t row = rows * piece / pieces; row < end; ++row) body(row);
}

}  // namespace

void RaggedRows::Set(const uint8_t* valid) {
  rows_.clear();
  together_ = true;
  for (int64_t n = 0; n < batch_; ++n) {
    begin_[n] = static_cast<int32_t>(rows_.size());
    for (int64_t row = n * length_; row < (n + 1) * length_; ++row) {
      place_[row] = kPadding;
      if (valid[row] == 0) continue;
      place_[row] = static_cast<int32_t>(rows_.size());
      if (place_[row] > begin_[n] && rows_.back() != row - 1) together_ = false;
      rows_.push_back(static_cast<int32_t>(row));
    }
  }
  begin_[batch_] = static_cast<int32_t>(rows_.size());
}

PieceWork GatherTokens(std::shared_ptr<const RaggedRows> rows, int64_t width, int64_t packed, bool turned,
                       int threads) {
  const auto pieces = static_cast<int>(std::min<int64_t>(threads, packed));
  return {pieces, [rows = std::move(rows), width, packed, turned, pieces](void* const* data, int piece) {
            const auto* const from = static_cast<const float*>(data[0]);
            auto* const to = static_cast<float*>(data[1]);
            ShareOf(packed, piece, pieces, [&](int64_t token) {
              if (token >= rows->tokens()) {
                std::fill_n(to + token * width, width, 0.0F);
                return;
              }
              int64_t row = rows->rows()[token];
              if (turned) row = row % rows->length() * rows->batch() + row / rows->length();
              std::copy_n(from + row * width, width, to + token * width);
            });
          }};
}

PieceWork ScatterTokens(std::shared_ptr<const RaggedRows> rows, int64_t width, int threads) {
  const int64_t padded = rows->batch() * rows->length();
  const auto pieces = static_cast<int>(std::min<int64_t>(threads, padded));
  return {pieces, [rows = std::move(rows), width, padded, pieces](void* const* data, int piece) {
            const auto* const from = static_cast<const float*>(data[0]);
            auto* const to = static_cast<float*>(data[1]);
            ShareOf(padded, piece, pieces, [&](int64_t row) {
              const int64_t place = rows->place()[row];
              if (place == RaggedRows::kPadding) {
                std::fill_n(to + row * width, width, 0.0F);
              } else {
                std::copy_n(from + place * width, width, to + row * width);
              }
            });
          }};
}

PieceWork ClearPadding(int64_t rows, int64_t width, int threads) {
  const auto pieces = static_cast<int>(std::min<int64_t>(threads, rows));
  return {pieces, [rows, width, pieces](void* const* data, int piece) {
            const auto* const from = static_cast<const float*>(data[0]);
            const auto* const valid = static_cast<const uint8_t*>(data[1]);
            auto* const to = static_cast<float*>(data[2]);
            ShareOf(rows, piece, pieces, [&](int64_t row) {
              if (valid[row] == 0) {
                std::fill_n(to + row * width, width, 0.0F);
              } else if (from != to) {
                std::copy_n(from + row * width, width, to + row * width);
              }
            });
          }};
}

}  // namespace collage::native
