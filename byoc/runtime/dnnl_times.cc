// SPDX-License-Identifier: Apache-2.0
#include "dnnl_times.h"

#include <picojson.h>

#include <set>

namespace collage::onednn {
namespace {

// The groups of so many operators, each once.
picojson::value GroupsOf(const Program& program, int first, int count) {
  std::set<int> groups;
  for (int op = first; op < first + count; ++op) groups.insert(program.of[op].begin(), program.of[op].end());
  picojson::array list;
  for (const int group : groups) list.emplace_back(static_cast<double>(group));
  return picojson::value(list);
}

}  // namespace

std::string DescribeTimes(const Program& program, const std::vector<Step>& steps,
                          const std::vector<double>& milliseconds) {
  picojson::array written, groups;
  for (const std::string& name : program.groups) groups.emplace_back(name);
  for (size_t i = 0; i < steps.size(); ++i) {
    picojson::object step;
    step["ms"] = picojson::value(milliseconds[i]);
    step["what"] = picojson::value(steps[i].what);
    if (steps[i].op != Step::kNone) step["of"] = GroupsOf(program, steps[i].op, steps[i].ops);
    if (steps[i].reorder) {
      step["reorder"] = picojson::value(true);
      if (steps[i].from != Step::kNone) step["from"] = GroupsOf(program, steps[i].from, 1);
    }
    written.emplace_back(step);
  }
  picojson::object all;
  all["groups"] = picojson::value(groups);
  all["steps"] = picojson::value(written);
  return picojson::value(all).serialize();
}

}  // namespace collage::onednn
