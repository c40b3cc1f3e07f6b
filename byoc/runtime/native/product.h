// SPDX-License-Identifier: Apache-2.0
//
// Dense layers on few rows: a kernel of our own beside oneDNN's matmul. The weights of a layer are read once
// for a few dozen rows, so that they come from the third-level cache or from memory about as fast as they are
// used; this kernel fetches the next piece of them while it works on one, which oneDNN's does not (64x256 by
// 256x256 with weights that are not in the caches nearby: 31 us to 37 on one thread of a Zen 5).
#ifndef COLLAGE_NATIVE_PRODUCT_H_
#define COLLAGE_NATIVE_PRODUCT_H_

#include <memory>
#include <vector>

#include "native/crew.h"
#include "native/tile.h"
#include "native/workspace.h"

namespace collage::native {

// Weights as they are read: panels of up to two vectors of columns, each with all rows, one after the other.
// Products of one left side follow one another in it.
class PackedWeights {
 public:
  struct Panel {
    const float* weights;
    const float* bias;  // null without one
    int result;         // to which of the products it belongs
    int64_t column;     // its first column there
    int64_t width;      // columns
  };

  // rows: of each of the weights, which all begin in this memory; columns: of all of them together.
  PackedWeights(int64_t rows, int64_t columns);

  // Adds a product's weights, the element (r, c) of which is at data[r * row_step + c * column_step], and its
  // bias or null. columns must be a multiple of AVX-512's width.
  void Add(const float* data, int64_t row_step, int64_t column_step, int64_t columns, const float* bias);

  int64_t rows() const { return rows_; }
  int results() const { return results_; }
  const std::vector<Panel>& panels() const { return panels_; }

  // What is read after the last panel: those of the product that runs next. The weights must outlive this.
  const PackedWeights* next = nullptr;

 private:
  const int64_t rows_;
  AlignedMemory memory_;
  float* end_;
  int results_ = 0;
  std::vector<Panel> panels_;
  std::vector<std::vector<float>> biases_;
};

// data: the left side [rows, weights->rows()], the operands of the posts that have one, and the results, each
// row-major; a post's operand lies as the (only) result. The result must lie in memory of its own.
PieceWork ProductKernel(std::shared_ptr<const PackedWeights> weights, int64_t rows,
                        const std::vector<int64_t>& columns, std::vector<TilePost> posts, int threads);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PRODUCT_H_
