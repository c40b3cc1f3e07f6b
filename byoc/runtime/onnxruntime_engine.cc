// SPDX-License-Identifier: Apache-2.0
//
// The engine "onnxruntime": runs a region (onnxruntime_program.h) as an ONNX Runtime session. The region's
// constants are the model's initialisers and stay where they are.
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layer_steps.h"
#include "needs.h"
#include "onnxruntime_api.h"
#include "onnxruntime_profile.h"
#include "onnxruntime_program.h"
#include "region_module.h"

namespace collage {
namespace {

// Something of ONNX Runtime's that is released when it goes.
template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

// What all sessions of the process share. Never destroyed: sessions may be running while the process ends.
class Runtime {
 public:
  static const Runtime& Get() {
    static const Runtime* const runtime = new Runtime;
    return *runtime;
  }

  const OrtFunctions functions;
  OrtEnv* env = nullptr;
  OrtMemoryInfo* memory = nullptr;

 private:
  Runtime() {
    functions.Check(functions.CreateCpuMemoryInfo(kOrtArenaAllocator, kOrtMemTypeDefault, &memory));
    functions.Check(functions.CreateEnv(kOrtLogErrors, "collage", &env));
  }
};

// ONNX's number for an element type.
int ElementType(const DLDataType& type) {
  if (type.lanes == 1) {
    switch (type.code << 8 | type.bits) {
      case kDLFloat << 8 | 16:
        return 10;
      case kDLFloat << 8 | 32:
        return 1;
      case kDLFloat << 8 | 64:
        return 11;
      case kDLBfloat << 8 | 16:
        return 16;
      case kDLInt << 8 | 8:
        return 3;
      case kDLInt << 8 | 16:
        return 5;
      case kDLInt << 8 | 32:
        return 6;
      case kDLInt << 8 | 64:
        return 7;
      case kDLUInt << 8 | 1:
        return 9;
      case kDLUInt << 8 | 8:
        return 2;
      case kDLUInt << 8 | 16:
        return 4;
      case kDLUInt << 8 | 32:
        return 12;
      case kDLUInt << 8 | 64:
        return 13;
    }
  }
  throw std::runtime_error("a tensor has an element type that ONNX does not know");
}

// A tensor of the caller's as ONNX Runtime sees it, kept for as long as it lies in the same place and is of
// the same shape: an executor passes the same ones again and again.
class SharedTensor {
 public:
  explicit SharedTensor(const Runtime& runtime)
      : runtime_(runtime), value_(nullptr, runtime.functions.ReleaseValue) {}

  OrtValue* Of(const DLTensor* tensor) {
    void* data = TensorData(tensor);
    if (value_ == nullptr || data != data_ || !IsShaped(tensor)) {
      OrtValue* made = nullptr;
      runtime_.functions.Check(runtime_.functions.CreateTensorWithDataAsOrtValue(
          runtime_.memory, data, tvm::runtime::GetDataSize(*tensor), tensor->shape, tensor->ndim,
          ElementType(tensor->dtype), &made));
      value_.reset(made);
      data_ = data;
      shape_.assign(tensor->shape, tensor->shape + tensor->ndim);
    }
    return value_.get();
  }

 private:
  bool IsShaped(const DLTensor* tensor) const {
    return std::equal(shape_.begin(), shape_.end(), tensor->shape, tensor->shape + tensor->ndim);
  }

  const Runtime& runtime_;
  Owned<OrtValue> value_;
  const void* data_ = nullptr;
  std::vector<int64_t> shape_;
};

class OnnxRuntimeEngine final : public RegionEngine {
 public:
  // parsed is the program's text.
  OnnxRuntimeEngine(const Runtime& runtime, const RegionProgram& program, OnnxRuntimeProgram parsed)
      : runtime_(runtime),
        groups_(std::move(parsed.groups)),
        constant_names_(std::move(parsed.constant_names)),
        output_texts_(std::move(parsed.outputs)),
        session_(nullptr, runtime.functions.ReleaseSession) {
    for (size_t i = 0; i < program.constants.size(); ++i) {
      constants_.push_back(program.constants.Tensor(i));
      constant_values_.emplace_back(runtime);
    }
    Load(parsed.model);
    for (int i = 0; i < program.num_inputs(); ++i) input_texts_.push_back("i" + std::to_string(i));
    Name(input_texts_, &input_names_, &inputs_);
    Name(output_texts_, &output_names_, &outputs_);
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    Run(inputs, outputs, nullptr);
  }

