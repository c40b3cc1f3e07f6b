// SPDX-License-Identifier: Apache-2.0
#include "dnnl_compiler.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "dnnl_check_program.h"
#include "region_module.h"
#include "shared_constants.h"

namespace collage::onednn {
namespace {

constexpr int kForEver = std::numeric_limits<int>::max();

// A layout as a part of a key.
std::string KeyOf(const Desc& desc) {
  return std::string(reinterpret_cast<const char*>(&desc.data), sizeof desc.data);
}

}  // namespace

Compiler::Compiler(const Program& program, const std::vector<tvm::runtime::NDArray>& constants,
                   MadeConstants* made)
    : program_(program),
      made_(made),
      types_(program.values),
      tensors_(program.values.size()),
      last_use_(program.values.size(), -1) {
  for (size_t i = 0; i < program_.ops.size(); ++i) {
    for (const int value : program_.ops[i].in) last_use_[value] = static_cast<int>(i);
    for (const PostOp& post : program_.ops[i].post) {
      if (post.operand >= 0) last_use_[post.operand] = static_cast<int>(i);
    }
  }
  for (const int value : program_.outputs) last_use_[value] = kForEver;
  NarrowValues();
  FindGrids();

  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const int value = program_.inputs[i];
    Define(value, {RowMajor(type(value).dims, type(value).dtype),
                   NewBuffer(Buffer::Kind::kInput, static_cast<int>(i))});
  }
  CheckConstants(program_, constants);
  for (size_t i = 0; i < constants.size(); ++i) {
    const int value = program_.constants[i];
    const int buffer = NewBuffer(Buffer::Kind::kConstant);
    buffers_[buffer].data = TensorData(constants[i].operator->());
    buffers_[buffer].owner = std::make_shared<tvm::runtime::NDArray>(constants[i]);
    buffers_[buffer].made_of = "constant " + std::to_string(i) + ' ';
    Define(value, {RowMajor(type(value).dims, type(value).dtype), buffer});
  }
}

std::unique_ptr<Plan> Compiler::Compile() {
  for (now_ = 0; now_ < static_cast<int>(program_.ops.size()); ++now_) {
    const int begin = now_;
    const size_t first = steps_.size();
    const auto belongs = [&] {
      for (size_t i = first; i < steps_.size(); ++i) {
        steps_[i].op = begin;
        steps_[i].ops = now_ - begin + 1;
      }
    };
    const auto strips = program_.strips.find(now_);
    if (strips != program_.strips.end() && CompileStrips(now_, strips->second)) {
      belongs();
      continue;
    }
    const Op& op = program_.ops[now_];
    try {
      CompileOp(op);
    } catch (const dnnl::error& error) {
      throw std::runtime_error("oneDNN has no primitive for operator " + std::to_string(now_) + " (" +
                               op.kind + "): " + error.what());
    }
    belongs();
  }
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const int value = program_.outputs[i];
    const Tensor from = tensor(value);
    Buffer& buffer = buffers_[from.buffer];
    // What is in plain order and in a buffer of our own is written to the caller's tensor directly. A buffer
    // that is larger (the value is a part of it) cannot be.
    if (buffer.kind == Buffer::Kind::kInternal && IsRowMajor(from.desc)) {
      buffer.kind = Buffer::Kind::kOutput;
      buffer.index = static_cast<int>(i);
      continue;
    }
    const Tensor to{RowMajor(type(value).dims, type(value).dtype),
                    NewBuffer(Buffer::Kind::kOutput, static_cast<int>(i))};
    AddReorder(from, to);
  }
  // What was packed is not kept as it was.
  std::vector<bool> read(buffers_.size(), false);
  for (const Slot& slot : slots_) read[slot.buffer] = true;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!read[i]) buffers_[i].owner.reset();
  }
  return std::make_unique<Plan>(std::move(buffers_), std::move(slots_), std::move(steps_));
}

bool Compiler::ByKernel(const Op& op) {
  using Method = bool (Compiler::*)(const Op&);
  static const std::pair<const char*, Method> kMethods[] = {
      {"winograd", &Compiler::Winograd},   {"narrow", &Compiler::Narrow},
      {"upsampled", &Compiler::Upsampled}, {"product", &Compiler::DenseProduct},
      {"attention", &Compiler::Attention}, {"norm", &Compiler::OwnNorm},
      {"bytes", &Compiler::Bytes},         {"pairs", &Compiler::Pairs},
      {"grid", &Compiler::Grid},           {"onednn_bytes", &Compiler::LibraryBytes},
      {"ragged", &Compiler::Tokens},       {"recurrent", &Compiler::Recurrent},
  };
  for (const auto& [kernel, method] : kMethods) {
    if (op.kernel == kernel) return (this->*method)(op);
  }
  return false;  // strips, expansion: their group was tried
}

