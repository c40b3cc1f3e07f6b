// SPDX-License-Identifier: Apache-2.0

// Runs a model that `collage compile` wrote, with TVM's runtime library and nothing else.

#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>

#include <algorithm>
#include <cstdio>
#include <exception>

using tvm::runtime::Module;
using tvm::runtime::NDArray;

namespace {

constexpr DLDevice kProcessor{kDLCPU, 0};

void Run(const char* path) {
  // The library makes executors; the plug-ins that it needs came in with it.
  Module library = Module::LoadFromFile(path);
  Module model = library.GetFunction("default")(kProcessor);

  NDArray x = NDArray::Empty({1, 64}, DLDataType{kDLFloat, 32, 1}, kProcessor);
  std::fill_n(static_cast<float*>(x->data), 64, 1.0f);

  model.GetFunction("set_input")("x", x);
  model.GetFunction("run")();
  NDArray y = model.GetFunction("get_output")(0);

  const auto* values = static_cast<const float*>(y->data);
  for (int64_t i = 0; i < y->shape[1]; ++i) std::printf(i > 0 ? " %.6f" : "%.6f", values[i]);
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL.so\n", argv[0]);
    return 2;
  }
  try {
    Run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
