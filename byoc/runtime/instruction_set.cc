// SPDX-License-Identifier: Apache-2.0
#include "instruction_set.h"

#include <tvm/runtime/logging.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace collage {
namespace {

InstructionSet OfProcessor() {
#ifdef COLLAGE_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kPlain;
}

// A variable in lower case; "" where it is not set.
std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

struct Cap {
  InstructionSet most = InstructionSet::kAvx512;
  bool ours = false;  // COLLAGE_MAX_CPU_ISA set it
};

Cap FromEnvironment() {
  const std::string level = Variable("COLLAGE_MAX_CPU_ISA");
  if (level == "plain") return {InstructionSet::kPlain, true};
  if (level == "avx2") return {InstructionSet::kAvx2, true};
  if (level == "avx512") return {InstructionSet::kAvx512, true};
  if (!level.empty()) {
    LOG(WARNING) << "collage: COLLAGE_MAX_CPU_ISA=" << level << " is none of plain, avx2 and avx512; ignored";
  }
  // oneDNN's names; those of AVX-512 begin with that of the generation, and of all that is above
  // "avx512_core" we use that.
  std::string theirs = Variable("ONEDNN_MAX_CPU_ISA");
  if (theirs.empty()) theirs = Variable("DNNL_MAX_CPU_ISA");
  if (theirs == "sse41" || theirs == "avx") return {InstructionSet::kPlain, false};
  if (theirs.rfind("avx2", 0) == 0 || theirs.rfind("avx512_mic", 0) == 0)
    return {InstructionSet::kAvx2, false};
  return {};
}

const Cap& TheCap() {
  static const Cap cap = FromEnvironment();
  return cap;
}

}  // namespace

InstructionSet BestInstructionSet() {
  static const InstructionSet best = std::min(OfProcessor(), TheCap().most);
  return best;
}

bool InstructionSetIsCapped() { return TheCap().ours; }

}  // namespace collage
