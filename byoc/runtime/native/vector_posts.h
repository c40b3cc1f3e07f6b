// SPDX-License-Identifier: Apache-2.0
//
// What our own convolutions do to their results before they store them.
#ifndef COLLAGE_NATIVE_VECTOR_POSTS_H_
#define COLLAGE_NATIVE_VECTOR_POSTS_H_

#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#include <immintrin.h>
#endif

namespace collage::native {

struct VectorPost {
  enum class Kind { kRelu, kClip, kLinear, kAdd };
  Kind kind = Kind::kRelu;
  // kRelu: alpha is the slope of what is negative. kClip: the bounds. kLinear: alpha * x + beta.
  float alpha = 0, beta = 0;
  // kAdd: the number of the tensor, laid out like the result, that is added.
  int addend = -1;
};

// Whether our own convolutions, which are written for AVX-512 and nothing else, can run here.
inline bool HasVectors() {
#ifdef COLLAGE_X86_GCC
  return BestInstructionSet() == InstructionSet::kAvx512;
#else
  return false;
#endif
}

#ifdef COLLAGE_X86_GCC
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma")

// The elementwise ones, to so many vectors.
inline __attribute__((always_inline)) void ApplyPost(const VectorPost& post, __m512* values, int count) {
  const __m512 alpha = _mm512_set1_ps(post.alpha), beta = _mm512_set1_ps(post.beta),
               zero = _mm512_setzero_ps();
  for (int i = 0; i < count; ++i) {
    __m512& v = values[i];
    switch (post.kind) {
      case VectorPost::Kind::kRelu:
        v = v < zero ? (post.alpha == 0 ? zero : alpha * v) : v;
        break;
      case VectorPost::Kind::kClip:
        v = v < alpha ? alpha : v;
        v = v > beta ? beta : v;
        break;
      case VectorPost::Kind::kLinear:
        v = alpha * v + beta;
        break;
      case VectorPost::Kind::kAdd:
        break;
    }
  }
}

#pragma GCC pop_options
#endif

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_VECTOR_POSTS_H_
