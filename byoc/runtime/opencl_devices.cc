// SPDX-License-Identifier: Apache-2.0
#include "opencl_devices.h"

#include <runtime/opencl/opencl_common.h>
#include <tvm/runtime/registry.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "opencl_library.h"

namespace tvm::runtime::cl {
// TVM's, in opencl_device_api.cc.
std::vector<cl_platform_id> GetPlatformIDs();
std::vector<cl_device_id> GetDeviceIDs(cl_platform_id pid, std::string device_type);
std::string GetDeviceInfo(cl_device_id pid, cl_device_info param_name);
}  // namespace tvm::runtime::cl

namespace collage {
namespace opencl {
namespace {

namespace cl = tvm::runtime::cl;

bool AnyOf(const std::string& type) {
  for (cl_platform_id platform : cl::GetPlatformIDs()) {
    if (!cl::GetDeviceIDs(platform, type).empty()) return true;
  }
  return false;
}

// TVM by itself asks for GPUs, and warns on the standard error where it takes something else.
cl::OpenCLWorkspace* Workspace() {
  static std::mutex mutex;
  static bool opened = false;
  const std::lock_guard<std::mutex> lock(mutex);
  cl::OpenCLWorkspace* workspace = cl::OpenCLWorkspace::Global();
  if (!opened) {
    const OptionalLibrary loader = Loader();  // its error says more than TVM's
    if (!AnyOf("")) {
      throw std::runtime_error(
          "OpenCL (" + loader.path() +
          ") knows no device on this machine: install the driver of yours (on Debian, for the "
          "processor itself: apt-get install pocl-opencl-icd)");
    }
    workspace->Init("opencl", AnyOf("gpu") ? "gpu" : "");
    opened = true;
  }
  return workspace;
}

template <typename Number>
Number NumberOf(cl_device_id device, cl_device_info what) {
  Number number = 0;
  OPENCL_CALL(clGetDeviceInfo(device, what, sizeof(number), &number, nullptr));
  return number;
}

// A text within quotes, as JSON has it.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

}  // namespace

int ChosenDevice() {
  const size_t count = Workspace()->devices.size();
  const char* const named = std::getenv("COLLAGE_OPENCL_DEVICE");
  if (named == nullptr || *named == '\0') return 0;
  char* end = nullptr;
  const unsigned long index = std::strtoul(named, &end, 10);
  // strtoul takes signs and blanks, too; a number that is too large for it comes out as the largest one.
  if (*named < '0' || *named > '9' || *end != '\0' || index >= count) {
    throw std::runtime_error(
        "COLLAGE_OPENCL_DEVICE=" + std::string(named) + " names no OpenCL device: " +
        (count == 1 ? "one is here, number 0" : std::to_string(count) + " are here, numbered from 0") +
        " (collage doctor lists them)");
  }
  return static_cast<int>(index);
}

std::string DescribeDevices() {
  std::ostringstream text;
  const char* separator = "[";
  for (cl_device_id device : Workspace()->devices) {
    text << separator << "{\"name\": " << Quoted(cl::GetDeviceInfo(device, CL_DEVICE_NAME))
         << ", \"version\": " << Quoted(cl::GetDeviceInfo(device, CL_DEVICE_VERSION))
         << ", \"driver\": " << Quoted(cl::GetDeviceInfo(device, CL_DRIVER_VERSION))
         << ", \"units\": " << NumberOf<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS)
         << ", \"memory_bytes\": " << NumberOf<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE) << "}";
    separator = ", ";
  }
  text << "]";
  return text.str();
}

uint64_t MemoryOf(int device) {
  return NumberOf<cl_ulong>(Workspace()->devices[device], CL_DEVICE_GLOBAL_MEM_SIZE);
}

namespace {

std::atomic<bool> left_out{false};

using tvm::runtime::NDArray;

DLDevice Chosen() { return {kDLOpenCL, ChosenDevice()}; }

void Wait(DLDevice device) { cl::OpenCLWorkspace::Global()->StreamSync(device, nullptr); }

std::string MeasureCopies(int64_t bytes) {
  const DLDevice device = Chosen();
  constexpr int kSamples = 15;
  const DLDataType byte{kDLUInt, 8, 1};
  NDArray here = NDArray::Empty({bytes}, byte, {kDLCPU, 0});
  std::memset(here->data, 1, static_cast<size_t>(bytes));
  NDArray there = NDArray::Empty({bytes}, byte, device);
  std::ostringstream text;
  for (const bool to : {true, false}) {
    text << (to ? "{\"to\": [" : ", \"from\": [");
    for (int i = -1; i < kSamples; ++i) {  // the first one is not counted: it may make room
      Wait(device);
      const auto begin = std::chrono::steady_clock::now();
      (to ? there : here).CopyFrom(to ? here : there);
      Wait(device);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      if (i >= 0) text << (i > 0 ? ", " : "") << took.count();
    }
    text << "]";
  }
  text << "}";
  return text.str();
}

// Errors as TVM's.
template <typename Body>
auto Told(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::runtime_error& error) {
    throw tvm::runtime::InternalError(__FILE__, __LINE__, error.what());
  }
}

}  // namespace

void LeaveOutCopies(bool on) { left_out = on; }
bool CopiesAreLeftOut() { return left_out; }

// Gives what is known of the OpenCL devices that are here, as JSON (opencl_devices.h).
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Devices").set_body_typed([]() -> tvm::runtime::String {
  return Told(DescribeDevices);
});

// Takes a number of bytes and gives what copying them takes, in milliseconds, several times: {"to": [...],
// "from": [...]}.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.MeasureCopies")
    .set_body_typed([](int64_t bytes) -> tvm::runtime::String {
      return Told([bytes] { return MeasureCopies(bytes); });
    });

// Takes whether regions of this process leave out their copies, and do not wait for the device; for who times
// kernels.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.LeaveOutCopies").set_body_typed([](bool on) {
  LeaveOutCopies(on);
});

// Gives the number of the OpenCL device that regions run on: the one that COLLAGE_OPENCL_DEVICE names, else
// 0.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Device").set_body_typed([]() -> int {
  return Told(ChosenDevice);
});

// Waits until the OpenCL device that regions run on has done all that it was asked for.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Wait").set_body_typed([] { Told([] { Wait(Chosen()); }); });

}  // namespace opencl
}  // namespace collage
