// SPDX-License-Identifier: Apache-2.0
//
// See native/level.h; the compiler's flags for this file are in CMakeLists.txt.
#include "instruction_set.h"

#ifdef COLLAGE_X86_GCC
#define COLLAGE_LANES 8
#include "native/level_loops.h"

namespace collage::native {

const Level& Avx2Level() { return kLevel; }

}  // namespace collage::native
#endif
