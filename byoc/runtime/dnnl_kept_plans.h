// SPDX-License-Identifier: Apache-2.0
//
// What a region was compiled to for the sizes that came last.
#ifndef COLLAGE_DNNL_KEPT_PLANS_H_
#define COLLAGE_DNNL_KEPT_PLANS_H_

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "dnnl_plan.h"
#include "dnnl_program.h"

namespace collage::onednn {

// A program with what it was compiled to.
struct Compiled {
  Program program;
  std::unique_ptr<Plan> plan;
};

// Kept is a Compiled, or has one.
template <typename Kept>
class KeptPlans {
 public:
  using Sizes = std::vector<int64_t>;

  // The plan for these sizes, from now on the one that was asked for last; nullptr where there is none.
  Kept* Find(const Sizes& sizes) {
    const auto known = by_sizes_.find(sizes);
    if (known == by_sizes_.end()) return nullptr;
    plans_.splice(plans_.begin(), plans_, known->second);
    return &plans_.front().second;
  }

  // Keeps a plan in the place of the one for these sizes, if there is one, and forgets the one that was not
  // asked for the longest where there are too many. make(kept) makes it where it stands: a plan may refer to
  // its program.
  template <typename Make>
  Kept* Add(const Sizes& sizes, const Make& make) {
    Plans made(1);
    made.front().first = sizes;
    make(&made.front().second);
    if (const auto known = by_sizes_.find(sizes); known != by_sizes_.end()) {
      plans_.erase(known->second);
      by_sizes_.erase(known);
    } else if (plans_.size() == kMost) {
      by_sizes_.erase(plans_.back().first);
      plans_.pop_back();
    }
    plans_.splice(plans_.begin(), made);
    by_sizes_[sizes] = plans_.begin();
    return &plans_.front().second;
  }

  void Clear() {
    plans_.clear();
    by_sizes_.clear();
  }

 private:
  // A plan holds what is done with which memory, no weights and no memory of its own to work in.
  static constexpr size_t kMost = 128;

  using Plans = std::list<std::pair<Sizes, Kept>>;
  Plans plans_;  // those that were asked for last first
  std::map<Sizes, typename Plans::iterator> by_sizes_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_KEPT_PLANS_H_
