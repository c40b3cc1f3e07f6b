// SPDX-License-Identifier: Apache-2.0
//
// The C side of the bridge. TVM's last error and returned strings are thread-local, and a goroutine may move
// to another thread between two C calls, so each function here does a whole step: call, then copy the result
// or the error into the caller's frame.
#ifndef COLLAGE_SHIM_H_
#define COLLAGE_SHIM_H_

#include "tvm_abi.h"

// TVM's C API, filled by collage_load. Entries below "optional" may be NULL.
typedef struct {
  int (*FuncCall)(void*, TVMValue*, int*, int, TVMValue*, int*);
  int (*FuncGetGlobal)(const char*, void**);
  int (*FuncListGlobalNames)(int*, const char***);
  int (*FuncRegisterGlobal)(const char*, void*, int);
  int (*FuncRemoveGlobal)(const char*);
  int (*FuncCreateFromCFunc)(TVMPackedCFunc, void*, TVMPackedCFuncFinalizer, void**);
  int (*CFuncSetReturn)(void*, TVMValue*, int*, int);
  int (*CbArgToReturn)(TVMValue*, int*);
  const char* (*GetLastError)(void);
  void (*APISetLastError)(const char*);
  int (*ModLoadFromFile)(const char*, const char*, void**);
  int (*ModImport)(void*, void*);
  int (*ModGetFunction)(void*, const char*, int, void**);
  int (*ObjectGetTypeIndex)(void*, unsigned*);
  int (*ObjectTypeKey2Index)(const char*, unsigned*);
  int (*ObjectTypeIndex2Key)(unsigned, char**);
  int (*ObjectRetain)(void*);
  int (*ObjectFree)(void*);
  int (*ArrayAlloc)(const int64_t*, int, int, int, int, int, int, void**);
  int (*ArrayFree)(void*);
  int (*ArrayCopyFromTo)(void*, void*, void*);
  int (*DeviceCopyDataFromTo)(DLTensor*, DLTensor*, void*);
  int (*Synchronize)(int, int, void*);
  // optional
  void* (*GetLastPythonError)(void);
  void (*DropLastPythonError)(void);
  void (*APISetLastPythonError)(void*);
  int (*ObjectDerivedFrom)(uint32_t, uint32_t, int*);

  void* library;         // what dlopen gave; NULL for RTLD_DEFAULT
  unsigned string_type;  // type index of runtime.String
  int has_bool;          // this TVM knows kTVMArgBool and boxed primitives
} collage_api;

extern collage_api collage_tvm;

// A frame carries one call over the border: arguments in, result or error out. Frames live in C memory and
// are used again.
typedef struct {
  TVMValue* values;
  int* codes;
  int cap;

  TVMValue ret;
  int ret_code;
  unsigned ret_type;  // type index where ret_code is kTVMObjectHandle

  char* text;  // a returned string or bytes, or an error's message; not NUL-terminated by contract
  size_t text_len;
  size_t text_cap;

  void* py_error;  // a new reference to a Python exception, or NULL
  char py_class[128];
} collage_frame;

// Status codes of the functions below.
enum { COLLAGE_OK = 0, COLLAGE_ERROR = -1, COLLAGE_NONE = 1 };

// load.c
int collage_load(const char* path, char* error, size_t error_size);
const char* collage_library_path(void);
void* collage_symbol(const char* name);
int collage_forked(void);
void collage_stop(void);
int collage_stopped(void);
int collage_release_begins(void);
void collage_release_ends(void);

// call.c
collage_frame* collage_frame_new(int cap);
int collage_frame_grow(collage_frame* f, int cap);
void collage_frame_trim(collage_frame* f, size_t keep);
int collage_set_text(collage_frame* f, const char* s, size_t n);
int collage_fail(collage_frame* f);
int collage_call(void* fn, collage_frame* f, int n);
int collage_attr(void* fn, void* object, const char* name, collage_frame* f);
int collage_get_global(const char* name, collage_frame* f);
int collage_list_globals(collage_frame* f);
int collage_register_global(const char* name, void* fn, int override, collage_frame* f);
int collage_remove_global(const char* name, collage_frame* f);
int collage_module_load(const char* path, const char* format, collage_frame* f);
int collage_module_import(void* mod, void* dep, collage_frame* f);
int collage_module_get_function(void* mod, const char* name, int imports, collage_frame* f);
int collage_type_key(unsigned index, collage_frame* f);
int collage_type_index(const char* key, unsigned* index);
int collage_derived_from(unsigned child, unsigned parent);
int collage_retain(void* object);
void collage_free_object(void* object);
void collage_release_object(void* object);
int collage_register_option(const char* symbol, const char* key);

// container.c: reading of TVM's own containers in place, after their layout was checked
int collage_probe_layouts(void* array_fn, void* int_fn, void* float_fn, collage_frame* f);
int collage_unbox_string(collage_frame* f);
int collage_array_size(void* array, int64_t* size);
int collage_array_at(void* array, int64_t i, collage_frame* f);
int64_t collage_array_ints(void* array, int64_t otherwise, collage_frame* f);
int collage_int_value(void* object, int64_t* out);
int collage_float_value(void* object, double* out);

// callback.c
int collage_new_function(void* resource, collage_frame* f);
int collage_set_return(void* ret, collage_frame* f);
void collage_set_error(void* py_error);
// What Python is told of an error of ours: kind ("ValueError"), class of collage.errors, message, and the
// fields option, operator, span, backend and file ("" for what is not known).
#define COLLAGE_ERROR_TEXTS 8
void collage_raise(char* told[COLLAGE_ERROR_TEXTS], const char* full);

// method.c
int collage_new_binary_method(void* method, collage_frame* f);

// python.c
int collage_python_present(void);
void collage_take_python_error(void* exception, collage_frame* f);
void collage_python_decref(void* object);
void* collage_new_exception(char* told[COLLAGE_ERROR_TEXTS]);
int collage_check_signals(collage_frame* f);
int collage_take_pending_error(collage_frame* f);

// tensor.c
int collage_array_alloc(const int64_t* shape, int ndim, DLDataType dtype, DLDevice device, collage_frame* f);
void collage_array_free(void* array);
void collage_release_array(void* array);
int collage_tensor_is_compact(const DLTensor* t);
int64_t collage_tensor_bytes(const DLTensor* t);
int collage_tensor_read(const DLTensor* t, void* out, collage_frame* f);
int collage_tensor_write(const DLTensor* t, const void* in, collage_frame* f);
int collage_tensor_copy(void* from, void* to, collage_frame* f);
DLTensor* collage_tensor_view(const DLTensor* base, int ndim, const int64_t* shape, const int64_t* strides,
                              uint64_t byte_offset);
void collage_tensor_view_free(DLTensor* t);

#endif  // COLLAGE_SHIM_H_
