// SPDX-License-Identifier: Apache-2.0
#include "native/byte_convolution.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "native/gemm.h"
#include "native/post_operands.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// What a worker is given at a time, in numbers to be rounded and in products.
constexpr int64_t kRoundGrain = 1 << 14, kProductGrain = 1 << 20;

constexpr int64_t kBlock = 96;  // rows that are multiplied with one panel in a row

}  // namespace

ByteScale ScaleOf(float least, float greatest) {
  const double width = static_cast<double>(greatest) - static_cast<double>(least);
  if (!std::isfinite(width)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  // Of all zeros, or numbers whose 255th part would be 0 or denormal: they are as good as 0.
  constexpr double kLeast = 255.0 * std::numeric_limits<float>::min();
  if (width < kLeast) return {0, 0};
  const float scale = static_cast<float>(width / 255);
  return {scale, static_cast<int32_t>(std::lround(-static_cast<double>(least) / static_cast<double>(scale)))};
}

void RoundToGrid(const float* from, int64_t count, float scale, float least, int threads, float* to) {
  const ByteLoops& loops = BestByteLoops();
  const int64_t parts = DivideUp(count, kRoundGrain);
  DivideAmongWorkers(std::min<int64_t>(std::max(threads, 1), parts), parts, [&](int64_t part, int64_t) {
    const int64_t begin = part * kRoundGrain;
    loops.grid(from + begin, std::min(kRoundGrain, count - begin), scale, least, to + begin);
  });
}

void ByteImages::Round(const float* from, const ByteScale* known, int threads, uint8_t* to,
                       ByteScale* scales) const {
  const ByteLoops& loops = BestByteLoops();
  const int64_t line = width * channels, each = height * line, padded = Channels();
  const int64_t columns = Columns(), rows = Rows(), ahead = Ahead();
  const int64_t all = images * each;
  const int64_t workers = std::max<int64_t>(1, std::min<int64_t>(threads, all / kRoundGrain));
  // Lines y of the padded image n, by its scale.
  const auto round = [&](int64_t n, int64_t y) {
    const ByteScale& by = scales[n];
    uint8_t* const out = to + n * Image() + y * Line();
    const uint8_t zero = static_cast<uint8_t>(by.zero);
    if (y < top || y >= top + rows) {
      std::fill_n(out, Line(), zero);
      return;
    }
    const float inverse = by.scale > 0 ? 1 / by.scale : 0;
    const float* const in = from + n * each + (y - top) * line;
    std::fill_n(out, ahead * padded, zero);
    std::fill(out + (ahead + columns) * padded, out + Line(), zero);
    if (padded == channels) {
      loops.round(in, columns * channels, inverse, by.zero, out + ahead * padded);
      return;
    }
    for (int64_t x = 0; x < columns; ++x) {
      uint8_t* const pixel = out + (ahead + x) * padded;
      std::fill_n(pixel + channels, padded - channels, zero);
      loops.round(in + x * channels, channels, inverse, by.zero, pixel);
    }
  };
  const auto round_lines = [&] {
    DivideAmongWorkers(workers, images * padded_height,
                       [&](int64_t item, int64_t) { round(item / padded_height, item % padded_height); });
  };
  if (known != nullptr) {
    std::fill_n(scales, images, *known);
    round_lines();
    return;
  }
  if (workers == 1 || images >= workers) {
    DivideAmongWorkers(workers, images, [&](int64_t n, int64_t) {
      float least = 0, greatest = 0;
      loops.range(from + n * each, each, &least, &greatest);
      scales[n] = ScaleOf(least, greatest);
      for (int64_t y = 0; y < padded_height; ++y) round(n, y);
    });
    return;
  }
  // Few images: their lines are divided, twice.
  struct alignas(64) Range {
    float least = 0, greatest = 0;
  };
  const int64_t parts = std::min(height, 4 * workers);
  std::vector<Range> ranges(static_cast<size_t>(images * parts));
  DivideAmongWorkers(workers, images * parts, [&](int64_t item, int64_t) {
    const int64_t n = item / parts, part = item % parts;
    const int64_t begin = part * height / parts, end = (part + 1) * height / parts;
    Range& range = ranges[static_cast<size_t>(item)];
    loops.range(from + n * each + begin * line, (end - begin) * line, &range.least, &range.greatest);
  });
  for (int64_t n = 0; n < images; ++n) {
    float least = 0, greatest = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const Range& range = ranges[static_cast<size_t>(n * parts + part)];
      // What is no number stays.
      if (!(range.least >= least)) least = range.least;
      if (!(range.greatest <= greatest)) greatest = range.greatest;
    }
    scales[n] = ScaleOf(least, greatest);
  }
  round_lines();
}

ByteConvolution::ByteConvolution(const Shape& shape, std::vector<Post> posts, int threads)
    : shape_(shape),
      data_{PaddedImages::For(shape)},
      posts_(std::move(posts)),
      threads_(std::max(threads, 1)),
      window_(Stretches::Of(shape, data_)) {}

