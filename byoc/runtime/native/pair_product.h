// SPDX-License-Identifier: Apache-2.0
//
// Products of matrices in bfloat16 (native/pairs.h), with right sides that are packed beforehand. In: f32,
// which a step of its own rounds, or bf16. Out: f32 or bf16.
#ifndef COLLAGE_NATIVE_PAIR_PRODUCT_H_
#define COLLAGE_NATIVE_PAIR_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/divide_up.h"
#include "native/pairs.h"
#include "native/post.h"

namespace collage::native {

// Rows of bfloat16; behind those of an odd length is a zero, so that all are made of pairs.
struct PairRows {
  int64_t rows = 0, length = 0;

  int64_t Row() const { return RoundUp(length, 2); }
  int64_t Size() const { return rows * Row(); }
  // Whether they lie as they do without.
  bool AreWhole() const { return Row() == length; }
  // Of rows that lie one behind the other, the numbers rounded, or copied.
  void Round(const float* from, int threads, uint16_t* to) const;
  void Copy(const uint16_t* from, int threads, uint16_t* to) const;

 private:
  template <typename From, typename Put>
  void Fill(const From* from, int threads, uint16_t* to, const Put& put) const;
};

class PairProduct {
 public:
  struct Shape {
    int64_t rows = 0, length = 0, columns = 0;
    // Right sides, each for as many of the rows: those that follow one another.
    int64_t matrices = 1;
    // Whether right sides are [columns, length], not [length, columns].
    bool transposed = false;
  };

  // threads is how many threads Run may use.
  PairProduct(const Shape& shape, std::vector<Post> posts, int threads);

  // How the left side must lie.
  const PairRows& left() const { return left_; }
  // Of the packed right sides, in elements; they begin at multiples of 64 bytes.
  size_t PackedSize() const;
  void Pack(const uint16_t* right, uint16_t* packed) const;

  // [rows, columns], of one type or the other.
  struct Result {
    float* f32 = nullptr;
    uint16_t* bf16 = nullptr;
  };
  // bias has one number for each column, or is null. Addends are f32, laid out like the result, and may be
  // that.
  void Run(const uint16_t* left, const uint16_t* packed, const float* bias, const float* const* addends,
           const Result& result) const;

 private:
  int64_t Columns() const;  // whole vectors

  Shape shape_;
  PairRows left_;
  std::vector<Post> posts_;
  int threads_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PAIR_PRODUCT_H_
