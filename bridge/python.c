// SPDX-License-Identifier: Apache-2.0
//
// The few things that are asked of Python, where there is one in the process: keep an exception alive, read
// its text, look for Ctrl-C. Python is found like TVM, by dlsym, and never needed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "shim.h"

typedef struct {
  int (*IsInitialized)(void);
  int (*GILState_Ensure)(void);
  void (*GILState_Release)(int);
  void (*IncRef)(void*);
  void (*DecRef)(void*);
  int (*CheckSignals)(void);
  void (*Fetch)(void**, void**, void**);
  void (*Normalize)(void**, void**, void**);
  void (*Clear)(void);
  int (*SetTraceback)(void*, void*);
  void* (*Str)(void*);
  void* (*Type)(void*);
  void* (*GetAttrString)(void*, const char*);
  const char* (*AsUTF8AndSize)(void*, ptrdiff_t*);
  void* (*DecodeUTF8)(const char*, ptrdiff_t, const char*);
  void* (*ImportModule)(const char*);
  void* (*GetModule)(void*);
  void* (*CallWith)(void*, ...);
  int (*IsSubclass)(void*, void*);
  void** BaseException;
} python_api;

// Every entry is written once with the same value, so a race between two threads is harmless.
static python_api py;
static volatile int found;

int collage_python_present(void) {
  if (found) return py.IsInitialized();
  python_api api;
  const struct {
    void* slot;
    const char* name;
  } wanted[] = {
      {&api.IsInitialized, "Py_IsInitialized"},
      {&api.GILState_Ensure, "PyGILState_Ensure"},
      {&api.GILState_Release, "PyGILState_Release"},
      {&api.IncRef, "Py_IncRef"},
      {&api.DecRef, "Py_DecRef"},
      {&api.CheckSignals, "PyErr_CheckSignals"},
      {&api.Fetch, "PyErr_Fetch"},
      {&api.Normalize, "PyErr_NormalizeException"},
      {&api.Clear, "PyErr_Clear"},
      {&api.SetTraceback, "PyException_SetTraceback"},
      {&api.Str, "PyObject_Str"},
      {&api.Type, "PyObject_Type"},
      {&api.GetAttrString, "PyObject_GetAttrString"},
      {&api.AsUTF8AndSize, "PyUnicode_AsUTF8AndSize"},
      {&api.DecodeUTF8, "PyUnicode_DecodeUTF8"},
      {&api.ImportModule, "PyImport_ImportModule"},
      {&api.GetModule, "PyImport_GetModule"},
      {&api.CallWith, "PyObject_CallFunctionObjArgs"},
      {&api.IsSubclass, "PyObject_IsSubclass"},
      {&api.BaseException, "PyExc_BaseException"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void* symbol = dlsym(RTLD_DEFAULT, wanted[i].name);
    if (!symbol) return 0;
    memcpy(wanted[i].slot, &symbol, sizeof symbol);
  }
  py = api;
  __sync_synchronize();
  found = 1;
  return py.IsInitialized();
}

// Copies a str into the frame's text; the GIL is held.
static void text_of(void* str, collage_frame* f) {
  ptrdiff_t size = 0;
  const char* s = str ? py.AsUTF8AndSize(str, &size) : NULL;
  if (s) {
    collage_set_text(f, s, (size_t)size);
  } else {
    py.Clear();
    collage_set_text(f, "(an exception whose text cannot be read)", 40);
  }
}

// Reads class and text of an exception and keeps a reference to it; the GIL is held.
static void describe(void* exception, collage_frame* f) {
  f->py_error = exception;
  f->py_class[0] = 0;
  void* type = py.Type(exception);
  // Collage's own exceptions go by the name of what they are to Python or TVM (collage.errors.CollageError).
  void* name = type ? py.GetAttrString(type, "_python_name") : NULL;
  if (!name) {
    py.Clear();
    name = type ? py.GetAttrString(type, "__name__") : NULL;
  }
  ptrdiff_t size = 0;
  const char* s = name ? py.AsUTF8AndSize(name, &size) : NULL;
  if (s) {
    snprintf(f->py_class, sizeof f->py_class, "%s", s);
  } else {
    py.Clear();
  }
  if (name) py.DecRef(name);
  if (type) py.DecRef(type);
  void* str = py.Str(exception);
  text_of(str, f);
  if (str) py.DecRef(str);
}

void collage_take_python_error(void* exception, collage_frame* f) {
  if (!collage_python_present()) {
    collage_set_text(f, "a Python exception", 18);
    return;
  }
  int state = py.GILState_Ensure();
  py.IncRef(exception);
  describe(exception, f);
  py.GILState_Release(state);
}

void collage_python_decref(void* object) {
  if (!collage_release_begins()) return;
  if (collage_python_present()) {
    int state = py.GILState_Ensure();
    py.DecRef(object);
    py.GILState_Release(state);
  }
  collage_release_ends();
}

// The exception class of that name in a module; NULL, with nothing raised, where there is none. The GIL is
// held.
static void* class_in(const char* module, const char* name) {
  void* m = py.ImportModule(module);
  void* found_class = m ? py.GetAttrString(m, name) : NULL;
  if (m) py.DecRef(m);
  if (found_class && py.IsSubclass(found_class, *py.BaseException) == 1) return found_class;
  py.Clear();
  if (found_class) py.DecRef(found_class);
  return NULL;
}

static void* str_of(const char* text) { return py.DecodeUTF8(text, (ptrdiff_t)strlen(text), "replace"); }

// The exception that collage.errors makes of an error; NULL where that module is not loaded (nothing is
// imported for it), or knows no such kind. The GIL is held.
static void* collage_exception(char* told[COLLAGE_ERROR_TEXTS]) {
  void* name = str_of("collage.errors");
  void* module = name ? py.GetModule(name) : NULL;
  if (name) py.DecRef(name);
  void* raised = module ? py.GetAttrString(module, "raised") : NULL;
  if (module) py.DecRef(module);
  void* texts[COLLAGE_ERROR_TEXTS];
  int made = 0;
  while (raised && made < COLLAGE_ERROR_TEXTS && (texts[made] = str_of(told[made]))) made++;
  void* exception = NULL;
  if (made == COLLAGE_ERROR_TEXTS)
    exception = py.CallWith(raised, texts[0], texts[1], texts[2], texts[3], texts[4], texts[5], texts[6],
                            texts[7], NULL);
  while (made > 0) py.DecRef(texts[--made]);
  if (raised) py.DecRef(raised);
  if (!exception) {
    py.Clear();
    return NULL;
  }
  void* type = py.Type(exception);
  if (!type || py.IsSubclass(type, *py.BaseException) != 1) {  // None
    py.DecRef(exception);
    exception = NULL;
    py.Clear();
  }
  if (type) py.DecRef(type);
  return exception;
}

// Makes an exception of Collage's, or else of a class of Python's or of tvm.error's, so that Python sees the
// message as it was written and not with TVM's C++ stack in it. NULL where there is no such class; a new
// reference else.
void* collage_new_exception(char* told[COLLAGE_ERROR_TEXTS]) {
  if (collage_stopped() || !collage_python_present()) return NULL;
  int state = py.GILState_Ensure();
  void* exception = collage_exception(told);
  void* type = NULL;
  if (!exception) type = class_in("builtins", told[0]);
  if (!exception && !type) type = class_in("tvm.error", told[0]);
  if (type) {
    void* text = str_of(told[2]);
    if (text) {
      exception = py.CallWith(type, text, NULL);
      py.DecRef(text);
    }
    if (!exception) py.Clear();
    py.DecRef(type);
  }
  py.GILState_Release(state);
  return exception;
}

// Moves the exception that is raised on this thread, if one is, into the frame; the GIL is held.
static int take_pending(collage_frame* f) {
  void *type = NULL, *value = NULL, *trace = NULL;
  py.Fetch(&type, &value, &trace);
  if (!type) return COLLAGE_NONE;
  py.Normalize(&type, &value, &trace);
  if (value && trace) py.SetTraceback(value, trace);
  if (value) {
    describe(value, f);  // keeps the reference that Fetch gave
  } else {
    f->py_error = NULL;
    collage_set_text(f, "interrupted", 11);
  }
  py.DecRef(type);
  if (trace) py.DecRef(trace);
  return COLLAGE_OK;
}

int collage_take_pending_error(collage_frame* f) {
  if (!collage_python_present()) return COLLAGE_NONE;
  int state = py.GILState_Ensure();
  int rc = take_pending(f);
  py.GILState_Release(state);
  return rc;
}

// Runs Python's signal handlers that are due. COLLAGE_ERROR, with the exception in the frame, where one
// raised; Python does this on its main thread only, elsewhere the answer is always COLLAGE_OK.
int collage_check_signals(collage_frame* f) {
  if (collage_stopped() || !collage_python_present()) return COLLAGE_OK;
  int state = py.GILState_Ensure();
  int rc = py.CheckSignals();
  if (rc != 0) take_pending(f);
  py.GILState_Release(state);
  return rc == 0 ? COLLAGE_OK : COLLAGE_ERROR;
}
