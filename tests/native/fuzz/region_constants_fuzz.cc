// SPDX-License-Identifier: Apache-2.0
//
// A region's weights as they are saved. An input begins with a byte: 0 for a text as it stands, read as a
// stream and as a fixed piece of memory; else the types of tensors, which are written with their seal, and
// the elements.
#include <dmlc/memory_io.h>

#include <cstring>
#include <memory>

#include "fuzz_input.h"
#include "region_constants.h"

namespace {

using collage::RegionConstants;

// What was loaded can be read to its last byte, saved, and loaded again as the same.
void Use(const RegionConstants& constants, size_t most) {
  if (constants.PieceBytes() > most) std::abort();  // more than there was in the stream
  std::string saved;
  dmlc::MemoryStringStream out(&saved);
  constants.Save(&out);
  out.Seek(0);
  RegionConstants again;
  if (!again.Load(&out) || again.size() != constants.size()) std::abort();
  for (size_t i = 0; i < constants.size(); ++i) {
    const tvm::runtime::NDArray a = constants.Tensor(i), b = again.Tensor(i);
    if (constants.Bytes(i) != again.Bytes(i)) std::abort();
    if (constants.Bytes(i) > 0 && std::memcmp(a->data, b->data, constants.Bytes(i)) != 0) std::abort();
  }
}

void LoadAll(std::string text) {
  {
    dmlc::MemoryStringStream stream(&text);
    RegionConstants constants;
    if (constants.Load(&stream)) Use(constants, text.size());
  }
  // Memory of exactly that size, so that the sanitizer sees what is read behind it.
  const std::unique_ptr<char[]> memory(new char[text.size()]);
  std::memcpy(memory.get(), text.data(), text.size());
  dmlc::MemoryFixedSizeStream stream(memory.get(), text.size());
  RegionConstants constants;
  if (constants.Load(&stream)) Use(constants, text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  collage::fuzz::Input input(data, size);
  collage::fuzz::MayRefuse([&] {
    if (const uint8_t count = input.Byte() % 5) {
      std::vector<collage::TensorType> types;
      while (types.size() < count) types.push_back(input.Type());
      std::string text;
      dmlc::MemoryStringStream stream(&text);
      collage::CheckedWriter writer(&stream);
      writer.Types(types);
      writer.Number(input.Below(80));
      writer.Seal();
      LoadAll(text + input.Rest());
    } else {
      LoadAll(input.Rest());
    }
  });
  return 0;
}
