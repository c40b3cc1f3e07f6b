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

// So many numbers between -1 and 1, the same ones for the same seed. A vector of exactly that size, so that
// the address sanitizer sees what reads or writes beyond.
inline std::vector<float> Sample(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = distribution(random);
  return numbers;
}

// Each number within the tolerance of what is wanted, relative to it where it is above 1; what is not a
// number must be none in both, and an infinity the same. Reports the first that differs.
inline void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, double tolerance,
                        const std::string& what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i]) ? std::isnan(got[i]) : static_cast<double>(got[i]) == want[i]) continue;
    const double bound = tolerance * std::max(1.0, std::abs(want[i]));
    ASSERT_LE(std::abs(got[i] - want[i]), bound)
        << what << ", element " << i << " of " << got.size() << ": " << got[i] << ", wanted " << want[i];
  }
}

}  // namespace collage

#endif  // COLLAGE_NATIVE_SAMPLE_H_
