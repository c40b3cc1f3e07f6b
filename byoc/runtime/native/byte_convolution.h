// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and dense layers as products of bytes (native/bytes.h): the data are rounded first, by a step
// of its own that several may share, then multiplied. In: f32, channels innermost. Out: f32.
#ifndef COLLAGE_NATIVE_BYTE_CONVOLUTION_H_
#define COLLAGE_NATIVE_BYTE_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/bytes.h"
#include "native/dot.h"
#include "native/padded_images.h"
#include "native/post.h"

namespace collage::native {

// Images as bytes, in multiples of 4 channels, and zeros around them.
struct ByteImages : PaddedImages {
  // Rounds [images, height, width, channels]. scales: one for each image, which is found; where known is not
  // null, it is that one for all.
  void Round(const float* from, const ByteScale* known, int threads, uint8_t* to, ByteScale* scales) const;
};

// Post::Kind::kGrid of each of `count` numbers; to may be from.
void RoundToGrid(const float* from, int64_t count, float scale, float least, int threads, float* to);

class ByteConvolution {
 public:
  using Shape = ConvolutionShape;

  // threads is how many threads Run may use.
  ByteConvolution(const Shape& shape, std::vector<Post> posts, int threads);

  // Whether the sums cannot overflow.
  bool Fits() const { return window_.Terms() <= kMostTerms; }
  // How the data must lie.
  const ByteImages& data() const { return data_; }
  // Of the packed weights, in bytes; they begin at multiples of 64.
  size_t PackedSize() const;
  // Weights, -127 to 127, with steps, in elements, for output channel, input channel, row and column, and the
  // scale of each output channel.
  void Pack(const int8_t* weight, const int64_t* steps, const float* scales, void* packed) const;
  // What Run needs beside its tensors, in bytes; they begin at multiples of 64. May be 0.
  size_t ScratchSize() const;
  // bias has one number for each output channel, or is null. Addends are laid out like dst, [pixels,
  // channels], and may be dst.
  void Run(const uint8_t* bytes, const ByteScale* scales, const void* packed, const float* bias,
           const float* const* addends, void* scratch, float* dst) const;

 private:
  int64_t Columns() const;  // whole vectors
  int64_t Rows() const { return shape_.batch * shape_.out_height * shape_.out_width; }
  int64_t Workers() const;
  DotRows At() const;            // where windows begin
  int64_t GatheredSize() const;  // of what one worker copies

  Shape shape_;
  ByteImages data_;
  std::vector<Post> posts_;
  int threads_;
  Stretches window_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_BYTE_CONVOLUTION_H_
