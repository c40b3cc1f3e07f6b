// SPDX-License-Identifier: Apache-2.0
//
// The text of a region for OpenVINO, as byoc/openvino/program.go writes it.
#ifndef COLLAGE_OPENVINO_PROGRAM_H_
#define COLLAGE_OPENVINO_PROGRAM_H_

#include <string>
#include <string_view>

namespace collage {
namespace openvino {

// The parts of a program's text; views into it.
struct Program {
  // The file of the OpenVINO that was found when the model was compiled; may be empty.
  std::string_view library;
  // OpenVINO IR version 11.
  std::string_view xml;

  // Throws std::runtime_error where the text was written by another version of Collage.
  static Program Parse(const std::string& text);
};

}  // namespace openvino
}  // namespace collage

#endif  // COLLAGE_OPENVINO_PROGRAM_H_
