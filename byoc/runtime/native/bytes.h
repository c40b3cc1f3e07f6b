// SPDX-License-Identifier: Apache-2.0
//
// Products of bytes: what the data are rounded to when the kernel runs, and the weights when they are packed.
//
// A number x of the data becomes the byte round(x / scale) + zero, with one scale and zero for each image of
// a convolution and each row of a dense layer, so that the bytes reach from the least number there to the
// greatest (dynamic quantisation: what is outside of what a calibration saw is not cut off). A weight becomes
// a signed byte, with one scale for each output channel and no zero. Sums of products of bytes are exact in
// 32 bits (up to kMostTerms of them):
//
//   sum of x w = scale * scale of the channel * (sum of bytes - zero * sum of the channel's weights)
//
// native/bytes_loops.h has the loops, compiled for each level, and once more for AVX-512 VNNI, which has an
// instruction for four products at a time (native/level.h).
#ifndef COLLAGE_NATIVE_BYTES_H_
#define COLLAGE_NATIVE_BYTES_H_

#include <cstdint>

#include "native/dot.h"
#include "native/post.h"

namespace collage::native {

// So many products of bytes add up in 32 bits, whatever they are: 255 * 127 * 65536 < 2^31.
constexpr int64_t kMostTerms = 65536;

// How the numbers of one image, or row, became bytes. A scale that is no number, since one of them was none
// or infinite, makes all results that they take part in none.
struct ByteScale {
  float scale = 0;
  int32_t zero = 0;
};

// out = posts(bias + the scaled sum of left * right): bytes of the left side from 0 to 255, signed ones of
// the right side.
struct ByteWork : DotWork {
  const ByteScale* scales = nullptr;     // by image
  const float* column_scales = nullptr;  // whole vectors
  const int32_t* column_sums = nullptr;  // of the right side, whole vectors
};

// What is compiled for one level.
struct ByteLoops {
  int64_t rows, panel;  // rows of a tile, columns of a panel
  int lanes;
  bool gathers;  // whether multiply makes use of DotWork::gathered
  void (*multiply)(const ByteWork&);
  // The same, where somebody else has made the sums: rows of as many as there are columns, each row with a
  // scale of its own. What says where left and right are is not read, and there may be any number of columns.
  void (*scale)(const ByteWork&, const int32_t* sums);
  // The least and the greatest of some numbers, or 0 where that is less or greater; no numbers where one of
  // them is none.
  void (*range)(const float* from, int64_t count, float* least, float* greatest);
  // from[i] / scale + zero, to the nearest whole number, between 0 and 255.
  void (*round)(const float* from, int64_t count, float inverse, int32_t zero, uint8_t* to);
  // Post::Kind::kGrid of each element; to may be from.
  void (*grid)(const float* from, int64_t count, float scale, float least, float* to);
};

// By the range of what is to be rounded, with 0 in it.
ByteScale ScaleOf(float least, float greatest);

// The loops for AllowedInstructionSet.
const ByteLoops& BestByteLoops();

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_BYTES_H_
