// SPDX-License-Identifier: Apache-2.0
//
// The text of a region for an OpenCL device, as byoc/opencl/program.go writes it.
#ifndef COLLAGE_OPENCL_PROGRAM_H_
#define COLLAGE_OPENCL_PROGRAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace collage {
namespace opencl {

// The form of programs that is read.
constexpr int kProgramForm = 1;

// What a program's text holds.
struct Program {
  // The names of the region's groups (layer_steps.h).
  std::vector<std::string> groups;
  // For each input the groups that read it, for each output the group that makes it.
  std::vector<std::vector<int>> readers, makers;
  // The kernels' nodes in TVM's graph, ascending, and for each the groups that it does; none where that is
  // not known.
  std::vector<int> kernels;
  std::vector<std::vector<int>> does;
  // A shared library, the region as TVM exports a network of it for the device; a view into the text.
  std::string_view library;

  // Throws std::runtime_error where the text is not of this form, or names groups that are not there.
  static Program Parse(const std::string& text);
};

}  // namespace opencl
}  // namespace collage

#endif  // COLLAGE_OPENCL_PROGRAM_H_
