// SPDX-License-Identifier: Apache-2.0
//
// Batches of sequences of different lengths. Padded, a tensor has a row for each of so many places of each
// sequence, some of which stand for nothing. Packed, it has the rows of tokens alone, sequence behind
// sequence, and what works row by row need not know (P. Fegade et al., "The CoRa Tensor Compiler: Compilation
// for Ragged Tensors with Minimal Padding", MLSys 2022, where offsets are computed once, too).
#ifndef COLLAGE_NATIVE_RAGGED_H_
#define COLLAGE_NATIVE_RAGGED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "native/crew.h"

namespace collage::native {

// Where the tokens of a batch are.
class RaggedRows {
 public:
  static constexpr int32_t kPadding = -1;

  RaggedRows(int64_t batch, int64_t length)
      : batch_(batch), length_(length), place_(batch * length), begin_(batch + 1) {}

  // valid has a byte for each row of a padded tensor: 0 for padding.
  void Set(const uint8_t* valid);

  int64_t batch() const { return batch_; }
  int64_t length() const { return length_; }
  int64_t tokens() const { return static_cast<int64_t>(rows_.size()); }
  // For each row of a padded tensor its place in a packed one, or kPadding.
  const std::vector<int32_t>& place() const { return place_; }
  // The other way round: for each token its row in a padded tensor.
  const std::vector<int32_t>& rows() const { return rows_; }
  // The first token of each sequence, and behind the last one their number.
  const std::vector<int32_t>& begin() const { return begin_; }
  // Whether no sequence has padding between its tokens.
  bool together() const { return together_; }
  // The place of a sequence's first token; it has one.
  int64_t FirstPlace(int64_t sequence) const { return rows_[begin_[sequence]] - sequence * length_; }
  // How many tokens a sequence has.
  int64_t LengthOf(int64_t sequence) const { return begin_[sequence + 1] - begin_[sequence]; }

 private:
  int64_t batch_, length_;
  bool together_ = true;
  std::vector<int32_t> place_, rows_, begin_;
};

// data: a padded tensor, with rows of so many elements, and the packed one, which has `packed` rows: the
// tokens', and zeros behind them. turned: the padded tensor's rows go place by place, and not sequence by
// sequence.
PieceWork GatherTokens(std::shared_ptr<const RaggedRows> rows, int64_t width, int64_t packed, bool turned,
                       int threads);

// data: a packed tensor and the padded one, whose padding becomes 0.
PieceWork ScatterTokens(std::shared_ptr<const RaggedRows> rows, int64_t width, int threads);

// data: a padded tensor of so many rows, a byte for each of them, and the result, which has zeros in the
// place of rows whose byte is 0. It may lie where the tensor does.
PieceWork ClearPadding(int64_t rows, int64_t width, int threads);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_RAGGED_H_
