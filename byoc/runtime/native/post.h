// SPDX-License-Identifier: Apache-2.0
//
// What kernels do to their results before they store them.
//
// What is not a number, and infinities, become what TVM's own code makes of them, in every kernel and at
// every level of instructions. One rule says it all: a greatest value is `a > b ? a : b` and a least one `a <
// b ? a : b`, so that b stands where nothing can be compared; and
//
//   relu            max(x, 0)                  no number: 0
//   leaky relu      x > 0 ? x : alpha * x      no number: stays
//   clip            max(min(x, high), low)     no number: high
//   grid            likewise                   no number: the greatest
//   maximum pool    from the lowest finite number on, pixel by pixel as they lie, padding being that number,
//                   too: max(so far, pixel)    no number: forgotten, but where it comes last
//   softmax         no number, or +infinity, anywhere in a row, and a row of -infinity: no number in all of
//   it
//
// Denormal numbers are numbers like others, in what is read, in between and in results, powers of e among
// them: TVM's exp gives them, too.
#ifndef COLLAGE_NATIVE_POST_H_
#define COLLAGE_NATIVE_POST_H_

#include <cstdint>

namespace collage::native {

struct Post {
  enum class Kind {
    kRelu,       // x > 0 ? x : alpha * x, and 0 in its place where alpha is 0
    kClip,       // between alpha and beta
    kLinear,     // alpha * x + beta
    kAdd,        // + an operand, which has the result's shape
    kMultiply,   // * an operand, likewise; windows and Winograd have no such
    kRowScale,   // a row is multiplied by its element of an operand
    kSigmoid,    // 1 / (1 + e^-x)
    kSilu,       // x / (1 + e^(-alpha x))
    kHardSwish,  // x * clip(x + 3, 0, 6) / 6
    kGelu,       // x/2 * (1 + erf(x / sqrt(2)))
    kGeluTanh,   // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
    kGrid,       // alpha * clip(round(x / alpha), beta, beta + 255), halves away from 0 as TVM rounds them
  };
  Kind kind = Kind::kRelu;
  float alpha = 0, beta = 0;
  int operand = -1;  // kAdd, kMultiply, kRowScale: which of the operands
};

// A tensor that posts read: the element of row r and column c is at data[r * row + c], so that with row 0
// all rows read the same one; of kRowScale's, that of row r at data[r * row].
struct Operand {
  const float* data = nullptr;
  int64_t row = 0;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_POST_H_
