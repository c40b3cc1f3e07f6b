// SPDX-License-Identifier: Apache-2.0
//
// Regions for oneDNN from their text to their results: what the code generator writes runs, within its
// tensors.
//
// ctest: levels bf16
#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "instruction_set.h"
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
  if (type.dtype == dnnl::memory::data_type::s8) {
    auto* const bytes = static_cast<int8_t*>(tensor->data);
    for (int64_t i = 0; i < Elements(type.dims); ++i) bytes[i] = static_cast<int8_t>(i % 11 * 25 - 125);
    return tensor;
  }
  if (type.dtype == dnnl::memory::data_type::bf16) {
    auto* const halves = static_cast<uint16_t*>(tensor->data);
    for (int64_t i = 0; i < Elements(type.dims); ++i) halves[i] = static_cast<uint16_t>(0x3e80 + i % 11);
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
        std::string(R"({"format": "collage-dnnl", "version": 5, "outputs": [2], "inputs": )") + inputs +
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

// Two convolutions with bias, one behind the other, the second with a residual value and an activation, then
// a pool, and a dense layer of what is left; all that can be in bfloat16 where that is asked for.
std::string Narrowable(bool bf16) {
  std::string text = R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "outputs": [8, 9],
    "constants": [1, 2, 3, 6], "values": [["f32", [1, 32, 9, 9]], ["f32", [32, 32, 3, 3]], ["f32", [32]],
      ["f32", [32, 32, 3, 3]], ["f32", [1, 32, 9, 9]], ["f32", [1, 32, 9, 9]], ["f32", [10, 32]],
      ["f32", [1, 32, 9, 9]], ["f32", [1, 10]], ["f32", [1, 32, 1, 1]], ["f32", [1, 32]]],
    "ops": [
      {"op": "conv", BF "algorithm": "direct", "in": [0, 1, 2], "out": 4, "bias": true, "strides": [1, 1],
       "dilation": [1, 1], "padding": [1, 1, 1, 1],
       "weight": {"dims": [32, 32, 3, 3], "strides": [288, 9, 3, 1]}, "post": [{"op": "relu"}]},
      {"op": "conv", BF "algorithm": "direct", "in": [4, 3], "out": 5, "strides": [1, 1],
       "dilation": [1, 1], "padding": [1, 1, 1, 1],
       "weight": {"dims": [32, 32, 3, 3], "strides": [288, 9, 3, 1]},
       "post": [{"op": "add", "in": 4}, {"op": "relu"}]},
      {"op": "conv", BF "algorithm": "direct", "in": [5, 3], "out": 7, "strides": [1, 1],
       "dilation": [1, 1], "padding": [1, 1, 1, 1],
       "weight": {"dims": [32, 32, 3, 3], "strides": [288, 9, 3, 1]}, "post": [{"op": "relu"}]},
      {"op": "pool", "algorithm": "avg_pool", "in": [7], "out": 9, "strides": [1, 1], "dilation": [1, 1],
       "window": [9, 9], "padding": [0, 0, 0, 0]},
      {"op": "reshape", "in": [9], "out": 10},
      {"op": "matmul", BF "in": [10, 6], "out": 8, "transpose_b": true}]})";
  for (size_t at; (at = text.find("BF ")) != text.npos;) text.replace(at, 3, bf16 ? "\"bf16\": true," : "");
  return text;
}

double OffBy(const NDArray& got, const NDArray& want) {
  double apart = 0, length = 0;
  int64_t count = 1;
  for (int i = 0; i < got->ndim; ++i) count *= got->shape[i];
  const auto* a = static_cast<const float*>(got->data);
  const auto* b = static_cast<const float*>(want->data);
  for (int64_t i = 0; i < count; ++i) {
    apart += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
    length += b[i] * static_cast<double>(b[i]);
  }
  return std::sqrt(apart / length);
}

TEST(DnnlCompile, ComputesInBfloat16WhereThatIsAskedForAndThere) {
  const auto want = ResultsOf(ParseProgram(Narrowable(false)), 0.02F);
  const auto got = ResultsOf(ParseProgram(Narrowable(true)), 0.02F);
  const bool there = AllowedInstructionSet() >= InstructionSet::kAvx512Bf16;
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = OffBy(got[i], want[i]);
    EXPECT_LT(off, there ? 0.03 : 1e-6) << i;
    if (there) {
      EXPECT_GT(off, 1e-6) << i;
    }
  }
}

