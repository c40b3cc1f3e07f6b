// SPDX-License-Identifier: Apache-2.0
//
// Turns a program into a plan: chooses primitives and layouts, packs constants, fuses what can be fused, and
// puts reorders where layouts meet.
//
// A value has, at any time, a tensor: a buffer and a descriptor of the value's own dimensions, in any layout.
// An operator reads its arguments in the layout in which it finds them or asks for another one (Wanted), and
// says in which layout its result is. Transposes and most reshapes only change the descriptor. Results go
// back to plain order at the end, if they are not in it anyway.
#ifndef COLLAGE_DNNL_COMPILER_H_
#define COLLAGE_DNNL_COMPILER_H_

#include <tvm/runtime/ndarray.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dnnl_made_constants.h"
#include "dnnl_plan.h"
#include "dnnl_program.h"
#include "native/bytes.h"

namespace collage::native {
class PackedWeights;
class Recurrent;
struct ByteImages;
struct PairRows;
struct NormShape;
enum class NormAddend;
}  // namespace collage::native

namespace collage::onednn {

// A value as it lies in memory.
struct Tensor {
  Desc desc;
  int buffer = -1;
};

class Compiler {
 public:
  // The program is one that CheckProgram has passed. Constants that oneDNN reads as they are belong to the
  // plan, too; the others are no longer referred to. made, if not nullptr, has what was made of these
  // constants for other programs, and is given what is made for this one.
  Compiler(const Program& program, const std::vector<tvm::runtime::NDArray>& constants,
           MadeConstants* made = nullptr);

  // Throws dnnl::error or std::runtime_error where oneDNN has no primitive for an operator; the text says
  // which.
  std::unique_ptr<Plan> Compile();

 private:
  // What an operator's primitive is made of: a function from attributes to the descriptor, which may be
  // empty.
  using MakeDesc = std::function<dnnl::primitive_desc(const dnnl::primitive_attr&)>;
  using Arguments = std::vector<std::pair<int, Tensor>>;

  // By the kernel that the program names; where it cannot, or none is named, by oneDNN.
  void CompileOp(const Op& op);
  void CompileByLibrary(const Op& op);
  // By a kernel of our own. False, and nothing done, where it cannot do the operator, or not on this
  // processor.
  bool ByKernel(const Op& op);
  // The operators first .. first + count - 1 as one step that goes strip by strip (dnnl_strips.cc); false,
  // and nothing has happened, where they have to be compiled one by one.
  bool CompileStrips(int first, int count);
  // Kernels of our own, see ByKernel. Winograd: 3x3 in rows and columns; Narrow: few output channels;
  // DenseProduct: a dense layer, or several of one left side.
  bool Winograd(const Op& op);      // dnnl_own_convolution.cc
  bool Narrow(const Op& op);        // dnnl_narrow.cc
  bool Upsampled(const Op& op);     // dnnl_upsampling.cc
  bool DenseProduct(const Op& op);  // dnnl_dense.cc
  bool ProductOfBatches(const Op& op);
  bool Attention(const Op& op);  // dnnl_attention.cc
  bool Recurrent(const Op& op);  // dnnl_recurrent.cc
  // One direction of a recurrent layer: its kernel, and what that reads and makes. Adds the step that
  // multiplies the inputs.
  struct RecurrentDirection {
    std::shared_ptr<const native::Recurrent> kernel;
    std::vector<Tensor> tensors;
  };
  RecurrentDirection DirectionOf(const Op& op);
  // The next operator, where it is the other direction of a layer.
  const Op* OtherDirection(const Op& op) const;
  // Defines an operator's results.
  void GiveStates(const Op& op, const RecurrentDirection& layer);
  bool Bytes(const Op& op);  // dnnl_bytes.cc
  bool Pairs(const Op& op);  // dnnl_pairs.cc
  // Products of bytes by kernels of oneDNN's: convolutions and dense layers.
  bool LibraryBytes(const Op& op);  // dnnl_int8.cc
  bool BytesConvolution(const Op& op);
  bool BytesProduct(const Op& op);
  bool Grid(const Op& op);     // dnnl_pointwise.cc
  bool Tokens(const Op& op);   // dnnl_tokens.cc
  bool OwnNorm(const Op& op);  // dnnl_own_norm.cc
  // What a normalisation adds to its data first.
  std::vector<native::NormAddend> AddendsOf(const Op& op) const;
  // With the sum made before by oneDNN, in the layout in which the data lies.
  bool NormOfSum(const Op& op);
  // The data's own place where it is read no more, and nothing else that is read lies there; else a new one
  // of its layout.
  Tensor ResultOver(const Tensor& from, const std::vector<Tensor>& others);
  bool NormOfRows(const Op& op, native::NormShape shape, const Tensor& from);
  bool GroupNorm(const Op& op);  // dnnl_own_group_norm.cc
  bool NormOfPixels(const Op& op, const Dims& turned, const Tensor& from);
  // Puts addends that lie as the result does behind the tensors, and then the result: a new one, or the last
  // addend that nobody needs any more, since each of its elements is read before the result takes its place.
  Tensor AddResult(const Op& op, const std::vector<int>& addends, const Desc& dst,
                   std::vector<Tensor>* tensors);
  struct OwnArguments {
    const float *src = nullptr, *packed = nullptr, *bias = nullptr;
    const float* const* addends = nullptr;
    float *dst = nullptr, *scratch = nullptr;
  };
  // Adds the step, with the first of the operator's post-operations (done) in it; sizes are in floats.
  void OwnConvolution(const Op& op, const std::string& what, size_t packed_size,
                      const std::function<void(const float* plain, float* packed)>& pack,
                      const std::vector<int>& addends, size_t done, size_t scratch_size,
                      const std::function<void(const OwnArguments&)>& run);
  void Convolution(const Op& op);  // dnnl_convolution.cc
  void MatMul(const Op& op);       // dnnl_matmul.cc
  // The operators, each with one result, that one with several stands for.
  std::vector<Op> Parts(const Op& op) const;
  void Pool(const Op& op);  // dnnl_pool.cc
  void Resample(const Op& op);
  void BatchNorm(const Op& op);  // dnnl_norm.cc
  void LayerNorm(const Op& op);
  void Softmax(const Op& op);
  void Eltwise(const Op& op);  // dnnl_pointwise.cc
  void Binary(const Op& op);
  void Reshape(const Op& op);  // dnnl_shape.cc
  void Transpose(const Op& op);
  void Concat(const Op& op);  // dnnl_concat.cc
  void Reduce(const Op& op);

