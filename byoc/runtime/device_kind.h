// SPDX-License-Identifier: Apache-2.0
//
// What the plug-in of a kind of device (libcollage_opencl.so, libcollage_cuda.so) is built from, beside TVM's
// runtime for it: the engine (device_engine.cc) and copies (device_copies.cc), which are the same for all,
// and what only that kind has: Here.
#ifndef COLLAGE_DEVICE_KIND_H_
#define COLLAGE_DEVICE_KIND_H_

#include <dlpack/dlpack.h>
#include <tvm/runtime/logging.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace collage {
namespace device {

struct Kind {
  DLDeviceType type;
  // As TVM and the programs call it ("opencl"), and as people do ("OpenCL").
  const char *name, *title;
  // The oldest version of `title` with which models run that are compiled here. Throws where no device is.
  std::string (*needed_version)();
  // The device that regions run on, by TVM's number of it, which is also that of `describe`: the one that
  // an environment variable names, else the first. It is there when this returns; throws std::runtime_error
  // that says what is missing and what to do.
  int (*chosen)();
  // What is known of the devices that are here: a JSON array of
  //
  //     {"name": "...", "version": "OpenCL 3.0 PoCL", "driver": "3.1", "units": 2, "memory_bytes":
  //     21300981760}
  //
  // Throws where there is no device.
  std::string (*describe)();
  // The size of a device's memory.
  uint64_t (*memory_bytes)(int device);
  // Throws std::runtime_error where code for this architecture ("-" for any) does not run on a device.
  void (*check_architecture)(int device, const std::string& architecture);
  // By what in TVM's errors a device is known to be short of memory.
  std::vector<const char*> out_of_memory;
};

// The kind of device of the plug-in that this is part of.
const Kind& Here();

// Regions of this process leave out the copies of their inputs and outputs from now on, and do not wait for
// the device: for who times their kernels. Their outputs are not what they should be then.
void LeaveOutCopies(bool on);
bool CopiesAreLeftOut();

// What copying so many bytes takes, in milliseconds, several times: {"to": [...], "from": [...]}. Errors are
// TVM's.
std::string MeasureCopies(int64_t bytes);

// Waits until the device that regions run on has done all that it was asked for. Errors are TVM's.
void Wait();

// The number of the device that is named by an environment variable, of which there are `count` of what
// `title` says; 0 where the variable is not set. Throws std::runtime_error where it names none.
int NumberIn(const char* variable, const char* title, size_t count);

// A text within quotes, as JSON has it.
std::string Quoted(const std::string& text);

// Calls `body`, with its std::runtime_error as an error of TVM's.
template <typename Body>
auto Told(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::runtime_error& error) {
    throw tvm::runtime::InternalError(__FILE__, __LINE__, error.what());
  }
}

}  // namespace device
}  // namespace collage

#endif  // COLLAGE_DEVICE_KIND_H_
