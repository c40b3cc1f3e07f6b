// SPDX-License-Identifier: Apache-2.0
#include "openvino_program.h"

#include <cstdio>
#include <stdexcept>

namespace collage {
namespace openvino {
namespace {

constexpr std::string_view kFormat = "collage-openvino 2\n";

}  // namespace

Program Program::Parse(const std::string& text) {
  Program program;
  size_t library = 0, xml = 0;
  if (text.compare(0, kFormat.size(), kFormat) == 0 &&
      std::sscanf(text.c_str() + kFormat.size(), "%zu %zu\n", &library, &xml) == 2) {
    const size_t line = text.find('\n', kFormat.size());
    const std::string_view rest = std::string_view(text).substr(line == text.npos ? text.size() : line + 1);
    if (library <= rest.size() && xml == rest.size() - library) {
      program.library = rest.substr(0, library);
      program.xml = rest.substr(library, xml);
      return program;
    }
  }
  throw std::runtime_error(
      "the program was written by another version of Collage, or the file is damaged; "
      "compile the model again");
}

}  // namespace openvino
}  // namespace collage
