// SPDX-License-Identifier: Apache-2.0
//
// Calling a C++ method that TVM exports but registers no packed function for. A C++ exception must not reach
// Go: the method is called from a packed function made of C, so that TVM's own TVMFuncCall, further up on the
// stack, catches what it throws. The frames between hold nothing to clean up and are compiled with unwind
// tables (-fexceptions).
#include "shim.h"

// double Class::Method(const ObjectRef&, const ObjectRef&) const, as the C++ ABI passes it: a reference to an
// ObjectRef is the address of its one pointer. A class of one double is returned as a double. Such a class
// has virtual methods and its base tvm::runtime::Object has none, so the base, which handles point to, stands
// behind the pointer to the table.
typedef double (*binary_method)(const void* self, void* const* a, void* const* b);

static int call_binary_method(TVMValue* args, int* codes, int n, void* ret, void* method) {
  int code = kTVMArgFloat;
  TVMValue result;
  if (n != 3 || codes[0] != kTVMObjectHandle || codes[1] != kTVMObjectHandle ||
      codes[2] != kTVMObjectHandle) {
    collage_tvm.APISetLastError("TypeError: the method takes an object and two arguments, all objects");
    return -1;
  }
  result.v_float64 =
      ((binary_method)method)((char*)args[0].v_handle - sizeof(void*), &args[1].v_handle, &args[2].v_handle);
  return collage_tvm.CFuncSetReturn(ret, &result, &code, 1);
}

int collage_new_binary_method(void* method, collage_frame* f) {
  void* fn = NULL;
  if (collage_tvm.FuncCreateFromCFunc(call_binary_method, method, NULL, &fn) != 0) return collage_fail(f);
  f->ret_code = kTVMPackedFuncHandle;
  f->ret.v_handle = fn;
  return COLLAGE_OK;
}
