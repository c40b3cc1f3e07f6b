// SPDX-License-Identifier: Apache-2.0
//
// A card for the tests of machines that have none: CUDA's driver and its compiler NVRTC in one library, whose
// machine code is the processor's. So all that is done for a card is done in earnest, but by it. What it is
// stricter in: memory of the card's cannot be touched but by copies and kernels, and holds NaN at first.
//
//	EMULATED_CUDA_CAPABILITY  its compute capability, 9.0 where that is not set
//	EMULATED_CUDA_COUNT       how many of it there are (1)
//	EMULATED_CUDA_MIB         its memory (1024)
//	EMULATED_CUDA_LOST        a file: while it is there, the card is not
//	EMULATED_CUDA_LOG         a file that gets a line for each call that does something
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "card.h"
#include "threads.h"

namespace {

// As NVIDIA's cuda.h has them.
enum Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kNotFound = 500,
  kLaunchFailed = 719,
  kUnavailable = 46,
};
const std::map<int, const char*> names = {
    {kSuccess, "CUDA_SUCCESS"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
    {kNoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
    {kUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
};

using Pointer = unsigned long long;

std::string Variable(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

int Count() { return std::stoi(Variable("EMULATED_CUDA_COUNT", "1")); }
bool Lost() {
  const std::string file = Variable("EMULATED_CUDA_LOST", "");
  return !file.empty() && std::filesystem::exists(file);
}

// All that is done to the card is done by one at a time.
std::recursive_mutex card;
thread_local int context = -1;

// The card's memory.
class Memory {
 public:
  Memory() : size_(std::stoull(Variable("EMULATED_CUDA_MIB", "1024")) << 20) {
    base_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    free_[0] = size_;
  }

  size_t size() const { return size_; }
  size_t left() const {
    size_t sum = 0;
    for (const auto& [at, bytes] : free_) sum += bytes;
    return sum;
  }

  bool Take(size_t bytes, Pointer* to) {
    const size_t room = (bytes + 255) / 256 * 256;
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < room) continue;
      const auto [at, there] = *it;
      free_.erase(it);
      if (there > room) free_[at + room] = there - room;
      taken_[at] = room;
      Let(true);
      std::memset(base_ + at, 0xff, room);
      Let(false);
      *to = reinterpret_cast<Pointer>(base_ + at);
      return true;
    }
    return false;
  }

  bool Give(Pointer memory) {
    const auto it = taken_.find(reinterpret_cast<char*>(memory) - base_);
    if (it == taken_.end()) return false;
    auto [at, bytes] = *it;
    taken_.erase(it);
    auto after = free_.lower_bound(at);
    if (after != free_.end() && at + bytes == after->first) {
      bytes += after->second;
      after = free_.erase(after);
    }
    if (after != free_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == at) {
        before->second += bytes;
        return true;
      }
    }
    free_[at] = bytes;
    return true;
  }

  // Whether so many bytes lie in one piece of the card's memory that somebody has; *here says whether they
  // begin in it.
  bool Holds(const void* at, size_t bytes, bool* here) const {
    const char* const address = static_cast<const char*>(at);
    *here = address >= base_ && address < base_ + size_;
    if (!*here) return true;
    auto it = taken_.upper_bound(address - base_);
    if (it == taken_.begin()) return false;
    --it;
    return static_cast<size_t>(address - base_) + bytes <= it->first + it->second;
  }

  // Lets the processor into the memory, or keeps it out.
  void Let(bool in) { mprotect(base_, size_, in ? PROT_READ | PROT_WRITE : PROT_NONE); }

 private:
  const size_t size_;
  char* base_;
  std::map<size_t, size_t> free_, taken_;  // by their offset, their bytes
};

Memory& TheMemory() {
  static Memory* const memory = new Memory;
  return *memory;
}

int Copy(void* to, const void* from, size_t bytes) {
  bool there = false, here = false;
  if (!TheMemory().Holds(to, bytes, &there) || !TheMemory().Holds(from, bytes, &here)) return kInvalidValue;
  Log("copy %s %s %zu", here ? "card" : "host", there ? "card" : "host", bytes);
  const AtTheCard inside;
  std::memcpy(to, from, bytes);
  return kSuccess;
}

// Machine code: this line, and a shared library.
constexpr char kMagic[] = "emulated";

struct Module {
  void* library;
  int file;
};
struct Kernel {
  void (*call)(void**);
  bool waits;
  std::string name;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};

std::string Capability() {
  std::string text = Variable("EMULATED_CUDA_CAPABILITY", "9.0");
  text.erase(std::remove(text.begin(), text.end(), '.'), text.end());
  return text;
}

std::string Own() {
  Dl_info info;
  dladdr(reinterpret_cast<const void*>(&TheMemory), &info);
  return std::filesystem::absolute(info.dli_fname);
}

std::filesystem::path Folder() {
  std::string name = (std::filesystem::temp_directory_path() / "emulated-cuda-XXXXXX").string();
  return mkdtemp(name.data());
}

}  // namespace

