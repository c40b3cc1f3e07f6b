// SPDX-License-Identifier: Apache-2.0
//
// Post-operations of the program as posts of kernels of our own (native/post.h).
#ifndef COLLAGE_DNNL_POSTS_H_
#define COLLAGE_DNNL_POSTS_H_

#include <optional>
#include <vector>

#include "dnnl_program.h"
#include "native/post.h"

namespace collage::onednn {

// What our kernels do in place of an elementwise post-operation; nothing where they have none like it.
std::optional<native::Post> ElementwisePostOf(const PostOp& post);

// The post-operations of an operator that our kernels do, from the first on, and the values that these add.
struct OwnPosts {
  std::vector<native::Post> list;
  std::vector<int> addends;
};
OwnPosts OwnPostsOf(const Op& op, const std::vector<ValueType>& values, size_t most_addends);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_POSTS_H_
