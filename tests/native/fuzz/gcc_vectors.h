// SPDX-License-Identifier: Apache-2.0
//
// Included ahead of the kernels where Clang compiles them: GCC's shuffling of vectors, which Clang lacks.
#ifndef COLLAGE_FUZZ_GCC_VECTORS_H_
#define COLLAGE_FUZZ_GCC_VECTORS_H_

#if defined(__clang__)

namespace collage::gcc_vectors {

template <typename Vector, typename Order>
Vector Shuffle(Vector a, Vector b, Order order) {
  constexpr int kCount = sizeof(Vector) / sizeof(a[0]);
  Vector shuffled = a;
  for (int i = 0; i < kCount; ++i) {
    const int from = static_cast<int>(order[i]) & (2 * kCount - 1);
    shuffled[i] = from < kCount ? a[from] : b[from - kCount];
  }
  return shuffled;
}

template <typename Vector, typename Order>
Vector Shuffle(Vector a, Order order) {
  return Shuffle(a, a, order);
}

}  // namespace collage::gcc_vectors

#define __builtin_shuffle ::collage::gcc_vectors::Shuffle

#endif

#endif  // COLLAGE_FUZZ_GCC_VECTORS_H_
