// SPDX-License-Identifier: Apache-2.0
//
// What is read of a region for oneDNN, and what is refused.
#include "dnnl_program.h"

#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <algorithm>

#include "dnnl_check_program.h"
#include "refusal.h"

namespace collage::onednn {
namespace {

constexpr char kConvolution[] = R"({"format": "collage-dnnl", "version": 5,
"inputs": [0, 4], "outputs": [3],
"constants": [1, 2],
"values": [["f32", [1, 8, 4, 4]], ["f32", [8, 8, 3, 3]], ["f32", [8, 1, 1]], ["f32", [1, 8, 4, 4]], ["f32", []]],
"ops": [
  {"op": "conv", "kernel": "strips", "algorithm": "direct", "in": [0, 1, 2], "out": 3, "strides": [1, 1], "dilation": [1, 1],
   "padding": [1, 1, 1, 1], "weight": {"dims": [8, 8, 3, 3], "strides": [72, 9, 3, 1]}, "bias": true,
   "post": [{"op": "clip", "alpha": "-inf", "beta": 6}, {"op": "add", "in": 4}]}],
"groups": ["dnnl.conv2d_bias_clip", "add"], "of": [[0, 1]], "strips": [0, 1]}
)";

std::string RefusalOf(const std::string& text) {
  return Refusal([&] { ParseProgram(text); });
}

