// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of two dimensions that read the windows of a padded copy of an image, and how that copy lies.
#ifndef COLLAGE_NATIVE_PADDED_IMAGES_H_
#define COLLAGE_NATIVE_PADDED_IMAGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace collage::native {

// Without groups; a dense layer is one of images of one pixel.
struct ConvolutionShape {
  int64_t batch = 1, in_channels = 0, in_height = 1, in_width = 1;
  int64_t out_channels = 0, out_height = 1, out_width = 1;
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1}, pad_front[2] = {0, 0};
};

// Images, channels innermost, in multiples of a word, and room around them. Sizes are in elements, which are
// bytes.
struct PaddedImages {
  int64_t images = 1, height = 1, width = 1, channels = 0;
  int64_t top = 0, left = 0;                    // what is ahead of the image
  int64_t padded_height = 1, padded_width = 1;  // may be less than the image has

  int64_t Channels() const;
  int64_t Line() const { return padded_width * Channels(); }
  int64_t Image() const { return padded_height * Line(); }
  int64_t Size() const { return images * Image(); }
  // What is there of the room ahead of a line, and how much of the image: windows need not reach that far.
  int64_t Ahead() const { return std::min(left, padded_width); }
  int64_t Columns() const { return std::max<int64_t>(0, std::min(width, padded_width - left)); }
  int64_t Rows() const { return std::max<int64_t>(0, std::min(height, padded_height - top)); }
  bool operator==(const PaddedImages& other) const;

  // As far as the windows of a convolution reach.
  static PaddedImages For(const ConvolutionShape& shape);
};

// What a window is made of: stretches of memory of the same length, which begin so far behind its first
// pixel. Pixels that lie side by side are one stretch.
struct Stretches {
  std::vector<int64_t> begins;
  int64_t length = 0;

  int64_t Terms() const { return static_cast<int64_t>(begins.size()) * length; }
  static Stretches Of(const ConvolutionShape& shape, const PaddedImages& images);
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PADDED_IMAGES_H_
