// SPDX-License-Identifier: Apache-2.0
//
// The engine "dnnl": regions on oneDNN. Also the packed functions of this plug-in.
#include <tvm/runtime/registry.h>

#include <dnnl.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "dnnl_times.h"
#include "region_module.h"
#include "register_once.h"

namespace collage::onednn {
namespace {

class DnnlEngine final : public RegionEngine {
 public:
  explicit DnnlEngine(const RegionProgram& region)
      : program_(ParseProgram(region.text)), constants_(region.constants) {
    if (static_cast<int>(program_.inputs.size()) != region.num_inputs ||
        static_cast<int>(program_.outputs.size()) != region.num_outputs) {
      throw std::runtime_error("the program and the region differ in their inputs or outputs");
    }
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

  std::string Describe() const { return plan_->Describe(); }

 private:
  void RunPlan(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs,
               std::vector<double>* milliseconds) {
    // Primitives divide their work, and the scratchpads, among the threads that there were when they were
    // made.
    if (threads_ != collage_num_threads()) {
      Compile();
      constants_.Forget();
    }
    inputs_.clear();
    for (const DLTensor* tensor : inputs) inputs_.push_back(TensorData(tensor));
    outputs_.clear();
    for (const DLTensor* tensor : outputs) outputs_.push_back(TensorData(tensor));
    plan_->Run(inputs_, outputs_, milliseconds);
  }

  void Compile() {
    plan_.reset();  // before, so that packed constants are not there twice
    threads_ = collage_num_threads();
    std::vector<tvm::runtime::NDArray> tensors;
    for (size_t i = 0; i < constants_.size(); ++i) tensors.push_back(constants_.Tensor(i));
    plan_ = Compiler(program_, tensors).Compile();
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

[[maybe_unused]] const bool registered = [] {
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
      region.num_inputs = static_cast<int>(program.inputs.size());
      region.num_outputs = static_cast<int>(program.outputs.size());
      return DnnlEngine(region).Describe();
    });

TVM_REGISTER_GLOBAL("collage.runtime.DNNLVersion").set_body_typed([]() -> tvm::runtime::String {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
});

}  // namespace collage::onednn