  // Values and their tensors.
  const ValueType& type(int value) const { return types_[value]; }
  const Tensor& tensor(int value) const { return tensors_[value].front(); }
  bool IsConstant(int value) const;
  // Gives a value its tensor; its buffer must then stay as it is until the value is no longer needed.
  void Define(int value, Tensor tensor);
  // The value in plain order, or in any layout; reorders once for all that want the same. Constants are
  // reordered now, the rest when the plan runs.
  Tensor Plain(int value);
  Tensor Wanted(int value, const Desc& desc);
  // The same for a value seen with other dimensions: view is how its plain tensor is seen.
  Tensor WantedView(int value, const Desc& view, const Desc& desc);
  // A constant as a function makes it of its plain tensor: packed for a kernel. view and desc, which says how
  // large it is, tell it from others.
  Tensor WantedPacked(int value, const Desc& view, const Desc& desc,
                      const std::function<void(const void* plain, void* packed)>& pack);
  Tensor Reordered(const Tensor& from, const Desc& to, bool constant);
  // What make gives, or what it gave for another program under the same key.
  template <typename T>
  std::shared_ptr<T> Made(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    return made_ == nullptr ? make() : made_->Get<T>(key, make);
  }
  // A buffer of what was made of constants.
  int MadeBuffer(const std::string& key, size_t bytes, const std::function<void(void* packed)>& pack);
  // The layout, in the value's own axes, in which the first convolution that reads it wants it; other where
  // there is none, or any layout will do.
  Desc LayoutForReader(int value, const Desc& other) const;  // dnnl_convolution.cc
  // Whether the operator that is being compiled is the last one to need what is in a buffer, so that it may
  // be overwritten.
  bool Overwritable(const Tensor& tensor) const;

  // Buffers, slots and steps.
  int NewBuffer(Buffer::Kind kind, int index = -1);
  Tensor NewTensor(const Desc& desc) { return {desc, NewBuffer(Buffer::Kind::kInternal)}; }
  int SlotOf(const Tensor& tensor);
  void AddPrimitive(const std::string& what, const dnnl::primitive_desc_base& desc,
                    const Arguments& arguments);
  void AddKernel(const std::string& what, const std::vector<Tensor>& tensors,
                 std::function<void(void* const* data)> kernel);
  void AddWork(const std::string& what, const std::vector<Tensor>& tensors, PieceWork work);
  void AddReorder(const Tensor& from, const Tensor& to);

