// SPDX-License-Identifier: Apache-2.0
//
// Calls into TVM. Each function leaves its result, or the whole error, in the frame before it returns.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

collage_frame* collage_frame_new(int cap) {
  collage_frame* f = calloc(1, sizeof *f);
  if (f && collage_frame_grow(f, cap) != COLLAGE_OK) {
    free(f);
    return NULL;
  }
  return f;
}

int collage_frame_grow(collage_frame* f, int cap) {
  TVMValue* values = realloc(f->values, sizeof(TVMValue) * (size_t)cap);
  if (!values) return COLLAGE_ERROR;
  f->values = values;
  int* codes = realloc(f->codes, sizeof(int) * (size_t)cap);
  if (!codes) return COLLAGE_ERROR;
  f->codes = codes;
  f->cap = cap;
  return COLLAGE_OK;
}

// Gives a text buffer that grew beyond keep back to the system.
void collage_frame_trim(collage_frame* f, size_t keep) {
  if (f->text_cap <= keep) return;
  free(f->text);
  f->text = NULL;
  f->text_len = f->text_cap = 0;
}

int collage_set_text(collage_frame* f, const char* s, size_t n) {
  if (n > f->text_cap) {
    size_t cap = n < 256 ? 256 : n;
    char* text = realloc(f->text, cap);
    if (!text) {
      f->text_len = 0;
      return COLLAGE_ERROR;
    }
    f->text = text;
    f->text_cap = cap;
  }
  if (n) memcpy(f->text, s, n);
  f->text_len = n;
  return COLLAGE_OK;
}

// Moves this thread's last TVM error into the frame.
int collage_fail(collage_frame* f) {
  f->py_error = NULL;
  f->py_class[0] = 0;
  if (collage_tvm.GetLastPythonError) {
    void* exception = collage_tvm.GetLastPythonError();
    if (exception) {
      collage_take_python_error(exception, f);
      // TVM's own reference would keep the exception's frames, and all they hold, alive.
      collage_tvm.DropLastPythonError();
      return COLLAGE_ERROR;
    }
  }
  const char* message = collage_tvm.GetLastError();
  if (!message) message = "TVM failed and left no message";
  collage_set_text(f, message, strlen(message));
  return COLLAGE_ERROR;
}

// collage_fail for a call that gave rc. -2 says that a signal handler of Python's raised inside of TVM.
static int failed(int rc, collage_frame* f) {
  if (rc == -2 && collage_take_pending_error(f) == COLLAGE_OK) return COLLAGE_ERROR;
  return collage_fail(f);
}

// Reads what must be read on this thread: strings, and an object's type.
static int finish(collage_frame* f) {
  switch (f->ret_code) {
    case kTVMStr:
      return collage_set_text(f, f->ret.v_str, strlen(f->ret.v_str));
    case kTVMBytes: {
      TVMByteArray* bytes = f->ret.v_handle;
      return collage_set_text(f, bytes->data, bytes->size);
    }
    case kTVMObjectHandle:
      collage_tvm.ObjectGetTypeIndex(f->ret.v_handle, &f->ret_type);
      return collage_unbox_string(f) == COLLAGE_ERROR ? COLLAGE_ERROR : COLLAGE_OK;
  }
  return COLLAGE_OK;
}

int collage_call(void* fn, collage_frame* f, int n) {
  f->ret_code = kTVMNullptr;
  int rc = collage_tvm.FuncCall(fn, f->values, f->codes, n, &f->ret, &f->ret_code);
  if (rc != 0) return failed(rc, f);
  return finish(f);
}

// collage_call for node.NodeGetAttr, with the arguments on the C stack.
int collage_attr(void* fn, void* object, const char* name, collage_frame* f) {
  TVMValue values[2];
  int codes[2] = {kTVMObjectHandle, kTVMStr};
  values[0].v_handle = object;
  values[1].v_str = name;
  f->ret_code = kTVMNullptr;
  int rc = collage_tvm.FuncCall(fn, values, codes, 2, &f->ret, &f->ret_code);
  if (rc != 0) return failed(rc, f);
  return finish(f);
}

