// SPDX-License-Identifier: Apache-2.0
//
// The text of a region for a device, as byoc/device/program.go writes it.
#ifndef COLLAGE_DEVICE_PROGRAM_H_
#define COLLAGE_DEVICE_PROGRAM_H_

#include <string>
#include <string_view>
#include <vector>

namespace collage {
namespace device {

// The form of programs that is read.
constexpr int kProgramForm = 2;

// What a program's text holds.
struct Program {
  // The kind of device that it is for ("opencl"), and what of that kind its code runs on ("sm_90"); "-" for
  // all.
  std::string device, architecture;
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

}  // namespace device
}  // namespace collage

#endif  // COLLAGE_DEVICE_PROGRAM_H_
