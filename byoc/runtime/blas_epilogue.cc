// SPDX-License-Identifier: Apache-2.0
#include "blas_epilogue.h"

#include <algorithm>
#include <cmath>

#include "instruction_set.h"

#define COLLAGE_BODY inline __attribute__((always_inline))

namespace collage {
namespace {

// Values that stay in the first-level cache between the loops over them.
constexpr int64_t kChunk = 2048;

template <typename T>
COLLAGE_BODY void AddTo(T* values, const T* addend, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] += addend[i];
}

template <typename T>
COLLAGE_BODY void ReluOf(T* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] > 0 ? values[i] : 0;
}

// x/2 * (1 + erf(x/sqrt(2))). The error function is a quotient of polynomials in the square of its argument,
// fitted on [-4, 4] (beyond, it is 1 to float's precision); its error is below 4e-7.
COLLAGE_BODY void GeluOf(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = values[i];
    float z = x * 0.70710678F;
    z = z > 4.0F ? 4.0F : z;
    z = z < -4.0F ? -4.0F : z;
    const float u = z * z;
    float p = 1.97482964e-6F;
    p = p * u + 2.88041837e-4F;
    p = p * u + 4.00365759e-3F;
    p = p * u + 5.34675131e-2F;
    p = p * u + 1.96249231e-1F;
    p = p * u + 1.12837898F;
    float q = 3.74808806e-5F;
    q = q * u + 1.21636308e-3F;
    q = q * u + 1.54444446e-2F;
    q = q * u + 1.16476533e-1F;
    q = q * u + 5.07252511e-1F;
    q = q * u + 1.0F;
    values[i] = 0.5F * x * (1.0F + z * p / q);
  }
}

// The error function is a call for each number, whatever the vectors.
void GeluOf(double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = 0.5 * values[i] * (1 + std::erf(values[i] * M_SQRT1_2));
}

// The loops for one type of element, compiled for one level of instructions.
template <typename T>
struct Loops {
  void (*add)(T* values, const T* addend, int64_t count);
  void (*relu)(T* values, int64_t count);
  void (*gelu)(T* values, int64_t count);
};

#define COLLAGE_LOOPS(attribute, level)                                                             \
  namespace level {                                                                                 \
  attribute void Add(float* values, const float* addend, int64_t n) { AddTo(values, addend, n); }   \
  attribute void Add(double* values, const double* addend, int64_t n) { AddTo(values, addend, n); } \
  attribute void Relu(float* values, int64_t n) { ReluOf(values, n); }                              \
  attribute void Relu(double* values, int64_t n) { ReluOf(values, n); }                             \
  attribute void Gelu(float* values, int64_t n) { GeluOf(values, n); }                              \
  template <typename T>                                                                             \
  constexpr Loops<T> kLoops{Add, Relu, Gelu};                                                       \
  template <>                                                                                       \
  constexpr Loops<double> kLoops<double>{Add, Relu, GeluOf};                                        \
  }

COLLAGE_LOOPS(, plain)
#ifdef COLLAGE_X86
COLLAGE_LOOPS(__attribute__((target("avx2"))), avx2)
COLLAGE_LOOPS(__attribute__((target("avx512f"))), avx512)
#endif

template <typename T>
const Loops<T>& BestLoops() {
  switch (BestInstructionSet()) {
#ifdef COLLAGE_X86
    case InstructionSet::kAvx512:
      return avx512::kLoops<T>;
    case InstructionSet::kAvx2:
      return avx2::kLoops<T>;
#endif
    default:
      return plain::kLoops<T>;
  }
}

template <typename T>
void Rows(T* values, int64_t rows, int64_t columns, int64_t ld, const T* bias, const T* residual,
          BlasActivation activation) {
  if (bias == nullptr && residual == nullptr && activation == BlasActivation::kNone) return;
  const Loops<T>& loops = BestLoops<T>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kChunk) {
      const int64_t count = std::min(kChunk, columns - begin);
      T* at = values + row * ld + begin;
      if (bias != nullptr) loops.add(at, bias + begin, count);
      if (residual != nullptr) loops.add(at, residual + row * ld + begin, count);
      if (activation == BlasActivation::kRelu) loops.relu(at, count);
      if (activation == BlasActivation::kGelu) loops.gelu(at, count);
    }
  }
}

}  // namespace

void BlasEpilogue(float* values, int64_t rows, int64_t columns, int64_t ld, const float* bias,
                  const float* residual, BlasActivation activation) {
  Rows(values, rows, columns, ld, bias, residual, activation);
}

void BlasEpilogue(double* values, int64_t rows, int64_t columns, int64_t ld, const double* bias,
                  const double* residual, BlasActivation activation) {
  Rows(values, rows, columns, ld, bias, residual, activation);
}

}  // namespace collage
