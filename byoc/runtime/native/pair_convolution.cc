// SPDX-License-Identifier: Apache-2.0
#include "native/pair_convolution.h"

#include <algorithm>
#include <utility>

#include "native/divide_up.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// What a worker is given at a time, in numbers to be rounded, and in products or, where there are few rows,
// weights to be read.
constexpr int64_t kRoundGrain = 1 << 14, kProductGrain = 1 << 19, kWeightGrain = 1 << 17;

// How many rows are multiplied with one panel in a row: so many elements of them, that they stay in the
// second cache beside the panel.
constexpr int64_t kBlockElements = 3 << 16, kLeastBlock = 24, kMostBlock = 96;

constexpr int64_t kPair = 2, kBytes = sizeof(uint16_t);

}  // namespace

bool PairImages::AreImages() const {
  return Channels() == channels && top == 0 && left == 0 && padded_height == height && padded_width == width;
}

template <typename From, typename Put>
void PairImages::Fill(const From* from, int threads, uint16_t* to, const Put& put) const {
  const int64_t line = width * channels, padded = Channels(), columns = Columns(), rows = Rows(),
                ahead = Ahead();
  const auto fill = [&](int64_t n, int64_t y) {
    uint16_t* const out = to + n * Image() + y * Line();
    if (y < top || y >= top + rows) {
      std::fill_n(out, Line(), uint16_t{0});
      return;
    }
    const From* const in = from + (n * height + y - top) * line;
    std::fill_n(out, ahead * padded, uint16_t{0});
    std::fill(out + (ahead + columns) * padded, out + Line(), uint16_t{0});
    if (padded == channels) {
      put(in, columns * channels, out + ahead * padded);
      return;
    }
    // All of them to the end of where they go, and from there to their places, which never are behind that.
    uint16_t* pixel = out + ahead * padded;
    const uint16_t* from_there = pixel + columns * (padded - channels);
    put(in, columns * channels, pixel + columns * (padded - channels));
    for (int64_t x = 0; x < columns; ++x, pixel += padded, from_there += channels) {
      for (int64_t c = 0; c < channels; ++c) pixel[c] = from_there[c];
      for (int64_t c = channels; c < padded; ++c) pixel[c] = 0;
    }
  };
  const int64_t lines = images * padded_height,
                each = std::max<int64_t>(1, kRoundGrain / std::max<int64_t>(1, Line()));
  const int64_t parts = DivideUp(lines, each);
  DivideAmongWorkers(std::min<int64_t>(std::max(threads, 1), parts), parts, [&](int64_t part, int64_t) {
    for (int64_t i = part * each; i < std::min(lines, (part + 1) * each); ++i) {
      fill(i / padded_height, i % padded_height);
    }
  });
}

void PairImages::Round(const float* from, int threads, uint16_t* to) const {
  Fill(from, threads, to, BestPairLoops().round);
}

void PairImages::Copy(const uint16_t* from, int threads, uint16_t* to) const {
  Fill(from, threads, to,
       [](const uint16_t* numbers, int64_t count, uint16_t* out) { std::copy_n(numbers, count, out); });
}

PairConvolution::PairConvolution(const ConvolutionShape& shape, const Weights& weights,
                                 std::vector<Post> posts, int threads)
    : shape_(shape),
      weights_(weights),
      data_{PaddedImages::For(shape, kPair)},
      posts_(std::move(posts)),
      threads_(std::max(threads, 1)),
      window_(Stretches::Of(shape, data_)),
      begins_(window_.begins) {
  for (int64_t& stretch : begins_) stretch *= kBytes;
  for (int64_t line = 0; line < shape.out_height; ++line) seen_.push_back(SeenBy(line));
  alike_ = std::all_of(seen_.begin(), seen_.end(), [&](const Seen& one) { return one == seen_.front(); });
}

int64_t PairConvolution::Columns() const { return RoundUp(shape_.out_channels, BestPairLoops().lanes); }

size_t PairConvolution::PackedSize() const {
  return static_cast<size_t>(weights_.count * Columns() * window_.Terms());
}

