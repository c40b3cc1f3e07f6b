// SPDX-License-Identifier: Apache-2.0
#include "native/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "native/level.h"

namespace collage::native {
namespace {

// Elements that are added up at a time, where that is done apart: they stay in the first cache until they are
// read.
constexpr int64_t kBlock = 4096;
// Parts of rows end at whole cache lines.
constexpr int64_t kLine = 16;

bool OfChannels(NormAddend addend) {
  return addend == NormAddend::kChannels || addend == NormAddend::kImageChannels;
}

}  // namespace

Norm::Norm(NormShape shape, std::vector<Post> posts, int64_t piece)
    : shape_(std::move(shape)), posts_(std::move(posts)), piece_(piece) {
  // A row reads its gains, and numbers of channels that are added, one behind the other.
  const bool of_channels = std::any_of(shape_.addends.begin(), shape_.addends.end(), OfChannels);
  const bool scaled = shape_.gain || shape_.shift || of_channels;
  const bool fits = shape_.length == 0 || (shape_.inner >= 1 && shape_.channels >= 1 &&
                                           shape_.channels * shape_.inner % shape_.length == 0);
  const bool images = shape_.length == 0 || (shape_.image > 0 && shape_.image % shape_.length == 0);
  if (shape_.addends.size() > kMostNormAddends || (scaled && !fits) || (of_channels && !images)) {
    throw std::runtime_error("a normalisation that the kernel does not know");
  }
  spreads_ = of_channels && shape_.inner > 1;
}

int64_t Norm::Parts(int64_t rows, int threads) const {
  // Rows are divided where some threads would have none, or a row more than others that matters.
  const int64_t most = std::min<int64_t>(threads, shape_.length / piece_);
  if (rows < 1 || most < 2 || rows % threads == 0 || rows >= int64_t{4} * threads) return 1;
  return most;
}

int Norm::Pieces(int64_t rows, int threads) const {
  const int64_t most =
      std::min({int64_t{threads}, rows * Parts(rows, threads), rows * shape_.length / piece_});
  return static_cast<int>(std::max<int64_t>(1, most));
}

int64_t Norm::Scratch(int64_t rows, int threads) const {
  const int64_t parts = Parts(rows, threads);
  return parts == 1 ? 0 : rows * parts;
}

int64_t Norm::Begin(int64_t part, int64_t parts) const {
  if (part == parts) return shape_.length;
  return shape_.length * part / parts / kLine * kLine;
}

NormSource Norm::SourceOf(const Arguments& a, int64_t row, int64_t begin, int64_t end) const {
  const int64_t at = row * shape_.length + begin;
  NormSource source;
  source.data = a.data + at;
  source.num_addends = static_cast<int>(shape_.addends.size());
  for (int i = 0; i < source.num_addends; ++i) {
    const NormAddend addend = shape_.addends[i];
    int64_t first = at;
    if (addend == NormAddend::kRow) first = begin;
    if (OfChannels(addend)) {
      first = at / shape_.inner % shape_.channels;
      if (addend == NormAddend::kImageChannels) first += at / shape_.image * shape_.channels;
      source.spread[i] = spreads_;
    }
    source.addends[i] = a.addends[i] + first;
  }
  if (spreads_) {
    source.inner = shape_.inner;
    source.before = at % shape_.inner;
  }
  if (source.num_addends > 0) source.sum = (a.sum != nullptr ? a.sum : a.out) + at;
  source.count = end - begin;
  return source;
}

NormMoments Norm::MomentsOf(const Arguments& a, int64_t row, int64_t begin, int64_t end) const {
  NormMoments all;
  if (begin == end || shape_.divisor == NormShape::Divisor::kNone) return all;
  const bool centred = shape_.divisor != NormShape::Divisor::kSquare;
  const NormLoops& loops = BestLevel().norm;
  if (!spreads_) {
    loops.measure(SourceOf(a, row, begin, end), centred, &all);
    return all;
  }
  for (int64_t first = begin; first < end; first += kBlock) {
    const NormSource source = SourceOf(a, row, first, std::min(first + kBlock, end));
    loops.add(source);
    NormSource sums;
    sums.data = source.sum;
    sums.count = source.count;
    NormMoments block;
    loops.measure(sums, centred, &block);
    all = first == begin ? block : Together(all, block);
  }
  return all;
}

void Norm::WriteRow(const Arguments& a, const NormMoments& moments, int64_t row, int64_t begin,
                    int64_t end) const {
  if (shape_.addends.empty() || shape_.divisor != NormShape::Divisor::kNone) {
    return WriteSums(a, moments, row, begin, end);
  }
  // Nothing has been measured, and so nothing been added up.
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = std::min(first + kBlock, end);
    BestLevel().norm.add(SourceOf(a, row, first, last));
    WriteSums(a, moments, row, first, last);
  }
}

