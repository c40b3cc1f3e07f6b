// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kernels with posts (native/post.h) give them, and the check that a kernel does each of
// them as the reference does.
#ifndef COLLAGE_NATIVE_POST_CHECK_H_
#define COLLAGE_NATIVE_POST_CHECK_H_

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "post_reference.h"
#include "sample.h"

namespace collage::native {

// Posts that read two operands, with others between them.
inline std::vector<Post> PostsWithOperands() {
  using Kind = Post::Kind;
  return {{Kind::kLinear, 0.5F, 0.25F, -1},
          {Kind::kAdd, 0, 0, 0},
          {Kind::kRelu, 0.125F, 0, -1},
          {Kind::kAdd, 0, 0, 1},
          {Kind::kClip, -1, 2, -1}};
}

// run: the results of a kernel with one post, all of them of x. Looks at each post, of x that is no number,
// infinite or neither.
inline void ExpectPosts(const std::function<std::vector<float>(const Post&, float)>& run) {
  for (const float x : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity(), 1.0F}) {
    for (const Post& post : PostsWithoutOperand()) {
      const std::vector<float> got = run(post, x);
      ExpectClose(got, std::vector<double>(got.size(), PostOf(post, x)), 1e-6,
                  "post " + std::to_string(static_cast<int>(post.kind)) + " of " + std::to_string(x));
    }
  }
}

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_POST_CHECK_H_
