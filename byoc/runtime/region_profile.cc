// SPDX-License-Identifier: Apache-2.0
#include "region_profile.h"

#include <tvm/runtime/registry.h>

namespace collage {

RegionProfile& RegionProfile::Get() {
  static auto* const profile = new RegionProfile;  // models may still run when the process ends
  return *profile;
}

void RegionProfile::Switch(bool on) {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.clear();
  on_ = on;
}

std::string RegionProfile::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = "{";
  for (const auto& [symbol, call] : calls_) {
    // A symbol is a name of C's: there is nothing in it to be escaped.
    text += (text.size() > 1 ? ", \"" : "\"") + symbol + "\": " + call;
  }
  calls_.clear();
  return text + "}";
}

void RegionProfile::Note(const std::string& symbol, double milliseconds, const std::string& steps) {
  std::string text = "{\"ms\": " + std::to_string(milliseconds);
  if (!steps.empty()) text += ", \"steps\": " + steps;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (on_) calls_[symbol] = text + "}";
}

// Takes whether regions tell from now on how long their steps take.
TVM_REGISTER_GLOBAL("collage.runtime.ProfileRegions").set_body_typed([](bool on) {
  RegionProfile::Get().Switch(on);
});

// What they have told, as JSON.
TVM_REGISTER_GLOBAL("collage.runtime.RegionProfile").set_body_typed([]() -> tvm::runtime::String {
  return RegionProfile::Get().Take();
});

}  // namespace collage
