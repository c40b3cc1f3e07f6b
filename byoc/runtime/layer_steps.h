// SPDX-License-Identifier: Apache-2.0
//
// The times of engines that are given a region as a whole model and run layers of their own making: which
// groups of the region a layer does is read off its name. The code generators begin the name of each layer
// that they write with its group ("g7/nn.conv2d_12", byoc/region/groups.go); engines keep the names and join
// those of layers that they fuse.
#ifndef COLLAGE_LAYER_STEPS_H_
#define COLLAGE_LAYER_STEPS_H_

#include <string>
#include <string_view>
#include <vector>

#include "collage_runtime.h"

namespace collage {

// One layer that an engine has run.
struct LayerStep {
  double milliseconds = 0;
  // What it is, for people.
  std::string what;
  // The groups that it does; none where its name says nothing.
  std::vector<int> of;
  // It brings a value into another layout: made by the groups in from, for those in of. An input of the
  // region has no from, an output no of.
  bool reorder = false;
  std::vector<int> from;
};

// The names of the groups, as byoc/region.GroupsLine writes them, without the line's end.
COLLAGE_EXPORT std::vector<std::string> ParseGroups(std::string_view line);

// A group in a layer's name, and where that begins.
struct NamedGroup {
  int group;
  size_t at;
};

// The groups that a layer's name tells of, in the order in which they stand there. What is no number of one
// of count groups is not one.
COLLAGE_EXPORT std::vector<NamedGroup> GroupsInName(std::string_view name, size_t count);

// Those groups, ascending, each once.
COLLAGE_EXPORT std::vector<int> AllGroupsInName(std::string_view name, size_t count);

// What RegionEngine::Times gives: the form of dnnl_times.h with
//
//     "layers": true       groups that no step names are done by a step of a neighbour's
//     "call_ms": 0.01      what the call took beside its steps
COLLAGE_EXPORT std::string DescribeLayers(const std::vector<std::string>& groups,
                                          const std::vector<LayerStep>& steps, double call_milliseconds);

// The same where the steps cannot be told, and why.
COLLAGE_EXPORT std::string DescribeNoLayers(const std::vector<std::string>& groups, const std::string& why);

}  // namespace collage

#endif  // COLLAGE_LAYER_STEPS_H_
