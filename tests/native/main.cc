// SPDX-License-Identifier: Apache-2.0
//
// main of every unit test. A test that is to run at a level of vector instructions that this processor lacks
// ends with 77, which ctest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

bool ProcessorHas(const std::string& level) {
#if defined(__x86_64__)
  if (level == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  }
  if (level == "avx512_vnni") return __builtin_cpu_supports("avx512vnni");
  if (level == "avx512_bf16") return __builtin_cpu_supports("avx512bf16");
#if !defined(__clang__)  // which does not know these names
  if (level == "amx") return __builtin_cpu_supports("amx-int8") && __builtin_cpu_supports("amx-bf16");
#endif
  if (level == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return level == "plain";
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const char* level = std::getenv("COLLAGE_MAX_CPU_ISA");
  if (level != nullptr && !ProcessorHas(level)) {
    std::printf("skipped: this processor has no %s\n", level);
    return 77;
  }
  return RUN_ALL_TESTS();
}
