// SPDX-License-Identifier: Apache-2.0
#include "region_module.h"

#include <dmlc/io.h>
#include <malloc.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <mutex>
#include <sstream>
#include <stdexcept>
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

void RegionEngine::NumThreadsChanged() {}

namespace {

// Begins the saved form. A change of form takes another word.
constexpr uint64_t kFormat = 0x334E475245474C43;  // "CLGERGN3"

bool IsCompact(const DLTensor* tensor) {
  if (tensor->strides == nullptr) return true;
  int64_t expected = 1;
  for (int i = tensor->ndim - 1; i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) return false;
    expected *= tensor->shape[i];
  }
  return true;
}

// Why a region cannot run on a tensor; nullptr where it can. This is asked at each call.
const char* WrongWith(const DLTensor* tensor, const TensorType& type) {
  if (tensor == nullptr) return "is no tensor";
  if (tensor->device.device_type != kDLCPU && tensor->device.device_type != kDLCUDAHost) {
    return "is not in the processor's memory";
  }
  const DLDataType &given = tensor->dtype, &wanted = type.dtype;
  if (given.code != wanted.code || given.bits != wanted.bits || given.lanes != wanted.lanes ||
      !type.Takes(tensor->ndim, tensor->shape)) {
    return "is of another type";
  }
  const bool empty =
      std::find(tensor->shape, tensor->shape + tensor->ndim, 0) != tensor->shape + tensor->ndim;
  if (tensor->data == nullptr && !empty) return "has no memory";
  if (!IsCompact(tensor)) return "has strides with gaps; copy it into a compact tensor";
  // An element of 8 bytes stands at a multiple of 8.
  const uintptr_t element = given.bits >= 8 ? given.bits / 8 : 1;
  const auto address = reinterpret_cast<uintptr_t>(TensorData(tensor));
  if ((element & (element - 1)) == 0 && address % element != 0) return "does not begin at a whole element";
  return nullptr;
}

// What a module's functions share, and what SetNumThreads finds.
class Region {
 public:
  Region(std::string engine_name, MakeEngine make, RegionProgram program,
         std::shared_ptr<const ModelThreads> threads)
      : engine_name_(std::move(engine_name)),
        make_(make),
        program_(std::move(program)),
        threads_(std::move(threads)) {}

  const RegionProgram& program() const { return program_; }
  const std::string& engine_name() const { return engine_name_; }

  // Makes the engine where there is none.
  void Prepare() {
    Named([this] {
      std::lock_guard<std::mutex> lock(mutex_);
      if (engine_ != nullptr) return;
      RunInArena(threads_->Arena(), [this] { engine_ = make_(program_); });
      ICHECK(engine_ != nullptr);
      program_.constants.Forget();
      // Packing leaves holes as large as the weights behind, which the next region's need not fit into.
#ifdef __GLIBC__
      constexpr size_t kWorthATrim = size_t{1} << 20;
      if (program_.constants.PieceBytes() >= kWorthATrim) malloc_trim(0);
#endif
    });
  }

  void NumThreadsChanged() {
    Named([this] {
      std::lock_guard<std::mutex> lock(mutex_);
      if (engine_ != nullptr) RunInArena(threads_->Arena(), [this] { engine_->NumThreadsChanged(); });
    });
  }

  void Run(TVMArgs args) {
    Named([&] { CheckAndRun(args); });
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

  // index counts inputs and outputs in one.
  [[noreturn]] void Refuse(const DLTensor* tensor, int index, const char* wrong) const {
    const bool input = index < program_.num_inputs();
    const int at = input ? index : index - program_.num_inputs();
    const TensorType& wanted = input ? program_.inputs[at] : program_.outputs[at];
    std::string text = std::string(input ? "input " : "output ") + std::to_string(at) + " ";
    if (tensor != nullptr) {
      const TensorType given{tensor->dtype, {tensor->shape, tensor->shape + tensor->ndim}};
      text += "(" + given.Text() + ") ";
    }
    throw std::runtime_error(text + wrong + "; the region takes " + wanted.Text());
  }

  void CheckAndRun(TVMArgs args) {
    const int expected = program_.num_inputs() + program_.num_outputs();
    if (args.size() != expected) {
      throw std::runtime_error("takes " + std::to_string(program_.num_inputs()) + " inputs and " +
                               std::to_string(program_.num_outputs()) + " outputs, " +
                               std::to_string(args.size()) + " tensors were given");
    }
    std::vector<const DLTensor*> inputs;
    std::vector<DLTensor*> outputs;
    for (int i = 0; i < expected; ++i) {
      DLTensor* tensor = args[i];
      const int k = i - program_.num_inputs();  // from 0 on, an output
      if (const char* wrong = WrongWith(tensor, k < 0 ? program_.inputs[i] : program_.outputs[k])) {
        Refuse(tensor, i, wrong);
      }
      if (k < 0) {
        inputs.push_back(tensor);
      } else {
        outputs.push_back(tensor);
      }
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (!RegionProfile::Get().on()) {
      RunInArena(threads_->Arena(), [&] { engine_->Run(inputs, outputs); });
      return;
    }
    const auto begin = std::chrono::steady_clock::now();
    RunInArena(threads_->Arena(), [&] { engine_->RunTimed(inputs, outputs); });
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    RegionProfile::Get().Note(program_.symbol, took.count(), engine_->Times());
  }

  const std::string engine_name_;
  const MakeEngine make_;
  const RegionProgram program_;
  // The model's own.
  const std::shared_ptr<const ModelThreads> threads_;
  // Guards the making of the engine, and its buffers while it runs.
  std::mutex mutex_;
  std::unique_ptr<RegionEngine> engine_;
};

// The regions that live, or did when they were last looked at.
struct LiveRegions {
  std::mutex mutex;
  std::list<std::weak_ptr<Region>> list;

  // Never destroyed: models may be unloaded when the process ends.
  static LiveRegions& Get() {
    static LiveRegions* const regions = new LiveRegions;
    return *regions;
  }

  void Add(const std::shared_ptr<Region>& region) {
    std::lock_guard<std::mutex> lock(mutex);
    list.remove_if([](const std::weak_ptr<Region>& known) { return known.expired(); });
    list.push_back(region);
  }

  std::vector<std::shared_ptr<Region>> All() {
    std::vector<std::shared_ptr<Region>> all;
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& known : list) {
      if (auto region = known.lock()) all.push_back(std::move(region));
    }
    return all;
  }
};

class RegionModuleNode final : public ModuleNode {
 public:
  explicit RegionModuleNode(std::shared_ptr<Region> region)
      : region_(std::move(region)), type_key_("collage_" + region_->engine_name()) {
    LiveRegions::Get().Add(region_);
  }

