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

// Parts of rows end at whole cache lines.
constexpr int64_t kLine = 16;

}  // namespace

Norm::Norm(NormShape shape, std::vector<Post> posts, int64_t piece)
    : shape_(std::move(shape)), posts_(std::move(posts)), piece_(piece) {
  // A row reads its gains one behind the other.
  const bool scaled = shape_.gain || shape_.shift;
  const bool fits = shape_.length == 0 || (shape_.inner >= 1 && shape_.channels >= 1 &&
                                           shape_.channels * shape_.inner % shape_.length == 0);
  if (shape_.addends.size() > NormSource::kMostAddends || (scaled && !fits)) {
    throw std::runtime_error("a normalisation that the kernel does not know");
  }
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

NormMoments Norm::MomentsOf(const Arguments& a, int64_t row, int64_t begin, int64_t end) const {
  const int64_t at = row * shape_.length + begin;
  NormSource source;
  source.data = a.data + at;
  source.num_addends = static_cast<int>(shape_.addends.size());
  for (int i = 0; i < source.num_addends; ++i) {
    source.addends[i] = a.addends[i] + (shape_.addends[i] != 0 ? at : begin);
  }
  if (source.num_addends > 0) source.sum = (a.sum != nullptr ? a.sum : a.out) + at;
  source.count = end - begin;
  NormMoments moments;
  if (source.num_addends == 0 && shape_.divisor == NormShape::Divisor::kNone) return moments;
  BestLevel().norm.measure(source, shape_.divisor != NormShape::Divisor::kSquare, &moments);
  return moments;
}

void Norm::WriteRow(const Arguments& a, const NormMoments& moments, int64_t row, int64_t begin,
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
