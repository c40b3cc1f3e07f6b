// SPDX-License-Identifier: Apache-2.0
//
// The entry points are C so that the guard against fork stands before Go: entering Go in a forked child
// hangs.
#define _GNU_SOURCE
#include "entry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

static volatile int forked;
// Malloc'ed, or NULL. A pointer and no buffer: Go's runtime puts the library's thread-locals into the static
// TLS block, which has room for little when a library is loaded late.
static __thread char* error;

static void after_fork_in_child(void) { forked = 1; }

__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

int collage_init(const char* libtvm_path, const char* python_executable) {
  free(error);
  error = NULL;
  if (forked) {
    error = strdup(
        "RuntimeError: Collage cannot be used in a process made by fork after it was loaded; use "
        "multiprocessing's 'spawn' or a subprocess");
    return -1;
  }
  Dl_info self;
  const char* path = dladdr((void*)collage_init, &self) && self.dli_fname ? self.dli_fname : "libcollage";
  error = collageGoInit((char*)libtvm_path, (char*)python_executable, (char*)path);
  return error ? -1 : 0;
}

const char* collage_last_error(void) { return error; }

void collage_shutdown(void) {
  if (!forked) collageGoShutdown();
}
