// SPDX-License-Identifier: Apache-2.0
//
// Dense layers for the kernel of our own (native/product.h): which it takes, and several with one left side
// in one step.
#include <memory>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/product.h"

namespace collage::onednn {
namespace {

// How many tensors one layer adds on the way out.
constexpr size_t kMostAddends = 4;

}  // namespace

std::vector<Op> Compiler::Parts(const Op& op) const {
  Op part = op;
  part.more.clear();
  const size_t step = op.bias ? 2 : 1;
  std::vector<Op> parts;
  for (size_t i = 0; i <= op.more.size(); ++i) {
    const auto weight = op.in.begin() + static_cast<std::ptrdiff_t>(1 + i * step);
    part.in = {op.in[0]};
    part.in.insert(part.in.end(), weight, weight + static_cast<std::ptrdiff_t>(step));
    part.out = i == 0 ? op.out : op.more[i - 1];
    parts.push_back(part);
  }
  return parts;
}

bool Compiler::Product(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const ValueType& left = type(op.in[0]);
  if (op.transpose_a || left.dtype != f32 || left.dims.size() != 2) return false;
  // Those that the kernel does, from the first on; what follows is done behind it.
  const OwnPosts posts = OwnPostsOf(op, program_.values, op.more.empty() ? kMostAddends : 0);
  const std::vector<Op> parts = Parts(op);
  std::vector<int64_t> columns;
  for (const Op& part : parts) {
    const ValueType& out = type(part.out);
    if (out.dtype != f32 || out.dims.size() != 2 || !IsConstant(part.in[1]) ||
        type(part.in[1]).dtype != f32 || (part.bias && !IsConstant(part.in[2]))) {
      return false;
    }
    columns.push_back(out.dims[1]);
  }

  const int64_t length = left.dims[1];
  auto weights = std::make_shared<PackedWeights>(length, columns);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto numbers = [&](int value) {
      return static_cast<const float*>(buffers_[Plain(value).buffer].data);
    };
    weights->Add(numbers(parts[i].in[1]), op.transpose_b ? 1 : columns[i], op.transpose_b ? length : 1,
                 op.bias ? numbers(parts[i].in[2]) : nullptr);
  }
  weights->Share();
  if (last_weights_ != nullptr) last_weights_->next = weights.get();
  last_weights_ = weights;

  std::vector<Tensor> tensors = {Plain(op.in[0])};
  for (const int addend : posts.addends) tensors.push_back(Plain(addend));
  std::vector<Tensor> results;
  results.reserve(parts.size());
  for (const Op& part : parts) results.push_back(NewTensor(RowMajor(type(part.out).dims, f32)));
  tensors.insert(tensors.end(), results.begin(), results.end());
  AddWork("product", tensors, ProductKernel(weights, left.dims[0], posts.list, collage_num_threads()));
  for (size_t i = 0; i < parts.size(); ++i) Finish(parts[i], posts.list.size(), results[i]);
  return true;
}

}  // namespace collage::onednn
