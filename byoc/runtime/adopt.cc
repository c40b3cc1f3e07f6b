// SPDX-License-Identifier: Apache-2.0
//
// Finding the shared library that a threads module was loaded from.
//
// TVM fills a library's context pointers first and loads its imported modules afterwards, handing each
// loader a stream and no hint of the library. The stream knows its position, though, and the bytes at
// that position tell libraries apart; so models without a threads module are never touched, whatever
// the order of loading.
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "launcher.h"

namespace collage {
namespace {

struct LoadedLibrary {
  std::string name;  // as the dynamic loader knows it
  ElfW(Addr) base;
};

// Only collects: to call dlopen from within dl_iterate_phdr is to take the loader's locks in the wrong
// order.
std::vector<LoadedLibrary> LoadedLibraries() {
  std::vector<LoadedLibrary> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<LoadedLibrary>*>(data)->push_back({info->dlpi_name, info->dlpi_addr});
        }
        return 0;
      },
      &libraries);
  return libraries;
}

// A symbol of the library itself; dlsym would also give one of a library that it depends on.
void* OwnSymbol(void* handle, const LoadedLibrary& library, const char* symbol) {
  void* address = dlsym(handle, symbol);
  Dl_info where;
  link_map* owner = nullptr;
  if (address == nullptr ||
      dladdr1(address, &where, reinterpret_cast<void**>(&owner), RTLD_DL_LINKMAP) == 0 || owner == nullptr ||
      owner->l_addr != library.base) {
    return nullptr;
  }
  return address;
}

// The blob is eight bytes of length, least significant first, and then what the stream shows.
bool BlobHolds(const char* blob, size_t offset, const std::string& bytes) {
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(static_cast<unsigned char>(blob[i])) << (8 * i);
  return offset <= length && bytes.size() <= length - offset &&
         std::memcmp(blob + 8 + offset, bytes.data(), bytes.size()) == 0;
}

bool Adopt(void* handle, const LoadedLibrary& library, Launcher launcher) {
  auto* launch = static_cast<Launcher*>(OwnSymbol(handle, library, "__TVMBackendParallelLaunch"));
  if (launch == nullptr) return false;  // no parallel loop
  if (OwnSymbol(handle, library, "__TVMBackendParallelBarrier") != nullptr) return false;
  __atomic_store_n(launch, launcher, __ATOMIC_RELEASE);
  return true;
}

}  // namespace

int AdoptLibraries(size_t blob_offset, const std::string& bytes, Launcher launcher) {
  int adopted = 0;
  for (const LoadedLibrary& library : LoadedLibraries()) {
    // NOLOAD: a library that was unloaded meanwhile stays so.
    void* handle = dlopen(library.name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const auto* blob = static_cast<const char*>(OwnSymbol(handle, library, "__tvm_dev_mblob"));
    if (blob != nullptr && BlobHolds(blob, blob_offset, bytes) && Adopt(handle, library, launcher)) ++adopted;
    dlclose(handle);
  }
  return adopted;
}

}  // namespace collage
