// SPDX-License-Identifier: Apache-2.0
#include "region_profile.h"

#include <tvm/runtime/registry.h>

#include <utility>

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

RegionProfile::Call::Call(std::string symbol)
    : symbol_(std::move(symbol)), begin_(std::chrono::steady_clock::now()) {}

void RegionProfile::Call::Done(const std::string& steps) const {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin_;
  std::string text = "{\"ms\": " + std::to_string(took.count());
  if (!steps.empty()) text += ", \"steps\": " + steps;
  RegionProfile& profile = Get();
  const std::lock_guard<std::mutex> lock(profile.mutex_);
  if (profile.on_) profile.calls_[symbol_] = text + "}";
}

TVM_REGISTER_GLOBAL("collage.runtime.ProfileRegions").set_body_typed([](bool on) {
  RegionProfile::Get().Switch(on);
});

TVM_REGISTER_GLOBAL("collage.runtime.RegionProfile").set_body_typed([]() -> tvm::runtime::String {
  return RegionProfile::Get().Take();
});

}  // namespace collage
