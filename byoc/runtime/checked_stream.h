// SPDX-License-Identifier: Apache-2.0
//
// Numbers and texts in TVM's streams, in front of a checksum of all of them: what was damaged on the way is
// not taken for what was written. All little-endian, as all that TVM saves.
#ifndef COLLAGE_CHECKED_STREAM_H_
#define COLLAGE_CHECKED_STREAM_H_

#include <dlpack/dlpack.h>
#include <dmlc/io.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace collage {

// An extent that is known only when a region runs.
constexpr int64_t kOpenExtent = -1;

// A tensor's element type and extents; of a region's inputs and outputs an extent may be kOpenExtent.
struct TensorType {
  DLDataType dtype;
  std::vector<int64_t> shape;

  // The bytes that its elements take; nothing where that is no number of bytes that memory could have, or an
  // extent is negative.
  bool Bytes(size_t* bytes) const;
  // Whether a tensor of this shape is of the type: open extents are of any size.
  bool Takes(int rank, const int64_t* extents) const;
  // The type with 1 for each open extent.
  TensorType Smallest() const;
  // "float32 [1, 64]"; an open extent is a question mark.
  std::string Text() const;
};

class CheckedWriter {
 public:
  explicit CheckedWriter(dmlc::Stream* stream) : stream_(stream) {}

  void Bytes(const void* data, size_t count);
  void Number(uint64_t number) { Bytes(&number, sizeof(number)); }
  void Text(const std::string& text);
  void Type(const TensorType& type);
  void Types(const std::vector<TensorType>& types);
  // Writes the checksum of what was written so far.
  void Seal();

 private:
  dmlc::Stream* const stream_;
  uint64_t sum_ = 0xcbf29ce484222325;
};

// Each call says whether it could read what is asked for; none reads beyond the stream, or asks for memory
// that the stream could not fill.
class CheckedReader {
 public:
  explicit CheckedReader(dmlc::Stream* stream) : stream_(stream) {}

  bool Bytes(void* to, size_t count);
  bool Number(uint64_t* number) { return Bytes(number, sizeof(*number)); }
  bool Text(std::string* text);
  bool Type(TensorType* type);
  // Types of inputs or outputs: extents may be open.
  bool Types(std::vector<TensorType>* types);
  // Whether the checksum of what was read so far follows.
  bool Sealed();

 private:
  bool Extents(TensorType* type);

  dmlc::Stream* const stream_;
  uint64_t sum_ = 0xcbf29ce484222325;
};

// Reads all of so many bytes; false where the stream holds less.
bool ReadAll(dmlc::Stream* stream, void* to, size_t bytes);

}  // namespace collage

#endif  // COLLAGE_CHECKED_STREAM_H_
