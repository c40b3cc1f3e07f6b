// SPDX-License-Identifier: Apache-2.0
#include "native/padded_images.h"

#include "native/divide_up.h"
#include "native/dot.h"

namespace collage::native {

int64_t PaddedImages::Channels() const { return RoundUp(channels, kWordBytes); }

bool PaddedImages::operator==(const PaddedImages& other) const {
  return images == other.images && height == other.height && width == other.width &&
         channels == other.channels && top == other.top && left == other.left &&
         padded_height == other.padded_height && padded_width == other.padded_width;
}

PaddedImages PaddedImages::For(const ConvolutionShape& shape) {
  PaddedImages padded;
  padded.images = shape.batch;
  padded.height = shape.in_height;
  padded.width = shape.in_width;
  padded.channels = shape.in_channels;
  padded.top = shape.pad_front[0];
  padded.left = shape.pad_front[1];
  padded.padded_height =
      (shape.out_height - 1) * shape.stride[0] + (shape.kernel[0] - 1) * shape.dilation[0] + 1;
  padded.padded_width =
      (shape.out_width - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1] + 1;
  return padded;
}

Stretches Stretches::Of(const ConvolutionShape& shape, const PaddedImages& images) {
  Stretches window;
  const bool side_by_side = shape.dilation[1] == 1;
  window.length = images.Channels() * (side_by_side ? shape.kernel[1] : 1);
  for (int64_t y = 0; y < shape.kernel[0]; ++y) {
    for (int64_t x = 0; x < (side_by_side ? 1 : shape.kernel[1]); ++x) {
      window.begins.push_back(y * shape.dilation[0] * images.Line() +
                              x * shape.dilation[1] * images.Channels());
    }
  }
  return window;
}

}  // namespace collage::native
