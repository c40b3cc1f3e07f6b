// SPDX-License-Identifier: Apache-2.0
// The OpenCL devices of this machine, as TVM's OpenCL runtime has them.
#include <runtime/opencl/opencl_common.h>
#include <tvm/runtime/registry.h>

#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "device_kind.h"
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

// GPUs are taken where there are any, all other devices where not.
int ChosenDevice() {
  return device::NumberIn("COLLAGE_OPENCL_DEVICE", "OpenCL", Workspace()->devices.size());
}

std::string DescribeDevices() {
  std::ostringstream text;
  const char* separator = "[";
  for (cl_device_id device : Workspace()->devices) {
    text << separator << "{\"name\": " << device::Quoted(cl::GetDeviceInfo(device, CL_DEVICE_NAME))
         << ", \"version\": " << device::Quoted(cl::GetDeviceInfo(device, CL_DEVICE_VERSION))
         << ", \"driver\": " << device::Quoted(cl::GetDeviceInfo(device, CL_DRIVER_VERSION))
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

// What TVM's runtime asks of a device at least, where there is one: newer drivers take the same models.
std::string NeededVersion() {
  ChosenDevice();
  return "1.2";
}

}  // namespace

// Gives what is known of the OpenCL devices that are here, as JSON (device_kind.h).
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Devices").set_body_typed([]() -> tvm::runtime::String {
  return device::Told(DescribeDevices);
});

// Takes a number of bytes and gives what copying them takes, in milliseconds, several times: {"to": [...],
// "from": [...]}.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.MeasureCopies")
    .set_body_typed([](int64_t bytes) -> tvm::runtime::String { return device::MeasureCopies(bytes); });

// Takes whether regions of this process leave out their copies, and do not wait for the device; for who times
// kernels.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.LeaveOutCopies").set_body_typed([](bool on) {
  device::LeaveOutCopies(on);
});

// Gives the number of the OpenCL device that regions run on: the one that COLLAGE_OPENCL_DEVICE names, else
// 0.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Device").set_body_typed([]() -> int {
  return device::Told(ChosenDevice);
});

// Waits until the OpenCL device that regions run on has done all that it was asked for.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.Wait").set_body_typed([] { device::Wait(); });

}  // namespace opencl

const device::Kind& device::Here() {
  static const Kind kind = {
      kDLOpenCL,
      "opencl",
      "OpenCL",
      opencl::NeededVersion,
      opencl::ChosenDevice,
      opencl::DescribeDevices,
      opencl::MemoryOf,
      [](int, const std::string&) {},  // kernels are kept as their source
      {"CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_INVALID_BUFFER_SIZE"},
  };
  return kind;
}

}  // namespace collage
