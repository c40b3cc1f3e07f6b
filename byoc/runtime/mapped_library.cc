// SPDX-License-Identifier: Apache-2.0
#include "mapped_library.h"

#include <dlfcn.h>
#include <dmlc/memory_io.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "native/divide_up.h"

namespace collage {
namespace {

// TVM hands a library's modules to their loaders as a stream of this class, which keeps to itself where it
// reads from. Explicit instantiation is where the language lets private members be named.
char* Begin(const dmlc::MemoryFixedSizeStream& stream);
size_t Size(const dmlc::MemoryFixedSizeStream& stream);

const std::string* Text(const dmlc::MemoryStringStream& stream);

template <char* dmlc::MemoryFixedSizeStream::* kBegin, size_t dmlc::MemoryFixedSizeStream::* kSize>
struct Opened {
  friend char* Begin(const dmlc::MemoryFixedSizeStream& stream) { return stream.*kBegin; }
  friend size_t Size(const dmlc::MemoryFixedSizeStream& stream) { return stream.*kSize; }
};
template struct Opened<&dmlc::MemoryFixedSizeStream::p_buffer_, &dmlc::MemoryFixedSizeStream::buffer_size_>;

// Likewise the one for modules that travel as texts.
template <std::string* dmlc::MemoryStringStream::* kText>
struct OpenedText {
  friend const std::string* Text(const dmlc::MemoryStringStream& stream) { return stream.*kText; }
};
template struct OpenedText<&dmlc::MemoryStringStream::p_buffer_>;

}  // namespace

std::shared_ptr<const MappedLibrary> MappedLibrary::Of(const void* data) {
  Dl_info info;
  void* found = nullptr;
  if (dladdr1(data, &info, &found, RTLD_DL_LINKMAP) == 0 || found == nullptr) return nullptr;
  // The name is compared with those of the loaded libraries: the file may be gone.
  void* handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  struct link_map* held = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &held) != 0 || held != found) {
    dlclose(handle);
    return nullptr;
  }
  return std::shared_ptr<const MappedLibrary>(new MappedLibrary(handle));
}

MappedLibrary::~MappedLibrary() { dlclose(handle_); }

void MappedLibrary::Forget(const void* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = native::RoundUp(address, page), end = (address + bytes) / page * page;
  // Advice: if it is not taken, memory is held that need not be.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

const char* AddressOfNext(dmlc::Stream* stream, size_t bytes) {
  auto* fixed = dynamic_cast<dmlc::MemoryFixedSizeStream*>(stream);
  if (fixed == nullptr || BytesLeft(stream) < bytes) return nullptr;
  return Begin(*fixed) + fixed->Tell();
}

size_t BytesLeft(dmlc::Stream* stream) {
  size_t size = 0, at = 0;
  if (auto* fixed = dynamic_cast<dmlc::MemoryFixedSizeStream*>(stream)) {
    size = Size(*fixed);
    at = fixed->Tell();
  } else if (auto* text = dynamic_cast<dmlc::MemoryStringStream*>(stream)) {
    size = Text(*text)->size();
    at = text->Tell();
  } else {
    return SIZE_MAX;
  }
  return at <= size ? size - at : 0;
}

}  // namespace collage
