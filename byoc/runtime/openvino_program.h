// SPDX-License-Identifier: Apache-2.0
//
// The text of a region for OpenVINO, as byoc/openvino/program.go writes it.
#ifndef COLLAGE_OPENVINO_PROGRAM_H_
#define COLLAGE_OPENVINO_PROGRAM_H_

#include <string>
#include <string_view>

namespace collage {
namespace openvino {

// The form of programs that is read.
constexpr int kProgramForm = 5;

// What a program's text holds; a view into it.
struct Program {
  // What OpenVINO is to compute in, as it calls it: "f32" or "bf16".
  std::string_view precision;
  // The names of the region's groups (layer_steps.h), with spaces between.
  std::string_view groups;
  // OpenVINO IR version 11.
  std::string_view xml;

  // Throws std::runtime_error where the text was written by another version of Collage.
  static Program Parse(const std::string& text);
};

}  // namespace openvino
}  // namespace collage

#endif  // COLLAGE_OPENVINO_PROGRAM_H_
