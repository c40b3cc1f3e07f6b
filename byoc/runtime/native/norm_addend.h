// SPDX-License-Identifier: Apache-2.0
//
// What normalisations (native/norm.h, native/pixel_norm.h) add to their data first.
#ifndef COLLAGE_NATIVE_NORM_ADDEND_H_
#define COLLAGE_NATIVE_NORM_ADDEND_H_

namespace collage::native {

enum class NormAddend {
  kWhole,         // a tensor of the data's size
  kRow,           // one row, which is added to all
  kChannels,      // a number for each channel, the same in all images
  kImageChannels  // a number for each channel of each image
};

// How many are added at most.
constexpr int kMostNormAddends = 4;

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_NORM_ADDEND_H_
