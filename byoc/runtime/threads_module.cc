// SPDX-License-Identifier: Apache-2.0
//
// The runtime module "collage_threads": imported into a model before export, it makes the exported
// library run its parallel loops on oneTBB wherever it is loaded. Also the packed functions
// collage.runtime.*.
#include <dmlc/io.h>
#include <dmlc/memory_io.h>
#include <oneapi/tbb/version.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <memory>
#include <string>
#include <utility>

#include "arena.h"
#include "collage_runtime.h"
#include "launcher.h"
#include "needs.h"
#include "region_module.h"

namespace collage {

using tvm::runtime::ModuleNode;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

namespace {

// Begins the saved form, which is this word, then the number of threads; both little-endian as all that
// TVM saves. A change of form takes another word.
constexpr uint64_t kFormat = 0x31445248544C4C43;  // "CLLTHRD1"

}  // namespace

// Holds the number of threads that the model was measured with (0: all that the machine has).
class ThreadsModuleNode final : public ModuleNode {
 public:
  explicit ThreadsModuleNode(int num_threads, std::shared_ptr<ModelThreads> threads = nullptr)
      : num_threads_(num_threads), threads_(std::move(threads)) {}

  const char* type_key() const final { return "collage_threads"; }

  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kBinarySerializable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<tvm::runtime::Object>& self) final {
    if (name != "collage_threads_requested") return PackedFunc();
    return PackedFunc([self, this](TVMArgs, TVMRetValue* result) { *result = num_threads_; });
  }

  void SaveToBinary(dmlc::Stream* stream) final {
    stream->Write(kFormat);
    stream->Write(num_threads_);
  }

 private:
  int32_t num_threads_;
  // Held for the regions of the same model; null where there is no such model.
  const std::shared_ptr<ModelThreads> threads_;
};

namespace {

tvm::runtime::Module MakeThreadsModule(int num_threads) {
  ICHECK_GE(num_threads, 0) << "ValueError: a model cannot run on " << num_threads
                            << " threads; give a positive number, or 0 for all that the machine has";
  return tvm::runtime::Module(tvm::runtime::make_object<ThreadsModuleNode>(num_threads));
}

tvm::runtime::Module LoadThreadsModule(void* opaque_stream) {
  auto* stream = static_cast<dmlc::Stream*>(opaque_stream);
  uint64_t format = 0;
  int32_t num_threads = 0;
  ICHECK(stream->Read(&format) && stream->Read(&num_threads) && format == kFormat && num_threads >= 0)
      << "this model's collage_threads module was written by another version of Collage, or the file is "
         "damaged; compile the model again";
  // Only a library's blob comes as a stream of known position; modules also travel in other streams
  // (pickles), and then there is no library to adopt, nor any region that looks for this number.
  auto threads = ThreadsOfModel(stream);
  threads->Choose(num_threads);
  if (auto* blob = dynamic_cast<dmlc::SeekStream*>(stream)) {
    std::string bytes(reinterpret_cast<const char*>(&format), sizeof(format));
    bytes.append(reinterpret_cast<const char*>(&num_threads), sizeof(num_threads));
    AdoptLibraries(blob->Tell() - bytes.size(), bytes, LauncherOf(*threads));
  }
  return tvm::runtime::Module(tvm::runtime::make_object<ThreadsModuleNode>(num_threads, std::move(threads)));
}

}  // namespace

// Takes a number of threads and gives the module that has a model run on so many.
TVM_REGISTER_GLOBAL("collage.runtime.ThreadsModuleCreate").set_body_typed(MakeThreadsModule);
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_collage_threads").set_body_typed(LoadThreadsModule);
// How many parallel launches this process has made through all launchers. For tests.
TVM_REGISTER_GLOBAL("collage.runtime.ParallelLaunchCount").set_body_typed(ParallelLaunchCount);
// How many threads models run on.
TVM_REGISTER_GLOBAL("collage.runtime.NumThreads").set_body_typed(collage_num_threads);
// Takes how many threads models are to run on.
TVM_REGISTER_GLOBAL("collage.runtime.SetNumThreads").set_body_typed([](int requested) {
  SetNumThreads(requested);
  PrepareRegionsForThreads();
});
// The version of oneTBB in this process.
TVM_REGISTER_GLOBAL("collage.runtime.TBBVersion").set_body_typed([]() -> String {
  return TBB_runtime_version();
});

namespace {

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("runtime", {"oneTBB", [] { return std::string(TBB_runtime_version()); }, 0});
  return true;
}();

}  // namespace

}  // namespace collage
