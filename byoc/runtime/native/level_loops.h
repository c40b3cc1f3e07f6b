// SPDX-License-Identifier: Apache-2.0
//
// All loops of one level: what each of level_*.cc is made of. They define COLLAGE_LANES, the elements of a
// vector.
#ifndef COLLAGE_NATIVE_LEVEL_LOOPS_H_
#define COLLAGE_NATIVE_LEVEL_LOOPS_H_

#include "native/bytes_loops.h"
#include "native/extremes_loops.h"
#include "native/gemm_loops.h"
#include "native/level.h"
#include "native/norm_loops.h"
#include "native/pairs_loops.h"
#include "native/pixel_norm_loops.h"
#include "native/recurrent_loops.h"
#include "native/softmax_loops.h"
#include "native/unpacked_loops.h"
#include "native/window_loops.h"
#include "native/winograd_loops.h"

namespace collage::native {
namespace {

constexpr Level kLevel{kWidth,         kGemmLoops, Softmax,          kExtremeLoops,
                       kWinogradLoops, WindowAny,  kNormLoops,       kPixelNormLoops,
                       kByteLoops,     kPairLoops, MultiplyAsItLies, kRecurrentLoops};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_LEVEL_LOOPS_H_
