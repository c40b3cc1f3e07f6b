// SPDX-License-Identifier: Apache-2.0
//
// What a convolution of an upsampled tensor is along one axis, said in terms of the small tensor.
//
// Nearest-neighbour upsampling repeats each pixel `scale` times. A kernel of `kernel` taps then sees runs of
// equal pixels, so a result is the pixel under the middle tap times the sum of all taps, plus, for each
// boundary between two different pixels that the kernel reaches over, the difference of these two times the
// sum of the taps beyond the boundary. Each of the kernel - 1 gaps between taps lies on a boundary for
// exactly one of the `scale` positions (phases) that a result has within its pixel. So all phases together
// need `kernel` products for a small pixel, as many as the convolution would need without the upsampling, and
// not scale * kernel. In two dimensions that is scale^2 times fewer multiplications than the convolution of
// the large tensor. (For a scale of 2 and 3 taps this is Winograd's F(2, 3), whose product at the point -1
// vanishes on repeated pixels.)
//
// It is exact for all kernels, scales and paddings: what lies outside of the large tensor is zero, and
// belongs to pixels outside of the small one, which count as zero, too.
#ifndef COLLAGE_NATIVE_UPSAMPLING_AXIS_H_
#define COLLAGE_NATIVE_UPSAMPLING_AXIS_H_

#include <cstdint>
#include <vector>

namespace collage::native {

// One product: what of the small tensor, times which sum of taps, goes to which results.
struct AxisProduct {
  // The pixel, or the difference of the pixel at `shift` (counted from the one under the middle tap) and the
  // one before it.
  bool difference = false;
  int64_t shift = 0;
  // Which results: those at this position within their pixel; -1 for all.
  int64_t phase = -1;
  // The sum goes over the taps first .. last - 1, with this sign.
  int64_t first = 0, last = 0;
  float sign = 1;
};

// An axis. The result at s * scale + phase + offset has the pixel s under its middle tap; s runs from begin
// to end - 1, which may lie outside of the tensor, and what it makes outside of the results is not stored.
struct UpsampledAxis {
  UpsampledAxis(int64_t in, int64_t scale, int64_t kernel, int64_t pad_front, int64_t out);

  int64_t in, scale, kernel, out;
  int64_t offset, begin, end;
  // The first is that of the pixel itself.
  std::vector<AxisProduct> products;
  // The least and the greatest shift of the differences; 0 where there are none.
  int64_t least_shift = 0, greatest_shift = 0;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_UPSAMPLING_AXIS_H_
