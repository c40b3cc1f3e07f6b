// SPDX-License-Identifier: Apache-2.0
//
// What an engine is told of a region with open dimensions, for the sizes of a call.
#include "dnnl_sized_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "refusal.h"

namespace collage::onednn {
namespace {

// Two sizes: those of input 0, dimension 1, and of input 1, dimension 0. A text where both are 1, one where
// the first is, and one for all others.
constexpr char kText[] =
    R"({"format":"collage-sized","version":1,"sizes":[[0,1],[1,0]],"texts":[)"
    R"({"ones":[0,1],"pieces":["both"],"numbers":null},)"
    R"({"ones":[0],"pieces":["one, ",""],"numbers":[[[3,0,2]]]},)"
    R"({"ones":[],"pieces":["a ",", b ","."],"numbers":[[[2,1,0],[-7,0,0]],[[5,1,1]]]}]})";

TEST(SizedText, IsTheTextAtTheSizes) {
  ASSERT_TRUE(SizedText::Is(kText));
  EXPECT_FALSE(SizedText::Is(R"({"format": "collage-dnnl", "version": 5})"));
  EXPECT_FALSE(SizedText::Is(""));
  const SizedText text(kText, 2);
  EXPECT_EQ(text.At({1, 1}), "both");
  EXPECT_EQ(text.At({1, 4}), "one, 48");
  EXPECT_EQ(text.At({4, 1}), "a 1, b 20.");
  EXPECT_EQ(text.At({10, 3}), "a 13, b 150.");
}

TEST(SizedText, SizesAreThoseOfTheInputs) {
  const SizedText text(kText, 2);
  int64_t first[] = {3, 9, 5}, second[] = {7};
  DLTensor a{}, b{};
  a.shape = first;
  a.ndim = 3;
  b.shape = second;
  b.ndim = 1;
  std::vector<int64_t> sizes;
  text.SizesOf({&a, &b}, &sizes);
  EXPECT_EQ(sizes, (std::vector<int64_t>{9, 7}));
  b.ndim = 0;
  EXPECT_TRUE(Says(Refusal([&] { text.SizesOf({&a, &b}, &sizes); }), "a dimension that is not there"));
}

// A size of input 0; of it less one the half, and one more than that.
constexpr char kHalves[] = R"({"format":"collage-sized","version":1,"sizes":[[0,0]],)"
                           R"("quotients":[{"of":[[1,1],[-1,0]],"by":2},{"of":[[1,0,1],[1,0,0]],"by":1}],)"
                           R"("texts":[{"ones":[2],"pieces":["one"],"numbers":[]},)"
                           R"({"ones":[],"pieces":["",""],"numbers":[[[3,0,0,1]]]}]})";

TEST(SizedText, QuotientsAreRoundedDown) {
  const SizedText text(kHalves, 1);
  EXPECT_EQ(text.num_sizes(), 3U);
  for (int64_t size : {1, 2, 5, 6}) {
    DLTensor a{};
    a.shape = &size;
    a.ndim = 1;
    std::vector<int64_t> sizes;
    text.SizesOf({&a}, &sizes);
    EXPECT_EQ(sizes, (std::vector<int64_t>{size, (size - 1) / 2, (size - 1) / 2 + 1}));
    EXPECT_EQ(text.At(sizes), size < 3 ? "one" : std::to_string(3 * ((size - 1) / 2 + 1)));
  }
  int64_t none = 0;
  DLTensor a{};
  a.shape = &none;
  a.ndim = 1;
  std::vector<int64_t> sizes;
  EXPECT_TRUE(Says(Refusal([&] { text.SizesOf({&a}, &sizes); }), "not written for these sizes"));
  for (const Damage& damage : {
           Damage{"\"by\":2", "\"by\":0", "a divisor is out of range"},
           Damage{"\"by\":2", "\"to\":2", "not there"},
           Damage{"\"ones\":[2]", "\"ones\":[3]", "a size that is not there"},
           Damage{"[1,1],[-1,0]", "[1,1,0],[-1,0,0]", "an exponent for each size"},
           Damage{"[[3,0,0,1]]", "[[3,0]]", "an exponent for each size"},
           Damage{"\"quotients\":[", "\"quotients\":[7,", "an object was expected"},
       }) {
    EXPECT_TRUE(Says(Refusal([&] { SizedText(Damaged(kHalves, damage), 1); }), damage.said));
  }
}

TEST(SizedText, RefusesSizesThatRunOver) {
  const SizedText text(kText, 2);
  const int64_t large = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_TRUE(Says(Refusal([&] { text.At({large, large}); }), "larger than any memory"));
}

TEST(SizedText, RefusesWhatCannotBeRead) {
  for (const Damage& damage : {
           Damage{"\"version\":1", "\"version\":2", "another version"},
           Damage{"[[0,1],[1,0]]", "[[0,1],[2,0]]", "an input that is not there"},
           Damage{"[[0,1],[1,0]]", "[[0,1],[1,-1]]", "an input that is not there"},
           Damage{"[[0,1],[1,0]]", "[[0,1],[1]]", "no pair"},
           Damage{"[[0,1],[1,0]]", "[[0,1]]", "a size that is not there"},
           Damage{"\"ones\":[0]", "\"ones\":[2]", "a size that is not there"},
           Damage{"\"ones\":[0]", "\"ones\":0", "no list"},
           Damage{"[[3,0,2]]", "[[3,0]]", "an exponent for each size"},
           Damage{"[[3,0,2]]", "[[3,0,-2]]", "out of range"},
           Damage{"[[3,0,2]]", "[[3,0,0.5]]", "no whole number"},
           Damage{"[[3,0,2]]", "[[\"3\",0,2]]", "no number"},
           Damage{"[\"both\"]", "[\"both\",\"more\"]", "one piece more"},
           Damage{"[\"both\"]", "[7]", "no text"},
           Damage{"\"texts\"", "\"words\"", "not there"},
           Damage{"]}]}", "]", "cannot be read"},
           Damage{"\"numbers\":null", "\"numbers\":[[[[[[[[[1]]]]]]]]]", "nested too deeply"},
       }) {
    const std::string said = Refusal([&] { SizedText(Damaged(kText, damage), 2); });
    EXPECT_TRUE(Says(said, damage.said));
    EXPECT_TRUE(Says(said, "compile the model again"));
  }
  EXPECT_TRUE(Says(Refusal([&] { SizedText(kText, 1); }), "an input that is not there"));
  const std::string empty = R"({"format":"collage-sized","version":1,"sizes":[],"texts":[]})";
  EXPECT_TRUE(Says(Refusal([&] { SizedText(empty, 1); }), "no text"));
}

}  // namespace
}  // namespace collage::onednn
