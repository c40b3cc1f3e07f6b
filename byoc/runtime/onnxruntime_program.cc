// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime_program.h"

#include <iterator>
#include <sstream>
#include <stdexcept>

namespace collage {

OnnxRuntimeProgram OnnxRuntimeProgram::Parse(const std::string& text, size_t num_constants) {
  const size_t path_end = text.find('\0');
  const size_t names_end = path_end == text.npos ? path_end : text.find('\0', path_end + 1);
  if (names_end == text.npos || names_end + 1 == text.size()) {
    throw std::runtime_error("the program has no model in it; compile the model again");
  }
  OnnxRuntimeProgram program;
  program.library = text.substr(0, path_end);
  std::istringstream names(text.substr(path_end + 1, names_end - path_end - 1));
  program.constant_names.assign(std::istream_iterator<std::string>(names), {});
  program.model = std::string_view(text).substr(names_end + 1);
  if (program.constant_names.size() != num_constants) {
    throw std::runtime_error("the program has " + std::to_string(num_constants) + " constants and " +
                             std::to_string(program.constant_names.size()) +
                             " names for them; compile the model again");
  }
  return program;
}

}  // namespace collage
