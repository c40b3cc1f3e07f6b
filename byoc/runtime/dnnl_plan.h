// SPDX-License-Identifier: Apache-2.0
//
// A compiled region: primitives and kernels with the buffers that they work on, ready to run.
#ifndef COLLAGE_DNNL_PLAN_H_
#define COLLAGE_DNNL_PLAN_H_

#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dnnl_layout.h"
#include "native/crew.h"
#include "native/workspace.h"

namespace collage::onednn {

// The one CPU engine of the process.
const dnnl::engine& CpuEngine();

// A piece of memory.
struct Buffer {
  enum class Kind { kInternal, kInput, kOutput, kConstant };
  Kind kind = Kind::kInternal;
  // Which input or output.
  int index = -1;
  // kInternal: its place in the workspace.
  Interval interval;
  // kConstant: where it is, and what keeps it alive.
  void* data = nullptr;
  std::shared_ptr<void> owner;
  // kConstant: which constant it is, and what was made of it (MadeConstants).
  std::string made_of;
  // kInternal: the operator for which it was made.
  int op = -1;
};

// A buffer as a tensor. Primitives get oneDNN's memory object, kernels the address.
struct Slot {
  Desc desc;
  int buffer = -1;
  dnnl::memory memory;
};

// One thing to do.
struct Step {
  // What it is, for `describe`: "conv jit:avx512_core".
  std::string what;
  // Either a primitive, with the slots of its arguments ...
  dnnl::primitive primitive;
  std::vector<std::pair<int, int>> slots;  // oneDNN's argument number, slot
  std::vector<dnnl_exec_arg_t> arguments;  // made by Plan
  // ... or a function, which gets the addresses of the slots in order.
  std::function<void(void* const* data)> kernel;
  // ... or one that does a piece of the work, from 0 on, so many in all.
  std::function<void(void* const* data, int piece)> work;
  int pieces = 0;
  // The operator of the program that it belongs to, or the first of several; kNone at the end, for what
  // brings results into plain order.
  int op = kNone;
  int ops = 1;
  // A reorder only: the operator whose result it changes, kNone for an input of the region.
  bool reorder = false;
  int from = kNone;
  static constexpr int kNone = -1;
};

class Plan {
 public:
  // Lays the internal buffers out. Steps name slots, slots name buffers, by index.
  Plan(std::vector<Buffer> buffers, std::vector<Slot> slots, std::vector<Step> steps);

  // Runs the steps on the calling thread's arena. The pointers are those of the region's inputs and
  // outputs. Not to be called twice at the same time. milliseconds, where it is given, becomes what each of
  // steps() took.
  void Run(const std::vector<void*>& inputs, const std::vector<void*>& outputs,
           std::vector<double>* milliseconds = nullptr);

  const std::vector<Step>& steps() const { return steps_; }

  // The steps, one a line, and the workspace's size: for people and tests.
  std::string Describe() const;

 private:
  // Runs step i, or all that follow one another from there on and consist of pieces; gives the next one.
  size_t RunFrom(size_t i);
  void RunStep(size_t i);
  void SetData(size_t i);

  std::vector<Buffer> buffers_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
  // The address at which each slot's memory stands now.
  std::vector<void*> addresses_;
  // The addresses of the slots of each step that is a function.
  std::vector<std::vector<void*>> data_;
  std::vector<Shift> shifts_;  // by step
  Crew crew_;
  size_t workspace_ = 0;
  std::unique_ptr<WorkspaceReservation> reservation_;
  dnnl::stream stream_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_PLAN_H_
