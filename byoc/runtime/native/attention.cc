// SPDX-License-Identifier: Apache-2.0
#include "native/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "native/gemm.h"
#include "native/level.h"

namespace collage::native {
namespace {

// Whole cache lines, so that threads do not write to the same one.
int64_t Padded(int64_t count) { return RoundUp(count, 16); }

class Attention {
 public:
  Attention(const AttentionShape& shape, int threads, const AttentionBlocking& blocking)
      : s_(shape),
        blocking_(blocking),
        level_(BestLevel()),
        block_(std::min(s_.keys, blocking.keys)),
        step_(RoundUp(block_, level_.lanes)),
        rows_(std::max(level_.gemm.rows, blocking.scores / step_ / level_.gemm.rows * level_.gemm.rows)),
        pack_values_(s_.value.column != 1 || s_.value_size % level_.lanes != 0) {
    // Heads are divided among the threads; where that leaves some without work, their queries, too. What is
    // divided packs the keys once more.
    const int64_t heads = Heads();
    tasks_ = std::min<int64_t>(threads, heads);
    if (s_.ragged != nullptr) return;
    if (heads % threads != 0 && heads < 4 * int64_t{threads}) {
      pieces_ = std::min<int64_t>(threads, DivideUp(s_.queries, level_.gemm.rows));
      tasks_ = std::min<int64_t>(threads, heads * pieces_);
    }
  }

  int64_t Scratch() const { return tasks_ * TaskScratch(); }
  int pieces() const { return static_cast<int>(tasks_); }

  void Run(void* const* data, int64_t task) const {
    float* const scratch = static_cast<float*>(data[3 + s_.num_masks + 1]) + task * TaskScratch();
    if (s_.ragged != nullptr) return RunRagged(data, task, scratch);
    const int64_t units = Heads() * pieces_;
    RunUnits(data, units * task / tasks_, units * (task + 1) / tasks_, scratch);
  }

 private:
  // Sequences are heads by heads of different lengths: tasks have about the same number of scores, each those
  // heads whose middle lies in its share.
  void RunRagged(void* const* data, int64_t task, float* scratch) const {
    const int64_t heads = s_.groups * s_.heads;
    const auto scores = [this](int64_t n) { return s_.ragged->LengthOf(n) * s_.ragged->LengthOf(n); };
    int64_t all = 0, before = 0;
    for (int64_t n = 0; n < s_.batch; ++n) all += heads * scores(n);
    const auto task_of = [&](int64_t n, int64_t head) {
      return (2 * (before + head * scores(n)) + scores(n)) * tasks_ / (2 * all);
    };
    for (int64_t n = 0; n < s_.batch; before += heads * scores(n++)) {
      const int64_t tokens = s_.ragged->LengthOf(n);
      if (tokens == 0) continue;
      int64_t first = 0, end = heads;
      while (first < heads && task_of(n, first) < task) ++first;
      while (end > first && task_of(n, end - 1) > task) --end;
      if (first == end) continue;
      AttentionShape one = s_;
      one.ragged = nullptr;
      one.batch = 1;
      one.queries = one.keys = tokens;
      for (HeadSteps* const side : {&one.query, &one.key, &one.value, &one.result}) {
        side->begin += s_.ragged->begin()[n] * side->row;
      }
      for (int m = 0; m < s_.num_masks; ++m) {
        HeadSteps& mask = one.masks[m].steps;
        mask.begin += n * mask.batch + s_.ragged->FirstPlace(n) * (mask.row + mask.column);
      }
      Attention(one, 1, blocking_).RunUnits(data, first, end, scratch);
    }
  }

