// SPDX-License-Identifier: Apache-2.0
//
// The entry points are C so that the guard against fork stands before Go: entering Go in a forked child
// hangs.
#define _GNU_SOURCE
#include "entry.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "_cgo_export.h"

static volatile int forked;
static __thread char error[4096];

static void after_fork_in_child(void) { forked = 1; }

__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

int collage_init(const char* libtvm_path, const char* python_executable) {
  error[0] = 0;
  if (forked) {
    snprintf(error, sizeof error,
             "RuntimeError: Collage cannot be used in a process made by fork after it was loaded; use "
             "multiprocessing's 'spawn' or a subprocess");
    return -1;
  }
  Dl_info self;
  const char* path = dladdr((void*)collage_init, &self) && self.dli_fname ? self.dli_fname : "libcollage";
  char* message = collageGoInit((char*)libtvm_path, (char*)python_executable, (char*)path);
  if (!message) return 0;
  snprintf(error, sizeof error, "%s", message);
  free(message);
  return -1;
}

const char* collage_last_error(void) { return error[0] ? error : NULL; }

void collage_shutdown(void) {
  if (!forked) collageGoShutdown();
}
