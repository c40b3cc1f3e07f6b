// SPDX-License-Identifier: Apache-2.0
#include "native/row_kernels.h"

#include <algorithm>
#include <limits>

#include "instruction_set.h"

#define COLLAGE_BODY inline __attribute__((always_inline))

namespace collage::native {
namespace {

struct Add {
  static float Of(float a, float b) { return a + b; }
};
struct Subtract {
  static float Of(float a, float b) { return a - b; }
};
struct Multiply {
  static float Of(float a, float b) { return a * b; }
};
struct Divide {
  static float Of(float a, float b) { return a / b; }
};
struct Maximum {
  static constexpr float kFirst = std::numeric_limits<float>::lowest();
  static float Of(float a, float b) { return a > b ? a : b; }
};
struct Minimum {
  static constexpr float kFirst = std::numeric_limits<float>::max();
  static float Of(float a, float b) { return a < b ? a : b; }
};

// Written out for each of the cases, so that the compiler makes vector code of each.
template <typename F>
COLLAGE_BODY void Row(const float* a, const float* b, float* out, int64_t count, int64_t a_step,
                      int64_t b_step) {
  if (a_step == 1 && b_step == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(a[i], b[i]);
  } else if (a_step == 1 && b_step == 0) {
    const float one = *b;
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(a[i], one);
  } else if (a_step == 0 && b_step == 1) {
    const float one = *a;
    for (int64_t i = 0; i < count; ++i) out[i] = F::Of(one, b[i]);
  } else {
    std::fill(out, out + count, F::Of(*a, *b));
  }
}

COLLAGE_BODY void SumRows(const float* in, float* out, int64_t length, int64_t inner) {
  for (int64_t i = 0; i < inner; ++i) out[i] = 0;
  for (int64_t k = 0; k < length; ++k, in += inner) {
    for (int64_t i = 0; i < inner; ++i) out[i] += in[i];
  }
}

// As TVM has it (native/post.h): from the lowest, or greatest, finite number on.
template <typename F>
COLLAGE_BODY void ExtremeRows(const float* in, float* out, int64_t length, int64_t inner) {
  for (int64_t i = 0; i < inner; ++i) out[i] = F::kFirst;
  for (int64_t k = 0; k < length; ++k, in += inner) {
    for (int64_t i = 0; i < inner; ++i) out[i] = F::Of(out[i], in[i]);
  }
}

// Adds term(k) up, in as many sums as the widest vector has lanes.
template <typename Term>
COLLAGE_BODY float SumOf(int64_t length, const Term& term) {
  constexpr int kLanes = 16;
  float lanes[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= length; k += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(k + lane);
  }
  float sum = 0;
  for (; k < length; ++k) sum += term(k);
  for (const float lane : lanes) sum += lane;
  return sum;
}

COLLAGE_BODY float Sum(const float* in, int64_t length) {
  return SumOf(length, [in](int64_t k) __attribute__((always_inline)) { return in[k]; });
}

COLLAGE_BODY float Squares(const float* in, float mean, int64_t length) {
  return SumOf(length, [in, mean](int64_t k)
                           __attribute__((always_inline)) { return (in[k] - mean) * (in[k] - mean); });
}

COLLAGE_BODY void SquaresRows(const float* in, const float* mean, float* out, int64_t length, int64_t inner) {
  for (int64_t i = 0; i < inner; ++i) out[i] = 0;
  for (int64_t k = 0; k < length; ++k, in += inner) {
    for (int64_t i = 0; i < inner; ++i) out[i] += (in[i] - mean[i]) * (in[i] - mean[i]);
  }
}

// All of them for one level. A function with an attribute takes the bodies in and is compiled as a whole for
// what the attribute says.
#define COLLAGE_ROW(attribute, name, F)                                                                \
  attribute void name(const float* a, const float* b, float* out, int64_t n, int64_t sa, int64_t sb) { \
    Row<F>(a, b, out, n, sa, sb);                                                                      \
  }
#define COLLAGE_ROWS(attribute, name, body)                                         \
  attribute void name(const float* in, float* out, int64_t length, int64_t inner) { \
    body(in, out, length, inner);                                                   \
  }
#define COLLAGE_ROW_KERNELS(attribute, level)                                                         \
  namespace level {                                                                                   \
  COLLAGE_ROW(attribute, AddRow, Add)                                                                 \
  COLLAGE_ROW(attribute, SubtractRow, Subtract)                                                       \
  COLLAGE_ROW(attribute, MultiplyRow, Multiply)                                                       \
  COLLAGE_ROW(attribute, DivideRow, Divide)                                                           \
  COLLAGE_ROW(attribute, MaximumRow, Maximum)                                                         \
  COLLAGE_ROW(attribute, MinimumRow, Minimum)                                                         \
  COLLAGE_ROWS(attribute, AllRows, SumRows)                                                           \
  COLLAGE_ROWS(attribute, MaximumRows, ExtremeRows<Maximum>)                                          \
  COLLAGE_ROWS(attribute, MinimumRows, ExtremeRows<Minimum>)                                          \
  attribute float SumRow(const float* in, int64_t length) { return Sum(in, length); }                 \
  attribute float SquaresRow(const float* in, float mean, int64_t length) {                           \
    return Squares(in, mean, length);                                                                 \
  }                                                                                                   \
  attribute void SquaresOfRows(const float* in, const float* mean, float* out, int64_t length,        \
                               int64_t inner) {                                                       \
    SquaresRows(in, mean, out, length, inner);                                                        \
  }                                                                                                   \
  constexpr RowKernels kAll{AddRow,  SubtractRow, MultiplyRow, DivideRow, MaximumRow, MinimumRow,     \
                            AllRows, MaximumRows, MinimumRows, SumRow,    SquaresRow, SquaresOfRows}; \
  }

COLLAGE_ROW_KERNELS(, plain)
#ifdef COLLAGE_X86
COLLAGE_ROW_KERNELS(__attribute__((target("avx2"))), avx2)
COLLAGE_ROW_KERNELS(__attribute__((target("avx512f"))), avx512)
#endif

}  // namespace

const RowKernels& BestRowKernels() {
  switch (BestInstructionSet()) {
#ifdef COLLAGE_X86
    case InstructionSet::kAvx512:
      return avx512::kAll;
    case InstructionSet::kAvx2:
      return avx2::kAll;
#endif
    default:
      return plain::kAll;
  }
}

}  // namespace collage::native