void Compiler::CompileOp(const Op& op) {
  if (!op.kernel.empty() && ByKernel(op)) return;
  if (!op.more.empty()) {
    for (const Op& part : Parts(op)) CompileOp(part);
    return;
  }
  const size_t first = steps_.size();
  if (op.InBytes() || op.InPairs()) WidenWeights(op);
  CompileByLibrary(op);
  if (op.kernel.empty()) return;
  for (size_t i = first; i < steps_.size(); ++i) {
    if (steps_[i].reorder) continue;
    steps_[i].what += ", not " + op.kernel;
    break;
  }
}

void Compiler::CompileByLibrary(const Op& op) {
  using Method = void (Compiler::*)(const Op&);
  static const std::pair<const char*, Method> kMethods[] = {
      {"conv", &Compiler::Convolution},     {"deconv", &Compiler::Convolution},
      {"matmul", &Compiler::MatMul},        {"pool", &Compiler::Pool},
      {"resample", &Compiler::Resample},    {"batch_norm", &Compiler::BatchNorm},
      {"layer_norm", &Compiler::LayerNorm}, {"softmax", &Compiler::Softmax},
      {"eltwise", &Compiler::Eltwise},      {"binary", &Compiler::Binary},
      {"reshape", &Compiler::Reshape},      {"transpose", &Compiler::Transpose},
      {"concat", &Compiler::Concat},        {"reduce", &Compiler::Reduce},
      {"variance", &Compiler::Reduce},
  };
  for (const auto& [kind, method] : kMethods) {
    if (op.kind == kind) return (this->*method)(op);
  }
  throw std::runtime_error("oneDNN has no " + op.kind + ", and " + op.kernel +
                           " cannot do it here; compile the model again");
}

bool Compiler::IsConstant(int value) const {
  // What an operator of a group that goes strip by strip reads may not be there yet.
  return !tensors_[value].empty() && buffers_[tensor(value).buffer].kind == Buffer::Kind::kConstant;
}

void Compiler::Define(int value, Tensor tensor) {
  if (IsRowMajor(tensor.desc)) tensor.desc = RowMajor(tensor.desc.dims(), tensor.desc.data_type());
  needed_until_[tensor.buffer] = std::max(needed_until_[tensor.buffer], last_use_[value]);
  tensors_[value].insert(tensors_[value].begin(), tensor);
}

Tensor Compiler::Plain(int value) { return Wanted(value, RowMajor(type(value).dims, type(value).dtype)); }

Tensor Compiler::Wanted(int value, const Desc& desc) {
  for (const Tensor& one : tensors_[value]) {
    if (SameLayout(one.desc, desc)) return {desc, one.buffer};
  }
  const bool constant = IsConstant(value);
  const Tensor made = Reordered(tensor(value), desc, constant);
  needed_until_[made.buffer] = last_use_[value];
  tensors_[value].push_back(made);
  return made;
}

Tensor Compiler::WantedView(int value, const Desc& view, const Desc& desc) {
  const Tensor plain = Plain(value);
  if (SameLayout(view, desc)) return {desc, plain.buffer};
  for (const Packed& one : packed_) {
    if (one.value == value && one.view == view && one.tensor.desc == desc) return one.tensor;
  }
  const Tensor made = Reordered({view, plain.buffer}, desc, IsConstant(value));
  needed_until_[made.buffer] = last_use_[value];
  packed_.push_back({value, view, made});
  return made;
}

Tensor Compiler::WantedPacked(int value, const Desc& view, const Desc& desc,
                              const std::function<void(const void* plain, void* packed)>& pack) {
  for (const Packed& one : packed_) {
    if (one.value == value && one.view == view && one.tensor.desc == desc) return one.tensor;
  }
  const int from = Plain(value).buffer;
  const int buffer = MadeBuffer("packed " + buffers_[from].made_of + KeyOf(view) + KeyOf(desc),
                                desc.get_size(), [&](void* packed) { pack(buffers_[from].data, packed); });
  needed_until_[buffer] = last_use_[value];
  packed_.push_back({value, view, {desc, buffer}});
  return {desc, buffer};
}