void Norm::WriteSums(const Arguments& a, const NormMoments& moments, int64_t row, int64_t begin,
                     int64_t end) const {
  if (begin == end) return;
  const int64_t at = row * shape_.length + begin;
  NormWrite write;
  write.from = a.data + at;
  if (!shape_.addends.empty()) write.from = (a.sum != nullptr ? a.sum : a.out) + at;
  write.count = end - begin;
  write.out = a.out + at;
  const float divisor = moments.count - (shape_.unbiased ? 1.0F : 0.0F);
  switch (shape_.divisor) {
    case NormShape::Divisor::kVariance:
    case NormShape::Divisor::kSquare:
      write.factor = 1.0F / std::sqrt(moments.squares / divisor + shape_.epsilon);
      break;
    case NormShape::Divisor::kDeviation:
      write.factor = 1.0F / (std::sqrt(moments.squares / divisor) + shape_.epsilon);
      break;
    case NormShape::Divisor::kNone:
      break;
  }
  if (shape_.divisor != NormShape::Divisor::kNone) write.mean = moments.mean;
  const int64_t channel = at / shape_.inner % shape_.channels;
  if (shape_.gain) write.gain = a.gain + channel;
  if (shape_.shift) write.shift = a.shift + channel;
  write.inner = shape_.inner;
  write.before = at % shape_.inner;
  write.posts = posts_.data();
  write.num_posts = static_cast<int>(posts_.size());
  std::array<Operand, kMostOperands> operands;
  for (const Post& post : posts_) {
    if (post.operand >= 0) operands[post.operand] = {a.operands[post.operand].data + at, 0};
  }
  write.operands = operands.data();
  BestLevel().norm.write(write);
}

void Norm::WholeRows(const Arguments& a, int piece, int pieces) const {
  for (int64_t row = a.rows * piece / pieces; row < a.rows * (piece + 1) / pieces; ++row) {
    WriteRow(a, MomentsOf(a, row, 0, shape_.length), row, 0, shape_.length);
  }
}

void Norm::Measure(const Arguments& a, int64_t parts, int piece, int pieces) const {
  const int64_t items = a.rows * parts;
  for (int64_t item = items * piece / pieces; item < items * (piece + 1) / pieces; ++item) {
    const int64_t part = item % parts;
    a.scratch[item] = MomentsOf(a, item / parts, Begin(part, parts), Begin(part + 1, parts));
  }
}

void Norm::Write(const Arguments& a, int64_t parts, int piece, int pieces) const {
  const int64_t items = a.rows * parts;
  for (int64_t item = items * piece / pieces; item < items * (piece + 1) / pieces; ++item) {
    const int64_t row = item / parts, part = item % parts;
    NormMoments all = a.scratch[row * parts];
    for (int64_t i = 1; i < parts; ++i) all = Together(all, a.scratch[row * parts + i]);
    WriteRow(a, all, row, Begin(part, parts), Begin(part + 1, parts));
  }
}

}  // namespace collage::native
