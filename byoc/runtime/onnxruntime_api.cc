// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime_api.h"

#include <cstdio>
#include <stdexcept>
#include <type_traits>

#include "optional_library.h"

namespace collage {
namespace {

// What OrtGetApiBase gives. It can never change.
struct OrtApiBase {
  const void* const* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

}  // namespace

OrtFunctions::OrtFunctions() {
  // Never closed: its threads and memory outlive any model.
  auto* library = new OptionalLibrary({"ONNX Runtime",
                                       "`make backends BACKENDS=onnxruntime`, or pip install onnxruntime",
                                       "COLLAGE_ONNXRUNTIME_LIBRARY",
                                       {"onnxruntime/capi/libonnxruntime.so*"},
                                       {"lib/libonnxruntime.so.1", "lib/libonnxruntime.so"},
                                       {"libonnxruntime.so.1", "libonnxruntime.so"}});
  path = library->path();
  const OrtApiBase* (*get_base)();
  library->Get("OrtGetApiBase", &get_base);
  const OrtApiBase* base = get_base();
  version = base->GetVersionString();
  // The library complains on stderr about a version that it does not know; so the text is looked at first.
  int major = 0, minor = 0;
  const bool numbered = std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2;
  const void* const* table = nullptr;
  if (!numbered || major > 1 || minor >= static_cast<int>(kOrtApiVersion)) {
    table = base->GetApi(kOrtApiVersion);
  }
  if (table == nullptr) {
    throw std::runtime_error("ONNX Runtime " + version + " in " + path + " is too old; 1." +
                             std::to_string(kOrtApiVersion) +
                             " or later is needed (pip install --upgrade onnxruntime)");
  }
  const auto take = [table](auto* function, size_t entry) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(const_cast<void*>(table[entry]));
  };
  take(&GetErrorMessage, 2);
  take(&CreateEnv, 3);
  take(&CreateSessionFromArray, 8);
  take(&Run, 9);
  take(&CreateSessionOptions, 10);
  take(&SetSessionExecutionMode, 13);
  take(&SetSessionGraphOptimizationLevel, 23);
  take(&SetIntraOpNumThreads, 24);
  take(&SetInterOpNumThreads, 25);
  take(&CreateRunOptions, 39);
  take(&CreateTensorWithDataAsOrtValue, 49);
  take(&CreateCpuMemoryInfo, 69);
  take(&ReleaseStatus, 93);
  take(&ReleaseMemoryInfo, 94);
  take(&ReleaseSession, 95);
  take(&ReleaseValue, 96);
  take(&ReleaseRunOptions, 97);
  take(&ReleaseSessionOptions, 100);
  take(&AddSessionConfigEntry, 130);
  take(&AddExternalInitializers, 210);
  if (numbered && (major > 1 || minor >= kOrtProfilesRuns)) take(&RunOptionsEnableProfiling, 415);
}

void OrtFunctions::Check(OrtStatus* status) const {
  if (status == nullptr) return;
  const std::string message = GetErrorMessage(status);
  ReleaseStatus(status);
  throw std::runtime_error("ONNX Runtime " + version + ": " + message);
}

}  // namespace collage
