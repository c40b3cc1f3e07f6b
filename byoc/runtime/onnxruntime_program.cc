// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime_program.h"

#include <iterator>
#include <sstream>
#include <stdexcept>

namespace collage {
namespace {

const std::string kFormat = "collage-onnxruntime " + std::to_string(kOnnxRuntimeProgramForm) + "\n";

}  // namespace

OnnxRuntimeProgram OnnxRuntimeProgram::Parse(const std::string& text, size_t num_constants) {
  const std::string_view all = text;
  const bool ours = all.substr(0, kFormat.size()) == kFormat;
  const size_t names_end = ours ? text.find('\0', kFormat.size()) : text.npos;
  if (names_end == text.npos || names_end + 1 == text.size()) {
    throw std::runtime_error(
        "the program was written by another version of Collage, or there is no model in it; compile the "
        "model "
        "again");
  }
  OnnxRuntimeProgram program;
  std::istringstream names(text.substr(kFormat.size(), names_end - kFormat.size()));
  program.constant_names.assign(std::istream_iterator<std::string>(names), {});
  program.model = all.substr(names_end + 1);
  if (program.constant_names.size() != num_constants) {
    throw std::runtime_error("the program has " + std::to_string(num_constants) + " constants and " +
                             std::to_string(program.constant_names.size()) +
                             " names for them; compile the model again");
  }
  return program;
}

}  // namespace collage
