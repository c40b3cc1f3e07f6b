// SPDX-License-Identifier: Apache-2.0
#include "dnnl_packed_program.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace collage::onednn {
namespace {

int64_t Product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

const Dims& ValidDims(const Program& program) { return program.values[program.packed.valid].dims; }

int64_t PaddedRows(const Program& program) { return ValidDims(program)[0] * ValidDims(program)[1]; }

bool IsPackedAttention(const Program& program, const Op& op) {
  return op.kind == "attention" && program.packed.axes.count(op.out) > 0;
}

bool IsRagged(const Program& program) { return program.packed.valid >= 0; }

void CheckPacked(const Program& program) {
  const auto want = [](bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error("what is packed: " + what);
  };
  const Packed& packed = program.packed;
  want(std::find(program.inputs.begin(), program.inputs.end(), packed.valid) != program.inputs.end(),
       "no input says which rows are tokens");
  const ValueType& valid = program.values[packed.valid];
  want(valid.truth && valid.dims.size() >= 2 && Product(valid.dims) == valid.dims[0] * valid.dims[1],
       "which rows are tokens is said by no truths of batch and length");
  want(PaddedRows(program) <= std::numeric_limits<int32_t>::max(), "there are too many rows");
  std::set<int> made;
  for (const Op& op : program.ops) {
    made.insert(op.out);
    made.insert(op.more.begin(), op.more.end());
  }
  for (const auto& [value, axes] : packed.axes) {
    const Dims& dims = program.values[value].dims;
    const std::string name = "value " + std::to_string(value);
    want(made.count(value) > 0, name + " is made by nothing");
    want(axes >= 1 && axes <= static_cast<int>(dims.size()), name + " has not so many axes");
    want(Product({dims.begin(), dims.begin() + axes}) == PaddedRows(program),
         name + " has not a row for each place");
  }
  for (const int value : program.outputs) {
    want(packed.axes.count(value) == 0, "value " + std::to_string(value) + " leaves the region");
  }
  for (const Op& op : program.ops) {
    const bool to = packed.axes.count(op.out) > 0;
    const auto given = [&](int value) { return packed.axes.count(value) > 0; };
    if (op.kind == "gather_tokens") {
      want(to && !given(op.in[0]), "what is gathered is no padded value");
    } else if (op.kind == "clear_padding") {
      want(!to, "what has its padding is packed");
      want(!given(op.in[0]) || op.in[1] == packed.valid, "padding is that of other rows");
    } else {
      want(to || std::none_of(op.in.begin(), op.in.end(), given), "it is read by what is not");
    }
    if (!IsPackedAttention(program, op)) continue;
    want(std::any_of(op.masks.begin(), op.masks.end(), [](const MaskForm& mask) { return !mask.triangle; }),
         "attention sees padding");
    for (size_t m = 0; m < op.masks.size(); ++m) {
      // Tokens between which padding was stand side by side.
      want(!op.masks[m].triangle || (op.masks[m].sees == 1 && op.views[4 + m].strides[0] == 0),
           "a triangle is not that of all sequences");
    }
    for (size_t i = 0; i < 4; ++i) {
      const View& view = op.views[i];
      const int value = i == 3 ? op.out : op.in[i];
      // Each row of the tensor is one of a sequence, and what is seen of it lies within it.
      const bool turned = packed.turned.count(value) > 0;
      const int64_t batch = ValidDims(program)[0], length = ValidDims(program)[1];
      const int64_t width = Product(program.values[value].dims) / PaddedRows(program);
      int64_t last = view.offset;
      for (const size_t axis : {1, 2, 4}) last += (view.dims[axis] - 1) * view.strides[axis];
      want(given(value) && view.dims[0] == batch && view.dims[3] == length &&
               (length == 1 || view.strides[3] == (turned ? width * batch : width)) &&
               (batch == 1 || view.strides[0] == (turned ? width : width * length)) && last < width,
           "attention does not read it row by row");
    }
  }
}

Program AtTokens(const Program& program, int64_t rows,
                 const std::shared_ptr<const native::RaggedRows>& tokens,
                 const std::function<bool(const Op&, size_t mask)>& keeps) {
  Program some = program;
  some.tokens = tokens;
  for (const auto& [value, axes] : program.packed.axes) {
    Dims& dims = some.values[value].dims;
    std::fill_n(dims.begin(), axes, 1);
    dims[axes - 1] = rows;
  }
  for (Op& op : some.ops) {
    if (op.kind == "transpose" && program.packed.axes.count(op.out) > 0 &&
        program.packed.turned.count(op.out) != program.packed.turned.count(op.in[0])) {
      op.kind = "reshape";  // of sequences and places: the same tokens
      op.perm.clear();
    }
    if (!IsPackedAttention(program, op)) continue;
    std::vector<int> in(op.in.begin(), op.in.begin() + 3);
    std::vector<View> views(op.views.begin(), op.views.begin() + 4);
    std::vector<MaskForm> masks;
    for (size_t m = 0; m < op.masks.size(); ++m) {
      if (!op.masks[m].triangle && !keeps(op, m)) continue;
      in.push_back(op.in[3 + m]);
      views.push_back(op.views[4 + m]);
      masks.push_back(op.masks[m]);
    }
    for (size_t i = 0; i < 4; ++i) {
      views[i].dims[0] = 1;
      views[i].dims[3] = rows;
      views[i].strides[3] = Product(program.values[i == 3 ? op.out : op.in[i]].dims) / PaddedRows(program);
    }
    op.in = std::move(in);
    op.views = std::move(views);
    op.masks = std::move(masks);
  }
  return some;
}

}  // namespace collage::onednn