TEST(DnnlProgram, SaysWhatTheTextSays) {
  const Program program = ParseProgram(kConvolution);
  ASSERT_EQ(program.ops.size(), 1u);
  const Op& op = program.ops[0];
  EXPECT_EQ(op.kind, "conv");
  EXPECT_EQ(op.kernel, "strips");
  EXPECT_EQ(op.in, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(op.out, 3);
  EXPECT_EQ(op.pad_back, (Dims{1, 1}));
  EXPECT_EQ(op.weight.strides, (Dims{72, 9, 3, 1}));
  ASSERT_EQ(op.post.size(), 2u);
  EXPECT_EQ(op.post[0].alpha, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(op.post[1].operand, 4);
  EXPECT_EQ(program.values[4].dims, Dims{1});  // oneDNN knows no rank 0
  EXPECT_EQ(program.strips.at(0), 1);
  EXPECT_EQ(program.of[0], (std::vector<int>{0, 1}));
}

TEST(DnnlProgram, TakesWhatTheCodeGeneratorWrites) {
  const auto seeds = Seeds("dnnl_program");
  EXPECT_GE(seeds.size(), 20u);
  for (const Seed& seed : seeds) EXPECT_EQ(RefusalOf(seed.content), "") << seed.name;
}

TEST(DnnlProgram, RefusesWhatMakesNoSense) {
  const Damage damages[] = {
      {"collage-dnnl", "collage-dnn", "of another version"},
      {"\"version\": 5", "\"version\": 6", "of another version, 6; this runtime reads 5"},
      {"\"version\": 5", "\"version\": 2", "of another version, 2; this runtime reads 5"},
      {"\"version\": 5", "\"version\": 1.5", "version is no whole number"},
      {"\"op\": \"conv\", ", "", "the field op is not there"},
      {"\"out\": 3, ", "", "the field out is not there"},
      {"\"out\": 3", "\"out\": 3.5", "out is no whole number"},
      {"\"out\": 3", "\"out\": 7", "there is no value 7"},
      {"\"out\": 3", "\"out\": -1", "there is no value -1"},
      {"\"out\": 3", "\"out\": 0", "value 0 is the result of operation 0 and something else"},
      {"\"out\": 3", "\"out\": 16777219", "there is no value 16777219"},
      {"\"out\": 3", "\"out\": 4294967299", "out is out of range"},
      {"\"out\": 3", "\"out\": \"3\"", "out is no whole number"},
      {"\"out\": 3", "\"out\": 1e999", "number"},
      {"[0, 1, 2], \"out\"", "[0, 1], \"out\"", "operation 0 (conv): it has 2 arguments"},
      {"[0, 1, 2], \"out\"", "[0, 3, 2], \"out\"",
       "argument 1 (value 3) [1, 8, 4, 4] is read before it is made"},
      {"\"in\": 4}", "\"in\": 3}", "post-operation reads value 3 before it is made"},
      {"\"in\": 4}", "\"in\": 1}", "does not fit the result [1, 8, 4, 4]"},
      {"\"in\": 4}", "\"in\": 9}", "there is no value 9"},
      {"{\"op\": \"add\", \"in\": 4}", "{\"op\": \"add\"}", "no function of one"},
      {"{\"op\": \"add\", \"in\": 4}", "{\"op\": \"relu\", \"in\": 4}", "no function of two"},
      {"\"add\"", "\"ad\"", "the function ad, which is not known"},
      {"\"direct\"", "\"relu\"", "no such way to convolve"},
      {"[1, 8, 4, 4]", "[1, 8, 4, 5]", "do not lead from the argument's extents"},
      {"[1, 8, 4, 4]", "[2, 8, 4, 4]", "differ in their batches"},
      {"[1, 8, 4, 4]", "[1, 16, 4, 4]", "takes another number of channels"},
      {"[1, 8, 4, 4]", "[1, 8, 0, 4]", "value 0 has an axis that cannot be"},
      {"[1, 8, 4, 4]", "[1, 8, 4, 4.5]", "extent is no whole number"},
      {"[1, 8, 4, 4]", "[4294967296]", "value 0 has an axis that cannot be"},
      {"[1, 8, 4, 4]", "[1073741824, 1073741824, 1073741824]", "value 0 is too large"},
      {"[1, 8, 4, 4]", "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]", "too many axes"},
      {"[8, 1, 1]", "[7, 1, 1]", "argument 2 (value 2) [7, 1, 1] should have 8 elements"},
      {"[\"f32\", [8, 1, 1]]", "[\"s32\", [8, 1, 1]]", "argument 2 (value 2) [8, 1, 1] is of another type"},
      {"[\"f32\", [8, 1, 1]]", "[\"f33\", [8, 1, 1]]", "tensors of the type f33"},
      {"[\"f32\", [8, 1, 1]]", "[\"f32\"]", "a value is no pair"},
      {"\"strides\": [1, 1]", "\"strides\": [1]", "strides has 1 entries and should have 2"},
      {"\"strides\": [1, 1]", "\"strides\": [0, 1]", "strides holds 0"},
      {"\"dilation\": [1, 1]", "\"dilation\": [1, -1]", "dilation holds -1"},
      {"\"padding\": [1, 1, 1, 1]", "\"padding\": [1, 1, 1]", "padding has no two sides"},
      {"\"padding\": [1, 1, 1, 1]", "\"padding\": [-1, 1, 3, 1]", "padding holds -1"},
      {"\"strides\": [72, 9, 3, 1]", "\"strides\": [73, 9, 3, 1]",
       "weight reaches beyond value 1 [8, 8, 3, 3]"},
      {"\"strides\": [72, 9, 3, 1]", "\"strides\": [72, 9, 3, 1], \"offset\": 1",
       "weight reaches beyond value 1"},
      {"\"strides\": [72, 9, 3, 1]", "\"strides\": [72, 9, 3, 1], \"offset\": -1",
       "weight reaches beyond value 1"},
      {"\"strides\": [72, 9, 3, 1]", "\"strides\": [2147483647, 9, 3, 1]", "weight reaches beyond value 1"},
      {"\"bias\": true", "\"bias\": 1", "bias is neither true nor false"},
      {"\"op\": \"conv\"", "\"op\": \"cow\"",
       "operation 0 (cow): this runtime does not know such an operation"},
      {"\"op\": \"conv\"", "\"op\": \"eltwise\"", "operation 0 (eltwise): it has 3 arguments"},
      {"\"outputs\": [3]", "\"outputs\": [5]", "there is no value 5"},
      {"\"inputs\": [0, 4]", "\"inputs\": [0, 0, 4]", "value 0 is an input and something else"},
      {"\"inputs\": [0, 4]", "\"inputs\": [4]",
       "argument 0 (value 0) [1, 8, 4, 4] is read before it is made"},
      {"\"strips\": [0, 1]", "\"strips\": [0, 2]", "strips has operators that are not there"},
      {"\"strips\": [0, 1]", "\"strips\": [1, 2147483647]", "strips has operators that are not there"},
      {"\"strips\": [0, 1]", "\"strips\": [0]", "strips are no pairs"},
      {"\"strips\": [0, 1]", "\"strips\": [0, 1, 0, 1]", "strips has a group twice"},
      {", \"strips\": [0, 1]", "", "operation 0 (conv): it stands in no group of strips"},
      {"\"kernel\": \"strips\"", "\"kernel\": \"winograd\"",
       "operation 0 (conv): it stands in a group of strips"},
      {"\"kernel\": \"strips\"", "\"kernel\": \"attention\"",
       "operation 0 (conv): this runtime has no kernel attention for it"},
      {"\"kernel\": \"strips\"", "\"kernel\": \"loom\"", "this runtime has no kernel loom for it"},
      {"\"kernel\": \"strips\"", "\"kernel\": 1", "kernel is no text"},
      {"\"of\": [[0, 1]]", "\"of\": [[0, 2]]", "an operator is of no group"},
      {"\"of\": [[0, 1]]", "\"of\": []", "not every operator is of a group"},
      {"\"strips\": [0, 1]}", "\"strips\": [0, 1]} x", "something stands behind it"},
      {"{\"op\": \"conv\"", "{\"op\" \"conv\"", "syntax error"},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(Says(RefusalOf(Damaged(kConvolution, damage)), damage.said)) << damage.to;
  }
}

// Every kind of operation has its own conditions.
TEST(DnnlProgram, RefusesOperationsWhoseTensorsDoNotFit) {
  const struct {
    const char* values;
    const char* op;
    const char* said;
  } cases[] = {
      {R"([["f32", [2, 3]], ["f32", [4, 5]], ["f32", [2, 5]]])", R"("op": "matmul", "in": [0, 1])",
       "[2, 3] and [4, 5] do not make [2, 5]"},
      {R"([["f32", [3]], ["f32", [3, 5]], ["f32", [1, 5]]])", R"("op": "matmul", "in": [0, 1])",
       "wrong rank"},
      {R"([["f32", [3, 2, 4]], ["f32", [2, 4, 4]], ["f32", [3, 2, 4]]])", R"("op": "matmul", "in": [0, 1])",
       "batches of its arguments"},
      {R"([["f32", [2, 3]], ["f32", [2, 4]], ["f32", [2, 8]]])",
       R"("op": "concat", "in": [0, 1], "axes": [1])", "the result [2, 8] should be [2, 7]"},
      {R"([["f32", [2, 3]], ["f32", [3, 4]], ["f32", [2, 7]]])",
       R"("op": "concat", "in": [0, 1], "axes": [1])", "argument 1 (value 1) [3, 4] does not fit the others"},
      {R"([["f32", [2, 3]], ["f32", [2, 4]], ["f32", [2, 7]]])",
       R"("op": "concat", "in": [0, 1], "axes": [2])", "argument 0 (value 0) [2, 3] has no axis 2"},
      {R"([["f32", [2, 3]], ["f32", [2]], ["f32", [2, 3]]])",
       R"("op": "binary", "algorithm": "add", "in": [0, 1])",
       "argument 1 (value 1) [2] does not fit the result [2, 3]"},
      {R"([["f32", [1, 3]], ["f32", [3]], ["f32", [2, 3]]])",
       R"("op": "binary", "algorithm": "add", "in": [0, 1])", "larger than its arguments"},
      {R"([["f32", [2, 3]], ["f32", []], ["f32", [3, 3]]])",
       R"("op": "transpose", "in": [0], "perm": [1, 1])", "perm is no order of axes"},
      {R"([["f32", [2, 3]], ["f32", []], ["f32", [2, 3]]])",
       R"("op": "transpose", "in": [0], "perm": [1, 0])", "the result [2, 3] should be [3, 2]"},
      {R"([["f32", [2, 3]], ["f32", []], ["f32", [5]]])", R"("op": "reshape", "in": [0])",
       "argument 0 (value 0) [2, 3] should have 5 elements"},
      {R"([["s32", [2, 3]], ["f32", []], ["f32", [6]]])", R"("op": "reshape", "in": [0])",
       "is of another type"},
      {R"([["f32", [2, 3, 4]], ["f32", []], ["f32", [3]]])",
       R"("op": "reduce", "algorithm": "sum", "in": [0], "axes": [0, 2])",
       "its axes do not follow one another"},
      {R"([["f32", [2, 3, 4]], ["f32", []], ["f32", [3]]])",
       R"("op": "reduce", "algorithm": "sum", "in": [0], "axes": [0])", "another number of elements"},
      {R"([["f32", [2, 3, 4]], ["f32", []], ["f32", [2, 3, 4]]])",
       R"("op": "softmax", "in": [0], "axes": [])", "wrong number of axes"},
      {R"([["f32", [1, 3, 4, 4]], ["f32", []], ["f32", [1, 3, 2, 2]]])",
       R"("op": "pool", "algorithm": "max_pool", "in": [0], "window": [2], "strides": [2, 2], "dilation": [1, 1],
          "padding": [0, 0, 0, 0])",
       "window has 1 entries and should have 2"},
      {R"([["f32", [1, 3, 4, 4]], ["f32", []], ["f32", [1, 3, 2, 3]]])",
       R"("op": "pool", "algorithm": "max_pool", "in": [0], "window": [2, 2], "strides": [2, 2], "dilation": [1, 1],
          "padding": [0, 0, 0, 0])",
       "do not lead from the argument's extents"},
      {R"([["f32", [1, 3, 4, 4]], ["f32", []], ["f32", [1, 2, 8, 8]]])",
       R"("op": "resample", "algorithm": "nearest", "in": [0])", "differ in their batches or channels"},
      {R"([["f32", [2, 8]], ["f32", [7]], ["f32", [2, 8]]])", R"("op": "layer_norm", "in": [0, 1, 1])",
       "argument 1 (value 1) [7] should have 8 elements"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])", R"("op": "standardise", "in": [0, 1, 1])",
       "it names no kernel, and oneDNN has none for it"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])",
       R"("op": "layer_norm", "in": [0, 1], "unshifted": true)", "with a gain and a shift only"},
      {R"([["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]]])",
       R"("op": "layer_norm", "in": [0, 1, 1], "axes": [0, 1])", "along one axis only"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])", R"("op": "layer_norm", "in": [0, 1, 1, 0])",
       "it has 4 arguments"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])",
       R"("op": "layer_norm", "kernel": "norm", "in": [0, 1, 1, 0, 0, 0, 0, 0])", "it has 8 arguments"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])",
       R"("op": "rms_norm", "kernel": "norm", "in": [0, 1], "axes": [0], "unshifted": true)",
       "its axes are not the last ones"},
      {R"([["f32", [2, 8]], ["f32", [2]], ["f32", [2, 8]]])",
       R"("op": "rms_norm", "kernel": "norm", "in": [0, 1], "unscaled": true, "unshifted": true)",
       "argument 1 (value 1) [2] should have 8 elements"},
      {R"([["f32", [2, 8]], ["f32", [8]], ["f32", [2, 8]]])",
       R"("op": "rms_norm", "kernel": "norm", "in": [0, 1], "more": [2], "unshifted": true)",
       "it does not make such a sum"},
      {R"([["f32", [2, 6, 3]], ["f32", [6]], ["f32", [2, 6, 3]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1, 1], "groups": 4)",
       "its groups do not divide its channels"},
      {R"([["f32", [2, 6, 3]], ["f32", [3]], ["f32", [2, 6, 3]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1, 1], "groups": 3)",
       "argument 1 (value 1) [3] should have 6 elements"},
      {R"([["f32", [2, 3, 6]], ["f32", [3]], ["f32", [2, 3, 6]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1, 1], "groups": 3, "perm": [0, 2, 1])",
       "argument 1 (value 1) [3] should have 6 elements"},
      {R"([["f32", [2, 3, 6]], ["f32", [6]], ["f32", [2, 3, 6]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1, 1], "groups": 3, "perm": [0, 2, 2])",
       "perm is no order of axes"},
      {R"([["f32", [2, 6, 3]], ["f32", [3]], ["f32", [2, 6, 3]]])",
       R"("op": "channel_scale", "kernel": "norm", "in": [0, 1, 1], "axes": [1])",
       "argument 1 (value 1) [3] should have 6 elements"},
      {R"([["f32", [2, 6, 3]], ["f32", [6]], ["f32", [2, 6, 3]]])",
       R"("op": "channel_scale", "kernel": "norm", "in": [0, 1, 1, 1], "axes": [1])",
       "argument 3 (value 1) [6] should have a number for each channel"},
      {R"([["f32", [6, 2, 3]], ["f32", [6, 1, 1]], ["f32", [6, 2, 3]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1, 1, 1], "groups": 3, "perm": [1, 0, 2])",
       "argument 3 (value 1) [6, 1, 1] should have a number for each channel"},
      {R"([["f32", [2, 6, 3]], ["f32", [1, 6, 3]], ["f32", [2, 6, 3]]])",
       R"("op": "group_norm", "kernel": "norm", "in": [0, 1], "groups": 3, "unscaled": true, "unshifted": true)",
       "argument 1 (value 1) [1, 6, 3] should have a number for each channel"},
      {R"([["f32", [2, 6, 3]], ["f32", [6]], ["f32", [2, 6, 3]]])",
       R"("op": "channel_scale", "in": [0, 1, 1], "axes": [1])",
       "it names no kernel, and oneDNN has none for it"},
      {R"([["f32", [1, 4, 8, 8]], ["f32", [4, 4, 3, 3]], ["f32", [1, 4, 16, 24]]])",
       R"("op": "upsampled_conv", "algorithm": "direct", "in": [0, 1], "scale": [2], "strides": [1, 1],
          "dilation": [1, 1], "padding": [1, 1, 1, 1], "weight": {"dims": [4, 4, 3, 3], "strides": [36, 9, 3, 1]})",
       "scale has 1 entries and should have 2"},
      {R"([["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]]])",
       R"("op": "attention", "in": [0, 1, 1], "views": [{"dims": [1, 1, 2, 8], "strides": [16, 8, 8, 1]}])",
       "not a view for each of its tensors"},
      {R"([["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]]])",
       R"("op": "attention", "in": [0, 1, 1], "views": [
          {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]}, {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]},
          {"dims": [1, 1, 1, 3, 8], "strides": [16, 16, 8, 8, 1]}, {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]}])",
       "views[2] reaches beyond value 1 [2, 8]"},
      {R"([["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]]])",
       R"("op": "attention", "in": [0, 1, 1], "views": [
          {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]}, {"dims": [1, 1, 1, 2, 4], "strides": [16, 16, 8, 8, 1]},
          {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]}, {"dims": [1, 1, 1, 2, 8], "strides": [16, 16, 8, 8, 1]}])",
       "its key does not fit its query"},
  };
  for (const auto& one : cases) {
    std::string text =
        std::string(R"({"format": "collage-dnnl", "version": 5, "inputs": [0, 1], "constants": [],
        "outputs": [2], "values": )") +
        one.values + ", \"ops\": [{" + one.op;
    text += ", \"out\": 2}]}";
    EXPECT_TRUE(Says(RefusalOf(text), one.said)) << one.op;
  }
}

