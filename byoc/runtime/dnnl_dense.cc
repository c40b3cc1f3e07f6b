// SPDX-License-Identifier: Apache-2.0
//
// Products for the kernel of our own (native/product.h): dense layers, several with one left side in one
// step, and batches of products.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "native/product.h"
#include "shared_constants.h"

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

bool Compiler::DenseProduct(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const ValueType& left = type(op.in[0]);
  if (left.dims.size() == 3) return ProductOfBatches(op);
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
  std::string key = op.transpose_b ? "product, turned " : "product ";
  for (const Op& part : parts) {
    for (size_t i = 1; i < part.in.size(); ++i) key += buffers_[Plain(part.in[i]).buffer].made_of;
  }
  const auto weights = Made<PackedWeights>(key, [&] {
    auto made = std::make_shared<PackedWeights>(length, columns);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto numbers = [&](int value) {
        return static_cast<const float*>(buffers_[Plain(value).buffer].data);
      };
      made->Add(numbers(parts[i].in[1]), op.transpose_b ? 1 : columns[i], op.transpose_b ? length : 1,
                op.bias ? numbers(parts[i].in[2]) : nullptr);
    }
    made->Share(Shared);
    return made;
  });
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

bool Compiler::ProductOfBatches(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const Dims &left = type(op.in[0]).dims, &right = type(op.in[1]).dims, &out = type(op.out).dims;
  if (!op.more.empty() || op.bias || op.transpose_a || right.size() != 3 || out.size() != 3) return false;
  const OwnPosts posts = OwnPostsOf(op, program_.values, kMostAddends);
  const int64_t rows = out[1], columns = out[2], length = left[2];
  auto product = std::make_shared<BatchProduct>();
  product->batch = out[0];
  product->length = length;
  product->columns = columns;
  product->left_batch = left[0] == 1 ? 0 : rows * length;
  product->left_row = length;
  product->right_batch = right[0] == 1 ? 0 : length * columns;
  product->right_row = op.transpose_b ? 1 : columns;
  product->right_column = op.transpose_b ? length : 1;
  product->result_batch = rows * columns;
  product->result_row = columns;
  product->posts = posts.list;

  const int threads = collage_num_threads();
  const Tensor result = NewTensor(RowMajor(out, f32));
  std::vector<Tensor> tensors = {Plain(op.in[0]), Plain(op.in[1]), result,
                                 NewTensor(RowMajor({product->Scratch(threads)}, f32))};
  for (const int addend : posts.addends) tensors.push_back(Plain(addend));
  const int pieces = product->Pieces(rows, threads);
  const size_t addends = posts.addends.size();
  AddWork("product", tensors, {pieces, [=](void* const* data, int piece) {
                                 std::array<Operand, kMostAddends> operands;
                                 for (size_t i = 0; i < addends; ++i) {
                                   operands[i] = {static_cast<const float*>(data[4 + i]), columns};
                                 }
                                 BatchProduct::Arguments a;
                                 a.rows = rows;
                                 a.left = static_cast<const float*>(data[0]);
                                 a.right = static_cast<const float*>(data[1]);
                                 a.result = static_cast<float*>(data[2]);
                                 a.scratch = static_cast<float*>(data[3]);
                                 a.operands = operands.data();
                                 a.operand_rows = rows;
                                 product->Run(a, piece, pieces);
                               }});
  Finish(op, posts.list.size(), result);
  return true;
}

}  // namespace collage::onednn
