// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "native/attention.h"

namespace collage::onednn {

bool Compiler::Attention(const Op& op) {
  // Views of query, key, value, result, and the mask where there is one; dims are batch, heads, rows,
  // columns.
  const bool masked = op.in.size() == 4;
  if (op.in.size() < 3 || op.views.size() != op.in.size() + 1) {
    throw std::runtime_error("attention is written with " + std::to_string(op.in.size()) + " arguments and " +
                             std::to_string(op.views.size()) + " views");
  }
  const auto steps = [](const View& view) {
    return HeadSteps{view.strides.at(0), view.strides.at(1), view.strides.at(2), view.strides.at(3)};
  };
  const View &query = op.views[0], &key = op.views[1], &value = op.views[2], &result = op.views[3];
  AttentionShape shape;
  shape.batch = query.dims.at(0);
  shape.heads = query.dims.at(1);
  shape.queries = query.dims.at(2);
  shape.keys = key.dims.at(2);
  shape.size = query.dims.at(3);
  shape.value_size = value.dims.at(3);
  shape.scale = op.alpha;
  shape.query = steps(query);
  shape.key = steps(key);
  shape.value = steps(value);
  shape.result = steps(result);
  shape.num_masks = masked ? 1 : 0;
  if (masked) shape.masks[0] = steps(op.views[4]);

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
