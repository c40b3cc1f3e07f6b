// SPDX-License-Identifier: Apache-2.0
#include "openvino_program.h"

#include <stdexcept>

namespace collage {
namespace openvino {
namespace {

const std::string kFormat = "collage-openvino " + std::to_string(kProgramForm) + "\n";

}  // namespace

Program Program::Parse(const std::string& text) {
  std::string_view rest = text;
  bool ours = rest.substr(0, kFormat.size()) == kFormat;
  if (ours) rest.remove_prefix(kFormat.size());
  // The line that rest begins with; what is left of a text that ends before is not ours.
  const auto line = [&rest, &ours] {
    const size_t end = rest.find('\n');
    ours = ours && end != rest.npos;
    const std::string_view first = rest.substr(0, end);
    if (ours) rest.remove_prefix(end + 1);
    return first;
  };
  const std::string_view precision = line(), groups = line();
  if (!ours || rest.empty() || (precision != "f32" && precision != "bf16")) {
    throw std::runtime_error(
        "the program was written by another version of Collage, or the file is damaged; "
        "compile the model again");
  }
  return {precision, groups, rest};
}

}  // namespace openvino
}  // namespace collage