AtTheCard::AtTheCard() {
  card.lock();
  TheMemory().Let(true);
}
AtTheCard::~AtTheCard() {
  TheMemory().Let(false);
  card.unlock();
}

bool OnTheCard(const void* at, size_t bytes) {
  bool here = false;
  return TheMemory().Holds(at, bytes, &here) && here;
}

void Log(const char* form, ...) {
  static const std::string file = Variable("EMULATED_CUDA_LOG", "");
  if (file.empty()) return;
  std::FILE* const to = std::fopen(file.c_str(), "a");
  if (to == nullptr) return;
  va_list arguments;
  va_start(arguments, form);
  std::vfprintf(to, form, arguments);
  va_end(arguments);
  std::fputc('\n', to);
  std::fclose(to);
}

// What every call begins with.
#define ENTER                                              \
  const std::lock_guard<std::recursive_mutex> enter(card); \
  if (Lost()) return kUnavailable
#define ENTER_CONTEXT \
  ENTER;              \
  if (context < 0) return kInvalidContext

extern "C" {

int cuInit(unsigned int flags) {
  ENTER;
  return flags == 0 ? kSuccess : kInvalidValue;
}
int cuDriverGetVersion(int* version) {
  *version = 12090;
  return kSuccess;
}
int cuGetErrorName(int error, const char** name) {
  const auto it = names.find(error);
  if (it == names.end()) return kInvalidValue;
  *name = it->second;
  return kSuccess;
}
int cuGetErrorString(int error, const char** text) { return cuGetErrorName(error, text); }
int cuDeviceGetCount(int* count) {
  ENTER;
  *count = Count();
  return kSuccess;
}
int cuDeviceGet(int* device, int number) {
  ENTER;
  if (number < 0 || number >= Count()) return kInvalidDevice;
  *device = number;
  return kSuccess;
}
int cuDeviceGetName(char* name, int length, int device) {
  ENTER;
  if (device < 0 || device >= Count()) return kInvalidDevice;
  std::snprintf(name, static_cast<size_t>(length), "Emulated card %d", device);
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int what, int device) {
  ENTER;
  if (device < 0 || device >= Count()) return kInvalidDevice;
  const std::string capability = Capability();
  const std::map<int, int> known = {{1, 1024},
                                    {2, 1024},
                                    {3, 1024},
                                    {4, 64},
                                    {8, 49152},
                                    {10, 32},
                                    {12, 65536},
                                    {13, 1000000},
                                    {16, 1},
                                    {38, 1 << 20},
                                    {75, std::stoi(capability.substr(0, capability.size() - 1))},
                                    {76, capability.back() - '0'}};
  const auto it = known.find(what);
  if (it == known.end()) return kInvalidValue;
  *value = it->second;
  return kSuccess;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  ENTER;
  if (device < 0 || device >= Count()) return kInvalidDevice;
  *bytes = TheMemory().size();
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** made, int device) {
  ENTER;
  if (device < 0 || device >= Count()) return kInvalidDevice;
  *made = reinterpret_cast<void*>(static_cast<intptr_t>(device) + 1);
  return kSuccess;
}
// A context stays where its card does not.
int cuCtxSetCurrent(void* made) {
  context = static_cast<int>(reinterpret_cast<intptr_t>(made)) - 1;
  return kSuccess;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER_CONTEXT;
  *free = TheMemory().left();
  *total = TheMemory().size();
  return kSuccess;
}
int cuMemAlloc_v2(Pointer* memory, size_t bytes) {
  ENTER_CONTEXT;
  if (bytes == 0) return kInvalidValue;
  return TheMemory().Take(bytes, memory) ? kSuccess : kOutOfMemory;
}
int cuMemFree_v2(Pointer memory) {
  ENTER_CONTEXT;
  return TheMemory().Give(memory) ? kSuccess : kInvalidValue;
}
int cuMemAllocHost_v2(void** memory, size_t bytes) {
  ENTER_CONTEXT;
  *memory = std::malloc(bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}
int cuMemFreeHost(void* memory) {
  ENTER;
  std::free(memory);
  return kSuccess;
}
int cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, void*) {
  ENTER_CONTEXT;
  return Copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}
int cuMemcpyPeerAsync(Pointer to, void*, Pointer from, void*, size_t bytes, void*) {
  ENTER_CONTEXT;
  return Copy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}
int cuMemsetD8Async(Pointer to, unsigned char value, size_t count, void*) {
  ENTER_CONTEXT;
  bool here = false;
  if (!TheMemory().Holds(reinterpret_cast<void*>(to), count, &here) || !here) return kInvalidValue;
  const AtTheCard inside;
  std::memset(reinterpret_cast<void*>(to), value, count);
  return kSuccess;
}
int cuMemsetD32_v2(Pointer, unsigned int, size_t) {
  return kNotFound;
}  // of cooperative kernels, which TVM's are not
int cuStreamCreate(void** stream, unsigned int) {
  ENTER_CONTEXT;
  *stream = std::malloc(1);
  return kSuccess;
}
int cuStreamDestroy_v2(void* stream) {
  std::free(stream);
  return kSuccess;
}
int cuStreamSynchronize(void*) {
  ENTER_CONTEXT;
  Log("wait");
  return kSuccess;
}
int cuStreamWaitEvent(void*, void*, unsigned int) {
  ENTER_CONTEXT;
  return kSuccess;
}
int cuEventCreate(void** event, unsigned int) {
  ENTER_CONTEXT;
  *event = new Event;
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}
int cuEventRecord(void* event, void*) {
  ENTER_CONTEXT;
  static_cast<Event*>(event)->at = std::chrono::steady_clock::now();
  return kSuccess;
}
int cuEventSynchronize(void*) {
  ENTER_CONTEXT;
  return kSuccess;
}
int cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  ENTER_CONTEXT;
  *milliseconds =
      std::chrono::duration<float, std::milli>(static_cast<Event*>(to)->at - static_cast<Event*>(from)->at)
          .count();
  return kSuccess;
}

