// SPDX-License-Identifier: Apache-2.0
//
// Data of a shared library that the dynamic loader has mapped into this process.
#ifndef COLLAGE_MAPPED_LIBRARY_H_
#define COLLAGE_MAPPED_LIBRARY_H_

#include <dmlc/io.h>

#include <cstddef>
#include <memory>

namespace collage {

// Keeps a library loaded.
class MappedLibrary {
 public:
  // The library in whose file data lies; nullptr where data is other memory, or the library cannot be held.
  static std::shared_ptr<const MappedLibrary> Of(const void* data);
  ~MappedLibrary();
  MappedLibrary(const MappedLibrary&) = delete;
  MappedLibrary& operator=(const MappedLibrary&) = delete;

  // Gives the whole pages among these bytes, which nobody may have written to, back to the system. When they
  // are read again they come from the file, that is, from the system's cache of it.
  static void Forget(const void* data, size_t bytes);

 private:
  explicit MappedLibrary(void* handle) : handle_(handle) {}
  void* const handle_;
};

// Where the next bytes of a stream stand in memory, for the streams by which TVM reads the modules that a
// library holds; nullptr for other streams, and where fewer are left.
const char* AddressOfNext(dmlc::Stream* stream, size_t bytes);

// How many bytes are left in such a stream, or in one of a text; SIZE_MAX in others.
size_t BytesLeft(dmlc::Stream* stream);

}  // namespace collage

#endif  // COLLAGE_MAPPED_LIBRARY_H_
