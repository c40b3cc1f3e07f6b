// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime_profile.h"

#include <picojson.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "layer_steps.h"

namespace collage {
namespace {

// A member of an object, or null.
const picojson::value& Member(const picojson::value& of, const char* name) {
  static const picojson::value nothing;
  return of.is<picojson::object>() && of.contains(name) ? of.get(name) : nothing;
}

std::string TextOf(const picojson::value& of, const char* name) {
  const picojson::value& member = Member(of, name);
  return member.is<std::string>() ? member.get<std::string>() : "";
}

double NumberOf(const picojson::value& of, const char* name) {
  const picojson::value& member = Member(of, name);
  return member.is<double>() ? member.get<double>() : 0;
}

bool Begins(const LayerStep& step, const char* with) { return step.what.rfind(with, 0) == 0; }

// ReorderInput and ReorderOutput are named after nothing. They stand right before who wants the value, and
// right behind who makes it. Transpositions around convolutions of bytes, and roundings that were moved to an
// input, count to who comes next, at the end to who came before.
void PlaceReorders(std::vector<LayerStep>* steps) {
  const auto moved = [](const LayerStep& step) {
    return Begins(step, "Transpose Transpose") || Begins(step, "QuantizeLinear ") ||
           Begins(step, "DequantizeLinear ");
  };
  for (size_t i = 1; i < steps->size(); ++i) {
    LayerStep& step = (*steps)[i];
    if (step.of.empty() && Begins(step, "ReorderOutput ")) step.of = (*steps)[i - 1].of;
  }
  for (size_t i = steps->size(); i-- > 0;) {
    LayerStep& step = (*steps)[i];
    const bool before = Begins(step, "ReorderInput ") || moved(step);
    if (step.of.empty() && before && i + 1 < steps->size()) step.of = (*steps)[i + 1].of;
  }
  for (size_t i = 1; i < steps->size(); ++i) {
    LayerStep& step = (*steps)[i];
    if (step.of.empty() && moved(step)) step.of = (*steps)[i - 1].of;
  }
}

}  // namespace

ProfileFolder::ProfileFolder() {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(failed);
  if (failed) return;
  std::string name = (parent / "collage-profile-XXXXXX").string();
  if (mkdtemp(name.data()) != nullptr) path_ = name;
}

ProfileFolder::~ProfileFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string ProfileFolder::Read() const {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(path_, failed)) {
    std::ifstream file(entry.path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  return "";
}

std::string DescribeProfile(const std::vector<std::string>& groups, const std::string& profile) {
  picojson::value events;
  const std::string error = picojson::parse(events, profile);
  if (!error.empty() || !events.is<picojson::array>()) {
    return DescribeNoLayers(groups, "ONNX Runtime's profile cannot be read");
  }
  struct Timed {
    double begin;
    LayerStep step;
  };
  std::vector<Timed> nodes;
  double run = 0, executor = 0;
  for (const picojson::value& event : events.get<picojson::array>()) {
    const std::string name = TextOf(event, "name");
    const double milliseconds = NumberOf(event, "dur") / 1000;
    if (name == "model_run") run = milliseconds;
    if (name == "SequentialExecutor::Execute") executor = milliseconds;
    const std::string suffix = "_kernel_time";
    if (TextOf(event, "cat") != "Node" || name.size() < suffix.size() ||
        name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
      continue;
    }
    LayerStep step;
    step.milliseconds = milliseconds;
    step.what = TextOf(Member(event, "args"), "op_name") + " " + name.substr(0, name.size() - suffix.size());
    step.of = AllGroupsInName(name, groups.size());
    nodes.push_back({NumberOf(event, "ts"), std::move(step)});
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const Timed& a, const Timed& b) { return a.begin < b.begin; });
  std::vector<LayerStep> steps;
  steps.reserve(nodes.size());
  for (Timed& node : nodes) steps.push_back(std::move(node.step));
  PlaceReorders(&steps);
  return DescribeLayers(groups, steps, std::max(0.0, run - executor));
}

}  // namespace collage
