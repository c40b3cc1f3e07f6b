// SPDX-License-Identifier: Apache-2.0
//
// Brings TVM's oneDNN runtime into the model's arena. oneDNN's oneTBB flavour asks for the number of threads
// of the arena that it is called in, when it chooses a kernel and again when the kernel runs, and a kernel
// that runs on more threads than it was made for writes beyond its memory. TVM's sources stay as they are:
// around each of its modules stands one of ours, which makes a region's kernels in the arena of the model
// that it was loaded for, and runs them there for good.
#include <dmlc/io.h>
#include <dnnl.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "arena.h"
#include "needs.h"

// TVM's, in dnnl_json_runtime.cc.
namespace tvm::runtime::contrib {
Module DNNLJSONRuntimeCreate(String symbol_name, String graph_json, const Array<String>& const_names);
}  // namespace tvm::runtime::contrib

namespace collage {
namespace {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

class ModuleInArena final : public ModuleNode {
 public:
  ModuleInArena(Module region, std::shared_ptr<const ModelThreads> threads)
      : region_(std::move(region)), threads_(std::move(threads)) {}

  const char* type_key() const final { return region_->type_key(); }

  int GetPropertyMask() const final { return region_->GetPropertyMask(); }

  String GetSource(const String& format) final { return region_->GetSource(format); }

  void SaveToBinary(dmlc::Stream* stream) final { region_->SaveToBinary(stream); }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    PackedFunc function = region_.GetFunction(name);
    if (function == nullptr || name == "get_symbol" || name == "get_const_vars") return function;
    // Left: what makes the kernels, and what runs them.
    return PackedFunc([self, this, function](TVMArgs args, TVMRetValue* result) {
      // oneDNN's kernels have their memory for one call at a time.
      std::lock_guard<std::mutex> lock(mutex_);
      if (arena_ == nullptr) arena_ = &threads_->Arena();
      RunInArena(*arena_, [&] { function.CallPacked(args, result); });
    });
  }

 private:
  Module region_;
  const std::shared_ptr<const ModelThreads> threads_;
  std::mutex mutex_;
  // Where the kernels were made; null before.
  tbb::task_arena* arena_ = nullptr;
};

Module Create(const String& symbol, const String& graph, const Array<String>& constants,
              std::shared_ptr<const ModelThreads> threads) {
  return Module(tvm::runtime::make_object<ModuleInArena>(
      tvm::runtime::contrib::DNNLJSONRuntimeCreate(symbol, graph, constants), std::move(threads)));
}

// Reads what TVM's JSONRuntimeBase::SaveToBinary wrote.
Module Load(void* opaque_stream) {
  auto* stream = static_cast<dmlc::Stream*>(opaque_stream);
  std::string symbol, graph;
  std::vector<std::string> names;
  ICHECK(stream->Read(&symbol) && stream->Read(&graph) && stream->Read(&names))
      << "a region of this model is damaged; compile the model again";
  Array<String> constants;
  for (const std::string& name : names) constants.push_back(name);
  return Create(symbol, graph, constants, ThreadsOfModel(stream));
}

std::string LibraryVersion() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("dnnl_tvm", {"oneDNN", LibraryVersion, 0});
  return true;
}();

}  // namespace

TVM_REGISTER_GLOBAL("runtime.DNNLJSONRuntimeCreate")
    .set_body_typed([](const String& symbol, const String& graph, const Array<String>& constants) {
      return Create(symbol, graph, constants, std::make_shared<ModelThreads>());
    });
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_dnnl_json").set_body_typed(Load);
// The version of oneDNN in this process.
TVM_REGISTER_GLOBAL("collage.runtime.DNNLVersion").set_body_typed([]() -> String {
  return LibraryVersion();
});

}  // namespace collage
