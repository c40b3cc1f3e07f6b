// SPDX-License-Identifier: Apache-2.0
//
// The part of TVM's C ABI (tvm/runtime/c_runtime_api.h and dlpack.h, TVM 0.10 to 0.19) that the bridge uses,
// declared here because nothing of TVM may be needed to build: symbols are looked up when the program runs.
#ifndef COLLAGE_TVM_ABI_H_
#define COLLAGE_TVM_ABI_H_

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;

typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;

typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; NULL: compact, row-major
  uint64_t byte_offset;
} DLTensor;

typedef struct {
  const char* data;
  size_t size;
} TVMByteArray;

typedef union {
  int64_t v_int64;
  double v_float64;
  void* v_handle;
  const char* v_str;
  DLDataType v_type;
  DLDevice v_device;
} TVMValue;

enum {
  kTVMArgInt = 0,
  kTVMArgFloat = 2,
  kTVMOpaqueHandle = 3,
  kTVMNullptr = 4,
  kTVMDataType = 5,
  kDLDevice = 6,
  kTVMDLTensorHandle = 7,
  kTVMObjectHandle = 8,
  kTVMModuleHandle = 9,
  kTVMPackedFuncHandle = 10,
  kTVMStr = 11,
  kTVMBytes = 12,
  kTVMNDArrayHandle = 13,
  kTVMObjectRValueRefArg = 14,
  kTVMArgBool = 15
};

typedef int (*TVMPackedCFunc)(TVMValue* args, int* codes, int num_args, void* ret, void* resource);
typedef void (*TVMPackedCFuncFinalizer)(void* resource);

#endif  // COLLAGE_TVM_ABI_H_
