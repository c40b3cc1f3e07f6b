// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's memory descriptors, as far as the compiler of regions works with them: a descriptor says where in
// a buffer each element of a tensor lies, in plain order or in blocks.
#ifndef COLLAGE_DNNL_LAYOUT_H_
#define COLLAGE_DNNL_LAYOUT_H_

#include <dnnl.hpp>
#include <optional>
#include <vector>

#include "dnnl_program.h"

namespace collage::onednn {

using Desc = dnnl::memory::desc;

// The number of elements.
int64_t Elements(const Dims& dims);

// Calls visit with the indices of each element of a view, in order, and with its place in the plain tensor.
template <typename Visit>
void ForEachElement(const View& view, const Visit& visit) {
  std::vector<int64_t> at(view.dims.size(), 0);
  for (int64_t left = Elements(view.dims); left > 0; --left) {
    int64_t place = view.offset;
    for (size_t axis = 0; axis < at.size(); ++axis) place += at[axis] * view.strides[axis];
    visit(at, place);
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < view.dims[axis]) break;
      at[axis] = 0;
    }
  }
}

// The layout of a compact tensor whose last axis is the innermost: TVM's.
Desc RowMajor(const Dims& dims, dnnl::memory::data_type dtype);

// That of a compact tensor of dims batch, channels, space, whose channels are the innermost.
Desc ChannelsLast(const Dims& dims, dnnl::memory::data_type dtype);

// A plain tensor as a view shows it.
Desc Seen(const View& view, dnnl::memory::data_type dtype);

// Whether a descriptor is that layout; where an axis of one element "lies" does not matter.
bool IsRowMajor(const Desc& desc);

// Whether both put every element of a tensor at the same place.
bool SameLayout(const Desc& a, const Desc& b);

// Whether the layout is one without blocks (strides say all).
bool IsStrided(const Desc& desc);

// The same bytes with the axes in another order: axis i of the result is axis axes[i] of desc. Empty axes
// leave it as it is.
Desc Transposed(const Desc& desc, const std::vector<int>& axes);

// The order that undoes axes.
std::vector<int> Inverse(const std::vector<int>& axes);

// dims in the order axes (all of them where axes is empty).
Dims Permuted(const Dims& dims, const std::vector<int>& axes);

// The same bytes as a tensor of other dimensions; nothing where blocks or gaps are in the way.
std::optional<Desc> Reshaped(const Desc& desc, const Dims& dims);

// dims with ones in front, so that there are rank of them.
Dims Aligned(const Dims& dims, size_t rank);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_LAYOUT_H_
