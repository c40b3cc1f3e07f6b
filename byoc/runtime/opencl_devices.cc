// SPDX-License-Identifier: Apache-2.0
#include "opencl_devices.h"

#include <runtime/opencl/opencl_common.h>
#include <tvm/runtime/registry.h>

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

void RequireDevice(int index) {
  const size_t count = Workspace()->devices.size();
  if (index < 0 || static_cast<size_t>(index) >= count) {
    throw std::runtime_error("there is no OpenCL device " + std::to_string(index) + ": " + std::to_string(count) +
                             (count == 1 ? " is here, number 0" : " are here, numbered from 0"));
  }
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

TVM_REGISTER_GLOBAL("collage.runtime.opencl.Devices").set_body_typed([]() -> tvm::runtime::String {
  try {
    return DescribeDevices();
  } catch (const std::runtime_error& error) {
    throw tvm::runtime::InternalError(__FILE__, __LINE__, error.what());
  }
});

}  // namespace opencl
}  // namespace collage
