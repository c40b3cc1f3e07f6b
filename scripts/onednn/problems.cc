// SPDX-License-Identifier: Apache-2.0
//
// What oneDNN takes for the primitives that the dnnl backend asks of it, in float32, bfloat16 and int8: a
// line for each, "name<TAB>implementation<TAB>milliseconds" (the tenth percentile of many calls). Compiles
// against oneDNN 2 and 3, so that scripts/bench_onednn.py can hold one against the other. With 3, attention
// through its Graph API as well.
#include <dnnl.hpp>
#if DNNL_VERSION_MAJOR >= 3
#include <oneapi/dnnl/dnnl_graph.hpp>
#endif
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;
using Rule = dnnl::algorithm;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  static dnnl::stream stream(Engine());
  return stream;
}

double Now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The tenth percentile of the times of at least 12 calls that take at least 60 ms together.
double Time(const std::function<void()>& call) {
  call();
  call();
  std::vector<double> times;
  const double begin = Now();
  while (Now() - begin < 60 || times.size() < 12) {
    const double before = Now();
    call();
    times.push_back(Now() - before);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 10];
}

Type TypeOf(const Desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_data_type();
#else
  return desc.data_type();
#endif
}

// Memory with small numbers in it, none of them denormal.
dnnl::memory Filled(const Desc& desc) {
  dnnl::memory memory(desc, Engine());
  const size_t bytes = desc.get_size();
  auto* data = static_cast<uint8_t*>(memory.get_data_handle());
  if (TypeOf(desc) == Type::f32) {
    for (size_t i = 0; i < bytes / 4; ++i) {
      reinterpret_cast<float*>(data)[i] = static_cast<float>((i * 2654435761U >> 20) % 200) / 100.0F - 1.0F;
    }
  } else if (TypeOf(desc) == Type::bf16) {
    for (size_t i = 0; i < bytes / 2; ++i) reinterpret_cast<uint16_t*>(data)[i] = 0x3f80 | (i * 7 & 0x803f);
  } else {
    for (size_t i = 0; i < bytes; ++i) data[i] = i % 5;
  }
  return memory;
}

void Print(const std::string& name, const std::string& implementation, double milliseconds) {
  std::printf("%s\t%s\t%.5f\n", name.c_str(), implementation.c_str(), milliseconds);
  std::fflush(stdout);
}

// Runs a measurement; what oneDNN cannot do is a line without a time.
void Try(const std::string& name, const std::function<void()>& measure) {
  try {
    measure();
  } catch (const dnnl::error& error) {
    std::printf("%s\tnone: %s\t0\n", name.c_str(), error.what());
  }
}

using Arguments = std::unordered_map<int, dnnl::memory>;

template <typename Primitive>
void Measure(const std::string& name, const typename Primitive::primitive_desc& desc,
             const Arguments& arguments) {
  const Primitive primitive(desc);
  Print(name, desc.impl_info_str(), Time([&] {
          primitive.execute(Stream(), arguments);
          Stream().wait();
        }));
}

dnnl::primitive_attr With(dnnl::algorithm function, float alpha, float beta) {
  dnnl::post_ops posts;
#if DNNL_VERSION_MAJOR >= 3
  posts.append_eltwise(function, alpha, beta);
#else
  posts.append_eltwise(1, function, alpha, beta);
#endif
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(posts);
  return attributes;
}

struct Layer {
  std::string name;
  int64_t channels_in, channels_out, groups;
  Dims space, kernel, strides, padding;
};

