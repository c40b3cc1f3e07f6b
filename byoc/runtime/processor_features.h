// SPDX-License-Identifier: Apache-2.0
//
// What a processor can do beyond the first x86-64, by the names that LLVM gives it.
#ifndef COLLAGE_PROCESSOR_FEATURES_H_
#define COLLAGE_PROCESSOR_FEATURES_H_

#include <string>
#include <vector>

namespace collage {

// The features that compilers use by themselves, without being told to by a program: those after which code
// that was compiled for one processor may fail on another. The most telling ones first.
std::vector<std::string> KnownProcessorFeatures();

// Whether this processor and its operating system have a known feature, and COLLAGE_MAX_CPU_ISA allows it.
// False for a name that is not known.
bool ProcessorHas(const std::string& feature);

// The best of the levels x86-64-v4, -v3, -v2 and x86-64 that this processor has; "" for other processors.
std::string BestProcessorLevel();

// "this processor", and what COLLAGE_MAX_CPU_ISA caps it to, for messages.
std::string ThisProcessor();

}  // namespace collage

#endif  // COLLAGE_PROCESSOR_FEATURES_H_
