// SPDX-License-Identifier: Apache-2.0
//
// Regions on padded batches, computed for tokens alone and with their padding: the same results.
//
// ctest: levels
#include "dnnl_ragged.h"

#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "dnnl_check_program.h"
#include "dnnl_compiler.h"
#include "refusal.h"
#include "sample.h"

namespace collage::onednn {
namespace {

using tvm::runtime::NDArray;

// One encoder layer as byoc/dnnl writes it: 2 sequences of 5 places, 3 heads of 16; 1 is taken from its mask.
// Of ragged_turned.json rows go place by place.
std::string Layer(const std::string& name = "ragged.json") {
  for (const Seed& seed : Seeds("dnnl_compile")) {
    if (seed.name == name) return seed.content;
  }
  ADD_FAILURE() << "there is no " << name;
  return "";
}

NDArray Tensor(const ValueType& type, int seed) {
  NDArray tensor = NDArray::Empty({type.dims.begin(), type.dims.end()}, ElementType(type), {kDLCPU, 0});
  if (type.truth) return tensor;
  const std::vector<float> numbers = Sample(Elements(type.dims), seed);
  std::copy(numbers.begin(), numbers.end(), static_cast<float*>(tensor->data));
  return tensor;
}

class Region {
 public:
  // of_sizes are where plans of several regions are; nullptr for its own.
  explicit Region(const std::string& text = Layer(), RaggedPlans::Plans* of_sizes = nullptr)
      : program_(ParseProgram(text)) {
    for (size_t i = 0; i < program_.constants.size(); ++i) {
      constants_.push_back(Tensor(program_.values[program_.constants[i]], static_cast<int>(i)));
    }
    for (const int value : program_.inputs) inputs_.push_back(Tensor(program_.values[value], value + 100));
    padded_ = Compiler(program_, constants_, &made_).Compile();
    kept_ = RegionConstants(constants_);
    plans_ = std::make_unique<RaggedPlans>(program_, kept_, &made_, of_sizes == nullptr ? &own_ : of_sizes,
                                           RaggedPlans::Plans::Sizes{2, 5});
  }

  // Adds something to the scores of a place.
  void AddTo(int place, float addend) { static_cast<float*>(inputs_[1]->data)[place] += addend; }

  // Says which places are tokens; `seen` adds to the scores of padding what hides nothing.
  void SetTokens(const std::vector<uint8_t>& valid, bool seen = false) {
    std::copy(valid.begin(), valid.end(), static_cast<uint8_t*>(inputs_[2]->data));
    for (size_t i = 0; i < valid.size(); ++i) {
      static_cast<float*>(inputs_[1]->data)[i] = valid[i] != 0 || seen ? 1.0F : -9999.0F;
    }
  }

  Compiled* Choose() { return plans_->Choose(Pointers()); }
  std::vector<float> Run(Plan* plan) {
    std::vector<float> out(2 * 5 * 48, 9.0F);
    plan->Run(Pointers(), {out.data()});
    return out;
  }
  std::vector<float> RunPadded() { return Run(padded_.get()); }

 private:
  std::vector<void*> Pointers() const {
    std::vector<void*> list;
    for (const NDArray& input : inputs_) list.push_back(input->data);
    return list;
  }

