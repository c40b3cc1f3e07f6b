// SPDX-License-Identifier: Apache-2.0
//
// What engines that are given whole regions say about their layers, as steps of the region.
#include "layer_steps.h"

#include <gtest/gtest.h>
#include <picojson.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "onnxruntime_profile.h"
#include "openvino_layers.h"

namespace collage {
namespace {

using Groups = std::vector<int>;

picojson::object Read(const std::string& text) {
  picojson::value value;
  EXPECT_EQ(picojson::parse(value, text), "") << text;
  return value.get<picojson::object>();
}

TEST(LayerSteps, GroupsAreWordsOfAName) {
  EXPECT_EQ(AllGroupsInName("g7/nn.conv2d_12", 8), Groups{7});
  EXPECT_EQ(AllGroupsInName("g4/g0/n3", 8), (Groups{0, 4}));
  EXPECT_EQ(AllGroupsInName("g2/relu_3,g1/add_2,g2/x", 8), (Groups{1, 2}));
  for (const char* name :
       {"", "g", "g/", "g1", "g1x/", "reg1/", "9g1/", "g8/", "g99999999999999999999/", "gg/"}) {
    EXPECT_EQ(AllGroupsInName(name, 8), Groups{}) << name;
  }
}

TEST(OpenVinoLayers, FusedNodesAndReordersFindTheirGroups) {
  const std::vector<openvino::NodeTime> nodes = {
      {"input_0", "Parameter", "unknown_f32", 0},
      {"input_0_abcd_acdb_g0/nn.conv2d_3", "Reorder", "reorder_f32", 9},
      {"g0/nn.conv2d_3", "Convolution", "brgconv", 90},
      {"g2/nn.relu_5", "Relu", "undef", 0},
      {"Multiply_99", "Multiply", "undef", 0},
      {"g0/nn.conv2d_3_acdb_abcd_g3/reshape_7", "Reorder", "reorder_f32", 4},
      {"g3/reshape_7", "Reshape", "unknown_f32", 0},
      {"weight_1_ab_ba_g4/nn.dense_8", "Reorder", "reorder_f32", 2},
      {"g4/nn.dense_8_ab_ba_output_9", "Reorder", "reorder_f32", 3},
      {"Power_17", "Eltwise", "jit", 5},
  };
  std::vector<double> milliseconds;
  for (const openvino::NodeTime& node : nodes) milliseconds.push_back(static_cast<double>(node.microseconds));
  const std::vector<LayerStep> steps = openvino::StepsOf(nodes, milliseconds, 5);
  ASSERT_EQ(steps.size(), 7u);
  const auto expect = [&](size_t i, double ms, bool reorder, const Groups& of, const Groups& from) {
    EXPECT_EQ(steps[i].milliseconds, ms) << i;
    EXPECT_EQ(steps[i].reorder, reorder) << i;
    EXPECT_EQ(steps[i].of, of) << i;
    EXPECT_EQ(steps[i].from, from) << i;
  };
  expect(0, 9, true, {0}, {});
  expect(1, 90, false, {0, 2}, {});
  expect(2, 4, true, {3}, {0});
  expect(3, 0, false, {3}, {});
  expect(4, 2, false, {4}, {});
  expect(5, 3, true, {}, {4});
  expect(6, 5, false, {}, {});
}

TEST(OpenVinoLayers, MeansLeaveTheFirstRunOut) {
  openvino::LayerTimes times({"add"});
  times.Begin({{"g0/add_1", "Add", "jit", 1000}});
  // 1000, 10, 10, 13 microseconds: OpenVINO says the mean of all, cut.
  for (const int64_t mean : {505, 340, 258}) times.Add({{"g0/add_1", "Add", "jit", mean}}, 0.014);
  picojson::object said = Read(times.Describe());
  const double ms = said["steps"].get<picojson::array>()[0].get("ms").get<double>();
  EXPECT_NEAR(ms, 0.0115, 0.001);
  EXPECT_NEAR(said["call_ms"].get<double>(), 0.014 - ms, 1e-9);
  times.Add({{"g0/add_1", "Add", "jit", 208}}, 5);
  said = Read(times.Describe());
  const double four = said["steps"].get<picojson::array>()[0].get("ms").get<double>();
  EXPECT_NEAR(said["call_ms"].get<double>(), 0.014 - four, 1e-9)
      << "a run that waited is not what the call takes";
  times.Add({}, 1);
  said = Read(times.Describe());
  EXPECT_TRUE(said["steps"].get<picojson::array>().empty());
  EXPECT_EQ(said["why"].get<std::string>(), "OpenVINO's profile changed from run to run");
}

TEST(OnnxRuntimeProfile, NodesAreNamedByThemselvesOrByTheirTensor) {
  const std::string profile = R"([
    {"cat": "Session", "name": "model_run", "dur": 130, "ts": 1},
    {"cat": "Session", "name": "SequentialExecutor::Execute", "dur": 100, "ts": 2},
    {"cat": "Node", "name": "ReorderInput_kernel_time", "dur": 5, "ts": 3, "args": {"op_name": "ReorderInput"}},
    {"cat": "Node", "name": "ReorderOutput_token_7_kernel_time", "dur": 6, "ts": 5, "args": {"op_name": "ReorderOutput"}},
    {"cat": "Node", "name": "g2/v5_nchwc_kernel_time", "dur": 50, "ts": 4, "args": {"op_name": "Conv"}},
    {"cat": "Node", "name": "g2/v5_nchwc_fence_before", "dur": 7, "ts": 4, "args": {"op_name": "Conv"}},
    {"cat": "Node", "name": "g3/g4/n4_kernel_time", "dur": 9, "ts": 6, "args": {"op_name": "Gemm"}},
    {"cat": "Node", "name": "Gelu_token_9_kernel_time", "dur": 3, "ts": 7, "args": {"op_name": "Gelu"}}])";
  picojson::object said = Read(DescribeProfile({"a", "b", "c", "d", "e"}, profile));
  EXPECT_NEAR(said["call_ms"].get<double>(), 0.03, 1e-9);
  std::string text;
  for (picojson::value& step : said["steps"].get<picojson::array>()) {
    text += step.get("what").get<std::string>() + " " +
            std::to_string(std::lround(1000 * step.get("ms").get<double>()));
    if (step.contains("of")) text += " " + step.get("of").serialize();
    text += "\n";
  }
  EXPECT_EQ(text,
            "ReorderInput ReorderInput 5 [2]\nConv g2/v5_nchwc 50 [2]\n"
            "ReorderOutput ReorderOutput_token_7 6 [2]\nGemm g3/g4/n4 9 [3,4]\nGelu Gelu_token_9 3\n");
}

