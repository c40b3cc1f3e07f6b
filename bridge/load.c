// SPDX-License-Identifier: Apache-2.0
//
// Looking TVM's symbols up, and the guards that must hold before any Go code runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim.h"

collage_api collage_tvm;

static char library_path[PATH_MAX];
static volatile int forked;
static atomic_int stopped;
static atomic_int releasing;

// The Go runtime does not survive fork: its threads are gone and its locks may be held. The child must never
// enter Go, so the mark is set, and tested, in C.
static void after_fork_in_child(void) { forked = 1; }

// A constructor, so that the mark is right whether or not TVM was loaded before the fork.
__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

int collage_forked(void) { return forked; }
int collage_stopped(void) { return stopped; }

// A thread that gives back something which Python may own waits for the GIL in it. Where the interpreter ends
// meanwhile, CPython before 3.14 ends that thread there (pthread_exit), and its unwinding through TVM's
// destructors, which are noexcept, ends the process with std::terminate. So whoever gives back says so, and
// who stops waits for them. 0 says that it is too late: nothing may be given back any more, and
// collage_release_ends must not be called.
int collage_release_begins(void) {
  releasing++;
  if (!stopped) return 1;
  releasing--;
  return 0;
}

void collage_release_ends(void) { releasing--; }

// The caller does not hold the GIL, for which those that are waited for may wait. The wait has an end: what
// is given back may run somebody's __del__, which may take for ever, or which may be what calls this.
void collage_stop(void) {
  const struct timespec pause = {0, 1000000};
  stopped = 1;
  for (int ms = 0; releasing > 0 && ms < 5000; ms++) nanosleep(&pause, NULL);
}

const char* collage_library_path(void) { return library_path; }

void* collage_symbol(const char* name) {
  return dlsym(collage_tvm.library ? collage_tvm.library : RTLD_DEFAULT, name);
}

// Writes the path of the library that holds symbol into out (PATH_MAX), resolved.
static void path_of(void* symbol, char* out) {
  Dl_info info;
  out[0] = 0;
  if (!dladdr(symbol, &info) || !info.dli_fname) return;
  if (!realpath(info.dli_fname, out)) snprintf(out, PATH_MAX, "%s", info.dli_fname);
}

#define REQUIRED(field, symbol)                                                                          \
  do {                                                                                                   \
    *(void**)&api.field = dlsym(from, symbol);                                                           \
    if (!api.field) {                                                                                    \
      snprintf(error, error_size,                                                                        \
               "%s has no symbol %s: it is not a TVM that Collage can use (0.10 to 0.19)", library_path, \
               symbol);                                                                                  \
      return COLLAGE_ERROR;                                                                              \
    }                                                                                                    \
  } while (0)
#define OPTIONAL(field, symbol) *(void**)&api.field = dlsym(from, symbol)

int collage_load(const char* path, char* error, size_t error_size) {
  collage_api api;
  memset(&api, 0, sizeof api);
  void* present = collage_tvm.FuncCall ? (void*)collage_tvm.FuncCall : dlsym(RTLD_DEFAULT, "TVMFuncCall");
  if (path && path[0]) {
    if (present) {
      char have[PATH_MAX], want[PATH_MAX];
      path_of(present, have);
      if (!realpath(path, want)) snprintf(want, sizeof want, "%s", path);
      if (strcmp(have, want) != 0) {
        snprintf(error, error_size,
                 "this process already holds TVM from %s; a second one (%s) cannot be loaded beside it", have,
                 path);
        return COLLAGE_ERROR;
      }
    }
    if (collage_tvm.FuncCall) return COLLAGE_OK;
    // RTLD_GLOBAL: the runtime plug-ins are not linked against TVM and find it here.
    api.library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!api.library) {
      snprintf(error, error_size, "%s", dlerror());
      return COLLAGE_ERROR;
    }
    present = dlsym(api.library, "TVMFuncCall");
    if (!present) {
      snprintf(error, error_size,
               "%s has no symbol TVMFuncCall: it is not libtvm or libtvm_runtime (0.10 to 0.19)", path);
      dlclose(api.library);
      return COLLAGE_ERROR;
    }
  } else if (!present) {
    snprintf(error, error_size,
             "no TVM in this process: import tvm first, or give the path of libtvm.so or libtvm_runtime.so");
    return COLLAGE_ERROR;
  }
  path_of(present, library_path);

  void* from = api.library ? api.library : RTLD_DEFAULT;
  REQUIRED(FuncCall, "TVMFuncCall");
  REQUIRED(FuncGetGlobal, "TVMFuncGetGlobal");
  REQUIRED(FuncListGlobalNames, "TVMFuncListGlobalNames");
  REQUIRED(FuncRegisterGlobal, "TVMFuncRegisterGlobal");
  REQUIRED(FuncRemoveGlobal, "TVMFuncRemoveGlobal");
  REQUIRED(FuncCreateFromCFunc, "TVMFuncCreateFromCFunc");
  REQUIRED(CFuncSetReturn, "TVMCFuncSetReturn");
  REQUIRED(CbArgToReturn, "TVMCbArgToReturn");
  REQUIRED(GetLastError, "TVMGetLastError");
  REQUIRED(APISetLastError, "TVMAPISetLastError");
  REQUIRED(ModLoadFromFile, "TVMModLoadFromFile");
  REQUIRED(ModImport, "TVMModImport");
  REQUIRED(ModGetFunction, "TVMModGetFunction");
  REQUIRED(ObjectGetTypeIndex, "TVMObjectGetTypeIndex");
  REQUIRED(ObjectTypeKey2Index, "TVMObjectTypeKey2Index");
  REQUIRED(ObjectTypeIndex2Key, "TVMObjectTypeIndex2Key");
  REQUIRED(ObjectRetain, "TVMObjectRetain");
  REQUIRED(ObjectFree, "TVMObjectFree");
  REQUIRED(ArrayAlloc, "TVMArrayAlloc");
  REQUIRED(ArrayFree, "TVMArrayFree");
  REQUIRED(ArrayCopyFromTo, "TVMArrayCopyFromTo");
  REQUIRED(DeviceCopyDataFromTo, "TVMDeviceCopyDataFromTo");
  REQUIRED(Synchronize, "TVMSynchronize");
  OPTIONAL(GetLastPythonError, "TVMGetLastPythonError");
  OPTIONAL(DropLastPythonError, "TVMDropLastPythonError");
  OPTIONAL(APISetLastPythonError, "TVMAPISetLastPythonError");
  OPTIONAL(ObjectDerivedFrom, "TVMObjectDerivedFrom");

  if (api.ObjectTypeKey2Index("runtime.String", &api.string_type) != 0) api.string_type = UINT_MAX;
  void* box = NULL;
  if (api.FuncGetGlobal("runtime.BoxBool", &box) == 0 && box) {
    api.has_bool = 1;
    api.ObjectFree(box);
  }
  collage_tvm = api;
  return COLLAGE_OK;
}
