// SPDX-License-Identifier: Apache-2.0
#include "native/attention.h"

#include <algorithm>

#include "native/tile.h"
#include "native/workspace.h"

namespace collage::native {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Whole vectors, and whole cache lines, so that threads do not write to the same one.
int64_t Padded(int64_t count) { return DivideUp(count, 16) * 16; }

class Attention {
 public:
  Attention(const AttentionShape& shape, int threads)
      : s_(shape), unit_(BestVectorUnit()), padded_(DivideUp(shape.keys, unit_.width) * unit_.width) {
    // Heads are divided among the threads; where that leaves some without work, their queries, too. What is
    // divided packs the keys once more.
    const int64_t heads = s_.batch * s_.heads;
    tasks_ = std::min<int64_t>(threads, heads);
    if (heads % threads != 0 && heads < 4 * int64_t{threads}) {
      pieces_ = std::min<int64_t>(threads, DivideUp(s_.queries, kTileRows));
      tasks_ = std::min<int64_t>(threads, heads * pieces_);
    }
  }

  // Elements that one task works in: the keys of a head, transposed, the scores of a tile of queries, and the
  // inverse sums.
  int64_t TaskScratch() const {
    return Padded(s_.size * padded_) + Padded(kTileRows * padded_) + Padded(kTileRows);
  }
  int64_t Scratch() const { return tasks_ * TaskScratch(); }

  int pieces() const { return static_cast<int>(tasks_); }

  void Run(void* const* data, int64_t task) const {
    const auto* query = static_cast<const float*>(data[0]);
    const auto* key = static_cast<const float*>(data[1]);
    const auto* value = static_cast<const float*>(data[2]);
    const float* mask = s_.masked ? static_cast<const float*>(data[3]) : nullptr;
    void* const* rest = data + (s_.masked ? 4 : 3);
    auto* result = static_cast<float*>(rest[0]);
    float* keys = static_cast<float*>(rest[1]) + task * TaskScratch();
    const int64_t units = s_.batch * s_.heads * pieces_;
    int64_t packed = -1;
    for (int64_t unit = units * task / tasks_; unit < units * (task + 1) / tasks_; ++unit) {
      const int64_t head = unit / pieces_, piece = unit % pieces_;
      const int64_t n = head / s_.heads, h = head % s_.heads;
      const auto at = [n, h](auto* data_of, const HeadSteps& steps) {
        return data_of == nullptr ? nullptr : data_of + n * steps.batch + h * steps.head;
      };
      if (packed != head) Pack(at(key, s_.key), keys);
      packed = head;
      const int64_t tiles = DivideUp(s_.queries, kTileRows);
      for (int64_t tile = tiles * piece / pieces_; tile < tiles * (piece + 1) / pieces_; ++tile) {
        Tile(at(query, s_.query), keys, at(value, s_.value), at(mask, s_.mask), at(result, s_.result),
             s_.queries * tile / tiles, s_.queries * (tile + 1) / tiles);
      }
    }
  }

 private:
  // The columns of a panel of scores.
  int64_t PanelWidth(int64_t column, int64_t columns) const {
    return std::min<int64_t>(int64_t{unit_.width} * kTileVectors, columns - column);
  }

  // The keys as the right side of a product: panels of [size, width].
  void Pack(const float* key, float* keys) const {
    for (int64_t first = 0; first < padded_;) {
      const int64_t width = PanelWidth(first, padded_);
      unit_.pack_transposed(key + first * s_.key.row, s_.key.row, s_.key.column, s_.keys - first, s_.size,
                            keys + first * s_.size, width);
      first += width;
    }
  }

  void Tile(const float* query, const float* keys, const float* value, const float* mask, float* result,
            int64_t top, int64_t bottom) const {
    float* scores = const_cast<float*>(keys) + Padded(s_.size * padded_);
    float* sums = scores + Padded(kTileRows * padded_);
    const TileFunction* functions = unit_.tiles[bottom - top - 1];
    TileWork work;
    work.a = query + top * s_.query.row;
    work.lda = s_.query.row;
    work.ldc = padded_;
    work.length = s_.size;
    work.prefetch = work.a;
    for (int64_t column = 0; column < padded_; column += work.ldb) {
      work.ldb = PanelWidth(column, padded_);
      work.b = keys + column * s_.size;
      work.c = scores + column;
      functions[work.ldb / unit_.width - 1](work);
    }

    SoftmaxWork softmax;
    softmax.scores = scores;
    softmax.rows = bottom - top;
    softmax.step = padded_;
    softmax.length = s_.keys;
    softmax.scale = s_.scale;
    softmax.mask = mask == nullptr ? nullptr : mask + top * s_.mask.row;
    softmax.mask_step = s_.mask.row;
    softmax.mask_along = mask != nullptr && s_.mask.column != 0;
    softmax.inverse_sums = sums;
    unit_.softmax(softmax);

    TilePost scale;
    scale.kind = TilePost::Kind::kScale;
    scale.operand = sums;
    work.a = scores;
    work.lda = padded_;
    work.ldb = s_.value.row;
    work.ldc = s_.result.row;
    work.length = s_.keys;
    work.prefetch = scores;
    work.posts = &scale;
    work.num_posts = 1;
    for (int64_t column = 0, width = 0; column < s_.value_size; column += width) {
      width = PanelWidth(column, s_.value_size);
      work.b = value + column;
      work.c = result + top * s_.result.row + column;
      functions[width / unit_.width - 1](work);
    }
  }

  const AttentionShape s_;
  const VectorUnit& unit_;
  const int64_t padded_;  // keys, up to whole vectors
  int64_t pieces_ = 1;    // into which the queries of a head are divided
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
