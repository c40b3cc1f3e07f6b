// SPDX-License-Identifier: Apache-2.0
//
// Operators on images that are run strip by strip: a few rows go through all of them, on one thread and in
// its caches, before the next rows begin. f32, channels innermost, one pixel after the other at a fixed
// distance.
//
// What is made inside lies in the scratch memory of a thread, for the rows of one strip; what is read
// elsewhere lies in tensors, as whole images. A window sees pixels around its own, so that it reads a tensor
// that was finished before; products and functions see one pixel at a time and read either.
#ifndef COLLAGE_NATIVE_STRIPS_H_
#define COLLAGE_NATIVE_STRIPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "native/post.h"
#include "native/window.h"

namespace collage::native {

// Where a value is.
struct StripPlace {
  static constexpr int kScratch = -1;
  // Which of the tensors; kScratch: in the thread's memory, `offset` elements behind its beginning.
  int tensor = kScratch;
  int64_t offset = 0;
  // The first channel within a pixel, and the distance of two pixels, in elements: parts of a concatenation
  // lie within one another's pixels.
  int64_t channel = 0, pixel = 0;
};

// One of the operators.
struct StripAction {
  enum class Kind { kProduct, kWindow, kPosts } kind = Kind::kPosts;  // kPosts: they alone
  StripPlace in, other, out;
  // Whether other is read: it is added, or multiplied with.
  bool reads_other = false;
  // Elements from one image's factors to the next's, where other has one for each channel, and is a tensor;
  // -1 where it has the result's shape.
  int64_t factors = -1;
  int64_t channels_in = 0, channels_out = 0;
  const float* weight = nullptr;  // kProduct: what PackPanels made
  const float* bias = nullptr;
  Window window;
  std::vector<Post> posts;  // what is added or multiplied with is operand 0, other
};

struct Strips {
  int64_t images = 0, height = 0, width = 0;  // of all results
  int64_t strips = 0;                         // in how many the rows of all images are divided
  int64_t threads = 1;
  std::vector<StripAction> actions;
  int64_t scratch = 0;                       // elements for each thread
  std::vector<std::shared_ptr<void>> owned;  // what weights and biases point to

  // data: the scratch memory of all threads, and the tensors from 1 on.
  void Run(void* const* data) const;

 private:
  void RunStrip(void* const* data, float* mine, int64_t index) const;
  void RunFactors(const StripAction& a, const float* factors, const float* in, float* out, int64_t first,
                  int64_t count) const;
  void RunWindows(const StripAction& a, const float* image, const Operand& other, float* out, int64_t first,
                  int64_t count) const;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_STRIPS_H_
