// SPDX-License-Identifier: Apache-2.0
//
// The text of a region for ONNX Runtime, as byoc/onnxruntime writes it: the line "collage-onnxruntime 3", a
// line with the names of the region's groups (layer_steps.h), one with the names of the model's outputs, the
// names of the constants' initialisers with spaces between them, a zero, and the ONNX model. Its inputs are
// i0, i1, ...
#ifndef COLLAGE_ONNXRUNTIME_PROGRAM_H_
#define COLLAGE_ONNXRUNTIME_PROGRAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace collage {

// The form of programs that is read.
constexpr int kOnnxRuntimeProgramForm = 3;

struct OnnxRuntimeProgram {
  std::vector<std::string> groups, outputs, constant_names;
  // A view into the text.
  std::string_view model;

  // Throws std::runtime_error where the text is not of that form, or names other numbers of constants or
  // outputs.
  static OnnxRuntimeProgram Parse(const std::string& text, size_t num_constants, size_t num_outputs);
};

}  // namespace collage

#endif  // COLLAGE_ONNXRUNTIME_PROGRAM_H_
