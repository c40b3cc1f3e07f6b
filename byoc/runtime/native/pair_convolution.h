// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and products of matrices in bfloat16 (native/pairs.h), with weights that are packed
// beforehand. In: f32, which a step of its own rounds, or bf16; channels innermost. Out: f32 or bf16.
#ifndef COLLAGE_NATIVE_PAIR_CONVOLUTION_H_
#define COLLAGE_NATIVE_PAIR_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/padded_images.h"
#include "native/pairs.h"
#include "native/post.h"

namespace collage::native {

// Images of bfloat16, in pairs of channels, and zeros around them.
struct PairImages : PaddedImages {
  // Whether they lie as the images themselves do: nothing is around them.
  bool AreImages() const;
  // Of [images, height, width, channels] the numbers rounded, or copied.
  void Round(const float* from, int threads, uint16_t* to) const;
  void Copy(const uint16_t* from, int threads, uint16_t* to) const;

 private:
  template <typename From, typename Put>
  void Fill(const From* from, int threads, uint16_t* to, const Put& put) const;
};

class PairConvolution {
 public:
  struct Weights {
    // So many, each for as many of the images: those that follow one another.
    int64_t count = 1;
    // From one to the next, to the next output channel, input channel, row and column, in elements.
    int64_t step = 0, steps[4] = {0, 0, 0, 0};
  };

  // threads is how many threads Run may use.
  PairConvolution(const ConvolutionShape& shape, const Weights& weights, std::vector<Post> posts,
                  int threads);

  // How the data must lie.
  const PairImages& data() const { return data_; }
  // Of the packed weights, in elements; they begin at multiples of 64 bytes.
  size_t PackedSize() const;
  void Pack(const uint16_t* weight, uint16_t* packed) const;

  // [pixels, channels], of one type or the other.
  struct Result {
    float* f32 = nullptr;
    uint16_t* bf16 = nullptr;
  };
  // bias has one number for each output channel, or is null. Addends are f32, laid out like the result, and
  // may be that.
  void Run(const uint16_t* data, const uint16_t* packed, const float* bias, const float* const* addends,
           const Result& result) const;

 private:
  // Which stretches of its windows a line of the result sees of the image; what is above and below is 0.
  struct Seen {
    int64_t first = 0, count = 0;
    bool operator==(const Seen& other) const { return first == other.first && count == other.count; }
  };
  Seen SeenBy(int64_t line) const;
  int64_t Columns() const;  // whole vectors

  ConvolutionShape shape_;
  Weights weights_;
  PairImages data_;
  std::vector<Post> posts_;
  int threads_;
  Stretches window_;
  std::vector<Seen> seen_;  // by line
  bool alike_ = true;
  std::vector<int64_t> begins_;  // of its stretches, in bytes
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PAIR_CONVOLUTION_H_
