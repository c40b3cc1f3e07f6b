// SPDX-License-Identifier: Apache-2.0
#include "openvino_layers.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace collage {
namespace openvino {
namespace {

void Join(std::vector<int>* of, const std::vector<int>& more) {
  std::set<int> all(of->begin(), of->end());
  all.insert(more.begin(), more.end());
  of->assign(all.begin(), all.end());
}

// "g3/relu_7_abcd_acdb_g4/nn.conv2d_9": the value of group 3 for group 4.
void ReadReorder(const std::string& name, size_t groups, LayerStep* step) {
  const std::vector<NamedGroup> named = GroupsInName(name, groups);
  const bool input = name.rfind("input_", 0) == 0, made = !named.empty() && named.front().at == 0;
  const bool wanted = named.size() > (made ? 1 : 0);
  // A weight that is brought into another layout again and again is the business of who wants it.
  if (!input && !made) return;
  // The other side is an output of the region, or a node of OpenVINO's own making.
  if (!wanted && name.find("output_") == std::string::npos) return;
  step->reorder = true;
  step->of.clear();
  if (wanted) step->of = {named.back().group};
  if (made) step->from = {named.front().group};
}

}  // namespace

std::vector<LayerStep> StepsOf(const std::vector<NodeTime>& nodes, const std::vector<double>& milliseconds,
                               size_t groups) {
  std::vector<LayerStep> steps;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodeTime& node = nodes[i];
    std::vector<int> of = AllGroupsInName(node.name, groups);
    if (node.implementation == "undef" && !steps.empty()) {
      if (!steps.back().reorder) Join(&steps.back().of, of);
      steps.back().milliseconds += milliseconds[i];
      continue;
    }
    LayerStep step;
    step.milliseconds = milliseconds[i];
    step.what = node.type + " " + node.implementation + " " + node.name;
    step.of = std::move(of);
    if (node.type == "Reorder") ReadReorder(node.name, groups, &step);
    steps.push_back(std::move(step));
  }
  // Parameters, results, constants: nothing of the region's, and nothing to be told.
  steps.erase(std::remove_if(steps.begin(), steps.end(),
                             [](const LayerStep& step) {
                               return step.of.empty() && step.from.empty() && step.milliseconds == 0;
                             }),
              steps.end());
  return steps;
}

void LayerTimes::Begin(std::vector<NodeTime> nodes) {
  first_ = std::move(nodes);
  last_.clear();
  whole_ms_.clear();
}

void LayerTimes::Add(const std::vector<NodeTime>& nodes, double milliseconds) {
  last_ = nodes;
  whole_ms_.push_back(milliseconds);
}

std::string LayerTimes::Describe() const {
  if (whole_ms_.empty() || last_.size() != first_.size()) {
    return DescribeNoLayers(groups_, "OpenVINO's profile changed from run to run");
  }
  const auto runs = static_cast<double>(whole_ms_.size());
  std::vector<double> means;
  double sum = 0;
  for (size_t i = 0; i < last_.size(); ++i) {
    double mean = 0;
    if (last_[i].microseconds > 0) {
      // A mean of n runs that was cut to whole microseconds stands for a sum that is (n - 1) / 2 greater on
      // the average; so does each run that was cut itself, by a half.
      const double n = runs + 1;
      const double total = static_cast<double>(last_[i].microseconds) * n + (n - 1) / 2;
      mean = (total - static_cast<double>(first_[i].microseconds)) / runs + 0.5;
    }
    means.push_back(std::max(0.0, mean) / 1000);
    sum += means.back();
  }
  // Of the runs as a whole the lower quartile, as everywhere: a run that waited for a processor would be told
  // as what the call takes. Of the nodes OpenVINO says means alone.
  std::vector<double> wholes = whole_ms_;
  const auto quartile = wholes.begin() + static_cast<std::ptrdiff_t>((wholes.size() - 1) / 4);
  std::nth_element(wholes.begin(), quartile, wholes.end());
  const double call = std::max(0.0, *quartile - sum);
  return DescribeLayers(groups_, StepsOf(last_, means, groups_.size()), call);
}

}  // namespace openvino
}  // namespace collage
