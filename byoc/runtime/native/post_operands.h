// SPDX-License-Identifier: Apache-2.0
//
// The operands that posts read.
#ifndef COLLAGE_NATIVE_POST_OPERANDS_H_
#define COLLAGE_NATIVE_POST_OPERANDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "native/post.h"

namespace collage::native {

// How many they are.
size_t NumOperands(const std::vector<Post>& posts);

// The addends as operands, in their order; a row of one begins `row` elements behind the row before.
std::vector<Operand> OperandsOf(const std::vector<Post>& posts, const float* const* addends, int64_t row);

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_POST_OPERANDS_H_
