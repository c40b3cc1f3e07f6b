// SPDX-License-Identifier: Apache-2.0
//
// The product of matrices that all kernels are made of: a tile of the result is held in registers while a few
// rows of the left side and a few vectors of columns of the right side run past it (Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008). The right side is packed in panels; the left
// one is read as it lies. f32.
//
// There is one tile for each level of instructions (native/level.h): 6 rows by 4 vectors with AVX-512, more
// rows where a panel has fewer vectors (14 by 2, which leaves two registers for the right side), and 6 by 2
// elsewhere.
#ifndef COLLAGE_NATIVE_GEMM_H_
#define COLLAGE_NATIVE_GEMM_H_

#include <cstddef>
#include <cstdint>

#include "native/divide_up.h"
#include "native/post.h"

namespace collage::native {

// One of the products that are summed up: so many elements behind `left`, and rows behind `right`.
struct GemmSegment {
  int64_t left = 0, right = 0;
};

// out = posts(initial + sum over segments of left * right), of one panel of the right side: any number of
// rows, and as many columns as a panel has or fewer. What is stored may lie where operands of posts do.
struct GemmWork {
  const float* left = nullptr;  // element (r, k) at left[r * left_row + k]
  int64_t left_row = 0;
  const float* right = nullptr;  // element (k, c) at right[k * right_row + c]: whole vectors are read
  int64_t right_row = 0;
  int64_t length = 0;                     // of one segment: columns of left, rows of right
  const GemmSegment* segments = nullptr;  // null: one, at left and right themselves
  int64_t num_segments = 1;
  int64_t rows = 0, columns = 0;
  const float* initial = nullptr;  // null: zeros; initial_row 0: the same for all rows, as a bias
  int64_t initial_row = 0;
  float* out = nullptr;
  int64_t out_row = 0;
  // From one vector of columns to the next; 0: side by side.
  int64_t out_vector = 0;
  const Post* posts = nullptr;
  int num_posts = 0;
  const Operand* operands = nullptr;
  int64_t row = 0, column = 0;  // where in the operands the first result's element is
  // Is brought near while this is worked on: so many elements from there on.
  const float* ahead = nullptr;
  int64_t ahead_size = 0;
};

// out = posts(in), for results that no product makes. The result may lie where the argument or operands do.
struct RowsWork {
  const float* in = nullptr;
  int64_t in_row = 0;
  float* out = nullptr;
  int64_t out_row = 0;
  int64_t rows = 0, columns = 0;
  const Post* posts = nullptr;
  int num_posts = 0;
  const Operand* operands = nullptr;
  int64_t row = 0, column = 0;  // where in the operands the first result's element is
};

// What is compiled for one level.
struct GemmLoops {
  int64_t rows, panel;  // rows of the widest tile, columns of a panel
  void (*multiply)(const GemmWork&);
  void (*apply)(const RowsWork&);
  // A matrix [rows, columns], whose elements are apart by row_step and column_step, becomes rows of `padded`
  // elements; what is padded is 0.
  void (*pack_rows)(const float* from, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns,
                    float* to, int64_t padded);
};

// Rows of the widest tile of this processor: work is best divided in multiples of them.
int64_t TileRows();

// Columns of a panel of this processor, of which a right side has so many; the last one is narrower: whole
// vectors.
int64_t PanelColumns();
int64_t PanelsOf(int64_t columns);
// How wide the panel that begins with this column lies, in elements.
int64_t PanelWidth(int64_t column, int64_t columns);

// Elements of a packed right side of so many rows and columns. The panel that begins with column c begins at
// element rows * c.
int64_t PackedElements(int64_t rows, int64_t columns);
// Packs a right side, the element (r, c) of which is at data[r * row_step + c * column_step].
void PackPanels(const float* data, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns,
                float* packed);

// By GemmLoops of this processor.
void Multiply(const GemmWork& work);
// The same with all panels of a packed right side: `right`, `initial` and `out` are those of column 0,
// `columns` are all; the next panel is fetched ahead.
void MultiplyPanels(const GemmWork& work);
void Apply(const RowsWork& work);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_GEMM_H_
