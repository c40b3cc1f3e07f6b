// SPDX-License-Identifier: Apache-2.0
//
// The part of CUDA's driver interface that is used here, in the place of NVIDIA's header of this name: the
// plug-in is built where nothing of CUDA is. The interface is a stable one (a function that changes gets a
// new name, "_v2"), and tests/test_cuda.py holds what is declared here to NVIDIA's headers. The functions
// open the driver when the first of them is called (cuda_driver.cc); where there is none they give
// CUDA_ERROR_NOT_INITIALIZED.
#ifndef COLLAGE_CUDA_H_
#define COLLAGE_CUDA_H_

#include <cstddef>

#define CUDA_VERSION 12000

typedef enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
} CUresult;

typedef enum {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
} CUdevice_attribute;

typedef enum { CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 } CUfunction_attribute;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;

// Each function: its name in the driver, and what it takes.
#define COLLAGE_CUDA_DRIVER(F)                                                                           \
  F(cuInit, (unsigned int flags), (flags))                                                               \
  F(cuDriverGetVersion, (int* version), (version))                                                       \
  F(cuGetErrorName, (CUresult error, const char** name), (error, name))                                  \
  F(cuGetErrorString, (CUresult error, const char** text), (error, text))                                \
  F(cuDeviceGetCount, (int* count), (count))                                                             \
  F(cuDeviceGet, (CUdevice * device, int number), (device, number))                                      \
  F(cuDeviceGetName, (char* name, int length, CUdevice device), (name, length, device))                  \
  F(cuDeviceGetAttribute, (int* value, CUdevice_attribute what, CUdevice device), (value, what, device)) \
  F(cuDeviceTotalMem_v2, (size_t* bytes, CUdevice device), (bytes, device))                              \
  F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device))                 \
  F(cuCtxSetCurrent, (CUcontext context), (context))                                                     \
  F(cuMemGetInfo_v2, (size_t* free, size_t* total), (free, total))                                       \
  F(cuMemAlloc_v2, (CUdeviceptr * memory, size_t bytes), (memory, bytes))                                \
  F(cuMemFree_v2, (CUdeviceptr memory), (memory))                                                        \
  F(cuMemAllocHost_v2, (void** memory, size_t bytes), (memory, bytes))                                   \
  F(cuMemFreeHost, (void* memory), (memory))                                                             \
  F(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                    \
    (to, from, bytes, stream))                                                                           \
  F(cuMemcpyPeerAsync,                                                                                   \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,       \
     CUstream stream),                                                                                   \
    (to, to_context, from, from_context, bytes, stream))                                                 \
  F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),               \
    (to, value, count, stream))                                                                          \
  F(cuMemsetD32_v2, (CUdeviceptr to, unsigned int value, size_t count), (to, value, count))              \
  F(cuStreamCreate, (CUstream * stream, unsigned int flags), (stream, flags))                            \
  F(cuStreamDestroy_v2, (CUstream stream), (stream))                                                     \
  F(cuStreamSynchronize, (CUstream stream), (stream))                                                    \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags))     \
  F(cuEventCreate, (CUevent * event, unsigned int flags), (event, flags))                                \
  F(cuEventDestroy_v2, (CUevent event), (event))                                                         \
  F(cuEventRecord, (CUevent event, CUstream stream), (event, stream))                                    \
  F(cuEventSynchronize, (CUevent event), (event))                                                        \
  F(cuEventElapsedTime, (float* milliseconds, CUevent from, CUevent to), (milliseconds, from, to))       \
  F(cuModuleLoadData, (CUmodule * module, const void* image), (module, image))                           \
  F(cuModuleUnload, (CUmodule module), (module))                                                         \
  F(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name),                     \
    (function, module, name))                                                                            \
  F(cuModuleGetGlobal_v2, (CUdeviceptr * memory, size_t* bytes, CUmodule module, const char* name),      \
    (memory, bytes, module, name))                                                                       \
  F(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute what, int value),                     \
    (function, what, value))                                                                             \
  F(cuLaunchKernel,                                                                                      \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,                 \
     unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,        \
     CUstream stream, void** parameters, void** extra),                                                  \
    (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra))

// cuModuleUnload gives CUDA_ERROR_DEINITIALIZED whatever the driver's error is: TVM calls it where it can
// tell nobody.
extern "C" {
#define COLLAGE_DECLARE(name, parameters, arguments) \
  __attribute__((visibility("hidden"))) CUresult name parameters;
COLLAGE_CUDA_DRIVER(COLLAGE_DECLARE)
#undef COLLAGE_DECLARE
}

// As NVIDIA's header has it: programs write the name without its version.
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuModuleGetGlobal cuModuleGetGlobal_v2

#endif  // COLLAGE_CUDA_H_
