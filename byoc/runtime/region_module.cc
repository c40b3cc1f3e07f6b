// SPDX-License-Identifier: Apache-2.0
#include "region_module.h"

#include <dmlc/io.h>
#include <malloc.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <chrono>
#include <exception>
#include <mutex>
#include <type_traits>
#include <utility>

#include "arena.h"
#include "region_profile.h"

namespace collage {

using tvm::runtime::Array;
using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::NDArray;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

RegionEngine::~RegionEngine() = default;

void RegionEngine::RunTimed(const std::vector<const DLTensor*>& inputs,
                            const std::vector<DLTensor*>& outputs) {
  Run(inputs, outputs);
}

std::string RegionEngine::Times() const { return ""; }

namespace {

// Begins the saved form. A change of form takes another word.
constexpr uint64_t kFormat = 0x324E475245474C43;  // "CLGERGN2"

// Runs body inside an arena and lets what it throws out again: no exception may cross the arena's interface.
template <typename Body>
void InArena(tbb::task_arena& arena, Body body) {
  struct Call {
    Body* body;
    std::exception_ptr thrown;
  } call{&body, nullptr};
  RunInArena(
      arena,
      [](void* data) {
        auto* c = static_cast<Call*>(data);
        try {
          (*c->body)();
        } catch (...) {
          c->thrown = std::current_exception();
        }
      },
      &call);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

bool IsCompact(const DLTensor* tensor) {
  if (tensor->strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return false;
    expected *= tensor->shape[i];
  }
  return true;
}

class RegionModuleNode final : public ModuleNode {
 public:
  RegionModuleNode(std::string engine_name, MakeEngine make, RegionProgram program,
                   std::shared_ptr<const ModelThreads> threads)
      : engine_name_(std::move(engine_name)),
        type_key_("collage_" + engine_name_),
        make_(make),
        program_(std::move(program)),
        threads_(std::move(threads)) {}

  const char* type_key() const final { return type_key_.c_str(); }

  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kBinarySerializable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name == "get_symbol") {
      return PackedFunc([self, this](TVMArgs, TVMRetValue* result) { *result = program_.symbol; });
    }
    // TVM asks every module for the constants that it must be given before it runs: the program's are here.
    if (name == "get_const_vars") {
      return PackedFunc([](TVMArgs, TVMRetValue* result) { *result = Array<String>(); });
    }
    if (name != program_.symbol) return PackedFunc();
    Named([this] { Prepare(); });
    return PackedFunc([self, this](TVMArgs args, TVMRetValue*) { Named([&] { Run(args); }); });
  }

  // relay.build asks whether the function is there; making an engine is for those who run it.
  bool ImplementsFunction(const String& name, bool) final { return name == program_.symbol; }

  void SaveToBinary(dmlc::Stream* stream) final {
    stream->Write(kFormat);
    stream->Write(program_.symbol);
    stream->Write(program_.text);
    stream->Write<int32_t>(program_.num_inputs);
    stream->Write<int32_t>(program_.num_outputs);
    program_.constants.Save(stream);
  }

  static RegionProgram Load(dmlc::Stream* stream) {
    RegionProgram program;
    uint64_t format = 0;
    int32_t inputs = 0, outputs = 0;
    const bool whole = stream->Read(&format) && format == kFormat && stream->Read(&program.symbol) &&
                       stream->Read(&program.text) && stream->Read(&inputs) && stream->Read(&outputs) &&
                       inputs >= 0 && outputs >= 1 && program.constants.Load(stream);
    ICHECK(whole) << "a region of this model was written by another version of Collage, or the file is "
                     "damaged; compile the model again";
    program.num_inputs = inputs;
    program.num_outputs = outputs;
    return program;
  }

