// SPDX-License-Identifier: Apache-2.0
//
// TVM's oneDNN runtime tells kernels apart by matching their names, and TVM hands that to Python's re module:
// without Python it fails. This is the same function for the plug-in alone (hidden, so that neither takes
// the other's place), and an exported model runs in a process without Python.
#include <regex>
#include <string>

namespace tvm {
namespace runtime {

// Like Python's re.match: the pattern must match at the beginning and need not reach the end.
__attribute__((visibility("hidden"))) bool regex_match(const std::string& match_against,
                                                       const std::string& regex_pattern) {
  return std::regex_search(match_against, std::regex(regex_pattern), std::regex_constants::match_continuous);
}

}  // namespace runtime
}  // namespace tvm
