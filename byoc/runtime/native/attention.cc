// SPDX-License-Identifier: Apache-2.0
#include "native/attention.h"

#include <algorithm>

#include "native/gemm.h"
#include "native/level.h"

namespace collage::native {
namespace {

// Keys that are packed and used at a time; scores that are made at a time, which are to stay in the first
// cache beside a panel of keys.
constexpr int64_t kBlockKeys = 512;
constexpr int64_t kBlockScores = 12 * 1024;

// Whole cache lines, so that threads do not write to the same one.
int64_t Padded(int64_t count) { return DivideUp(count, 16) * 16; }

class Attention {
 public:
  Attention(const AttentionShape& shape, int threads)
      : s_(shape),
        level_(BestLevel()),
        block_(std::min(s_.keys, kBlockKeys)),
        step_(DivideUp(block_, level_.lanes) * level_.lanes),
        rows_(std::max(level_.gemm.rows, kBlockScores / step_ / level_.gemm.rows * level_.gemm.rows)),
        pack_values_(s_.value.column != 1 || s_.value_size % level_.lanes != 0) {
    // Heads are divided among the threads; where that leaves some without work, their queries, too. What is
    // divided packs the keys once more.
    const int64_t heads = s_.batch * s_.heads;
    tasks_ = std::min<int64_t>(threads, heads);
    if (heads % threads != 0 && heads < 4 * int64_t{threads}) {
      pieces_ = std::min<int64_t>(threads, DivideUp(s_.queries, level_.gemm.rows));
      tasks_ = std::min<int64_t>(threads, heads * pieces_);
    }
  }

  int64_t Scratch() const { return tasks_ * TaskScratch(); }
  int pieces() const { return static_cast<int>(tasks_); }

  void Run(void* const* data, int64_t task) const {
    const auto pointer = [data](int i) { return static_cast<const float*>(data[i]); };
    const int result = 3 + s_.num_masks;
    Memory memory(*this, static_cast<float*>(data[result + 1]) + task * TaskScratch());
    const int64_t units = s_.batch * s_.heads * pieces_;
    for (int64_t unit = units * task / tasks_; unit < units * (task + 1) / tasks_; ++unit) {
      const int64_t head = unit / pieces_, piece = unit % pieces_;
      const int64_t n = head / s_.heads, h = head % s_.heads;
      const auto offset = [n, h](const HeadSteps& steps) { return n * steps.batch + h * steps.head; };
      Head of;
      of.query = pointer(0) + offset(s_.query);
      of.key = pointer(1) + offset(s_.key);
      of.value = pointer(2) + offset(s_.value);
      for (int m = 0; m < s_.num_masks; ++m) of.masks[m] = pointer(3 + m) + offset(s_.masks[m]);
      of.result = static_cast<float*>(data[result]) + offset(s_.result);
      const int64_t tiles = DivideUp(s_.queries, level_.gemm.rows);
      const auto row = [&](int64_t part) {
        return std::min(tiles * part / pieces_ * level_.gemm.rows, s_.queries);
      };
      Queries(of, memory, row(piece), row(piece + 1));
    }
  }

 private:
  struct Head {
    const float *query, *key, *value;
    const float* masks[AttentionShape::kMostMasks];
    float* result;
  };

  // What a task works in: a block of keys and one of values, packed, scores, and what is kept of each query.
  struct Memory {
    Memory(const Attention& a, float* base)
        : keys(base),
          values(keys + a.PackedKeys()),
          scores(values + a.PackedValues()),
          factors(scores + Padded(a.rows_ * a.step_)),
          greatest(factors + Padded(a.rows_)),
          sums(greatest + Padded(a.s_.queries)) {}
    float *keys, *values, *scores, *factors, *greatest, *sums;
  };

  int64_t PackedKeys() const { return Padded(PackedElements(s_.size, block_)); }
  int64_t PackedValues() const { return pack_values_ ? Padded(PackedElements(block_, s_.value_size)) : 0; }
  int64_t TaskScratch() const {
    return PackedKeys() + PackedValues() + Padded(rows_ * step_) + Padded(rows_) + 2 * Padded(s_.queries);
  }

  // The queries top .. bottom - 1 of a head, all keys.
  void Queries(const Head& of, const Memory& memory, int64_t top, int64_t bottom) const {
    if (top >= bottom) return;
    // Blocks of keys of about the same size.
    const int64_t blocks = DivideUp(s_.keys, block_);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = s_.keys * b / blocks, count = s_.keys * (b + 1) / blocks - first;
      if (first > 0 && Visible(bottom - 1, first) <= 0) break;
      PackPanels(of.key + first * s_.key.row, s_.key.column, s_.key.row, s_.size, count, memory.keys);
      if (pack_values_) {
        PackPanels(of.value + first * s_.value.row, s_.value.row, s_.value.column, count, s_.value_size,
                   memory.values);
      }
      for (int64_t row = top; row < bottom; row += rows_) {
        Block(of, memory, row, std::min(bottom - row, rows_), first, count);
      }
    }
  }

