// SPDX-License-Identifier: Apache-2.0
//
// Regions for ONNX Runtime: the frame around the model, which is for ONNX Runtime to read.
#include "fuzz_input.h"
#include "onnxruntime_program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] { collage::OnnxRuntimeProgram::Parse(text, 2, 1); });
  return 0;
}
