// SPDX-License-Identifier: Apache-2.0
//
// A call of a library's within a region for a device (byoc/device/calls.go). TVM calls it as it calls its own
// kernels there: with tensors in the device's memory, in their order.
#ifndef COLLAGE_DEVICE_CALL_H_
#define COLLAGE_DEVICE_CALL_H_

#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>

#include <cstdint>
#include <functional>
#include <string>

namespace collage {
namespace device {

// Takes the call's arguments, and its result as the last one.
using Call = std::function<void(const tvm::runtime::TVMArgs&)>;

// The calls of a library.
struct Calls {
  // The type key of their modules.
  const char* type;
  // What people call the library.
  const char* title;
  // Begins the saved form. A change of form takes another word.
  uint64_t form;
  // Makes a call of its text. Throws std::runtime_error where it is not what Go writes.
  Call (*make)(const std::string& text);
  // Opens the library, or throws std::runtime_error: a model that needs it and has it not says so when it is
  // loaded.
  void (*open)();
};

// The module of one call, by the symbol under which TVM calls it, and what TVM reads it with from a model.
// `of` must live as long as the process. Errors are TVM's.
tvm::runtime::Module MakeCall(const Calls& of, const std::string& symbol, const std::string& text);
tvm::runtime::Module LoadCall(const Calls& of, void* stream);

}  // namespace device
}  // namespace collage

#endif  // COLLAGE_DEVICE_CALL_H_