 private:
  // Lets errors of any kind out as TVM's, with the region's name in front.
  template <typename Body>
  void Named(Body body) {
    std::string said;
    try {
      body();
      return;
    } catch (const tvm::runtime::Error& error) {
      said = error.what();
    } catch (const std::exception& error) {
      said = error.what();
    }
    throw tvm::runtime::InternalError(__FILE__, __LINE__,
                                      "the region " + program_.symbol + " on " + engine_name_ + ": " + said);
  }

  void Prepare() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (engine_ != nullptr) return;
    InArena(threads_->Arena(), [this] { engine_ = make_(program_); });
    ICHECK(engine_ != nullptr);
    program_.constants.Forget();
    // Packing leaves holes as large as the weights behind, which the next region's need not fit into.
#ifdef __GLIBC__
    constexpr size_t kWorthATrim = size_t{1} << 20;
    if (program_.constants.PieceBytes() >= kWorthATrim) malloc_trim(0);
#endif
  }

  void Run(TVMArgs args) {
    const int expected = program_.num_inputs + program_.num_outputs;
    ICHECK_EQ(args.size(), expected) << "takes " << program_.num_inputs << " inputs and "
                                     << program_.num_outputs << " outputs, " << args.size()
                                     << " tensors were given";
    std::vector<const DLTensor*> inputs;
    std::vector<DLTensor*> outputs;
    for (int i = 0; i < expected; ++i) {
      DLTensor* tensor = args[i];
      ICHECK(tensor->device.device_type == kDLCPU || tensor->device.device_type == kDLCUDAHost)
          << "argument " << i << " is not in the processor's memory";
      ICHECK(IsCompact(tensor)) << "argument " << i
                                << " has strides with gaps; copy it into a compact tensor";
      if (i < program_.num_inputs) {
        inputs.push_back(tensor);
      } else {
        outputs.push_back(tensor);
      }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!RegionProfile::Get().on()) {
      InArena(threads_->Arena(), [&] { engine_->Run(inputs, outputs); });
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    InArena(threads_->Arena(), [&] { engine_->RunTimed(inputs, outputs); });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    RegionProfile::Get().Note(program_.symbol, took.count(), engine_->Times());
  }

  const std::string engine_name_;
  const std::string type_key_;
  const MakeEngine make_;
  const RegionProgram program_;
  // The model's own.
  const std::shared_ptr<const ModelThreads> threads_;
  // Guards the making of the engine, and its buffers while it runs.
  std::mutex mutex_;
  std::unique_ptr<RegionEngine> engine_;
};

}  // namespace

void RegisterRegionEngine(const char* engine, MakeEngine make) {
  using tvm::runtime::Registry;
  const std::string name = engine;
  const std::string create = "collage.runtime." + name + "ModuleCreate";
  if (Registry::Get(create) == nullptr) {
    Registry::Register(create).set_body([name, make](TVMArgs args, TVMRetValue* result) {
      ICHECK_EQ(args.size(), 5) << "takes symbol, text, constants, num_inputs, num_outputs";
      RegionProgram program;
      program.symbol = args[0].operator std::string();
      program.text = args[1].operator std::string();
      const Array<NDArray> constants = args[2];
      program.constants = RegionConstants({constants.begin(), constants.end()});
      program.num_inputs = args[3];
      program.num_outputs = args[4];
      *result = Module(tvm::runtime::make_object<RegionModuleNode>(name, make, std::move(program),
                                                                   std::make_shared<ModelThreads>()));
    });
  }
  const std::string load = "runtime.module.loadbinary_collage_" + name;
  if (Registry::Get(load) == nullptr) {
    Registry::Register(load).set_body([name, make](TVMArgs args, TVMRetValue* result) {
      auto* stream = static_cast<dmlc::Stream*>(args[0].operator void*());
      auto threads = ThreadsOfModel(stream);
      *result = Module(tvm::runtime::make_object<RegionModuleNode>(name, make, RegionModuleNode::Load(stream),
                                                                   std::move(threads)));
    });
  }
}

}  // namespace collage
