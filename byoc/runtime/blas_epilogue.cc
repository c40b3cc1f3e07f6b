// SPDX-License-Identifier: Apache-2.0
#include "blas_epilogue.h"

#include <algorithm>
#include <cmath>

// The loops below are compiled several times; the loader takes what the processor can run.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define COLLAGE_FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COLLAGE_FOR_EACH_PROCESSOR
#endif

namespace collage {
namespace {

// Values that stay in the first-level cache between the loops over them.
constexpr int64_t kChunk = 2048;

COLLAGE_FOR_EACH_PROCESSOR
void Add(float* values, const float* addend, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] += addend[i];
}

COLLAGE_FOR_EACH_PROCESSOR
void Add(double* values, const double* addend, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] += addend[i];
}

COLLAGE_FOR_EACH_PROCESSOR
void Relu(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] > 0 ? values[i] : 0;
}

COLLAGE_FOR_EACH_PROCESSOR
void Relu(double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] > 0 ? values[i] : 0;
}

// x/2 * (1 + erf(x/sqrt(2))). The error function is a quotient of polynomials in the square of its argument,
// fitted on [-4, 4] (beyond, it is 1 to float's precision); its error is below 4e-7.
COLLAGE_FOR_EACH_PROCESSOR
void Gelu(float* values, int64_t count) {
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

void Gelu(double* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = 0.5 * values[i] * (1 + std::erf(values[i] * M_SQRT1_2));
}

template <typename T>
void Rows(T* values, int64_t rows, int64_t columns, int64_t ld, const T* bias, const T* residual,
          BlasActivation activation) {
  if (bias == nullptr && residual == nullptr && activation == BlasActivation::kNone) return;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t begin = 0; begin < columns; begin += kChunk) {
      const int64_t count = std::min(kChunk, columns - begin);
      T* at = values + row * ld + begin;
      if (bias != nullptr) Add(at, bias + begin, count);
      if (residual != nullptr) Add(at, residual + row * ld + begin, count);
      if (activation == BlasActivation::kRelu) Relu(at, count);
      if (activation == BlasActivation::kGelu) Gelu(at, count);
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