// A program of one attention of two queries and keys of 8 numbers, with tensors for masks: value 3 is added,
// value 4 chooses.
std::string Attending(const std::string& in, const std::string& masks, const std::string& query_strides) {
  const auto view = [](const char* dims, const std::string& strides) {
    return std::string(R"({"dims": )") + dims + R"(, "strides": )" + strides + "}";
  };
  const std::string side = view("[1, 1, 1, 2, 8]", "[16, 16, 8, 8, 1]");
  std::string views = view("[1, 1, 1, 2, 8]", query_strides) + ", " + side + ", " + side + ", " + side;
  for (size_t i = 3; i < static_cast<size_t>(std::count(in.begin(), in.end(), ',')) + 1; ++i) {
    views += ", " + view("[1, 1, 1, 2, 2]", "[0, 0, 0, 2, 1]");
  }
  return R"({"format": "collage-dnnl", "version": 5, "inputs": [0, 1, 3, 4], "constants": [], "outputs": [2],
    "values": [["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 2]], ["bool", [2, 2]]],
    "ops": [{"op": "attention", "kernel": "attention", "in": )" +
         in + R"(, "out": 2, "views": [)" + views + R"(], "masks": [)" + masks + "]}]}";
}

TEST(DnnlProgram, MasksOfAttention) {
  const std::string plain = "[16, 16, 8, 8, 1]";
  const struct {
    const char *in, *masks, *said;
  } cases[] = {
      {"[0, 1, 1]", "", ""},
      {"[0, 1, 1, 3]", "{}", ""},
      {"[0, 1, 1, 4]", R"({"chooses": true, "fill": "-inf", "sees": 1, "beyond": "-inf"})", ""},
      {"[0, 1, 1, 4, 3]", R"({"chooses": true, "keeps": true, "fill": -1}, {})", ""},
      {"[0, 1, 1, 3]", "", "does not say what each of its masks does"},
      {"[0, 1, 1]", "{}", "does not say what each of its masks does"},
      {"[0, 1, 1, 4]", "{}", "argument 3 (value 4) [2, 2] is of another type"},
      {"[4, 1, 1]", "", "argument 0 (value 4) [2, 2] is of another type"},
      {"[0, 1, 1, 3]", R"({"chooses": true})", "argument 3 (value 3) [2, 2] is of another type"},
      {"[0, 1, 1, 3]", R"({"chooses": 1})", "chooses is neither true nor false"},
      {"[0, 1, 1, 3, 3]", R"({"sees": 1}, {"sees": 1})", "it has two triangles"},
      {"[0, 1, 1, 3]", R"({"sees": 9999999999})", "its triangle is beyond its scores"},
      {"[0, 1, 1, 3, 3, 3]", "{}, {}, {}", "it has 6 arguments"},
  };
  for (const auto& one : cases) {
    const std::string said = RefusalOf(Attending(one.in, one.masks, plain));
    EXPECT_TRUE(*one.said == '\0' ? said.empty() : Says(said, one.said)) << one.in << one.masks << said;
  }
  EXPECT_TRUE(Says(RefusalOf(Attending("[0, 1, 1]", "", "[2, 2, 2, 1, 2]")), "do not follow one another"));
}

TEST(DnnlProgram, RecurrentLayers) {
  std::string text;
  for (const Seed& seed : Seeds("dnnl_program")) {
    if (seed.name == "recurrent.json") text = seed.content;
  }
  ASSERT_EQ(RefusalOf(text), "");
  const Damage damages[] = {
      {"\"kernel\": \"recurrent\", ", "", "it names no kernel, and oneDNN has none for it"},
      {"\"lstm\"", "\"sigmoid\"", "there is no such layer"},
      {"\"lstm\"", "\"gru\"", "it does not name each of its parts"},
      {"[\"f32\", [3, 2, 3]]", "[\"f32\", [6, 3]]", "its sequence has not three axes"},
      {"\"parts\": [1, 2, 3,", "\"parts\": [1, 2, -1,", "weights are missing"},
      {"\"parts\": [1, 2, 3,", "\"parts\": [1, 2, 9,", "a part is no argument"},
      {"\"parts\": [1, 2, 3,", "\"parts\": [1, 2, 1,", "its weight and the scales must be constants"},
      {"\"parts\": [1, 2,", "\"parts\": [1, 3,", "argument 3 (value 3) [20, 8] should have 10 elements"},
      {"{\"dims\": [5, 3], \"strides\": [8, 1]}, ", "", "its weights do not fit one another"},
      {", {\"dims\": [5], \"strides\": [1], \"offset\": 15}", "", "not a view for each of its weights"},
      {"\"views\": [", "\"views\": [{\"dims\": [5, 3], \"strides\": [8, 1]}, ", "do not fit one another"},
      {"{\"dims\": [5, 3], \"strides\": [8, 1]}", "{\"dims\": [4, 3], \"strides\": [8, 1]}", "elements"},
      {"\"offset\": 123", "\"offset\": 124", "reaches beyond value 3 [20, 8]"},
      {"\"times\": [-2]", "\"times\": []", "it does not say what its results are"},
      {"\"times\": [-2]", "\"times\": [-3]", "there is no such result"},
      {"\"times\": [-2]", "\"times\": [3]", "there is no such result"},
      {"\"times\": [-2]", "\"times\": [2]", "a result is of another shape"},
  };
  for (const Damage& damage : damages) {
    const std::string said = RefusalOf(Damaged(text, damage));
    EXPECT_TRUE(Says(said, damage.said)) << damage.to << ": " << said;
  }
}

// A convolution of bytes, whose weight is value 1 and whose scales are value 2, and a dense layer (3, 4).
const char* const kBytes =
    R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [1, 2, 3, 4],
  "outputs": [7], "values": [["f32", [1, 8, 4, 4]], ["s8", [8, 8, 3, 3]], ["f32", [8]], ["s8", [5, 128]],
    ["f32", [5]], ["f32", [1, 8, 4, 4]], ["f32", [1, 128]], ["f32", [1, 5]]],
  "ops": [{"op": "conv", "kernel": "bytes", "algorithm": "direct", "in": [0, 1, 2], "out": 5, "strides": [1, 1],
      "dilation": [1, 1], "padding": [1, 1, 1, 1], "weight": {"dims": [8, 8, 3, 3], "strides": [72, 9, 3, 1]}},
    {"op": "reshape", "in": [5], "out": 6},
    {"op": "matmul", "kernel": "bytes", "in": [6, 3, 4], "out": 7, "transpose_b": true}]})";

TEST(DnnlProgram, WeightsOfBytes) {
  EXPECT_EQ(RefusalOf(kBytes), "");
  const Damage damages[] = {
      {"[\"s8\", [8, 8, 3, 3]]", "[\"f32\", [8, 8, 3, 3]]",
       "argument 1 (value 1) [8, 8, 3, 3] is of another type"},
      {"[\"f32\", [8]]", "[\"s8\", [8]]", "argument 2 (value 2) [8] is of another type"},
      {"[\"f32\", [8]]", "[\"f32\", [7]]", "argument 2 (value 2) [7] should have 8 elements"},
      {"[\"f32\", [1, 8, 4, 4]], [\"s8\"", "[\"s8\", [1, 8, 4, 4]], [\"s8\"",
       "argument 0 (value 0) [1, 8, 4, 4] is of another type"},
      {"\"in\": [0, 1, 2]", "\"in\": [0, 1]", "operation 0 (conv): it has 2 arguments"},
      {"\"in\": [6, 3, 4]", "\"in\": [6, 3]", "operation 2 (matmul): it has 2 arguments"},
      {"[\"f32\", [5]]", "[\"f32\", [6]]", "argument 2 (value 4) [6] should have 5 elements"},
      {"\"inputs\": [0], \"constants\": [1, 2, 3, 4]", "\"inputs\": [0, 1], \"constants\": [2, 3, 4]",
       "its weight and the scales must be constants"},
      {"\"inputs\": [0], \"constants\": [1, 2, 3, 4]", "\"inputs\": [0, 4], \"constants\": [1, 2, 3]",
       "its weight and the scales must be constants"},
      {"\"conv\", \"kernel\": \"bytes\"", "\"conv\"", "argument 1 (value 1) [8, 8, 3, 3] is of another type"},
      {"\"weight\": {\"dims\": [8, 8, 3, 3], \"strides\": [72, 9, 3, 1]}",
       "\"weight\": {\"dims\": [1, 8, 8, 3, 3], \"strides\": [0, 72, 9, 3, 1]}",
       "the kernel bytes knows no groups"},
      {"\"transpose_b\": true", "\"transpose_a\": true", "only dense layers are computed in bytes"},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(Says(RefusalOf(Damaged(kBytes, damage)), damage.said))
        << damage.to << RefusalOf(Damaged(kBytes, damage));
  }
}

TEST(DnnlProgram, StepsOfAGrid) {
  const std::string text = R"({"format": "collage-dnnl", "version": 5, "inputs": [0], "constants": [],
    "outputs": [2], "values": [["f32", [2, 8]], ["f32", [2, 8]], ["f32", [2, 8]]], "ops": [
      {"op": "eltwise", "kernel": "grid", "algorithm": "grid", "in": [0], "out": 1, "alpha": 0.5, "beta": -7},
      {"op": "eltwise", "algorithm": "relu", "in": [1], "out": 2, "post": [{"op": "grid", "alpha": 2}]}]})";
  EXPECT_EQ(RefusalOf(text), "");
  const Damage damages[] = {
      {"\"alpha\": 0.5", "\"alpha\": 0", "operation 0 (eltwise): the scale of a grid is no length"},
      {"\"alpha\": 0.5", "\"alpha\": -0.5", "the scale of a grid is no length"},
      {"\"alpha\": 0.5", "\"alpha\": \"inf\"", "the scale of a grid is no length"},
      {"\"alpha\": 2}", "\"beta\": 0}", "operation 1 (eltwise): the scale of a grid is no length"},
      {"\"beta\": -7", "\"beta\": -7.5", "the least step of a grid is no byte's"},
      {"\"beta\": -7", "\"beta\": -256", "the least step of a grid is no byte's"},
      {"\"beta\": -7", "\"beta\": 1", "the least step of a grid is no byte's"},
      {"\"algorithm\": \"relu\"", "\"kernel\": \"grid\"", "no such function of one number"},
      {"\"op\": \"eltwise\", \"kernel\": \"grid\"", "\"op\": \"binary\", \"kernel\": \"grid\"",
       "it has 1 arguments"},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(Says(RefusalOf(Damaged(text, damage)), damage.said))
        << damage.to << RefusalOf(Damaged(text, damage));
  }
}

