// SPDX-License-Identifier: Apache-2.0
//
// Concatenation. Of parts that lie row by row or in blocks oneDNN 2.6's takes many times as long as copying
// (RATIONALE; make bench-onednn). Here the parts and the result always lie alike, so that each is a number of
// rows, one for each place in front of the axis, that are copied whole.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "collage_runtime.h"
#include "dnnl_compiler.h"

namespace collage::onednn {
namespace {

// An order of axes, the outermost first, and the block that lies innermost.
struct Order {
  std::vector<int> axes;
  // The axis whose elements lie innermost in blocks of so many, -1 for none.
  int blocked = -1;
  int64_t block = 1;
};

// The compact layout of a tensor in an order. Where there are blocks, dims must fill them.
Desc Laid(const Order& order, const Dims& dims, dnnl::memory::data_type dtype) {
  Desc desc = RowMajor(dims, dtype);  // oneDNN makes none of strides between blocks
  auto& blocking = desc.data.format_desc.blocking;
  int64_t step = order.block;
  for (size_t i = order.axes.size(); i-- > 0;) {
    const int axis = order.axes[i];
    blocking.strides[axis] = step;
    step *= axis == order.blocked ? dims[axis] / order.block : dims[axis];
  }
  if (order.blocked >= 0) {
    blocking.inner_nblks = 1;
    blocking.inner_blks[0] = order.block;
    blocking.inner_idxs[0] = order.blocked;
  }
  return desc;
}

// The order of a layout: that of its strides. Row by row for what has other blocks, padding or gaps.
Order OrderOf(const Desc& desc) {
  Order order;
  order.axes.resize(desc.data.ndims);
  std::iota(order.axes.begin(), order.axes.end(), 0);
  if (desc.data.format_kind != dnnl_blocked) return order;
  const auto& blocking = desc.data.format_desc.blocking;
  if (blocking.inner_nblks > 1 || desc.data.offset0 != 0) return order;
  Order found = order;
  if (blocking.inner_nblks == 1) {
    found.blocked = static_cast<int>(blocking.inner_idxs[0]);
    found.block = blocking.inner_blks[0];
    if (desc.data.dims[found.blocked] % found.block != 0) return order;
  }
  std::stable_sort(found.axes.begin(), found.axes.end(),
                   [&](int a, int b) { return blocking.strides[a] > blocking.strides[b]; });
  const Dims dims = desc.dims();
  const Desc compact = Laid(found, dims, desc.data_type());
  for (int axis = 0; axis < desc.data.ndims; ++axis) {
    const int64_t extent = axis == found.blocked ? dims[axis] / found.block : dims[axis];
    if (extent != 1 && compact.data.format_desc.blocking.strides[axis] != blocking.strides[axis])
      return order;
  }
  return found;
}

// A piece of work is at least so many bytes: with two threads of a Zen 4 a second one costs time up to 128 KB
// in all (3.0 for 2.7 us) and saves some from 256 KB on (5.9 for 6.4 us; of 1 MB 15 for 22).
constexpr size_t kLeastPiece = 128 << 10;

// Copies parts, rows of so many bytes each, behind one another. data: the parts, the result.
native::PieceWork Copies(const std::vector<size_t>& parts, size_t rows, int threads) {
  const size_t row = std::accumulate(parts.begin(), parts.end(), size_t{0}), all = rows * row;
  const int pieces = static_cast<int>(std::clamp<size_t>(all / kLeastPiece, 1, static_cast<size_t>(threads)));
  return {pieces, [=](void* const* data, int piece) {
            const size_t begin = all * piece / pieces, end = all * (piece + 1) / pieces;
            auto* const to = static_cast<char*>(data[parts.size()]);
            for (size_t at = begin; at < end;) {
              const size_t number = at / row;
              size_t within = at % row, part = 0;
              for (; within >= parts[part]; ++part) within -= parts[part];
              const size_t bytes = std::min(parts[part] - within, end - at);
              std::memcpy(to + at, static_cast<const char*>(data[part]) + number * parts[part] + within,
                          bytes);
              at += bytes;
            }
          }};
}

}  // namespace

void Compiler::Concat(const Op& op) {
  const int axis = op.axes.at(0);
  const ValueType& made = type(op.out);
  // As the largest part lies, if the others fill its blocks, too.
  const auto larger = [&](int a, int b) { return Elements(type(a).dims) < Elements(type(b).dims); };
  Order order = OrderOf(tensor(*std::max_element(op.in.begin(), op.in.end(), larger)).desc);
  if (order.blocked == axis &&
      std::any_of(op.in.begin(), op.in.end(), [&](int v) { return type(v).dims[axis] % order.block != 0; })) {
    order = OrderOf(RowMajor(made.dims, made.dtype));
  }
  // What lies in front of the axis, whose own blocks are behind it.
  size_t rows = 1;
  for (const int outer : order.axes) {
    if (outer == axis) break;
    rows *= outer == order.blocked ? made.dims[outer] / order.block : made.dims[outer];
  }
  std::vector<Tensor> tensors;
  std::vector<size_t> parts;
  for (const int value : op.in) {
    const Desc desc = Laid(order, type(value).dims, made.dtype);
    tensors.push_back(Wanted(value, desc));
    parts.push_back(desc.get_size() / rows);
  }
  const Tensor to = NewTensor(Laid(order, made.dims, made.dtype));
  tensors.push_back(to);
  AddWork("concat", tensors, Copies(parts, rows, collage_num_threads()));
  Finish(op, 0, to);
}

}  // namespace collage::onednn
