// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and dense layers as products of bytes by oneDNN's kernels: what they give is what the bytes
// say, on each processor. The data are whole numbers that reach over 255, times a power of two for each image
// or row, so that they are exact as bytes, and the weights have scales that are exact.
//
// ctest: levels vnni bf16 threads
#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "dnnl_compiler.h"
#include "dnnl_program.h"
#include "instruction_set.h"
#include "refusal.h"

namespace collage::onednn {
namespace {

using tvm::runtime::NDArray;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

NDArray TensorOf(const std::vector<int64_t>& shape, DLDataType type) {
  return NDArray::Empty({shape.begin(), shape.end()}, type, {kDLCPU, 0});
}
template <typename T>
NDArray TensorOf(const std::vector<int64_t>& shape, DLDataType type, const std::vector<T>& from) {
  NDArray tensor = TensorOf(shape, type);
  std::copy(from.begin(), from.end(), static_cast<T*>(tensor->data));
  return tensor;
}
const DLDataType kFloat{kDLFloat, 32, 1}, kByte{kDLInt, 8, 1};

std::string ListOf(const std::vector<int64_t>& list) {
  std::ostringstream text;
  for (size_t i = 0; i < list.size(); ++i) text << (i == 0 ? "[" : ", ") << list[i];
  return text.str() + "]";
}

// `parts` parts of `each` numbers that reach over 255, of which both ends are there, times 1, 2, 4, 1, ...;
// the first part's begin at least, the others' 10 and 20 beside it, so that each part has a zero of its own.
std::vector<float> Whole(int64_t parts, int64_t each, int least, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> all;
  for (int64_t i = 0; i < parts; ++i) {
    const int aside = 10 * static_cast<int>(i % 3), from = least > -128 ? least - aside : least + aside;
    std::uniform_int_distribution<int> number(from, from + 255);
    for (int64_t k = 0; k < each; ++k) {
      const int drawn = k == 0 ? from : k + 1 == each ? from + 255 : number(random);
      all.push_back(static_cast<float>(drawn * (1 << i % 3)));
    }
  }
  return all;
}

// Half of them the greatest that there are, so that sums of two products are beyond 16 bits.
std::vector<int8_t> Weights(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-127, 127);
  std::vector<int8_t> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(static_cast<int8_t>(i % 4 == 0 ? 127 : i % 4 == 1 ? -127 : number(random)));
  }
  return all;
}

float WeightScale(int64_t channel) { return 0.25F * static_cast<float>(1 << channel % 3); }

std::vector<float> WeightScales(int64_t channels) {
  std::vector<float> all;
  for (int64_t c = 0; c < channels; ++c) all.push_back(WeightScale(c));
  return all;
}

std::vector<float> Drawn(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> number(0, 1000);
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(number(random));
  return all;
}

std::vector<float> ResultOf(const std::string& text, std::vector<NDArray> constants,
                            const std::vector<NDArray>& inputs, std::string* steps = nullptr) {
  const Program program = ParseProgram(text);
  const auto plan = Compiler(program, constants).Compile();
  constants.clear();
  if (steps != nullptr) *steps = plan->Describe();
  NDArray out = TensorOf(program.values[program.outputs[0]].dims, kFloat);
  std::vector<void*> pointers;
  for (const NDArray& input : inputs) pointers.push_back(input->data);
  // Twice: nothing is left of the first time.
  plan->Run(pointers, {out->data});
  plan->Run(pointers, {out->data});
  const auto* const values = static_cast<const float*>(out->data);
  return std::vector<float>(values, values + Elements(program.values[program.outputs[0]].dims));
}

struct Case {
  int64_t batch, groups, in, out, height, width;
  int64_t kernel[2], stride[2], dilation[2], front[2], back[2];
  bool last = false;  // channels last
};

