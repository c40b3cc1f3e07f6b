// SPDX-License-Identifier: Apache-2.0
//
// Convolutions on which kernels of narrow types are tried, and what they are in float64.
#ifndef COLLAGE_TESTS_CONVOLUTION_CASES_H_
#define COLLAGE_TESTS_CONVOLUTION_CASES_H_

#include <cstdint>
#include <vector>

#include "native/padded_images.h"

namespace collage::native {

struct Case {
  int64_t batch, in_channels, out_channels, in_height, in_width;
  int64_t kernel[2], stride[2], dilation[2], pad_front[2], pad_back[2];
};

inline ConvolutionShape ShapeOf(const Case& c) {
  ConvolutionShape s;
  s.batch = c.batch;
  s.in_channels = c.in_channels;
  s.out_channels = c.out_channels;
  s.in_height = c.in_height;
  s.in_width = c.in_width;
  const auto size = [&](int64_t in, int i) {
    return (in + c.pad_front[i] + c.pad_back[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.stride[i] + 1;
  };
  s.out_height = size(c.in_height, 0);
  s.out_width = size(c.in_width, 1);
  for (int i = 0; i < 2; ++i) {
    s.kernel[i] = c.kernel[i];
    s.stride[i] = c.stride[i];
    s.dilation[i] = c.dilation[i];
    s.pad_front[i] = c.pad_front[i];
  }
  return s;
}

// In float64; the data are [batch, height, width, channels], weights [out, in, rows, columns].
inline std::vector<double> Direct(const ConvolutionShape& s, const std::vector<float>& src,
                                  const std::vector<float>& weight) {
  std::vector<double> all;
  const int64_t taps = s.kernel[0] * s.kernel[1];
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t y = 0; y < s.out_height; ++y) {
      for (int64_t x = 0; x < s.out_width; ++x) {
        for (int64_t o = 0; o < s.out_channels; ++o) {
          double sum = 0;
          for (int64_t tap = 0; tap < taps; ++tap) {
            const int64_t row = y * s.stride[0] - s.pad_front[0] + tap / s.kernel[1] * s.dilation[0];
            const int64_t column = x * s.stride[1] - s.pad_front[1] + tap % s.kernel[1] * s.dilation[1];
            if (row < 0 || row >= s.in_height || column < 0 || column >= s.in_width) continue;
            for (int64_t k = 0; k < s.in_channels; ++k) {
              sum += static_cast<double>(
                         src[((b * s.in_height + row) * s.in_width + column) * s.in_channels + k]) *
                     weight[(o * s.in_channels + k) * taps + tap];
            }
          }
          all.push_back(sum);
        }
      }
    }
  }
  return all;
}

inline const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {1, 16, 64, 7, 7, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 3, 33, 11, 9, {7, 5}, {2, 2}, {1, 1}, {3, 2}, {3, 2}},
      {3, 5, 80, 6, 13, {3, 3}, {1, 2}, {2, 2}, {2, 1}, {2, 0}},
      {1, 8, 17, 5, 5, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},  // of which the last pixels are not read
      {2, 12, 130, 14, 14, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
      {1, 4, 1, 9, 40, {2, 3}, {1, 1}, {1, 3}, {0, 4}, {3, 4}},
      {1, 6, 16, 1, 30, {1, 5}, {1, 1}, {1, 1}, {0, 4}, {0, 4}},    // windows that see no pixel but one
      {1, 3, 20, 1, 2, {1, 1}, {9, 9}, {1, 1}, {3, 4}, {0, 0}},     // windows in front of the image alone
      {13, 70, 100, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},  // a dense layer
      {1, 259, 47, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
  };
  return cases;
}

}  // namespace collage::native

#endif  // COLLAGE_TESTS_CONVOLUTION_CASES_H_
