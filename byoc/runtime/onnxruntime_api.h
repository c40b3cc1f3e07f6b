// SPDX-License-Identifier: Apache-2.0
//
// The part of ONNX Runtime's C interface that is used here. Its one exported function, OrtGetApiBase, gives
// a table of functions to which entries are only ever added at the end; which entry is which is part of its
// binary interface. The wheel brings no headers, so the entries that are wanted are named here.
#ifndef COLLAGE_ONNXRUNTIME_API_H_
#define COLLAGE_ONNXRUNTIME_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace collage {

struct OrtStatus;
struct OrtEnv;
struct OrtSession;
struct OrtSessionOptions;
struct OrtRunOptions;
struct OrtMemoryInfo;
struct OrtValue;

// The table's version that is asked for: ONNX Runtime 1.17, the first that reads operator set 20. Later
// ones give it as well.
constexpr uint32_t kOrtApiVersion = 17;

// The first minor version that can profile a single run.
constexpr int kOrtProfilesRuns = 25;

// ONNX Runtime's numbers for what is passed to it.
constexpr int kOrtLogErrors = 3;
constexpr int kOrtSequential = 0;
constexpr int kOrtOptimizeAll = 99;
constexpr int kOrtArenaAllocator = 1;
constexpr int kOrtMemTypeDefault = 0;

// The functions. Those that return a status return null for success.
class OrtFunctions {
 public:
  // Opens the library and reads its table. Throws
  // std::runtime_error with what to do where it is absent or too old.
  OrtFunctions();

  // Throws the error that a status tells of, and releases it.
  void Check(OrtStatus* status) const;

  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateEnv)(int severity, const char* id, OrtEnv** out);
  OrtStatus* (*CreateSessionFromArray)(const OrtEnv*, const void* model, size_t bytes,
                                       const OrtSessionOptions*, OrtSession** out);
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const* input_names,
                    const OrtValue* const* inputs, size_t num_inputs, const char* const* output_names,
                    size_t num_outputs, OrtValue** outputs);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions** out);
  OrtStatus* (*SetSessionExecutionMode)(OrtSessionOptions*, int mode);
  OrtStatus* (*SetSessionGraphOptimizationLevel)(OrtSessionOptions*, int level);
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions*, int threads);
  OrtStatus* (*SetInterOpNumThreads)(OrtSessionOptions*, int threads);
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void* data, size_t bytes,
                                               const int64_t* shape, size_t rank, int element_type,
                                               OrtValue** out);
  OrtStatus* (*CreateCpuMemoryInfo)(int allocator, int memory_type, OrtMemoryInfo** out);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
  OrtStatus* (*CreateRunOptions)(OrtRunOptions** out);
  void (*ReleaseRunOptions)(OrtRunOptions*);
  // Null before 1.25. The run writes a file whose name begins so.
  OrtStatus* (*RunOptionsEnableProfiling)(OrtRunOptions*, const char* file_prefix) = nullptr;
  OrtStatus* (*AddSessionConfigEntry)(OrtSessionOptions*, const char* key, const char* value);
  OrtStatus* (*AddExternalInitializers)(OrtSessionOptions*, const char* const* names,
                                        const OrtValue* const* values, size_t count);

  // The library's version and file.
  std::string version, path;
};

}  // namespace collage

#endif  // COLLAGE_ONNXRUNTIME_API_H_
