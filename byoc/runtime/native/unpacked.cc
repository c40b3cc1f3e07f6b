// SPDX-License-Identifier: Apache-2.0
#include "native/unpacked.h"

#include "native/level.h"

namespace collage::native {

void MultiplyUnpacked(const UnpackedWork& work, int64_t block) { BestLevel().unpacked(work, block); }

}  // namespace collage::native
