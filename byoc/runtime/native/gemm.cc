// SPDX-License-Identifier: Apache-2.0
#include "native/gemm.h"

#include <algorithm>

#include "native/level.h"

namespace collage::native {

int64_t TileRows() { return BestLevel().gemm.rows; }

int64_t PanelColumns() { return BestLevel().gemm.panel; }

int64_t PanelsOf(int64_t columns) { return DivideUp(columns, PanelColumns()); }

int64_t PanelWidth(int64_t column, int64_t columns) {
  const Level& level = BestLevel();
  return std::min(level.gemm.panel, RoundUp(columns - column, level.lanes));
}

int64_t PackedElements(int64_t rows, int64_t columns) { return rows * RoundUp(columns, BestLevel().lanes); }

void PackPanels(const float* data, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns,
                float* packed) {
  const GemmLoops& loops = BestLevel().gemm;
  for (int64_t column = 0; column < columns; column += loops.panel) {
    loops.pack_rows(data + column * column_step, row_step, column_step, rows,
                    std::min(loops.panel, columns - column), packed + rows * column,
                    PanelWidth(column, columns));
  }
}

void Multiply(const GemmWork& work) { BestLevel().gemm.multiply(work); }

void MultiplyPanels(const GemmWork& all) {
  const int64_t panel = PanelColumns();
  GemmWork work = all;
  for (int64_t column = 0; column < all.columns; column += panel) {
    work.right = all.right + column * all.length;
    work.right_row = PanelWidth(column, all.columns);
    work.columns = std::min(panel, all.columns - column);
    work.initial = all.initial == nullptr ? nullptr : all.initial + column;
    work.out = all.out + column;
    work.column = all.column + column;
    // What is read next: the next panel, or the first one again.
    const bool last = column + panel >= all.columns;
    work.ahead = last ? all.right : work.right + work.right_row * all.length;
    work.ahead_size = PanelWidth(last ? 0 : column + panel, all.columns) * all.length;
    Multiply(work);
  }
}

void Apply(const RowsWork& work) { BestLevel().gemm.apply(work); }

}  // namespace collage::native
