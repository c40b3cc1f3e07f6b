// SPDX-License-Identifier: Apache-2.0
#include "openvino_program.h"

#include <cstdio>
#include <stdexcept>

namespace collage {
namespace openvino {
namespace {

constexpr std::string_view kFormat = "collage-openvino 1\n";
constexpr size_t kAlignment = 64;

}  // namespace

Program Program::Parse(const std::string& text) {
  Program program;
  size_t library = 0, xml = 0, own = 0;
  if (text.compare(0, kFormat.size(), kFormat) == 0 &&
      std::sscanf(text.c_str() + kFormat.size(), "%zu %zu %zu\n", &library, &xml, &own) == 3) {
    const size_t line = text.find('\n', kFormat.size());
    const std::string_view rest = std::string_view(text).substr(line == text.npos ? text.size() : line + 1);
    if (library <= rest.size() && xml <= rest.size() - library && own == rest.size() - library - xml) {
      program.library = rest.substr(0, library);
      program.xml = rest.substr(library, xml);
      program.own = rest.substr(library + xml);
      return program;
    }
  }
  throw std::runtime_error(
      "the program was written by another version of Collage, or the file is damaged; "
      "compile the model again");
}

std::vector<size_t> Offsets(const std::vector<size_t>& sizes) {
  std::vector<size_t> offsets{0};
  for (size_t size : sizes) {
    offsets.push_back(offsets.back() + (size + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offsets;
}

}  // namespace openvino
}  // namespace collage