Tensor Compiler::Reordered(const Tensor& from, const Desc& to, bool constant) {
  if (!constant) {
    const Tensor made = NewTensor(to);
    AddReorder(from, made);
    return made;
  }
  const auto pack = [&](void* packed) {
    dnnl::stream stream(CpuEngine());
    dnnl::memory source(from.desc, CpuEngine(), buffers_[from.buffer].data);
    dnnl::memory target(to, CpuEngine(), packed);
    dnnl::reorder(source, target).execute(stream, source, target);
    stream.wait();
  };
  const std::string key = "reordered " + buffers_[from.buffer].made_of + KeyOf(from.desc) + KeyOf(to);
  return {to, MadeBuffer(key, to.get_size(), pack)};
}

int Compiler::MadeBuffer(const std::string& key, size_t bytes,
                         const std::function<void(void* packed)>& pack) {
  std::shared_ptr<void> made = Made<void>(key, [&] {
    std::shared_ptr<void> packed(AllocateAligned(bytes).release(), AlignedFree());
    pack(packed.get());
    return Shared(std::move(packed), bytes);
  });
  const int buffer = NewBuffer(Buffer::Kind::kConstant);
  buffers_[buffer].data = made.get();
  buffers_[buffer].owner = std::move(made);
  buffers_[buffer].made_of = key;
  return buffer;
}

bool Compiler::Overwritable(const Tensor& tensor) const {
  return buffers_[tensor.buffer].kind == Buffer::Kind::kInternal && needed_until_[tensor.buffer] <= now_;
}

int Compiler::NewBuffer(Buffer::Kind kind, int index) {
  Buffer buffer;
  buffer.kind = kind;
  buffer.index = index;
  buffer.op = now_;
  buffers_.push_back(std::move(buffer));
  needed_until_.push_back(-1);
  return static_cast<int>(buffers_.size()) - 1;
}

int Compiler::SlotOf(const Tensor& tensor) {
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].buffer == tensor.buffer && slots_[i].desc == tensor.desc) return static_cast<int>(i);
  }
  slots_.push_back({tensor.desc, tensor.buffer, {}});
  return static_cast<int>(slots_.size()) - 1;
}

void Compiler::AddPrimitive(const std::string& what, const dnnl::primitive_desc_base& desc,
                            const Arguments& arguments) {
  Step step;
  step.what = what + " " + desc.impl_info_str();
  step.primitive = dnnl::primitive(desc.get());
  for (const auto& [argument, tensor] : arguments) step.slots.emplace_back(argument, SlotOf(tensor));
  const Desc scratchpad = desc.scratchpad_desc();
  if (scratchpad.get_size() > 0) step.slots.emplace_back(DNNL_ARG_SCRATCHPAD, SlotOf(NewTensor(scratchpad)));
  steps_.push_back(std::move(step));
}

void Compiler::AddKernel(const std::string& what, const std::vector<Tensor>& tensors,
                         std::function<void(void* const* data)> kernel) {
  Step step;
  step.what = what;
  for (const Tensor& tensor : tensors) step.slots.emplace_back(0, SlotOf(tensor));
  step.kernel = std::move(kernel);
  steps_.push_back(std::move(step));
}

void Compiler::AddWork(const std::string& what, const std::vector<Tensor>& tensors, PieceWork work) {
  AddKernel(what, tensors, nullptr);
  steps_.back().work = std::move(work.work);
  steps_.back().pieces = work.pieces;
}

void Compiler::AddReorder(const Tensor& from, const Tensor& to) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::reorder::primitive_desc desc(CpuEngine(), from.desc, CpuEngine(), to.desc, attr);
  Step step;
  step.what = std::string("reorder ") + desc.impl_info_str();
  step.primitive = dnnl::reorder(desc);
  step.reorder = true;
  const Buffer& source = buffers_[from.buffer];
  step.from = source.kind == Buffer::Kind::kInput ? Step::kNone : source.op;
  step.slots = {{DNNL_ARG_FROM, SlotOf(from)}, {DNNL_ARG_TO, SlotOf(to)}};
  const Desc scratchpad = desc.scratchpad_desc();
  if (scratchpad.get_size() > 0) step.slots.emplace_back(DNNL_ARG_SCRATCHPAD, SlotOf(NewTensor(scratchpad)));
  steps_.push_back(std::move(step));
}

}  // namespace collage::onednn
