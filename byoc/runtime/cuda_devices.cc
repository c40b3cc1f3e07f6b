// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this machine, as CUDA's driver has them.
#include <cuda_runtime.h>
#include <tvm/runtime/registry.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

#include "cuda_driver.h"
#include "device_kind.h"

namespace collage {
namespace cuda {
namespace {

// What the driver says, as an error.
void Check(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

int Count() {
  const std::string& driver = OpenDriver();
  int count = 0;
  const CUresult status = cuDeviceGetCount(&count);
  if (status == CUDA_SUCCESS && count > 0) return count;
  throw std::runtime_error("CUDA (" + driver + ") knows no device on this machine" +
                           (status != CUDA_SUCCESS ? ": " + std::string(cudaGetErrorString(status)) : "") +
                           "; CUDA_VISIBLE_DEVICES may hide what is there");
}

int Chosen() { return device::NumberIn("COLLAGE_CUDA_DEVICE", "CUDA", static_cast<size_t>(Count())); }

CUdevice Handle(int number) {
  CUdevice device = 0;
  Check(cuDeviceGet(&device, number), "asking for a device");
  return device;
}

int Attribute(CUdevice_attribute what, int number) {
  int value = 0;
  Check(cuDeviceGetAttribute(&value, what, Handle(number)), "asking what a device has");
  return value;
}

uint64_t Memory(int number) {
  size_t bytes = 0;
  Check(cuDeviceTotalMem(&bytes, Handle(number)), "asking for a device's memory");
  return bytes;
}

std::string Name(int number) {
  char name[256] = "";
  Check(cuDeviceGetName(name, sizeof(name) - 1, Handle(number)), "asking for a device's name");
  return name;
}

// A compute capability, "9.0".
struct Capability {
  int major, minor;

  static Capability Of(int number) {
    return {Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, number),
            Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, number)};
  }
  std::string Text() const { return std::to_string(major) + "." + std::to_string(minor); }
  std::string Architecture() const { return "sm_" + std::to_string(major) + std::to_string(minor); }
};

// Of CUDA it says which the driver is for; the driver's own version stands in a file of the system's.
std::string DriverVersion() {
  int version = 0;
  Check(cuDriverGetVersion(&version), "asking for the driver's version");
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string Describe() {
  const int count = Count();
  std::ostringstream text;
  const char* separator = "[";
  for (int i = 0; i < count; ++i) {
    const Capability capability = Capability::Of(i);
    text << separator << "{\"name\": " << device::Quoted(Name(i)) << ", \"version\": \"compute capability "
         << capability.Text() << "\", \"driver\": \"" << DriverVersion()
         << "\", \"units\": " << Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, i)
         << ", \"memory_bytes\": " << Memory(i) << ", \"architecture\": \"" << capability.Architecture()
         << "\"}";
    separator = ", ";
  }
  text << "]";
  return text.str();
}

// Machine code runs on devices of the same major compute capability, of no lesser minor one.
void CheckArchitecture(int number, const std::string& architecture) {
  const Capability here = Capability::Of(number);
  // The last digit is the minor one; "sm_90a" is for that one alone.
  int both = 0;
  const std::string digits = architecture.substr(std::min(architecture.size(), std::strlen("sm_")));
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), both);
  const bool exact = rest != digits.data() + digits.size();
  if (error == std::errc() && both / 10 == here.major &&
      (exact ? both % 10 == here.minor : both % 10 <= here.minor)) {
    return;
  }
  throw std::runtime_error(
      "the model was compiled for GPUs of the architecture " + architecture + ", and " + Name(number) +
      " is " + here.Architecture() +
      ": compile it again on such a machine, or anywhere with COLLAGE_CUDA_ARCH=" + here.Architecture());
}

// The oldest driver for what is compiled by the compilers of CUDA 12, which all later ones take. Who compiles
// for another machine's card (byoc/cuda) need not have one.
std::string NeededVersion() {
  const char* const elsewhere = std::getenv("COLLAGE_CUDA_ARCH");
  if (elsewhere == nullptr || *elsewhere == '\0') Chosen();
  return "12.0";
}

}  // namespace

// Gives what is known of the CUDA devices that are here, as JSON (device_kind.h), each with its
// "architecture"
// ("sm_90").
TVM_REGISTER_GLOBAL("collage.runtime.cuda.Devices").set_body_typed([]() -> tvm::runtime::String {
  return device::Told(Describe);
});

// Takes a number of bytes and gives what copying them takes, in milliseconds, several times: {"to": [...],
// "from": [...]}.
TVM_REGISTER_GLOBAL("collage.runtime.cuda.MeasureCopies")
    .set_body_typed([](int64_t bytes) -> tvm::runtime::String { return device::MeasureCopies(bytes); });

// Takes whether regions of this process leave out their copies, and do not wait for the device; for who times
// kernels.
TVM_REGISTER_GLOBAL("collage.runtime.cuda.LeaveOutCopies").set_body_typed([](bool on) {
  device::LeaveOutCopies(on);
});

// Gives the number of the CUDA device that regions run on: the one that COLLAGE_CUDA_DEVICE names, else 0.
TVM_REGISTER_GLOBAL("collage.runtime.cuda.Device").set_body_typed([]() -> int {
  return device::Told(Chosen);
});

// Waits until the CUDA device that regions run on has done all that it was asked for.
TVM_REGISTER_GLOBAL("collage.runtime.cuda.Wait").set_body_typed([] { device::Wait(); });

}  // namespace cuda

const device::Kind& device::Here() {
  static const Kind kind = {
      kDLCUDA,
      "cuda",
      "CUDA",
      cuda::NeededVersion,
      cuda::Chosen,
      cuda::Describe,
      cuda::Memory,
      cuda::CheckArchitecture,
      {"CUDA_ERROR_OUT_OF_MEMORY"},
  };
  return kind;
}

}  // namespace collage