  // Heads, or pieces of them.
  void RunUnits(void* const* data, int64_t begin, int64_t end, float* scratch) const {
    const auto pointer = [data](int i) { return static_cast<const float*>(data[i]); };
    const int result = 3 + s_.num_masks;
    Memory memory(*this, scratch);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t head = unit / pieces_, piece = unit % pieces_;
      const int64_t n = head / (s_.groups * s_.heads), g = head / s_.heads % s_.groups, h = head % s_.heads;
      const auto offset = [n, g, h](const HeadSteps& steps) {
        return steps.begin + n * steps.batch + g * steps.group + h * steps.head;
      };
      Head of;
      of.query = pointer(0) + offset(s_.query);
      of.key = pointer(1) + offset(s_.key);
      of.value = pointer(2) + offset(s_.value);
      for (int m = 0; m < s_.num_masks; ++m) {
        const int64_t from = offset(s_.masks[m].steps);
        if (s_.masks[m].chooses) {
          of.chosen[m] = static_cast<const uint8_t*>(data[3 + m]) + from;
        } else {
          of.added[m] = pointer(3 + m) + from;
        }
      }
      of.result = static_cast<float*>(data[result]) + offset(s_.result);
      const int64_t tiles = DivideUp(s_.queries, level_.gemm.rows);
      const auto row = [&](int64_t part) {
        return std::min(tiles * part / pieces_ * level_.gemm.rows, s_.queries);
      };
      const int64_t top = row(piece), bottom = row(piece + 1);
      if (top >= bottom) continue;
      if (s_.triangle != AttentionShape::kNoTriangle && top + s_.sees < s_.keys) {
        // What is beyond the triangle is left out, and done after all if that might be seen.
        const float beyond = GreatestBeyond(of, top, bottom);
        Queries(of, memory, top, bottom, true);
        if (NothingBeyond(memory, top, bottom, beyond)) continue;
      }
      Queries(of, memory, top, bottom, false);
    }
  }

  struct Head {
    const float *query, *key, *value;
    const float* added[AttentionShape::kMostMasks];
    const uint8_t* chosen[AttentionShape::kMostMasks];
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

  int64_t Heads() const { return s_.batch * s_.groups * s_.heads; }

  int64_t PackedKeys() const { return Padded(PackedElements(s_.size, block_)); }
  int64_t PackedValues() const { return pack_values_ ? Padded(PackedElements(block_, s_.value_size)) : 0; }
  int64_t TaskScratch() const {
    int64_t rows = rows_, scores = rows_ * step_;
    if (s_.ragged != nullptr) {  // of shorter sequences more rows are done at a time, but no more scores
      rows = std::max(level_.gemm.rows, blocking_.scores / level_.lanes);
      scores = std::max(scores, blocking_.scores);
    }
    return PackedKeys() + PackedValues() + Padded(scores) + Padded(rows) + 2 * Padded(s_.queries);
  }

  // The greatest of a matrix's numbers, or of their magnitudes.
  static float Over(float (*extreme)(const float*, int64_t, int64_t, int64_t), const float* from,
                    int64_t rows, int64_t columns, const HeadSteps& steps) {
    if (steps.row == 0) rows = 1;
    if (steps.column == 0) columns = 1;
    if (steps.column == 1 || columns == 1) return extreme(from, rows, columns, steps.row);
    if (steps.row == 1 || rows == 1) return extreme(from, columns, rows, steps.column);
    float all = extreme(from, columns, 1, steps.column);
    for (int64_t r = 1; r < rows; ++r) {
      const float row = extreme(from + r * steps.row, columns, 1, steps.column);
      if (!(row <= all)) all = row;
      if (std::isnan(all)) break;
    }
    return all;
  }

  // A bound of what the scores beyond the triangle of these queries are, after all masks; not a number where
  // there is none, or where the values there are such that they are seen in the result even with a weight of
  // 0.
  float GreatestBeyond(const Head& of, int64_t top, int64_t bottom) const {
    const ExtremeLoops& loops = level_.extremes;
    const int64_t first = std::max<int64_t>(top + s_.sees, 0), keys = s_.keys - first;
    const float values =
        Over(loops.magnitude, of.value + first * s_.value.row, keys, s_.value_size, s_.value);
    constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
    if (!std::isfinite(values)) return kNone;
    const bool chooses = s_.masks[s_.triangle].chooses;
    float greatest = s_.beyond;
    if (!chooses) {
      const float query =
          Over(loops.magnitude, of.query + top * s_.query.row, bottom - top, s_.size, s_.query);
      const float key = Over(loops.magnitude, of.key + first * s_.key.row, keys, s_.size, s_.key);
      // A little more for what is lost when the sums are rounded.
      greatest = 1.001F * std::abs(s_.scale) * static_cast<float>(s_.size) * query * key;
      if (!std::isfinite(greatest)) return kNone;
    }
    // What stands before a choice is replaced by it.
    for (int m = chooses ? s_.triangle : 0; m < s_.num_masks; ++m) {
      const AttentionMask& mask = s_.masks[m];
      if (m == s_.triangle) {
        greatest = chooses ? s_.beyond : greatest + s_.beyond;
      } else if (mask.chooses) {
        greatest = std::max(greatest, mask.fill);
      } else {
        greatest += Over(loops.greatest, of.added[m] + top * mask.steps.row + first * mask.steps.column,
                         bottom - top, keys, mask.steps);
      }
    }
    return greatest;
  }

