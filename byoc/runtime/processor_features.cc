// SPDX-License-Identifier: Apache-2.0
#include "processor_features.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace collage {
namespace {

enum Register : uint8_t { kEax, kEbx, kEcx, kEdx };

// What the operating system must save for a feature when it changes threads: a mask of XCR0.
constexpr uint64_t kNothing = 0, kVectors = 0x6, kWideVectors = 0xe6;

struct Feature {
  const char* name;
  // Where CPUID tells of it.
  uint32_t leaf, subleaf;
  Register where;
  uint8_t bit;
  uint64_t saved;
  // The lowest cap that allows it.
  InstructionSet level;
};

constexpr auto kPlain = InstructionSet::kPlain;
constexpr auto kAvx2 = InstructionSet::kAvx2;
constexpr auto kAvx512 = InstructionSet::kAvx512;

// Features that only programs ask for (AES, SHA, AMX, ...) are not here: TVM's code has none of them.
constexpr Feature kFeatures[] = {
    {"avx512f", 7, 0, kEbx, 16, kWideVectors, kAvx512},
    {"avx512vl", 7, 0, kEbx, 31, kWideVectors, kAvx512},
    {"avx512bw", 7, 0, kEbx, 30, kWideVectors, kAvx512},
    {"avx512dq", 7, 0, kEbx, 17, kWideVectors, kAvx512},
    {"avx512cd", 7, 0, kEbx, 28, kWideVectors, kAvx512},
    {"avx512vnni", 7, 0, kEcx, 11, kWideVectors, kAvx512},
    {"avx512bf16", 7, 1, kEax, 5, kWideVectors, kAvx512},
    {"avx512fp16", 7, 0, kEdx, 23, kWideVectors, kAvx512},
    {"avx512vbmi", 7, 0, kEcx, 1, kWideVectors, kAvx512},
    {"avx512vbmi2", 7, 0, kEcx, 6, kWideVectors, kAvx512},
    {"avx512ifma", 7, 0, kEbx, 21, kWideVectors, kAvx512},
    {"avx512bitalg", 7, 0, kEcx, 12, kWideVectors, kAvx512},
    {"avx512vpopcntdq", 7, 0, kEcx, 14, kWideVectors, kAvx512},
    {"avx512vp2intersect", 7, 0, kEdx, 8, kWideVectors, kAvx512},
    {"avx2", 7, 0, kEbx, 5, kVectors, kAvx2},
    {"fma", 1, 0, kEcx, 12, kVectors, kAvx2},
    {"avx", 1, 0, kEcx, 28, kVectors, kAvx2},
    {"f16c", 1, 0, kEcx, 29, kVectors, kAvx2},
    {"avxvnni", 7, 1, kEax, 4, kVectors, kAvx2},
    {"avxifma", 7, 1, kEax, 23, kVectors, kAvx2},
    {"avxvnniint8", 7, 1, kEdx, 4, kVectors, kAvx2},
    {"avxvnniint16", 7, 1, kEdx, 10, kVectors, kAvx2},
    {"avxneconvert", 7, 1, kEdx, 5, kVectors, kAvx2},
    {"fma4", 0x80000001, 0, kEcx, 16, kVectors, kAvx2},
    {"xop", 0x80000001, 0, kEcx, 11, kVectors, kAvx2},
    {"bmi2", 7, 0, kEbx, 8, kNothing, kPlain},
    {"bmi", 7, 0, kEbx, 3, kNothing, kPlain},
    {"lzcnt", 0x80000001, 0, kEcx, 5, kNothing, kPlain},
    {"movbe", 1, 0, kEcx, 22, kNothing, kPlain},
    {"gfni", 7, 0, kEcx, 8, kNothing, kPlain},
    {"tbm", 0x80000001, 0, kEcx, 21, kNothing, kPlain},
    {"sse4.2", 1, 0, kEcx, 20, kNothing, kPlain},
    {"sse4.1", 1, 0, kEcx, 19, kNothing, kPlain},
    {"sse4a", 0x80000001, 0, kEcx, 6, kNothing, kPlain},
    {"ssse3", 1, 0, kEcx, 9, kNothing, kPlain},
    {"sse3", 1, 0, kEcx, 0, kNothing, kPlain},
    {"popcnt", 1, 0, kEcx, 23, kNothing, kPlain},
    {"cx16", 1, 0, kEcx, 13, kNothing, kPlain},
    {"sahf", 0x80000001, 0, kEcx, 0, kNothing, kPlain},
};

bool InProcessor([[maybe_unused]] const Feature& feature) {
#if defined(__x86_64__)
  std::array<uint32_t, 4> told{};
  if (__get_cpuid_count(feature.leaf, feature.subleaf, &told[kEax], &told[kEbx], &told[kEcx], &told[kEdx]) ==
      0)
    return false;
  if ((told[feature.where] >> feature.bit & 1) == 0) return false;
  if (feature.saved == kNothing) return true;
  constexpr uint32_t kOsXsave = 1U << 27;
  if (__get_cpuid(1, &told[kEax], &told[kEbx], &told[kEcx], &told[kEdx]) == 0 || (told[kEcx] & kOsXsave) == 0)
    return false;
  uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & feature.saved) == feature.saved;
#else
  return false;
#endif
}

// What each level adds to the one below it (the psABI's table, as far as it is in ours).
struct Level {
  const char* name;
  std::vector<const char*> adds;
};

const std::vector<Level>& Levels() {
  static const auto* const levels = new std::vector<Level>{
      {"x86-64-v2", {"cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"}},
      {"x86-64-v3", {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}},
      {"x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}},
  };
  return *levels;
}

}  // namespace

std::vector<std::string> KnownProcessorFeatures() {
  std::vector<std::string> names;
  for (const Feature& feature : kFeatures) names.emplace_back(feature.name);
  return names;
}

bool ProcessorHas(const std::string& name) {
  for (const Feature& feature : kFeatures) {
    if (name != feature.name) continue;
    return InProcessor(feature) && !(InstructionSetIsCapped() && feature.level > BestInstructionSet());
  }
  return false;
}

std::string BestProcessorLevel() {
#if defined(__x86_64__)
  std::string best = "x86-64";
  for (const Level& level : Levels()) {
    if (!std::all_of(level.adds.begin(), level.adds.end(), ProcessorHas)) break;
    best = level.name;
  }
  return best;
#else
  return "";
#endif
}

std::string ThisProcessor() {
  if (!InstructionSetIsCapped()) return "this processor";
  const InstructionSet best = BestInstructionSet();
  const char* name = best == kAvx512 ? "avx512" : best == kAvx2 ? "avx2" : "plain";
  return std::string("this processor (capped to ") + name + " by COLLAGE_MAX_CPU_ISA)";
}

}  // namespace collage
