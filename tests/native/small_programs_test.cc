// SPDX-License-Identifier: Apache-2.0
//
// The programs of the engines that read little by themselves: BLAS libraries, OpenVINO, ONNX Runtime,
// devices.
#include <gtest/gtest.h>

#include "blas_program.h"
#include "device_program.h"
#include "layer_steps.h"
#include "onnxruntime_program.h"
#include "openvino_program.h"
#include "refusal.h"

namespace collage {
namespace {

constexpr char kBlas[] =
    "collage-blas 1\ninput 0\ninput 1\nconstant 2\nconstant 3\n"
    "product float32 4 0 2 4 8 16 1 0 0 0 1 0.5 3 -1 relu\n"
    "product float32 5 4 1 4 3 8 1 0 0 0 0 1 -1 -1 none\noutput 5\noutput 4\n";

std::string BlasRefusal(const std::string& text) {
  return Refusal([&] { BlasProgram::Parse(text); });
}

TEST(BlasProgram, SaysWhatTheTextSays) {
  const BlasProgram program = BlasProgram::Parse(kBlas);
  EXPECT_EQ(program.inputs, (std::vector<int>{0, 1}));
  EXPECT_EQ(program.outputs, (std::vector<int>{5, 4}));
  EXPECT_EQ(program.num_values, 6);
  ASSERT_EQ(program.products.size(), 2u);
  const BlasProduct& p = program.products[0];
  EXPECT_EQ(p.k, 16);
  EXPECT_EQ(p.bias, 3);
  EXPECT_TRUE(p.right_transposed);
  EXPECT_EQ(p.alpha, 0.5);
  EXPECT_EQ(p.activation, BlasActivation::kRelu);
}

TEST(BlasProgram, TakesTheSeeds) {
  for (const Seed& seed : Seeds("blas_program")) EXPECT_EQ(BlasRefusal(seed.content), "") << seed.name;
}

TEST(BlasProgram, RefusesWhatMakesNoSense) {
  const Damage damages[] = {
      {"collage-blas 1", "collage-blas 2", "another version"},
      {"input 1", "inbut 1", "at \"inbut 1\""},
      {"input 1", "input -1", "at \"input -1\""},
      {"input 1", "input 2147483647", "at \"input 2147483647\""},
      {"input 1", "input 1 2", "at \"input 1 2\""},
      {"input 1", "input 0", "tensor 0 is made twice"},
      {"input 1\n", "", "tensor 1 is read before it is made"},
      {"constant 3\n", "", "tensor 3 is read before it is made"},
      {"float32 4 0 2", "float33 4 0 2", "at \"product float33"},
      {"float32 4 0 2", "float64 4 0 2", "tensor 4 is used as two types"},
      {"float32 4 0 2", "float32 4 4 2", "tensor 4 is read before it is made"},
      {"float32 4 0 2", "float32 0 0 2", "tensor 0 is made twice"},
      {"4 8 16 1", "4 0 16 1", "at \"product"},
      {"4 8 16 1", "4 8 4294967296 1", "at \"product"},
      {"4 8 16 1", "2147483647 2147483647 16 1", "at \"product"},
      {"4 8 16 1", "4 7 16 1", "is used as two types"},
      {"0.5 3 -1 relu", "0.5 3 -2 relu", "at \"product"},
      {"0.5 3 -1 relu", "0.5 3 -1 rely", "at \"product"},
      {"0.5 3 -1 relu", "0.5 3 -1 relu 1", "at \"product"},
      {"0.5 3 -1 relu", "0.5 3 4 relu", "tensor 4 is read before it is made"},
      {"output 5", "output 6", "tensor 6 is read before it is made"},
      {"output 5", "output \x01\x02", "at \"output ??\""},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(Says(BlasRefusal(Damaged(kBlas, damage)), damage.said)) << damage.to;
  }
}

TEST(BlasProgram, TensorsAreWhatTheProductsWant) {
  const BlasProgram program = BlasProgram::Parse(kBlas);
  const DLDataType f32{kDLFloat, 32, 1}, f64{kDLFloat, 64, 1}, i32{kDLInt, 32, 1};
  const std::vector<TensorType> inputs = {{f32, {4, 16}}, {f32, {8, 3}}},
                                constants = {{f32, {8, 16}}, {f32, {8}}},
                                outputs = {{f32, {4, 3}}, {f32, {4, 8}}};
  program.CheckTensors(inputs, constants, outputs);
  const auto refusal = [&](auto change) {
    auto in = inputs, fixed = constants, out = outputs;
    change(in, fixed, out);
    return Refusal([&] { program.CheckTensors(in, fixed, out); });
  };
  EXPECT_TRUE(Says(refusal([&](auto& in, auto&, auto&) { in[1] = {f32, {8, 4}}; }),
                   "input 1 is float32 [8, 4], its products want 24 elements of float32"));
  EXPECT_TRUE(
      Says(refusal([&](auto& in, auto&, auto&) { in.pop_back(); }), "speaks of 2 inputs, 1 are there"));
  EXPECT_TRUE(
      Says(refusal([&](auto&, auto& fixed, auto&) { fixed[1] = {f64, {8}}; }), "constant 1 is float64 [8]"));
  EXPECT_TRUE(
      Says(refusal([&](auto&, auto& fixed, auto&) { fixed[0] = {i32, {8, 16}}; }), "constant 0 is int32"));
  EXPECT_TRUE(
      Says(refusal([&](auto&, auto&, auto& out) { out[0] = {f32, {3}}; }), "output 0 is float32 [3]"));
  EXPECT_TRUE(Says(refusal([&](auto&, auto&, auto& out) { out[1] = {f32, {INT64_MAX, 8}}; }), "output 1"));
}

TEST(OpenVinoProgram, SaysWhatTheTextSays) {
  const std::string text = "collage-openvino 5\nbf16\nadd nn.relu\n<xml/>\n";
  const openvino::Program program = openvino::Program::Parse(text);
  EXPECT_EQ(program.precision, "bf16");
  EXPECT_EQ(ParseGroups(program.groups), (std::vector<std::string>{"add", "nn.relu"}));
  EXPECT_EQ(program.xml, "<xml/>\n");
  for (const Seed& seed : Seeds("openvino_program")) openvino::Program::Parse(seed.content);
}

TEST(OpenVinoProgram, RefusesOtherFrames) {
  for (const char* text :
       {"", "collage-openvino 5", "collage-openvino 5\n", "collage-openvino 5\nf32\nadd\n",
        "collage-openvino 5\nf32\nadd", "collage-openvino 5\nf16\nadd\nx", "collage-openvino 5\nadd\nx",
        "collage-openvino 4\n0 1\nx", "collage-openvino 55\nf32\nadd\nx"}) {
    EXPECT_TRUE(Says(Refusal([&] { openvino::Program::Parse(text); }), "compile the model again")) << text;
  }
}

TEST(DeviceProgram, SaysWhatTheTextSays) {
  using namespace std::string_literals;
  const std::string text =
      "collage-device 2\ncuda sm_90\nadd nn.relu exp\n0,2 - \n1 \n0 1,2 \n3 7 \nELF\0\n"s;
  const device::Program program = device::Program::Parse(text);
  EXPECT_EQ(program.groups, (std::vector<std::string>{"add", "nn.relu", "exp"}));
  EXPECT_EQ(program.readers, (std::vector<std::vector<int>>{{0, 2}, {}}));
  EXPECT_EQ(program.makers, (std::vector<std::vector<int>>{{1}}));
  EXPECT_EQ(program.does, (std::vector<std::vector<int>>{{0}, {1, 2}}));
  EXPECT_EQ(program.kernels, (std::vector<int>{3, 7}));
  EXPECT_EQ(program.device, "cuda");
  EXPECT_EQ(program.architecture, "sm_90");
  EXPECT_EQ(program.library, "ELF\0\n"s);
  for (const Seed& seed : Seeds("device_program")) device::Program::Parse(seed.content);
}

TEST(DeviceProgram, RefusesOtherFrames) {
  const std::string right = "collage-device 2\nopencl -\nadd\n0 \n0 \n0 \n3 \nx";
  device::Program::Parse(right);
  const Damage damages[] = {
      {"device 2", "device 1", ""},
      {"opencl -", "opencl", ""},
      {"3 \nx", "3 \n", ""},
      {"3 \nx", "3 ", ""},
      {"add\n0 ", "add\n0", ""},
      {"add\n0 ", "add\n1 ", ""},
      {"add\n0 ", "add\n-1 ", ""},
      {"add\n0 ", "add\n0, ", ""},
      {"add\n0 ", "add\n0;0 ", ""},
      {"add\n0 ", "add\n ", ""},
      {"3 \nx", "3 4 \nx", ""},
      {"3 \nx", "- \nx", ""},
      {"3 \nx", "3,4 \nx", ""},
      {"3 \nx", "\nx", ""},
      {"3 \nx", "99999999999 \nx", ""},
      {"0 \n3 \n", "0 0 \n3 3 \n", ""},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(
        Says(Refusal([&] { device::Program::Parse(Damaged(right, damage)); }), "compile the model again"))
        << damage.from << " -> " << damage.to;
  }
  for (const char* text : {"", "collage-device 2", "collage-device 2\n", "collage-device 2\ncuda sm_90\n"}) {
    EXPECT_TRUE(Says(Refusal([&] { device::Program::Parse(text); }), "compile the model again")) << text;
  }
}

TEST(OnnxRuntimeProgram, SaysWhatTheTextSays) {
  using namespace std::string_literals;
  const std::string text = "collage-onnxruntime 3\nadd nn.relu\ng1/o0\nc0 c1\0model"s;
  const OnnxRuntimeProgram program = OnnxRuntimeProgram::Parse(text, 2, 1);
  EXPECT_EQ(program.groups, (std::vector<std::string>{"add", "nn.relu"}));
  EXPECT_EQ(program.outputs, (std::vector<std::string>{"g1/o0"}));
  EXPECT_EQ(program.constant_names, (std::vector<std::string>{"c0", "c1"}));
  EXPECT_EQ(program.model, "model");
  EXPECT_TRUE(OnnxRuntimeProgram::Parse("collage-onnxruntime 3\n\no0\n\0m"s, 0, 1).constant_names.empty());
  for (const Seed& seed : Seeds("onnxruntime_program")) {
    OnnxRuntimeProgram::Parse(seed.content, seed.content.find("c1") == std::string::npos ? 0 : 2, 1);
  }
}

TEST(OnnxRuntimeProgram, RefusesOtherFrames) {
  const std::string line = "collage-onnxruntime 3\n";
  using namespace std::string_literals;
  for (const std::string& text : {""s, "/a/b"s, "/a/b\0\0model"s, line, line + "c0", line + "c0\0m"s,
                                  line + "add\no0\n\0"s, "collage-onnxruntime 2\nc0\0m"s}) {
    EXPECT_TRUE(Says(Refusal([&] { OnnxRuntimeProgram::Parse(text, 0, 1); }), "compile the model again"))
        << text;
  }
  const std::string head = line + "add\no0\nc0\0m"s;
  EXPECT_TRUE(
      Says(Refusal([&] { OnnxRuntimeProgram::Parse(head, 2, 1); }), "2 constants and 1 names for them"));
  EXPECT_TRUE(
      Says(Refusal([&] { OnnxRuntimeProgram::Parse(head, 1, 3); }), "3 outputs and 1 names for them"));
}

}  // namespace
}  // namespace collage