  // Whether e to the power of scores that are no greater than this is nothing beside what each query has
  // seen.
  bool NothingBeyond(const Memory& memory, int64_t top, int64_t bottom, float beyond) const {
    constexpr float kNothing = -104;  // e to the power of it is less than half of the least float
    for (int64_t r = top; r < bottom && r + s_.sees < s_.keys; ++r) {
      if (!(beyond - memory.greatest[r] <= kNothing)) return false;
    }
    return true;
  }

  // The queries top .. bottom - 1 of a head, all keys, or only those of the triangle.
  void Queries(const Head& of, const Memory& memory, int64_t top, int64_t bottom, bool triangle) const {
    // Blocks of keys of about the same size.
    const int64_t blocks = DivideUp(s_.keys, block_);
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = s_.keys * b / blocks, count = s_.keys * (b + 1) / blocks - first;
      if (first > 0 && triangle && Visible(bottom - 1, first) <= 0) break;
      PackPanels(of.key + first * s_.key.row, s_.key.column, s_.key.row, s_.size, count, memory.keys);
      if (pack_values_) {
        PackPanels(of.value + first * s_.value.row, s_.value.row, s_.value.column, count, s_.value_size,
                   memory.values);
      }
      for (int64_t row = top; row < bottom; row += rows_) {
        Block(of, memory, row, std::min(bottom - row, rows_), first, count, triangle);
      }
    }
  }

  // How many keys from `first` on are in a query's row of the triangle, if there are so many.
  int64_t Visible(int64_t query, int64_t first) const { return query + s_.sees - first; }

  // So many queries from row `top` on, and the keys that are packed, those from `first` on.
  void Block(const Head& of, const Memory& memory, int64_t top, int64_t rows, int64_t first, int64_t packed,
             bool triangle) const {
    // Keys that none of the queries sees are left out; of the first block one is there for the sums' sake.
    int64_t count = packed;
    if (triangle) count = std::min(count, Visible(top + rows - 1, first));
    if (first == 0) count = std::max<int64_t>(count, 1);
    if (count <= 0) return;
    const bool last = first + count == s_.keys || (triangle && first + count >= Visible(top + rows - 1, 0));

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
    if (triangle) softmax.visible = Visible(top, first);
    softmax.scale = s_.scale;
    for (int m = 0; m < s_.num_masks; ++m) {
      if (triangle && m == s_.triangle) continue;  // of what it leaves it changes nothing
      const AttentionMask& mask = s_.masks[m];
      const int64_t from = top * mask.steps.row + first * mask.steps.column;
      ScoreMask& to = softmax.masks[softmax.num_masks++];
      if (mask.chooses) {
        to.chosen = of.chosen[m] + from;
        to.keeps = mask.keeps;
        to.fill = mask.fill;
      } else {
        to.added = of.added[m] + from;
      }
      to.row = mask.steps.row;
      to.column = mask.steps.column;
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
    if (!last || !s_.cleared) return;
    for (int64_t r = 0; r < rows; ++r) {
      if (!(memory.sums[top + r] > 0)) std::fill_n(result + r * s_.result.row, s_.value_size, 0.0F);
    }
  }

  const AttentionShape s_;
  const AttentionBlocking blocking_;
  const Level& level_;
  const int64_t block_;     // keys of a block, at most
  const int64_t step_;      // from row to row of the scores
  const int64_t rows_;      // queries whose scores are made at a time
  const bool pack_values_;  // else they are read as they lie, whole vectors
  int64_t pieces_ = 1;      // into which the queries of a head are divided
  int64_t tasks_ = 1;
};

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape, int threads, const AttentionBlocking& blocking) {
  return Attention(shape, threads, blocking).Scratch() * static_cast<int64_t>(sizeof(float));
}

PieceWork AttentionKernel(const AttentionShape& shape, int threads, const AttentionBlocking& blocking) {
  const Attention attention(shape, threads, blocking);
  return {attention.pieces(), [attention](void* const* data, int piece) { attention.Run(data, piece); }};
}

}  // namespace collage::native
