// SPDX-License-Identifier: Apache-2.0
//
// For kernels of our own that keep sums in registers: vectors of GCC's and Clang's kind, and attributes that
// compile a function for one sort of processors.
#ifndef COLLAGE_NATIVE_VECTORS_H_
#define COLLAGE_NATIVE_VECTORS_H_

#include <cstdint>

#include "instruction_set.h"

#define COLLAGE_INLINE inline __attribute__((always_inline))
#ifdef COLLAGE_X86
#define COLLAGE_AVX512 __attribute__((target("avx512f")))
#define COLLAGE_AVX2 __attribute__((target("avx2,fma")))
#endif
// Has a vector in a register, which the compiler would rather read from memory for each use.
#ifdef COLLAGE_X86_GCC
#define COLLAGE_IN_REGISTER(vector) asm("" : "+v"(vector))
#else
#define COLLAGE_IN_REGISTER(vector)
#endif

namespace collage::native {

// oneDNN's blocks of channels.
constexpr int64_t kLanes = 16;

// How a tensor [batch, channels, height, width] lies: the steps, in elements, between images, blocks of
// kLanes channels, rows and pixels. The channels of a block stand side by side.
struct ChannelBlocks {
  int64_t batch = 0, block = 0, row = 0, pixel = 0;
};

// A vector of so many numbers, at any address.
template <int kWidth>
struct VectorOf {
  typedef float Type __attribute__((vector_size(kWidth * sizeof(float)), aligned(sizeof(float))));
  typedef int32_t Index __attribute__((vector_size(kWidth * sizeof(float))));

  static COLLAGE_INLINE const Type& At(const float* from) { return *reinterpret_cast<const Type*>(from); }
  static COLLAGE_INLINE Type& At(float* to) { return *reinterpret_cast<Type*>(to); }
};

// The sums of the elements of kCount vectors, as vectors. Two vectors become one, of the sums of their
// neighbours, until each vector has shrunk to one element.
template <int kWidth, int kCount>
COLLAGE_INLINE void AddUp(typename VectorOf<kWidth>::Type (&sums)[kCount], float* out) {
  using Index = typename VectorOf<kWidth>::Index;
  Index even{}, odd{};
#pragma GCC unroll 16
  for (int i = 0; i < kWidth; ++i) {
    even[i] = 2 * i;
    odd[i] = 2 * i + 1;
  }
#pragma GCC unroll 8
  for (int first = 0; first < kCount; first += kWidth) {
#pragma GCC unroll 4
    for (int count = kWidth; count > 1; count /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < count / 2; ++i) {
        const auto a = sums[first + 2 * i], b = sums[first + 2 * i + 1];
        sums[first + i] = __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
      }
    }
    VectorOf<kWidth>::At(out + first) = sums[first];
  }
}

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_VECTORS_H_
