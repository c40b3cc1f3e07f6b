// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and dense layers as products of bytes, by oneDNN's own kernels. What is rounded, and to what,
// is as in dnnl_bytes.cc: each image, and each row of a dense layer, has a scale and a zero of its own, found
// when the data are there, and each output channel has its weights' scale.
//
// oneDNN 2.6 takes no scales of convolutions at run time, but it does take zeros, and numbers for each
// channel that post-operations read: the scales are the first of these, the bias is the second. Its products
// know one zero for all rows, with slower kernels; so they make sums of bytes as they are, and
// native/byte_sums.h does the rest.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "dnnl_posts.h"
#include "instruction_set.h"
#include "native/byte_convolution.h"
#include "native/byte_sums.h"
#include "native/divide_up.h"

namespace collage::onednn {
namespace {

constexpr auto kF32 = dnnl::memory::data_type::f32, kS8 = dnnl::memory::data_type::s8,
               kU8 = dnnl::memory::data_type::u8, kS32 = dnnl::memory::data_type::s32;

// How many tensors one layer adds on the way out.
constexpr size_t kMostAddends = 4;

Desc Row(int64_t size, dnnl::memory::data_type dtype) {
  return Desc({size}, dtype, dnnl::memory::format_tag::a);
}

// Images of dims batch, channels, rows, columns as they lie, channels innermost: oneDNN pads by itself. Bytes
// of a line are a multiple of 4, so where the channels are none, whole rows or images are taken for a pixel.
ByteImages WithoutPadding(const Dims& dims) {
  ByteImages images;
  images.images = dims[0];
  images.height = dims[2];
  images.width = dims[3];
  images.channels = dims[1];
  if (images.channels % 4 != 0) images.channels *= std::exchange(images.width, 1);
  if (images.channels % 4 != 0) images.channels *= std::exchange(images.height, 1);
  images.padded_height = images.height;
  images.padded_width = images.width;
  return images;
}

// Signed bytes as a view shows them, one behind the other.
std::vector<int8_t> Gathered(const int8_t* plain, const View& view) {
  std::vector<int8_t> all;
  all.reserve(static_cast<size_t>(Elements(view.dims)));
  ForEachElement(view, [&](const std::vector<int64_t>&, int64_t place) { all.push_back(plain[place]); });
  return all;
}

// As oneDNN packs weights, which it only reads.
void Pack(const int8_t* from, const Desc& as, const Desc& to, void* packed) {
  dnnl::stream stream(CpuEngine());
  dnnl::memory source(as, CpuEngine(), const_cast<int8_t*>(from));
  dnnl::memory target(to, CpuEngine(), packed);
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

// A list of post-operations behind another one.
void Append(dnnl::post_ops* list, const dnnl::post_ops& more) {
  for (int i = 0; i < more.len(); ++i) {
    float scale = 1, alpha = 0, beta = 0;
    auto algorithm = dnnl::algorithm::undef;
    switch (more.kind(i)) {
      case dnnl::primitive::kind::eltwise:
        more.get_params_eltwise(i, scale, algorithm, alpha, beta);
        list->append_eltwise(scale, algorithm, alpha, beta);
        break;
      case dnnl::primitive::kind::sum:
        more.get_params_sum(i, scale);
        list->append_sum(scale);
        break;
      default:
        Desc operand;
        more.get_params_binary(i, algorithm, operand);
        list->append_binary(algorithm, operand);
    }
  }
}

// A primitive that a step of ours calls with the addresses of its arguments, in the order in which they were
// named. Not to be called twice at the same time.
class Call {
 public:
  explicit Call(const dnnl::primitive_desc& desc) : primitive_(desc.get()), stream_(CpuEngine()) {}

  void Name(int argument, const Desc& desc) {
    memories_.push_back(dnnl::memory(desc, CpuEngine(), DNNL_MEMORY_NONE));
    arguments_.push_back({argument, memories_.back().get()});
  }
  void operator()(void* const* addresses) {
    for (size_t i = 0; i < memories_.size(); ++i) memories_[i].set_data_handle(addresses[i]);
    const auto count = static_cast<int>(arguments_.size());
    const auto* const arguments = arguments_.data();
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream_.get(), count, arguments),
                            "oneDNN could not multiply bytes");
    stream_.wait();
  }

