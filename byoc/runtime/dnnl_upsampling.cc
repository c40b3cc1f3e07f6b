// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of upsampled tensors, by a kernel of our own.
#include <memory>
#include <utility>

#include "collage_runtime.h"
#include "dnnl_channel_blocks.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/upsampling.h"
#include "shared_constants.h"

namespace collage::onednn {
namespace {

using Kernel = UpsampledConvolutionKernel;

// Whether a post-operation keeps a result within limits that zero is within, so that the zeros that fill up
// the last block of channels stay zeros.
bool AsClamp(const PostOp& post, Kernel::Arguments* arguments) {
  const auto clamp = ElementwisePostOf(post);
  if (!clamp) return false;
  const bool relu = clamp->kind == Post::Kind::kRelu && clamp->alpha == 0;
  const bool clip = clamp->kind == Post::Kind::kClip && clamp->alpha <= 0 && clamp->beta >= 0;
  if (relu || clip) arguments->clamp = clamp;
  return relu || clip;
}

}  // namespace

bool Compiler::Upsampled(const Op& op) {
  const Dims in = Permuted(type(op.in[0]).dims, op.perm), out = Permuted(type(op.out).dims, op.perm);
  const Dims& taps = op.weight.dims;
  const auto axis = [&](int i) {
    return UpsampledAxis(in[2 + i], op.scale.at(i), taps.at(2 + i), op.pad_front.at(i), out[2 + i]);
  };
  const auto kernel =
      std::make_shared<const Kernel>(in[0], in[1], out[1], axis(0), axis(1), collage_num_threads());

  // The weights are summed once, now, or at each call if they are not known before.
  const Tensor plain = Plain(op.in[1]);
  const Desc row = RowMajor({static_cast<int64_t>(kernel->PackedSize())}, dnnl::memory::data_type::f32);
  Tensor packed{row, -1};
  if (IsConstant(op.in[1])) {
    packed.buffer = NewBuffer(Buffer::Kind::kConstant);
    std::shared_ptr<void> sums(AllocateAligned(row.get_size()).release(), AlignedFree());
    kernel->Pack(static_cast<const float*>(buffers_[plain.buffer].data) + op.weight.offset, op.weight.strides,
                 static_cast<float*>(sums.get()));
    sums = Shared(std::move(sums), row.get_size());
    buffers_[packed.buffer].data = sums.get();
    buffers_[packed.buffer].owner = std::move(sums);
  } else {
    packed = NewTensor(row);
    AddKernel("pack upsampled_conv", {plain, packed}, [kernel, weight = op.weight](void* const* data) {
      kernel->Pack(static_cast<const float*>(data[0]) + weight.offset, weight.strides,
                   static_cast<float*>(data[1]));
    });
  }

  const Desc found = Transposed(tensor(op.in[0]).desc, op.perm);
  const Desc src = HasChannelBlocks(found) ? found : InBlocks(in);
  // Where nobody says otherwise, channels last are left so.
  const Desc last(out, src.data_type(), dnnl::memory::format_tag::nhwc);
  const Desc other = op.perm.empty() ? InBlocks(out) : last;
  const Desc wanted = Transposed(LayoutForReader(op.out, Transposed(other, Inverse(op.perm))), op.perm);
  const Desc dst = HasChannelBlocks(wanted) ? wanted : InBlocks(out);
  const Tensor data = Wanted(op.in[0], Transposed(src, Inverse(op.perm)));
  const Tensor result = NewTensor(Transposed(dst, Inverse(op.perm)));
  const Tensor scratch =
      NewTensor(RowMajor({static_cast<int64_t>(kernel->ScratchSize())}, dnnl::memory::data_type::f32));
  Kernel::Arguments arguments;
  arguments.src_layout = StepsOf(src);
  arguments.dst_layout = StepsOf(dst);
  const size_t done = !op.post.empty() && AsClamp(op.post.front(), &arguments) ? 1 : 0;
  std::vector<Tensor> tensors = {data, packed, result, scratch};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  AddKernel("upsampled_conv", tensors, [kernel, arguments, bias = op.bias](void* const* pointers) {
    Kernel::Arguments now = arguments;
    now.src = static_cast<const float*>(pointers[0]);
    now.packed = static_cast<const float*>(pointers[1]);
    now.dst = static_cast<float*>(pointers[2]);
    now.scratch = static_cast<float*>(pointers[3]);
    if (bias) now.bias = static_cast<const float*>(pointers[4]);
    kernel->Run(now);
  });
  Finish(op, done, result);
  return true;
}

}  // namespace collage::onednn
