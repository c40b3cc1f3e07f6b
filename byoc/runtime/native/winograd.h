// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with 3x3 kernels and stride 1 by Winograd's minimal filtering (A. Lavin and S. Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016), in f32, on data whose channels are the
// innermost axis.
//
// oneDNN 2.6 has such kernels, too, but only in two dimensions, in blocks of 16 channels (which are then put
// in order around every convolution, since its other kernels are fastest with the channels inside), and about
// half as fast. Here the kernel may also have a depth: a slice of the result is the sum over the depth's taps
// of convolutions of slices of the data, so that the products run over taps and channels at once, taps that
// meet only padding cost nothing, and each slice of the data is transformed once.
#ifndef COLLAGE_NATIVE_WINOGRAD_H_
#define COLLAGE_NATIVE_WINOGRAD_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/post.h"
#include "native/winograd_task.h"

namespace collage::native {

// How the work is cut. What each is for, and where it comes from: docs/native.md, "Blocking".
struct WinogradBlocking {
  // The side of the square of results (tile) that is computed at once, 2 or 4; 0: the one that costs less,
  // where to read a packed weight from memory costs as much as so many multiplications.
  int64_t side = 0, weight_cost = 8;
  // How much of a core's cache the transformed tiles of a block take, in floats, and the least number of
  // tiles for which all weights are read once more.
  int64_t block_floats = 256 * 1024, least_tiles = 48;
};

class WinogradKernel {
 public:
  // Both numbers of channels must be multiples of this: of the vectors of each level.
  static constexpr int64_t kChannels = 16;

  // threads is how many threads Run may use: the scratch memory is divided among them. posts are done to each
  // result, in order.
  WinogradKernel(const WinogradShape& shape, std::vector<Post> posts, int threads,
                 const WinogradBlocking& blocking = {});

  // That of a tile: 2 or 4.
  int64_t side() const { return side_; }

  // The sizes, in floats, of the packed weights and of Run's scratch memory.
  size_t PackedSize() const;
  size_t ScratchSize() const;

  // Transforms weights, which lie with these strides for output channel, input channel, depth, row, column.
  void Pack(const float* weight, const int64_t (&strides)[5], float* packed) const;

  // Convolves. bias has one number for each output channel, or is null; addends are laid out like dst and may
  // be dst; src may not. Not to be called twice at the same time with the same scratch memory.
  void Run(const float* src, const float* packed, const float* bias, const float* const* addends,
           float* scratch, float* dst) const;

 private:
  // Where things lie in the scratch memory of one worker: the steps from plane to plane and from slice to
  // slice of the transformed data, at 0, and of the products, at out.
  struct Scratch {
    int64_t in_plane, in_slice, out_plane, out_slice, out, size;
  };
  Scratch ScratchOf() const;

  WinogradShape shape_;
  std::vector<Post> posts_;
  int threads_;
  // The transformed tile's side has two more.
  int64_t side_;
  int64_t tile_rows_, tile_columns_, tiles_;  // tiles_: of one slice in depth, of the whole batch
  // How many tiles one thread takes at a time, all phases; 0 where the phases are divided, each among all.
  int64_t block_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_WINOGRAD_H_
