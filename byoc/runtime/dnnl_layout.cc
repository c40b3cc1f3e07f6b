// SPDX-License-Identifier: Apache-2.0
#include "dnnl_layout.h"

#include <algorithm>

namespace collage::onednn {
namespace {

Dims RowMajorStrides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

}  // namespace

int64_t Elements(const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

Desc RowMajor(const Dims& dims, dnnl::memory::data_type dtype) {
  return Desc(dims, dtype, RowMajorStrides(dims));
}

Desc ChannelsLast(const Dims& dims, dnnl::memory::data_type dtype) {
  Dims strides(dims.size());
  int64_t step = dims[1];
  strides[1] = 1;
  for (size_t i = dims.size(); i-- > 2;) {
    strides[i] = step;
    step *= dims[i];
  }
  strides[0] = step;
  return Desc(dims, dtype, strides);
}

Desc Seen(const View& view, dnnl::memory::data_type dtype) {
  Desc desc(view.dims, dtype, view.strides);
  desc.data.offset0 = view.offset;
  return desc;
}

bool IsStrided(const Desc& desc) {
  if (desc.data.format_kind != dnnl_blocked || desc.data.format_desc.blocking.inner_nblks != 0) return false;
  return std::equal(desc.data.dims, desc.data.dims + desc.data.ndims, desc.data.padded_dims);
}

bool IsRowMajor(const Desc& desc) {
  if (!IsStrided(desc) || desc.data.offset0 != 0) return false;
  const Dims strides = RowMajorStrides(desc.dims());
  for (int i = 0; i < desc.data.ndims; ++i) {
    if (desc.data.dims[i] != 1 && desc.data.format_desc.blocking.strides[i] != strides[i]) return false;
  }
  return true;
}

bool SameLayout(const Desc& a, const Desc& b) {
  if (a == b) return true;
  if (a.data_type() != b.data_type() || a.data.ndims != b.data.ndims) return false;
  if (!IsStrided(a) || !IsStrided(b) || a.data.offset0 != b.data.offset0) return false;
  for (int i = 0; i < a.data.ndims; ++i) {
    if (a.data.dims[i] != b.data.dims[i]) return false;
    if (a.data.dims[i] != 1 &&
        a.data.format_desc.blocking.strides[i] != b.data.format_desc.blocking.strides[i]) {
      return false;
    }
  }
  return true;
}

Desc Transposed(const Desc& desc, const std::vector<int>& axes) {
  if (axes.empty()) return desc;
  // oneDNN wants to know where each axis goes.
  return desc.permute_axes(Inverse(axes));
}

std::vector<int> Inverse(const std::vector<int>& axes) {
  std::vector<int> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = static_cast<int>(i);
  return inverse;
}

Dims Permuted(const Dims& dims, const std::vector<int>& axes) {
  if (axes.empty()) return dims;
  Dims out;
  for (const int axis : axes) out.push_back(dims[axis]);
  return out;
}

std::optional<Desc> Reshaped(const Desc& desc, const Dims& dims) {
  if (desc.dims() == dims) return desc;
  if (IsRowMajor(desc)) return RowMajor(dims, desc.data_type());
  // oneDNN drops axes of one element without a look at what they are padded to: blocks of one channel.
  for (int i = 0; i < desc.data.ndims; ++i) {
    if (desc.data.dims[i] == 1 && desc.data.padded_dims[i] != 1) return std::nullopt;
  }
  const Desc out = desc.reshape(dims, /*allow_empty=*/true);
  if (out.is_zero()) return std::nullopt;
  return out;
}

Dims Aligned(const Dims& dims, size_t rank) {
  Dims out(rank > dims.size() ? rank - dims.size() : 0, 1);
  out.insert(out.end(), dims.begin(), dims.end());
  return out;
}

}  // namespace collage::onednn
