// SPDX-License-Identifier: Apache-2.0
#include "native/upsampling_axis.h"

#include <algorithm>

namespace collage::native {
namespace {

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace

UpsampledAxis::UpsampledAxis(int64_t in, int64_t scale, int64_t kernel, int64_t pad_front, int64_t out)
    : in(in), scale(scale), kernel(kernel), out(out) {
  const int64_t middle = (kernel - 1) / 2;
  // The middle tap of result o lies on the large tensor's pixel o - pad_front + middle.
  offset = pad_front - middle;
  begin = FloorDiv(-offset, scale);
  end = FloorDiv(out - 1 - offset, scale) + 1;
  products.push_back({false, 0, -1, 0, kernel, 1});
  for (int64_t gap = 0; gap + 1 < kernel; ++gap) {
    // Behind tap `gap`: it lies on a boundary where phase + gap + 1 - middle is a multiple of the scale.
    const int64_t shift = -FloorDiv(-(gap + 1 - middle), scale);  // rounded up
    const int64_t phase = shift * scale - (gap + 1 - middle);
    if (gap < middle) {
      products.push_back({true, shift, phase, 0, gap + 1, -1});
    } else {
      products.push_back({true, shift, phase, gap + 1, kernel, 1});
    }
    least_shift = std::min(least_shift, shift);
    greatest_shift = std::max(greatest_shift, shift);
  }
}

}  // namespace collage::native
