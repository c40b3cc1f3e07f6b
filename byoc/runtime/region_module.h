// SPDX-License-Identifier: Apache-2.0
//
// What every engine's runtime module has in common. A plug-in brings an engine: a class that is made from
// a program and runs it. From here comes the rest: the TVM runtime module around it, its packed
// functions, how it is saved into an exported model and loaded again, the lock, the arena, the
// checking of arguments and the wording of errors.
#ifndef COLLAGE_REGION_MODULE_H_
#define COLLAGE_REGION_MODULE_H_

#include <dlpack/dlpack.h>

#include <memory>
#include <string>
#include <vector>

#include "checked_stream.h"
#include "collage_runtime.h"
#include "region_constants.h"

namespace collage {

// One region as its code generator wrote it.
struct RegionProgram {
  // The name under which TVM calls the region.
  std::string symbol;
  // The engine's own format; may hold zeros.
  std::string text;
  // Weights, in the order that the code generator gave them.
  RegionConstants constants;
  // What it is called with, in order. The module refuses other arguments. Of engines whose code generator
  // takes open dimensions (byoc/region.RegisterOpen) extents may be kOpenExtent.
  std::vector<TensorType> inputs, outputs;

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  int num_outputs() const { return static_cast<int>(outputs.size()); }
};

// Runs one region. Made when the region's function is fetched for the first time, of a program that outlives
// it. Making and running happen inside the arena (collage_run_in_arena), one call at a time for each engine.
// Both may throw anything that derives from std::exception; the caller learns which region it was.
class COLLAGE_EXPORT RegionEngine {
 public:
  virtual ~RegionEngine();

  // inputs and outputs are compact tensors on the CPU, as many as the program says and of its types; their
  // data begins at TensorData, at a multiple of the element's size. They belong to the caller, and may lie
  // elsewhere, and be aligned to less than a cache line, at each call.
  virtual void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) = 0;

  // Run, which also notes how long each step takes, for Times. Engines that cannot tell just run.
  virtual void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs);

  // What the steps of the last RunTimed took: a JSON object in the form that pass/trace.Inside
  // reads; "" from engines that cannot tell, which is what this one does.
  virtual std::string Times() const;

  // The arena may have another number of threads than when the engine was made, or since this was called last
  // (SetNumThreads). Engines that compile for a number of threads do it here, so that no Run has to; others
  // do nothing, which is what this one does.
  virtual void NumThreadsChanged();
};

using MakeEngine = std::unique_ptr<RegionEngine> (*)(const RegionProgram& program);

// Has the engines of all regions that live compile for the number of threads that their models run on now;
// for after SetNumThreads. Waits for regions that are running. Where an engine fails, its region tries again
// at its next run; the first such error is thrown when all others are done.
COLLAGE_EXPORT void PrepareRegionsForThreads();

// While a profile is taken (packed functions of libcollage_runtime), regions run by RunTimed:
//
//     collage.runtime.ProfileRegions(on)   begins a profile, or ends it; what was noted is forgotten
//     collage.runtime.RegionProfile() -> string
//         what was noted since the last call: {"symbol": {"ms": 1.5, "steps": {...}}, ...}, one entry for
//         each region that ran; "ms" is the last call as a whole, "steps" what Times gave, absent for "".

// Registers the packed functions of an engine (a name in lower case: "openvino"):
//
//     collage.runtime.<engine>ModuleCreate(symbol, text, constants, inputs, outputs) -> Module
//     runtime.module.loadbinary_collage_<engine>
//
// text is bytes, constants an Array of NDArrays; inputs and outputs are the arguments' types, each a line of
// words: the element type and the extents ("float32 1 64 56 56\n"), -1 for an open one. Where the names are
// taken already, they stay as they are.
COLLAGE_EXPORT void RegisterRegionEngine(const char* engine, MakeEngine make);

// Where a tensor's elements begin.
inline void* TensorData(const DLTensor* tensor) {
  return static_cast<char*>(tensor->data) + tensor->byte_offset;
}

}  // namespace collage

#endif  // COLLAGE_REGION_MODULE_H_
