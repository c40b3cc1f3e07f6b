// SPDX-License-Identifier: Apache-2.0
//
// Group normalisation of images whose channels lie innermost, pixel behind pixel: a group of channels, with
// all pixels of its image, shares a mean and a deviation. With as many groups as channels it is instance
// normalisation. (native/norm.h has what lies channel behind channel.)
//
// Moments are taken of each channel by itself, so that all loops go along the channels, and then those of a
// group's channels are brought together, in double. The data is read from memory twice: the squares are
// summed up about a pixel of each short block, the mean and what it costs are put right at the block's end
// (shifted data: T. Chan, G. Golub and R. LeVeque, "Algorithms for Computing the Sample Variance", 1983), and
// blocks are brought together by the same authors' formula. The mean of a block is no further from one of its
// n pixels than the root of n deviations, so that at most n times the rounding of a number is lost, however
// large the mean is.
//
// What is not a number, or infinite, makes no number of all of its group, as the arithmetic written out does.
#ifndef COLLAGE_NATIVE_PIXEL_NORM_H_
#define COLLAGE_NATIVE_PIXEL_NORM_H_

#include <cstdint>
#include <vector>

#include "native/norm_addend.h"
#include "native/post.h"

namespace collage::native {

// Pixels of one image, and where their channels' means and the sums of the squares about them go.
struct PixelMoments {
  const float* data = nullptr;
  // What is added first, at the first pixel, and where the sums are stored.
  int num_addends = 0;
  Operand addends[kMostNormAddends];
  float* sum = nullptr;
  int64_t pixels = 0, channels = 0;
  float *means = nullptr, *squares = nullptr;
  // For so many channels each.
  float *block_sums = nullptr, *block_squares = nullptr;
};

// (x - mean) * factor + shift, with those of its channel.
struct PixelWrite {
  const float* from = nullptr;
  int64_t pixels = 0, channels = 0;
  const float *means = nullptr, *factors = nullptr, *shifts = nullptr;
  const Post* posts = nullptr;
  int num_posts = 0;
  const Operand* operands = nullptr;  // at the first pixel, in rows of the channels
  float* out = nullptr;
};

// The loops, for each level of instructions (native/pixel_norm_loops.h).
struct PixelNormLoops {
  void (*measure)(const PixelMoments& work);
  void (*write)(const PixelWrite& work);
};

struct PixelNormShape {
  int64_t pixels = 1, channels = 1;  // of an image
  int64_t groups = 1;                // divides the channels
  bool gain = false, shift = false;  // with an element for each channel
  float epsilon = 0;
  // The variance is divided by one less than the number of elements.
  bool unbiased = false;
  // What is added to the data first, in this order; there are no rows.
  std::vector<NormAddend> addends;
};

class PixelNorm {
 public:
  // How many tensors are added on the way out.
  static constexpr int kMostOperands = 4;

  struct Arguments {
    int64_t images = 0;
    const float* data = nullptr;
    const float* addends[kMostNormAddends] = {};
    const float *gain = nullptr, *shift = nullptr;
    // The sum, where it is wanted. The result may lie where the data or the sum does.
    float* sum = nullptr;
    float* out = nullptr;
    const Operand* operands = nullptr;  // tensors of the result's size
    float* scratch = nullptr;           // as many as Scratch says
  };

  // Throws where the groups do not divide the channels, or what is added is not known.
  PixelNorm(PixelNormShape shape, std::vector<Post> posts);

  // In how many parts the pixels of each of so many images are divided, by so many threads. Images of one
  // part are done in one step (WholeImages); those of several need two, Measure and then Write.
  int64_t Parts(int64_t images, int threads) const;
  int Pieces(int64_t images, int threads) const;
  int64_t Scratch(int64_t images, int threads) const;
  void WholeImages(const Arguments& a, int piece, int pieces) const;
  void Measure(const Arguments& a, int64_t parts, int piece, int pieces) const;
  void Write(const Arguments& a, int64_t parts, int piece, int pieces) const;

 private:
  // What a piece, or a part, has of the scratch memory.
  struct Room {
    float *means, *squares, *write_means, *factors, *shifts;
  };
  Room RoomOf(float* scratch, int64_t index) const;
  void MeasurePart(const Arguments& a, int64_t image, int64_t part, int64_t parts, const Room& room) const;
  // Brings together the moments of all channels of a group and of all parts, the first of which is in rooms
  // from the given one on, and writes one part.
  void WritePart(const Arguments& a, int64_t image, int64_t part, int64_t parts, int64_t first_room,
                 const Room& room) const;

  const PixelNormShape shape_;
  const std::vector<Post> posts_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_PIXEL_NORM_H_
