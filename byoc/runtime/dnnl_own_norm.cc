// SPDX-License-Identifier: Apache-2.0
//
// Normalisations for the kernel of our own (native/norm.h): which elements are a row, and which share a gain.
// Those of groups of channels are dnnl_own_group_norm.cc's.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/norm.h"

namespace collage::onednn {
namespace {

// The shape of an operator's rows in plain order, but for what is read.
NormShape ShapeOf(const Op& op, const Dims& dims) {
  using Divisor = NormShape::Divisor;
  NormShape shape;
  shape.epsilon = op.epsilon;
  shape.unbiased = op.unbiased;
  shape.gain = !op.unscaled;
  shape.shift = !op.unshifted;
  if (op.kind == "channel_scale") {
    const auto axis = dims.begin() + op.axes[0];
    shape.image = Elements(dims) / (op.axes[0] == 0 ? 1 : dims[0]);
    shape.divisor = Divisor::kNone;
    shape.channels = *axis;
    shape.inner = Elements({axis + 1, dims.end()});
    shape.length = shape.channels * shape.inner;
    return shape;
  }
  if (op.kind == "rms_norm") shape.divisor = Divisor::kSquare;
  if (op.kind == "standardise") shape.divisor = Divisor::kDeviation;
  const auto first = op.axes.empty() ? dims.end() - 1 : dims.begin() + op.axes[0];
  shape.length = shape.channels = Elements({first, dims.end()});
  return shape;
}

// Where the arguments of a step are, and whether there are any.
struct Places {
  size_t addends = 0, operands = 0;
  bool gain = false, shift = false, sum = false, scratch = false;

