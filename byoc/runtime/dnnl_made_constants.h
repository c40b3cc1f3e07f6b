// SPDX-License-Identifier: Apache-2.0
//
// What the plans of one region make of its constants. Plans for other sizes pack the same weights in the same
// way: each is packed once.
#ifndef COLLAGE_DNNL_MADE_CONSTANTS_H_
#define COLLAGE_DNNL_MADE_CONSTANTS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace collage::onednn {

class MadeConstants {
 public:
  // What has the key, which says all that it is made of; made where it is not there yet.
  template <typename T>
  std::shared_ptr<T> Get(const std::string& key, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& there = made_[key];
    if (there == nullptr) there = make();
    return std::static_pointer_cast<T>(there);
  }

  void Clear() { made_.clear(); }

 private:
  std::map<std::string, std::shared_ptr<void>> made_;
};

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_MADE_CONSTANTS_H_
