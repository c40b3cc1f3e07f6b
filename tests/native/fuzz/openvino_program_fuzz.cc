// SPDX-License-Identifier: Apache-2.0
//
// Regions for OpenVINO: the frame around the IR, which is for OpenVINO to read.
#include "fuzz_input.h"
#include "openvino_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] { collage::openvino::Program::Parse(text); });
  return 0;
}
