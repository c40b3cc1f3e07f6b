// SPDX-License-Identifier: Apache-2.0
//
// The engine "dnnl": regions on oneDNN. Also the packed functions of this plug-in.
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "dnnl_times.h"
#include "needs.h"
#include "region_module.h"
#include "register_once.h"

namespace collage::onednn {
namespace {

std::vector<TensorType> TypesOf(const Program& program, const std::vector<int>& values) {
  std::vector<TensorType> types;
  types.reserve(values.size());
  for (const int value : values) {
    types.push_back({ElementType(program.values[value]), program.values[value].dims});
  }
  return types;
}

// Whether the region's arguments are the program's inputs and outputs. A tensor without axes is one of one
// element there.
void CheckTypes(const Program& program, const RegionProgram& region) {
  const auto differ = [](const std::vector<TensorType>& a, const std::vector<TensorType>& b) {
    return !std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TensorType& x, const TensorType& y) {
      size_t bytes_x = 0, bytes_y = 0;
      return x.dtype.code == y.dtype.code && x.dtype.bits == y.dtype.bits && x.Bytes(&bytes_x) &&
             y.Bytes(&bytes_y) && bytes_x == bytes_y;
    });
  };
  if (differ(TypesOf(program, program.inputs), region.inputs) ||
      differ(TypesOf(program, program.outputs), region.outputs)) {
    throw std::runtime_error("the program and the region differ in their inputs or outputs");
  }
}

class DnnlEngine final : public RegionEngine {
 public:
  explicit DnnlEngine(const RegionProgram& region)
      : program_(ParseProgram(region.text)), constants_(region.constants) {
    CheckTypes(program_, region);
    Compile();
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) override {
    RunPlan(inputs, outputs, nullptr);
  }

  void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) override {
    RunPlan(inputs, outputs, &milliseconds_);
  }

  std::string Times() const override {
    return program_.groups.empty() ? "" : DescribeTimes(program_, plan_->steps(), milliseconds_);
  }

  // Primitives divide their work, and the scratchpads, among the threads that there were when they were made.
  void NumThreadsChanged() override {
    if (threads_ == collage_num_threads()) return;
    Compile();
    constants_.Forget();
  }

  std::string Describe() const { return plan_->Describe(); }

 private:
  void RunPlan(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs,
               std::vector<double>* milliseconds) {
    // For a call that came between SetNumThreads and its turn to compile.
    NumThreadsChanged();
    inputs_.clear();
    for (const DLTensor* tensor : inputs) inputs_.push_back(TensorData(tensor));
    outputs_.clear();
    for (const DLTensor* tensor : outputs) outputs_.push_back(TensorData(tensor));
    plan_->Run(inputs_, outputs_, milliseconds);
  }

  void Compile() {
    plan_.reset();  // before, so that packed constants are not there twice
    threads_ = 0;   // until it has worked
    std::vector<tvm::runtime::NDArray> tensors;
    for (size_t i = 0; i < constants_.size(); ++i) tensors.push_back(constants_.Tensor(i));
    plan_ = Compiler(program_, tensors).Compile();
    threads_ = collage_num_threads();
  }

  const Program program_;
  const RegionConstants constants_;
  int threads_ = 0;
  std::unique_ptr<Plan> plan_;
  std::vector<void*> inputs_, outputs_;
  std::vector<double> milliseconds_;  // of the last RunTimed
};

std::unique_ptr<RegionEngine> MakeDnnlEngine(const RegionProgram& region) {
  return std::make_unique<DnnlEngine>(region);
}

std::string LibraryVersion() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("dnnl", {"oneDNN", LibraryVersion, kProgramForm});
  RegisterRegionEngine("dnnl", MakeDnnlEngine);
  return true;
}();

}  // namespace

// What a program becomes on this machine: one step a line. For `--verbose` reports and tests.
TVM_REGISTER_GLOBAL("collage.runtime.DNNLDescribe")
    .set_body_typed([](const tvm::runtime::String& text,
                       const tvm::runtime::Array<tvm::runtime::NDArray>& constants) -> tvm::runtime::String {
      RegionProgram region;
      region.text = text;
      region.constants = RegionConstants({constants.begin(), constants.end()});
      const Program program = ParseProgram(region.text);
      region.inputs = TypesOf(program, program.inputs);
      region.outputs = TypesOf(program, program.outputs);
      return DnnlEngine(region).Describe();
    });

// The version of oneDNN in this process.
TVM_REGISTER_GLOBAL("collage.runtime.DNNLVersion").set_body_typed([]() -> tvm::runtime::String {
  return LibraryVersion();
});

}  // namespace collage::onednn