void PairConvolution::Pack(const uint16_t* weight, uint16_t* packed) const {
  const int64_t columns = Columns(), panel = BestPairLoops().panel, terms = window_.Terms();
  const int64_t channels = data_.Channels();
  std::fill_n(packed, PackedSize(), uint16_t{0});
  for (int64_t i = 0; i < weights_.count; ++i) {
    for (int64_t c = 0; c < shape_.out_channels; ++c) {
      // The panel's first column, how wide it is, and the column within it.
      const int64_t first = c / panel * panel, width = std::min(panel, columns - first);
      uint16_t* const column = packed + (i * columns + first) * terms + (c - first) * kPair;
      for (int64_t y = 0; y < shape_.kernel[0]; ++y) {
        for (int64_t x = 0; x < shape_.kernel[1]; ++x) {
          const int64_t* const steps = weights_.steps;
          const uint16_t* const from =
              weight + i * weights_.step + c * steps[0] + y * steps[2] + x * steps[3];
          const int64_t tap = (y * shape_.kernel[1] + x) * channels;
          for (int64_t k = 0; k < shape_.in_channels; ++k) {
            column[(tap + k) / kPair * width * kPair + (tap + k) % kPair] = from[k * steps[1]];
          }
        }
      }
    }
  }
}

PairConvolution::Seen PairConvolution::SeenBy(int64_t line) const {
  const int64_t each = static_cast<int64_t>(begins_.size()) / shape_.kernel[0];
  const int64_t top = line * shape_.stride[0] - shape_.pad_front[0], step = shape_.dilation[0];
  // The first line of the window that is not above the image, and the first one that is below.
  const int64_t first = top >= 0 ? 0 : std::min(DivideUp(-top, step), shape_.kernel[0]);
  const int64_t below = shape_.in_height - top;
  const int64_t end = below <= 0 ? 0 : std::min(DivideUp(below, step), shape_.kernel[0]);
  return {first * each, std::max<int64_t>(0, end - first) * each};
}

void PairConvolution::Run(const uint16_t* data, const uint16_t* packed, const float* bias,
                          const float* const* addends, const Result& result) const {
  const PairLoops& loops = BestPairLoops();
  const int64_t columns = Columns(), out = shape_.out_channels, terms = window_.Terms();
  const int64_t rows = shape_.batch / weights_.count * shape_.out_height * shape_.out_width;
  if (rows == 0) return;
  // As equal blocks as possible, in whole tiles.
  const int64_t most = std::clamp(kBlockElements / terms, kLeastBlock, kMostBlock);
  const int64_t block = RoundUp(DivideUp(rows, DivideUp(rows, most)), loops.rows);
  const int64_t panels = DivideUp(out, loops.panel), blocks = DivideUp(rows, block);
  std::vector<Operand> operands;
  for (const Post& post : posts_) {
    if (post.operand >= 0) operands.resize(std::max<size_t>(operands.size(), post.operand + 1));
  }
  for (size_t i = 0; i < operands.size(); ++i) operands[i] = {addends[i], out};
  const auto work = [&](int64_t item, int64_t) {
    const int64_t first = item % panels * loops.panel, of = item / panels / blocks;
    const int64_t start = item / panels % blocks * block, end = of * rows + std::min(start + block, rows);
    const int64_t width = std::min(loops.panel, columns - first);
    const uint16_t* const right = packed + (of * columns + first) * terms;
    PairWork product;
    product.left = reinterpret_cast<const uint8_t*>(data);
    product.at = {shape_.out_width, shape_.out_height, shape_.stride[1] * data_.Channels() * kBytes,
                  shape_.stride[0] * data_.Line() * kBytes, data_.Image() * kBytes};
    product.length = window_.length * kBytes;
    product.columns = std::min(loops.panel, out - first);
    product.bias = bias == nullptr ? nullptr : bias + first;
    product.column = first;
    product.out_row = out;
    product.posts = posts_.data();
    product.num_posts = static_cast<int>(posts_.size());
    product.operands = operands.data();
    // Lines after one another that see the same part of their windows.
    for (int64_t row = of * rows + start; row < end;) {
      const auto seen_at = [&](int64_t pixel) { return seen_[pixel / shape_.out_width % shape_.out_height]; };
      const Seen seen = seen_at(row);
      int64_t next = alike_ ? end : row;
      while (next < end && seen_at(next) == seen) next = (next / shape_.out_width + 1) * shape_.out_width;
      product.stretches = begins_.data() + seen.first;
      product.num_stretches = seen.count;
      product.right = reinterpret_cast<const uint8_t*>(right + seen.first * window_.length * width);
      product.rows = std::min(next, end) - row;
      product.row = row;
      if (result.bf16 != nullptr) {
        product.rounded = result.bf16 + row * out + first;
      } else {
        product.out = result.f32 + row * out + first;
      }
      loops.multiply(product);
      row = next;
    }
  };
  const int64_t items = weights_.count * blocks * panels;
  const int64_t numbers = weights_.count * terms * out;
  const int64_t workers =
      std::min({int64_t{threads_}, items,
                std::max({int64_t{1}, rows * numbers / kProductGrain, numbers / kWeightGrain})});
  DivideAmongWorkers(workers, items, work);
}

}  // namespace collage::native
