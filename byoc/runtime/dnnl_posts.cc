// SPDX-License-Identifier: Apache-2.0
#include "dnnl_posts.h"

namespace collage::onednn {

std::optional<Post> ElementwisePostOf(const PostOp& post) {
  if (post.kind != PostOp::Kind::kEltwise) return std::nullopt;
  Post made;
  made.alpha = post.alpha;
  made.beta = post.beta;
  switch (post.algorithm) {
    case dnnl::algorithm::eltwise_relu:
      made.kind = Post::Kind::kRelu;
      break;
    case dnnl::algorithm::eltwise_clip:
      made.kind = Post::Kind::kClip;
      break;
    case dnnl::algorithm::eltwise_linear:
      made.kind = Post::Kind::kLinear;
      break;
    case dnnl::algorithm::eltwise_logistic:
      made.kind = Post::Kind::kSigmoid;
      break;
    case dnnl::algorithm::eltwise_swish:
      made.kind = Post::Kind::kSilu;
      break;
    case dnnl::algorithm::eltwise_hardswish:
      made.kind = Post::Kind::kHardSwish;
      break;
    case dnnl::algorithm::eltwise_gelu_erf:
      made.kind = Post::Kind::kGelu;
      break;
    case dnnl::algorithm::eltwise_gelu_tanh:
      made.kind = Post::Kind::kGeluTanh;
      break;
    case kGrid:
      made.kind = Post::Kind::kGrid;
      break;
    default:
      return std::nullopt;
  }
  return made;
}

OwnPosts OwnPostsOf(const Op& op, const std::vector<ValueType>& values, size_t most_addends) {
  OwnPosts posts;
  for (const PostOp& post : op.post) {
    if (post.kind == PostOp::Kind::kBinary) {
      if (post.algorithm != dnnl::algorithm::binary_add || values[post.operand].dims != values[op.out].dims ||
          posts.addends.size() == most_addends) {
        break;
      }
      posts.list.push_back({Post::Kind::kAdd, 0, 0, static_cast<int>(posts.addends.size())});
      posts.addends.push_back(post.operand);
    } else {
      const auto made = ElementwisePostOf(post);
      if (!made) break;
      posts.list.push_back(*made);
    }
  }
  return posts;
}

}  // namespace collage::onednn
