// SPDX-License-Identifier: Apache-2.0
//
// The launcher: takes the place of TVM's thread pool under the parallel loops of exported models.
#ifndef COLLAGE_LAUNCHER_H_
#define COLLAGE_LAUNCHER_H_

#include <tvm/runtime/c_backend_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "arena.h"

namespace collage {

// A function in the place of TVMBackendParallelLaunch: runs flambda(0 .. num_task-1) on an arena; num_task 0
// means one task for each thread. Returns 0, or -1 with the tasks' errors as TVM's last error on the calling
// thread. Unlike TVM's, it may be called from inside a task.
using Launcher = int (*)(FTVMParallelLambda flambda, void* cdata, int num_task);

// That of the current arena.
int ParallelLaunch(FTVMParallelLambda flambda, void* cdata, int num_task);

// That of a model's own arena. A function without state stands for one number of threads, of which there are
// not so many that a process would run out of them; if it does, it is ParallelLaunch.
Launcher LauncherOf(const ModelThreads& threads);

// How many launches this process has made through all of these.
int64_t ParallelLaunchCount();

// Points the parallel loops of a loaded shared library to a launcher. The library is the one (or the
// copies) whose blob of imported modules holds the given bytes at the given offset. Libraries whose code
// waits at barriers keep TVM's launcher: oneTBB does not promise that all tasks run at a time. Returns
// the number of libraries adopted.
int AdoptLibraries(size_t blob_offset, const std::string& bytes, Launcher launcher);

}  // namespace collage

#endif  // COLLAGE_LAUNCHER_H_