  // How many keys from `first` on a query sees, if there are so many.
  int64_t Visible(int64_t query, int64_t first) const {
    return s_.causal ? query + s_.keys - s_.queries + 1 - first : s_.keys;
  }

  // So many queries from row `top` on, and the keys that are packed, those from `first` on.
  void Block(const Head& of, const Memory& memory, int64_t top, int64_t rows, int64_t first,
             int64_t packed) const {
    // Keys that none of the queries sees are left out; of the first block one is there for the sums' sake.
    int64_t count = std::min(packed, Visible(top + rows - 1, first));
    if (first == 0) count = std::max<int64_t>(count, 1);
    if (count <= 0) return;
    const bool last = first + count == s_.keys || (s_.causal && first + count >= Visible(top + rows - 1, 0));

    GemmWork work;
    work.left = of.query + top * s_.query.row;
    work.left_row = s_.query.row;
    work.length = s_.size;
    work.rows = rows;
    work.out_row = step_;
    for (int64_t column = 0; column < count; column += level_.gemm.panel) {
      work.right = memory.keys + column * s_.size;
      work.right_row = PanelWidth(column, packed);
      work.columns = std::min(level_.gemm.panel, count - column);
      work.out = memory.scores + column;
      level_.gemm.multiply(work);
    }

    SoftmaxWork softmax;
    softmax.scores = memory.scores;
    softmax.rows = rows;
    softmax.step = step_;
    softmax.length = count;
    if (s_.causal) softmax.visible = Visible(top, first);
    softmax.scale = s_.scale;
    for (int m = 0; m < s_.num_masks; ++m) {
      const HeadSteps& steps = s_.masks[m];
      softmax.masks[m] = {of.masks[m] + top * steps.row + first * steps.column, steps.row, steps.column};
    }
    softmax.first = first == 0;
    softmax.greatest = memory.greatest + top;
    softmax.sums = memory.sums + top;
    softmax.factors = memory.factors;
    level_.softmax(softmax);

    float* const result = of.result + top * s_.result.row;
    Post scale;
    scale.kind = Post::Kind::kRowScale;
    scale.operand = 0;
    if (first > 0 && std::any_of(memory.factors, memory.factors + rows, [](float f) { return f != 1; })) {
      const Operand factors{memory.factors, 1};
      Apply({result, s_.result.row, result, s_.result.row, rows, s_.value_size, &scale, 1, &factors});
    }
    if (last) {
      for (int64_t r = 0; r < rows; ++r) memory.factors[r] = 1.0F / memory.sums[top + r];
    }
    const Operand inverse{memory.factors, 1};
    work.left = memory.scores;
    work.left_row = step_;
    work.length = count;
    work.out_row = s_.result.row;
    work.initial_row = s_.result.row;
    work.posts = &scale;
    work.num_posts = last ? 1 : 0;
    work.operands = &inverse;
    for (int64_t column = 0; column < s_.value_size; column += level_.gemm.panel) {
      if (pack_values_) {
        work.right = memory.values + column * packed;
        work.right_row = PanelWidth(column, s_.value_size);
      } else {
        work.right = of.value + first * s_.value.row + column;
        work.right_row = s_.value.row;
      }
      work.columns = std::min(level_.gemm.panel, s_.value_size - column);
      work.out = result + column;
      work.initial = first > 0 ? work.out : nullptr;
      level_.gemm.multiply(work);
    }
  }

  const AttentionShape s_;
  const Level& level_;
  const int64_t block_;     // keys of a block, at most
  const int64_t step_;      // from row to row of the scores
  const int64_t rows_;      // queries whose scores are made at a time
  const bool pack_values_;  // else they are read as they lie, whole vectors
  int64_t pieces_ = 1;      // into which the queries of a head are divided
  int64_t tasks_ = 1;
};

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape, int threads) {
  return Attention(shape, threads).Scratch() * static_cast<int64_t>(sizeof(float));
}

PieceWork AttentionKernel(const AttentionShape& shape, int threads) {
  const Attention attention(shape, threads);
  return {attention.pieces(), [attention](void* const* data, int piece) { attention.Run(data, piece); }};
}

}  // namespace collage::native