TEST(DnnlProgram, RefusesATextOfBrackets) {
  EXPECT_TRUE(Says(RefusalOf(std::string(1 << 20, '[')), "nested too deeply"));
}

TEST(DnnlProgram, RefusesAllBeginningsOfAText) {
  const std::string text = kConvolution;
  for (size_t size = 0; size + 2 < text.size(); ++size)
    EXPECT_NE(RefusalOf(text.substr(0, size)), "") << size;
}

TEST(DnnlProgram, ConstantsAreWhatTheProgramSays) {
  const Program program = ParseProgram(kConvolution);
  using tvm::runtime::NDArray;
  const DLDevice cpu{kDLCPU, 0};
  const NDArray weight = NDArray::Empty({8, 8, 3, 3}, {kDLFloat, 32, 1}, cpu);
  const NDArray bias = NDArray::Empty({8, 1, 1}, {kDLFloat, 32, 1}, cpu);
  CheckConstants(program, {weight, bias});
  EXPECT_TRUE(
      Says(Refusal([&] { CheckConstants(program, {weight}); }), "speaks of 2 constants, 1 are there"));
  EXPECT_TRUE(Says(Refusal([&] { CheckConstants(program, {bias, bias}); }),
                   "the constant 0 is float32 [8, 1, 1], the program wants float32 [8, 8, 3, 3]"));
  EXPECT_TRUE(
      Says(Refusal([&] { CheckConstants(program, {weight, NDArray::Empty({8}, {kDLInt, 32, 1}, cpu)}); }),
           "the constant 1 is int32 [8]"));
}

}  // namespace
}  // namespace collage::onednn
