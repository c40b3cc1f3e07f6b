// SPDX-License-Identifier: Apache-2.0
//
// Normalisations. Numbers that lie one behind the other share a mean and a deviation: the elements of a row
// (layer and RMS normalisation), or the channels of a group with their pixels (group and instance
// normalisation). What was added up before is added on the way in, and functions are done on the way out.
//
// The mean comes first, and then the squares of what is left without it (two passes, the second one of which
// puts the mean right, too: T. Chan, G. Golub and R. LeVeque, "Algorithms for Computing the Sample Variance",
// 1983), which loses nothing where the mean is large. Both are taken of a block that fits into the first
// cache; blocks are brought together by the same authors' formula, so that long rows come from memory twice
// and not three times. What is not a number, or infinite, becomes what the arithmetic written out makes of
// it: no number in all of the row, but for RMS, where only it itself is none, and numbers beside an infinity
// are 0.
#ifndef COLLAGE_NATIVE_NORM_H_
#define COLLAGE_NATIVE_NORM_H_

#include <cstdint>
#include <vector>

#include "native/norm_addend.h"
#include "native/post.h"

namespace collage::native {

// Elements with the mean and the sum of the squares about it, or about 0.
struct NormMoments {
  float count = 0, mean = 0, squares = 0;
};

// Those of two sets of elements that have nothing in common. Both must not be empty.
static inline __attribute__((always_inline)) NormMoments Together(const NormMoments& a,
                                                                  const NormMoments& b) {
  const float difference = b.mean - a.mean, count = a.count + b.count;
  return {count, a.mean + difference * (b.count / count),
          a.squares + b.squares + difference * difference * (a.count * b.count / count)};
}

// Elements that share statistics, and what is added to them first.
struct NormSource {
  const float* data = nullptr;
  int num_addends = 0;
  const float* addends[kMostNormAddends] = {};
  // Which of them have one number for `inner` neighbours, of which `before` lie in front of the first
  // element; 0 neighbours where there are none such.
  bool spread[kMostNormAddends] = {};
  int64_t inner = 0, before = 0;
  // Where the sums are stored; null where there are no addends.
  float* sum = nullptr;
  int64_t count = 0;
};

// (x - mean) * factor * gain + shift, for elements of which `inner` neighbours share a gain and a shift.
struct NormWrite {
  const float* from = nullptr;
  int64_t count = 0;
  float mean = 0, factor = 1;
  // Those of the first element; null for 1 and 0.
  const float *gain = nullptr, *shift = nullptr;
  int64_t inner = 1;
  // How many of the first one's neighbours lie in front of it.
  int64_t before = 0;
  const Post* posts = nullptr;
  int num_posts = 0;
  const Operand* operands = nullptr;  // at the first element
  float* out = nullptr;
};

// The loops, for each level of instructions (native/norm_loops.h).
struct NormLoops {
  // The moments of one row, or of a part of it; without a mean (0) where it is not centred. No addend is
  // spread.
  void (*measure)(const NormSource& source, bool centred, NormMoments* moments);
  // Stores the sums, whatever is added.
  void (*add)(const NormSource& source);
  void (*write)(const NormWrite& write);
};

struct NormShape {
  // What elements are divided by: the root of variance + epsilon, the root of the variance + epsilon, the
  // root of the mean square + epsilon; nothing, and no mean is taken away.
  enum class Divisor { kVariance, kDeviation, kSquare, kNone };
  Divisor divisor = Divisor::kVariance;
  // Elements of a row, which share a mean and a divisor.
  int64_t length = 1;
  // The gain and the shift have so many elements, each for `inner` neighbours; rows go through them one
  // behind the other and begin anew at the end. Rows end where neighbours do.
  int64_t channels = 1, inner = 1;
  bool gain = false, shift = false;
  float epsilon = 0;
  // The variance is divided by one less than the number of elements.
  bool unbiased = false;
  // What is added to the data first, in this order.
  std::vector<NormAddend> addends;
  // The elements of an image, which ends where a row does, for addends that have numbers for channels.
  int64_t image = 0;
};

// Elements of a piece, at least, which takes one or two microseconds: more than it costs to begin one.
// docs/native.md, "Blocking".
constexpr int64_t kNormPiece = 8192;

class Norm {
 public:
  // How many tensors are added on the way out.
  static constexpr int kMostOperands = 4;

  struct Arguments {
    int64_t rows = 0;
    const float* data = nullptr;
    const float* addends[kMostNormAddends] = {};
    const float *gain = nullptr, *shift = nullptr;
    // The sum, where it is wanted. The result may lie where the data, an addend or the sum does.
    float* sum = nullptr;
    float* out = nullptr;
    const Operand* operands = nullptr;  // tensors of the result's size
    // As many as Scratch says.
    NormMoments* scratch = nullptr;
  };

  Norm(NormShape shape, std::vector<Post> posts, int64_t piece = kNormPiece);

  // In how many parts each of so many rows is divided, by so many threads. Rows of one part are done in one
  // step (WholeRows); those of several need two, Measure and then Write.
  int64_t Parts(int64_t rows, int threads) const;
  int Pieces(int64_t rows, int threads) const;
  int64_t Scratch(int64_t rows, int threads) const;
  void WholeRows(const Arguments& a, int piece, int pieces) const;
  void Measure(const Arguments& a, int64_t parts, int piece, int pieces) const;
  void Write(const Arguments& a, int64_t parts, int piece, int pieces) const;

 private:
  int64_t Begin(int64_t part, int64_t parts) const;
  // Elements begin .. end - 1 of a row, as they are read; there are some.
  NormSource SourceOf(const Arguments& a, int64_t row, int64_t begin, int64_t end) const;
  NormMoments MomentsOf(const Arguments& a, int64_t row, int64_t begin, int64_t end) const;
  void WriteRow(const Arguments& a, const NormMoments& moments, int64_t row, int64_t begin,
                int64_t end) const;
  // The same of elements that have been added up.
  void WriteSums(const Arguments& a, const NormMoments& moments, int64_t row, int64_t begin,
                 int64_t end) const;

  const NormShape shape_;
  const std::vector<Post> posts_;
  const int64_t piece_;
  // Whether an addend has one number for neighbours.
  bool spreads_ = false;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_NORM_H_
