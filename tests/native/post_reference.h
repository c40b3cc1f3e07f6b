// SPDX-License-Identifier: Apache-2.0
//
// What native/post.h says, in doubles and one number at a time.
#ifndef COLLAGE_NATIVE_POST_REFERENCE_H_
#define COLLAGE_NATIVE_POST_REFERENCE_H_

#include <cmath>
#include <limits>
#include <vector>

#include "native/post.h"

namespace collage::native {

inline double GreaterOf(double a, double b) { return a > b ? a : b; }
inline double LessOf(double a, double b) { return a < b ? a : b; }

// operand: the element of the post's operand that belongs to x.
inline double PostOf(const Post& post, double x, double operand = 0) {
  switch (post.kind) {
    case Post::Kind::kRelu:
      return post.alpha == 0 ? GreaterOf(x, 0) : x > 0 ? x : post.alpha * x;
    case Post::Kind::kClip:
      return GreaterOf(LessOf(x, post.beta), post.alpha);
    case Post::Kind::kLinear:
      return post.alpha * x + post.beta;
    case Post::Kind::kAdd:
      return x + operand;
    case Post::Kind::kMultiply:
    case Post::Kind::kRowScale:
      return x * operand;
    case Post::Kind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Post::Kind::kSilu:
      return x * (1 / (1 + std::exp(-post.alpha * x)));
    case Post::Kind::kHardSwish:
      return x * GreaterOf(LessOf(x + 3, 6), 0) / 6;
    case Post::Kind::kGelu:
      return x * (0.5 + 0.5 * std::erf(x * std::sqrt(0.5)));
    case Post::Kind::kGeluTanh:
      return x * (0.5 + 0.5 * std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Post::Kind::kGrid:  // std::round takes halves away from 0
      return post.alpha * std::round(GreaterOf(LessOf(x / post.alpha, post.beta + 255), post.beta));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// One of each kind that needs no operand, but for the one that jumps (kGrid).
inline std::vector<Post> PostsWithoutOperand() {
  using Kind = Post::Kind;
  return {{Kind::kRelu, 0, 0, -1}, {Kind::kRelu, 0.25F, 0, -1}, {Kind::kClip, -0.5F, 0.75F, -1},
          {Kind::kClip, 0, 6, -1}, {Kind::kLinear, 2, -1, -1},  {Kind::kSigmoid, 0, 0, -1},
          {Kind::kSilu, 1, 0, -1}, {Kind::kSilu, 1.5F, 0, -1},  {Kind::kHardSwish, 0, 0, -1},
          {Kind::kGelu, 0, 0, -1}, {Kind::kGeluTanh, 0, 0, -1}};
}

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_POST_REFERENCE_H_
