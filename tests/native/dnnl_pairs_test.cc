// SPDX-License-Identifier: Apache-2.0
//
// Products in bfloat16 by the kernel of our own, as steps of a region: small whole numbers, which bfloat16
// has as they are, so that what comes out is exact on each processor, with or without the instructions.
//
// ctest: levels bf16 threads
#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "instruction_set.h"
#include "refusal.h"
#include "sample.h"

namespace collage::onednn {
namespace {

using tvm::runtime::NDArray;

const DLDataType kFloat{kDLFloat, 32, 1}, kBfloat{kDLBfloat, 16, 1};

NDArray Floats(const std::vector<int64_t>& shape, const std::vector<float>& from) {
  NDArray tensor = NDArray::Empty({shape.begin(), shape.end()}, kFloat, {kDLCPU, 0});
  std::copy(from.begin(), from.end(), static_cast<float*>(tensor->data));
  return tensor;
}

// Numbers that bfloat16 has.
NDArray Halves(const std::vector<int64_t>& shape, const std::vector<float>& from) {
  NDArray tensor = NDArray::Empty({shape.begin(), shape.end()}, kBfloat, {kDLCPU, 0});
  for (size_t i = 0; i < from.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &from[i], sizeof(bits));
    static_cast<uint16_t*>(tensor->data)[i] = static_cast<uint16_t>(bits >> 16);
  }
  return tensor;
}

std::vector<float> Whole(int64_t count, int most, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-most, most);
  std::vector<float> all(count);
  for (float& one : all) one = static_cast<float>(number(random));
  return all;
}

std::vector<float> ResultOf(const std::string& text, const std::vector<NDArray>& constants,
                            const std::vector<NDArray>& inputs, std::string* steps) {
  const Program program = ParseProgram(text);
  const auto plan = Compiler(program, constants).Compile();
  *steps = plan->Describe();
  const Dims& dims = program.values[program.outputs[0]].dims;
  const NDArray out = NDArray::Empty({dims.begin(), dims.end()}, kFloat, {kDLCPU, 0});
  std::vector<void*> pointers;
  for (const NDArray& input : inputs) pointers.push_back(input->data);
  // Twice: nothing is left of the first time.
  plan->Run(pointers, {out->data});
  plan->Run(pointers, {out->data});
  const auto* const values = static_cast<const float*>(out->data);
  return std::vector<float>(values, values + Elements(dims));
}

