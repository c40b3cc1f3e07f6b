// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <map>
#include <mutex>

namespace {

thread_local int current = 0;
// The context that this thread was given by Bind.
thread_local CUcontext bound = nullptr;
thread_local cudaError_t last = cudaSuccess;

cudaError_t Keep(cudaError_t status) {
  if (status != cudaSuccess) last = status;
  return status;
}

// The primary context of a device, which lives as long as the process does.
cudaError_t ContextOf(int device, CUcontext* context) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  const std::lock_guard<std::mutex> lock(mutex);
  CUcontext& known = contexts[device];
  if (known == nullptr) {
    CUdevice handle = 0;
    if (const cudaError_t status = cuDeviceGet(&handle, device); status != cudaSuccess) return status;
    if (const cudaError_t status = cuDevicePrimaryCtxRetain(&known, handle); status != cudaSuccess)
      return status;
  }
  *context = known;
  return cudaSuccess;
}

// Has the calling thread work in the context of its device.
cudaError_t Bind() {
  CUcontext context = nullptr;
  if (const cudaError_t status = ContextOf(current, &context); status != cudaSuccess) return status;
  const cudaError_t status = cuCtxSetCurrent(context);
  if (status == cudaSuccess) bound = context;
  return status;
}

// Calls the driver in the context of the thread's device.
template <typename Call>
cudaError_t Within(Call call) {
  if (bound == nullptr) {
    if (const cudaError_t status = Bind(); status != cudaSuccess) return Keep(status);
  }
  return Keep(call());
}

// What giving something back says. TVM does that where no error can be told, and would end the process: what
// was on a card that is lost is gone. It takes this as what is said when the process ends.
cudaError_t GivenBack(cudaError_t status) {
  return status == cudaSuccess ? status : cudaErrorCudartUnloading;
}

CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  // The names are what device_kind.h's out_of_memory is looked for in.
  const char* name = nullptr;
  if (cuGetErrorName(error, &name) != CUDA_SUCCESS || name == nullptr) return "the driver does not say what";
  return name;
}

cudaError_t cudaPeekAtLastError() { return last; }

cudaError_t cudaGetDeviceCount(int* count) { return Keep(cuDeviceGetCount(count)); }

cudaError_t cudaSetDevice(int device) {
  current = device;
  return Keep(Bind());
}

cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
  CUdevice handle = 0;
  if (const cudaError_t status = cuDeviceGet(&handle, device); status != cudaSuccess) return Keep(status);
  return Keep(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(what), handle));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  CUdevice handle = 0;
  if (const cudaError_t status = cuDeviceGet(&handle, device); status != cudaSuccess) return Keep(status);
  return Keep(cuDeviceTotalMem(&properties->totalGlobalMem, handle));
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Within([&] { return cuMemGetInfo_v2(free, total); });
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return Within([&] {
    CUdeviceptr made = 0;
    // cudart takes nothing for a size; the driver refuses it.
    const CUresult status = bytes == 0 ? CUDA_SUCCESS : cuMemAlloc_v2(&made, bytes);
    *memory = reinterpret_cast<void*>(made);
    return status;
  });
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  return GivenBack(Within([&] { return cuMemFree_v2(Address(memory)); }));
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return Within([&] { return cuMemAllocHost_v2(memory, bytes); });
}

cudaError_t cudaFreeHost(void* memory) {
  return GivenBack(Within([&] { return cuMemFreeHost(memory); }));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return Within([&] { return cuMemcpyAsync(Address(to), Address(from), bytes, stream); });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                cudaStream_t stream) {
  CUcontext there = nullptr, here = nullptr;
  for (const auto& [device, context] : {std::pair(to_device, &there), std::pair(from_device, &here)}) {
    if (const cudaError_t status = ContextOf(device, context); status != cudaSuccess) return Keep(status);
  }
  return Within([&] { return cuMemcpyPeerAsync(Address(to), there, Address(from), here, bytes, stream); });
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  return Within(
      [&] { return cuMemsetD8Async(Address(memory), static_cast<unsigned char>(value), bytes, stream); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return Within([&] { return cuStreamCreate(stream, flags); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return GivenBack(Within([&] { return cuStreamDestroy_v2(stream); }));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Within([&] { return cuStreamSynchronize(stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return Within([&] { return cuStreamWaitEvent(stream, event, flags); });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Within([&] { return cuEventCreate(event, 0); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return GivenBack(Within([&] { return cuEventDestroy_v2(event); }));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Within([&] { return cuEventRecord(event, stream); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Within([&] { return cuEventSynchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return Within([&] { return cuEventElapsedTime(milliseconds, from, to); });
}