TEST(OnnxRuntimeProfile, WhatStandsAroundBytesBelongsToANeighbour) {
  const std::string profile = R"([
    {"cat": "Node", "name": "i0_q_kernel_time", "dur": 1, "ts": 1, "args": {"op_name": "QuantizeLinear"}},
    {"cat": "Node", "name": "Transpose_kernel_time", "dur": 2, "ts": 2, "args": {"op_name": "Transpose"}},
    {"cat": "Node", "name": "g1/n4_token_1_kernel_time", "dur": 3, "ts": 3, "args": {"op_name": "QLinearConv"}},
    {"cat": "Node", "name": "g2/n5_kernel_time", "dur": 4, "ts": 4, "args": {"op_name": "Sigmoid"}},
    {"cat": "Node", "name": "Transpose_token_9_kernel_time", "dur": 5, "ts": 5, "args": {"op_name": "Transpose"}}])";
  picojson::object said = Read(DescribeProfile({"a", "b", "c"}, profile));
  std::string of;
  for (picojson::value& step : said["steps"].get<picojson::array>()) of += step.get("of").serialize();
  EXPECT_EQ(of, "[1][1][1][2][2]");
}

TEST(OnnxRuntimeProfile, WhatCannotBeReadIsSaid) {
  for (const char* profile : {"", "{", "{}", "[{\"cat\""}) {
    picojson::object said = Read(DescribeProfile({"add"}, profile));
    EXPECT_EQ(said["why"].get<std::string>(), "ONNX Runtime's profile cannot be read") << profile;
  }
  // Members of other types are no reason to fall over.
  EXPECT_TRUE(Read(DescribeProfile(
      {"add"}, R"([1, {"cat": "Node", "name": 3}, {"name": "model_run", "dur": "x"}])"))["steps"]
                  .get<picojson::array>()
                  .empty());
}

TEST(OnnxRuntimeProfile, TheFolderGoesWithItsFile) {
  std::string path;
  {
    const ProfileFolder folder;
    path = folder.path();
    ASSERT_NE(path, "");
    EXPECT_EQ(folder.Read(), "");
    std::ofstream(path + "/run_1.json") << "[]";
    EXPECT_EQ(folder.Read(), "[]");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace collage