 private:
  dnnl::primitive primitive_;
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

}  // namespace

bool Compiler::LibraryBytes(const Op& op) {
  // Without the instruction sums of two products of bytes are cut off at 16 bits.
  if (AllowedInstructionSet() < InstructionSet::kAvx512Vnni) return false;
  // The weights of one that could not be done so before have become float32.
  if (type(op.in[1]).dtype != kS8) return false;
  // Beyond these the sums would not be exact.
  if (Elements(type(op.in[1]).dims) / Elements(type(op.in.back()).dims) > kMostTerms) return false;
  return op.kind == "conv" ? BytesConvolution(op) : BytesProduct(op);
}

bool Compiler::BytesConvolution(const Op& op) {
  const Dims from = Permuted(type(op.in[0]).dims, op.perm), to = Permuted(type(op.out).dims, op.perm);
  if (from.size() != 4) return false;
  const ByteImages images = WithoutPadding(from);
  const int64_t image = Elements(from) / from[0], result_image = Elements(to) / to[0], channels = to[1];
  // Images with scales of their own are convolved one by one, without what post-operations read of one image
  // only.
  const bool together = from[0] == 1 || (grids_[op.in[0]] && images.Image() == image);
  const int64_t calls = together ? 1 : from[0];
  Op one = op;
  Dims data = from, result = to;
  if (!together) {
    data[0] = result[0] = 1;
    const auto full = std::find_if(one.post.begin(), one.post.end(), [&](const PostOp& post) {
      return post.kind == PostOp::Kind::kBinary && type(post.operand).dims == type(op.out).dims;
    });
    one.post.erase(full, one.post.end());
  }

  const Desc src = ChannelsLast(data, kU8), dst = ChannelsLast(result, kF32);
  const Desc weights(op.weight.dims, kS8, dnnl::memory::format_tag::any);
  const Desc of_channel = RowMajor({1, channels, 1, 1}, kF32);
  Dims gaps = op.dilation;
  for (int64_t& gap : gaps) --gap;
  const MakeDesc make = [&](const dnnl::primitive_attr& attr) -> dnnl::primitive_desc {
    dnnl::primitive_attr with;
    with.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    with.set_zero_points(DNNL_ARG_SRC, 0, {DNNL_RUNTIME_S32_VAL});
    dnnl::post_ops list;
    list.append_binary(dnnl::algorithm::binary_mul, of_channel);
    if (op.bias) list.append_binary(dnnl::algorithm::binary_add, of_channel);
    Append(&list, attr.get_post_ops());
    with.set_post_ops(list);
    const dnnl::convolution_forward::desc desc(dnnl::prop_kind::forward_inference, op.algorithm, src, weights,
                                               dst, op.strides, gaps, op.pad_front, op.pad_back);
    return dnnl::convolution_forward::primitive_desc(desc, with, CpuEngine());
  };
  // Nothing is gained by the implementation that is there for want of a better one.
  const std::string implementation = make({}).impl_info_str();
  if (implementation.rfind("ref", 0) == 0) return false;
  const Fused fused = Fuse(one, op.perm, make);

  const Rounded rounded =
      WantedAsBytes(op.in[0], Transposed(ChannelsLast(from, kF32), Inverse(op.perm)), images);
  const Desc packed_as = fused.desc.query_md(dnnl::query::weights_md, 0);
  const Tensor packed =
      WantedPacked(op.in[1], Seen(op.weight, kS8), packed_as, [&](const void* plain, void* memory) {
        const std::vector<int8_t> all = Gathered(static_cast<const int8_t*>(plain), op.weight);
        Pack(all.data(), RowMajor(op.weight.dims, kS8), packed_as, memory);
      });
  const Tensor scales = NewTensor(Row(channels, kF32));
  const Tensor out = together ? Destination(op, op.perm, fused)
                              : NewTensor(Transposed(ChannelsLast(to, kF32), Inverse(op.perm)));

  // What the step is given: of all but the last one, or of a part of it, the call has an argument.
  std::vector<Tensor> tensors = {rounded.bytes, rounded.scales, out, scales, packed};
  const auto call = std::make_shared<Call>(fused.desc);
  call->Name(DNNL_ARG_SRC, src);
  call->Name(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, Row(1, kS32));
  call->Name(DNNL_ARG_DST, dst);
  call->Name(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, of_channel);
  call->Name(DNNL_ARG_WEIGHTS, packed_as);
  if (op.bias) {
    tensors.push_back(Plain(op.in[2]));
    call->Name(DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1, of_channel);
  }
  const int ahead = (op.bias ? 2 : 1) * DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE;
  for (const auto& [argument, tensor] : fused.arguments) {
    tensors.push_back(tensor);
    call->Name(argument + ahead, tensor.desc);
  }
  const Desc scratchpad = fused.desc.scratchpad_desc();
  if (scratchpad.get_size() > 0) {
    tensors.push_back(NewTensor(scratchpad));
    call->Name(DNNL_ARG_SCRATCHPAD, scratchpad);
  }
  const size_t given = tensors.size();
  tensors.push_back(Plain(op.in.back()));
  const int64_t bytes = images.Image();
  AddKernel("conv int8 " + implementation, tensors,
            [call, calls, channels, bytes, result_image, given](void* const* data) {
              std::vector<void*> addresses(data, data + given);
              auto* const by = static_cast<ByteScale*>(data[1]);
              auto* const scales = static_cast<float*>(data[3]);
              const auto* const of_weights = static_cast<const float*>(data[given]);
              for (int64_t n = 0; n < calls; ++n) {
                addresses[0] = static_cast<uint8_t*>(data[0]) + n * bytes;
                addresses[1] = &by[n].zero;
                addresses[2] = static_cast<float*>(data[2]) + n * result_image;
                for (int64_t c = 0; c < channels; ++c) scales[c] = of_weights[c] * by[n].scale;
                (*call)(addresses.data());
              }
            });
  Finish(op, fused.count, out);
  return true;
}

bool Compiler::BytesProduct(const Op& op) {
  const Dims &left = type(op.in[0]).dims, &out = type(op.out).dims;
  if (op.transpose_a || left.size() != 2 || out.size() != 2) return false;
  const int64_t rows = left[0], length = left[1], columns = out[1];
  ByteImages images;  // of one pixel
  images.images = rows;
  images.channels = length;
  const int64_t padded = images.Channels();

  const Desc src = RowMajor({rows, padded}, kU8), sums_as = RowMajor(out, kS32);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc desc(
      dnnl::matmul::desc(src, Desc({padded, columns}, kS8, dnnl::memory::format_tag::any), sums_as), attr,
      CpuEngine());
  const Rounded rounded = WantedAsBytes(op.in[0], RowMajor(left, kF32), images);

  // The weights as [length, columns]: read as they lie, but where zeros have to be beyond the length.
  View view;
  view.dims = {length, columns};
  view.strides = {op.transpose_b ? 1 : columns, op.transpose_b ? length : 1};
  const Desc seen = Seen(view, kS8), packed_as = desc.weights_desc();
  const Tensor packed = WantedPacked(op.in[1], seen, packed_as, [&](const void* plain, void* memory) {
    const auto* const bytes = static_cast<const int8_t*>(plain);
    if (padded == length) return Pack(bytes, Desc(view.dims, kS8, view.strides), packed_as, memory);
    std::vector<int8_t> all(static_cast<size_t>(padded * columns), 0);
    auto to = all.begin();
    ForEachElement(view, [&](const std::vector<int64_t>&, int64_t place) { *to++ = bytes[place]; });
    Pack(all.data(), RowMajor({padded, columns}, kS8), packed_as, memory);
  });
  const OwnPosts posts = OwnPostsOf(op, program_.values, kMostAddends);
  const auto scaling =
      std::make_shared<const ByteSums>(ByteSums{rows, columns, posts.list, collage_num_threads()});
  const Tensor of_columns =
      WantedPacked(op.in[1], seen, Row(static_cast<int64_t>(scaling->PackedSize()), kU8),
                   [&](const void* plain, void* memory) {
                     const auto* const bytes = static_cast<const int8_t*>(plain);
                     std::vector<int32_t> sums(static_cast<size_t>(columns), 0);
                     ForEachElement(view, [&](const std::vector<int64_t>& at, int64_t place) {
                       sums[static_cast<size_t>(at[1])] += bytes[place];
                     });
                     scaling->Pack(Scales(op), sums.data(), memory);
                   });

  const Tensor sums = NewTensor(sums_as);
  AddPrimitive(
      "matmul int8", desc,
      {{DNNL_ARG_SRC, {src, rounded.bytes.buffer}}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, sums}});
  std::vector<Tensor> tensors = {sums, rounded.scales, of_columns};
  if (op.bias) tensors.push_back(Plain(op.in[2]));
  const Tensor result = AddResult(op, posts.addends, RowMajor(out, kF32), &tensors);
  AddKernel("scale sums of bytes", tensors,
            [scaling, bias = op.bias, count = posts.addends.size()](void* const* data) {
              const auto* const sums = static_cast<const int32_t*>(data[0]);
              const auto* const scales = static_cast<const ByteScale*>(data[1]);
              const void* const of_columns = data[2];
              data += 3;
              const float* const biases = bias ? static_cast<const float*>(*data++) : nullptr;
              std::array<const float*, kMostAddends> list{};
              for (size_t i = 0; i < count; ++i) list[i] = static_cast<const float*>(*data++);
              scaling->Run(sums, scales, of_columns, biases, list.data(), static_cast<float*>(*data));
            });
  Finish(op, posts.list.size(), result);
  return true;
}

}  // namespace collage::onednn
