// SPDX-License-Identifier: Apache-2.0
#include "native/dot.h"

#include <limits>
#include <utility>

namespace collage::native {

int64_t StepOfRows(const DotRows& at, int64_t first, int64_t rows) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  // So many rows, from a multiple of it on, are so far apart.
  int64_t together = 1, step = 0;
  for (const auto& [extent, next] :
       {std::pair{at.width, at.pixel}, std::pair{at.height, at.line}, std::pair{kMost, at.image}}) {
    if (first / together == (first + rows - 1) / together) break;
    if (extent == 1) continue;
    if (together == 1) {
      step = next;
    } else if (next != step * together) {
      return -1;
    }
    together = extent > kMost / together ? kMost : together * extent;
  }
  return step;
}

}  // namespace collage::native
