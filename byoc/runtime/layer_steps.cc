// SPDX-License-Identifier: Apache-2.0
#include "layer_steps.h"

#include <picojson.h>

#include <cctype>
#include <iterator>
#include <set>
#include <sstream>

namespace collage {
namespace {

picojson::value List(const std::vector<int>& numbers) {
  picojson::array list;
  for (const int number : numbers) list.emplace_back(static_cast<double>(number));
  return picojson::value(list);
}

picojson::object Head(const std::vector<std::string>& groups) {
  picojson::array names;
  for (const std::string& name : groups) names.emplace_back(name);
  picojson::object all;
  all["groups"] = picojson::value(names);
  all["layers"] = picojson::value(true);
  return all;
}

}  // namespace

std::vector<std::string> ParseGroups(std::string_view line) {
  std::istringstream words{std::string(line)};
  return {std::istream_iterator<std::string>(words), {}};
}

std::vector<NamedGroup> GroupsInName(std::string_view name, size_t count) {
  std::vector<NamedGroup> found;
  for (size_t at = 0; at < name.size(); ++at) {
    // A word of its own: "g7/", not the end of "reshaping7/".
    if (name[at] != 'g' || (at > 0 && std::isalnum(static_cast<unsigned char>(name[at - 1])))) continue;
    size_t end = at + 1, group = 0;
    // More digits than any number of groups has are none.
    for (; end < name.size() && end < at + 9 && std::isdigit(static_cast<unsigned char>(name[end])); ++end) {
      group = 10 * group + static_cast<size_t>(name[end] - '0');
    }
    if (end == at + 1 || end == name.size() || name[end] != '/' || group >= count) continue;
    found.push_back({static_cast<int>(group), at});
  }
  return found;
}

std::vector<int> AllGroupsInName(std::string_view name, size_t count) {
  std::set<int> groups;
  for (const NamedGroup& named : GroupsInName(name, count)) groups.insert(named.group);
  return {groups.begin(), groups.end()};
}

std::string DescribeLayers(const std::vector<std::string>& groups, const std::vector<LayerStep>& steps,
                           double call_milliseconds) {
  picojson::object all = Head(groups);
  picojson::array written;
  for (const LayerStep& step : steps) {
    picojson::object one;
    one["ms"] = picojson::value(step.milliseconds);
    one["what"] = picojson::value(step.what);
    if (!step.of.empty()) one["of"] = List(step.of);
    if (step.reorder) one["reorder"] = picojson::value(true);
    if (!step.from.empty()) one["from"] = List(step.from);
    written.emplace_back(one);
  }
  all["steps"] = picojson::value(written);
  all["call_ms"] = picojson::value(call_milliseconds);
  return picojson::value(all).serialize();
}

std::string DescribeNoLayers(const std::vector<std::string>& groups, const std::string& why) {
  picojson::object all = Head(groups);
  all["steps"] = picojson::value(picojson::array());
  all["why"] = picojson::value(why);
  return picojson::value(all).serialize();
}

}  // namespace collage
