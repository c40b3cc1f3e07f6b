// SPDX-License-Identifier: Apache-2.0
#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "native/attention.h"

namespace collage::onednn {

bool Compiler::Attention(const Op& op) {
  // Views of query, key, value, result, and masks; dims are batch, groups, heads, rows, columns.
  const auto steps = [](const View& view) {
    const Dims& s = view.strides;
    return HeadSteps{s.at(0), s.at(1), s.at(2), s.at(3), s.at(4), view.offset};
  };
  const View &query = op.views[0], &key = op.views[1], &value = op.views[2], &result = op.views[3];
  AttentionShape shape;
  shape.batch = query.dims.at(0);
  shape.groups = query.dims.at(1);
  shape.heads = query.dims.at(2);
  shape.queries = query.dims.at(3);
  shape.keys = key.dims.at(3);
  shape.size = query.dims.at(4);
  shape.value_size = value.dims.at(4);
  shape.scale = op.alpha;
  shape.cleared = op.cleared;
  shape.query = steps(query);
  shape.key = steps(key);
  shape.value = steps(value);
  shape.result = steps(result);
  if (program_.IsPacked(op.out)) {
    shape.ragged = program_.tokens;
    shape.batch = shape.ragged->batch();
    shape.queries = shape.keys = shape.ragged->length();
  }
  for (const MaskForm& mask : op.masks) {
    if (mask.triangle) {
      shape.triangle = shape.num_masks;
      shape.sees = mask.sees;
      shape.beyond = mask.beyond;
    }
    shape.masks[shape.num_masks] = {steps(op.views.at(4 + shape.num_masks)), mask.chooses, mask.keeps,
                                    mask.fill};
    ++shape.num_masks;
  }

  std::vector<Tensor> tensors;
  for (const int argument : op.in) tensors.push_back(Plain(argument));
  const Tensor to = NewTensor(RowMajor(type(op.out).dims, type(op.out).dtype));
  tensors.push_back(to);
  const int threads = collage_num_threads();
  tensors.push_back(NewTensor(RowMajor({AttentionScratch(shape, threads)}, dnnl::memory::data_type::u8)));
  AddWork("attention", tensors, AttentionKernel(shape, threads));
  Finish(op, 0, to);
  return true;
}

}  // namespace collage::onednn
