// SPDX-License-Identifier: Apache-2.0
//
// Runs regions by OpenVINO on the CPU. Each region is one compiled model with one request; the region's
// tensors are OpenVINO's too, nothing is copied.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arena.h"
#include "layer_steps.h"
#include "needs.h"
#include "openvino_api.h"
#include "openvino_layers.h"
#include "openvino_program.h"
#include "region_module.h"

namespace collage {
namespace openvino {
namespace {

// OpenVINO in this process.
const Api& OpenVino() {
  static const Api api;
  return api;
}

// One for all regions: it holds what OpenVINO knows of its devices. Never freed, since its threads may
// outlive static objects.
Core* SharedCore(const Api& api) {
  static Core* const core = [&api] {
    Core* made = nullptr;
    api.Check(api.core_create(&made), "start");
    return made;
  }();
  return core;
}

ElementType TypeOf(const DLTensor* tensor) {
  const DLDataType t = tensor->dtype;
  if (t.lanes == 1) {
    if (t.code == kDLFloat && t.bits == 32) return kF32;
    if (t.code == kDLInt && t.bits == 32) return kI32;
    if (t.code == kDLInt && t.bits == 64) return kI64;
    if (t.code == kDLInt && t.bits == 8) return kI8;
    if (t.code == kDLUInt && t.bits == 1) return kBoolean;
    if (t.code == kDLUInt && t.bits == 8) return kU8;
  }
  throw std::runtime_error("a tensor has a type that OpenVINO was not told of; compile the model again");
}

// A unique_ptr for OpenVINO's objects.
template <typename T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

// Whether inputs of a region have open extents.
bool IsOpen(const RegionProgram& region) {
  return std::any_of(region.inputs.begin(), region.inputs.end(), [](const TensorType& type) {
    return std::find(type.shape.begin(), type.shape.end(), kOpenExtent) != type.shape.end();
  });
}

// A region as a compiled model with one request.
class CompiledRegion {
 public:
  // timed: OpenVINO notes what each node takes, which a model that is not profiled is spared.
  CompiledRegion(const Api& api, const RegionProgram& region, const Program& program, bool timed)
      : api_(api),
        constants_(region.constants),
        compiled_(nullptr, api_.compiled_model_free),
        request_(nullptr, api_.infer_request_free) {
    Core* core = SharedCore(api_);
    const Owned<Tensor> weights = Weights();
    Model* read = nullptr;
    api_.Check(api_.core_read_model_from_memory_buffer(core, program.xml.data(), program.xml.size(),
                                                       weights.get(), &read),
               "read the region");
    const Owned<Model> model(read, api_.model_free);

    // The precision: on processors with instructions for bfloat16 OpenVINO would choose that by itself. Its
    // threads are as many as the arena's and, being oneTBB's, the same; they stay where the process may run
    // and are not pinned.
    const std::string precision(program.precision);
    const std::string threads = std::to_string(collage_num_threads());
    // 2026.4 makes one kernel (a snippet) of a product, a softmax and another product, and where the number
    // of columns is known only at run time, and is 16 or more, the sum of the softmax is not divided by.
    CompiledModel* compiled = nullptr;
    api_.Check(api_.core_compile_model(core, model.get(), "CPU", IsOpen(region) ? 14 : 12, &compiled,  //
                                       "INFERENCE_PRECISION_HINT", precision.c_str(),                  //
                                       "PERFORMANCE_HINT", "LATENCY",                                  //
                                       "NUM_STREAMS", "1",                                             //
                                       "INFERENCE_NUM_THREADS", threads.c_str(),                       //
                                       "ENABLE_CPU_PINNING", "NO",                                     //
                                       "PERF_COUNT", timed ? "YES" : "NO",                             //
                                       "SNIPPETS_MODE", "DISABLE"),
               "compile the region");
    compiled_.reset(compiled);
    size_t inputs = 0, outputs = 0;
    api_.Check(api_.compiled_model_inputs_size(compiled, &inputs), "count the inputs");
    api_.Check(api_.compiled_model_outputs_size(compiled, &outputs), "count the outputs");
    if (inputs != region.inputs.size() || outputs != region.outputs.size()) {
      throw std::runtime_error("OpenVINO made " + std::to_string(inputs) + " inputs and " +
                               std::to_string(outputs) + " outputs of the region's " +
                               std::to_string(region.num_inputs()) + " and " +
                               std::to_string(region.num_outputs()) + "; this is a defect of Collage");
    }
    InferRequest* request = nullptr;
    api_.Check(api_.compiled_model_create_infer_request(compiled, &request), "prepare the region");
    request_.reset(request);
    for (size_t i = 0; i < inputs; ++i) inputs_.push_back({nullptr, NoTensor(), {}});
    for (size_t i = 0; i < outputs; ++i) outputs_.push_back({nullptr, NoTensor(), {}});
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) {
    // Outputs first: where the region gives an argument back as it is (a copy, a reshape to the same shape),
    // OpenVINO writes the output that it knew of when it was given the input.
    bool bound = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      bound |= Bind(outputs[i], &outputs_[i], [this, i](const Tensor* tensor) {
        api_.Check(api_.infer_request_set_output_tensor_by_index(request_.get(), i, tensor),
                   "take an output");
      });
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (bound) inputs_[i].data = nullptr;
      Bind(inputs[i], &inputs_[i], [this, i](const Tensor* tensor) {
        api_.Check(api_.infer_request_set_input_tensor_by_index(request_.get(), i, tensor), "take an input");
      });
    }
    // OpenVINO makes an arena for each thread that runs a region, when it does so first.
    RunInArenaOfThisThread(
        [this] { api_.Check(api_.infer_request_infer(request_.get()), "run the region"); });
  }

