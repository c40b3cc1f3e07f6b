// SPDX-License-Identifier: Apache-2.0
//
// The small product of matrices that products and attention are made of: a tile of the result is held in
// registers while a few rows of the left side and a few vectors of columns of the right side run past it
// (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008).
//
// The bodies are templates on the vector's width; VectorUnit below says how to have them compiled for one
// kind of processor, and UnitOf which kind this one is.
#ifndef COLLAGE_NATIVE_TILE_H_
#define COLLAGE_NATIVE_TILE_H_

#include <cstdint>

namespace collage::native {

// Rows and vectors of columns of the largest tile: with AVX-512, 16 sums, two vectors of the right side and
// one number of the left one, which two loads and two multiplications a cycle keep busy.
constexpr int kTileRows = 8;
constexpr int kTileVectors = 2;

// What is done to a tile before it is stored.
struct TilePost {
  enum class Kind {
    kRelu,    // x > 0 ? x : alpha * x
    kLinear,  // alpha * x + beta
    kAdd,     // + operand, which lies as the result does
    kScale,   // row r is multiplied by operand[r]
  };
  Kind kind = Kind::kLinear;
  float alpha = 0, beta = 0;
  const float* operand = nullptr;
};

// c = initial + a b, with the posts done to it. Row-major; lda, ldb, ldc are the rows' distances in elements.
struct TileWork {
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t length = 0;  // the columns of a, the rows of b
  // The rows with which the sums begin (initial_step 0: one for all, as a bias); null for zeros.
  const float* initial = nullptr;
  int64_t initial_step = 0;
  // Is brought nearer to the processor on the way, so many elements further on for each row of b.
  const float* prefetch = nullptr;
  int64_t prefetch_step = 0;
  const TilePost* posts = nullptr;
  int num_posts = 0;
  int64_t offset = 0;  // of c in the result, and so of what posts read in their operands
};

using TileFunction = void (*)(const TileWork&);

// What rows of scores become: exponentials of scale * score + mask less the row's maximum; sums gets the
// inverse of their sum. Rows are padded with zeros to whole vectors, and the padding becomes 0.
struct SoftmaxWork {
  float* scores = nullptr;
  int64_t rows = 0, step = 0, length = 0;
  float scale = 1;
  const float* mask = nullptr;  // null without one
  int64_t mask_step = 0;        // from row to row
  bool mask_along = false;      // one number for each score, or one for the row
  float* inverse_sums = nullptr;
};

// A kind of processor: the functions compiled for it.
struct VectorUnit {
  int width;  // elements of a vector
  // By rows, less one, and vectors of columns, less one.
  TileFunction tiles[kTileRows][kTileVectors];
  void (*softmax)(const SoftmaxWork&);
  // Rows of a matrix [rows, columns], whose elements are apart by row_step and column_step, become columns of
  // a matrix of padded columns; what is padded is 0.
  void (*pack_transposed)(const float* from, int64_t row_step, int64_t column_step, int64_t rows,
                          int64_t columns, float* to, int64_t padded);
};

// The one for BestInstructionSet. AVX-512 has the width 16.
const VectorUnit& BestVectorUnit();

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_TILE_H_