const Case kCases[] = {
    {1, 1, 16, 64, 7, 7, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 1, 3, 33, 11, 9, {7, 5}, {2, 2}, {1, 1}, {3, 2}, {3, 2}},
    {2, 1, 3, 16, 11, 8, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {3, 1, 5, 80, 7, 13, {3, 3}, {1, 2}, {2, 2}, {2, 1}, {2, 0}},
    {1, 1, 8, 17, 5, 5, {1, 1}, {2, 2}, {1, 1}, {0, 0}, {0, 0}},
    {2, 1, 12, 130, 14, 14, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {1, 1, 64, 16, 12, 12, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, true},
    {1, 1, 4, 1, 9, 40, {2, 3}, {1, 1}, {1, 3}, {0, 4}, {3, 4}},
    {1, 1, 6, 16, 1, 30, {1, 5}, {1, 1}, {1, 1}, {0, 4}, {0, 4}},  // windows that see no pixel but one
    {1, 1, 16, 32, 6, 6, {3, 3}, {1, 1}, {1, 1}, {2, 2}, {2, 2}},
    {3, 2, 32, 48, 9, 9, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {1, 4, 32, 32, 8, 8, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, true},
    {1, 8, 128, 64, 6, 6, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
};

struct Convolution {
  explicit Convolution(const Case& of) : c(of) {
    const int64_t size[] = {c.height, c.width};
    for (int i = 0; i < 2; ++i) {
      to[i] = (size[i] + c.front[i] + c.back[i] - (c.kernel[i] - 1) * c.dilation[i] - 1) / c.stride[i] + 1;
    }
    weights = Weights(c.out * Terms(), 2);
  }

  int64_t Terms() const { return c.in / c.groups * c.kernel[0] * c.kernel[1]; }
  int64_t Image() const { return c.in * c.height * c.width; }
  int64_t Results() const { return c.batch * c.out * to[0] * to[1]; }
  std::vector<int64_t> Shape(int64_t channels, int64_t rows, int64_t columns) const {
    return c.last ? std::vector<int64_t>{c.batch, rows, columns, channels}
                  : std::vector<int64_t>{c.batch, channels, rows, columns};
  }
  int64_t At(int64_t channels, const int64_t* size, int64_t n, int64_t channel, int64_t y, int64_t x) const {
    return c.last ? ((n * size[0] + y) * size[1] + x) * channels + channel
                  : ((n * channels + channel) * size[0] + y) * size[1] + x;
  }

  std::string Text(const std::string& posts) const {
    const int64_t of_group = c.in / c.groups, taps = c.kernel[0] * c.kernel[1];
    std::vector<int64_t> dims = {c.out / c.groups, of_group, c.kernel[0], c.kernel[1]};
    std::vector<int64_t> strides = {of_group * taps, taps, c.kernel[1], 1};
    if (c.groups > 1) {
      strides.insert(strides.begin(), dims[0] * strides[0]);
      dims.insert(dims.begin(), c.groups);
    }
    const std::string out = ListOf(Shape(c.out, to[0], to[1]));
    std::ostringstream text;
    text
        << R"({"format": "collage-dnnl", "version": 5, "inputs": [0, 4], "outputs": [5], "constants": [1, 2, 3],
      "values": [["f32", )"
        << ListOf(Shape(c.in, c.height, c.width)) << R"(], ["s8", )"
        << ListOf({c.out, of_group, c.kernel[0], c.kernel[1]}) << "], [\"f32\", [" << c.out
        << "]], [\"f32\", [" << c.out << "]], [\"f32\", " << out << "], [\"f32\", " << out << R"(]],
      "ops": [{"op": "conv", "kernel": "onednn_bytes", "algorithm": "direct", "in": [0, 1, 2, 3], "out": 5,
      "bias": true, "strides": )"
        << ListOf({c.stride[0], c.stride[1]}) << ", \"dilation\": " << ListOf({c.dilation[0], c.dilation[1]})
        << ", \"padding\": " << ListOf({c.front[0], c.front[1], c.back[0], c.back[1]})
        << (c.last ? ", \"perm\": [0, 3, 1, 2]" : "") << R"(, "weight": {"dims": )" << ListOf(dims)
        << ", \"strides\": " << ListOf(strides) << "}, \"post\": [" << posts << "]}]}";
    return text.str();
  }

  std::vector<NDArray> Constants(const std::vector<float>& bias) const {
    return {TensorOf({c.out, c.in / c.groups, c.kernel[0], c.kernel[1]}, kByte, weights),
            TensorOf({c.out}, kFloat, bias), TensorOf({c.out}, kFloat, WeightScales(c.out))};
  }

  // The sums, without bias, and what their addends are in all.
  void Direct(const std::vector<float>& data, std::vector<double>* sums, std::vector<double>* sizes) const {
    sums->assign(Results(), 0);
    sizes->assign(Results(), 0);
    const int64_t size[] = {c.height, c.width}, of_group = c.in / c.groups;
    for (int64_t n = 0; n < c.batch; ++n) {
      for (int64_t o = 0; o < c.out; ++o) {
        for (int64_t y = 0; y < to[0]; ++y) {
          for (int64_t x = 0; x < to[1]; ++x) {
            const int64_t at = At(c.out, to, n, o, y, x);
            for (int64_t term = 0; term < Terms(); ++term) {
              const int64_t taps = c.kernel[0] * c.kernel[1], tap = term % taps;
              const int64_t row = y * c.stride[0] - c.front[0] + tap / c.kernel[1] * c.dilation[0];
              const int64_t column = x * c.stride[1] - c.front[1] + tap % c.kernel[1] * c.dilation[1];
              if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
              const int64_t channel = o / (c.out / c.groups) * of_group + term / taps;
              const double product = static_cast<double>(data[At(c.in, size, n, channel, row, column)]) *
                                     weights[o * Terms() + term] * static_cast<double>(WeightScale(o));
              (*sums)[at] += product;
              (*sizes)[at] += std::abs(product);
            }
          }
        }
      }
    }
  }

  int64_t Channel(int64_t at) const { return c.last ? at % c.out : at / (to[0] * to[1]) % c.out; }

  Case c;
  int64_t to[2];
  std::vector<int8_t> weights;
};

bool InBytes() { return AllowedInstructionSet() >= InstructionSet::kAvx512Vnni; }

TEST(DnnlInt8, ConvolutionsAreExact) {
  for (const Case& c : kCases) {
    const Convolution conv(c);
    for (const int least : {0, -100, -255}) {
      const std::vector<float> data = Whole(c.batch, conv.Image(), least, 1), bias = Drawn(c.out, 3),
                               addend = Drawn(conv.Results(), 4);
      std::vector<double> sums, sizes;
      conv.Direct(data, &sums, &sizes);
      const NDArray x = TensorOf(conv.Shape(c.in, c.height, c.width), kFloat, data);
      const NDArray more = TensorOf(conv.Shape(c.out, conv.to[0], conv.to[1]), kFloat, addend);
      for (const char* posts : {"", R"({"op": "relu"})", R"({"op": "add", "in": 4}, {"op": "relu"})",
                                R"({"op": "clip", "alpha": -500, "beta": 6000}, {"op": "add", "in": 4})"}) {
        std::string steps;
        const std::vector<float> got = ResultOf(conv.Text(posts), conv.Constants(bias), {x, more}, &steps);
        const std::string said = posts;
        const bool relu = said.find("relu") != said.npos, clip = said.find("clip") != said.npos,
                   adds = said.find("add") != said.npos;
        EXPECT_EQ(steps.find("conv int8 ") != steps.npos, InBytes()) << steps;
        EXPECT_EQ(steps.find("not onednn_bytes") != steps.npos, !InBytes()) << steps;
        for (int64_t i = 0; i < conv.Results(); ++i) {
          double want = sums[i] + bias[conv.Channel(i)];
          if (clip) want = std::clamp(want, -500.0, 6000.0);
          if (adds) want += addend[i];
          if (relu) want = std::max(want, 0.0);
          // In bytes the sum is exact, and what is done with it is rounded to float32; else each addend is.
          const double about = InBytes() ? std::abs(sums[i]) : sizes[i];
          ASSERT_NEAR(got[i], want, 1e-6 * (about + std::abs(want) + 4000)) << posts << " " << i << "\n"
                                                                            << steps;
        }
      }
    }
  }
}

// What is no number makes an image's results none, and no other's; of zeros only the bias is left.
TEST(DnnlInt8, WhatIsNoNumberStaysWithItsImage) {
  const Convolution conv({3, 1, 16, 16, 5, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  std::vector<float> data = Whole(3, conv.Image(), -100, 1);
  data[7] = kNan;
  std::fill_n(data.begin() + conv.Image(), conv.Image(), 0.0F);
  const std::vector<float> bias = Drawn(16, 3);
  const NDArray x = TensorOf(conv.Shape(16, 5, 5), kFloat, data);
  const std::vector<float> got =
      ResultOf(conv.Text(""), conv.Constants(bias), {x, TensorOf(conv.Shape(16, 5, 5), kFloat)});
  const int64_t each = conv.Results() / 3;
  for (int64_t i = 0; i < each; ++i) {
    if (InBytes()) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    }
    EXPECT_EQ(got[each + i], bias[conv.Channel(i)]) << i;
    EXPECT_TRUE(std::isfinite(got[2 * each + i])) << i;
  }
}

std::string Dense(int64_t rows, int64_t length, int64_t columns, bool transpose, const std::string& posts) {
  std::ostringstream text;
  text
      << R"({"format": "collage-dnnl", "version": 5, "inputs": [0, 4], "outputs": [5], "constants": [1, 2, 3],
    "values": [["f32", )"
      << ListOf({rows, length}) << "], [\"s8\", "
      << (transpose ? ListOf({columns, length}) : ListOf({length, columns})) << "], [\"f32\", [" << columns
      << "]], [\"f32\", [" << columns << "]], [\"f32\", " << ListOf({rows, columns}) << "], [\"f32\", "
      << ListOf({rows, columns}) << R"(]],
    "ops": [{"op": "matmul", "kernel": "onednn_bytes", "in": [0, 1, 2, 3], "out": 5, "bias": true, "transpose_b": )"
      << (transpose ? "true" : "false") << ", \"post\": [" << posts << "]}]}";
  return text.str();
}

TEST(DnnlInt8, DenseLayersAreExact) {
  const int64_t shapes[][3] = {{1, 64, 10}, {1, 259, 47},  {13, 70, 100},
                               {5, 3, 1},   {40, 128, 65}, {2, 1024, 130}};
  for (const auto& [rows, length, columns] : shapes) {
    const std::vector<int8_t> weights = Weights(length * columns, 5);
    const std::vector<float> bias = Drawn(columns, 6), addend = Drawn(rows * columns, 7);
    for (const bool transpose : {true, false}) {
      const std::vector<int64_t> shape =
          transpose ? std::vector<int64_t>{columns, length} : std::vector<int64_t>{length, columns};
      for (const int least : {0, -128, -255}) {
        const std::vector<float> data = Whole(rows, length, least, 8);
        for (const char* posts : {"", R"({"op": "relu"})", R"({"op": "add", "in": 4}, {"op": "relu"})"}) {
          std::string steps;
          const std::vector<float> got = ResultOf(
              Dense(rows, length, columns, transpose, posts),
              {TensorOf(shape, kByte, weights), TensorOf({columns}, kFloat, bias),
               TensorOf({columns}, kFloat, WeightScales(columns))},
              {TensorOf({rows, length}, kFloat, data), TensorOf({rows, columns}, kFloat, addend)}, &steps);
          EXPECT_EQ(steps.find("matmul int8 ") != steps.npos, InBytes()) << steps;
          const std::string said = posts;
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t column = 0; column < columns; ++column) {
              double sum = 0, size = 0;
              for (int64_t k = 0; k < length; ++k) {
                const double product = static_cast<double>(data[row * length + k]) *
                                       weights[transpose ? column * length + k : k * columns + column] *
                                       static_cast<double>(WeightScale(column));
                sum += product;
                size += std::abs(product);
              }
              double want = sum + bias[column];
              if (said.find("add") != said.npos) want += addend[row * columns + column];
              if (said.find("relu") != said.npos) want = std::max(want, 0.0);
              ASSERT_NEAR(got[row * columns + column], want,
                          1e-6 * ((InBytes() ? std::abs(sum) : size) + std::abs(want) + 4000))
                  << posts << " " << row << " " << column << "\n"
                  << steps;
            }
          }
        }
      }
    }
  }
}

// What stands on steps already is bytes as it is, all images together, whose results may be added to at once.
TEST(DnnlInt8, DataOnAGridAreExactAsBytes) {
  Convolution conv({3, 1, 16, 16, 5, 5, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});
  std::string text = conv.Text(R"({"op": "add", "in": 4})");
  // The convolution reads a seventh value, which is the first one on a grid.
  const auto change = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
  };
  change("[3, 16, 5, 5]]],", "[3, 16, 5, 5]], [\"f32\", [3, 16, 5, 5]]],");
  change("\"ops\": [",
         R"("ops": [{"op": "eltwise", "kernel": "grid", "algorithm": "grid", "in": [0], "out": 6,
    "alpha": 0.5, "beta": -100}, )");
  change("\"in\": [0, 1, 2, 3]", "\"in\": [6, 1, 2, 3]");
  std::vector<float> data = Drawn(3 * conv.Image(), 9);
  for (float& one : data) one /= 100;
  std::vector<float> steps_of = data;
  for (float& one : steps_of) one = 0.5F * std::clamp(std::round(one / 0.5F), -100.0F, 155.0F);
  std::vector<double> sums, sizes;
  conv.Direct(steps_of, &sums, &sizes);
  const std::vector<float> bias = Drawn(16, 3), addend = Drawn(conv.Results(), 4);
  const std::vector<float> got = ResultOf(
      text, conv.Constants(bias),
      {TensorOf(conv.Shape(16, 5, 5), kFloat, data), TensorOf(conv.Shape(16, 5, 5), kFloat, addend)});
  for (int64_t i = 0; i < conv.Results(); ++i) {
    EXPECT_NEAR(got[i], sums[i] + bias[conv.Channel(i)] + addend[i], 1e-6 * (sizes[i] + 4000)) << i;
  }
}

}  // namespace
}  // namespace collage::onednn