void Convolution(const std::string& name, const Layer& layer, Type type, int64_t batch) {
  Dims source{batch, layer.channels_in}, result{batch, layer.channels_out};
  Dims weight{layer.channels_out / layer.groups, layer.channels_in / layer.groups};
  if (layer.groups > 1) weight.insert(weight.begin(), layer.groups);
  for (size_t i = 0; i < layer.space.size(); ++i) {
    source.push_back(layer.space[i]);
    result.push_back((layer.space[i] + 2 * layer.padding[i] - layer.kernel[i]) / layer.strides[i] + 1);
    weight.push_back(layer.kernel[i]);
  }
  const bool narrow = type == Type::u8;
  const Desc s(source, type, Tag::any), w(weight, narrow ? Type::s8 : type, Tag::any),
      d(result, type, Tag::any);
  const Desc b({layer.channels_out}, narrow ? Type::s32 : Type::f32, Tag::x);
  const Dims gaps(layer.space.size(), 0);
  const auto attributes = With(dnnl::algorithm::eltwise_relu, 0, 0);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  constexpr auto direct = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_forward::primitive_desc desc(Engine(), kind, direct, s, w, b, d, layer.strides,
                                                       gaps, layer.padding, layer.padding, attributes);
#else
  const dnnl::convolution_forward::primitive_desc desc(
      {kind, direct, s, w, b, d, layer.strides, gaps, layer.padding, layer.padding}, attributes, Engine());
#endif
  Measure<dnnl::convolution_forward>(name, desc,
                                     {{DNNL_ARG_SRC, Filled(desc.src_desc())},
                                      {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
                                      {DNNL_ARG_BIAS, Filled(desc.bias_desc())},
                                      {DNNL_ARG_DST, Filled(desc.dst_desc())}});
}

dnnl::matmul::primitive_desc MatMul(const Desc& left, const Desc& right, const Desc* bias, const Desc& result,
                                    const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  if (bias == nullptr) return {Engine(), left, right, result, attributes};
  return {Engine(), left, right, *bias, result, attributes};
#else
  if (bias == nullptr) return {{left, right, result}, attributes, Engine()};
  return {{left, right, *bias, result}, attributes, Engine()};
#endif
}

void Dense(const std::string& name, int64_t rows, int64_t in, int64_t out, Type type, bool gelu) {
  const bool narrow = type == Type::u8;
  const Desc bias({1, out}, Type::f32, Tag::ab);
  const auto desc = MatMul({{rows, in}, type, Tag::ab}, {{in, out}, narrow ? Type::s8 : type, Tag::any},
                           &bias, {{rows, out}, narrow ? Type::f32 : type, Tag::ab},
                           gelu ? With(dnnl::algorithm::eltwise_gelu_erf, 0, 0) : dnnl::primitive_attr());
  Measure<dnnl::matmul>(name, desc,
                        {{DNNL_ARG_SRC, Filled(desc.src_desc())},
                         {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
                         {DNNL_ARG_BIAS, Filled(bias)},
                         {DNNL_ARG_DST, Filled(desc.dst_desc())}});
}

void Softmax(const std::string& name, const Dims& shape) {
  const Desc d(shape, Type::f32, Tag::abc);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::softmax_forward::primitive_desc desc(Engine(), dnnl::prop_kind::forward_inference,
                                                   dnnl::algorithm::softmax_accurate, d, d, 2);
#else
  const dnnl::softmax_forward::primitive_desc desc({dnnl::prop_kind::forward_inference, d, 2}, Engine());
#endif
  Measure<dnnl::softmax_forward>(name, desc, {{DNNL_ARG_SRC, Filled(d)}, {DNNL_ARG_DST, Filled(d)}});
}

void LayerNorm(const std::string& name, const Dims& shape) {
  const Desc d(shape, Type::f32, Tag::abc), channels({shape[2]}, Type::f32, Tag::a);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::layer_normalization_forward::primitive_desc desc(Engine(), kind, d, d, 1e-5F, flags);
#else
  const dnnl::layer_normalization_forward::primitive_desc desc({kind, d, 1e-5F, flags}, Engine());
#endif
  Measure<dnnl::layer_normalization_forward>(name, desc,
                                             {{DNNL_ARG_SRC, Filled(d)},
                                              {DNNL_ARG_DST, Filled(d)},
                                              {DNNL_ARG_SCALE, Filled(channels)},
                                              {DNNL_ARG_SHIFT, Filled(channels)}});
}

struct Window {
  int64_t channels, side, size, stride, padding;
};

void Pool(const std::string& name, dnnl::algorithm algorithm, const Window& w) {
  const int64_t side = (w.side + 2 * w.padding - w.size) / w.stride + 1;
  const Desc s({1, w.channels, w.side, w.side}, Type::f32, Tag::nChw16c),
      d({1, w.channels, side, side}, Type::f32, Tag::nChw16c);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  const Dims strides{w.stride, w.stride}, size{w.size, w.size}, padding{w.padding, w.padding};
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::pooling_forward::primitive_desc desc(Engine(), kind, algorithm, s, d, strides, size, {0, 0},
                                                   padding, padding);
#else
  const dnnl::pooling_forward::primitive_desc desc({kind, algorithm, s, d, strides, size, padding, padding},
                                                   Engine());
#endif
  Measure<dnnl::pooling_forward>(name, desc, {{DNNL_ARG_SRC, Filled(s)}, {DNNL_ARG_DST, Filled(d)}});
}

void Binary(const std::string& name, dnnl::algorithm algorithm, const Dims& left, const Dims& right) {
  const Desc a(left, Type::f32, Tag::nChw16c), b(right, Type::f32, Tag::nChw16c);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::binary::primitive_desc desc(Engine(), algorithm, a, b, a);
#else
  const dnnl::binary::primitive_desc desc({algorithm, a, b, a}, Engine());
#endif
  Measure<dnnl::binary>(
      name, desc, {{DNNL_ARG_SRC_0, Filled(a)}, {DNNL_ARG_SRC_1, Filled(b)}, {DNNL_ARG_DST, Filled(a)}});
}

void Eltwise(const std::string& name, dnnl::algorithm algorithm, const Dims& shape) {
  const Desc d(shape, Type::f32, Tag::abc);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::eltwise_forward::primitive_desc desc(Engine(), kind, algorithm, d, d, 0, 0);
#else
  const dnnl::eltwise_forward::primitive_desc desc({kind, algorithm, d, 0, 0}, Engine());
#endif
  Measure<dnnl::eltwise_forward>(name, desc, {{DNNL_ARG_SRC, Filled(d)}, {DNNL_ARG_DST, Filled(d)}});
}

// So many tensors of so many channels, joined along the channels.
void Concat(const std::string& name, int64_t count, int64_t channels, int64_t side) {
  const Desc one({1, channels, side, side}, Type::f32, Tag::nChw16c),
      all({1, count * channels, side, side}, Type::f32, Tag::nChw16c);
  const std::vector<Desc> sources(count, one);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::concat::primitive_desc desc(Engine(), all, 1, sources);
#else
  const dnnl::concat::primitive_desc desc(all, 1, sources, Engine());
#endif
  Arguments arguments{{DNNL_ARG_DST, Filled(all)}};
  for (int64_t i = 0; i < count; ++i) {
    arguments.emplace(DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), Filled(one));
  }
  Measure<dnnl::concat>(name, desc, arguments);
}

// To twice the side.
void Resampling(const std::string& name, dnnl::algorithm algorithm, int64_t channels, int64_t side) {
  const Desc s({1, channels, side, side}, Type::f32, Tag::nChw16c),
      d({1, channels, 2 * side, 2 * side}, Type::f32, Tag::nChw16c);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::resampling_forward::primitive_desc desc(Engine(), kind, algorithm, s, d);
#else
  const dnnl::resampling_forward::primitive_desc desc({kind, algorithm, s, d}, Engine());
#endif
  Measure<dnnl::resampling_forward>(name, desc, {{DNNL_ARG_SRC, Filled(s)}, {DNNL_ARG_DST, Filled(d)}});
}

void Reorder(const std::string& name, const Dims& shape, Tag before, Tag after) {
  const Desc s(shape, Type::f32, before), d(shape, Type::f32, after);
  const dnnl::reorder::primitive_desc desc(Engine(), s, Engine(), d);
  Measure<dnnl::reorder>(name, desc, {{DNNL_ARG_FROM, Filled(s)}, {DNNL_ARG_TO, Filled(d)}});
}

void BatchNorm(const std::string& name, int64_t channels, int64_t side) {
  const Desc d({1, channels, side, side}, Type::f32, Tag::nChw16c), one({channels}, Type::f32, Tag::a);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  const auto flags = dnnl::normalization_flags::use_global_stats | dnnl::normalization_flags::use_scale |
                     dnnl::normalization_flags::use_shift;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::batch_normalization_forward::primitive_desc desc(Engine(), kind, d, d, 1e-5F, flags);
#else
  const dnnl::batch_normalization_forward::primitive_desc desc({kind, d, 1e-5F, flags}, Engine());
#endif
  const auto variance = Filled(one);
  std::fill_n(static_cast<float*>(variance.get_data_handle()), channels, 1.0F);
  Measure<dnnl::batch_normalization_forward>(name, desc,
                                             {{DNNL_ARG_SRC, Filled(d)},
                                              {DNNL_ARG_DST, Filled(d)},
                                              {DNNL_ARG_MEAN, Filled(one)},
                                              {DNNL_ARG_VARIANCE, variance},
                                              {DNNL_ARG_SCALE, Filled(one)},
                                              {DNNL_ARG_SHIFT, Filled(one)}});
}

// 4x4, to twice the side, as generators of images have it.
void Deconvolution(const std::string& name, int64_t channels_in, int64_t channels_out, int64_t side) {
  const Desc s({1, channels_in, side, side}, Type::f32, Tag::any),
      w({channels_out, channels_in, 4, 4}, Type::f32, Tag::any),
      d({1, channels_out, 2 * side, 2 * side}, Type::f32, Tag::any), b({channels_out}, Type::f32, Tag::x);
  constexpr auto kind = dnnl::prop_kind::forward_inference;
  constexpr auto direct = dnnl::algorithm::deconvolution_direct;
  const Dims strides{2, 2}, padding{1, 1};
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::deconvolution_forward::primitive_desc desc(Engine(), kind, direct, s, w, b, d, strides, padding,
                                                         padding);
#else
  const dnnl::deconvolution_forward::primitive_desc desc(
      {kind, direct, s, w, b, d, strides, padding, padding}, Engine());
#endif
  Measure<dnnl::deconvolution_forward>(name, desc,
                                       {{DNNL_ARG_SRC, Filled(desc.src_desc())},
                                        {DNNL_ARG_WEIGHTS, Filled(desc.weights_desc())},
                                        {DNNL_ARG_BIAS, Filled(b)},
                                        {DNNL_ARG_DST, Filled(desc.dst_desc())}});
}

void Mean(const std::string& name) {
  const Desc s({1, 256, 56, 56}, Type::f32, Tag::nhwc), d({1, 256, 1, 1}, Type::f32, Tag::nhwc);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::reduction::primitive_desc desc(Engine(), dnnl::algorithm::reduction_mean, s, d, 0, 0);
#else
  const dnnl::reduction::primitive_desc desc({dnnl::algorithm::reduction_mean, s, d, 0, 0}, Engine());
#endif
  Measure<dnnl::reduction>(name, desc, {{DNNL_ARG_SRC, Filled(s)}, {DNNL_ARG_DST, Filled(d)}});
}

// softmax(query key^T / 8) value of so many heads as three primitives.
void Attention(const std::string& name, int64_t heads, int64_t tokens, int64_t size) {
  const Desc values({heads, tokens, size}, Type::f32, Tag::abc),
      keys({heads, size, tokens}, Type::f32, Tag::acb);
  const Desc scores({heads, tokens, tokens}, Type::f32, Tag::abc);
  const auto first = MatMul(values, keys, nullptr, scores, With(dnnl::algorithm::eltwise_linear, 0.125F, 0));
  const auto last = MatMul(scores, values, nullptr, values, {});
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::softmax_forward::primitive_desc middle(Engine(), dnnl::prop_kind::forward_inference,
                                                     dnnl::algorithm::softmax_accurate, scores, scores, 2);
#else
  const dnnl::softmax_forward::primitive_desc middle({dnnl::prop_kind::forward_inference, scores, 2},
                                                     Engine());
#endif
  const dnnl::matmul a(first), c(last);
  const dnnl::softmax_forward b(middle);
  const auto q = Filled(values), k = Filled(keys), v = Filled(values), s = Filled(scores),
             out = Filled(values);
  Print(name, first.impl_info_str(), Time([&] {
          a.execute(Stream(), {{DNNL_ARG_SRC, q}, {DNNL_ARG_WEIGHTS, k}, {DNNL_ARG_DST, s}});
          b.execute(Stream(), {{DNNL_ARG_SRC, s}, {DNNL_ARG_DST, s}});
          c.execute(Stream(), {{DNNL_ARG_SRC, s}, {DNNL_ARG_WEIGHTS, v}, {DNNL_ARG_DST, out}});
          Stream().wait();
        }));
}

#if DNNL_VERSION_MAJOR >= 3
// The same through the Graph API; the implementation says into how many partitions oneDNN cuts it.
void AttentionGraph(const std::string& name, int64_t heads, int64_t tokens, int64_t size) {
  namespace graph = dnnl::graph;
  using Logical = graph::logical_tensor;
  constexpr auto f32 = Logical::data_type::f32;
  constexpr auto strided = Logical::layout_type::strided;
  const Dims values{1, heads, tokens, size}, scores{1, heads, tokens, tokens};
  const Dims transposed{heads * tokens * size, tokens * size, 1, size};
  std::vector<Logical> logical;
  const auto add = [&](const Dims& dims) { logical.emplace_back(logical.size(), f32, dims, strided); };
  add(values);  // 0: query
  logical.emplace_back(1, f32, Dims{1, heads, size, tokens}, transposed);
  add(scores);   // 2
  add(Dims{1});  // 3: what the scores are divided by
  add(scores);   // 4
  add(scores);   // 5: weights
  add(values);   // 6: value
  add(values);   // 7: result
  graph::op first(0, graph::op::kind::MatMul, {logical[0], logical[1]}, {logical[2]}, "scores");
  graph::op divide(1, graph::op::kind::Divide, {logical[2], logical[3]}, {logical[4]}, "scale");
  graph::op softmax(2, graph::op::kind::SoftMax, {logical[4]}, {logical[5]}, "softmax");
  graph::op last(3, graph::op::kind::MatMul, {logical[5], logical[6]}, {logical[7]}, "mixed");
  softmax.set_attr<int64_t>(graph::op::attr::axis, 3);
  graph::graph whole(dnnl::engine::kind::cpu);
  for (const auto* op : {&first, &divide, &softmax, &last}) whole.add_op(*op);
  whole.finalize();
  std::vector<std::vector<float>> data;
  std::vector<graph::tensor> tensors;
  for (const Logical& one : logical) {
    data.emplace_back(one.get_mem_size() / sizeof(float) + 16, 0.5F);
    tensors.emplace_back(one, Engine(), data.back().data());
  }
  const auto partitions = whole.get_partitions();
  std::vector<std::function<void()>> steps;
  for (const auto& partition : partitions) {
    std::vector<Logical> in, out;
    std::vector<graph::tensor> reads, writes;
    for (const auto& port : partition.get_input_ports()) {
      in.push_back(logical[port.get_id()]);
      reads.push_back(tensors[port.get_id()]);
    }
    for (const auto& port : partition.get_output_ports()) {
      out.push_back(logical[port.get_id()]);
      writes.push_back(tensors[port.get_id()]);
    }
    const auto compiled = std::make_shared<graph::compiled_partition>(partition.compile(in, out, Engine()));
    steps.emplace_back([=] { compiled->execute(Stream(), reads, writes); });
  }
  Print(name, std::to_string(partitions.size()) + " partitions", Time([&] {
          for (const auto& step : steps) step();
          Stream().wait();
        }));
}
#endif

}  // namespace

