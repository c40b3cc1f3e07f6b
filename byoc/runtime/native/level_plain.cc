// SPDX-License-Identifier: Apache-2.0
//
// See native/level.h; the compiler's flags for this file are in CMakeLists.txt.
#define COLLAGE_LANES 4
#include "native/level_loops.h"

namespace collage::native {

const Level& PlainLevel() { return kLevel; }

}  // namespace collage::native
