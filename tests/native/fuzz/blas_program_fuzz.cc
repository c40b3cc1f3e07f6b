// SPDX-License-Identifier: Apache-2.0
//
// Regions for BLAS libraries: lines of words.
#include "blas_program.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] { collage::BlasProgram::Parse(text); });
  return 0;
}
