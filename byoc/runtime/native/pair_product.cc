// SPDX-License-Identifier: Apache-2.0
#include "native/pair_product.h"

#include <algorithm>
#include <utility>

#include "native/post_operands.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// What a worker is given at a time, in numbers to be rounded, and in products or, where there are few rows,
// weights to be read.
constexpr int64_t kRoundGrain = 1 << 14, kProductGrain = 1 << 19, kWeightGrain = 1 << 17;

// How many rows are multiplied with one panel in a row: so many elements of them, that they stay in the
// second cache beside the panel.
constexpr int64_t kBlockElements = 3 << 16, kLeastBlock = 24, kMostBlock = 96;

// So many elements of rows stay in the second cache beside a panel.
constexpr int64_t kCachedElements = 1 << 19;

constexpr int64_t kPair = 2, kBytes = sizeof(uint16_t);

}  // namespace

template <typename From, typename Put>
void PairRows::Fill(const From* from, int threads, uint16_t* to, const Put& put) const {
  // Whole ones are one row, however they are divided.
  const int64_t count = AreWhole() ? Size() : rows;
  const int64_t each = AreWhole() ? kRoundGrain : std::max<int64_t>(1, kRoundGrain / Row());
  const int64_t parts = DivideUp(count, each);
  DivideAmongWorkers(std::min<int64_t>(std::max(threads, 1), parts), parts, [&](int64_t part, int64_t) {
    const int64_t begin = part * each, end = std::min(count, begin + each);
    if (AreWhole()) return put(from + begin, end - begin, to + begin);
    for (int64_t i = begin; i < end; ++i) {
      put(from + i * length, length, to + i * Row());
      to[i * Row() + length] = 0;
    }
  });
}

void PairRows::Round(const float* from, int threads, uint16_t* to) const {
  Fill(from, threads, to, BestPairLoops().round);
}

void PairRows::Copy(const uint16_t* from, int threads, uint16_t* to) const {
  Fill(from, threads, to,
       [](const uint16_t* numbers, int64_t count, uint16_t* out) { std::copy_n(numbers, count, out); });
}

PairProduct::PairProduct(const Shape& shape, std::vector<Post> posts, int threads)
    : shape_(shape),
      left_{shape.rows, shape.length},
      posts_(std::move(posts)),
      threads_(std::max(threads, 1)) {}

int64_t PairProduct::Columns() const { return RoundUp(shape_.columns, BestPairLoops().lanes); }

size_t PairProduct::PackedSize() const {
  return static_cast<size_t>(shape_.matrices * Columns() * left_.Row());
}

void PairProduct::Pack(const uint16_t* right, uint16_t* packed) const {
  const int64_t columns = Columns(), panel = BestPairLoops().panel, terms = left_.Row();
  const int64_t to_column = shape_.transposed ? shape_.length : 1,
                to_term = shape_.transposed ? 1 : shape_.columns;
  std::fill_n(packed, PackedSize(), uint16_t{0});
  for (int64_t i = 0; i < shape_.matrices; ++i) {
    for (int64_t c = 0; c < shape_.columns; ++c) {
      // The panel's first column, how wide it is, and the column within it.
      const int64_t first = c / panel * panel, width = std::min(panel, columns - first);
      uint16_t* const column = packed + (i * columns + first) * terms + (c - first) * kPair;
      const uint16_t* const from = right + i * shape_.length * shape_.columns + c * to_column;
      for (int64_t k = 0; k < shape_.length; ++k) {
        column[k / kPair * width * kPair + k % kPair] = from[k * to_term];
      }
    }
  }
}

void PairProduct::Run(const uint16_t* left, const uint16_t* packed, const float* bias,
                      const float* const* addends, const Result& result) const {
  const PairLoops& loops = BestPairLoops();
  const int64_t columns = Columns(), out = shape_.columns, terms = left_.Row();
  const int64_t rows = shape_.rows / shape_.matrices;
  if (rows == 0) return;
  const int64_t panels = DivideUp(out, loops.panel);
  // Where all rows stay in the second cache, each panel is read from memory once, and multiplied with all of
  // them.
  const bool by_panel = rows * terms <= kCachedElements;
  // As equal blocks as possible, in whole tiles.
  const int64_t most =
      by_panel && panels >= 2 * threads_
          ? rows
          : std::clamp(kBlockElements / std::max<int64_t>(terms, 1), kLeastBlock, kMostBlock);
  const int64_t block = RoundUp(DivideUp(rows, DivideUp(rows, most)), loops.rows),
                blocks = DivideUp(rows, block);
  const std::vector<Operand> operands = OperandsOf(posts_, addends, out);
  const auto work = [&](int64_t item, int64_t) {
    const int64_t of = item / panels / blocks, within = item % (panels * blocks);
    const int64_t first = (by_panel ? within / blocks : within % panels) * loops.panel;
    const int64_t start = (by_panel ? within % blocks : within / panels) * block, row = of * rows + start;
    PairWork product;
    product.left = reinterpret_cast<const uint8_t*>(left);
    product.at = {shape_.rows, 1, terms * kBytes, 0, 0};
    product.step = terms * kBytes;
    product.length = terms * kBytes;
    product.right = reinterpret_cast<const uint8_t*>(packed + (of * columns + first) * terms);
    product.rows = std::min(block, rows - start);
    product.columns = std::min(loops.panel, out - first);
    product.bias = bias == nullptr ? nullptr : bias + first;
    product.row = row;
    product.column = first;
    product.next = by_panel && first + loops.panel < columns;
    product.out_row = out;
    product.posts = posts_.data();
    product.num_posts = static_cast<int>(posts_.size());
    product.operands = operands.data();
    if (result.bf16 != nullptr) {
      product.rounded = result.bf16 + row * out + first;
    } else {
      product.out = result.f32 + row * out + first;
    }
    loops.multiply(product);
  };
  const int64_t items = shape_.matrices * blocks * panels;
  const int64_t numbers = shape_.matrices * terms * out;
  const int64_t workers =
      std::min({int64_t{threads_}, items,
                std::max({int64_t{1}, rows * numbers / kProductGrain, numbers / kWeightGrain})});
  DivideAmongWorkers(workers, items, work);
}

}  // namespace collage::native
