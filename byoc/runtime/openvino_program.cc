// SPDX-License-Identifier: Apache-2.0
#include "openvino_program.h"

#include <charconv>
#include <stdexcept>
#include <system_error>

namespace collage {
namespace openvino {
namespace {

constexpr std::string_view kFormat = "collage-openvino 2\n";

// Takes a number and what stands behind it off the front of a text.
bool Take(std::string_view* text, char behind, size_t* number) {
  const char* const end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, *number);
  if (error != std::errc() || rest == end || *rest != behind) return false;
  text->remove_prefix(static_cast<size_t>(rest - text->data()) + 1);
  return true;
}

}  // namespace

Program Program::Parse(const std::string& text) {
  Program program;
  size_t library = 0, xml = 0;
  std::string_view rest = text;
  if (rest.substr(0, kFormat.size()) == kFormat) {
    rest.remove_prefix(kFormat.size());
    if (Take(&rest, ' ', &library) && Take(&rest, '\n', &xml) && library <= rest.size() &&
        xml == rest.size() - library) {
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
