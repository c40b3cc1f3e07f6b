// SPDX-License-Identifier: Apache-2.0
//
// The module around a region: how it is saved and loaded, and which arguments it lets through to its engine.
#include "region_module.h"

#include <dmlc/memory_io.h>
#include <gtest/gtest.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <memory>
#include <vector>

#include "refusal.h"

namespace collage {
namespace {

using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;

constexpr DLDataType kFloat{kDLFloat, 32, 1};

// Adds its first constant's first element to each element.
class Adding final : public RegionEngine {
 public:
  explicit Adding(const RegionProgram& program) : constant_(program.constants.Tensor(0)) {
    if (program.text != std::string("text\0more", 9)) throw std::runtime_error("this is no text");
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    for (int i = 0; i < 6; ++i) {
      static_cast<float*>(TensorData(outputs[0]))[i] =
          static_cast<const float*>(TensorData(inputs[0]))[i] + *static_cast<const float*>(constant_->data);
    }
  }

 private:
  const NDArray constant_;
};

std::unique_ptr<RegionEngine> Make(const RegionProgram& program) { return std::make_unique<Adding>(program); }

NDArray Tensor(const std::vector<int64_t>& shape, float value, DLDataType dtype = kFloat) {
  NDArray tensor = NDArray::Empty({shape.begin(), shape.end()}, dtype, {kDLCPU, 0});
  if (dtype.code == kDLFloat) {
    const size_t count = tvm::runtime::GetDataSize(*tensor.operator->()) / sizeof(float);
    std::fill_n(static_cast<float*>(tensor->data), count, value);
  }
  return tensor;
}

Module Created(const std::string& types = "float32 2 3\n") {
  RegisterRegionEngine("adding", Make);
  // A text that holds a zero is handed over as bytes.
  const TVMByteArray text{"text\0more", 9};
  return (*Registry::Get("collage.runtime.addingModuleCreate"))(
      "the_region", text, tvm::runtime::Array<NDArray>{Tensor({1}, 10)}, types, "float32 2 3\n");
}

std::string Saved() {
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  Created()->SaveToBinary(&stream);
  return text;
}

Module Loaded(std::string text) {
  RegisterRegionEngine("adding", Make);
  dmlc::MemoryFixedSizeStream stream(text.data(), text.size());
  return (*Registry::Get("runtime.module.loadbinary_collage_adding"))(
      static_cast<void*>(static_cast<dmlc::Stream*>(&stream)));
}

TEST(RegionModule, RunsAsItWasSaved) {
  Module module = Loaded(Saved());
  const NDArray in = Tensor({2, 3}, 1), out = Tensor({2, 3}, 0);
  module.GetFunction("the_region")(in, out);
  EXPECT_EQ(static_cast<const float*>(out->data)[5], 11.0F);
  EXPECT_EQ(module.GetFunction("another"), nullptr);
}

// What is in front of the weights may not change by a bit; the weights themselves are taken as they are.
TEST(RegionModule, RefusesEveryChangeOfAProgram) {
  const std::string text = Saved();
  for (size_t at = 0; at + RegionConstants::kAlignment < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    const std::string said = Refusal([&] { Loaded(damaged); });
    // Between the seal and the weights stand zeros, which nobody reads.
    if (said.empty() && text[at] == '\0') continue;
    EXPECT_TRUE(Says(said, "damaged")) << at;
    EXPECT_TRUE(Says(said, "compile the model again")) << at;
  }
}

TEST(RegionModule, RefusesEveryBeginning) {
  const std::string text = Saved();
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_TRUE(Says(Refusal([&] { Loaded(text.substr(0, size)); }), "damaged")) << size;
  }
}

TEST(RegionModule, SaysWhichWeightsAreDamaged) {
  const std::string text = Saved();
  EXPECT_TRUE(Says(Refusal([&] { Loaded(text.substr(0, text.size() - 1)); }),
                   "the weights of the region the_region are damaged"));
}

TEST(RegionModule, RefusesTypesThatCannotBe) {
  for (const char* types :
       {"float32 -2\n", "float32 1 x\n", "flood 1\n", "float32 9223372036854775807 8\n"}) {
    EXPECT_NE(Refusal([&] { Created(types); }), "") << types;
  }
}

TEST(RegionModule, NamesTheRegionAndTheArgumentThatItRefuses) {
  const PackedFunc region = Created().GetFunction("the_region");
  const NDArray good = Tensor({2, 3}, 1);
  const auto refusal = [&](const NDArray& in, const NDArray& out) {
    return Refusal([&] { region(in, out); });
  };
  EXPECT_EQ(refusal(good, good), "");
  EXPECT_TRUE(
      Says(refusal(Tensor({3, 2}, 1), good),
           "the region the_region on adding: input 0 (float32 [3, 2]) is of another type; the region takes "
           "float32 [2, 3]"));
  EXPECT_TRUE(Says(refusal(good, Tensor({6}, 1)), "output 0 (float32 [6]) is of another type"));
  EXPECT_TRUE(
      Says(refusal(Tensor({2, 3}, 1, {kDLFloat, 64, 1}), good), "input 0 (float64 [2, 3]) is of another"));
  EXPECT_TRUE(
      Says(refusal(Tensor({2, 3}, 1, {kDLInt, 32, 1}), good), "input 0 (int32 [2, 3]) is of another"));
  EXPECT_TRUE(Says(Refusal([&] { region(good); }), "takes 1 inputs and 1 outputs, 1 tensors were given"));
  EXPECT_NE(Refusal([&] { region(good, nullptr); }), "");
}

TEST(RegionModule, TakesAnySizeOfAnOpenExtent) {
  const Module made = Created("float32 -1 3\n");
  std::string text;
  dmlc::MemoryStringStream stream(&text);
  Module(made)->SaveToBinary(&stream);
  for (const Module& module : {made, Loaded(text)}) {
    const PackedFunc region = Module(module).GetFunction("the_region");
    const auto refusal = [&](const NDArray& in) { return Refusal([&] { region(in, Tensor({2, 3}, 1)); }); };
    EXPECT_EQ(refusal(Tensor({2, 3}, 1)), "");
    EXPECT_EQ(refusal(Tensor({5, 3}, 1)), "");
    EXPECT_TRUE(Says(refusal(Tensor({2, 4}, 1)),
                     "input 0 (float32 [2, 4]) is of another type; the region takes "
                     "float32 [?, 3]"));
    EXPECT_TRUE(Says(refusal(Tensor({6}, 1)), "is of another type"));
  }
}

// What no NDArray is: views with gaps, at odd addresses, without memory.
TEST(RegionModule, RefusesMemoryThatIsNotWhatItShouldBe) {
  const PackedFunc region = Created().GetFunction("the_region");
  float memory[16] = {};
  int64_t shape[] = {2, 3}, compact[] = {3, 1}, gaps[] = {4, 1};
  const DLTensor good{memory, {kDLCPU, 0}, 2, kFloat, shape, nullptr, 0};
  const NDArray out = Tensor({2, 3}, 0);
  const auto refusal = [&](DLTensor in) { return Refusal([&] { region(&in, out); }); };
  const auto with = [&](auto change) {
    DLTensor changed = good;
    change(changed);
    return refusal(changed);
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_EQ(with([&](DLTensor& t) { t.strides = compact; }), "");
  EXPECT_EQ(with([&](DLTensor& t) { t.byte_offset = 4; }), "");
  EXPECT_TRUE(
      Says(with([&](DLTensor& t) { t.strides = gaps; }), "input 0 (float32 [2, 3]) has strides with gaps"));
  EXPECT_TRUE(Says(with([&](DLTensor& t) { t.byte_offset = 2; }), "does not begin at a whole element"));
  EXPECT_TRUE(Says(with([&](DLTensor& t) { t.data = nullptr; }), "has no memory"));
  EXPECT_TRUE(Says(with([&](DLTensor& t) { t.device = {kDLCUDA, 0}; }), "not in the processor's memory"));
  EXPECT_TRUE(Says(with([&](DLTensor& t) { t.ndim = 1; }), "is of another type"));
  EXPECT_TRUE(Says(with([&](DLTensor& t) { t.dtype.lanes = 4; }), "is of another type"));
}

TEST(RegionModule, SaysWhoseProgramItsEngineRefused) {
  RegisterRegionEngine("adding", Make);
  Module module = (*Registry::Get("collage.runtime.addingModuleCreate"))(
      "the_region", "other", tvm::runtime::Array<NDArray>{Tensor({1}, 10)}, "", "float32 1\n");
  EXPECT_TRUE(Says(Refusal([&] { module.GetFunction("the_region"); }),
                   "the region the_region on adding: this is no text"));
}

}  // namespace
}  // namespace collage
