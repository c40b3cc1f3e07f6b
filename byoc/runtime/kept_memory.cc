// SPDX-License-Identifier: Apache-2.0
//
// Memory that a process frees and soon needs again, in other sizes.
//
// Where a model's sizes are open, each run has tensors of other sizes than the last. glibc maps what is large
// (from 128 KiB on, from 32 MiB on at most) each time anew, and gives it back when it is freed: the pages
// come one by one again, which for the 100 MB of a language model's scores takes as long as computing them.
// Kept on the heap, freed memory serves the next tensor whatever its size is.
#include <tvm/runtime/registry.h>

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace collage {

// Has the process keep what it frees. What the user has set by glibc's own variables stays.
TVM_REGISTER_GLOBAL("collage.runtime.KeepFreedMemory").set_body_typed([]() {
#ifdef __GLIBC__
  constexpr int kOneGiB = 1 << 30;
  if (std::getenv("MALLOC_MMAP_THRESHOLD_") == nullptr) (void)mallopt(M_MMAP_THRESHOLD, kOneGiB);
  if (std::getenv("MALLOC_TRIM_THRESHOLD_") == nullptr) (void)mallopt(M_TRIM_THRESHOLD, kOneGiB);
#endif
});

}  // namespace collage
