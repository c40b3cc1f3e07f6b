// SPDX-License-Identifier: Apache-2.0
//
// What the nodes of a model that OpenVINO has compiled take, as steps of the region.
#ifndef COLLAGE_OPENVINO_LAYERS_H_
#define COLLAGE_OPENVINO_LAYERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "layer_steps.h"

namespace collage {
namespace openvino {

// One line of OpenVINO's profile.
struct NodeTime {
  std::string name, type, implementation;
  // The mean of all runs of the compiled model; OpenVINO cuts each run and the mean to whole microseconds.
  int64_t microseconds = 0;
};

// The profile's lines as steps, with the times in milliseconds that are given for them. A line whose
// implementation is "undef" is of a node that was fused into the one before. A reorder's name is that of the
// node whose value it changes, layouts, and that of the node that wants it.
std::vector<LayerStep> StepsOf(const std::vector<NodeTime>& nodes, const std::vector<double>& milliseconds,
                               size_t groups);

// Gathers the profiles of a compiled model, run by run.
class LayerTimes {
 public:
  explicit LayerTimes(std::vector<std::string> groups) : groups_(std::move(groups)) {}

  // The profile after the first run, which does not count.
  void Begin(std::vector<NodeTime> nodes);
  // The profile after one more run, which took so long as a whole.
  void Add(const std::vector<NodeTime>& nodes, double milliseconds);

  // What one run takes, for RegionEngine::Times.
  std::string Describe() const;

 private:
  const std::vector<std::string> groups_;
  std::vector<NodeTime> first_, last_;
  std::vector<double> whole_ms_;  // what each run that counts took
};

}  // namespace openvino
}  // namespace collage

#endif  // COLLAGE_OPENVINO_LAYERS_H_