  // data: the data, the gain, the shift, the addends, the operands of posts, the sum, the result, the
  // scratch buffer. The posts' operands are put into a list of the caller's.
  Norm::Arguments Of(void* const* data, int64_t rows, std::array<Operand, Norm::kMostOperands>* list) const {
    const auto next = [&data] { return static_cast<float*>(*data++); };
    Norm::Arguments a;
    a.rows = rows;
    a.data = next();
    if (gain) a.gain = next();
    if (shift) a.shift = next();
    for (size_t i = 0; i < addends; ++i) a.addends[i] = next();
    for (size_t i = 0; i < operands; ++i) (*list)[i].data = next();
    a.operands = list->data();
    if (sum) a.sum = next();
    a.out = next();
    if (scratch) a.scratch = static_cast<NormMoments*>(*data);
    return a;
  }
};

// How many arguments a normalisation has of itself: the data, a gain, a shift.
size_t ArgumentsOfNorm(const Op& op) { return 1 + (op.unscaled ? 0 : 1) + (op.unshifted ? 0 : 1); }

}  // namespace

std::vector<NormAddend> Compiler::AddendsOf(const Op& op) const {
  const Dims& dims = type(op.in[0]).dims;
  const bool rows = op.kind != "group_norm" && op.kind != "channel_scale";
  // The first axis is that of images, but where it is that of the channels.
  const bool images = op.axes.empty() || op.axes[0] != 0;
  std::vector<NormAddend> addends;
  for (size_t i = ArgumentsOfNorm(op); i < op.in.size(); ++i) {
    const Dims& given = type(op.in[i]).dims;
    if (given == dims) {
      addends.push_back(NormAddend::kWhole);
    } else if (rows) {
      addends.push_back(NormAddend::kRow);
    } else {
      const bool each = images && Aligned(given, dims.size())[0] == dims[0];
      addends.push_back(each ? NormAddend::kImageChannels : NormAddend::kChannels);
    }
  }
  return addends;
}

bool Compiler::NormOfSum(const Op& op) {
  Op rest = op;
  rest.in.resize(ArgumentsOfNorm(op));
  rest.more.clear();
  Tensor sum = tensor(op.in[0]);
  for (size_t i = rest.in.size(); i < op.in.size(); ++i) {
    sum = ApplyBinary(dnnl::algorithm::binary_add, sum, op.in[i], /*in_place=*/i > rest.in.size());
  }
  if (op.more.empty()) {
    rest.in[0] = static_cast<int>(types_.size());
    types_.push_back(ValueType(type(op.in[0])));
    tensors_.emplace_back();
    last_use_.push_back(now_);
  } else {
    rest.in[0] = op.more[0];
  }
  Define(rest.in[0], sum);
  return OwnNorm(rest);
}

bool Compiler::OwnNorm(const Op& op) {
  if (op.kind == "group_norm") return GroupNorm(op);
  const Dims& dims = type(op.in[0]).dims;
  NormShape shape = ShapeOf(op, dims);
  Tensor from = tensor(op.in[0]);
  if (op.kind == "channel_scale" && !IsRowMajor(from.desc)) {
    // Channels that lie innermost stay there: each pixel is a row.
    std::vector<int> order;
    for (int axis = 0; axis < static_cast<int>(dims.size()); ++axis) {
      if (axis != op.axes[0]) order.push_back(axis);
    }
    order.push_back(op.axes[0]);
    if (IsRowMajor(Transposed(from.desc, order))) {
      shape.length = shape.channels;
      shape.inner = 1;
    } else if (op.in.size() > ArgumentsOfNorm(op)) {
      return NormOfSum(op);
    } else {
      from = Plain(op.in[0]);
    }
  } else {
    from = Plain(op.in[0]);
  }
  return NormOfRows(op, shape, from);
}

Tensor Compiler::ResultOver(const Tensor& from, const std::vector<Tensor>& others) {
  const bool shared = std::any_of(others.begin(), others.end(),
                                  [&](const Tensor& other) { return other.buffer == from.buffer; });
  return Overwritable(from) && !shared ? from : NewTensor(from.desc);
}

bool Compiler::NormOfRows(const Op& op, NormShape shape, const Tensor& from) {
  const Dims& dims = type(op.in[0]).dims;
  const int64_t rows = Elements(dims) / shape.length;

  Places places;
  places.gain = shape.gain;
  places.shift = shape.shift;
  std::vector<Tensor> tensors = {from};
  const size_t own = ArgumentsOfNorm(op);
  for (size_t i = 1; i < own; ++i) tensors.push_back(Plain(op.in[i]));
  shape.addends = AddendsOf(op);
  for (size_t i = own; i < op.in.size(); ++i) {
    const bool whole = shape.addends[i - own] == NormAddend::kWhole;
    tensors.push_back(whole ? Wanted(op.in[i], from.desc) : Plain(op.in[i]));
  }
  places.addends = shape.addends.size();
  const OwnPosts posts = OwnPostsOf(op, program_.values, Norm::kMostOperands);
  places.operands = posts.addends.size();
  for (const int operand : posts.addends) tensors.push_back(Wanted(operand, from.desc));

  const Tensor first = ResultOver(from, {tensors.begin() + 1, tensors.end()});
  places.sum = !op.more.empty();
  if (places.sum) tensors.push_back(first);
  const Tensor to = places.sum ? NewTensor(from.desc) : first;
  tensors.push_back(to);

  const int threads = collage_num_threads();
  const auto norm = std::make_shared<const Norm>(shape, posts.list);
  const int64_t parts = norm->Parts(rows, threads), scratch = norm->Scratch(rows, threads);
  places.scratch = scratch > 0;
  if (places.scratch) {
    const auto bytes = scratch * static_cast<int64_t>(sizeof(NormMoments));
    tensors.push_back(NewTensor(RowMajor({bytes}, dnnl::memory::data_type::u8)));
  }
  const int pieces = norm->Pieces(rows, threads);
  const auto step = [=](auto work) {
    return PieceWork{pieces, [=](void* const* data, int piece) {
                       std::array<Operand, Norm::kMostOperands> operands;
                       work(places.Of(data, rows, &operands), piece);
                     }};
  };
  using Arguments = Norm::Arguments;
  const std::string what = "norm " + op.kind;
  if (parts == 1) {
    AddWork(what, tensors, step([=](const Arguments& a, int piece) { norm->WholeRows(a, piece, pieces); }));
  } else {
    AddWork(what + " moments", tensors,
            step([=](const Arguments& a, int piece) { norm->Measure(a, parts, piece, pieces); }));
    AddWork(what, tensors,
            step([=](const Arguments& a, int piece) { norm->Write(a, parts, piece, pieces); }));
  }
  if (places.sum) Define(op.more[0], first);
  Finish(op, posts.list.size(), to);
  return true;
}

}  // namespace collage::onednn
