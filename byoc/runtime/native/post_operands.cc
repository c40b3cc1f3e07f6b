// SPDX-License-Identifier: Apache-2.0
#include "native/post_operands.h"

#include <algorithm>

namespace collage::native {

size_t NumOperands(const std::vector<Post>& posts) {
  int last = -1;
  for (const Post& post : posts) last = std::max(last, post.operand);
  return static_cast<size_t>(last + 1);
}

std::vector<Operand> OperandsOf(const std::vector<Post>& posts, const float* const* addends, int64_t row) {
  std::vector<Operand> operands;
  for (size_t i = 0; i < NumOperands(posts); ++i) operands.push_back({addends[i], row});
  return operands;
}

}  // namespace collage::native
