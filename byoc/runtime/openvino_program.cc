// SPDX-License-Identifier: Apache-2.0
#include "openvino_program.h"

#include <stdexcept>

namespace collage {
namespace openvino {
namespace {

const std::string kFormat = "collage-openvino " + std::to_string(kProgramForm) + "\n";

}  // namespace

Program Program::Parse(const std::string& text) {
  const std::string_view all = text;
  const bool ours = all.substr(0, kFormat.size()) == kFormat;
  const size_t line_end = ours ? all.find('\n', kFormat.size()) : all.npos;
  if (line_end == all.npos || line_end + 1 == all.size()) {
    throw std::runtime_error(
        "the program was written by another version of Collage, or the file is damaged; "
        "compile the model again");
  }
  return {all.substr(kFormat.size(), line_end - kFormat.size()), all.substr(line_end + 1)};
}

}  // namespace openvino
}  // namespace collage
