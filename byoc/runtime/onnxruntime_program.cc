// SPDX-License-Identifier: Apache-2.0
#include "onnxruntime_program.h"

#include <iterator>
#include <sstream>
#include <stdexcept>

namespace collage {
namespace {

const std::string kFormat = "collage-onnxruntime " + std::to_string(kOnnxRuntimeProgramForm) + "\n";

std::vector<std::string> Words(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

OnnxRuntimeProgram OnnxRuntimeProgram::Parse(const std::string& text, size_t num_constants,
                                             size_t num_outputs) {
  const std::string_view all = text;
  const bool ours = all.substr(0, kFormat.size()) == kFormat;
  const size_t names_end = ours ? text.find('\0', kFormat.size()) : text.npos;
  // The lines of the head, each without its end.
  std::vector<std::string> lines;
  if (names_end != text.npos) {
    std::istringstream head(text.substr(kFormat.size(), names_end - kFormat.size()));
    for (std::string line; std::getline(head, line);) lines.push_back(line);
    if (lines.size() == 2) lines.emplace_back();  // no constants
  }
  if (lines.size() != 3 || names_end + 1 == text.size()) {
    throw std::runtime_error(
        "the program was written by another version of Collage, or there is no model in it; compile the "
        "model again");
  }
  OnnxRuntimeProgram program;
  program.groups = Words(lines[0]);
  program.outputs = Words(lines[1]);
  program.constant_names = Words(lines[2]);
  program.model = all.substr(names_end + 1);
  const auto expect = [](const char* what, size_t named, size_t there) {
    if (named == there) return;
    throw std::runtime_error("the program has " + std::to_string(there) + " " + what + " and " +
                             std::to_string(named) + " names for them; compile the model again");
  };
  expect("constants", program.constant_names.size(), num_constants);
  expect("outputs", program.outputs.size(), num_outputs);
  return program;
}

}  // namespace collage
