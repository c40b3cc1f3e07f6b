// SPDX-License-Identifier: Apache-2.0
//
// Attention in one step: softmax(scale * q k^T + masks) v for each head. The scores of some queries and keys
// at a time are made, become weights and are used while they are in the nearest caches (T. Dao et al.,
// "FlashAttention", 2022); of many keys only a block is packed at a time.
#ifndef COLLAGE_NATIVE_ATTENTION_H_
#define COLLAGE_NATIVE_ATTENTION_H_

#include <cstdint>

#include "native/crew.h"

namespace collage::native {

// Where the element (n, h, i, j) of a matrix for each of n sequences and h heads lies: at the sum of the
// products with the steps, in elements.
struct HeadSteps {
  int64_t batch = 0, head = 0, row = 0, column = 0;
};

struct AttentionShape {
  static constexpr int kMostMasks = 2;

  int64_t batch = 1, heads = 1, queries = 1, keys = 1;
  int64_t size = 1;        // of a query and a key
  int64_t value_size = 1;  // of a value and a result
  float scale = 1;
  // The columns of the query and the result lie one after the other (step 1), those of masks do or are one
  // (0).
  HeadSteps query, key, value, result;
  int num_masks = 0;
  HeadSteps masks[kMostMasks];
  // Query i sees the keys 0 .. i + keys - queries and no others.
  bool causal = false;
};

// Bytes of the buffer that the kernel works in. It does not grow with the keys beyond some hundreds.
int64_t AttentionScratch(const AttentionShape& shape, int threads);

// data: query, key, value, the masks, the result, the scratch buffer. The result overlaps nothing that is
// read.
PieceWork AttentionKernel(const AttentionShape& shape, int threads);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_ATTENTION_H_
