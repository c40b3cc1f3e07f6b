// SPDX-License-Identifier: Apache-2.0
//
// The engine "dnnl": regions on oneDNN. Also the packed functions of this plug-in.
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "dnnl_kept_plans.h"
#include "dnnl_packed_program.h"
#include "dnnl_program.h"
#include "dnnl_ragged.h"
#include "dnnl_sized_text.h"
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
void CheckTypes(const Program& program, const std::vector<TensorType>& inputs,
                const std::vector<TensorType>& outputs, const char* otherwise) {
  const auto differ = [](const std::vector<TensorType>& a, const std::vector<TensorType>& b) {
    return !std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TensorType& x, const TensorType& y) {
      size_t bytes_x = 0, bytes_y = 0;
      return x.dtype.code == y.dtype.code && x.dtype.bits == y.dtype.bits && x.Bytes(&bytes_x) &&
             y.Bytes(&bytes_y) && bytes_x == bytes_y;
    });
  };
  if (differ(TypesOf(program, program.inputs), inputs) ||
      differ(TypesOf(program, program.outputs), outputs)) {
    throw std::runtime_error(otherwise);
  }
}

constexpr char kNotTheRegions[] = "the program and the region differ in their inputs or outputs";
constexpr char kContradict[] = "the sizes of its inputs and outputs do not go together";

// A region at some sizes.
struct AtSizes {
  // With all padding. Where there is ragged, its plan is made when it is first wanted.
  Compiled padded;
  // Of one on batches of sequences, what it is without their padding.
  std::unique_ptr<RaggedPlans> ragged;
};

class DnnlEngine final : public RegionEngine {
 public:
  explicit DnnlEngine(const RegionProgram& region) : constants_(region.constants) {
    if (SizedText::Is(region.text)) {
      sized_.emplace(region.text, region.inputs.size());
      return;
    }
    fixed_.padded.program = ParseProgram(region.text);
    CheckTypes(fixed_.padded.program, region.inputs, region.outputs, kNotTheRegions);
    Compile();
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) override {
    RunPlan(inputs, outputs, nullptr);
  }

  void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) override {
    RunPlan(inputs, outputs, &milliseconds_);
  }

  std::string Times() const override {
    return current_ == nullptr || current_->program.groups.empty()
               ? ""
               : DescribeTimes(current_->program, current_->plan->steps(), milliseconds_);
  }

  // Primitives divide their work, and the scratchpads, among the threads that there were when they were made.
  void NumThreadsChanged() override {
    if (threads_ == collage_num_threads()) return;
    if (sized_.has_value()) {
      current_ = nullptr;
      plans_.Clear();
      packed_.Clear();
      made_.Clear();
      threads_ = collage_num_threads();
      return;
    }
    Compile();
    constants_.Forget();
  }

  std::string Describe() const { return current_->plan->Describe(); }

 private:
  void RunPlan(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs,
               std::vector<double>* milliseconds) {
    // For a call that came between SetNumThreads and its turn to compile.
    NumThreadsChanged();
    inputs_.clear();
    for (const DLTensor* tensor : inputs) inputs_.push_back(TensorData(tensor));
    outputs_.clear();
    for (const DLTensor* tensor : outputs) outputs_.push_back(TensorData(tensor));
    current_ = nullptr;  // it may be the one that is forgotten
    current_ = Choose(sized_.has_value() ? For(inputs, outputs) : &fixed_);
    current_->plan->Run(inputs_, outputs_, milliseconds);
  }

  // What there is for the sizes of these tensors.
  AtSizes* For(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) {
    sized_->SizesOf(inputs, &sizes_);
    if (AtSizes* known = plans_.Find(sizes_)) {
      CheckTypes(known->padded.program, TypesOf(inputs), TypesOf(outputs), kContradict);
      return known;
    }
    AtSizes* const made = plans_.Add(sizes_, [&](AtSizes* at) {
      at->padded.program = ParseProgram(sized_->At(sizes_));
      CheckTypes(at->padded.program, TypesOf(inputs), TypesOf(outputs), kContradict);
      Prepare(at, sizes_);
    });
    constants_.Forget();
    return made;
  }

  // Which plan runs with these inputs.
  Compiled* Choose(AtSizes* at) {
    if (at->ragged != nullptr) {
      if (Compiled* packed = at->ragged->Choose(inputs_)) return packed;
    }
    if (at->padded.plan == nullptr) {
      at->padded.plan = PlanOf(at->padded.program);
      constants_.Forget();
    }
    return &at->padded;
  }

  template <typename Tensor>
  static std::vector<TensorType> TypesOf(const std::vector<Tensor*>& tensors) {
    std::vector<TensorType> types;
    types.reserve(tensors.size());
    for (const DLTensor* one : tensors) {
      types.push_back({one->dtype, {one->shape, one->shape + one->ndim}});
    }
    return types;
  }

  std::unique_ptr<Plan> PlanOf(const Program& program) {
    std::vector<tvm::runtime::NDArray> tensors;
    for (size_t i = 0; i < constants_.size(); ++i) tensors.push_back(constants_.Tensor(i));
    // Where there is one plan, nothing is shared.
    const bool several = sized_.has_value() || IsRagged(program);
    return Compiler(program, tensors, several ? &made_ : nullptr).Compile();
  }

  // Makes what runs of a program, at these sizes, with its padding or without.
  void Prepare(AtSizes* at, const std::vector<int64_t>& sizes) {
    const Program& program = at->padded.program;
    if (IsRagged(program)) {
      at->ragged = std::make_unique<RaggedPlans>(program, constants_, &made_, &packed_, sizes);
    } else {
      at->padded.plan = PlanOf(program);
    }
  }

  void Compile() {
    current_ = &fixed_.padded;
    fixed_.padded.plan.reset();  // before, so that packed constants are not there twice
    fixed_.ragged.reset();
    packed_.Clear();
    made_.Clear();
    threads_ = 0;  // until it has worked
    Prepare(&fixed_, {});
    // What cannot be compiled is known when the region is made.
    if (fixed_.padded.plan == nullptr) fixed_.padded.plan = PlanOf(fixed_.padded.program);
    threads_ = collage_num_threads();
  }

  const RegionConstants constants_;
  int threads_ = 0;
  // Of a region without open dimensions.
  AtSizes fixed_;
  // Of one with open dimensions: its text, and what there is for sizes.
  std::optional<SizedText> sized_;
  KeptPlans<AtSizes> plans_;
  // Of one on batches of sequences, the plans without their padding.
  RaggedPlans::Plans packed_;
  // What plans share of what was made of constants, where there are several.
  MadeConstants made_;
  // What runs, or ran last.
  Compiled* current_ = nullptr;
  std::vector<int64_t> sizes_;
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
