// SPDX-License-Identifier: Apache-2.0
//
// Convolutions with few output channels, by a kernel of our own.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "dnnl_channel_blocks.h"
#include "dnnl_compiler.h"
#include "native/narrow.h"
#include "shared_constants.h"

namespace collage::onednn {

bool Compiler::Narrow(const Op& op) {
  // Not of two dimensions, or with groups, which are an axis more of the weights; or with weights that are
  // not constants, which would have to be packed at each call.
  if (op.strides.size() != 2 || op.weight.dims.size() != 4 || op.weight.dims[0] > kMostNarrow ||
      !IsConstant(op.in[1])) {
    return false;
  }
  const Dims in = Permuted(type(op.in[0]).dims, op.perm), out = Permuted(type(op.out).dims, op.perm);
  auto shape = std::make_shared<NarrowConvolution>();
  shape->batch = in[0];
  shape->in_channels = in[1];
  shape->in_height = in[2];
  shape->in_width = in[3];
  shape->out_channels = out[1];
  shape->out_height = out[2];
  shape->out_width = out[3];
  for (int i = 0; i < 2; ++i) {
    shape->kernel[i] = op.weight.dims[2 + i];
    shape->stride[i] = op.strides[i];
    shape->dilation[i] = op.dilation[i];
    shape->pad_front[i] = op.pad_front[i];
  }
  Tensor packed{RowMajor({static_cast<int64_t>(shape->PackedSize())}, dnnl::memory::data_type::f32),
                NewBuffer(Buffer::Kind::kConstant)};
  std::shared_ptr<void> weights(AllocateAligned(packed.desc.get_size()).release(), AlignedFree());
  const Tensor plain = Plain(op.in[1]);
  shape->Pack(static_cast<const float*>(buffers_[plain.buffer].data) + op.weight.offset, op.weight.strides,
              static_cast<float*>(weights.get()));
  weights = Shared(std::move(weights), packed.desc.get_size());
  buffers_[packed.buffer].data = weights.get();
  buffers_[packed.buffer].owner = std::move(weights);

  const Desc found = Transposed(tensor(op.in[0]).desc, op.perm);
  const Desc src = HasChannelBlocks(found) ? found : InBlocks(in);
  const Tensor data = Wanted(op.in[0], Transposed(src, Inverse(op.perm)));
  // Any layout without blocks will do: the reader's, or the plain one.
  const Desc own = RowMajor(type(op.out).dims, type(op.out).dtype);
  const Desc wanted = LayoutForReader(op.out, own);
  const Tensor result = NewTensor(IsStrided(wanted) ? wanted : own);

  NarrowConvolution::Arguments arguments;
  arguments.src_layout = StepsOf(src);
  const Desc dst = Transposed(result.desc, op.perm);
  std::copy_n(dst.data.format_desc.blocking.strides, 4, std::begin(arguments.dst_strides));
  std::vector<Tensor> tensors = {data, packed, result};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  AddKernel("narrow_conv", tensors, [shape, arguments, bias = op.bias](void* const* pointers) {
    NarrowConvolution::Arguments now = arguments;
    now.src = static_cast<const float*>(pointers[0]);
    now.packed = static_cast<const float*>(pointers[1]);
    now.dst = static_cast<float*>(pointers[2]);
    if (bias) now.bias = static_cast<const float*>(pointers[3]);
    shape->Run(now);
  });
  Finish(op, 0, result);
  return true;
}

}  // namespace collage::onednn
