// SPDX-License-Identifier: Apache-2.0
//
// Products of numbers that are narrower than 32 bits: in each lane an instruction multiplies several that lie
// side by side, four bytes or two of bfloat16, and adds the products up. Such a group is called a word here.
#ifndef COLLAGE_NATIVE_DOT_H_
#define COLLAGE_NATIVE_DOT_H_

#include <cstdint>

#include "native/post.h"

namespace collage::native {

constexpr int64_t kWordBytes = 4;

// The rows of the left side in memory, as pixels of images: row r is the pixel r % width of the line
// r / width % height of an image, and the images follow one another. In bytes.
struct DotRows {
  int64_t width = 1, height = 1;
  int64_t pixel = 0, line = 0, image = 0;
};

// How far apart `rows` rows from the first one on are; -1: not equally.
int64_t StepOfRows(const DotRows& at, int64_t first, int64_t rows);

// Rows that are not equally far apart, copied so that they are, by loops that read them so (AMX's). Who has
// several panels multiplied with the same rows keeps it from one to the next.
struct GatheredRows {
  uint8_t* to = nullptr;  // as many as the work has, each of all stretches in whole kGatheredBytes
  int64_t row = -1;       // the first one of the work for which they were copied
};
constexpr int64_t kGatheredBytes = 64;

// out = posts(bias + the sum over stretches of left * right) of one panel of the right side.
struct DotWork {
  const uint8_t* left = nullptr;
  DotRows at;                          // where a row begins
  const int64_t* stretches = nullptr;  // so many bytes further on are the ones that are multiplied
  int64_t num_stretches = 1;
  int64_t length = 0;  // bytes of one stretch: whole words
  // A word of a column, then that of the next one; whole vectors of columns.
  const uint8_t* right = nullptr;
  int64_t rows = 0, columns = 0;
  const float* bias = nullptr;  // as many as there are columns; null: none
  float* out = nullptr;
  int64_t out_row = 0;
  const Post* posts = nullptr;
  int num_posts = 0;
  const Operand* operands = nullptr;
  int64_t row = 0, column = 0;       // the first one of all rows and columns: of `at`, operands and `out`
  int64_t step = -1;                 // StepOfRows of these rows
  GatheredRows* gathered = nullptr;  // null: loops do without
  bool next = false;  // whether what lies behind `right` is multiplied next, and not in the caches yet
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_DOT_H_
