// SPDX-License-Identifier: Apache-2.0
//
// TVM's code generator for CUDA, which its wheel has in it and does not offer: libtvm exports the class that
// writes the kernels (tvm::codegen::CodeGenCUDA), and leaves out the function "target.build.cuda" that calls
// it and NVIDIA's compiler. That function is brought here. The class's header is not in the wheel; its
// methods are found by their names in libtvm, when they are called, so that a process that only runs models
// needs no libtvm.
#include <dlfcn.h>
#include <dmlc/memory_io.h>
#include <runtime/meta_data.h>
#include <tvm/runtime/container/array.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/registry.h>

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device_kind.h"
#include "optional_library.h"

namespace collage {
namespace cuda {
namespace {

using tvm::runtime::Array;
using tvm::runtime::FunctionInfo;
using tvm::runtime::Map;
using tvm::runtime::Module;
using tvm::runtime::ObjectRef;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMRetValue;

// A packed function of TVM's.
const PackedFunc& Function(const char* name) {
  const PackedFunc* found = tvm::runtime::Registry::Get(name);
  if (found == nullptr) {
    throw std::runtime_error(std::string("the TVM in this process has no function ") + name);
  }
  return *found;
}

// A field of one of TVM's objects, whose class is not declared in the wheel's headers.
template <typename Type>
Type Field(const ObjectRef& object, const char* name) {
  const TVMRetValue value = Function("node.NodeGetAttr")(object, name);
  return value;
}

// An entry of the attributes of a function of TIR; null where it has none of that name.
ObjectRef Attribute(const ObjectRef& function, const char* name) {
  const ObjectRef attributes = Field<ObjectRef>(function, "attrs");
  if (!attributes.defined()) return ObjectRef();
  const Map<String, ObjectRef> entries = Function("ir.DictAttrsGetDict")(attributes);
  const auto found = entries.find(name);
  return found == entries.end() ? ObjectRef() : (*found).second;
}

// tvm::codegen::CodeGenCUDA, by the names that its methods have in libtvm.
class CodeGenerator {
 public:
  CodeGenerator() {
    Get("_ZN3tvm7codegen11CodeGenCUDAC1Ev", &construct_);
    Get("_ZN3tvm7codegen11CodeGenCUDAD1Ev", &destroy_);
    Get("_ZN3tvm7codegen11CodeGenCUDA4InitEb", &init_);
    Get("_ZN3tvm7codegen8CodeGenC15DeclareFunctionERKNS_9GlobalVarERKNS_3tir8PrimFuncE", &declare_);
    Get("_ZN3tvm7codegen8CodeGenC11AddFunctionERKNS_9GlobalVarERKNS_3tir8PrimFuncE", &add_);
    Get("_ZN3tvm7codegen11CodeGenCUDA6FinishB5cxx11Ev", &finish_);
    construct_(room_.data());
    init_(room_.data(), false);
  }
  ~CodeGenerator() { destroy_(room_.data()); }
  CodeGenerator(const CodeGenerator&) = delete;
  CodeGenerator& operator=(const CodeGenerator&) = delete;

  void Declare(const ObjectRef& name, const ObjectRef& function) { declare_(room_.data(), name, function); }
  void Add(const ObjectRef& name, const ObjectRef& function) { add_(room_.data(), name, function); }
  std::string Finish() { return finish_(room_.data()); }

 private:
  // A method is called as a function whose first argument is the object.
  template <typename Method>
  static void Get(const char* name, Method* method) {
    *method = reinterpret_cast<Method>(dlsym(RTLD_DEFAULT, name));
    if (*method == nullptr) {
      throw std::runtime_error("the TVM in this process has no code generator for CUDA (" +
                               std::string(name) + "); models are compiled with apache-tvm 0.19");
    }
  }

