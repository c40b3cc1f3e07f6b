// SPDX-License-Identifier: Apache-2.0
//
// What TVM's runtime for CUDA uses of NVIDIA's runtime library (cudart), by the driver alone, in the place of
// NVIDIA's header of this name. That library comes in versions that need drivers of their own, and all that
// is used of it here is one call of the driver's for each (cuda_runtime.cc). As it does, this works in the
// primary context of a device, which cuBLAS, cuDNN and PyTorch in the same process use as well.
#ifndef COLLAGE_CUDA_RUNTIME_H_
#define COLLAGE_CUDA_RUNTIME_H_

#include <cuda.h>

typedef CUresult cudaError_t;
typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;

constexpr cudaError_t cudaSuccess = CUDA_SUCCESS;
constexpr cudaError_t cudaErrorCudartUnloading = CUDA_ERROR_DEINITIALIZED;
constexpr cudaError_t cudaErrorIllegalAddress = CUDA_ERROR_ILLEGAL_ADDRESS;
constexpr unsigned int cudaStreamNonBlocking = 1;

// The numbers are the driver's.
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxBlockDimX = 2,
  cudaDevAttrMaxBlockDimY = 3,
  cudaDevAttrMaxBlockDimZ = 4,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
};

// Where the memory lies the driver knows by its address.
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };

struct cudaDeviceProp {
  size_t totalGlobalMem;
};

// Each gives what the driver says. The device and the last error are the calling thread's.
#define COLLAGE_HIDDEN __attribute__((visibility("hidden")))
COLLAGE_HIDDEN const char* cudaGetErrorString(cudaError_t error);
COLLAGE_HIDDEN cudaError_t cudaPeekAtLastError();
COLLAGE_HIDDEN cudaError_t cudaGetDeviceCount(int* count);
COLLAGE_HIDDEN cudaError_t cudaSetDevice(int device);
COLLAGE_HIDDEN cudaError_t cudaGetDevice(int* device);
COLLAGE_HIDDEN cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device);
COLLAGE_HIDDEN cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
COLLAGE_HIDDEN cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
COLLAGE_HIDDEN cudaError_t cudaMalloc(void** memory, size_t bytes);
COLLAGE_HIDDEN cudaError_t cudaFree(void* memory);
COLLAGE_HIDDEN cudaError_t cudaMallocHost(void** memory, size_t bytes);
COLLAGE_HIDDEN cudaError_t cudaFreeHost(void* memory);
COLLAGE_HIDDEN cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                                           cudaStream_t stream);
COLLAGE_HIDDEN cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                               size_t bytes, cudaStream_t stream);
COLLAGE_HIDDEN cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
COLLAGE_HIDDEN cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
COLLAGE_HIDDEN cudaError_t cudaStreamDestroy(cudaStream_t stream);
COLLAGE_HIDDEN cudaError_t cudaStreamSynchronize(cudaStream_t stream);
COLLAGE_HIDDEN cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
COLLAGE_HIDDEN cudaError_t cudaEventCreate(cudaEvent_t* event);
COLLAGE_HIDDEN cudaError_t cudaEventDestroy(cudaEvent_t event);
COLLAGE_HIDDEN cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
COLLAGE_HIDDEN cudaError_t cudaEventSynchronize(cudaEvent_t event);
COLLAGE_HIDDEN cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
#undef COLLAGE_HIDDEN

#endif  // COLLAGE_CUDA_RUNTIME_H_
