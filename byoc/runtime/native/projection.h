// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with kernels of one element and stride 1 (a product of matrices: pixels by channels, channels
// by channels), in f32, on data whose channels are the innermost axis. What is added to their results is
// fetched while these are multiplied, for which oneDNN 2.6 waits.
#ifndef COLLAGE_NATIVE_PROJECTION_H_
#define COLLAGE_NATIVE_PROJECTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/post.h"

namespace collage::native {

// How the work is cut: docs/native.md, "Blocking".
struct ProjectionBlocking {
  int64_t pixels = 96;  // are multiplied with one panel in a row
  // Work for less than this many multiplications is not divided among threads.
  int64_t grain = 1 << 18;
};

class ProjectionKernel {
 public:
  // [pixels, in_channels] to [pixels, out_channels]. threads is how many threads Run may use.
  ProjectionKernel(int64_t pixels, int64_t in_channels, int64_t out_channels, std::vector<Post> posts,
                   int threads, const ProjectionBlocking& blocking = {});

  // The size of the packed weights, in floats.
  size_t PackedSize() const;

  // Packs weights, which lie with these strides for output and input channel.
  void Pack(const float* weight, int64_t out_stride, int64_t in_stride, float* packed) const;

  // bias has one number for each output channel, or is null; addends are laid out like dst and may be dst.
  void Run(const float* src, const float* packed, const float* bias, const float* const* addends,
           float* dst) const;

 private:
  int64_t pixels_, in_channels_, out_channels_;
  std::vector<Post> posts_;
  int threads_;
  ProjectionBlocking blocking_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PROJECTION_H_
