// SPDX-License-Identifier: Apache-2.0
//
// What models say that they need, and what the processor has.
//
// ctest: levels
#include "needs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "instruction_set.h"
#include "processor_features.h"
#include "refusal.h"

namespace collage {
namespace {

const std::string kFirst = "collage-needs 1\n";

std::string NeedsRefusal(const std::string& lines) {
  return Refusal([&] { CheckNeeds(kFirst + lines); });
}

TEST(ProcessorFeatures, AreThoseThatTheKernelTellsOf) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(cpuinfo, line) && flags.empty();) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string flag; words >> flag;) flags.insert(flag);
  }
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo has no flags";
  // LLVM's names and the kernel's, where the two differ more than by an underscore.
  const std::set<std::pair<std::string, std::string>> names = {{"avx512f", "avx512f"},
                                                               {"avx512vl", "avx512vl"},
                                                               {"avx512vnni", "avx512_vnni"},
                                                               {"avx512bf16", "avx512_bf16"},
                                                               {"avx2", "avx2"},
                                                               {"fma", "fma"},
                                                               {"f16c", "f16c"},
                                                               {"avxvnni", "avx_vnni"},
                                                               {"bmi2", "bmi2"},
                                                               {"bmi", "bmi1"},
                                                               {"lzcnt", "abm"},
                                                               {"movbe", "movbe"},
                                                               {"gfni", "gfni"},
                                                               {"sse4.2", "sse4_2"},
                                                               {"sse4a", "sse4a"},
                                                               {"sse3", "pni"},
                                                               {"popcnt", "popcnt"},
                                                               {"cx16", "cx16"},
                                                               {"sahf", "lahf_lm"},
                                                               {"avx512vbmi2", "avx512_vbmi2"},
                                                               {"avx512cd", "avx512cd"},
                                                               {"avx512vp2intersect", "avx512_vp2intersect"}};
  for (const auto& [ours, kernels] : names) {
    const bool capped = InstructionSetIsCapped() &&
                        ((ours.rfind("avx512", 0) == 0 && BestInstructionSet() < InstructionSet::kAvx512) ||
                         ((ours.rfind("avx", 0) == 0 || ours == "fma" || ours == "f16c") &&
                          BestInstructionSet() < InstructionSet::kAvx2));
    EXPECT_EQ(ProcessorHas(ours), flags.count(kernels) == 1 && !capped) << ours;
  }
  EXPECT_FALSE(ProcessorHas("avx4096"));
}

TEST(ProcessorFeatures, TheLevelIsThatOfTheCap) {
  const std::string level = BestProcessorLevel();
  if (!InstructionSetIsCapped()) GTEST_SKIP() << "COLLAGE_MAX_CPU_ISA is not set";
  const char* const levels[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
  EXPECT_EQ(level, levels[static_cast<int>(BestInstructionSet())]);
}

TEST(Needs, OfThisProcessorAreMet) {
  std::string lines;
  for (const std::string& feature : KnownProcessorFeatures()) {
    if (ProcessorHas(feature)) lines += "feature " + feature + "\n";
  }
  EXPECT_EQ(NeedsRefusal(lines), "");
  EXPECT_EQ(NeedsRefusal(""), "");
}

TEST(Needs, NameWhatTheProcessorLacks) {
  EXPECT_TRUE(Says(NeedsRefusal("feature avx4096\n"), "this model needs avx4096, which this processor"));
  EXPECT_TRUE(Says(NeedsRefusal("feature a\nfeature b\n"), "needs a and b, which"));
  const std::string many = NeedsRefusal("feature a\nfeature b\nfeature c\nfeature d\nfeature e\n");
  EXPECT_TRUE(Says(many, "needs a, b, c and 2 more, which"));
  EXPECT_TRUE(Says(many, "does not have; compile it with --target " + BestProcessorLevel()));
  if (BestInstructionSet() < InstructionSet::kAvx512) {
    EXPECT_TRUE(Says(NeedsRefusal("feature avx512f\n"), "this model needs avx512f, which this processor"));
  }
}

TEST(Needs, OfLibrariesAndPlugins) {
  RegisterPlugin("needs_test", {"Library", [] { return std::string("Library v12.34.5-build7"); }, 3});
  RegisterPlugin("needs_absent", {"Absent", []() -> std::string { throw std::runtime_error("gone"); }, 1});
  EXPECT_EQ(NeedsOfPlugin("needs_test"), "library needs_test 12.34 Library\nprogram needs_test 3\n");
  EXPECT_EQ(NeedsOfPlugin("needs_absent"), "program needs_absent 1\n");
  EXPECT_EQ(NeedsOfPlugin("unknown"), "");
  EXPECT_EQ(NeedsRefusal(NeedsOfPlugin("needs_test")), "");
  EXPECT_EQ(NeedsRefusal("library needs_test 12.5 Library\nlibrary needs_test 2.90 Library\n"), "");
  EXPECT_TRUE(Says(NeedsRefusal("library needs_test 12.35 The Library\n"),
                   "needs The Library 12.35 or later; 12.34 is here"));
  EXPECT_TRUE(Says(NeedsRefusal("library needs_test 13.0 Library\n"), "needs Library 13.0 or later"));
  EXPECT_TRUE(Says(NeedsRefusal("library needs_absent 1.0 Absent\n"), "needs Absent 1.0 or later: gone"));
  EXPECT_TRUE(Says(NeedsRefusal("library unknown 1.0 X\n"), "needs the plug-in libcollage_unknown.so"));
  EXPECT_EQ(NeedsRefusal("program needs_test 2\n"), "");
  EXPECT_TRUE(Says(NeedsRefusal("program needs_test 4\n"), "reads programs of form 4; this one reads 3"));
  EXPECT_TRUE(Says(NeedsRefusal("program unknown 1\n"), "libcollage_unknown.so"));
}

TEST(Needs, OfLaterVersionsAreRefused) {
  EXPECT_TRUE(Says(Refusal([] { CheckNeeds("collage-needs 2\n"); }), "later version of Collage"));
  EXPECT_TRUE(Says(Refusal([] { CheckNeeds(""); }), "later version of Collage"));
  for (const char* line : {"device gpu\n", "feature\n", "program x y\n", "library x 1.0\n"}) {
    EXPECT_TRUE(Says(NeedsRefusal(line), "which this version of Collage does not know")) << line;
  }
  EXPECT_TRUE(Says(NeedsRefusal("library needs_test one Library\n"), "there is no version in"));
}

}  // namespace
}  // namespace collage
