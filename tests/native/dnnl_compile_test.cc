// SPDX-License-Identifier: Apache-2.0
//
// Regions for oneDNN from their text to their results: what the code generator writes runs, within its
// tensors.
#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "refusal.h"

namespace collage::onednn {
namespace {

using tvm::runtime::NDArray;

NDArray Filled(const ValueType& type, float step) {
  NDArray tensor = NDArray::Empty({type.dims.begin(), type.dims.end()}, ElementType(type), {kDLCPU, 0});
  if (type.truth) {
    auto* const truths = static_cast<char*>(tensor->data);
    for (int64_t i = 0; i < Elements(type.dims); ++i) truths[i] = i % 3 == 0 ? 0 : 1;
    return tensor;
  }
  auto* const values = static_cast<float*>(tensor->data);
  for (int64_t i = 0; i < Elements(type.dims); ++i) values[i] = step * static_cast<float>(i % 11);
  return tensor;
}

std::vector<NDArray> ResultsOf(const Program& program, float step = 0.25F) {
  std::vector<NDArray> constants, inputs, outputs;
  for (const int value : program.constants) constants.push_back(Filled(program.values[value], step));
  const auto plan = Compiler(program, constants).Compile();
  constants.clear();
  for (const int value : program.inputs) inputs.push_back(Filled(program.values[value], step));
  for (const int value : program.outputs) outputs.push_back(Filled(program.values[value], 0));
  const auto pointers = [](const std::vector<NDArray>& tensors) {
    std::vector<void*> list;
    for (const NDArray& tensor : tensors) list.push_back(tensor->data);
    return list;
  };
  plan->Run(pointers(inputs), pointers(outputs));
  return outputs;
}

TEST(DnnlCompile, RunsTheSeeds) {
  for (const Seed& seed : Seeds("dnnl_compile")) {
    EXPECT_EQ(Refusal([&] { ResultsOf(ParseProgram(seed.content)); }), "") << seed.name;
  }
}

// The weight of an upsampled convolution may be a part of a larger tensor, too.
TEST(DnnlCompile, AnUpsampledConvolutionReadsItsWeightFromWhereItBegins) {
  const auto program = [](const char* weight, const char* view, const char* constants, const char* inputs) {
    return ParseProgram(
        std::string(R"({"format": "collage-dnnl", "version": 3, "outputs": [2], "inputs": )") + inputs +
        ", \"constants\": " + constants + R"(, "values": [["f32", [1, 2, 4, 4]], ["f32", )" + weight +
        R"(], ["f32", [1, 2, 8, 8]]], "ops": [{"op": "upsampled_conv",
        "kernel": "upsampled", "algorithm": "direct", "in": [0, 1], "out": 2, "scale": [2, 2], "strides": [1, 1], "dilation": [1, 1],
        "padding": [1, 1, 1, 1], "weight": )" +
        view + "}]}");
  };
  const char* part = R"({"dims": [2, 2, 3, 3], "strides": [18, 9, 3, 1], "offset": 11})";
  for (const auto& [constants, inputs] : {std::pair{"[1]", "[0]"}, std::pair{"[]", "[0, 1]"}}) {
    // The values repeat after 11 elements: the part that begins there holds what the whole begins with.
    const NDArray moved = ResultsOf(program("[47]", part, constants, inputs))[0];
    const NDArray plain = ResultsOf(
        program("[2, 2, 3, 3]", R"({"dims": [2, 2, 3, 3], "strides": [18, 9, 3, 1]})", constants, inputs))[0];
    const NDArray shifted = ResultsOf(program(
        "[47]", R"({"dims": [2, 2, 3, 3], "strides": [18, 9, 3, 1], "offset": 1})", constants, inputs))[0];
    const auto* a = static_cast<const float*>(moved->data);
    const auto* b = static_cast<const float*>(plain->data);
    const auto* c = static_cast<const float*>(shifted->data);
    bool differs = false;
    for (int i = 0; i < 128; ++i) {
      EXPECT_EQ(a[i], b[i]) << i;
      differs = differs || b[i] != c[i];
    }
    EXPECT_TRUE(differs);
  }
}

}  // namespace
}  // namespace collage::onednn
