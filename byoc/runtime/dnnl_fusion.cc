// SPDX-License-Identifier: Apache-2.0
//
// Post-operations: what happens to an operator's result on its way out.
//
// oneDNN takes any list of them and, where its good implementation cannot do one, quietly falls back to a
// worse one. So the list is shortened from its end until the implementation is the one that it chooses
// without any; the rest follows as operators of their own, in place.
#include <string>

#include "dnnl_compiler.h"

namespace collage::onednn {
namespace {

// How many of an operator's post-operations can be in one list: up to one that oneDNN does not have. Its
// kernels may keep one generator of code for each elementwise algorithm: a second post-operation of the same
// algorithm would run with the first one's numbers.
size_t LongestList(const std::vector<PostOp>& post) {
  for (size_t i = 0; i < post.size(); ++i) {
    if (post[i].kind == PostOp::Kind::kEltwise && post[i].algorithm == kGrid) return i;
    for (size_t k = 0; k < i; ++k) {
      if (post[i].kind == PostOp::Kind::kEltwise && post[k].kind == PostOp::Kind::kEltwise &&
          post[i].algorithm == post[k].algorithm &&
          (post[i].alpha != post[k].alpha || post[i].beta != post[k].beta)) {
        return i;
      }
    }
  }
  return post.size();
}

// Whether some window of a convolution lies wholly in the padding, along one dimension of space.
bool HasWindowInPadding(const Op& op, const Dims& data, const Dims& result) {
  for (size_t i = 0; i < op.strides.size(); ++i) {
    const int64_t taps = op.weight.dims[op.weight.dims.size() - op.strides.size() + i];
    const int64_t extent = data[2 + i];
    for (int64_t o = 0; o < result[2 + i]; ++o) {
      const int64_t begin = o * op.strides[i] - op.pad_front[i];
      // The first tap that is not in front of the data.
      const int64_t first = begin >= 0 ? 0 : (op.dilation[i] - 1 - begin) / op.dilation[i];
      if (first >= taps || begin + first * op.dilation[i] >= extent) return true;
    }
  }
  return false;
}

}  // namespace

Compiler::Fused Compiler::Fuse(const Op& op, const std::vector<int>& perm, const MakeDesc& make) {
  dnnl::primitive_attr bare;
  bare.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  Fused fused;
  fused.desc = make(bare);
  const std::string implementation = fused.desc.impl_info_str();
  const Desc result = fused.desc.query_md(dnnl::query::dst_md, 0);
  const Desc own = Transposed(result, Inverse(perm));
  const Dims& dims = type(op.out).dims;

  // A residual value that is added can be accumulated into, in the memory where it lies. That destroys it, so
  // where it is needed again it is better read by a binary post-operation, if the implementation has those.
  // oneDNN's pools and resampling take a sum and leave it out, without a word; they do know binary ones.
  // Its convolutions for AVX-512 forget the bias, and read the constants of an activation from nowhere, where
  // they accumulate into rows of which every window lies in the padding.
  const bool accumulates =
      fused.desc.get_kind() != dnnl::primitive::kind::pooling_v2 &&
      fused.desc.get_kind() != dnnl::primitive::kind::resampling &&
      !(op.kind == "conv" && HasWindowInPadding(op, Permuted(type(op.in[0]).dims, perm), result.dims()));
  auto sum_first = [&](int value) {
    for (const Tensor& one : tensors_[value]) {
      if (SameLayout(one.desc, own)) return Overwritable(one) && !Reads(op, one.buffer, value);
    }
    return true;
  };

  for (size_t count = LongestList(op.post); count > 0; --count) {
    for (const bool accumulate : {true, false}) {
      dnnl::post_ops list;
      Fused tried;
      tried.count = count;
      bool has_full = false;
      for (size_t i = 0; i < count; ++i) {
        const PostOp& post = op.post[i];
        if (post.kind == PostOp::Kind::kEltwise) {
          list.append_eltwise(1.0F, post.algorithm, post.alpha, post.beta);
          continue;
        }
        const bool full = type(post.operand).dims == dims;
        has_full |= full;
        const bool sum = accumulates && full && tried.sum < 0 &&
                         post.algorithm == dnnl::algorithm::binary_add &&
                         accumulate == sum_first(post.operand);
        if (sum) {
          list.append_sum(1.0F);
          tried.sum = post.operand;
          continue;
        }
        const Desc operand = full ? result
                                  : Transposed(RowMajor(Aligned(type(post.operand).dims, dims.size()),
                                                        type(post.operand).dtype),
                                               perm);
        list.append_binary(post.algorithm, operand);
        // What the step reads is asked for only when it is clear that it is wanted.
        tried.arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1,
                                   Tensor{operand, post.operand}});
      }
      dnnl::primitive_attr attr;
      attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      attr.set_post_ops(list);
      try {
        tried.desc = make(attr);
      } catch (const dnnl::error&) {
        continue;
      }
      if (implementation != tried.desc.impl_info_str() ||
          tried.desc.query_md(dnnl::query::dst_md, 0) != result) {
        if (!has_full) break;
        continue;
      }
      for (auto& [argument, tensor] : tried.arguments) {
        (void)argument;
        const int value = tensor.buffer;  // the value, up to here
        tensor = type(value).dims == dims ? Tensor{tensor.desc, Wanted(value, own).buffer}
                                          : Tensor{tensor.desc, Plain(value).buffer};
      }
      return tried;
    }
  }
  return fused;
}

bool Compiler::Reads(const Op& op, int buffer, int except) const {
  auto lies_there = [&](int value) {
    if (value < 0 || value == except) return false;
    for (const Tensor& one : tensors_[value]) {
      if (one.buffer == buffer) return true;
    }
    return false;
  };
  int times = 0;
  for (const int value : op.in) {
    if (lies_there(value)) return true;
    times += value == except ? 2 : 0;  // the operator's own argument
  }
  for (const PostOp& post : op.post) {
    if (lies_there(post.operand)) return true;
    times += post.operand == except ? 1 : 0;
  }
  return times > 1;
}

Tensor Compiler::Destination(const Op& op, const std::vector<int>& perm, const Fused& fused) {
  const Desc own = Transposed(fused.desc.query_md(dnnl::query::dst_md, 0), Inverse(perm));
  if (fused.sum < 0) return NewTensor(own);
  for (const Tensor& one : tensors_[fused.sum]) {
    if (SameLayout(one.desc, own) && Overwritable(one) && !Reads(op, one.buffer, fused.sum)) {
      return {own, one.buffer};
    }
  }
  const Tensor copy = NewTensor(own);
  AddReorder(tensor(fused.sum), copy);
  return copy;
}

void Compiler::Finish(const Op& op, size_t from, Tensor tensor) {
  for (size_t i = from; i < op.post.size(); ++i) {
    const PostOp& post = op.post[i];
    tensor = post.kind == PostOp::Kind::kEltwise
                 ? ApplyEltwise(tensor, post.algorithm, post.alpha, post.beta, /*in_place=*/true)
                 : ApplyBinary(post.algorithm, tensor, post.operand, /*in_place=*/true);
  }
  Define(op.out, tensor);
}

}  // namespace collage::onednn
