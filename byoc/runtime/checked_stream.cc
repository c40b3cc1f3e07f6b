// SPDX-License-Identifier: Apache-2.0
#include "checked_stream.h"

#include <tvm/runtime/data_type.h>

#include <algorithm>

#include "mapped_library.h"

namespace collage {
namespace {

// More than TVM knows how to handle. A damaged file must not make us ask for all memory.
constexpr uint64_t kMostAxes = 64;
// Texts of unknown length are read in pieces of this size.
constexpr size_t kPiece = size_t{1} << 16;

// FNV-1a.
void Add(uint64_t* sum, const void* data, size_t count) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < count; ++i) *sum = (*sum ^ bytes[i]) * 0x100000001b3;
}

}  // namespace

bool TensorType::Bytes(size_t* bytes) const {
  // Twice this is still a number.
  constexpr size_t kMost = size_t{1} << 62;
  size_t count = (static_cast<size_t>(dtype.bits) * dtype.lanes + 7) / 8;
  bool empty = false;
  for (const int64_t dim : shape) {
    if (dim < 0) return false;
    if (dim == 0) {
      empty = true;
    } else if (count > kMost / static_cast<size_t>(dim)) {
      return false;
    } else {
      count *= static_cast<size_t>(dim);
    }
  }
  *bytes = empty ? 0 : count;
  return true;
}

bool TensorType::Takes(int rank, const int64_t* extents) const {
  if (rank != static_cast<int>(shape.size())) return false;
  for (int i = 0; i < rank; ++i) {
    if (shape[i] != extents[i] && (shape[i] != kOpenExtent || extents[i] < 0)) return false;
  }
  return true;
}

TensorType TensorType::Smallest() const {
  TensorType type = *this;
  std::replace(type.shape.begin(), type.shape.end(), kOpenExtent, int64_t{1});
  return type;
}

std::string TensorType::Text() const {
  std::string text = tvm::runtime::DLDataType2String(dtype) + " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + (shape[i] == kOpenExtent ? "?" : std::to_string(shape[i]));
  }
  return text + "]";
}

void CheckedWriter::Bytes(const void* data, size_t count) {
  Add(&sum_, data, count);
  if (count > 0) stream_->Write(data, count);
}

void CheckedWriter::Text(const std::string& text) {
  Number(text.size());
  Bytes(text.data(), text.size());
}

void CheckedWriter::Type(const TensorType& type) {
  Bytes(&type.dtype, sizeof(type.dtype));
  Number(type.shape.size());
  Bytes(type.shape.data(), type.shape.size() * sizeof(int64_t));
}

void CheckedWriter::Types(const std::vector<TensorType>& types) {
  Number(types.size());
  for (const TensorType& type : types) Type(type);
}

void CheckedWriter::Seal() { stream_->Write(&sum_, sizeof(sum_)); }

bool CheckedReader::Bytes(void* to, size_t count) {
  if (!ReadAll(stream_, to, count)) return false;
  Add(&sum_, to, count);
  return true;
}

bool CheckedReader::Text(std::string* text) {
  uint64_t size = 0;
  if (!Number(&size) || size > BytesLeft(stream_)) return false;
  text->clear();
  while (text->size() < size) {
    const size_t begin = text->size();
    text->resize(begin + std::min<uint64_t>(kPiece, size - begin));
    if (!Bytes(&(*text)[begin], text->size() - begin)) return false;
  }
  return true;
}

bool CheckedReader::Extents(TensorType* type) {
  uint64_t rank = 0;
  if (!Bytes(&type->dtype, sizeof(type->dtype)) || !Number(&rank) || rank > kMostAxes) return false;
  type->shape.resize(rank);
  return Bytes(type->shape.data(), rank * sizeof(int64_t));
}

bool CheckedReader::Type(TensorType* type) {
  size_t bytes = 0;
  return Extents(type) && type->Bytes(&bytes);
}

bool CheckedReader::Types(std::vector<TensorType>* types) {
  uint64_t count = 0;
  if (!Number(&count)) return false;
  types->clear();
  for (uint64_t i = 0; i < count; ++i) {
    TensorType type;
    size_t bytes = 0;
    if (!Extents(&type) || !type.Smallest().Bytes(&bytes)) return false;
    types->push_back(std::move(type));
  }
  return true;
}

bool CheckedReader::Sealed() {
  uint64_t sum = 0;
  return ReadAll(stream_, &sum, sizeof(sum)) && sum == sum_;
}

bool ReadAll(dmlc::Stream* stream, void* to, size_t bytes) {
  return bytes == 0 || (bytes <= BytesLeft(stream) && stream->Read(to, bytes) == bytes);
}

}  // namespace collage
