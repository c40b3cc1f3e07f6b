// SPDX-License-Identifier: Apache-2.0
//
// Normalisations of groups of channels. Which of two kernels does one is decided by where the data lies:
// channel behind channel (native/norm.h), or pixel behind pixel (native/pixel_norm.h). So neither
// TensorFlow's order nor what a convolution made in that order (Winograd) is laid out anew.
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

// Where the arguments of a step are: the data, the gain, the shift, the addends, the operands of posts, the
// sum, the result, the scratch buffer. The posts' operands are put into a list of the caller's.
struct Places {
  size_t addends = 0, operands = 0;
  bool gain = false, shift = false, sum = false;

  native::PixelNorm::Arguments Of(void* const* data, int64_t images,
                                  std::array<Operand, native::PixelNorm::kMostOperands>* list) const {
    const auto next = [&data] { return static_cast<float*>(*data++); };
    native::PixelNorm::Arguments a;
    a.images = images;
    a.data = next();
    if (gain) a.gain = next();
    if (shift) a.shift = next();
    for (size_t i = 0; i < addends; ++i) a.addends[i] = next();
    for (size_t i = 0; i < operands; ++i) (*list)[i].data = next();
    a.operands = list->data();
    if (sum) a.sum = next();
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
  const Desc lies = tensor(op.in[0]).desc;
  const bool in_planes = SameLayout(lies, planes), in_pixels = !in_planes && SameLayout(lies, pixels);
  // What has to be laid out anew is added up before: once is enough.
  if (!in_planes && !in_pixels && !AddendsOf(op).empty()) return NormOfSum(op);
  if (!in_planes && (in_pixels || !op.perm.empty())) {
    return NormOfPixels(op, turned, Wanted(op.in[0], pixels));
  }
  NormShape shape;
  shape.epsilon = op.epsilon;
  shape.unbiased = op.unbiased;
  shape.gain = !op.unscaled;
  shape.shift = !op.unshifted;
  shape.channels = turned[1];
  shape.inner = PixelsOf(turned);
  shape.image = turned[1] * shape.inner;
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
  shape.addends = AddendsOf(op);
  const int64_t images = turned[0];

  Places places;
  places.gain = shape.gain;
  places.shift = shape.shift;
  places.addends = shape.addends.size();
  std::vector<Tensor> tensors = {from};
  const size_t own = op.in.size() - shape.addends.size();
  for (size_t i = 1; i < op.in.size(); ++i) {
    const bool whole = i >= own && shape.addends[i - own] == native::NormAddend::kWhole;
    tensors.push_back(whole ? Wanted(op.in[i], from.desc) : Plain(op.in[i]));
  }
  const OwnPosts posts = OwnPostsOf(op, program_.values, PixelNorm::kMostOperands);
  places.operands = posts.addends.size();
  for (const int operand : posts.addends) tensors.push_back(Wanted(operand, from.desc));
  const Tensor first = ResultOver(from, {tensors.begin() + 1, tensors.end()});
  places.sum = !op.more.empty();
  if (places.sum) tensors.push_back(first);
  const Tensor to = places.sum ? NewTensor(from.desc) : first;
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
  if (places.sum) Define(op.more[0], first);
  Finish(op, posts.list.size(), to);
  return true;
}

}  // namespace collage::onednn