int64_t ByteConvolution::Columns() const {
  const int64_t lanes = BestByteLoops().lanes;
  return RoundUp(shape_.out_channels, lanes);
}

size_t ByteConvolution::PackedSize() const {
  // Scales and sums of the columns, then their bytes.
  return static_cast<size_t>(Columns() * (8 + window_.Terms()));
}

void ByteConvolution::Pack(const int8_t* weight, const int64_t* steps, const float* scales,
                           void* packed) const {
  const int64_t columns = Columns(), panel = BestByteLoops().panel, terms = window_.Terms();
  std::fill_n(static_cast<int8_t*>(packed), PackedSize(), int8_t{0});
  std::copy_n(scales, shape_.out_channels, static_cast<float*>(packed));
  auto* const sums = static_cast<int32_t*>(packed) + columns;
  auto* const bytes = static_cast<int8_t*>(packed) + 8 * columns;
  const int64_t channels = data_.Channels();
  for (int64_t c = 0; c < shape_.out_channels; ++c) {
    // The panel's first byte, how wide it is, and the column within it.
    const int64_t first = c / panel * panel, width = std::min(panel, columns - first);
    int8_t* const column = bytes + first * terms + (c - first) * 4;
    for (int64_t y = 0; y < shape_.kernel[0]; ++y) {
      for (int64_t x = 0; x < shape_.kernel[1]; ++x) {
        const int8_t* const from = weight + c * steps[0] + y * steps[2] + x * steps[3];
        const int64_t tap = (y * shape_.kernel[1] + x) * channels;
        for (int64_t k = 0; k < shape_.in_channels; ++k) {
          sums[c] += from[k * steps[1]];
          column[(tap + k) / 4 * width * 4 + (tap + k) % 4] = from[k * steps[1]];
        }
      }
    }
  }
}

int64_t ByteConvolution::Workers() const {
  const int64_t rows = Rows(), out = shape_.out_channels;
  return std::min({int64_t{threads_}, DivideUp(rows, kBlock) * DivideUp(out, BestByteLoops().panel),
                   std::max<int64_t>(1, rows * window_.Terms() * out / kProductGrain)});
}

DotRows ByteConvolution::At() const {
  return {shape_.out_width, shape_.out_height, shape_.stride[1] * data_.Channels(),
          shape_.stride[0] * data_.Line(), data_.Image()};
}

int64_t ByteConvolution::GatheredSize() const {
  const bool whole = window_.begins.size() == 1 || window_.length % kGatheredBytes == 0;
  if (!BestByteLoops().gathers || (whole && StepOfRows(At(), 0, Rows()) >= 0)) return 0;
  return std::min(kBlock, Rows()) * RoundUp(window_.Terms(), kGatheredBytes);
}

size_t ByteConvolution::ScratchSize() const { return static_cast<size_t>(Workers() * GatheredSize()); }

void ByteConvolution::Run(const uint8_t* bytes, const ByteScale* scales, const void* packed,
                          const float* bias, const float* const* addends, void* scratch, float* dst) const {
  const ByteLoops& loops = BestByteLoops();
  const int64_t columns = Columns(), out = shape_.out_channels, terms = window_.Terms();
  const int64_t rows = Rows();
  const int64_t panels = DivideUp(out, loops.panel), blocks = DivideUp(rows, kBlock);
  const int64_t workers = Workers();
  const int64_t each = GatheredSize();
  std::vector<GatheredRows> gathered(static_cast<size_t>(each > 0 ? workers : 0));
  for (size_t i = 0; i < gathered.size(); ++i) {
    gathered[i].to = static_cast<uint8_t*>(scratch) + i * static_cast<size_t>(each);
  }
  const std::vector<Operand> operands = OperandsOf(posts_, addends, out);
  const auto* const column_scales = static_cast<const float*>(packed);
  const auto* const right = static_cast<const uint8_t*>(packed) + 8 * columns;
  const auto work = [&](int64_t item, int64_t worker) {
    const int64_t first = item % panels * loops.panel, start = item / panels * kBlock;
    ByteWork product;
    if (!gathered.empty()) product.gathered = &gathered[static_cast<size_t>(worker)];
    product.left = bytes;
    product.at = At();
    product.stretches = window_.begins.data();
    product.num_stretches = static_cast<int64_t>(window_.begins.size());
    product.length = window_.length;
    product.right = right + first * terms;
    product.rows = std::min(kBlock, rows - start);
    product.columns = std::min(loops.panel, out - first);
    product.scales = scales;
    product.column_scales = column_scales + first;
    product.column_sums = reinterpret_cast<const int32_t*>(column_scales + columns) + first;
    product.bias = bias == nullptr ? nullptr : bias + first;
    product.out = dst + start * out + first;
    product.out_row = out;
    product.posts = posts_.data();
    product.num_posts = static_cast<int>(posts_.size());
    product.operands = operands.data();
    product.row = start;
    product.step = StepOfRows(product.at, start, product.rows);
    product.column = first;
    loops.multiply(product);
  };
  DivideAmongWorkers(workers, blocks * panels, work);
}

}  // namespace collage::native
