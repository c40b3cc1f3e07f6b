// SPDX-License-Identifier: Apache-2.0
#include "dnnl_plan.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "instruction_set.h"

namespace collage::onednn {

static dnnl_cpu_isa_t IsaOf(InstructionSet level) {
  switch (level) {
    case InstructionSet::kPlain:
      return dnnl_cpu_isa_sse41;
    case InstructionSet::kAvx2:
      return dnnl_cpu_isa_avx2;
    case InstructionSet::kAvx512:
      return dnnl_cpu_isa_avx512_core;
    case InstructionSet::kAvx512Vnni:
      return dnnl_cpu_isa_avx512_core_vnni;
    case InstructionSet::kAvx512Bf16:
      return dnnl_cpu_isa_avx512_core_bf16;
    case InstructionSet::kAmx:
      break;
  }
  return dnnl_cpu_isa_all;
}

const dnnl::engine& CpuEngine() {
  static const auto* const engine = [] {
    // oneDNN reads its own variable; ours is for its kernels, too. It is refused where oneDNN has run before.
    if (InstructionSetIsCapped()) (void)dnnl_set_max_cpu_isa(IsaOf(AllowedInstructionSet()));
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

Plan::Plan(std::vector<Buffer> buffers, std::vector<Slot> slots, std::vector<Step> steps)
    : buffers_(std::move(buffers)),
      slots_(std::move(slots)),
      steps_(std::move(steps)),
      data_(steps_.size()),
      shifts_(steps_.size()),
      crew_(steps_.size()),
      stream_(CpuEngine()) {
  // A buffer is in use from the first step that touches it to the last.
  for (Buffer& buffer : buffers_) buffer.interval.first = -1;
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const auto& [argument, slot] : steps_[i].slots) {
      (void)argument;
      Interval& interval = buffers_[slots_[slot].buffer].interval;
      if (interval.first < 0) interval.first = static_cast<int>(i);
      interval.last = static_cast<int>(i);
      interval.bytes = std::max(interval.bytes, slots_[slot].desc.get_size());
    }
  }
  std::vector<Interval*> internal;
  for (Buffer& buffer : buffers_) {
    if (buffer.kind == Buffer::Kind::kInternal && buffer.interval.first >= 0)
      internal.push_back(&buffer.interval);
  }
  workspace_ = PlanOffsets(internal);
  if (workspace_ > 0) reservation_ = std::make_unique<WorkspaceReservation>(workspace_);

  addresses_.assign(slots_.size(), nullptr);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Buffer& buffer = buffers_[slots_[i].buffer];
    void* data = buffer.kind == Buffer::Kind::kConstant ? buffer.data : DNNL_MEMORY_NONE;
    slots_[i].memory = dnnl::memory(slots_[i].desc, CpuEngine(), data);
    addresses_[i] = data;
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    Step& step = steps_[i];
    for (const auto& [argument, slot] : step.slots)
      step.arguments.push_back({argument, slots_[slot].memory.get()});
    data_[i].resize(step.slots.size());
    shifts_[i] = {step.pieces, &step.work, data_[i].data()};
  }
}

void Plan::Run(const std::vector<void*>& inputs, const std::vector<void*>& outputs,
               std::vector<double>* milliseconds) {
  const WorkspaceLease lease(workspace_);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Buffer& buffer = buffers_[slots_[i].buffer];
    void* data = nullptr;
    switch (buffer.kind) {
      case Buffer::Kind::kConstant:
        continue;
      case Buffer::Kind::kInternal:
        data = lease.base() + buffer.interval.offset;
        break;
      case Buffer::Kind::kInput:
        data = inputs[buffer.index];
        break;
      case Buffer::Kind::kOutput:
        data = outputs[buffer.index];
        break;
    }
    // Usually all stands where it stood at the last call.
    if (data == addresses_[i]) continue;
    slots_[i].memory.set_data_handle(data);
    addresses_[i] = data;
  }
  if (milliseconds == nullptr) {
    for (size_t i = 0; i < steps_.size();) i = RunFrom(i);
  } else {
    milliseconds->clear();
    for (size_t i = 0; i < steps_.size(); ++i) {
      const auto begin = std::chrono::steady_clock::now();
      RunStep(i);  // on oneTBB, oneDNN comes back when all is done
      milliseconds->push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  stream_.wait();
}

size_t Plan::RunFrom(size_t i) {
  size_t end = i;
  int pieces = 0;
  for (; end < steps_.size() && steps_[end].work && steps_[end].pieces <= Crew::kMostPieces; ++end) {
    pieces = std::max(pieces, steps_[end].pieces);
  }
  if (end - i < 2 || pieces < 2) {
    RunStep(i);
    return i + 1;
  }
  for (size_t k = i; k < end; ++k) SetData(k);
  crew_.Run(&shifts_[i], static_cast<int>(end - i), pieces);
  return end;
}

void Plan::SetData(size_t i) {
  const Step& step = steps_[i];
  for (size_t k = 0; k < step.slots.size(); ++k) data_[i][k] = addresses_[step.slots[k].second];
}

void Plan::RunStep(size_t i) {
  const Step& step = steps_[i];
  if (step.kernel || step.work) SetData(i);
  if (step.kernel) return step.kernel(data_[i].data());
  if (step.work) {
    if (step.pieces == 1) return step.work(data_[i].data(), 0);
    tbb::parallel_for(
        0, step.pieces, [&](int piece) { step.work(data_[i].data(), piece); }, tbb::static_partitioner());
    return;
  }
  const dnnl_status_t status = dnnl_primitive_execute(
      step.primitive.get(), stream_.get(), static_cast<int>(step.arguments.size()), step.arguments.data());
  if (status != dnnl_success) throw std::runtime_error("oneDNN could not run " + step.what);
}

std::string Plan::Describe() const {
  std::ostringstream text;
  for (const Step& step : steps_) text << step.what << '\n';
  text << "workspace " << workspace_ << '\n';
  return text.str();
}

}  // namespace collage::onednn