int cuModuleLoadData(void** module, const void* image) {
  ENTER_CONTEXT;
  const char* text = static_cast<const char*>(image);
  char architecture[16] = "";
  size_t bytes = 0;
  int head = 0;
  if (std::strncmp(text, kMagic, sizeof(kMagic) - 1) != 0 ||
      std::sscanf(text, "emulated sm_%15s %zu%n", architecture, &bytes, &head) != 2) {
    return kInvalidImage;
  }
  const std::string here = Capability(), made = architecture;
  if (made.substr(0, made.size() - 1) != here.substr(0, here.size() - 1) || made.back() > here.back()) {
    return kNoBinaryForGpu;
  }
  // As long as the library is loaded, so that no other one has its path.
  const int file = memfd_create("kernels", MFD_CLOEXEC);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  std::ofstream(path, std::ios::binary).write(text + head + 1, static_cast<std::streamsize>(bytes));
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "emulated card: %s\n", dlerror());
    close(file);
    return kInvalidImage;
  }
  *module = new Module{library, file};
  Log("load sm_%s", architecture);
  return kSuccess;
}
int cuModuleUnload(void* module) {
  ENTER;
  dlclose(static_cast<Module*>(module)->library);
  close(static_cast<Module*>(module)->file);
  delete static_cast<Module*>(module);
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER_CONTEXT;
  void* const library = static_cast<Module*>(module)->library;
  void* const call = dlsym(library, ("emulated_call_" + std::string(name)).c_str());
  const auto* const waits =
      static_cast<const bool*>(dlsym(library, ("emulated_waits_" + std::string(name)).c_str()));
  if (call == nullptr || waits == nullptr) return kNotFound;
  *function = new Kernel{reinterpret_cast<void (*)(void**)>(call), *waits, name};  // as long as the process
  return kSuccess;
}
int cuModuleGetGlobal_v2(Pointer*, size_t*, void*, const char*) { return kNotFound; }
int cuFuncSetAttribute(void*, int, int) {
  ENTER_CONTEXT;
  return kSuccess;
}
int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                   unsigned int shared_bytes, void*, void** parameters, void** extra) {
  ENTER_CONTEXT;
  const auto* const kernel = static_cast<const Kernel*>(function);
  const unsigned int grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (grid_x == 0 || grid_y > 65535 || grid_y == 0 || grid_z == 0 || grid_z > 65535 || threads == 0 ||
      threads > 1024 || block_z > 64 || shared_bytes > 49152 || extra != nullptr) {
    return kInvalidValue;
  }
  Log("launch %d %s %u,%u,%u %u,%u,%u", context, kernel->name.c_str(), grid_x, grid_y, grid_z, block_x,
      block_y, block_z);
  const AtTheCard inside;
  return RunGrid(kernel->call, parameters, grid, block, kernel->waits) ? kSuccess : kLaunchFailed;
}

