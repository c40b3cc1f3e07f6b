// SPDX-License-Identifier: Apache-2.0
#include "region_constants.h"

#include <dmlc/memory_io.h>
#include <tvm/runtime/logging.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "mapped_library.h"
#include "native/divide_up.h"

namespace collage {
namespace {

using tvm::runtime::NDArray;

// In front of the modules in a library stand eight bytes that say how many follow (TVM's ProcessModuleBlob).
constexpr size_t kBlobHeader = 8;

size_t Aligned(size_t bytes) { return native::RoundUp(bytes, RegionConstants::kAlignment); }

const char* DataOf(const NDArray& tensor) {
  return static_cast<const char*>(tensor->data) + tensor->byte_offset;
}

void WriteZeros(dmlc::Stream* stream, size_t count) {
  const std::string zeros(count, '\0');
  if (count > 0) stream->Write(zeros.data(), count);
}

}  // namespace

RegionConstants::RegionConstants(std::vector<NDArray> tensors) : tensors_(std::move(tensors)) {
  for (const NDArray& tensor : tensors_) {
    types_.push_back({tensor->dtype, {tensor->shape, tensor->shape + tensor->ndim}});
  }
  ICHECK(LayOut());
}

bool RegionConstants::LayOut() {
  constexpr size_t kMost = size_t{1} << 62;
  offsets_.clear();
  piece_bytes_ = 0;
  for (const TensorType& type : types_) {
    size_t bytes = 0;
    if (!type.Bytes(&bytes) || Aligned(bytes) > kMost - piece_bytes_) return false;
    offsets_.push_back({piece_bytes_, bytes});
    piece_bytes_ += Aligned(bytes);
  }
  return true;
}

NDArray RegionConstants::Tensor(size_t i) const {
  if (piece_ == nullptr) return tensors_[i];
  const TensorType& type = types_[i];
  const char* data = piece_ + offsets_[i].begin;
  if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
    NDArray copy = NDArray::Empty(type.shape, type.dtype, {kDLCPU, 0});
    std::memcpy(copy->data, data, offsets_[i].bytes);
    return copy;
  }
  // What a view keeps alive, and its shape.
  struct View {
    DLManagedTensor managed;
    std::shared_ptr<const MappedLibrary> library;
    std::vector<int64_t> shape;
  };
  auto* view = new View{{}, library_, type.shape};
  view->managed.dl_tensor = {const_cast<char*>(data),
                             {kDLCPU, 0},
                             static_cast<int>(type.shape.size()),
                             type.dtype,
                             view->shape.data(),
                             nullptr,
                             0};
  view->managed.manager_ctx = view;
  view->managed.deleter = [](DLManagedTensor* managed) { delete static_cast<View*>(managed->manager_ctx); };
  return NDArray::FromDLPack(&view->managed);
}

const void* RegionConstants::Piece() const {
  return reinterpret_cast<uintptr_t>(piece_) % kAlignment == 0 ? piece_ : nullptr;
}

void RegionConstants::Forget() const {
  if (piece_ != nullptr) MappedLibrary::Forget(piece_, piece_bytes_);
}

void RegionConstants::Save(dmlc::Stream* stream) const {
  CheckedWriter writer(stream);
  writer.Types(types_);
  // So that the piece begins at an aligned address if the modules do: behind the gap's size and the seal.
  uint64_t gap = 0;
  if (auto* seekable = dynamic_cast<dmlc::SeekStream*>(stream)) {
    const size_t at = kBlobHeader + seekable->Tell() + 2 * sizeof(uint64_t);
    gap = Aligned(at) - at;
  }
  writer.Number(gap);
  writer.Seal();
  WriteZeros(stream, gap);
  for (size_t i = 0; i < types_.size(); ++i) {
    const size_t bytes = offsets_[i].bytes;
    const char* data = piece_ != nullptr ? piece_ + offsets_[i].begin : DataOf(tensors_[i]);
    // A stream that is no SeekStream is a stream all the same.
    if (bytes > 0) stream->Write(data, bytes);  // NOLINT(clang-analyzer-core.CallAndMessage)
    WriteZeros(stream, Aligned(bytes) - bytes);
  }
}

bool RegionConstants::Load(dmlc::Stream* stream) {
  *this = RegionConstants();
  CheckedReader reader(stream);
  uint64_t gap = 0;
  char skipped[kAlignment];
  if (!reader.Types(&types_) || !reader.Number(&gap) || !reader.Sealed() || gap >= kAlignment ||
      !ReadAll(stream, skipped, gap) || !LayOut() || piece_bytes_ > BytesLeft(stream)) {
    return false;
  }

  if (const char* here = AddressOfNext(stream, piece_bytes_)) {
    library_ = MappedLibrary::Of(here);
    if (library_ != nullptr) {
      auto* seekable = dynamic_cast<dmlc::SeekStream*>(stream);
      seekable->Seek(seekable->Tell() + piece_bytes_);
      piece_ = here;
      return true;
    }
  }
  for (size_t i = 0; i < types_.size(); ++i) {
    NDArray tensor = NDArray::Empty(types_[i].shape, types_[i].dtype, {kDLCPU, 0});
    if (!ReadAll(stream, tensor->data, offsets_[i].bytes) ||
        !ReadAll(stream, skipped, Aligned(offsets_[i].bytes) - offsets_[i].bytes)) {
      return false;
    }
    tensors_.push_back(std::move(tensor));
  }
  return true;
}

}  // namespace collage
