// SPDX-License-Identifier: Apache-2.0
//
// How a matrix product is cut into pieces that run side by side on a library without threads of its own.
#ifndef COLLAGE_BLAS_SPLIT_H_
#define COLLAGE_BLAS_SPLIT_H_

#include <cstdint>

#include "blas_program.h"

namespace collage {

// Rows m0 to m1 and columns n0 to n1 of a result.
struct Piece {
  int64_t m0, m1, n0, n1;
};

// Each matrix of the batch in down times across pieces.
struct ProductSplit {
  int64_t m = 1, n = 1, down = 1, across = 1;
  // So small that waking another thread does not pay.
  bool serial = true;

  int64_t Pieces() const { return down * across; }
  Piece At(int64_t i) const;
};

ProductSplit SplitProduct(const BlasProduct& product, int threads);

}  // namespace collage

#endif  // COLLAGE_BLAS_SPLIT_H_
