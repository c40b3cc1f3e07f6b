// SPDX-License-Identifier: Apache-2.0
//
// What copies to a device and from there take; and what the plug-ins of devices have in common with that.
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/ndarray.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "device_kind.h"

namespace collage {
namespace device {
namespace {

std::atomic<bool> left_out{false};

using tvm::runtime::NDArray;

DLDevice Chosen() { return {Here().type, Here().chosen()}; }

void WaitFor(DLDevice device) { tvm::runtime::DeviceAPI::Get(device)->StreamSync(device, nullptr); }

}  // namespace

void LeaveOutCopies(bool on) { left_out = on; }
bool CopiesAreLeftOut() { return left_out; }

void Wait() {
  Told([] { WaitFor(Chosen()); });
}

std::string MeasureCopies(int64_t bytes) {
  const DLDevice device = Told(Chosen);
  constexpr int kSamples = 15;
  const DLDataType byte{kDLUInt, 8, 1};
  NDArray here = NDArray::Empty({bytes}, byte, {kDLCPU, 0});
  std::memset(here->data, 1, static_cast<size_t>(bytes));
  NDArray there = NDArray::Empty({bytes}, byte, device);
  std::ostringstream text;
  for (const bool to : {true, false}) {
    text << (to ? "{\"to\": [" : ", \"from\": [");
    for (int i = -1; i < kSamples; ++i) {  // the first one is not counted: it may make room
      WaitFor(device);
      const auto begin = std::chrono::steady_clock::now();
      (to ? there : here).CopyFrom(to ? here : there);
      WaitFor(device);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
      if (i >= 0) text << (i > 0 ? ", " : "") << took.count();
    }
    text << "]";
  }
  text << "}";
  return text.str();
}

int NumberIn(const char* variable, const char* title, size_t count) {
  const char* const named = std::getenv(variable);
  if (named == nullptr || *named == '\0') return 0;
  char* end = nullptr;
  const unsigned long index = std::strtoul(named, &end, 10);
  // strtoul takes signs and blanks, too; a number that is too large for it comes out as the largest one.
  if (*named < '0' || *named > '9' || *end != '\0' || index >= count) {
    throw std::runtime_error(
        std::string(variable) + "=" + named + " names no " + title + " device: " +
        (count == 1 ? "one is here, number 0" : std::to_string(count) + " are here, numbered from 0") +
        " (collage doctor lists them)");
  }
  return static_cast<int>(index);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

}  // namespace device
}  // namespace collage