// NVRTC.

struct Program {
  std::string source, log, code;
  std::map<std::string, std::string> headers;
};

const char* nvrtcGetErrorString(int status) {
  return status == 0   ? "NVRTC_SUCCESS"
         : status == 6 ? "NVRTC_ERROR_COMPILATION"
                       : "NVRTC_ERROR_INVALID_INPUT";
}
int nvrtcCreateProgram(void** program, const char* source, const char*, int count, const char* const* texts,
                       const char* const* names) {
  auto* const made = new Program{source, "", "", {}};
  for (int i = 0; i < count; ++i) made->headers[names[i]] = texts[i];
  *program = made;
  return 0;
}
int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
int nvrtcCompileProgram(void* given, int count, const char* const* options) {
  auto* const program = static_cast<Program*>(given);
  std::string architecture;
  for (int i = 0; i < count; ++i) {
    if (std::sscanf(options[i], "--gpu-architecture=%*s") != EOF)
      architecture = std::strchr(options[i], '=') + 1;
  }
  if (architecture.rfind("sm_", 0) != 0) return 5;
  const std::filesystem::path folder = Folder(), own = Own();
  for (const auto& [name, text] : program->headers) std::ofstream(folder / name) << text;
  {
    std::ofstream text(folder / "kernels.cc");
    text << "#include \"" << EMULATOR_SOURCES << "/kernels.h\"\n" << program->source << "\n";
    // A kernel's definition goes to the next one's, or to the end.
    const std::regex definition(
        "extern \"C\" __global__ void (?:__launch_bounds__\\([^)]*\\) )?(\\w+)\\([^;{]*\\) \\{");
    const std::string& all = program->source;
    for (std::sregex_iterator it(all.begin(), all.end(), definition), end; it != end; ++it) {
      const size_t from = static_cast<size_t>(it->position());
      const size_t next = all.find("extern \"C\" __global__", from + 1);
      const std::string body = all.substr(from, next == all.npos ? next : next - from);
      const bool waits = body.find("__syncthreads") != body.npos || body.find("__shfl") != body.npos;
      const std::string name = (*it)[1];
      text << "extern \"C\" void emulated_call_" << name << "(void** a) { emulated_call(" << name
           << ", a); }\n"
           << "extern \"C\" const bool emulated_waits_" << name << " = " << waits << ";\n";
    }
  }
  const std::string command = "cd '" + folder.string() +
                              "' && g++ -std=c++17 -O2 -w -I. -fPIC -shared kernels.cc -o kernels.so '" +
                              own.string() + "' >log 2>&1";
  const int status = std::system(command.c_str());
  const auto read = [&](const char* name) {
    std::ostringstream text;
    text << std::ifstream(folder / name, std::ios::binary).rdbuf();
    return text.str();
  };
  program->log = read("log");
  const std::string library = read("kernels.so");
  program->code = "emulated " + architecture + " " + std::to_string(library.size()) + "\n" + library;
  std::filesystem::remove_all(folder);
  return status == 0 ? 0 : 6;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Program*>(program)->log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->code.size();
  return 0;
}
int nvrtcGetCUBIN(void* program, char* code) {
  const std::string& all = static_cast<Program*>(program)->code;
  std::memcpy(code, all.data(), all.size());
  return 0;
}

}  // extern "C"
