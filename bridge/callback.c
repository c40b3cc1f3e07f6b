// SPDX-License-Identifier: Apache-2.0
//
// Go closures as packed functions: what TVM calls, and the guards on the way into Go.
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "shim.h"

static int is_handle(int code) {
  return code == kTVMObjectHandle || code == kTVMModuleHandle || code == kTVMPackedFuncHandle ||
         code == kTVMNDArrayHandle || code == kTVMObjectRValueRefArg;
}

static void release(TVMValue* values, int* codes, int n) {
  for (int i = 0; i < n; i++) {
    if (codes[i] == kTVMNDArrayHandle) {
      collage_tvm.ArrayFree(values[i].v_handle);
    } else if (is_handle(codes[i])) {
      collage_tvm.ObjectFree(values[i].v_handle);
    }
  }
}

// TVM lends the arguments for the length of the call. Go keeps what it likes, so it gets references of its
// own, and copies of the two arrays, because TVM's may not be written to.
static int trampoline(TVMValue* args, int* codes, int n, void* ret, void* resource) {
  if (collage_forked()) {
    collage_tvm.APISetLastError(
        "RuntimeError: Collage cannot be used in a process made by fork after it was loaded; use "
        "multiprocessing's 'spawn' or a subprocess");
    return -1;
  }
  enum { SMALL = 16 };
  TVMValue small_values[SMALL];
  int small_codes[SMALL];
  unsigned small_types[SMALL];
  TVMValue* own = small_values;
  int* own_codes = small_codes;
  unsigned* types = small_types;
  if (n > SMALL) {
    own = malloc((sizeof *own + sizeof *own_codes + sizeof *types) * (size_t)n);
    if (!own) {
      collage_tvm.APISetLastError("MemoryError: out of memory for the arguments of a Go function");
      return -1;
    }
    own_codes = (int*)(own + n);
    types = (unsigned*)(own_codes + n);
  }
  int rc = 0;
  for (int i = 0; i < n; i++) {
    own[i] = args[i];
    own_codes[i] = codes[i];
    types[i] = 0;
    if (is_handle(codes[i])) {
      if (!args[i].v_handle) {
        own_codes[i] = kTVMNullptr;
      } else if (collage_tvm.CbArgToReturn(&own[i], &own_codes[i]) != 0) {
        release(own, own_codes, i);
        rc = -1;
        break;
      }
      if (own_codes[i] == kTVMObjectHandle) collage_tvm.ObjectGetTypeIndex(own[i].v_handle, &types[i]);
    }
  }
  if (rc == 0) rc = collageBridgeInvoke(resource, own, own_codes, types, n, ret);
  if (own != small_values) free(own);
  return rc;
}

// The last reference to the packed function is gone. After a fork, or after the interpreter has ended, the
// closure is left alone on purpose.
static void finalizer(void* resource) {
  if (collage_forked() || collage_stopped()) return;
  collageBridgeDrop(resource);
}

int collage_new_function(void* resource, collage_frame* f) {
  void* fn = NULL;
  if (collage_tvm.FuncCreateFromCFunc(trampoline, resource, finalizer, &fn) != 0) return collage_fail(f);
  f->ret.v_handle = fn;
  f->ret_code = kTVMPackedFuncHandle;
  return COLLAGE_OK;
}

// Makes the frame's first value the result of a callback. TVM takes a reference of its own.
int collage_set_return(void* ret, collage_frame* f) {
  return collage_tvm.CFuncSetReturn(ret, f->values, f->codes, 1) ? collage_fail(f) : COLLAGE_OK;
}

// Makes a Python exception this thread's error. The callback that called must return -1 next.
void collage_set_error(void* py_error) {
  collage_tvm.APISetLastPythonError(py_error);  // takes a reference of its own, under the GIL
}

// Makes an error this thread's: as a Python exception where Python is there and knows its kind (told[0]; ""
// is none), else as the text full. The callback that called must return -1 next.
void collage_raise(char* told[COLLAGE_ERROR_TEXTS], const char* full) {
  void* exception = NULL;
  if (told[0][0] && collage_tvm.APISetLastPythonError) exception = collage_new_exception(told);
  if (exception) {
    collage_tvm.APISetLastPythonError(exception);
    collage_python_decref(exception);
  } else {
    collage_tvm.APISetLastError(full);
  }
}
