// SPDX-License-Identifier: Apache-2.0
//
// Regions for devices: the frame around the library, which is for the dynamic loader to read.
#include "device_program.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] { collage::device::Program::Parse(text); });
  return 0;
}
