// SPDX-License-Identifier: Apache-2.0
#include "instruction_set.h"

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <string>

namespace collage {
namespace {

InstructionSet OfProcessor() {
#ifdef COLLAGE_X86
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return InstructionSet::kPlain;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw")) {
    return InstructionSet::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512vnni")) return InstructionSet::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::kAvx512Vnni;
#ifdef COLLAGE_X86_GCC  // which knows these names
  if (__builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
      __builtin_cpu_supports("amx-bf16")) {
    return InstructionSet::kAmx;
  }
#endif
  return InstructionSet::kAvx512Bf16;
#else
  return InstructionSet::kPlain;
#endif
}

// A variable in lower case; "" where it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

struct Cap {
  InstructionSet most = InstructionSet::kAmx;
  bool ours = false;  // COLLAGE_MAX_CPU_ISA set it
};

struct Name {
  const char* name;
  InstructionSet most;
};

constexpr Name kOurNames[] = {
    {"plain", InstructionSet::kPlain},
    {"avx2", InstructionSet::kAvx2},
    {"avx512", InstructionSet::kAvx512},
    {"avx512_vnni", InstructionSet::kAvx512Vnni},
    {"avx512_bf16", InstructionSet::kAvx512Bf16},
    {"amx", InstructionSet::kAmx},
};

// oneDNN's. What is not here is above all that our kernels know: ALL, AVX512_CORE_AMX, ...
constexpr Name kTheirNames[] = {
    {"sse41", InstructionSet::kPlain},
    {"avx", InstructionSet::kPlain},
    {"avx2", InstructionSet::kAvx2},
    {"avx2_vnni", InstructionSet::kAvx2},
    {"avx2_vnni_2", InstructionSet::kAvx2},
    {"avx512_mic", InstructionSet::kAvx2},
    {"avx512_mic_4ops", InstructionSet::kAvx2},
    {"avx512_core", InstructionSet::kAvx512},
    {"avx512_core_vnni", InstructionSet::kAvx512Vnni},
    {"avx512_core_bf16", InstructionSet::kAvx512Bf16},
};

Cap FromEnvironment() {
  const std::string level = Variable("COLLAGE_MAX_CPU_ISA");
  for (const Name& one : kOurNames) {
    if (level == one.name) return {one.most, true};
  }
  if (!level.empty()) {
    std::cerr << "collage: warning: COLLAGE_MAX_CPU_ISA=" << level
              << " is none of plain, avx2, avx512, avx512_vnni, avx512_bf16 and amx; ignored\n";
  }
  std::string theirs = Variable("ONEDNN_MAX_CPU_ISA");
  if (theirs.empty()) theirs = Variable("DNNL_MAX_CPU_ISA");
  for (const Name& one : kTheirNames) {
    if (theirs == one.name) return {one.most, false};
  }
  return {};
}

const Cap& TheCap() {
  static const Cap cap = FromEnvironment();
  return cap;
}

}  // namespace

InstructionSet AllowedInstructionSet() {
  static const InstructionSet best = std::min(OfProcessor(), TheCap().most);
  return best;
}

InstructionSet BestInstructionSet() { return std::min(AllowedInstructionSet(), InstructionSet::kAvx512); }

bool MayUseTiles() {
  static const bool may = [] {
    if (AllowedInstructionSet() < InstructionSet::kAmx) return false;
#if defined(__linux__) && defined(__x86_64__)
    // Names that headers of older systems lack (arch/x86/include/uapi/asm/prctl.h).
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
  }();
  return may;
}

bool InstructionSetIsCapped() { return TheCap().ours; }

}  // namespace collage