  void (*construct_)(void*);
  void (*destroy_)(void*);
  void (*init_)(void*, bool);
  void (*declare_)(void*, const ObjectRef&, const ObjectRef&);
  void (*add_)(void*, const ObjectRef&, const ObjectRef&);
  std::string (*finish_)(void*);
  // More than the object takes (some 3 KiB in 0.19).
  alignas(std::max_align_t) std::array<std::byte, 65536> room_;
};

// The headers of NVIDIA's that TVM's kernels of these types include: where a number is infinite or none, and
// where bytes are multiplied, by functions that the compiler knows. As a library it comes without headers.
constexpr std::array<const char*, 2> kHeaderNames = {"math_constants.h", "sm_61_intrinsics.h"};
constexpr std::array<const char*, 2> kHeaders = {
    "#define CUDART_INF_F __int_as_float(0x7f800000)\n"
    "#define CUDART_NAN_F __int_as_float(0x7fffffff)\n"
    "#define CUDART_INF __longlong_as_double(0x7ff0000000000000LL)\n"
    "#define CUDART_NAN __longlong_as_double(0xfff8000000000000LL)\n",
    ""};

// NVIDIA's compiler, as a library.
class Compiler {
 public:
  Compiler()
      : library_({"NVRTC, CUDA's compiler",
                  "pip install nvidia-cuda-nvrtc-cu12",
                  "COLLAGE_NVRTC_LIBRARY",
                  {"nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "nvidia/cu13/lib/libnvrtc.so.13"},
                  {},
                  {"libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"}}) {
    library_.Get("nvrtcCreateProgram", &create_);
    library_.Get("nvrtcDestroyProgram", &destroy_);
    library_.Get("nvrtcCompileProgram", &compile_);
    library_.Get("nvrtcGetProgramLogSize", &log_size_);
    library_.Get("nvrtcGetProgramLog", &log_);
    library_.Get("nvrtcGetCUBINSize", &code_size_);
    library_.Get("nvrtcGetCUBIN", &code_);
    library_.Get("nvrtcGetErrorString", &error_);
  }

  static const Compiler& Get() {
    static const Compiler* const compiler = new Compiler;
    return *compiler;
  }

  // The machine code of some kernels for an architecture ("sm_90").
  std::string MachineCode(const std::string& source, const std::string& architecture) const {
    const auto destroy = [this](void** program) { destroy_(program); };
    void* program = nullptr;
    Check(create_(&program, source.c_str(), "kernels.cu", kHeaders.size(), kHeaders.data(),
                  kHeaderNames.data()),
          "taking the source");
    const std::unique_ptr<void*, decltype(destroy)> owned(&program, destroy);
    const std::string option = "--gpu-architecture=" + architecture;
    const char* const options[] = {option.c_str()};
    const int status = compile_(program, 1, options);
    if (status != 0) {
      size_t size = 0;
      std::string log;
      if (log_size_(program, &size) == 0) {
        log.resize(size);
        if (size > 0) log_(program, log.data());
      }
      throw std::runtime_error("NVRTC (" + library_.path() + ") cannot compile TVM's kernels for " +
                               architecture + ": " + error_(status) + "\n" + log.c_str());
    }
    size_t size = 0;
    Check(code_size_(program, &size), "asking for the code's size");
    std::string code(size, '\0');
    Check(code_(program, code.data()), "asking for the code");
    return code;
  }

 private:
  void Check(int status, const char* what) const {
    if (status == 0) return;
    throw std::runtime_error("NVRTC (" + library_.path() + "), " + what + ": " + error_(status));
  }

  const OptionalLibrary library_;
  int (*create_)(void** program, const char* source, const char* name, int headers, const char* const* texts,
                 const char* const* names);
  int (*destroy_)(void** program);
  int (*compile_)(void* program, int count, const char* const* options);
  int (*log_size_)(void* program, size_t* size);
  int (*log_)(void* program, char* log);
  int (*code_size_)(void* program, size_t* size);
  int (*code_)(void* program, char* code);
  const char* (*error_)(int status);
};

// What TVM's runtime must know of a kernel to call it.
FunctionInfo Described(const ObjectRef& function, const std::string& name) {
  FunctionInfo info;
  info.name = name;
  for (const ObjectRef& parameter : Field<Array<ObjectRef>>(function, "params")) {
    info.arg_types.push_back(Field<tvm::runtime::DataType>(parameter, "dtype"));
  }
  const ObjectRef tags = Attribute(function, "tir.kernel_launch_params");
  if (tags.defined()) {
    for (const String& tag : tvm::runtime::Downcast<Array<String>>(tags))
      info.launch_param_tags.push_back(tag);
  }
  return info;
}

// The kernels' source, and what must be known to call them.
std::pair<std::string, std::unordered_map<std::string, FunctionInfo>> Write(const ObjectRef& module) {
  const auto functions = Field<Map<ObjectRef, ObjectRef>>(module, "functions");
  std::unordered_map<std::string, FunctionInfo> described;
  CodeGenerator generator;
  for (const auto& [name, function] : functions) generator.Declare(name, function);
  for (const auto& [name, function] : functions) {
    generator.Add(name, function);
    const ObjectRef symbol = Attribute(function, "global_symbol");
    if (!symbol.defined()) throw std::runtime_error("a kernel has no name");
    const std::string text = tvm::runtime::Downcast<String>(symbol);
    described[text] = Described(function, text);
  }
  return {generator.Finish(), std::move(described)};
}

// A module of kernels as TVM's runtime for CUDA reads it from a model's library.
Module Build(const ObjectRef& module, const ObjectRef& target) {
  auto [source, functions] = Write(module);
  if (const PackedFunc* change = tvm::runtime::Registry::Get("tvm_callback_cuda_postproc")) {
    source = (*change)(source, target).operator std::string();
  }
  const auto attributes = Field<Map<String, ObjectRef>>(target, "attrs");
  const auto architecture = attributes.find("arch");
  if (architecture == attributes.end())
    throw std::runtime_error("TVM's target for CUDA names no architecture");
  std::string written;
  dmlc::MemoryStringStream stream(&written);
  dmlc::Stream& out = stream;
  out.Write(std::string("cubin"));
  out.Write(functions);
  out.Write(Compiler::Get().MachineCode(source, tvm::runtime::Downcast<String>((*architecture).second)));
  stream.Seek(0);
  return Function("runtime.module.loadbinary_cuda")(static_cast<void*>(&out));
}

// Takes a module of TIR's functions for a GPU and TVM's target, "cuda" with its "arch", and gives the module
// that runs them there. A TVM with CUDA has this function by itself.
TVM_REGISTER_GLOBAL("target.build.cuda").set_body_typed([](ObjectRef module, ObjectRef target) {
  return device::Told([&] { return Build(module, target); });
});

}  // namespace
}  // namespace cuda
}  // namespace collage
