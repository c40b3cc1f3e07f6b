// SPDX-License-Identifier: Apache-2.0
#include "native/matvec.h"

#include <algorithm>

#include "native/divide_up.h"
#include "native/vectors.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// So many rows are added up together at the end.
constexpr int kRows = 16;

// The rows first .. last - 1 of a product.
struct Part {
  const float* matrix;
  const float* vector;
  const float* bias;
  float* result;
  int64_t columns, first, last, ahead;
};

// What is left of a row behind its last whole vector: the end of the vector that ends with the row. What lies
// in front of it, which was counted before, is 0 on both sides, whatever stands there.
template <int kWidth>
struct Tail {
  using Bits = typename VectorOf<kWidth>::Index;
  using Vector = typename VectorOf<kWidth>::Type;

  bool there = false;
  Bits kept{};
  Vector vector{};

  // By reference: wide vectors are no arguments where a function does not say for which processors it is.
  COLLAGE_INLINE void Keep(const Vector& values, Vector* result) const {
    *result = reinterpret_cast<Vector>(reinterpret_cast<Bits>(values) & kept);
  }
  COLLAGE_INLINE Tail(const float* from, int64_t columns) {
    const int64_t rest = columns % kWidth;
    there = rest > 0 && columns > kWidth;
    if (!there) return;
    for (int64_t i = kWidth - rest; i < kWidth; ++i) kept[i] = -1;
    Keep(VectorOf<kWidth>::At(from + columns - kWidth), &vector);
  }
};

// Four sums of a row each, so that an addition need not wait for the one before. Rows lie one behind the
// other, so that what is asked for ahead of a row's end are the next ones: every line of memory is, however
// short the rows are.
template <int kWidth>
COLLAGE_INLINE void SumRow(const float* from, const float* vector, const Part& part, const Tail<kWidth>& tail,
                           typename VectorOf<kWidth>::Type* sum) {
  using V = VectorOf<kWidth>;
  const int64_t columns = part.columns;
  const float* const ahead = from + part.ahead;
  typename V::Type a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * kWidth <= columns; i += 4 * kWidth) {
    __builtin_prefetch(ahead + i);
    __builtin_prefetch(ahead + i + kLanes);
    __builtin_prefetch(ahead + i + 2 * kLanes);
    __builtin_prefetch(ahead + i + 3 * kLanes);
    a += V::At(from + i) * V::At(vector + i);
    b += V::At(from + i + kWidth) * V::At(vector + i + kWidth);
    c += V::At(from + i + 2 * kWidth) * V::At(vector + i + 2 * kWidth);
    d += V::At(from + i + 3 * kWidth) * V::At(vector + i + 3 * kWidth);
  }
  for (; i + kWidth <= columns; i += kWidth) {
    __builtin_prefetch(ahead + i);
    a += V::At(from + i) * V::At(vector + i);
  }
  __builtin_prefetch(ahead + i);
  if (tail.there) {
    typename V::Type last;
    tail.Keep(V::At(from + columns - kWidth), &last);
    b += last * tail.vector;
  } else {
    float rest = 0;
    for (; i < columns; ++i) rest += from[i] * vector[i];
    a[0] += rest;
  }
  *sum = (a + b) + (c + d);
}

template <int kWidth>
COLLAGE_INLINE void Multiply(const Part& part) {
  using Vector = typename VectorOf<kWidth>::Type;
  const Tail<kWidth> tail(part.vector, part.columns);
  for (int64_t row = part.first; row < part.last; row += kRows) {
    const int64_t count = std::min<int64_t>(kRows, part.last - row);
    Vector sums[kRows]{};
    float results[kRows];
    for (int64_t r = 0; r < count; ++r) {
      SumRow<kWidth>(part.matrix + (row + r) * part.columns, part.vector, part, tail, &sums[r]);
    }
    AddUp<kWidth, kRows>(sums, results);
    for (int64_t r = 0; r < count; ++r) {
      part.result[row + r] = results[r] + (part.bias == nullptr ? 0.0F : part.bias[row + r]);
    }
  }
}

void MultiplyAny(const Part& part) { Multiply<4>(part); }
#ifdef COLLAGE_X86
COLLAGE_AVX2 void MultiplyAvx2(const Part& part) { Multiply<8>(part); }
COLLAGE_AVX512 void MultiplyAvx512(const Part& part) { Multiply<16>(part); }
#endif

using PartFunction = void (*)(const Part&);

PartFunction BestFunction() {
#ifdef COLLAGE_X86
  const InstructionSet best = BestInstructionSet();
  if (best == InstructionSet::kAvx512) return MultiplyAvx512;
  if (best == InstructionSet::kAvx2) return MultiplyAvx2;
#endif
  return MultiplyAny;
}

}  // namespace

void MatrixTimesVector(const float* matrix, const float* vector, const float* bias, float* result,
                       int64_t rows, int64_t columns, const MatVecBlocking& blocking) {
  static const PartFunction function = BestFunction();
  const int64_t least = std::max<int64_t>(1, blocking.grain / (kRows * columns));  // in groups of rows
  const int64_t groups = DivideUp(rows, kRows);
  const auto some = [&](int64_t begin, int64_t end) {
    function(
        {matrix, vector, bias, result, columns, begin * kRows, std::min(end * kRows, rows), blocking.ahead});
  };
  if (groups <= least) return some(0, groups);
  DivideRange(groups, least, some);
}

}  // namespace collage::native
