// SPDX-License-Identifier: Apache-2.0
#include "device_program.h"

#include <charconv>
#include <stdexcept>

#include "layer_steps.h"

namespace collage {
namespace device {
namespace {

const std::string kFormat = "collage-device " + std::to_string(kProgramForm) + "\n";

// More than any network has.
constexpr size_t kMostNodes = size_t{1} << 30;

[[noreturn]] void Refuse() {
  throw std::runtime_error(
      "the program was written by another version of Collage, or the file is damaged; compile the model "
      "again");
}

// The text up to `end`, which is taken off; the text must have one.
std::string_view Take(std::string_view* text, char end) {
  const size_t at = text->find(end);
  if (at == text->npos) Refuse();
  const std::string_view taken = text->substr(0, at);
  text->remove_prefix(at + 1);
  return taken;
}

// "0,2 1 - ": lists of numbers below count, a space behind each; "-" is an empty one.
std::vector<std::vector<int>> Lists(std::string_view line, size_t count) {
  std::vector<std::vector<int>> lists;
  while (!line.empty()) {
    const std::string_view words = Take(&line, ' ');
    std::vector<int> list;
    const char *at = words.data(), *end = at + words.size();
    while (words != "-") {
      int number = 0;
      const auto [next, error] = std::from_chars(at, end, number);
      if (error != std::errc() || number < 0 || static_cast<size_t>(number) >= count) Refuse();
      list.push_back(number);
      if (next == end) break;
      if (*next != ',') Refuse();
      at = next + 1;
    }
    lists.push_back(std::move(list));
  }
  return lists;
}

}  // namespace

Program Program::Parse(const std::string& text) {
  std::string_view rest = text;
  if (rest.substr(0, kFormat.size()) != kFormat) Refuse();
  rest.remove_prefix(kFormat.size());
  Program program;
  program.device = Take(&rest, ' ');
  program.architecture = Take(&rest, '\n');
  program.groups = ParseGroups(Take(&rest, '\n'));
  program.readers = Lists(Take(&rest, '\n'), program.groups.size());
  program.makers = Lists(Take(&rest, '\n'), program.groups.size());
  program.does = Lists(Take(&rest, '\n'), program.groups.size());
  for (const std::vector<int>& list : Lists(Take(&rest, '\n'), kMostNodes)) {
    if (list.size() != 1 || (!program.kernels.empty() && list[0] <= program.kernels.back())) Refuse();
    program.kernels.push_back(list[0]);
  }
  if (rest.empty() || program.kernels.size() != program.does.size()) Refuse();
  program.library = rest;
  return program;
}

}  // namespace device
}  // namespace collage
