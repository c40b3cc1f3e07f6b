// SPDX-License-Identifier: Apache-2.0
//
// Regions for oneDNN: JSON.
#include "dnnl_program.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] { collage::onednn::ParseProgram(text); });
  return 0;
}
