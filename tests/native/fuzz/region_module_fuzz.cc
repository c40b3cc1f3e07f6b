// SPDX-License-Identifier: Apache-2.0
//
// A region's module as TVM loads it from a model, with an engine that looks at all that it gets; then a call
// of the region with tensors that the input describes. An input begins with a byte: 0 for the saved form as
// it stands; else what it is made of, which is written with its seals.
#include <dmlc/memory_io.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <cstring>
#include <memory>

#include "fuzz_input.h"
#include "region_module.h"

namespace {

using collage::fuzz::Input;

// Reads its inputs and writes its outputs as far as the program says that they reach.
class Engine final : public collage::RegionEngine {
 public:
  explicit Engine(const collage::RegionProgram& program) : program_(program) {
    for (size_t i = 0; i < program.constants.size(); ++i) {
      Sum(collage::TensorData(program.constants.Tensor(i).operator->()), program.constants.Type(i));
    }
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    for (size_t i = 0; i < inputs.size(); ++i) Sum(collage::TensorData(inputs[i]), program_.inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      size_t bytes = 0;
      if (program_.outputs[i].Bytes(&bytes) && bytes > 0) {
        std::memset(collage::TensorData(outputs[i]), 1, bytes);
      }
    }
  }

 private:
  void Sum(const void* data, const collage::TensorType& type) {
    size_t bytes = 0;
    if (!type.Bytes(&bytes)) std::abort();
    for (size_t i = 0; i < bytes; ++i) sum_ = sum_ + static_cast<const unsigned char*>(data)[i];
  }

  const collage::RegionProgram program_;
  volatile uint64_t sum_ = 0;
};

std::unique_ptr<collage::RegionEngine> Make(const collage::RegionProgram& program) {
  return std::make_unique<Engine>(program);
}

// Calls the region with small tensors of the types that the input says.
void Call(const tvm::runtime::PackedFunc& function, Input* input) {
  std::vector<tvm::runtime::NDArray> tensors;
  for (uint64_t count = input->Below(5); count > 0; --count) {
    const collage::TensorType type = input->Type();
    size_t bytes = 0;
    if (!type.Bytes(&bytes) || bytes > 1 << 20) return;
    tensors.push_back(tvm::runtime::NDArray::Empty(type.shape, type.dtype, {kDLCPU, 0}));
    std::memset(tensors.back()->data, 0, bytes);
  }
  std::vector<TVMValue> values(tensors.size());
  std::vector<int> codes(tensors.size());
  tvm::runtime::TVMArgsSetter set(values.data(), codes.data());
  for (size_t i = 0; i < tensors.size(); ++i) set(i, tensors[i]);
  tvm::runtime::TVMRetValue result;
  function.CallPacked({values.data(), codes.data(), static_cast<int>(tensors.size())}, &result);
}

std::string Sealed(Input* input) {
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  collage::CheckedWriter writer(&stream);
  writer.Number(0x334E475245474C43);  // "CLGERGN3"
  writer.Text("region");
  writer.Text("text");
  for (int i = 0; i < 2; ++i) {
    std::vector<collage::TensorType> types;
    for (uint64_t count = input->Below(3); count > 0; --count) types.push_back(input->Type());
    writer.Types(types);
  }
  writer.Seal();
  collage::CheckedWriter constants(&stream);
  constants.Types({{{kDLFloat, 32, 1}, {2, 2}}});
  constants.Number(0);
  constants.Seal();
  return text + std::string(64, 'w');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tvm::runtime::PackedFunc* const load = [] {
    collage::RegisterRegionEngine("fuzz", Make);
    return tvm::runtime::Registry::Get("runtime.module.loadbinary_collage_fuzz");
  }();
  Input input(data, size);
  collage::fuzz::MayRefuse([&] {
    const bool sealed = input.Byte() != 0;
    std::string text = sealed ? Sealed(&input) : input.Rest();
    const std::unique_ptr<char[]> memory(new char[text.size()]);
    std::memcpy(memory.get(), text.data(), text.size());
    dmlc::MemoryFixedSizeStream stream(memory.get(), text.size());
    tvm::runtime::Module module = (*load)(static_cast<void*>(static_cast<dmlc::Stream*>(&stream)));
    const std::string symbol = module.GetFunction("get_symbol")();
    const tvm::runtime::PackedFunc function = module.GetFunction(symbol);
    if (sealed && function != nullptr) Call(function, &input);
  });
  return 0;
}