  Program program_;
  MadeConstants made_;
  RaggedPlans::Plans own_;
  std::vector<NDArray> constants_, inputs_;
  RegionConstants kept_;
  std::unique_ptr<Plan> padded_;
  std::unique_ptr<RaggedPlans> plans_;
};

void CheckTokens(const std::string& text, int row_value) {
  Region region(text);
  std::mt19937 random(7);
  int packed = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<uint8_t> valid(10);
    if (i % 2 == 0) {
      for (int n = 0; n < 2; ++n) std::fill_n(valid.begin() + n * 5, random() % 6, uint8_t{1});
    } else {
      for (uint8_t& one : valid) one = random() % 3 == 0 ? 1 : 0;
    }
    region.SetTokens(valid);
    const std::vector<float> wanted = region.RunPadded();
    Compiled* const plan = region.Choose();
    const auto tokens = std::count(valid.begin(), valid.end(), 1);
    ASSERT_EQ(plan != nullptr, tokens <= 8) << tokens << " tokens";
    if (plan == nullptr) continue;
    ++packed;
    ASSERT_EQ(plan->program.values[row_value].dims, (Dims{8, 48}));
    ExpectClose(region.Run(plan->plan.get()), {wanted.begin(), wanted.end()}, 1e-5,
                "call " + std::to_string(i));
  }
  EXPECT_GT(packed, 100);
}

TEST(RaggedRegion, IsWhatItIsWithItsPadding) { CheckTokens(Layer(), 6); }
TEST(RaggedRegion, IsSoWhereRowsGoPlaceByPlace) { CheckTokens(Layer("ragged_turned.json"), 4); }

TEST(RaggedRegion, HasItsPaddingWhereTheMaskDoesNotHideIt) {
  Region region;
  region.SetTokens({1, 1, 0, 0, 0, 1, 1, 1, 0, 0}, true);
  EXPECT_EQ(region.Choose(), nullptr);
  region.SetTokens({1, 1, 0, 0, 0, 1, 1, 1, 0, 0});
  EXPECT_NE(region.Choose(), nullptr);
  region.AddTo(6, -2000.0F);  // a token that does not see itself
  EXPECT_EQ(region.Choose(), nullptr);
}

TEST(RaggedRegion, DoesToTokensWhatTheMaskDoesBesideIt) {
  Region region;
  region.SetTokens({0, 1, 1, 1, 0, 1, 0, 0, 0, 0});
  Compiled* const plain = region.Choose();
  region.AddTo(2, -0.5F);
  region.AddTo(3, 1.5F);
  Compiled* const plan = region.Choose();
  ASSERT_NE(plan, nullptr);
  EXPECT_NE(plan, plain);
  const std::vector<float> wanted = region.RunPadded();
  ExpectClose(region.Run(plan->plan.get()), {wanted.begin(), wanted.end()}, 1e-5, "with a bias");
  // Where padding stands between tokens, what stands at their places is not side by side.
  region.SetTokens({1, 0, 1, 1, 0, 1, 0, 0, 0, 0});
  EXPECT_NE(region.Choose(), nullptr);
  region.AddTo(2, -0.5F);
  EXPECT_EQ(region.Choose(), nullptr);
}

// As where sizes were forgotten, and come again: what was made for as many tokens then reads these.
TEST(RaggedRegion, ReadsItsOwnTokens) {
  RaggedPlans::Plans of_sizes;
  Region before(Layer(), &of_sizes), region(Layer(), &of_sizes);
  before.SetTokens({1, 0, 0, 0, 0, 1, 1, 0, 0, 0});
  region.SetTokens({0, 0, 1, 1, 1, 0, 0, 0, 0, 0});
  EXPECT_NE(before.Choose(), nullptr);
  Compiled* const plan = region.Choose();
  ASSERT_NE(plan, nullptr);
  const std::vector<float> wanted = region.RunPadded();
  ExpectClose(region.Run(plan->plan.get()), {wanted.begin(), wanted.end()}, 1e-5, "the second");
  EXPECT_EQ(region.Choose(), plan);
}

TEST(RaggedRegion, IsRefusedWhereItCannotBe) {
  const Damage damages[] = {
      {", 22, 2, 25, 2]", ", 22, 2]", "it is read by what is not"},
      {", 25, 2]", ", 25, 2, 26, 2]", "leaves the region"},
      {"[5, 2, 6, 1,", "[5, 2, 6, 2,", "has not a row for each place"},
      {"[5, 2, 6, 1,", "[5, 2, 6, 3,", "has not so many axes"},
      {"[5, 2, 6, 1,", "[5, 2, 3, 2, 6, 1,", "is made by nothing"},
      {"[5, 2, 6, 1,", "[99, 2, 6, 1,", "there is no value 99"},
      {"\"valid\": 2", "\"valid\": 1", "which rows are tokens is said by no truths"},
      {"\"valid\": 2", "\"valid\": 4", "no input says which rows are tokens"},
      {"[240, 0, 16, 48, 1]", "[48, 0, 16, 96, 1]", "attention does not read it row by row"},
      {"\"masks\": [{}]", "\"masks\": [{\"sees\": 1}]", "attention sees padding"},
      {"\"in\": [4], \"out\": 5", "\"in\": [0], \"out\": 5", ""},
  };
  for (const Damage& damage : damages) {
    EXPECT_TRUE(Says(Refusal([&] { ParseProgram(Damaged(Layer(), damage)); }), damage.said)) << damage.to;
  }
}

}  // namespace
}  // namespace collage::onednn
