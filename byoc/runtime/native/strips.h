// SPDX-License-Identifier: Apache-2.0
//
// Operators on images that are run strip by strip: a few rows go through all of them, on one thread and in
// its caches, before the next rows begin. f32, channels innermost, one pixel after the other at a fixed
// distance.
//
// What is made inside lies in the scratch memory of a thread, for the rows of one strip; what is read
// elsewhere lies in tensors, as whole images. A window sees pixels around its own, so that it reads a tensor
// that was finished before, or what was made ahead: all rows that the strip's windows see. Products and
// functions see one pixel at a time and read either.
//
// Rows that two strips see are made once where both are of one thread and one image: a thread's strips follow
// one another then, and it keeps them. Making them again for each strip costs more than is gained.
#ifndef COLLAGE_NATIVE_STRIPS_H_
#define COLLAGE_NATIVE_STRIPS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "native/post.h"
#include "native/window.h"

namespace collage::native {

// What a strip's values may take together, in bytes: half of what a core's second-level cache holds on
// processors with AVX-512 (1 to 2 MB), so that weights pass through the other half. docs/native.md,
// "Blocking".
constexpr int64_t kStripBytes = 512 << 10;

// In how many strips so many rows are divided among so many threads: the fewest whose values take no more
// than the budget each, and as many for each thread. bytes: what the values of so many rows take.
int64_t StripsFor(int64_t rows, int64_t threads, const std::function<int64_t(int64_t rows)>& bytes,
                  int64_t budget = kStripBytes);

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

// What a product makes ahead: rows of images of this size, of which row r of a window's results sees rows
// r * stride - top to r * stride - top + seen - 1, those that there are.
struct StripAhead {
  int64_t height = 0, width = 0, stride = 1, top = 0;
  int64_t seen = 0;  // 0: nothing is made ahead

  // The first row that results from `row` on see, and the one behind the last that those before `end` see.
  int64_t First(int64_t row) const { return std::clamp<int64_t>(row * stride - top, 0, height); }
  int64_t End(int64_t end) const { return std::clamp<int64_t>((end - 1) * stride - top + seen, 0, height); }
  // At most so many rows are seen by so many rows of results.
  int64_t Rows(int64_t results) const { return std::min(height, (results - 1) * stride + seen); }
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
  // kProduct: it works on the rows that windows see, reads tensors alone, and its result lies in the scratch,
  // in a place that no other action uses.
  StripAhead ahead;
  // kWindow: the action that makes ahead what is read; -1 where that is a tensor.
  int source = -1;
};

struct Strips {
  int64_t images = 0, height = 0, width = 0;  // of all results
  int64_t strips = 0;                         // in how many the rows of all images are divided
  int64_t threads = 1;
  std::vector<StripAction> actions;
  int64_t scratch = 0;                       // elements for each thread
  bool looks_ahead = false;                  // whether any of the actions is ahead
  std::vector<std::shared_ptr<void>> owned;  // what weights and biases point to

  // data: the scratch memory of all threads, and the tensors from 1 on.
  void Run(void* const* data) const;

 private:
  // The first row of a strip, counted through all images.
  int64_t FirstRow(int64_t strip) const { return strip * images * height / strips; }
  // What an action has made ahead: these rows of an image.
  struct Made {
    int64_t image = -1, first = 0, end = 0;
  };
  // Rows first .. first + count - 1 of the results; made: by the number of an action, null where none is
  // ahead, else all results are of one image.
  void RunRows(void* const* data, float* mine, int64_t first, int64_t count, Made* made) const;
  // Strips first .. end - 1, one after the other.
  void RunStrips(void* const* data, float* mine, int64_t first, int64_t end) const;
  void RunAhead(const StripAction& a, void* const* data, float* mine, int64_t first, int64_t count,
                Made& made) const;
  void RunFactors(const StripAction& a, const float* factors, const float* in, float* out, int64_t first,
                  int64_t count) const;
  void RunWindows(const StripAction& a, const float* image, const Operand& other, float* out, int64_t first,
                  int64_t count) const;
  // The same of what was made ahead: rows `made` of one image.
  void RunWindowAhead(const StripAction& a, const float* rows, const Made& made, const Operand& other,
                      float* out, int64_t first, int64_t count) const;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_STRIPS_H_