  const char* type_key() const final { return type_key_.c_str(); }

  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kBinarySerializable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    const std::string& symbol = region_->program().symbol;
    if (name == "get_symbol") {
      return PackedFunc([self, symbol](TVMArgs, TVMRetValue* result) { *result = symbol; });
    }
    // TVM asks every module for the constants that it must be given before it runs: the program's are here.
    if (name == "get_const_vars") {
      return PackedFunc([](TVMArgs, TVMRetValue* result) { *result = Array<String>(); });
    }
    if (name != symbol) return PackedFunc();
    region_->Prepare();
    return PackedFunc([self, this](TVMArgs args, TVMRetValue*) { region_->Run(args); });
  }

  // relay.build asks whether the function is there; making an engine is for those who run it.
  bool ImplementsFunction(const String& name, bool) final { return name == region_->program().symbol; }

  void SaveToBinary(dmlc::Stream* stream) final {
    const RegionProgram& program = region_->program();
    CheckedWriter writer(stream);
    writer.Number(kFormat);
    writer.Text(program.symbol);
    writer.Text(program.text);
    writer.Types(program.inputs);
    writer.Types(program.outputs);
    writer.Seal();
    program.constants.Save(stream);
  }

  static RegionProgram Load(dmlc::Stream* stream) {
    RegionProgram program;
    CheckedReader reader(stream);
    uint64_t format = 0;
    const bool whole = reader.Number(&format) && format == kFormat && reader.Text(&program.symbol) &&
                       reader.Text(&program.text) && reader.Types(&program.inputs) &&
                       reader.Types(&program.outputs) && reader.Sealed() && !program.outputs.empty();
    ICHECK(whole) << "a region of this model was written by another version of Collage, or the file is "
                     "damaged; compile the model again";
    ICHECK(program.constants.Load(stream))
        << "the weights of the region " << program.symbol << " are damaged; compile the model again";
    return program;
  }

 private:
  const std::shared_ptr<Region> region_;
  const std::string type_key_;
};

// Types as region_module.h says they are written.
std::vector<TensorType> TypesOf(const std::string& text) {
  std::vector<TensorType> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string dtype;
    words >> dtype;
    types.push_back({tvm::runtime::String2DLDataType(dtype), {}});
    for (int64_t extent; words >> extent;) types.back().shape.push_back(extent);
    size_t bytes = 0;
    ICHECK(words.eof() && types.back().Smallest().Bytes(&bytes)) << "there is no tensor type " << line;
  }
  return types;
}

}  // namespace

void PrepareRegionsForThreads() {
  std::exception_ptr first;
  for (const auto& region : LiveRegions::Get().All()) {
    try {
      region->NumThreadsChanged();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void RegisterRegionEngine(const char* engine, MakeEngine make) {
  using tvm::runtime::Registry;
  const std::string name = engine;
  const std::string create = "collage.runtime." + name + "ModuleCreate";
  if (Registry::Get(create) == nullptr) {
    Registry::Register(create).set_body([name, make](TVMArgs args, TVMRetValue* result) {
      ICHECK_EQ(args.size(), 5) << "takes symbol, text, constants, inputs, outputs";
      RegionProgram program;
      program.symbol = args[0].operator std::string();
      program.text = args[1].operator std::string();
      const Array<NDArray> constants = args[2];
      program.constants = RegionConstants({constants.begin(), constants.end()});
      program.inputs = TypesOf(args[3]);
      program.outputs = TypesOf(args[4]);
      *result = Module(tvm::runtime::make_object<RegionModuleNode>(
          std::make_shared<Region>(name, make, std::move(program), std::make_shared<ModelThreads>())));
    });
  }
  const std::string load = "runtime.module.loadbinary_collage_" + name;
  if (Registry::Get(load) == nullptr) {
    Registry::Register(load).set_body([name, make](TVMArgs args, TVMRetValue* result) {
      auto* stream = static_cast<dmlc::Stream*>(args[0].operator void*());
      auto threads = ThreadsOfModel(stream);
      *result = Module(tvm::runtime::make_object<RegionModuleNode>(
          std::make_shared<Region>(name, make, RegionModuleNode::Load(stream), std::move(threads))));
    });
  }
}

}  // namespace collage
