// SPDX-License-Identifier: Apache-2.0
#include "native/window.h"

#include "native/gemm.h"
#include "native/level.h"

namespace collage::native {

void RunWindow(const WindowRowsWork& work) { BestLevel().window(work); }

int64_t TapsSize(int64_t channels, int64_t kernel) {
  const int64_t lanes = BestLevel().lanes;
  return RoundUp(channels, lanes) * kernel;
}

void PackTaps(const float* taps, int64_t channel_stride, int64_t height_stride, int64_t width_stride,
              int64_t channels, int64_t kernel_height, int64_t kernel_width, float* packed) {
  const int64_t lanes = BestLevel().lanes;
  for (int64_t block = 0; block < channels; block += lanes) {
    for (int64_t y = 0; y < kernel_height; ++y) {
      for (int64_t x = 0; x < kernel_width; ++x) {
        for (int64_t c = block; c < block + lanes; ++c) {
          *packed++ = c < channels ? taps[c * channel_stride + y * height_stride + x * width_stride] : 0.0F;
        }
      }
    }
  }
}

}  // namespace collage::native