  // What the nodes took, on the average of all runs since this was made.
  std::vector<NodeTime> NodeTimes() const {
    ProfilingInfoList list{};
    api_.Check(api_.infer_request_get_profiling_info(request_.get(), &list), "say what its nodes took");
    std::vector<NodeTime> times;
    for (size_t i = 0; i < list.size; ++i) {
      const ProfilingInfo& info = list.infos[i];
      times.push_back({info.node_name, info.node_type, info.exec_type, info.real_time});
    }
    api_.profiling_info_list_free(&list);
    return times;
  }

 private:
  // A tensor of the region as OpenVINO has it: the caller's memory.
  struct Binding {
    void* data = nullptr;
    Owned<Tensor> tensor;
    std::vector<int64_t> shape;

    bool Is(const DLTensor* given, const void* elements) const {
      return elements == data &&
             std::equal(shape.begin(), shape.end(), given->shape, given->shape + given->ndim);
    }
  };

  Owned<Tensor> NoTensor() const { return Owned<Tensor>(nullptr, api_.tensor_free); }

  // All constants in one piece, as the IR refers to them. The compiled model keeps it for good, although
  // most of it is packed: so it is the piece in the model's library, if that can be. Else OpenVINO owns a
  // copy.
  Owned<Tensor> Weights() const {
    const int64_t total = static_cast<int64_t>(constants_.PieceBytes());
    if (total == 0) return NoTensor();
    Tensor* made = nullptr;
    if (const void* piece = constants_.Piece()) {
      api_.Check(api_.tensor_create_from_host_ptr(kU8, Shape{1, &total}, const_cast<void*>(piece), &made),
                 "take the weights");
      return Owned<Tensor>(made, api_.tensor_free);
    }
    api_.Check(api_.tensor_create(kU8, Shape{1, &total}, &made), "take the weights");
    Owned<Tensor> weights(made, api_.tensor_free);
    void* data = nullptr;
    api_.Check(api_.tensor_data(made, &data), "take the weights");
    auto* bytes = static_cast<char*>(data);
    for (size_t i = 0; i < constants_.size(); ++i) {
      const tvm::runtime::NDArray tensor = constants_.Tensor(i);
      std::memcpy(bytes + constants_.Offset(i), TensorData(tensor.operator->()), constants_.Bytes(i));
    }
    return weights;
  }

  // Makes the caller's memory OpenVINO's tensor, unless it is already. Says whether it was not.
  template <typename Set>
  bool Bind(const DLTensor* given, Binding* bound, Set set) const {
    void* data = TensorData(given);
    if (bound->Is(given, data)) return false;
    Tensor* made = nullptr;
    api_.Check(api_.tensor_create_from_host_ptr(TypeOf(given), Shape{given->ndim, given->shape}, data, &made),
               "take a tensor");
    Owned<Tensor> tensor(made, api_.tensor_free);
    set(made);
    bound->tensor = std::move(tensor);
    bound->data = data;
    bound->shape.assign(given->shape, given->shape + given->ndim);
    return true;
  }

  const Api& api_;
  // OpenVINO reads there what it has not packed.
  const RegionConstants constants_;
  Owned<CompiledModel> compiled_;
  Owned<InferRequest> request_;
  std::vector<Binding> inputs_, outputs_;
};

class Engine final : public RegionEngine {
 public:
  explicit Engine(const RegionProgram& region)
      : region_(region), program_(Program::Parse(region.text)), plain_(OpenVino(), region, program_, false) {}

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    timed_.reset();
    plain_.Run(inputs, outputs);
  }

  void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    if (timed_ == nullptr) {
      timed_ = std::make_unique<Timed>(OpenVino(), region_, program_);
      // The first run sets up what the others find; it is not theirs.
      timed_->model.Run(inputs, outputs);
      timed_->layers.Begin(timed_->model.NodeTimes());
    }
    const auto begin = std::chrono::steady_clock::now();
    timed_->model.Run(inputs, outputs);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    timed_->layers.Add(timed_->model.NodeTimes(), took.count());
  }

  std::string Times() const final { return timed_ == nullptr ? "" : timed_->layers.Describe(); }

 private:
  // The region once more, with OpenVINO's clocks: it is there while the region is profiled, and what is timed
  // as a whole never has them.
  struct Timed {
    Timed(const Api& api, const RegionProgram& region, const Program& program)
        : model(api, region, program, true), layers(ParseGroups(program.groups)) {}

    CompiledRegion model;
    LayerTimes layers;
  };

  const RegionProgram& region_;
  const Program program_;
  CompiledRegion plain_;
  std::unique_ptr<Timed> timed_;
};

std::unique_ptr<RegionEngine> Make(const RegionProgram& program) { return std::make_unique<Engine>(program); }

std::string LibraryVersion() {
  const Api& api = OpenVino();
  Version version{};
  api.Check(api.get_openvino_version(&version), "say its version");
  std::string text = version.build_number;
  api.version_free(&version);
  return text;
}

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("openvino", {"OpenVINO", LibraryVersion, kProgramForm});
  RegisterRegionEngine("openvino", Make);
  return true;
}();

}  // namespace
}  // namespace openvino
}  // namespace collage
