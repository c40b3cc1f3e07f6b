// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of an ONNX Runtime session take, as steps of the region.
#ifndef COLLAGE_ONNXRUNTIME_PROFILE_H_
#define COLLAGE_ONNXRUNTIME_PROFILE_H_

#include <string>
#include <vector>

namespace collage {

// A folder of its own for the file that a profiled run writes; it goes with the object.
class ProfileFolder {
 public:
  ProfileFolder();
  ~ProfileFolder();
  ProfileFolder(const ProfileFolder&) = delete;
  ProfileFolder& operator=(const ProfileFolder&) = delete;

  // "" where none can be made.
  const std::string& path() const { return path_; }

  // The one file in it; "" where there is none.
  std::string Read() const;

 private:
  std::string path_;
};

// What a profile in the form of Chrome's traces says about one run, for RegionEngine::Times. Nodes have the
// names that byoc/onnxruntime wrote, or those of the tensor that they make; nodes of ONNX Runtime's own that
// bring a value into another layout count to who makes it, or wants it.
std::string DescribeProfile(const std::vector<std::string>& groups, const std::string& profile);

}  // namespace collage

#endif  // COLLAGE_ONNXRUNTIME_PROFILE_H_