// Data on the steps of a grid, which do not reach its ends, are bytes as they are: nothing is rounded again.
TEST(DnnlCompile, DataOnAGridAreExactAsBytes) {
  const char* between[] = {"", R"({"op": "reshape", "in": [1], "out": 5},)"};
  for (const bool moved : {false, true}) {
    const Program program = ParseProgram(
        std::string(
            R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "outputs": [4], "constants": [2, 3],
          "values": [["f32", [6, 8]], ["f32", [6, 8]], ["s8", [5, 8]], ["f32", [5]], ["f32", [6, 5]],
                     ["f32", [6, 8]]], "ops": [
            {"op": "eltwise", "kernel": "grid", "algorithm": "grid", "in": [0], "out": 1, "alpha": 0.25, "beta": -3},)") +
        between[moved] + R"({"op": "matmul", "kernel": "bytes", "in": [)" + (moved ? "5" : "1") +
        R"(, 2, 3], "out": 4, "transpose_b": true}]})");
    const NDArray got = ResultsOf(program, 0.21F)[0];
    const auto* results = static_cast<const float*>(got->data);
    for (int row = 0; row < 6; ++row) {
      for (int column = 0; column < 5; ++column) {
        double sum = 0;
        for (int k = 0; k < 8; ++k) {
          // What Filled gives, on the grid.
          const double x = 0.25 * std::round(0.21F * static_cast<float>((row * 8 + k) % 11) / 0.25F);
          sum += x * ((column * 8 + k) % 11 * 25 - 125);
        }
        sum *= static_cast<double>(0.21F * static_cast<float>(column % 11));
        EXPECT_NEAR(results[row * 5 + column], sum, 1e-6 * (1 + std::abs(sum))) << row << " " << column;
      }
    }
  }
}

TEST(DnnlCompile, RefusesBfloat16WhereItMeansNothing) {
  const auto refusal = [](const char* what, const char* with) {
    std::string text = Narrowable(true);
    text.replace(text.find(what), std::string(what).size(), with);
    return Refusal([&] { ResultsOf(ParseProgram(text)); });
  };
  EXPECT_TRUE(Says(refusal("\"op\": \"pool\"", "\"op\": \"pool\", \"bf16\": true"),
                   "no convolution or product that could be"));
  EXPECT_TRUE(Says(refusal("\"op\": \"conv\"", "\"op\": \"conv\", \"kernel\": \"winograd\""),
                   "no convolution or product that could be"));
  // Of our own kernel of bfloat16 there are products alone.
  std::string text = Narrowable(true);
  for (const auto& [what, with] :
       {std::pair<std::string, std::string>{R"("op": "conv")", R"("op": "conv", "kernel": "pairs")"},
        {R"("f32", [32, 32, 3, 3])", R"("bf16", [32, 32, 3, 3])"}}) {
    text.replace(text.find(what), what.size(), with);
  }
  EXPECT_TRUE(Says(Refusal([&] { ResultsOf(ParseProgram(text)); }), "has no kernel pairs"));
}

// Where another does the operation, they become float32, for which the caller's tensor has no room.
TEST(DnnlCompile, RefusesNarrowWeightsThatOthersRead) {
  const std::string pairs = R"({"op": "matmul", "kernel": "pairs", "bf16": true, "in": [0, 1], "out": 2})",
                    bytes = R"({"op": "matmul", "kernel": "bytes", "in": [0, 1, 5], "out": 2})",
                    moved = R"(, {"op": "reshape", "in": [1], "out": 3})";
  const auto program = [](const std::string& type, const std::string& ops, const std::string& outputs) {
    return R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1, 5], "outputs": )" +
           outputs + R"(, "values": [["f32", [4, 4]], [")" + type + R"(", [4, 4]], ["f32", [4, 4]], [")" +
           type + R"(", [16]], ["f32", [4, 4]], ["f32", [4]]], "ops": [)" + ops + "]}";
  };
  for (const auto& [type, op] : {std::pair{"bf16", pairs}, std::pair{"s8", bytes}}) {
    ParseProgram(program(type, op, "[2]"));
    EXPECT_TRUE(Says(Refusal([&] { ParseProgram(program(type, op, "[2, 1]")); }), "is a narrow weight"))
        << type;
    EXPECT_TRUE(Says(Refusal([&] { ParseProgram(program(type, op + moved, "[2, 3]")); }),
                     "is a narrow weight of another operation"))
        << type;
  }
}

}  // namespace
}  // namespace collage::onednn
