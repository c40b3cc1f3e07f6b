// SPDX-License-Identifier: Apache-2.0
//
// The engine of a kind of device (device_kind.h): runs a region (device_program.h) there. The region is a
// network of its own, which TVM's graph executor runs: its weights and what lies between its operators stay
// in the device's memory. The region's inputs are copied there and its outputs back, each once a call.
#include <sys/mman.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device_kind.h"
#include "device_program.h"
#include "layer_steps.h"
#include "needs.h"
#include "region_module.h"

namespace collage {
namespace device {
namespace {

using tvm::runtime::Module;
using tvm::runtime::PackedFunc;
using tvm::runtime::TypedPackedFunc;

constexpr char kUnknown[] = "TVM did not say which of the region's operators its kernels do";

// A file without a name that holds a library. It lives as long as the library is loaded: the dynamic loader
// knows libraries by their paths, and the path of a closed file is that of the next one.
class LibraryFile {
 public:
  explicit LibraryFile(std::string_view bytes) : file_(memfd_create("collage-region", MFD_CLOEXEC)) {
    if (file_ < 0) Fail("making a file in memory");
    while (!bytes.empty()) {
      const ssize_t written = write(file_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        const int why = errno;
        close(file_);
        errno = why;
        Fail("writing a file in memory");
      }
      bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  ~LibraryFile() { close(file_); }
  LibraryFile(const LibraryFile&) = delete;
  LibraryFile& operator=(const LibraryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  [[noreturn]] static void Fail(const char* what) {
    throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
  }

  const int file_;
};

// Does something on a device, and says in words what its driver says in a code where its memory is short.
// Drivers may find that out when memory is asked for, or when it is first used.
template <typename Body>
void InMemoryOf(DLDevice device, Body body) {
  try {
    body();
  } catch (const tvm::runtime::Error& error) {
    const std::string said = error.what();
    for (const char* code : Here().out_of_memory) {
      if (said.find(code) == std::string::npos) continue;
      // Workers know by these words that another try may go well (python/collage/region.py).
      throw std::runtime_error("the device is out of memory: its " +
                               std::to_string(Here().memory_bytes(device.device_id) >> 20) +
                               " MiB do not hold it beside what else is there (" + code + ")");
    }
    throw;
  }
}

// The device that a program is run on. Throws where it is for another one.
DLDevice DeviceFor(const Program& program) {
  if (program.device != Here().name) {
    throw std::runtime_error("the region is one for the device " + program.device +
                             "; compile the model again");
  }
  const int device = Here().chosen();
  Here().check_architecture(device, program.architecture);
  return {Here().type, device};
}

class Engine final : public RegionEngine {
 public:
  explicit Engine(const RegionProgram& region)
      : program_(Program::Parse(region.text)), device_(DeviceFor(program_)), file_(program_.library) {
    if (program_.readers.size() != region.inputs.size() || program_.makers.size() != region.outputs.size()) {
      throw std::runtime_error("the program is one for other inputs and outputs; compile the model again");
    }
    const PackedFunc* load = tvm::runtime::Registry::Get("runtime.module.loadfile_so");
    ICHECK(load != nullptr);
    library_ = (*load)(file_.path(), "so");
    InMemoryOf(device_, [this] { executor_ = library_.GetFunction("default")(device_); });
    set_input_ = executor_.GetFunction("set_input");
    run_ = executor_.GetFunction("run");
    get_output_ = executor_.GetFunction("get_output");
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    InMemoryOf(device_, [&] {
      if (CopiesAreLeftOut()) {
        run_();
        return;
      }
      for (size_t i = 0; i < inputs.size(); ++i) CopyIn(i, inputs[i]);
      run_();
      for (size_t i = 0; i < outputs.size(); ++i) get_output_(static_cast<int>(i), outputs[i]);
      // A copy back need not wait for what it copies: not into memory that CUDA knows, nor where there is
      // none.
      Wait();
    });
  }

  void RunTimed(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    if (program_.kernels.empty()) {
      Run(inputs, outputs);
      return;
    }
    steps_.clear();
    const auto begin = std::chrono::steady_clock::now();
    auto last = begin;
    const auto note = [&](LayerStep step) {
      Wait();
      const auto now = std::chrono::steady_clock::now();
      step.milliseconds = std::chrono::duration<double, std::milli>(now - last).count();
      last = now;
      steps_.push_back(std::move(step));
    };
    Timed& timed = Apart();
    for (size_t i = 0; i < inputs.size(); ++i) {
      timed.set_input(static_cast<int>(i), const_cast<DLTensor*>(inputs[i]));
      LayerStep step;
      step.what = "copy to the device";
      step.reorder = true;
      step.of = program_.readers[i];
      note(std::move(step));
    }
    // TVM's executor goes on behind the node that it was at; the first one is an input.
    timed.execute_node(0);
    for (size_t i = 0; i < program_.kernels.size(); ++i) {
      timed.execute_node(program_.kernels[i]);
      LayerStep step;
      step.what = "kernel";
      step.of = program_.does[i];
      note(std::move(step));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      timed.get_output(static_cast<int>(i), outputs[i]);
      LayerStep step;
      step.what = "copy from the device";
      step.reorder = true;
      step.from = program_.makers[i];
      note(std::move(step));
    }
  }

  std::string Times() const final {
    if (program_.kernels.empty()) return DescribeNoLayers(program_.groups, kUnknown);
    return DescribeLayers(program_.groups, steps_, 0);
  }

 private:
  // A network whose kernels can be run one by one; it has weights of its own.
  struct Timed {
    Module executor;
    PackedFunc set_input, execute_node, get_output;
  };

  Timed& Apart() {
    if (timed_ == nullptr) {
      Module made;
      InMemoryOf(device_, [&] { made = library_.GetFunction("debug_create")("default", device_); });
      timed_ =
          std::make_unique<Timed>(Timed{made, made.GetFunction("set_input"), made.GetFunction("execute_node"),
                                        made.GetFunction("get_output")});
    }
    return *timed_;
  }

  void CopyIn(size_t index, const DLTensor* tensor) {
    set_input_(static_cast<int>(index), const_cast<DLTensor*>(tensor));
  }

  void Wait() { tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr); }

  const Program program_;
  const DLDevice device_;
  const LibraryFile file_;  // goes after what was loaded from it
  Module library_, executor_;
  PackedFunc set_input_, run_, get_output_;
  std::unique_ptr<Timed> timed_;
  std::vector<LayerStep> steps_;
};

std::unique_ptr<RegionEngine> Make(const RegionProgram& program) { return std::make_unique<Engine>(program); }

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin(Here().name, {Here().title, Here().needed_version, kProgramForm});
  RegisterRegionEngine(Here().name, Make);
  return true;
}();

}  // namespace
}  // namespace device
}  // namespace collage
