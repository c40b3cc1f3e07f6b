// SPDX-License-Identifier: Apache-2.0
#include "native/pixel_norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "native/level.h"

namespace collage::native {
namespace {

// As in native/norm.cc: a piece takes about a microsecond, which is more than it costs to begin one.
constexpr int64_t kPiece = 4096;
// Arrays of channels that a part has of the scratch memory.
constexpr int64_t kArrays = 5;

}  // namespace

PixelNorm::PixelNorm(PixelNormShape shape, std::vector<Post> posts)
    : shape_(std::move(shape)), posts_(std::move(posts)) {
  if (shape_.groups < 1 || shape_.channels % shape_.groups != 0) {
    throw std::runtime_error("a normalisation whose groups do not divide its channels");
  }
  if (shape_.addends.size() > kMostNormAddends ||
      std::count(shape_.addends.begin(), shape_.addends.end(), NormAddend::kRow) > 0) {
    throw std::runtime_error("a normalisation that adds what the kernel does not know");
  }
}

int64_t PixelNorm::Parts(int64_t images, int threads) const {
  // Images are divided where some threads would have none, or one more than others that matters.
  const int64_t most = std::min({int64_t{threads}, shape_.pixels, shape_.pixels * shape_.channels / kPiece});
  if (images < 1 || most < 2 || images % threads == 0 || images >= int64_t{4} * threads) return 1;
  return most;
}

int PixelNorm::Pieces(int64_t images, int threads) const {
  const int64_t most = std::min(
      {int64_t{threads}, images * Parts(images, threads), images * shape_.pixels * shape_.channels / kPiece});
  return static_cast<int>(std::max<int64_t>(1, most));
}

int64_t PixelNorm::Scratch(int64_t images, int threads) const {
  const int64_t parts = Parts(images, threads);
  return (parts == 1 ? Pieces(images, threads) : images * parts) * kArrays * shape_.channels;
}

PixelNorm::Room PixelNorm::RoomOf(float* scratch, int64_t index) const {
  const int64_t n = shape_.channels;
  float* const at = scratch + index * kArrays * n;
  return {at, at + n, at + 2 * n, at + 3 * n, at + 4 * n};
}

void PixelNorm::MeasurePart(const Arguments& a, int64_t image, int64_t part, int64_t parts,
                            const Room& room) const {
  const int64_t begin = shape_.pixels * part / parts, end = shape_.pixels * (part + 1) / parts;
  const int64_t at = (image * shape_.pixels + begin) * shape_.channels;
  PixelMoments work;
  work.data = a.data + at;
  work.num_addends = static_cast<int>(shape_.addends.size());
  for (int i = 0; i < work.num_addends; ++i) {
    const NormAddend addend = shape_.addends[i];
    if (addend == NormAddend::kWhole) {
      work.addends[i] = {a.addends[i] + at, shape_.channels};
    } else {
      work.addends[i] = {a.addends[i] + (addend == NormAddend::kChannels ? 0 : image * shape_.channels), 0};
    }
  }
  if (work.num_addends > 0) work.sum = (a.sum != nullptr ? a.sum : a.out) + at;
  work.pixels = end - begin;
  work.channels = shape_.channels;
  work.means = room.means;
  work.squares = room.squares;
  work.block_sums = room.factors;  // which are made later
  work.block_squares = room.shifts;
  BestLevel().pixel_norm.measure(work);
}

void PixelNorm::WritePart(const Arguments& a, int64_t image, int64_t part, int64_t parts, int64_t first_room,
                          const Room& room) const {
  const int64_t channels = shape_.channels, width = channels / shape_.groups;
  const auto pixels_of = [&](int64_t i) {
    return static_cast<double>(shape_.pixels * (i + 1) / parts - shape_.pixels * i / parts);
  };
  const double elements = static_cast<double>(shape_.pixels * width);
  for (int64_t first = 0; first < channels; first += width) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const float* const means = RoomOf(a.scratch, first_room + i).means + first;
      double sum = 0;
      for (int64_t c = 0; c < width; ++c) sum += means[c];
      mean += sum * pixels_of(i);
    }
    mean /= elements;
    for (int64_t i = 0; i < parts; ++i) {
      const Room of = RoomOf(a.scratch, first_room + i);
      double between = 0;
      for (int64_t c = first; c < first + width; ++c) {
        between += (of.means[c] - mean) * (of.means[c] - mean);
        squares += of.squares[c];
      }
      squares += between * pixels_of(i);
    }
    const double variance = squares / (elements - (shape_.unbiased ? 1 : 0));
    const float factor = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(shape_.epsilon)));
    for (int64_t c = first; c < first + width; ++c) {
      room.write_means[c] = static_cast<float>(mean);
      room.factors[c] = shape_.gain ? factor * a.gain[c] : factor;
      room.shifts[c] = shape_.shift ? a.shift[c] : 0;
    }
  }
  const int64_t begin = shape_.pixels * part / parts, end = shape_.pixels * (part + 1) / parts;
  const int64_t at = (image * shape_.pixels + begin) * channels;
  PixelWrite work;
  work.from = a.data + at;
  if (!shape_.addends.empty()) work.from = (a.sum != nullptr ? a.sum : a.out) + at;
  work.pixels = end - begin;
  work.channels = channels;
  work.means = room.write_means;
  work.factors = room.factors;
  work.shifts = room.shifts;
  work.posts = posts_.data();
  work.num_posts = static_cast<int>(posts_.size());
  std::array<Operand, kMostOperands> operands;
  for (const Post& post : posts_) {
    if (post.operand >= 0) operands[post.operand] = {a.operands[post.operand].data + at, channels};
  }
  work.operands = operands.data();
  work.out = a.out + at;
  BestLevel().pixel_norm.write(work);
}

void PixelNorm::WholeImages(const Arguments& a, int piece, int pieces) const {
  if (shape_.pixels == 0) return;
  const Room room = RoomOf(a.scratch, piece);
  for (int64_t image = a.images * piece / pieces; image < a.images * (piece + 1) / pieces; ++image) {
    MeasurePart(a, image, 0, 1, room);
    WritePart(a, image, 0, 1, piece, room);
  }
}

void PixelNorm::Measure(const Arguments& a, int64_t parts, int piece, int pieces) const {
  const int64_t items = a.images * parts;
  for (int64_t item = items * piece / pieces; item < items * (piece + 1) / pieces; ++item) {
    MeasurePart(a, item / parts, item % parts, parts, RoomOf(a.scratch, item));
  }
}

void PixelNorm::Write(const Arguments& a, int64_t parts, int piece, int pieces) const {
  const int64_t items = a.images * parts;
  for (int64_t item = items * piece / pieces; item < items * (piece + 1) / pieces; ++item) {
    const int64_t image = item / parts;
    WritePart(a, image, item % parts, parts, image * parts, RoomOf(a.scratch, item));
  }
}

}  // namespace collage::native