  void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    const OrtFunctions& ort = runtime_.functions;
    if (ort.RunOptionsEnableProfiling == nullptr) {
      Run(inputs, outputs);
      times_ = DescribeNoLayers(groups_, "ONNX Runtime " + ort.version + " cannot time a single run, 1." +
                                             std::to_string(kOrtProfilesRuns) + " and later can");
      return;
    }
    const ProfileFolder folder;
    if (folder.path().empty()) {
      Run(inputs, outputs);
      times_ = DescribeNoLayers(groups_, "no folder can be made for ONNX Runtime's profile (TMPDIR)");
      return;
    }
    OrtRunOptions* made = nullptr;
    ort.Check(ort.CreateRunOptions(&made));
    const Owned<OrtRunOptions> options(made, ort.ReleaseRunOptions);
    ort.Check(ort.RunOptionsEnableProfiling(made, (folder.path() + "/run").c_str()));
    Run(inputs, outputs, made);
    times_ = DescribeProfile(groups_, folder.Read());
  }

  std::string Times() const final { return times_; }

 private:
  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs,
           const OrtRunOptions* options) {
    input_values_.clear();
    output_values_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) input_values_.push_back(inputs_[i].Of(inputs[i]));
    for (size_t i = 0; i < outputs.size(); ++i) output_values_.push_back(outputs_[i].Of(outputs[i]));
    runtime_.functions.Check(runtime_.functions.Run(
        session_.get(), options, input_names_.data(), input_values_.data(), input_values_.size(),
        output_names_.data(), output_values_.size(), output_values_.data()));
  }

  void Load(std::string_view model) {
    const OrtFunctions& ort = runtime_.functions;
    OrtSessionOptions* made = nullptr;
    ort.Check(ort.CreateSessionOptions(&made));
    const Owned<OrtSessionOptions> options(made, ort.ReleaseSessionOptions);
    ort.Check(ort.SetSessionExecutionMode(made, kOrtSequential));
    ort.Check(ort.SetSessionGraphOptimizationLevel(made, kOrtOptimizeAll));
    ort.Check(ort.SetIntraOpNumThreads(made, collage_num_threads()));
    ort.Check(ort.SetInterOpNumThreads(made, 1));
    // While a region runs its threads spin between operators, which is what makes small operators fast; when
    // it is done they sleep and leave the processors to the arena. A pool that sessions share does not obey:
    // its threads go on for some 30 ms, in which what runs next takes twice as long.
    ort.Check(ort.AddSessionConfigEntry(made, "session.force_spinning_stop", "1"));
    // What is to be computed in float32 stays so, also between what is rounded to bytes.
    ort.Check(ort.AddSessionConfigEntry(made, "optimization.disable_specified_optimizers",
                                        "WeightBiasQuantization"));
    std::vector<const char*> names;
    std::vector<const OrtValue*> values;
    for (size_t i = 0; i < constants_.size(); ++i) {
      names.push_back(constant_names_[i].c_str());
      values.push_back(constant_values_[i].Of(constants_[i].operator->()));
    }
    if (!names.empty()) {
      ort.Check(ort.AddExternalInitializers(made, names.data(), values.data(), names.size()));
    }
    OrtSession* session = nullptr;
    ort.Check(ort.CreateSessionFromArray(runtime_.env, model.data(), model.size(), made, &session));
    session_.reset(session);
  }

  void Name(const std::vector<std::string>& texts, std::vector<const char*>* names,
            std::vector<SharedTensor>* tensors) {
    for (const std::string& text : texts) {
      names->push_back(text.c_str());
      tensors->emplace_back(runtime_);
    }
  }

  const Runtime& runtime_;
  // The session reads those weights from here that it has not brought into another form.
  std::vector<tvm::runtime::NDArray> constants_;
  const std::vector<std::string> groups_, constant_names_;
  std::vector<SharedTensor> constant_values_;
  std::vector<std::string> input_texts_;
  const std::vector<std::string> output_texts_;
  Owned<OrtSession> session_;
  std::vector<const char*> input_names_, output_names_;
  std::vector<SharedTensor> inputs_, outputs_;
  std::vector<const OrtValue*> input_values_;
  std::vector<OrtValue*> output_values_;
  std::string times_;  // of the last RunTimed
};

std::unique_ptr<RegionEngine> MakeOnnxRuntimeEngine(const RegionProgram& program) {
  OnnxRuntimeProgram parsed =
      OnnxRuntimeProgram::Parse(program.text, program.constants.size(), program.outputs.size());
  const Runtime& runtime = Runtime::Get();
  return std::make_unique<OnnxRuntimeEngine>(runtime, program, std::move(parsed));
}

std::string LibraryVersion() { return Runtime::Get().functions.version; }

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("onnxruntime", {"ONNX Runtime", LibraryVersion, kOnnxRuntimeProgramForm});
  RegisterRegionEngine("onnxruntime", MakeOnnxRuntimeEngine);
  return true;
}();

}  // namespace
}  // namespace collage
