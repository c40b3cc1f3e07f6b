// SPDX-License-Identifier: Apache-2.0
//
// The layouts that our own kernels on pixels read and write: 16 channels always stand side by side.
#ifndef COLLAGE_DNNL_CHANNEL_BLOCKS_H_
#define COLLAGE_DNNL_CHANNEL_BLOCKS_H_

#include "dnnl_layout.h"
#include "native/vectors.h"

namespace collage::onednn {

// [batch, channels, height, width] in blocks of channels, f32.
inline Desc InBlocks(const Dims& dims) {
  return Desc(dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::nChw16c);
}

// Whether a tensor of these four axes lies so: in blocks of channels, or with all channels last.
inline bool HasChannelBlocks(const Desc& desc) {
  if (desc == InBlocks(desc.dims())) return true;
  return desc.dims()[1] % kLanes == 0 && IsStrided(desc) && IsRowMajor(Transposed(desc, {0, 2, 3, 1}));
}

// The steps of a tensor that lies so.
inline ChannelBlocks StepsOf(const Desc& desc) {
  const auto& strides = desc.data.format_desc.blocking.strides;
  return {strides[0], IsStrided(desc) ? kLanes : strides[1], strides[2], strides[3]};
}

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_CHANNEL_BLOCKS_H_
