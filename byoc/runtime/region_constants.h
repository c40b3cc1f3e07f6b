// SPDX-License-Identifier: Apache-2.0
//
// A region's weights: where they lie and how they are saved.
//
// A region that was compiled in this process has tensors. One of an exported model has none: its weights stay
// in the model's library, which the dynamic loader has mapped, and are read from there when an engine is
// made. What the engine has packed it needs no more, so the pages are given back (Forget) and come again from
// the file if somebody asks: an executable that runs holds its weights once.
#ifndef COLLAGE_REGION_CONSTANTS_H_
#define COLLAGE_REGION_CONSTANTS_H_

#include <dmlc/io.h>
#include <tvm/runtime/ndarray.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "checked_stream.h"
#include "collage_runtime.h"

namespace collage {

class MappedLibrary;

// Copies share what they refer to.
class COLLAGE_EXPORT RegionConstants {
 public:
  // Tensors begin at multiples of this many bytes, TVM's NDArrays as well: a cache line and the widest
  // vector.
  static constexpr size_t kAlignment = 64;

  RegionConstants() = default;
  // Compact tensors on the CPU.
  explicit RegionConstants(std::vector<tvm::runtime::NDArray> tensors);

  size_t size() const { return types_.size(); }
  const TensorType& Type(size_t i) const { return types_[i]; }
  size_t Bytes(size_t i) const { return offsets_[i].bytes; }

  // A constant. Of an exported model it is a view of the library, or, where that lies at an odd address, a
  // copy that is made anew at each call: keep it only as long as it is read.
  tvm::runtime::NDArray Tensor(size_t i) const;

  // All constants as one piece of memory, each beginning at Offset(i) and the piece at a multiple of
  // kAlignment; nullptr where they do not lie in that way. It lives as long as this object or a copy of it.
  const void* Piece() const;
  size_t Offset(size_t i) const { return offsets_[i].begin; }
  size_t PieceBytes() const { return piece_bytes_; }

  // Gives back the memory of what was read from a library and is in use no more. What is still read there
  // comes again by itself; nothing is lost.
  void Forget() const;

  void Save(dmlc::Stream* stream) const;
  // Reads what Save has written; false where it is not whole, or what it says of the tensors is not what was
  // written (the elements themselves are taken as they are). If the stream reads a library that is mapped
  // into this process, the constants refer to it, and it stays loaded as long as they live.
  bool Load(dmlc::Stream* stream);

 private:
  struct Place {
    size_t begin, bytes;
  };

  // False where they take more bytes than there can be.
  bool LayOut();

  std::vector<TensorType> types_;
  // Where each begins in the piece.
  std::vector<Place> offsets_;
  size_t piece_bytes_ = 0;
  // Either the tensors, or the piece in a library.
  std::vector<tvm::runtime::NDArray> tensors_;
  std::shared_ptr<const MappedLibrary> library_;
  const char* piece_ = nullptr;
};

}  // namespace collage

#endif  // COLLAGE_REGION_CONSTANTS_H_