  // Fusion (dnnl_fusion.cc).
  struct Fused {
    dnnl::primitive_desc desc;
    // How many of the operator's post-operations the primitive does.
    size_t count = 0;
    // The residual value that the primitive accumulates into; -1 without one.
    int sum = -1;
    // What the post-operations read.
    Arguments arguments;
  };
  // Which values are bfloat16 within the region: results of operators that compute in it whose readers all do
  // (dnnl_bf16.cc).
  void NarrowValues();
  bool ReadsNarrowly(const Op& op, int value) const;
  // What an operator's data and weights are computed in.
  dnnl::memory::data_type ComputedIn(const Op& op) const;
  // Whether a result that was to be bfloat16 has post-operations left to do, for which it must be float32;
  // from now on it is.
  bool WidensFor(const Op& op, const Fused& fused);

  // Makes the primitive descriptor with as many of the post-operations as are done by the implementation that
  // oneDNN would choose without any. perm is how the primitive's axes come of the value's own.
  Fused Fuse(const Op& op, const std::vector<int>& perm, const MakeDesc& make);
  // The tensor, in the value's own axes, that a fused primitive writes: a new one, or the residual value's.
  Tensor Destination(const Op& op, const std::vector<int>& perm, const Fused& fused);
  // Does the post-operations from the given one on, in the tensor, which nobody else reads. Then defines the
  // operator's result.
  void Finish(const Op& op, size_t from, Tensor tensor);
  // Whether an operator reads anything that lies in the buffer, other than the value given.
  bool Reads(const Op& op, int buffer, int except) const;

  // Pointwise operators on tensors: where the result lies. In place they overwrite the (left) argument.
  Tensor ApplyEltwise(const Tensor& from, dnnl::algorithm algorithm, float alpha, float beta, bool in_place);
  Tensor ApplyBinary(dnnl::algorithm algorithm, const Tensor& left, int right, bool in_place);
  Tensor ApplyBroadcast(dnnl::algorithm algorithm, const Dims& dims, const Tensor& left, const Tensor& right,
                        bool in_place);

  const Program& program_;
  MadeConstants* const made_;
  // By value, what it is within the region.
  std::vector<ValueType> types_;
  // By value: its tensor, and copies of it in other layouts.
  std::vector<std::vector<Tensor>> tensors_;
  // By value, the last operator that reads it; kForEver for results of the region.
  std::vector<int> last_use_;
  // By buffer, the last operator that reads a value that lies there.
  std::vector<int> needed_until_;
  // Tensors that were made of values seen with other dimensions.
  struct Packed {
    int value;
    Desc view;
    Tensor tensor;
  };
  std::vector<Packed> packed_;
  // Values as bytes (dnnl_bytes.cc), with the scale of each image.
  struct Rounded {
    int value;
    std::shared_ptr<const native::ByteImages> images;
    Tensor bytes, scales;
  };
  // The scales of an operator whose weights are bytes.
  const float* Scales(const Op& op);
  // Has the weights of an operator, which are bytes or bfloat16, as float32, for whoever does it instead.
  void WidenWeights(const Op& op);
  Rounded WantedAsBytes(int value, const Desc& layout, const native::ByteImages& images);
  std::vector<Rounded> rounded_;
  // Values as bfloat16 in rows of pairs, which are longer than they are (dnnl_pairs.cc).
  struct Paired {
    int value;
    int64_t row;
    Tensor pairs;
  };
  Tensor WantedAsPairs(int value, const native::PairRows& rows);
  std::vector<Paired> paired_;
  // Which values are known to stand on steps of a scale, since they were rounded to them: the others' scales
  // are found when they are there.
  void FindGrids();
  std::vector<std::optional<native::ByteScale>> grids_;
  std::shared_ptr<PackedWeights> last_weights_;  // of the product that was compiled last
  int now_ = 0;                                  // the operator that is being compiled
  std::vector<Buffer> buffers_;
  std::vector<Slot> slots_;
  std::vector<Step> steps_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_COMPILER_H_
