// SPDX-License-Identifier: Apache-2.0
//
// Attention in one step: softmax(scale * q k^T + masks) v for each head. The scores of some queries and keys
// at a time are made, become weights and are used while they are in the nearest caches (T. Dao et al.,
// "FlashAttention", 2022); of many keys only a block is packed at a time.
#ifndef COLLAGE_NATIVE_ATTENTION_H_
#define COLLAGE_NATIVE_ATTENTION_H_

#include <cstdint>
#include <memory>

#include "native/crew.h"
#include "native/ragged.h"

namespace collage::native {

// Where the element (n, g, h, i, j) of a matrix for each of n sequences, g groups of heads and h heads in
// each lies: at `begin` and the sum of the products with the steps, in elements. A step of 0 has all share
// what lies there, as the heads of a group share keys and values.
struct HeadSteps {
  int64_t batch = 0, group = 0, head = 0, row = 0, column = 0, begin = 0;
};

// What is done to the scores before the softmax (native/softmax.h): what is added, or which are replaced.
struct AttentionMask {
  HeadSteps steps;
  bool chooses = false;  // else it is added
  bool keeps = true;
  float fill = 0;
};

struct AttentionShape {
  static constexpr int kMostMasks = 2;

  int64_t batch = 1, groups = 1, heads = 1, queries = 1, keys = 1;  // heads are those of a group
  int64_t size = 1;                                                 // of a query and a key
  int64_t value_size = 1;                                           // of a value and a result
  float scale = 1;
  // Weights of a query that are no numbers (all of its scores are -infinity, or one is no number) become 0,
  // and so does its result, whatever the values are.
  bool cleared = false;
  // The columns of the query and the result lie one after the other (step 1), those of masks do or are one
  // (0).
  HeadSteps query, key, value, result;
  int num_masks = 0;
  AttentionMask masks[kMostMasks];
  // The mask, if there is one, that does nothing to the keys 0 .. i + sees - 1 of query i, and to all others
  // the same: it adds `beyond` to their scores, or replaces them by it. The others are left out where that
  // cannot be seen in the result.
  static constexpr int kNoTriangle = -1;
  int triangle = kNoTriangle;
  int64_t sees = 0;
  float beyond = 0;
  // Where it is given, rows of query, key, value and result are packed tokens: of each sequence as many as it
  // has, with steps from row to row, none from sequence to sequence. queries and keys are then the most that
  // there may be of one. Masks are those of padded sequences, of which tokens see their own places: there is
  // no padding between these then, unless a mask is that of all sequences and of any places, as a triangle
  // is.
  std::shared_ptr<const RaggedRows> ragged;
};

// How the work is cut: docs/native.md, "Blocking". Keys that are packed and used at a time; scores that are
// made at a time, which are to stay in the first cache beside a panel of keys.
struct AttentionBlocking {
  int64_t keys = 512, scores = 12 * 1024;
};

// Bytes of the buffer that the kernel works in. It does not grow with the keys beyond some hundreds.
int64_t AttentionScratch(const AttentionShape& shape, int threads, const AttentionBlocking& blocking = {});

// data: query, key, value, the masks, the result, the scratch buffer. The result overlaps nothing that is
// read.
PieceWork AttentionKernel(const AttentionShape& shape, int threads, const AttentionBlocking& blocking = {});

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_ATTENTION_H_
