// SPDX-License-Identifier: Apache-2.0
//
// Regions for oneDNN from their text to their results: programs that the parser lets pass are compiled and
// run, on tensors of exactly their sizes. Larger ones are left out, so that one takes milliseconds.
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_packed_program.h"
#include "dnnl_program.h"
#include "fuzz_input.h"

namespace {

using collage::onednn::Dims;
using collage::onednn::Elements;
using collage::onednn::Op;
using collage::onednn::Program;

constexpr int64_t kMostElements = 1 << 14;

bool AreSmall(const Dims& list) {
  return std::all_of(list.begin(), list.end(), [](int64_t one) { return one <= 64; });
}

bool IsSmall(const Program& program) {
  if (program.values.size() > 40 || program.ops.size() > 12) return false;
  for (const auto& value : program.values) {
    if (Elements(value.dims) > kMostElements) return false;
  }
  return std::all_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return AreSmall(op.strides) && AreSmall(op.dilation) && AreSmall(op.pad_front) && AreSmall(op.pad_back) &&
           AreSmall(op.window) && AreSmall(op.scale);
  });
}

// A tensor in memory of its own size, to the byte.
tvm::runtime::NDArray Small(const collage::onednn::ValueType& type, float first) {
  const DLDataType dtype = collage::onednn::ElementType(type);
  auto tensor = tvm::runtime::NDArray::Empty({type.dims.begin(), type.dims.end()}, dtype, {kDLCPU, 0});
  const size_t bytes = tvm::runtime::GetDataSize(*tensor.operator->());
  std::fill_n(static_cast<char*>(tensor->data), bytes, char{1});
  if (dtype.code == kDLFloat) {
    auto* const values = static_cast<float*>(tensor->data);
    for (size_t i = 0; i < bytes / sizeof(float); ++i) values[i] = first + 0.01F * static_cast<float>(i % 7);
  }
  return tensor;
}

// Packed values for some tokens, whatever masks hide.
Program SomeTokens(const Program& program) {
  const Dims& valid = program.values[program.packed.valid].dims;
  std::vector<uint8_t> truths(Elements(valid));
  for (size_t i = 0; i < truths.size(); ++i) truths[i] = i % 3 == 0 ? 1 : 0;
  const auto tokens = std::make_shared<collage::native::RaggedRows>(valid[0], valid[1]);
  tokens->Set(truths.data());
  Program some =
      collage::onednn::AtTokens(program, tokens->tokens(), tokens, [](const auto&, size_t) { return true; });
  collage::onednn::CheckProgram(some);
  return some;
}

void Run(const Program& program) {
  std::vector<tvm::runtime::NDArray> constants, tensors;
  for (const int value : program.constants) constants.push_back(Small(program.values[value], 0.5F));
  const auto plan = collage::onednn::Compiler(program, constants).Compile();
  constants.clear();  // what the plan needs of them it keeps itself
  const auto pointers = [&](const std::vector<int>& values) {
    std::vector<void*> list;
    for (const int value : values) {
      tensors.push_back(Small(program.values[value], -0.1F));
      list.push_back(tensors.back()->data);
    }
    return list;
  };
  const std::vector<void*> inputs = pointers(program.inputs), outputs = pointers(program.outputs);
  for (int i = 0; i < 2; ++i) plan->Run(inputs, outputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const arena = new tbb::task_arena(1);
  arena->execute([&] {
    try {
      collage::fuzz::MayRefuse([&] {
        const Program program = collage::onednn::ParseProgram({reinterpret_cast<const char*>(data), size});
        if (!IsSmall(program)) return;
        Run(program);
        if (collage::onednn::IsRagged(program)) Run(SomeTokens(program));
      });
    } catch (const dnnl::error& error) {
      // oneDNN has no such primitive; a program that wants one is refused.
      if (*error.what() == '\0') std::abort();
    }
  });
  return 0;
}
