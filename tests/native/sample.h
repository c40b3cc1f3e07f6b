// SPDX-License-Identifier: Apache-2.0
//
// What the unit tests of kernels share: numbers to compute with, and the comparison with a plain reference.
#ifndef COLLAGE_NATIVE_SAMPLE_H_
#define COLLAGE_NATIVE_SAMPLE_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace collage {

// Numbers up to this are denormal: float's least normal number is 1.2e-38, and its steps are 1.4e-45 below
// that.
constexpr float kDenormal = 1e-38F;

// So many numbers between -size and size, the same ones for the same seed. A vector of exactly that many, so
// that the address sanitizer sees what reads or writes beyond.
inline std::vector<float> Sample(int64_t count, unsigned seed, float size = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = size * distribution(random);
  return numbers;
}

// How large what a kernel of products reads is: data, and weights. Added to results, and so as large as their
// products, are bias and addends.
struct Magnitudes {
  float data = 1, weights = 1;
  float results() const { return data * weights; }
};

// Denormal data, denormal weights, and numbers that are neither, whose products are denormal.
constexpr Magnitudes kDenormalMagnitudes[] = {{kDenormal, 1}, {1, kDenormal}, {1e-19F, 1e-19F}};

// Each number within the tolerance of what is wanted, relative to it where it is above `size`; what is not a
// number must be none in both, and an infinity the same. Reports the first that differs.
inline void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                        const std::string& what = "", double size = 1) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : static_cast<double>(got[i]) == want[i]) continue;
    const double bound = tolerance * std::max(size, std::abs(want[i]));
    ASSERT_LE(std::abs(got[i] - want[i]), bound)
        << what << ", element " << i << " of " << got.size() << ": " << got[i] << ", wanted " << want[i];
  }
}

}  // namespace collage

#endif  // COLLAGE_NATIVE_SAMPLE_H_
