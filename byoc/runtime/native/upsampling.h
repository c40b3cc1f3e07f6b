// SPDX-License-Identifier: Apache-2.0
//
// Upsampling by nearest neighbours followed by a convolution, as one kernel of our own: the products that
// native/upsampling_axis.h says, each a product of matrices over the pixels of a row, summed in registers,
// and written to the large tensor with bias and clamp. f32; channels in blocks of 16.
#ifndef COLLAGE_NATIVE_UPSAMPLING_H_
#define COLLAGE_NATIVE_UPSAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "native/post.h"
#include "native/upsampling_axis.h"
#include "native/vectors.h"

namespace collage::native {

// The operands of a segment of a row are kept this small, in elements, so that they and a group's weights fit
// into a core's second cache: docs/native.md, "Blocking".
constexpr int64_t kUpsampledOperands = 64 * 1024;

class UpsampledConvolutionKernel {
 public:
  UpsampledConvolutionKernel(int64_t batch, int64_t in_channels, int64_t out_channels, UpsampledAxis height,
                             UpsampledAxis width, int threads, int64_t operands = kUpsampledOperands);

  // In elements: the weights as `Run` wants them, and what it needs to work in.
  size_t PackedSize() const;
  size_t ScratchSize() const { return scratch_per_thread_ * static_cast<size_t>(threads_); }

  // Sums and packs weights [out_channels, in_channels, height, width], which lie by these steps.
  void Pack(const float* weights, const std::vector<int64_t>& strides, float* packed) const;

  struct Arguments {
    const float* src = nullptr;
    const float* packed = nullptr;
    const float* bias = nullptr;  // one for each channel, or none
    float* dst = nullptr;
    float* scratch = nullptr;
    ChannelBlocks src_layout, dst_layout;
    // What is done to results last, if anything: kRelu of slope 0, or kClip.
    std::optional<Post> clamp;
  };
  // Runs on at most `threads` threads. All of the destination is written, what pads its
  // channels to whole blocks with the result of zeros.
  void Run(const Arguments& arguments) const;

  // One product that is added to results: where its operand begins in the scratch, and which panel of weights
  // it takes.
  struct Term {
    int64_t operand, panel;
  };
  // The terms for results of one row phase (or of all), those for all columns, and by column phase.
  struct TermGroup {
    int64_t phase;
    std::vector<Term> shared;
    std::vector<std::vector<Term>> by_column;
  };

 private:
  void RunSegment(const Arguments& arguments, int64_t task, float* scratch) const;
  void Transform(const Arguments& arguments, int64_t image, int64_t row, int64_t first, int64_t last,
                 float* scratch) const;

  int64_t batch_, in_channels_, out_channels_;
  UpsampledAxis height_, width_;
  int threads_;
  int64_t in_blocks_, out_blocks_;
  // A row is worked on in segments of so many pixels; `pitch_` more are in the scratch for the shifts.
  int64_t segment_, segments_, pitch_;
  // The groups of output channels are divided among so many tasks.
  int64_t shares_;
  // The shifts of differences of rows, each once.
  std::vector<int64_t> row_shifts_;
  // The first group is that of all row phases.
  std::vector<TermGroup> groups_;
  // In elements: the operands of a segment, and all that a thread works in.
  int64_t operands_;
  size_t scratch_per_thread_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_UPSAMPLING_H_
