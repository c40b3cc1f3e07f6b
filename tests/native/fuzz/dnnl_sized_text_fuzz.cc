// SPDX-License-Identifier: Apache-2.0
//
// What an engine is told of a region with open dimensions: JSON.
#include "dnnl_sized_text.h"
#include "fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  collage::fuzz::MayRefuse([&] {
    const collage::onednn::SizedText read(text, 2);
    read.At(std::vector<int64_t>(read.num_sizes(), 1));
    read.At(std::vector<int64_t>(read.num_sizes(), int64_t{1} << 40));
    int64_t shape[] = {5, 7};
    DLTensor tensor{};
    tensor.shape = shape;
    tensor.ndim = 2;
    std::vector<int64_t> sizes;
    read.SizesOf({&tensor, &tensor}, &sizes);
    read.At(sizes);
  });
  return 0;
}
