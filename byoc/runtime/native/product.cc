// SPDX-License-Identifier: Apache-2.0
#include "native/product.h"

#include <algorithm>
#include <utility>

namespace collage::native {
namespace {

// A panel's rows that are worked on at a time: with two vectors of columns 32 KiB, which stay in the first
// cache beside the rows of the left side.
constexpr int64_t kDepth = 256;

// Elements of the left side that are to stay in the second cache while all panels run past it.
constexpr int64_t kLeftElements = 96 * 1024;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The i-th of so many nearly equal pieces of 0 .. count.
std::pair<int64_t, int64_t> Piece(int64_t count, int64_t pieces, int64_t i) {
  return {count * i / pieces, count * (i + 1) / pieces};
}

// How the rows and the panels are divided: so many pieces of each, a thread for each pair.
struct Division {
  int64_t rows = 1, panels = 1;
};

// The division in which the busiest thread has least to do. Rather the panels are divided than the rows: each
// thread then reads weights of its own.
Division Divide(int64_t tiles, int64_t panels, int threads) {
  Division best;
  int64_t least = tiles * panels + 1;
  for (int64_t r = 1; r <= std::min<int64_t>(threads, tiles); ++r) {
    const int64_t p = std::min<int64_t>(threads / r, panels);
    const int64_t most = DivideUp(tiles, r) * DivideUp(panels, p);
    if (most >= least) continue;
    least = most;
    best = {r, p};
  }
  return best;
}

class Product {
 public:
  Product(std::shared_ptr<const PackedWeights> weights, int64_t rows, std::vector<int64_t> columns,
          std::vector<TilePost> posts, int threads)
      : unit_(BestVectorUnit()),
        weights_(std::move(weights)),
        rows_(rows),
        columns_(std::move(columns)),
        posts_(std::move(posts)),
        division_(
            Divide(DivideUp(rows, kTileRows), static_cast<int64_t>(weights_->panels().size()), threads)) {}

  int pieces() const { return static_cast<int>(division_.rows * division_.panels); }

  void Run(void* const* data, int piece) const {
    std::vector<TilePost> posts = posts_;
    int next = 1;
    for (TilePost& post : posts) {
      if (post.kind == TilePost::Kind::kAdd) post.operand = static_cast<const float*>(data[next++]);
    }
    void* const* results = data + next;
    const auto* left = static_cast<const float*>(data[0]);
    Part(left, posts, results, piece);
  }

 private:
  void Part(const float* left, const std::vector<TilePost>& posts, void* const* results, int64_t task) const {
    const int64_t of_panels = task % division_.panels;
    const auto [first_panel, end_panel] =
        Piece(static_cast<int64_t>(weights_->panels().size()), division_.panels, of_panels);
    // Tiles of equal height, so that no thin one is left over.
    const int64_t tiles = DivideUp(rows_, kTileRows);
    const auto [first_tile, end_tile] = Piece(tiles, division_.rows, task / division_.panels);
    const int64_t block = std::max<int64_t>(1, kLeftElements / (kTileRows * weights_->rows()));
    for (int64_t tile = first_tile; tile < end_tile; tile += block) {
      const int64_t end = std::min(tile + block, end_tile);
      for (int64_t p = first_panel; p < end_panel; ++p) {
        Column(left, posts, results, weights_->panels()[p], Following(p, end_panel, of_panels), tile, end,
               tiles);
      }
    }
  }

  // The panel that this thread reads after panel p of its own.
  const float* Following(int64_t p, int64_t end_panel, int64_t of_panels) const {
    if (p + 1 < end_panel) return weights_->panels()[p + 1].weights;
    if (weights_->next == nullptr) return weights_->panels()[p].weights;
    const auto& panels = weights_->next->panels();
    return panels[Piece(static_cast<int64_t>(panels.size()), division_.panels, of_panels).first].weights;
  }

  void Column(const float* left, const std::vector<TilePost>& posts, void* const* results,
              const PackedWeights::Panel& panel, const float* following, int64_t first, int64_t end,
              int64_t tiles) const {
    const int64_t length = weights_->rows();
    const int64_t columns = columns_[panel.result];
    auto* result = static_cast<float*>(results[panel.result]) + panel.column;
    const int vectors = static_cast<int>(panel.width / unit_.width);
    for (int64_t begin = 0; begin < length; begin += kDepth) {
      const int64_t depth = std::min(kDepth, length - begin);
      const bool last = begin + depth == length;
      TileWork work;
      work.lda = length;
      work.b = panel.weights + begin * panel.width;
      work.ldb = panel.width;
      work.ldc = columns;
      work.length = depth;
      if (last) {
        work.posts = posts.data();
        work.num_posts = static_cast<int>(posts.size());
      }
      // What is read next comes nearer, a share of it during each tile.
      const float* soon = last ? following : work.b + depth * panel.width;
      work.prefetch_step = DivideUp(panel.width, end - first);
      for (int64_t tile = first; tile < end; ++tile) {
        const auto [top, bottom] = Piece(rows_, tiles, tile);
        work.a = left + top * length + begin;
        work.offset = top * columns + panel.column;
        work.c = result + top * columns;
        work.initial = begin > 0 ? work.c : panel.bias;
        work.initial_step = begin > 0 ? columns : 0;
        work.prefetch = soon + (tile - first) * work.prefetch_step * depth;
        unit_.tiles[bottom - top - 1][vectors - 1](work);
      }
    }
  }

  const VectorUnit& unit_;
  const std::shared_ptr<const PackedWeights> weights_;
  const int64_t rows_;
  const std::vector<int64_t> columns_;
  const std::vector<TilePost> posts_;
  const Division division_;
};

}  // namespace

PackedWeights::PackedWeights(int64_t rows, int64_t columns)
    : rows_(rows),
      memory_(AllocateAligned(static_cast<size_t>(rows * columns) * sizeof(float))),
      end_(static_cast<float*>(memory_.get())) {}

void PackedWeights::Add(const float* data, int64_t row_step, int64_t column_step, int64_t columns,
                        const float* bias) {
  const int64_t widest = int64_t{BestVectorUnit().width} * kTileVectors;
  const float* biases = nullptr;
  if (bias != nullptr) biases = biases_.emplace_back(bias, bias + columns).data();
  for (int64_t column = 0; column < columns;) {
    const int64_t width = std::min(widest, columns - column);
    panels_.push_back({end_, biases == nullptr ? nullptr : biases + column, results_, column, width});
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < width; ++c) *end_++ = data[r * row_step + (column + c) * column_step];
    }
    column += width;
  }
  ++results_;
}

PieceWork ProductKernel(std::shared_ptr<const PackedWeights> weights, int64_t rows,
                        const std::vector<int64_t>& columns, std::vector<TilePost> posts, int threads) {
  const auto product =
      std::make_shared<const Product>(std::move(weights), rows, columns, std::move(posts), threads);
  return {product->pieces(), [product](void* const* data, int piece) { product->Run(data, piece); }};
}

}  // namespace collage::native
