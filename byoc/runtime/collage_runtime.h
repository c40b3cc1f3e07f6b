// SPDX-License-Identifier: Apache-2.0
//
// The C interface of libcollage_runtime.so, for other plug-ins (libcollage_dnnl.so) that want their
// library's threads to be those of the model's own loops: one oneTBB arena for a whole executable.
#ifndef COLLAGE_RUNTIME_H_
#define COLLAGE_RUNTIME_H_

#if defined(__GNUC__)
#define COLLAGE_EXPORT __attribute__((visibility("default")))
#else
#define COLLAGE_EXPORT
#endif

extern "C" {

// Runs body(data) inside the arena, so that what the body starts in parallel uses the arena's threads and
// sees its size. Calls from inside an arena run there, at once. Does not return before the body has. The
// body must not throw.
COLLAGE_EXPORT void collage_run_in_arena(void (*body)(void*), void* data);

// The number of threads of the arena that the calling thread is in, itself included; outside of any, of the
// one in which collage_run_in_arena would run something.
COLLAGE_EXPORT int collage_num_threads(void);
}

#endif  // COLLAGE_RUNTIME_H_
