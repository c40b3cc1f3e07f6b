// SPDX-License-Identifier: Apache-2.0
//
// The arena: the one set of oneTBB threads on which an executable runs TVM's parallel loops and the
// libraries' kernels.
#ifndef COLLAGE_ARENA_H_
#define COLLAGE_ARENA_H_

#include <oneapi/tbb/task_arena.h>

namespace collage {

// The arena in force. Made at the first use. It stays valid for ever, also after SetNumThreads has
// put another in its place. Any thread may ask.
tbb::task_arena& CurrentArena();

// Asks for an arena of the given number of threads (0 or less: as many as the machine offers to this
// process). What the environment says goes first: COLLAGE_NUM_THREADS, else TVM_NUM_THREADS.
// Launches under way finish in the arena where they began.
void SetNumThreads(int requested);

}  // namespace collage

#endif  // COLLAGE_ARENA_H_
