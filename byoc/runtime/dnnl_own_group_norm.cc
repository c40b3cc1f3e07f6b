// SPDX-License-Identifier: Apache-2.0
//
// Normalisations of groups of channels. Which of two kernels does one is decided by where the data lies:
// channel behind channel (native/norm.h), or pixel behind pixel (native/pixel_norm.h). So neither
// TensorFlow's order nor what a convolution made in that order (Winograd, projection) is laid out anew.
#include <array>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/norm.h"
#include "native/pixel_norm.h"

namespace collage::onednn {
namespace {

int64_t PixelsOf(const Dims& turned) {
  return std::accumulate(turned.begin() + 2, turned.end(), int64_t{1}, std::multiplies<>());
}

// Where the arguments of a step are: the data, the gain, the shift, the operands of posts, the result, the
// scratch buffer. The posts' operands are put into a list of the caller's.
struct Places {
  size_t operands = 0;
  bool gain = false, shift = false;

  native::PixelNorm::Arguments Of(void* const* data, int64_t images,
                                  std::array<Operand, native::PixelNorm::kMostOperands>* list) const {
    const auto next = [&data] { return static_cast<float*>(*data++); };
    native::PixelNorm::Arguments a;
    a.images = images;
    a.data = next();
    if (gain) a.gain = next();
    if (shift) a.shift = next();
    for (size_t i = 0; i < operands; ++i) (*list)[i].data = next();
    a.operands = list->data();
    a.out = next();
    a.scratch = next();
    return a;
  }
};

}  // namespace

bool Compiler::GroupNorm(const Op& op) {
  const ValueType& data = type(op.in[0]);
  const Dims turned = Permuted(data.dims, op.perm);  // batch, channels, space
  const std::vector<int> back = op.perm.empty() ? op.perm : Inverse(op.perm);
  const Desc planes = Transposed(RowMajor(turned, data.dtype), back);
  const Desc pixels = Transposed(ChannelsLast(turned, data.dtype), back);
  // The kernel for pixels adds nothing first.
  const size_t own = 1 + (op.unscaled ? 0 : 1) + (op.unshifted ? 0 : 1);
  const bool adds = op.in.size() > own;
  const Desc lies = tensor(op.in[0]).desc;
  if (!adds && !SameLayout(lies, planes) && (!op.perm.empty() || SameLayout(lies, pixels))) {
    return NormOfPixels(op, turned, Wanted(op.in[0], pixels));
  }
  NormShape shape;
  shape.epsilon = op.epsilon;
  shape.unbiased = op.unbiased;
  shape.gain = !op.unscaled;
  shape.shift = !op.unshifted;
  shape.channels = turned[1];
  shape.inner = PixelsOf(turned);
  shape.length = turned[1] / op.groups * shape.inner;
  return NormOfRows(op, shape, Wanted(op.in[0], planes));
}

bool Compiler::NormOfPixels(const Op& op, const Dims& turned, const Tensor& from) {
  using native::PixelNorm;
  native::PixelNormShape shape;
  shape.pixels = PixelsOf(turned);
  shape.channels = turned[1];
  shape.groups = op.groups;
  shape.gain = !op.unscaled;
  shape.shift = !op.unshifted;
  shape.epsilon = op.epsilon;
  shape.unbiased = op.unbiased;
  const int64_t images = turned[0];

  Places places;
  places.gain = shape.gain;
  places.shift = shape.shift;
  std::vector<Tensor> tensors = {from};
  for (size_t i = 1; i < op.in.size(); ++i) tensors.push_back(Plain(op.in[i]));
  const OwnPosts posts = OwnPostsOf(op, program_.values, PixelNorm::kMostOperands);
  places.operands = posts.addends.size();
  for (const int operand : posts.addends) tensors.push_back(Wanted(operand, from.desc));
  const Tensor to = ResultOver(from, {tensors.begin() + 1, tensors.end()});
  tensors.push_back(to);

  const int threads = collage_num_threads();
  const auto norm = std::make_shared<const PixelNorm>(shape, posts.list);
  const int64_t parts = norm->Parts(images, threads);
  const auto bytes = norm->Scratch(images, threads) * static_cast<int64_t>(sizeof(float));
  tensors.push_back(NewTensor(RowMajor({bytes}, dnnl::memory::data_type::u8)));
  const int pieces = norm->Pieces(images, threads);
  using Arguments = PixelNorm::Arguments;
  const auto step = [=](auto work) {
    return PieceWork{pieces, [=](void* const* data, int piece) {
                       std::array<Operand, PixelNorm::kMostOperands> operands;
                       work(places.Of(data, images, &operands), piece);
                     }};
  };
  const std::string what = "norm " + op.kind + " of pixels";
  if (parts == 1) {
    AddWork(what, tensors, step([=](const Arguments& a, int piece) { norm->WholeImages(a, piece, pieces); }));
  } else {
    AddWork(what + ", moments", tensors,
            step([=](const Arguments& a, int piece) { norm->Measure(a, parts, piece, pieces); }));
    AddWork(what, tensors,
            step([=](const Arguments& a, int piece) { norm->Write(a, parts, piece, pieces); }));
  }
  Finish(op, posts.list.size(), to);
  return true;
}

}  // namespace collage::onednn
