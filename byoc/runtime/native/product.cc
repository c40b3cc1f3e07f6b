// SPDX-License-Identifier: Apache-2.0
#include "native/product.h"

#include <algorithm>
#include <utility>

#include "native/post_operands.h"

namespace collage::native {
namespace {

// The i-th of so many nearly equal pieces of 0 .. count.
std::pair<int64_t, int64_t> Piece(int64_t count, int64_t pieces, int64_t i) {
  return {count * i / pieces, count * (i + 1) / pieces};
}

// The same, in multiples of the tile.
std::pair<int64_t, int64_t> PieceOfRows(int64_t rows, int64_t pieces, int64_t i) {
  const int64_t tile = TileRows();
  const auto [first, end] = Piece(DivideUp(rows, tile), pieces, i);
  return {std::min(first * tile, rows), std::min(end * tile, rows)};
}

}  // namespace

PackedWeights::PackedWeights(int64_t rows, std::vector<int64_t> columns)
    : rows_(rows), columns_(std::move(columns)) {
  int64_t elements = 0;
  for (const int64_t one : columns_) elements += PackedElements(rows, one);
  memory_ = AllocateAligned(static_cast<size_t>(elements) * sizeof(float));
  end_ = static_cast<float*>(memory_.get());
}

void PackedWeights::Add(const float* data, int64_t row_step, int64_t column_step, const float* bias) {
  const size_t result = biases_.size();
  const int64_t columns = columns_.at(result);
  biases_.emplace_back();
  if (bias != nullptr) biases_.back().assign(bias, bias + columns);
  PackPanels(data, row_step, column_step, rows_, columns, end_);
  for (int64_t column = 0; column < columns; column += PanelColumns()) {
    panels_.push_back({end_ + rows_ * column, bias == nullptr ? nullptr : biases_.back().data() + column,
                       static_cast<int>(result), column, std::min(PanelColumns(), columns - column),
                       PanelWidth(column, columns)});
  }
  end_ += PackedElements(rows_, columns);
}

void PackedWeights::Share(const std::function<std::shared_ptr<void>(std::shared_ptr<void>, size_t)>& share) {
  const auto* const before = static_cast<const float*>(memory_.get());
  const size_t bytes = static_cast<size_t>(end_ - before) * sizeof(float);
  std::vector<int64_t> at;
  for (const Panel& panel : panels_) at.push_back(panel.weights - before);
  memory_ = share(std::move(memory_), bytes);
  for (size_t i = 0; i < panels_.size(); ++i) {
    panels_[i].weights = static_cast<const float*>(memory_.get()) + at[i];
  }
}

Product::Product(std::shared_ptr<const PackedWeights> weights, std::vector<Post> posts,
                 const ProductBlocking& blocking)
    : weights_(std::move(weights)), posts_(std::move(posts)), blocking_(blocking) {}

// The division in which the busiest thread has least to do. Rather the panels are divided than the rows: each
// thread then reads weights of its own.
Product::Division Product::Divide(int64_t rows, int threads) const {
  const int64_t tiles = DivideUp(rows, TileRows()), panels = static_cast<int64_t>(weights_->panels().size());
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

int Product::Pieces(int64_t rows, int threads) const {
  const Division division = Divide(rows, threads);
  return static_cast<int>(division.rows * division.panels);
}

void Product::Run(const Arguments& a, int piece, int threads) const {
  const Division division = Divide(a.rows, threads);
  const int64_t part = piece % division.panels;
  const auto [first, end] = Piece(static_cast<int64_t>(weights_->panels().size()), division.panels, part);
  const auto [top, bottom] = PieceOfRows(a.rows, division.rows, piece / division.panels);
  if (top >= bottom) return;
  // Blocks of rows of about the same height.
  const int64_t most = std::max(TileRows(), blocking_.left_elements / std::max<int64_t>(1, weights_->rows()));
  const int64_t blocks = DivideUp(bottom - top, most);
  for (int64_t block = 0; block < blocks; ++block) {
    const auto [begin, stop] = PieceOfRows(bottom - top, blocks, block);
    for (int64_t p = first; p < end; ++p) {
      Panel(a, weights_->panels()[p], Following(p, end, part, division.panels), top + begin, stop - begin);
    }
  }
}

// The panel that this thread reads after panel p of its own.
const float* Product::Following(int64_t panel, int64_t end, int64_t part, int64_t parts) const {
  if (panel + 1 < end) return weights_->panels()[panel + 1].weights;
  if (weights_->next == nullptr) return nullptr;
  const auto& panels = weights_->next->panels();
  return panels[Piece(static_cast<int64_t>(panels.size()), parts, part).first].weights;
}

void Product::Panel(const Arguments& a, const PackedWeights::Panel& panel, const float* following,
                    int64_t top, int64_t rows) const {
  const int64_t length = weights_->rows(), columns = weights_->columns()[panel.result];
  GemmWork work;
  work.left_row = a.left_row;
  work.right_row = panel.width;
  work.rows = rows;
  work.columns = panel.columns;
  work.out = a.results[panel.result] + top * columns + panel.column;
  work.out_row = columns;
  work.initial = panel.bias;
  work.operands = a.operands;
  work.row = top;
  work.column = panel.column;
  const int64_t parts = std::max<int64_t>(1, DivideUp(length, blocking_.depth));
  for (int64_t part = 0; part < parts; ++part) {
    const auto [begin, end] = Piece(length, parts, part);
    const bool last = part + 1 == parts;
    work.left = a.left + top * a.left_row + begin;
    work.right = panel.weights + begin * panel.width;
    work.length = end - begin;
    work.ahead = last ? following : panel.weights + end * panel.width;
    work.ahead_size = work.length * panel.width;
    if (last) {
      work.posts = posts_.data();
      work.num_posts = static_cast<int>(posts_.size());
    }
    Multiply(work);
    work.initial = work.out;
    work.initial_row = columns;
  }
}

PieceWork ProductKernel(std::shared_ptr<const PackedWeights> weights, int64_t rows, std::vector<Post> posts,
                        int threads) {
  int operands = 0;
  for (const Post& post : posts) operands = std::max(operands, post.operand + 1);
  const int64_t left_row = weights->rows(), columns = weights->columns().at(0);
  const auto product = std::make_shared<const Product>(std::move(weights), std::move(posts));
  return {product->Pieces(rows, threads), [=](void* const* data, int piece) {
            constexpr int kMostOperands = 16;
            Operand list[kMostOperands];
            for (int i = 0; i < operands && i < kMostOperands; ++i) {
              list[i] = {static_cast<const float*>(data[1 + i]), columns};
            }
            Product::Arguments a;
            a.rows = rows;
            a.left = static_cast<const float*>(data[0]);
            a.left_row = left_row;
            a.results = reinterpret_cast<float* const*>(data + 1 + operands);
            a.operands = list;
            product->Run(a, piece, threads);
          }};
}

int BatchProduct::Pieces(int64_t rows, int threads) const {
  // Rows are divided only where there are too few panels: each of their pieces packs the panel once more.
  const int64_t panels = batch * PanelsOf(columns);
  const int64_t of_rows = panels >= threads ? 1 : std::min(DivideUp(rows, TileRows()), threads / panels);
  return static_cast<int>(panels >= threads ? threads : panels * of_rows);
}

int64_t BatchProduct::Scratch(int threads) const { return threads * RoundUp(length, 16) * PanelColumns(); }

void BatchProduct::Run(const Arguments& a, int piece, int pieces) const {
  if (a.rows <= blocking.rows && (right_row == 1 || right_column == 1)) {
    RunUnpacked(a, piece, pieces);
  } else {
    RunPacked(a, piece, pieces);
  }
}

// Those of one of the products.
std::vector<Operand> BatchProduct::OperandsOf(const Arguments& a, int64_t matrix) const {
  std::vector<Operand> operands(NumOperands(posts));
  for (size_t o = 0; o < operands.size(); ++o) {
    operands[o] = {a.operands[o].data + matrix * a.operand_rows * a.operands[o].row, a.operands[o].row};
  }
  return operands;
}

void BatchProduct::RunPacked(const Arguments& a, int piece, int pieces) const {
  const int64_t panels = PanelsOf(columns), units = batch * panels;
  const int64_t of_rows = std::max<int64_t>(1, pieces / units);
  float* const packed = a.scratch + piece * Scratch(1);
  const auto [first, end] = Piece(units * of_rows, pieces, piece);
  int64_t there = -1;  // the panel that is packed
  for (int64_t part = first; part < end; ++part) {
    const int64_t unit = part / of_rows, i = unit / panels, column = unit % panels * PanelColumns();
    const auto [top, bottom] = PieceOfRows(a.rows, of_rows, part % of_rows);
    GemmWork work;
    work.columns = std::min(PanelColumns(), columns - column);
    if (unit != there) {
      PackPanels(a.right + i * right_batch + column * right_column, right_row, right_column, length,
                 work.columns, packed);
    }
    there = unit;
    work.left = a.left + i * left_batch + top * left_row;
    work.left_row = left_row;
    work.right = packed;
    work.right_row = PanelWidth(column, columns);
    work.length = length;
    work.rows = bottom - top;
    work.out = a.result + i * result_batch + top * result_row + column;
    work.out_row = result_row;
    work.posts = posts.data();
    work.num_posts = static_cast<int>(posts.size());
    const std::vector<Operand> operands = OperandsOf(a, i);
    work.operands = operands.data();
    work.row = top;
    work.column = column;
    Multiply(work);
  }
}

// Divided as above, panels being only so many columns.
void BatchProduct::RunUnpacked(const Arguments& a, int piece, int pieces) const {
  const int64_t panels = PanelsOf(columns), units = batch * panels;
  const int64_t of_rows = std::max<int64_t>(1, pieces / units);
  const auto [first, end] = Piece(units * of_rows, pieces, piece);
  for (int64_t part = first; part < end;) {
    const int64_t unit = part / of_rows, i = unit / panels, panel = unit % panels;
    // Panels of one matrix that follow one another are one. Where rows are divided, a piece has one of them.
    const int64_t next = of_rows > 1 ? part + 1 : std::min(end, (i + 1) * panels);
    const int64_t column = panel * PanelColumns();
    const auto [top, bottom] = PieceOfRows(a.rows, of_rows, part % of_rows);
    UnpackedWork work;
    work.left = a.left + i * left_batch + top * left_row;
    work.left_row = left_row;
    work.right = a.right + i * right_batch + column * right_column;
    work.right_row = right_row;
    work.right_column = right_column;
    work.rows = bottom - top;
    work.length = length;
    work.columns = std::min((next - part) * PanelColumns(), columns - column);
    work.out = a.result + i * result_batch + top * result_row + column;
    work.out_row = result_row;
    MultiplyUnpacked(work, blocking.length);
    if (!posts.empty()) {
      const std::vector<Operand> operands = OperandsOf(a, i);
      Apply({work.out, result_row, work.out, result_row, work.rows, work.columns, posts.data(),
             static_cast<int>(posts.size()), operands.data(), top, column});
    }
    part = next;
  }
}

}  // namespace collage::native