int main() {
  const std::vector<Layer> layers = {
      {"conv 3>64 224 7x7 s2", 3, 64, 1, {224, 224}, {7, 7}, {2, 2}, {3, 3}},
      {"conv 64>64 56 3x3", 64, 64, 1, {56, 56}, {3, 3}, {1, 1}, {1, 1}},
      {"conv 128>128 56 3x3 s2", 128, 128, 1, {56, 56}, {3, 3}, {2, 2}, {1, 1}},
      {"conv 256>256 14 3x3", 256, 256, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}},
      {"conv 512>1024 13 3x3", 512, 1024, 1, {13, 13}, {3, 3}, {1, 1}, {1, 1}},
      {"conv 64>3 256 3x3", 64, 3, 1, {256, 256}, {3, 3}, {1, 1}, {1, 1}},
      {"conv 64>256 56 1x1", 64, 256, 1, {56, 56}, {1, 1}, {1, 1}, {0, 0}},
      {"conv 1024>256 14 1x1", 1024, 256, 1, {14, 14}, {1, 1}, {1, 1}, {0, 0}},
      {"conv 2048>512 7 1x1", 2048, 512, 1, {7, 7}, {1, 1}, {1, 1}, {0, 0}},
      {"conv 256>512 56 1x1 s2", 256, 512, 1, {56, 56}, {1, 1}, {2, 2}, {0, 0}},
      {"conv 128 56 3x3 32 groups", 128, 128, 32, {56, 56}, {3, 3}, {1, 1}, {1, 1}},
      {"conv 512 14 3x3 32 groups", 512, 512, 32, {14, 14}, {3, 3}, {1, 1}, {1, 1}},
      {"depthwise 96 112 3x3 s2", 96, 96, 96, {112, 112}, {3, 3}, {2, 2}, {1, 1}},
      {"depthwise 144 56 3x3", 144, 144, 144, {56, 56}, {3, 3}, {1, 1}, {1, 1}},
      {"depthwise 672 14 5x5", 672, 672, 672, {14, 14}, {5, 5}, {1, 1}, {2, 2}},
      {"depthwise 64 56 7x7", 64, 64, 64, {56, 56}, {7, 7}, {1, 1}, {3, 3}},
      {"conv3d 64 3x56x56 3x3x3", 64, 64, 1, {3, 56, 56}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
      {"conv3d 256 2x14x14 3x3x3", 256, 256, 1, {2, 14, 14}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
  };
  for (const auto& [dtype, type] :
       std::map<std::string, Type>{{"f32", Type::f32}, {"bf16", Type::bf16}, {"int8", Type::u8}}) {
    const std::string suffix = " " + dtype;
    for (const Layer& layer : layers) {
      for (const int64_t batch : {1, 8}) {
        const std::string name = layer.name + (batch > 1 ? " batch 8" : "") + suffix;
        Try(name, [&, type = type] { Convolution(name, layer, type, batch); });
      }
    }
    for (const auto& [rows, in, out] : std::vector<std::tuple<int, int, int>>{{1, 2048, 1000},
                                                                              {16, 1024, 1024},
                                                                              {64, 256, 1024},
                                                                              {128, 768, 3072},
                                                                              {197, 768, 768},
                                                                              {384, 3072, 768},
                                                                              {1024, 1024, 1024}}) {
      const std::string name =
          "dense " + std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out) + suffix;
      Try(name, [&, type = type, rows = rows, in = in, out = out] {
        Dense(name, rows, in, out, type, /*gelu=*/rows == 128);
      });
    }
  }
  Softmax("softmax 12x128x128", {12, 128, 128});
  Softmax("softmax 12x384x384", {12, 384, 384});
  LayerNorm("layer_norm 384x768", {1, 384, 768});
  const auto max = dnnl::algorithm::pooling_max, mean = dnnl::algorithm::pooling_avg_exclude_padding;
  Pool("max_pool 64 112 3x3 s2", max, {64, 112, 3, 2, 1});
  Mean("mean 256 56x56");
  const std::vector<std::pair<std::string, std::function<void(const std::string&)>>> others = {
      {"avg_pool 64 56 3x3", [&](auto& name) { Pool(name, mean, {64, 56, 3, 1, 1}); }},
      {"avg_pool 2048 7 7x7", [&](auto& name) { Pool(name, mean, {2048, 7, 7, 1, 0}); }},
      {"add 64 56x56", [](auto& name) { Binary(name, Rule::binary_add, {1, 64, 56, 56}, {1, 64, 56, 56}); }},
      {"mul 96 28x28 by channels",
       [](auto& name) { Binary(name, Rule::binary_mul, {1, 96, 28, 28}, {1, 96, 1, 1}); }},
      {"relu 64x56x56", [](auto& name) { Eltwise(name, Rule::eltwise_relu, {64, 56, 56}); }},
      {"gelu 128x3072", [](auto& name) { Eltwise(name, Rule::eltwise_gelu_erf, {1, 128, 3072}); }},
      {"concat 2 of 64 56x56", [](auto& name) { Concat(name, 2, 64, 56); }},
      {"concat 4 of 256 14x14", [](auto& name) { Concat(name, 4, 256, 14); }},
      {"nearest 128 28x28 by 2", [](auto& name) { Resampling(name, Rule::resampling_nearest, 128, 28); }},
      {"linear 64 56x56 by 2", [](auto& name) { Resampling(name, Rule::resampling_linear, 64, 56); }},
      {"reorder 64 56x56 to 16c",
       [](auto& name) { Reorder(name, {1, 64, 56, 56}, Tag::nchw, Tag::nChw16c); }},
      {"reorder 512 14x14 from nhwc",
       [](auto& name) { Reorder(name, {1, 512, 14, 14}, Tag::nhwc, Tag::nchw); }},
      {"batch_norm 64 56x56", [](auto& name) { BatchNorm(name, 64, 56); }},
      {"batch_norm 256 14x14", [](auto& name) { BatchNorm(name, 256, 14); }},
      {"deconv 512>256 8 4x4 s2", [](auto& name) { Deconvolution(name, 512, 256, 8); }},
      {"deconv 128>64 32 4x4 s2", [](auto& name) { Deconvolution(name, 128, 64, 32); }},
      {"conv1d 64>128 400 3",
       [](auto& name) { Convolution(name, {name, 64, 128, 1, {400}, {3}, {1}, {1}}, Type::f32, 1); }},
      {"conv1d 256>256 1500 5 s2",
       [](auto& name) { Convolution(name, {name, 256, 256, 1, {1500}, {5}, {2}, {2}}, Type::f32, 1); }},
  };
  for (const auto& [name, measure] : others) {
    Try(name, [&, name = name, measure = measure] { measure(name); });
  }
  for (const auto& [heads, tokens, size] :
       std::vector<std::tuple<int, int, int>>{{8, 64, 32}, {12, 128, 64}, {12, 197, 64}, {12, 384, 64}}) {
    const std::string name =
        "attention " + std::to_string(heads) + "x" + std::to_string(tokens) + "x" + std::to_string(size);
    Try(name, [&, heads = heads, tokens = tokens, size = size] { Attention(name, heads, tokens, size); });
#if DNNL_VERSION_MAJOR >= 3
    Try(name + " graph", [&, heads = heads, tokens = tokens, size = size] {
      AttentionGraph(name + " graph", heads, tokens, size);
    });
#endif
  }
  return 0;
}
