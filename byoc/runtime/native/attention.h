// SPDX-License-Identifier: Apache-2.0
//
// Attention in one step: softmax(scale * q k^T + mask) v for each head. The scores of a few queries at a time
// are made, become weights and are used while they are in the first cache.
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
  int64_t batch = 1, heads = 1, queries = 1, keys = 1;
  int64_t size = 1;        // of a query and a key
  int64_t value_size = 1;  // of a value and a result: whole vectors, see the operator's limits
  float scale = 1;
  // The columns of the query, the value and the result lie one after the other (step 1), those of the mask
  // do or are one (0).
  HeadSteps query, key, value, mask, result;
  bool masked = false;
};

// Bytes of the buffer that the kernel works in.
int64_t AttentionScratch(const AttentionShape& shape, int threads);

// data: query, key, value, the mask if there is one, the result, the scratch buffer. The result overlaps
// nothing that is read.
PieceWork AttentionKernel(const AttentionShape& shape, int threads);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_ATTENTION_H_