// Result of functions that give one handle: COLLAGE_NONE for NULL.
static int handle_result(collage_frame* f, int rc, void* handle, int code) {
  if (rc != 0) return collage_fail(f);
  f->ret.v_handle = handle;
  f->ret_code = code;
  return handle ? COLLAGE_OK : COLLAGE_NONE;
}

int collage_get_global(const char* name, collage_frame* f) {
  void* fn = NULL;
  int rc = collage_tvm.FuncGetGlobal(name, &fn);
  return handle_result(f, rc, fn, kTVMPackedFuncHandle);
}

// Leaves the names in the frame's text, each followed by a NUL.
int collage_list_globals(collage_frame* f) {
  int n = 0;
  const char** names = NULL;
  if (collage_tvm.FuncListGlobalNames(&n, &names) != 0) return collage_fail(f);
  size_t size = 0;
  for (int i = 0; i < n; i++) size += strlen(names[i]) + 1;
  if (collage_set_text(f, "", 0) != COLLAGE_OK) return COLLAGE_ERROR;
  char* all = malloc(size ? size : 1);
  if (!all) return COLLAGE_ERROR;
  char* p = all;
  for (int i = 0; i < n; i++) {
    size_t len = strlen(names[i]) + 1;
    memcpy(p, names[i], len);
    p += len;
  }
  int rc = collage_set_text(f, all, size);
  free(all);
  return rc;
}

int collage_register_global(const char* name, void* fn, int override, collage_frame* f) {
  return collage_tvm.FuncRegisterGlobal(name, fn, override) ? collage_fail(f) : COLLAGE_OK;
}

int collage_remove_global(const char* name, collage_frame* f) {
  return collage_tvm.FuncRemoveGlobal(name) ? collage_fail(f) : COLLAGE_OK;
}

int collage_module_load(const char* path, const char* format, collage_frame* f) {
  void* mod = NULL;
  int rc = collage_tvm.ModLoadFromFile(path, format, &mod);
  return handle_result(f, rc, mod, kTVMModuleHandle);
}

int collage_module_import(void* mod, void* dep, collage_frame* f) {
  return collage_tvm.ModImport(mod, dep) ? collage_fail(f) : COLLAGE_OK;
}

int collage_module_get_function(void* mod, const char* name, int imports, collage_frame* f) {
  void* fn = NULL;
  int rc = collage_tvm.ModGetFunction(mod, name, imports, &fn);
  return handle_result(f, rc, fn, kTVMPackedFuncHandle);
}

int collage_type_key(unsigned index, collage_frame* f) {
  char* key = NULL;
  if (collage_tvm.ObjectTypeIndex2Key(index, &key) != 0) return collage_fail(f);
  int rc = collage_set_text(f, key, strlen(key));
  free(key);  // TVM allocates it with malloc for the caller
  return rc;
}

int collage_type_index(const char* key, unsigned* index) {
  return collage_tvm.ObjectTypeKey2Index(key, index) ? COLLAGE_NONE : COLLAGE_OK;
}

int collage_derived_from(unsigned child, unsigned parent) {
  int derived = 0;
  if (!collage_tvm.ObjectDerivedFrom || collage_tvm.ObjectDerivedFrom(child, parent, &derived) != 0) return 0;
  return derived;
}

int collage_retain(void* object) { return collage_tvm.ObjectRetain(object); }

void collage_free_object(void* object) { collage_tvm.ObjectFree(object); }

// What cleanups of the collector's do: nothing where collage_stop was called.
void collage_release_object(void* object) {
  if (!collage_release_begins()) return;
  collage_tvm.ObjectFree(object);
  collage_release_ends();
}

// Calls tvm::transform::PassContext::RegisterConfigOption<T>(const char*), which keeps the key's pointer for
// ever: key is never freed. It throws where the key is taken, so the caller looks first.
int collage_register_option(const char* symbol, const char* key) {
  unsigned (*fn)(const char*);
  *(void**)&fn = collage_symbol(symbol);
  if (!fn) return COLLAGE_NONE;
  fn(key);
  return COLLAGE_OK;
}