int CountOf(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

bool InPairs() { return AllowedInstructionSet() >= InstructionSet::kAvx512Bf16; }

// Two products: 30 rows of as many numbers as the case says, which become as many as it says, and then 6.
struct Chain {
  int64_t length = 36, middle = 8;
  std::string second_type = "bf16", second_kernel = R"("kernel": "pairs", )", middle_posts, second_posts;
  std::vector<double> want;
  std::string steps;

  std::vector<float> Run() {
    const std::vector<float> x = Whole(30 * length, 2, 1), w = Whole(middle * length, 1, 2),
                             v = Whole(6 * middle, 1, 3), addend = Whole(180, 9, 4);
    std::vector<float> between;
    for (const double one : Product(x, w, length)) {
      between.push_back(std::max(0.0F, static_cast<float>(one)));
    }
    want = Product(between, v, middle);
    const std::string of = std::to_string(length), to = std::to_string(middle);
    const std::string text =
        R"({"format": "collage-dnnl", "version": 5, "inputs": [0, 5], "outputs": [4], "constants": [1, 3],
        "values": [["f32", [30, )" +
        of + R"(]], ["bf16", [)" + to + ", " + of + R"(]], ["f32", [30, )" + to + R"(]], [")" + second_type +
        "\", [6, " + to + R"(]], ["f32", [30, 6]], ["f32", [30, 6]]],
        "ops": [{"op": "matmul", "kernel": "pairs", "bf16": true, "in": [0, 1], "out": 2, "transpose_b": true,
        "post": [{"op": "relu"})" +
        middle_posts + R"(]}, {"op": "matmul", )" + second_kernel +
        R"("bf16": true, "in": [2, 3], "out": 4, "transpose_b": true, "post": [)" + second_posts + "]}]}";
    const std::vector<int64_t> shape = {6, middle};
    return ResultOf(
        text, {Halves({middle, length}, w), second_type == "bf16" ? Halves(shape, v) : Floats(shape, v)},
        {Floats({30, length}, x), Floats({30, 6}, addend)}, &steps);
  }

  // Of rows of so many numbers with the rows of the other.
  static std::vector<double> Product(const std::vector<float>& left, const std::vector<float>& right,
                                     int64_t size) {
    std::vector<double> all;
    for (size_t i = 0; i < left.size(); i += size) {
      for (size_t c = 0; c < right.size(); c += size) {
        double sum = 0;
        for (int64_t k = 0; k < size; ++k) sum += static_cast<double>(left[i + k]) * right[c + k];
        all.push_back(sum);
      }
    }
    return all;
  }
};

TEST(DnnlPairs, WhatLiesBetweenIsBfloat16) {
  Chain chain;
  ExpectClose(chain.Run(), chain.want, 0);
  EXPECT_EQ(CountOf(chain.steps, "matmul pairs"), InPairs() ? 2 : 0) << chain.steps;
  EXPECT_EQ(CountOf(chain.steps, "round to bfloat16"), InPairs() ? 1 : 0) << chain.steps;
  EXPECT_EQ(CountOf(chain.steps, "not pairs"), InPairs() ? 0 : 2) << chain.steps;
}

TEST(DnnlPairs, WhatIsBfloat16IsMadePairs) {
  Chain chain;
  chain.middle = 9;
  ExpectClose(chain.Run(), chain.want, 0);
  EXPECT_EQ(CountOf(chain.steps, "round to bfloat16"), InPairs() ? 1 : 0) << chain.steps;
  EXPECT_EQ(CountOf(chain.steps, "pad bfloat16"), InPairs() ? 1 : 0) << chain.steps;
}

TEST(DnnlPairs, OneDnnReadsWhatItMakes) {
  Chain chain;
  chain.second_kernel = "";
  chain.second_type = "f32";
  ExpectClose(chain.Run(), chain.want, 0);
  EXPECT_EQ(CountOf(chain.steps, "matmul pairs"), InPairs() ? 1 : 0) << chain.steps;
}

TEST(DnnlPairs, AnAddendIsFloat32) {
  Chain chain;
  chain.second_posts = R"({"op": "add", "in": 5})";
  const std::vector<float> got = chain.Run(), addend = Whole(180, 9, 4);
  for (size_t i = 0; i < addend.size(); ++i) chain.want[i] += addend[i];
  ExpectClose(got, chain.want, 0);
}

// A function that the kernel does not have is done behind it, in float32.
TEST(DnnlPairs, WhatTheKernelCannotDoIsDoneBehindIt) {
  Chain chain;
  chain.middle_posts = R"(, {"op": "abs"})";
  ExpectClose(chain.Run(), chain.want, 0);
  EXPECT_EQ(CountOf(chain.steps, "matmul pairs"), InPairs() ? 2 : 0) << chain.steps;
  EXPECT_EQ(CountOf(chain.steps, "round to bfloat16"), InPairs() ? 2 : 0) << chain.steps;
}

TEST(DnnlPairs, ProductsOfBatches) {
  for (const bool transposed : {true, false}) {
    for (const int64_t weights : {1, 3}) {
      const std::vector<float> x = Whole(3 * 7 * 11, 9, 1), w = Whole(weights * 20 * 11, 9, 2),
                               bias = Whole(20, 99, 3);
      const std::string text =
          R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "outputs": [3], "constants": [1, 2],
          "values": [["f32", [3, 7, 11]], ["bf16", [)" +
          std::to_string(weights) + (transposed ? ", 20, 11" : ", 11, 20") +
          R"(]], ["f32", [20]], ["f32", [3, 7, 20]]],
          "ops": [{"op": "matmul", "kernel": "pairs", "bf16": true, "bias": true, "in": [0, 1, 2], "out": 3,
          "transpose_b": )" +
          (transposed ? "true" : "false") + "}]}";
      std::vector<double> want;
      for (int64_t i = 0; i < 3 * 7; ++i) {
        const int64_t of = weights == 1 ? 0 : i / 7;
        for (int64_t c = 0; c < 20; ++c) {
          double sum = bias[c];
          for (int64_t k = 0; k < 11; ++k) {
            sum += static_cast<double>(x[i * 11 + k]) * w[of * 220 + (transposed ? c * 11 + k : k * 20 + c)];
          }
          want.push_back(sum);
        }
      }
      const std::vector<int64_t> shape =
          transposed ? std::vector<int64_t>{weights, 20, 11} : std::vector<int64_t>{weights, 11, 20};
      std::string steps;
      ExpectClose(ResultOf(text, {Halves(shape, w), Floats({20}, bias)}, {Floats({3, 7, 11}, x)}, &steps),
                  want, 0);
      EXPECT_EQ(CountOf(steps, "matmul pairs"), InPairs() ? 1 : 0) << steps;
    }
  }
}

TEST(DnnlPairs, WhatIsWrongWithAProgramIsSaid) {
  const auto text = [](const std::string& kernel, const std::string& type, const std::string& constants) {
    return R"({"format": "collage-dnnl", "version": 5, "inputs": [)" +
           std::string(constants.empty() ? "0, 1" : "0") + R"(], "outputs": [2], "constants": [)" +
           constants + R"(], "values": [["f32", [2, 3]], [")" + type + R"(", [4, 3]], ["f32", [2, 4]]],
           "ops": [{"op": "matmul", )" +
           kernel + R"("in": [0, 1], "out": 2, "transpose_b": true}]})";
  };
  const std::string pairs = R"("kernel": "pairs", )", narrow = R"("bf16": true, )";
  EXPECT_EQ(Refusal([&] { CheckProgram(ParseProgram(text(pairs + narrow, "bf16", "1"))); }), "");
  const auto refusal = [&](const std::string& kernel, const std::string& type, const std::string& constants) {
    return Refusal([&] { CheckProgram(ParseProgram(text(kernel, type, constants))); });
  };
  EXPECT_TRUE(Says(refusal(pairs, "bf16", "1"), "computes in bfloat16 alone"));
  EXPECT_TRUE(Says(refusal(pairs + narrow, "f32", "1"), "is of another type"));
  EXPECT_TRUE(Says(refusal(narrow, "bf16", "1"), "is of another type"));
  EXPECT_TRUE(Says(refusal(pairs + narrow, "bf16", ""), "must be constants"));
}

}  // namespace
}  // namespace collage::onednn
