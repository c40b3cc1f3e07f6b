// SPDX-License-Identifier: Apache-2.0
//
// What regions take while a network runs: noted by the region modules between
// collage.runtime.ProfileRegions(true) and (false), handed out by collage.runtime.RegionProfile
// (region_module.h has the form).
#ifndef COLLAGE_REGION_PROFILE_H_
#define COLLAGE_REGION_PROFILE_H_

#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace collage {

class RegionProfile {
 public:
  // The one of the process.
  static RegionProfile& Get();

  bool on() const { return on_.load(std::memory_order_relaxed); }
  void Switch(bool on);
  // All that was noted, as JSON; then begins anew.
  std::string Take();

  // One run of a region. steps is JSON, or "".
  void Note(const std::string& symbol, double milliseconds, const std::string& steps);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::map<std::string, std::string> calls_;  // by symbol: the last one, as JSON
};

}  // namespace collage

#endif  // COLLAGE_REGION_PROFILE_H_
