// SPDX-License-Identifier: Apache-2.0
#include "blas_split.h"

#include <algorithm>

#include "native/divide_up.h"

namespace collage {
namespace {

// Borders of pieces lie at multiples of these, which the kernels' tiles divide.
constexpr int64_t kRowTile = 16, kColumnTile = 16;

// Multiply-adds below which a product stays on its thread, and those from which its pieces are cut in two
// again, so that a thread which loses its processor for a while holds up less.
constexpr int64_t kSerial = 100'000, kLarge = 32'000'000;

int64_t Border(int64_t i, int64_t parts, int64_t total, int64_t tile) {
  if (i == parts) return total;
  return std::min(total, total * i / parts / tile * tile);
}

}  // namespace

Piece ProductSplit::At(int64_t i) const {
  const int64_t row = i / across, column = i % across;
  return {Border(row, down, m, kRowTile), Border(row + 1, down, m, kRowTile),
          Border(column, across, n, kColumnTile), Border(column + 1, across, n, kColumnTile)};
}

ProductSplit SplitProduct(const BlasProduct& p, int threads) {
  ProductSplit split;
  split.m = p.m;
  split.n = p.n;
  const int64_t work = p.m * p.n * p.k;
  if (threads < 2 || work * p.batch < kSerial) return split;
  split.serial = false;
  int64_t wanted = native::DivideUp(threads, p.batch);
  if (wanted > 1 && work / wanted > kLarge) wanted *= 2;
  // Each piece brings its part of both operands into the kernels' form: the rows of the left side are read
  // once for each piece across, the columns of the right side once for each piece down.
  int64_t least = -1;
  for (int64_t down = 1; down <= wanted; ++down) {
    const int64_t across = native::DivideUp(wanted, down);
    if (down > std::max<int64_t>(1, p.m / kRowTile) || across > std::max<int64_t>(1, p.n / kColumnTile))
      continue;
    const int64_t traffic = across * p.m * p.k + down * p.k * p.n;
    if (least < 0 || traffic < least) {
      least = traffic;
      split.down = down;
      split.across = across;
    }
  }
  if (least < 0) {
    // Too small for so many pieces: as many as there are tiles.
    split.down = std::clamp<int64_t>(p.m / kRowTile, 1, wanted);
    split.across = std::clamp<int64_t>(p.n / kColumnTile, 1, native::DivideUp(wanted, split.down));
  }
  return split;
}

}  // namespace collage
