// SPDX-License-Identifier: Apache-2.0
//
// The one switch for vector instructions.
//
// ctest: levels kernel
#include "instruction_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>

#include "native/level.h"

namespace collage {
namespace {

TEST(InstructionSet, IsTheLevelThatTheVariableSays) {
  const char* level = std::getenv("COLLAGE_MAX_CPU_ISA");
  if (level == nullptr) GTEST_SKIP() << "COLLAGE_MAX_CPU_ISA is not set";
  const InstructionSet want = std::string(level) == "plain"  ? InstructionSet::kPlain
                              : std::string(level) == "avx2" ? InstructionSet::kAvx2
                                                             : InstructionSet::kAvx512;
  EXPECT_EQ(BestInstructionSet(), want);
  EXPECT_TRUE(InstructionSetIsCapped());
}

TEST(InstructionSet, AllDispatchObeys) {
  const InstructionSet best = BestInstructionSet();
  const int widths[] = {4, 8, 16};
  EXPECT_EQ(native::BestLevel().lanes, widths[static_cast<int>(best)]);
}

// The level is read once, so each of these runs in a process of its own, which ends with the level.
void ExpectLevel(const char* ours, const char* theirs, int level) {
  EXPECT_EXIT(
      {
        unsetenv("COLLAGE_MAX_CPU_ISA");
        unsetenv("DNNL_MAX_CPU_ISA");
        unsetenv("ONEDNN_MAX_CPU_ISA");
        if (ours != nullptr) setenv("COLLAGE_MAX_CPU_ISA", ours, 1);
        if (theirs != nullptr) setenv("ONEDNN_MAX_CPU_ISA", theirs, 1);
        std::exit(static_cast<int>(AllowedInstructionSet()));
      },
      testing::ExitedWithCode(level), "")
      << (ours == nullptr ? "-" : ours) << ", " << (theirs == nullptr ? "-" : theirs);
}

int OfThisProcessor() {
#ifdef COLLAGE_X86_GCC
  const bool has[] = {
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"),
      __builtin_cpu_supports("avx512vnni") != 0,
      __builtin_cpu_supports("avx512bf16") != 0,
      __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
          __builtin_cpu_supports("amx-bf16"),
  };
  return static_cast<int>(std::find(std::begin(has), std::end(has), false) - has);
#else
  return 0;
#endif
}

TEST(InstructionSetDeathTest, TheEnvironmentCapsIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const int best = OfThisProcessor(), avx2 = std::min(best, 1), avx512 = std::min(best, 2);
  ExpectLevel(nullptr, nullptr, best);
  ExpectLevel("plain", nullptr, 0);
  ExpectLevel("AVX2", nullptr, avx2);
  ExpectLevel("avx512", nullptr, avx512);
  ExpectLevel("avx512_vnni", nullptr, std::min(best, 3));
  ExpectLevel("AVX512_BF16", nullptr, std::min(best, 4));
  ExpectLevel("amx", nullptr, best);
  ExpectLevel("a typing error", nullptr, best);
  ExpectLevel(nullptr, "SSE41", 0);
  ExpectLevel(nullptr, "avx", 0);
  ExpectLevel(nullptr, "AVX2", avx2);
  ExpectLevel(nullptr, "AVX512_MIC", avx2);
  ExpectLevel(nullptr, "AVX512_CORE", avx512);
  ExpectLevel(nullptr, "AVX512_CORE_VNNI", std::min(best, 3));
  ExpectLevel(nullptr, "AVX512_CORE_BF16", std::min(best, 4));
  ExpectLevel(nullptr, "AVX512_CORE_AMX", best);
  ExpectLevel(nullptr, "ALL", best);
  // Ours goes first.
  ExpectLevel("avx512", "SSE41", avx512);
  ExpectLevel("plain", "ALL", 0);
}

// Where they may be used, threads that were there before they were asked for have them, too.
TEST(InstructionSetDeathTest, TilesAreAskedForOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        setenv("COLLAGE_MAX_CPU_ISA", "avx512_bf16", 1);
        std::exit(MayUseTiles() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
  if (OfThisProcessor() < static_cast<int>(InstructionSet::kAmx)) GTEST_SKIP() << "this processor has no AMX";
#if defined(COLLAGE_X86_GCC) && defined(__linux__)
  EXPECT_EXIT(
      {
        unsetenv("COLLAGE_MAX_CPU_ISA");
        unsetenv("DNNL_MAX_CPU_ISA");
        unsetenv("ONEDNN_MAX_CPU_ISA");
        std::atomic<bool> asked{false};
        std::thread before([&] {
          while (!asked) std::this_thread::yield();
          asm volatile("tilerelease");
          alignas(64) char shapes[64] = {1};
          asm volatile("ldtilecfg %0\n\ttilerelease" ::"m"(shapes));
        });
        const bool may = MayUseTiles();
        asked = true;
        before.join();
        std::exit(may && MayUseTiles() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
#endif
}

}  // namespace
}  // namespace collage
